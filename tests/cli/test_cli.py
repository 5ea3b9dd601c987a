"""The command line: defaults, the JSON object, the table, progress, and TOML."""

import io
import json
import os
import re
import sys
import time
import tomllib
from functools import cache

import click
import pytest

from p2pkm.cli.algorithms import FAMILIES, _fill, _join, _read_note, _read_references
from p2pkm.cli.main import print_error
from p2pkm.cli.options import PLACEMENTS
from p2pkm.cli.run import command
from p2pkm.cli.summary_table import Progress
from p2pkm.core.card import find_card
from p2pkm.core.units import format_number
from p2pkm.engine.run_options import OPTIONS as FIELDS
from p2pkm.engine.run_options import SECTIONS, RunOptions
from p2pkm.experiments.config import parse_data
from p2pkm.methods.registry import METHODS, find
from p2pkm.metrics.registry import summary_keys
from tests.support.run_cli import FILES, SMALL, StageResult, here, listed, ranks, solve, there

PLACED = ("rank_partition", "edge_cut", "halo_size", "load_imbalance", "load_imbalance_devices")


@pytest.fixture(autouse=True)
def _stand_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("words", "code"), [(("algorithms", "fkm"), 0), (("algorithms", "nothing"), 2)])
def test_ctrl_c_while_the_interpreter_shuts_down_changes_no_exit_code(words, code):
    program = (
        "import os, signal, sys\n"
        "from p2pkm.cli.main import run_program\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGINT):\n"
        "        kill(process, number)\n"
        "sys.late = Late()\n"
        "run_program()\n"
    )
    assert there(sys.executable, "-c", program, *words).code == code


def test_json_object():
    """One object on stdout with all keys in order, and nothing else; progress goes to stderr."""
    ending = here(*SMALL, "--out", "none", "--format", "json", "-v")
    summary = ending.summary
    assert list(summary) == summary_keys()
    assert (summary["algorithm"], summary["graph"], summary["devices"], summary["ranks"]) == ("gtvmin", "ring", 4, 1)
    assert (summary["clusters"], summary["data"]) == (16, "grid16:points=5,sd=1,seed=0")
    assert summary["partition"] == "dirichlet:alpha=0.3,by=class,minimum=0,seed=0"
    assert (summary["init"], summary["coupling"], summary["alpha"]) == ("tree-summaries:candidates=5", 30, None)
    assert (summary["schedule"], summary["coupling_choice"]) == ("colored", "auto")
    assert summary["relaxation"] == pytest.approx(2 / (1 + (1 - (60 / 61) ** 2) ** 0.5))
    assert (summary["local_steps"], summary["seed"]) == (1, 0)
    assert (summary["descent"], summary["out"]) == ("certified", None)
    assert len(summary["centroids_sha256"]) == len(summary["chain_sha256"]) == 64
    for name in ("rounds", "messages", "bytes", "rows_max_per_device", "centroid_sets"):
        assert isinstance(summary[name], int) and summary[name] > 0
    scores = ("ari", "nmi", "purity", "ari_clients")
    for name in ("ratio_mean", "ratio_worst", "ratio_local_only", "objective", "gtv", *scores):
        assert isinstance(summary[name], float)
    assert ending.err.count("\n") > 5


def test_defaults(tmp_path):
    ending = here("--dry-run", "--format", "json")
    config = json.loads(ending.out)
    assert ending.code == 0 and ending.out.count("\n") == 1 and not list(tmp_path.iterdir())
    wanted = {"graph": "ring", "devices": 16, "clusters": 4, "rounds": 150, "algorithm": "gtvmin",
              "partition": "column:minimum=0,seed=0", "seed": 0,
              "record_every": 1, "baselines": True,
              "allow_disconnected": False, "require_converged": False}  # fmt: skip
    assert config.items() >= wanted.items()
    assert parse_data(config["data"]).options.items() >= {"along": "graph", "amplitude": 0.6, "graph": "ring"}.items()
    assert config["plot"] is False and json.loads(here("--dry-run").out)["plot"] is True


@pytest.mark.parametrize(("words", "source"), [
    (["--graph", "karate"], "device-clusters"), (["--algorithm", "fkm"], "device-clusters"),
    (["--test-share", "0.2"], "device-clusters"), (["--graph", "one-peer-exponential"], "device-clusters"),
    (["--partition", "iid"], "grid16"), (["--stream", "drawn:kind=slow"], "grid16"),
    (["--partition", "iid", "--data", "device-clusters"], "device-clusters"), (["--data", "blobs"], "blobs"),
])  # fmt: skip
def test_default_points_differ_between_devices_unless_the_run_deals_or_changes_them(words, source):
    ending = here("--dry-run", *words)
    assert ending.code == 0, ending.err
    data = parse_data(json.loads(ending.out)["data"])
    assert data.name == source
    if source == "device-clusters":  # the points of a server method are those of peer methods on the default graph
        assert data.options["graph"].partition(":")[0] == (words[1] if words[0] == "--graph" else "ring")


@pytest.mark.parametrize("graph", ["random-regular:degree=20", "file:nothing.csv", "grid:rows=3", "gallery:nothing"])
def test_a_wrong_graph_is_called_wrong_whatever_points_follow_it(graph):
    ends = [here("--graph", graph, "--out", "none", *more) for more in ((), ("--data", "grid16"))]
    assert [end.code for end in ends] == [3, 3] and ends[0].err == ends[1].err


def test_a_user_who_gave_no_option_is_guided_and_no_other_one(monkeypatch):
    guided = []
    monkeypatch.setattr("p2pkm.experiments.run.run_on_root", lambda experiment, manner: guided.append(manner.guide))
    for words in ((), ("run",), ("--graph", "star"), ("--seed", "1")):
        assert here(*words).code == 0
    assert guided == [True, True, False, False]


def test_the_page_of_a_method_has_its_options_and_its_source():
    text = here("algorithms", "fkm").out
    assert "Options (--algorithm fkm:key=value,...)\n" in text and "server_n_init=" in text
    assert all(f"\n\n{title}\n  " in text for title in ("Messages", "Privacy"))
    assert text.split("\n\n")[-1].startswith("Source: [1] S. Garst, M. Reinders")
    full = here("algorithms", "fkm", "--full").out
    assert "\nParameters\n---" in full and "\nkeep_empty : bool" in full


def test_methods_are_listed_as_a_table():
    lines = here("algorithms").out.splitlines()
    assert lines[0].split() == ["name", "server", "sends", "raw", "points", "method"]
    titles = [line for line in lines[1:] if line and not line.startswith(" ")]
    assert titles[: len(FAMILIES)] == list(FAMILIES.values())
    rows = {line.split()[0]: line for line in lines[1:] if line.startswith("  ")}
    cards = {name: find_card(find(name)) for name in METHODS}
    assert set(rows) == set(METHODS) and all(card.name == name for name, card in cards.items())
    assert max(len(card.line) for card in cards.values()) <= 60
    assert len({card.line for card in cards.values()}) == len(cards)
    assert all(row.endswith(cards[name].line) for name, row in rows.items())


def test_names_that_share_a_class_have_their_own_summaries():
    for names in (("central", "cdkm"), ("ffcm1", "ffcm2")):
        first, second = (json.loads(here("algorithms", name, "--format", "json").out)["summary"] for name in names)
        assert first != second


def test_all_lists_agree_on_which_methods_have_a_server():
    def lists_server(name):
        return json.loads(here("algorithms", name, "--format", "json").out)["server"]

    rows = {line.split()[0]: line.split()[1] for line in here("algorithms").out.splitlines() if line.startswith("  ")}
    assert [lists_server(name) for name in ("local", "central", "gtvmin")] == [False, True, False]
    assert [rows[name] for name in ("local", "central", "gtvmin")] == ["no", "yes", "no"]


NEW = """Summary.

Parameters
----------
k : int

Notes
-----
**Objective.** F.

**Messages.** ``k`` rows [1]_,
once; see :ref:`ledger`.

1. A list.
2. An
   item.

**Privacy.** No guarantee.

**Differences from the paper.** None.

References
----------
.. [1] Somebody, 2025.
.. [2] Somebody else,
   2026.
"""


def test_notes_are_read_under_their_headings():
    read = lambda heading: _join(_read_note(NEW, heading))  # noqa: E731
    assert read("Messages") == "k rows [1], once; see ledger. 1. A list. 2. An item."
    assert read("Differences from the paper") == "None."
    assert read("Faults") is None
    assert _fill(_read_note(NEW, "Messages")) == "  k rows [1], once; see ledger.\n  1. A list.\n  2. An item."
    assert _read_references(NEW.split("-\n")[-1]) == "[1] Somebody, 2025. [2] Somebody else, 2026."


def test_every_field_is_an_option():
    options = {parameter.name for parameter in command.params}
    assert set(FIELDS) <= options
    assert options - set(FIELDS) >= {"config", "force", "form", "dry_run", "quiet", "verbose", "version"}


def read_flags(text):
    """Return the long options that a help lists."""
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


def test_the_short_help_has_examples_all_commands_and_common_options():
    text = here("--help").out
    assert "\n  p2pkm --graph ring " in text and "\n  mpirun -n 16 python -m p2pkm --graph ring " in text
    head, _, tail = text.partition("Experiment:")
    assert all(re.search(rf"^  {name} ", head, re.MULTILINE) for name in command.commands)
    basic = {f"--{name.replace('_', '-')}" for name, place in PLACEMENTS.items() if place.is_basic} - {"--form"}
    assert read_flags(tail.partition("Exit codes")[0]) == basic | {"--format", "--help-all"}
    assert 13 <= len(basic) + 1 <= 16
    assert "Exit codes" in text and "\\b" not in text


def test_help_all_has_every_option_once_under_a_heading():
    text = here("--help-all").out
    flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    long = {flag for flag in flags if flag.startswith("--")} | {"--help"}
    rows = re.findall(r"^  (-.*?)(?:  |$)", text, re.MULTILINE)
    listed_flags = [flag for row in rows for flag in read_flags(row)]
    assert sorted(listed_flags) == sorted(long)
    titles = re.findall(r"^([A-Z][\w ]+):$", text, re.MULTILINE)
    assert titles == ["Examples", *SECTIONS, "Other options"]
    assert set(PLACEMENTS) == {option.name for option in command.params} - {"version", "help_all"}
    assert {place.section for place in PLACEMENTS.values()} == set(SECTIONS)


@pytest.mark.parametrize("name", ["run", "compare", "plan"])
def test_commands_with_options_of_a_run_list_all_of_theirs(name):
    params = command.commands[name].params
    options = [flag for one in params if isinstance(one, click.Option) for flag in (*one.opts, *one.secondary_opts)]
    text = here(name, "--help").out
    assert not [flag for flag in options if flag.startswith("--") and flag not in read_flags(text)]


@pytest.mark.parametrize("option", command.params, ids=lambda option: option.name)
def test_an_option_has_a_help_text_of_one_line(option):
    assert option.help and len(option.help) <= 80 and "\n" not in option.help


@pytest.mark.parametrize("option", [one for one in command.params if one.name in PLACEMENTS], ids=lambda one: one.name)
def test_every_option_is_a_topic(option):
    topic = next(flag for flag in option.opts if flag.startswith("--"))
    text = here("help", topic).out
    assert option.help.split("  [")[0] in " ".join(text.split()) and len(text.splitlines()) > 1
    assert here("help", topic.removeprefix("--")).out == text
    assert topic.removeprefix("--") in here("help").out


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("graph", ["small-world:degree=4,rewire=0.1", "ring"]),
        ("algorithm", ["gtvmin", "treelloyd"]),
        ("init", ["tree-summaries:candidates=1,rows=", "d2-sampling:greedy=true,draw=points"]),
        ("data", ["blobs:", "grid16:points=200,sd=1"]),
        ("partition", ["dirichlet:alpha=0.3,by=class,minimum=0", "iid"]),
        ("faults", ["loss=0", "max_delay=2"]),
        ("stream", ["kind=none", "period="]),
        ("link-model", ["wan:latency=0.075", "bandwidth"]),
        ("schedule", ["colored, jacobi, async"]),
        ("byzantine", ["kind=random", "place=random"]),
        ("quantize", ["threshold=2"]),
    ],
)
def test_a_topic_lists_names_keys_and_defaults(topic, words):
    text = here("help", topic).out
    assert not [word for word in words if word not in text]
    assert (f"{topic}*" in here("help").out) == (topic != "schedule")


def test_a_command_is_a_topic_unless_an_option_has_its_name():
    assert here("help", "compare").out == here("compare", "--help").out
    assert here("help", "faults").out.startswith("--faults SPEC\n")


def test_an_unknown_topic_suggests_the_nearest():
    ending = here("help", "fault")
    assert ending.code == 2 and "Did you mean 'faults'?" in ending.err


def test_table():
    ending = here(*SMALL, "--out", "none", "-q")
    assert ending.code == 0 and ending.err == ""
    lines = ending.out.splitlines()
    assert re.fullmatch(r"gtvmin: 16 clusters on 4 devices, ring graph \([\d.]+ s, 1 process(; .*)?\)", lines[0])
    labels = [re.split(r"  +", line.strip())[0] for line in lines[2:-2]]
    labels = [label for label in labels if label != "note"]
    assert labels == ["Quality", "cost ratio", "local-only baseline", "ARI", "Communication", "messages", "rounds",
                      "Checks", "descent", "disclosed points"]  # fmt: skip
    assert re.fullmatch(r"Results: not kept \(--out none\); --verbose shows \d+ more metrics\.", lines[-1])
    table = [line for line in lines if not line.startswith("  note")]  # notes may be longer
    assert "\x1b" not in ending.out and max(map(len, table)) < 160


def test_the_table_ends_with_the_run_folder_and_the_command_that_draws_it():
    ending = here(*SMALL, "--out", "run", "-q").out.splitlines()[-1]
    assert ending.startswith("Results: run; ") and ending.endswith("; p2pkm report RUN draws them.")


def test_verbose_shows_as_many_more_rows_as_announced():
    words = (*SMALL, "--coupling", "strong", "--out", "none", "-q")
    short = here(*words).out.splitlines()
    announced = int(re.search(r"shows (\d+) more", short[-1])[1])
    full = here(*words, "-v").out.splitlines()
    rows = [[line for line in lines if line.startswith("  ")] for lines in (short, full)]
    assert len(rows[1]) - len(rows[0]) == announced > 10
    assert "more metrics" not in full[-1]
    for words in ("coupling", "initial cost ratio", "encoded bytes", "devices observed"):
        assert not [row for row in rows[0] if words in row] and [row for row in rows[1] if words in row]


@cache
def run_plain():
    return here(*SMALL, "--out", "none", "-q")


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (("--algorithm", "private:epsilon=1,radius=30"), ["differential privacy"]),
        (("--faults", "loss=0.1"), ["messages lost", "unavailable devices"]),
        (("--link-model", "lan"), ["simulated time"]),
        (("--stream", "drawn:kind=slow", "--rounds", "3"), ["excess over a central refit"]),
        (("-k", "auto"), ["k chosen"]),
        (("--silhouette",), ["silhouette", "silhouette, worst device"]),
        (("--min-cluster-size", "2"), ["minimum cluster size"]),
        (("--rounds", "0"), ["warning"]),
    ],
)
@pytest.mark.sample(3)
def test_options_add_the_rows_that_they_ask_for(words, labels):
    ending = here(*SMALL, "--out", "none", "-q", *words)
    assert ending.code == 0, ending.err
    for label in labels:
        pattern = re.compile(rf"^  {label}  ", re.MULTILINE)
        assert pattern.search(ending.out) and not pattern.search(run_plain().out)


def test_table_leaves_out_what_is_not_known():
    text = here(*SMALL, "--out", "none", "--no-baselines").out
    assert "cost ratio" not in text and "None" not in text and "nan" not in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_terminal(monkeypatch):
    """Rich on a terminal: colors and a live line, which is gone at the end."""
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    from p2pkm.cli.main import main

    clock = iter(range(10**6))
    monkeypatch.setattr("p2pkm.cli.summary_table.time.monotonic", lambda: next(clock))
    assert main([*SMALL, "--out", "none"]) == 0
    assert "\x1b[" in out.getvalue() and "mean of devices" in out.getvalue()
    assert "round" in err.getvalue() and "\x1b[2K" in err.getvalue()


def test_plain_progress_comes_every_few_seconds(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("p2pkm.cli.summary_table.time.monotonic", lambda: now[0])
    progress = Progress("gtvmin", 100, quiet=False, verbose=False)
    record = {"stage": "gtvmin", "round": 0, "ratio_mean": 1.5, "converged": 2, "bytes": 12345}
    now[0] += 9  # of preparation
    progress(record | {"stage": "flooded-summaries", "round": 1})
    now[0] += 9
    progress(record | {"stage": "flooded-summaries", "round": 251})
    for t in range(100):
        now[0] += 0.1
        progress(record | {"round": t})
    now[0] += 9
    progress(record | {"stage": "accept-test", "round": 1})  # directly above the summary
    progress.close()
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "flooded-summaries round 251: ratio 1.500, 2 converged, 12,345 plain bytes"  # no limit by --rounds
    assert 3 <= len(lines) <= 4
    assert not [line for line in lines if not ("of at most 100" in line and "12,345 plain bytes" in line)]


def test_quiet_and_verbose():
    assert here(*SMALL, "--out", "none", "--quiet").err == ""
    lines = here(*SMALL, "--out", "none", "--verbose", "--init", "local", "--tol", 0, "--rounds", 4).err.splitlines()
    assert sum(line.startswith("gtvmin round") for line in lines) == 5


def test_run_is_the_same_as_no_command():
    command_line = (*SMALL, "--out", "none", "--format", "json")
    first, second = here(*command_line).summary, here("run", *command_line).summary
    timed = {"wall_seconds": 0, "compile_seconds": 0}
    assert first | timed == second | timed


def test_an_endless_message_loses_its_middle_and_no_other_one(capsys):
    for long in (1_499, 1_501, 3_000, 3_001):
        words = "a" * 1_500 + "b" * (long - 1_500) if long > 1_500 else "a" * long
        assert print_error(words, 3) == 3
        shown = capsys.readouterr().err.removeprefix("p2pkm: error: ").removesuffix("\n")
        assert shown == (words if long <= 3_000 else f"{words[:1_500]} ... {words[-1_500:]}")


def test_compile():
    first, second = here("compile"), here("compile")
    assert (first.code, first.out) == (0, "the kernels are compiled\n")
    assert "compiling kernels" in first.err or first.err == ""  # an empty cache is filled by the first call only
    assert second == StageResult(0, first.out, "")


def test_dry_run(tmp_path):
    ending = here(*SMALL, "--dry-run", "--graph", "karate", "--devices", 34, "--out", "run")
    assert ending.code == 0 and json.loads(ending.out)["graph"] == "karate:weighted=false"
    assert not list(tmp_path.iterdir())


OPTIONS = ("--graph", "small-world:degree=2,rewire=0.3", "--partition", "by-label", "--alpha", "0.7", "--schedule",
           "jacobi", "--relaxation", "0.9", "--init", "flooded-summaries:hops=2", "--seed", "3",
           "--no-baselines")  # fmt: skip


def test_a_run_is_repeated_from_its_folder(tmp_path):
    first = here(*SMALL, *OPTIONS, "--out", "first", "--format", "json").summary
    second = here("--config", "first/config.toml", "--out", "second", "--format", "json").summary
    assert {name for name in first if first[name] != second[name]} <= {"out", "wall_seconds", "compile_seconds"}
    texts = [(tmp_path / name / "config.toml").read_text() for name in ("first", "second")]
    assert texts[0] == texts[1]
    assert {path.name for path in (tmp_path / "second").iterdir()} >= FILES
    config = tomllib.loads(texts[0])
    assert config["init"] == "flooded-summaries:hops=2" and config["baselines"] is False


def test_the_command_line_beats_toml(tmp_path):
    text = (
        'graph = "star"\nseed = 4\nallow-disconnected = true\nbaselines = false\n'
        'data = "grid16:points=5"\ndevices = 5\n'
    )
    (tmp_path / "mine.toml").write_text(text)
    config = json.loads(here("--config", "mine.toml", "--graph", "path", "--baselines", "--dry-run").out)
    assert (config["graph"], config["seed"], config["devices"]) == ("path", 4, 5)
    assert config["baselines"] is True and config["allow_disconnected"] is True
    assert config["data"] == "grid16:points=5,sd=1,seed=4"


@pytest.mark.parametrize(
    ("words", "init"),
    [
        (("--init", "global"), "tree-summaries:candidates=5"),
        (("--init", "global", "--noise", "0.1"), "flooded-summaries:candidates=5"),
        (("--init", "local"), "local"),
        (("--init", "flooded-summaries:candidates=1,hops=2"), "flooded-summaries:hops=2"),
        (("--groups",), "groups"),
        (("--algorithm", "coreset"), None),
        (("--algorithm", "fkm"), "plusplus"),
    ],
)
@pytest.mark.sample(3)
def test_what_the_summary_says_of_the_initialization(words, init):
    assert solve(*words)["init"] == init


def test_groups_bring_their_own_initialization():
    ending = here("--groups", "--init", "local", "--out", "none")
    assert ending.code == 2 and "--groups and --init local cannot be combined" in ending.err


def test_require_converged():
    words = (*SMALL, "--out", "none", "--format", "json", "--tol", 0, "--rounds", 2, "--init", "local")
    assert here(*words).code == 0
    ending = here(*words, "--require-converged")
    assert ending.code == 5 and ending.summary["termination"] == "round-limit"
    assert here(*SMALL, "--out", "none", "--require-converged", "--rounds", 150).code == 0


@pytest.mark.mpi
def test_ranks(tmp_path):
    """As many devices as ranks unless told otherwise; one object, the same as in one process."""
    words = ("--data", "grid16:points=5", "--format", "json", "--no-plot")
    summary = there(*ranks(3), "-m", "p2pkm", *words, "--out", "three", cwd=tmp_path).summary
    assert summary["devices"] == summary["ranks"] == 3
    alone = here(*words, "--devices", 3, "--out", "none").summary
    assert {name for name in alone if alone[name] != summary[name]} <= {
        "ranks",
        "out",
        "wall_seconds",
        "compile_seconds",
        *PLACED,
    }
    assert alone["rank_partition"] is None and summary["rank_partition"] == "blocks" and summary["edge_cut"] == 3
    assert summary["halo_size"] == 6 and summary["load_imbalance_devices"] == 1.0
    manifest = json.loads((tmp_path / "three" / "manifest.json").read_text())
    assert manifest["ranks"] == 3 and manifest["mpi"]


def test_experiment_is_checked_without_the_command_line():
    with pytest.raises(Exception, match="devices is 0"):
        RunOptions(devices=0)


def test_what_the_configuration_cannot_hold_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = b"caf\xe9".decode("utf-8", "surrogateescape")  # of a file that was named in Latin-1
    ending = here(*SMALL, "--data", f"{name}.npy", "--out", "run")
    assert ending.code == 2 and "data is 'caf\\udce9.npy'; expected UTF-8" in ending.err and not listed(tmp_path)
    assert here(*SMALL, "--rounds", "1", "--out", name, "-q").code == 0


@pytest.mark.slow
def test_json_goes_through_a_pipe():
    ending = there(sys.executable, "-m", "p2pkm", *SMALL, "--out", "none", "--format", "json", COLUMNS="20")
    assert ending.summary["out"] is None and os.linesep not in ending.out[:-1]


def test_compilation_is_said_once_and_counted_apart(capsys):
    """A kernel that no cache holds is compiled; a run that compiles nothing says nothing of it."""
    numba = pytest.importorskip("numba")
    from p2pkm.cli.summary_table import show
    from p2pkm.kernels.compile_time import (  # counting begins with the import of numba
        announce_compilation,
        count_compilation,
    )

    said = []
    announce_compilation(said.append)
    inner = numba.njit(lambda x: x + 1)
    outer, again = numba.njit(lambda x: inner(x) * 2), numba.njit(lambda x: x - 1)
    before, began = count_compilation(), time.perf_counter()
    assert outer(1) == 4 and again(1) == 0
    spent = count_compilation() - before
    assert 0 < spent <= time.perf_counter() - began  # the inner one is not counted twice
    assert len(said) == 1 and said[0].startswith("compiling kernels")
    assert outer(2) == 6 and count_compilation() == before + spent
    summary = here(*SMALL, "--out", "none", "--format", "json").summary
    show(summary | {"wall_seconds": 1.5, "compile_seconds": 30.25}, [], sys.stdout)
    assert "(1.50 s, 1 process; kernels compiled once in 30.25 s)\n" in capsys.readouterr().out
    show(summary | {"wall_seconds": 1.5, "compile_seconds": 0.0}, [], sys.stdout)
    assert "(1.50 s, 1 process)\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.000"), (0.99999, "1.000"), (17.0132, "17.01"), (0.0, "0"), (1234.0, "1234"), (1e-10, "1.000e-10"),
     (123456.0, "1.235e+05")],
)  # fmt: skip
def test_numbers_keep_their_digits(value, text):
    assert format_number(value) == text
