"""Errors name options on the command line and arguments in Python; unknown arguments get a suggestion."""

import json
import re
import shlex

import numpy as np
import pytest
import tomli_w

import p2pkm
from p2pkm.cli.main import main
from p2pkm.core.errors import ExperimentError, command_line, name_arguments
from p2pkm.core.keywords import UnknownKeywordError, WrongCallError
from p2pkm.engine.run_options import OPTIONS
from p2pkm.methods.registry import METHODS, find
from tests.support.bad_input_rows import CONTENT, FILES, USAGE
from tests.support.each import each
from tests.support.run_cli import ranks, there

NAMES = {flag: name for name, option in OPTIONS.items() for flag in option.flags if flag.startswith("-")}
NAMES |= {f"--{name.replace('_', '-')}": name for name in OPTIONS if f"--{name.replace('_', '-')}" not in NAMES}
# Commands and options of other programs may be in messages.
COMMAND = re.compile(r"(python -m p2pkm|p2pkm|srun|mpirun|pip) .*")


def read_row(row):
    """Read the options of a command line of options with values; None for another one."""
    words = shlex.split(row.rpartition(" | ")[0].strip())
    options = {}
    while words:
        name, equals, value = words.pop(0).partition("=")
        if name not in NAMES:
            return None
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        elif not equals:
            value = True
        if NAMES[name] in options:
            return None
        options[NAMES[name]] = value
    return options


# A study runs methods with a server on their star, whatever the graph.
ROWS = [
    options
    for row in (*USAGE, *CONTENT)
    if (options := read_row(row)) and "out" not in options and options.get("graph") != "ring"
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a folder with the files of text."""
    place = tmp_path_factory.mktemp("files")
    for name, text in FILES.items():
        (place / name).write_text(text)
    return place


def test_most_command_lines_are_read():
    assert len(ROWS) > 150


@pytest.mark.slow
def test_studies_name_arguments(folder, monkeypatch):
    monkeypatch.chdir(folder)
    small, wrong = {"data": "grid16:points=5", "devices": 4, "rounds": 2}, []
    for options in ROWS:
        try:
            p2pkm.study(**(small | options), seeds=[0], progress=False)
            wrong.append(f"{options} is not refused")
        except Exception as error:
            if not isinstance(error, p2pkm.P2PKMError) or "--" in COMMAND.sub("", str(error)):
                wrong.append(f"{options} ends with {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


@each(
    ("message", "expected"),
    [
        ("--faults cannot be combined with fkm. Remove --faults", "faults cannot be combined with fkm. Remove faults"),
        ("use --coupling strong and --no-baselines.", "use coupling='strong' and baselines=False."),
        ("Use --algorithm fkm:min_count=1.", "Use algorithm='fkm:min_count=1'."),
        ("--schedule async and --link-model: no", "schedule='async' and link_model: no"),
        ("such as -k 8, or remove --groups", "such as clusters=8, or remove groups"),
        ("Add --out FOLDER to each", "Add out=FOLDER to each"),
        ("--link-model wan (in Python simulate(..., link_model='wan'))", "simulate(..., link_model='wan')"),
        ("p2pkm study --example prints one. Use --jobs 2", "p2pkm study --example prints one. Use jobs=2"),
        ("Use --na 'k.A.,n b' if missing", "Use na='k.A.,n b' if missing"),
        ("--na -1 with --missing drop, or --rename -1=NAME", "na='-1' with missing='drop', or rename='-1=NAME'"),
        ("a-b --- -x 2 - 3", "a-b --- -x 2 - 3"),
    ],
)
def test_options_become_arguments(message, expected):
    assert name_arguments(message) == expected == name_arguments(expected)
    assert str(ExperimentError(message)) == expected
    with command_line():
        assert str(ExperimentError(message)) == message


def test_single_doors():
    shards = p2pkm.Shards.deal(np.arange(20.0).reshape(10, 2), np.arange(10) % 2)
    with pytest.raises(ExperimentError, match=r"^quantize='rice.*' cannot be combined with mufc"):
        p2pkm.simulate(p2pkm.MUFC(2), None, shards, quantize="rice", progress=False)
    with pytest.raises(p2pkm.P2PKMError) as raised:
        p2pkm.compare("gtvmin", reference="fkm", seeds=[0])
    assert str(raised.value).startswith("reference is fkm")


X = np.random.default_rng(0).normal(size=(80, 2))
WRONG = {  # calls, and why they cannot be made
    "nothing": (p2pkm.simulate, (), {}, "simulate lacks algorithm, graph, shards."),
    "a method": (p2pkm.simulate, (p2pkm.GTVMin(3),), {}, "simulate lacks graph, shards."),
    "no graph": (p2pkm.simulate, ("gtvmin",), {"shards": X}, "simulate lacks graph."),
    "devices without a name": (p2pkm.simulate, ("gtvmin", "ring", X, 16), {}, "at most 3 (algorithm, graph, shards)"),
    "graph twice": (p2pkm.simulate, ("gtvmin", "ring", X), {"graph": "star"}, "received graph twice"),
    "a study of a method": (p2pkm.study, (p2pkm.GTVMin(3),), {}, "study received 1 argument without a name"),
    "a study of a class": (p2pkm.study, (p2pkm.FKM,), {"seeds": [0]}, "study received 1 argument without a name"),
    "a study of a text": (p2pkm.study, ("gtvmin", "ring"), {}, "study received 2 arguments without a name"),
    "a comparison of nothing": (p2pkm.compare, (), {"seeds": [0]}, "compare lacks algorithms."),
    "seeds without a name": (p2pkm.compare, ("gtvmin", "ring", [0]), {}, "at most 2 (algorithms, graphs)"),
    "a suite without a name": (p2pkm.bench, ("gtvmin", "core"), {}, "at most 1 (algorithms)"),
    "methods twice": (p2pkm.bench, ("gtvmin",), {"algorithms": "fkm"}, "received algorithms twice"),
}


@each("name", WRONG)
def test_a_wrong_call_is_answered_by_one_that_works(name):
    function, arguments, options, reason = WRONG[name]
    with pytest.raises(WrongCallError) as caught:
        function(*arguments, **options)
    assert isinstance(caught.value, ExperimentError) and reason in str(caught.value)
    shown = re.search(r"A call that works: (p2pkm[.](\w+)[(].*[)])", str(caught.value))
    assert shown[2] == function.__name__


@pytest.mark.slow
@pytest.mark.parametrize("function", [p2pkm.simulate, p2pkm.study, p2pkm.compare, p2pkm.bench])
def test_the_calls_that_are_shown_work(function):
    with pytest.raises(WrongCallError) as caught:
        function(*range(9))
    call = re.search(r"A call that works: (p2pkm.*?[)])(, with points|$)", str(caught.value))
    found = eval(call[1], {"p2pkm": p2pkm, "X": X})
    if function is p2pkm.bench:
        assert found.rows and not found.failed
    elif function is not p2pkm.simulate:
        assert found.rows and not [row for row in found.rows if row["error"]]


@pytest.mark.mpi
def test_all_ranks_refuse_a_wrong_call():
    program = """
import sys, p2pkm
for call in (p2pkm.study, p2pkm.compare, p2pkm.bench, p2pkm.simulate):
    try:
        call(*range(9))
    except p2pkm.core.errors.ExperimentError as error:
        sys.stdout.write(f"answered: {str(error).split(' received')[0]}\\n")  # as one write: the ranks share the output
"""
    done = there(*ranks(3), "-c", program)
    assert done.code == 0, done.err
    expected = ["answered: bench", "answered: compare", "answered: simulate", "answered: study"]
    assert sorted(done.out.splitlines()) == sorted(3 * expected)


def test_a_benchmark_refuses_what_is_no_method_and_no_file():
    for options in ({"algorithms": 5}, {"algorithms": {"mine": 5}}, {"files": 5}):
        with pytest.raises(ExperimentError, match="5; expected"):
            p2pkm.bench(**options, tasks=["few-iid"], seeds=[0])


@each("name", METHODS)
def test_unknown_arguments_of_methods(name):
    with pytest.raises(UnknownKeywordError, match=r"unknown argument 'kk' of \w+\. .*Known: .*k"):
        find(name)(kk=3)


def test_unknown_arguments_of_functions():
    for call, meant in (
        (lambda: p2pkm.simulate(p2pkm.GTVMin(2), None, None, falts="loss=0.1"), "faults"),
        (lambda: p2pkm.GTVMin(2, couplng=1.0), "coupling"),
        (lambda: p2pkm.P2PKMeans(n_cluster=3), "n_clusters"),
        (lambda: p2pkm.read_table("x.csv", lable_column="y"), "label_column"),
        (lambda: p2pkm.study(algoritm="gtvmin"), "algorithm"),
        (lambda: p2pkm.compare("gtvmin,fkm", falts="loss=0.1"), "faults"),
    ):
        with pytest.raises(ExperimentError, match=f"Did you mean '{meant}'"):
            call()
    with pytest.raises(TypeError):
        p2pkm.GTVMin(2, couplng=1.0)


@pytest.mark.parametrize(
    "options",
    [
        {"graph": "erdos-renyi:p=0"},  # rejected: the message suggests an option
        {"time_limit": 1e-9},
        {"algorithm": "treelloyd", "min_cluster_size": 3},
    ],
)
def test_a_row_has_one_reason_whoever_starts_the_study(options, tmp_path, capsys):
    small: dict = {"data": "grid16:points=5", "devices": 4, "rounds": 2, "refusals": "rows", "seeds": [0]} | options
    of_program = p2pkm.study(**small, progress=False).rows
    (tmp_path / "s.toml").write_text(tomli_w.dumps(small))
    main(["sweep", str(tmp_path / "s.toml"), "--out", "none", "--format", "json", "-q"])
    of_command = json.loads(capsys.readouterr().out)["rows"]
    reasons = [[row["error"] for row in rows] for rows in (of_program, of_command)]
    assert reasons[0] == reasons[1] and reasons[0][0] is not None
    assert "--" not in COMMAND.sub("", reasons[0][0])
