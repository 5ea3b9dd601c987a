"""Entries of a suite with options of their own: a share of the clients, a deadline, a number of rounds."""

import json

import pytest

import p2pkm
from p2pkm.experiments.bench.entries import list_entries, read_entries, select_main, split_list
from p2pkm.experiments.bench.suites import read_suite
from tests.support.run_cli import here

PLAIN = """
version = 1
seeds = "0"
algorithm = "dwfkm,fkm"
link_models = ["edge", "lan"]
[options]
devices = 8
partition = "iid"
[[tasks]]
name = "small"
data = "mixture:clusters=3,points=60"
clusters = 3
"""
ASKS = """
[[entries]]
name = "asks 0.5"
algorithm = "dwfkm,fkm"
client_share = 0.5
rounds = 6
[[entries]]
name = "until 0.07 s"
algorithm = "fkm"
link_model = "edge"
deadline = 0.07
"""
VARIANTS = ["dwfkm (asks 0.5)", "fkm (asks 0.5)", "fkm (until 0.07 s)"]


def write(folder, text):
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = write(tmp_path_factory.mktemp("suite"), PLAIN + ASKS)
    return {row["entry"]: row for row in p2pkm.bench(suite=path, progress=False).rows}


def test_the_entries_of_a_suite_follow_those_of_their_methods(tmp_path):
    suite = read_suite(write(tmp_path, PLAIN + ASKS))
    listed = list_entries(split_list(suite.algorithm), suite.variants)
    plain = list_entries(["dwfkm", "fkm"])
    assert [entry for entry in listed if not entry.options] == plain
    assert [entry.name for entry in listed if entry.options] == VARIANTS
    assert [entry.name for entry in list_entries(["fkm (asks 0.5)"], suite.variants)] == ["fkm (asks 0.5)"]
    assert {entry.name for entry in select_main(listed)} == {"dwfkm", "fkm"}
    assert all(entry.defaults == "suite" for entry in listed if entry.options)
    assert not any(entry.options for entry in read_entries())


def test_a_run_of_such_an_entry_is_that_of_the_options(rows):
    """The row has the bytes that the ledger of the same run counts, and no other row changes."""
    options = ["--devices", 8, "--partition", "iid", "--data", "mixture:clusters=3,points=60", "-k", 3, "--no-plot"]
    words = [*options, "--format", "json", "--out", "none", "--quantize", "possible"]
    raw = []
    for entry, further in (
        ("dwfkm", ["--algorithm", "dwfkm"]),
        ("dwfkm (asks 0.5)", ["--algorithm", "dwfkm", "--client-share", 0.5, "--rounds", 6]),
        ("fkm (until 0.07 s)", ["--algorithm", "fkm", "--link-model", "edge", "--deadline", 0.07]),
    ):
        summary = json.loads(here(*words, *further).out)
        row = rows[entry]
        raw.append(summary["wire_bytes"] / row["bytes_over_raw"])
        assert row["status"] == "done" and raw[-1] == pytest.approx(raw[0], rel=1e-12)
        assert (row["cost"], row["rounds"]) == (summary["cost_mean"], summary["rounds"])
        if "--deadline" in further:
            assert row["seconds_edge"] == summary["virtual_seconds"] and summary["messages_late"] > 0


def test_the_entries_are_variants_in_the_ranking(rows):
    ranking = p2pkm.analysis.bench_statistics.summarize(list(rows.values()))
    places = {entry.entry: entry.place for entry in ranking.entries}
    assert all(places[name] is None for name in VARIANTS) and {places["dwfkm"], places["fkm"]} == {1, 2}
    assert {entry.entry: entry.reference for entry in ranking.entries}["fkm (asks 0.5)"] == "fkm"


def test_fewer_clients_send_less(rows):
    per_round = {name: rows[name]["bytes_over_raw"] / rows[name]["rounds"] for name in rows}
    assert per_round["dwfkm (asks 0.5)"] < 0.7 * per_round["dwfkm (real numbers)"]


def test_times_of_an_entry_with_a_deadline_are_those_of_its_link_model(rows):
    row = rows["fkm (until 0.07 s)"]
    assert row["seconds_edge"] > 0.0 and row["seconds_lan"] is None
    # Other messages do not depend on the link model.
    assert rows["fkm"]["seconds_lan"] is not None and rows["fkm (asks 0.5)"]["seconds_lan"] is not None


def test_rows_without_such_entries_are_equal(rows, tmp_path):
    plain = {row["entry"]: row for row in p2pkm.bench(suite=write(tmp_path, PLAIN), progress=False).rows}
    assert plain == {name: row for name, row in rows.items() if name not in VARIANTS}


def test_the_list_of_a_suite_names_them(tmp_path):
    path = write(tmp_path, PLAIN + ASKS)
    ending = here("bench", "list", path)
    assert ending.code == 0 and all(name in ending.out for name in VARIANTS)
    listed = json.loads(here("bench", "list", path, "--format", "json").out)
    found = {entry["name"]: entry["options"] for entry in listed[0]["entries"]}
    assert found["fkm"] == {} and found["dwfkm (asks 0.5)"] == {"client_share": "0.5", "rounds": 6}


def test_a_method_that_cannot_do_it_is_a_row_with_its_reason(tmp_path):
    text = PLAIN.replace("dwfkm,fkm", "consensus,kfed") + ASKS.replace("dwfkm,fkm", "consensus,kfed")
    names = ["consensus (asks 0.5)", "kfed (asks 0.5)"]
    found = p2pkm.bench(names, suite=write(tmp_path, text), progress=False)
    assert [row["status"] for row in found.rows] == ["rejected"] * len(found.rows)
    assert all("client-share" in row["reason"] or "client_share" in row["reason"] for row in found.rows)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ('algorithm = "fkm"\nclient_share = 0.5', "whose name is None"),
        ('name = "a, b"\nalgorithm = "fkm"\nclient_share = 0.5', "without commas"),
        ('name = "a"\nclient_share = 0.5', "lack algorithm"),
        ('name = "a"\nalgorithm = "fkm"', "have no option"),
        ('name = "a"\nalgorithm = "fkm"\nclient_shares = 0.5', "Did you mean 'client_share'"),
        ('name = "a"\nalgorithm = "fkm"\ndevices = 3', "unknown key 'devices'"),
        ('name = "a"\nalgorithm = "fkm"\ndeadline = 0.5', "a deadline without link_model"),
        ('name = "a"\nalgorithm = "fkm"\nclient_share = 2', "client_share"),
        ('name = "a"\nalgorithm = "fmk"\nclient_share = 0.5', "unknown method 'fmk'"),
        ('name = "paper, real numbers"\nalgorithm = "fkm"\nrounds = 5', "without commas"),
        ('name = "real numbers"\nalgorithm = "fkm"\nrounds = 5', "two entries fkm"),
    ],
)
def test_wrong_entries_are_refused(entries, said, tmp_path):
    path = write(tmp_path, f"{PLAIN}\n[[entries]]\n{entries}\n")
    ending = here("bench", "--suite", path, "--dry-run")
    assert ending.code == 2 and said in ending.err


def test_options_add_an_entry_beside_each_method_that_can_run_with_them(rows, tmp_path):
    """Its rows are those of the same entry in a suite file, and the rows of the other entries stay."""
    path, options = write(tmp_path, PLAIN), {"deadline": 0.07, "link_model": "edge"}
    found = p2pkm.bench("dwfkm,fkm,kfed,gtvmin", suite=path, progress=False, out=tmp_path / "out", **options)
    named = {row["entry"]: row for row in found.rows}
    added = [name for name in named if "(deadline=0.07 edge)" in name]
    assert [name.partition(" ")[0] for name in added] == ["dwfkm", "fkm", "kfed"]
    assert named.pop(added[1]) == rows["fkm (until 0.07 s)"] | {"entry": added[1]}
    assert {name: row for name, row in named.items() if name in rows} == {
        name: row for name, row in rows.items() if name not in VARIANTS
    }
    # The folder has the options: it is complete, and continued without them.
    ending = here("resume", tmp_path / "out", "-q")
    assert ending.code == 0 and added[1] in ending.out


def test_options_of_entries_are_objects_or_text(tmp_path):
    asked = [
        [
            row["entry"]
            for row in p2pkm.bench("fkm", suite=write(tmp_path, PLAIN), progress=False, client_share=share).rows
        ]
        for share in (0.5, "0.5", p2pkm.ClientShare(0.5))
    ]
    assert asked[0][-1] == "fkm (client_share=0.5)" and asked[0] == asked[1] == asked[2]


def test_entries_with_options_are_ranked_by_test_points_too(tmp_path):
    data = ["--data", "device-clusters", "-k", 3, "--devices", 8, "--test-share", 0.25]
    ending = here("bench", *data, "--algorithm", "dwfkm,local", "--seeds", 0, "--client-share", 0.5, "--dry-run")
    assert ending.code == 0 and "3 entries: dwfkm, local, dwfkm (client_share=0.5)" in ending.out


def test_the_suite_clients_has_them_for_all_methods_that_ask_clients_in_several_rounds():
    suite = read_suite("clients")
    listed = list_entries(split_list(suite.algorithm), suite.variants)
    shared = {entry.method for entry in listed if "client_share" in entry.options}
    waiting = {entry.method for entry in listed if "deadline" in entry.options}
    assert shared == waiting == {"dwfkm", "fkm", "ffcm1", "ffcm2"}
