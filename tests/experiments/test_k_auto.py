"""The number of clusters chosen by the devices: in every kind of run, counted, and refused where it cannot be."""

import json
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import DataError, ExperimentError, P2PKMError, TopologyError
from p2pkm.storage.load import load
from tests.methods.building_blocks.test_number_of_clusters import clusters
from tests.support.methods import METHODS, build
from tests.support.run_cli import here, ranks, there
from tests.support.sampling import thin


def deal(k=4, n=6, points=30, seed=0):
    """Return k separate clusters on n devices."""
    table = clusters(k, points, seed)
    return p2pkm.Shards.deal(table, np.random.default_rng(seed).integers(0, n, len(table)), devices=n)


NAMES = sorted(set(METHODS) - {"private", "feddp"})  # which refuse to look at points before


@pytest.mark.parametrize("name", thin(NAMES, 5))
@pytest.mark.sample(3)
def test_every_method_runs_with_the_number_that_was_chosen(name):
    method, shards = build(name, 1), deal()
    graph = None if method.traits.needs_hub else topologies.ring(6)
    result = p2pkm.simulate(method, graph, shards, clusters="auto", k_max=9, rounds=2, baselines=False)
    assert result.summary["clusters"] == result.summary["k_chosen"] == 4
    assert result.centroids.shape[1] == 4
    assert result.rounds[0]["stage"] == "number-of-clusters"
    assert len(result.summary["k_indices"]["ch"]) == 9 and result.summary["k_preferred"]["ch"] == 4


def long_gaussian(n=6, seed=0):
    """Return one long Gaussian on n devices."""
    rng = np.random.default_rng(seed)
    return p2pkm.Shards.deal(rng.normal(size=(180, 2)) * [6.0, 1.0], rng.integers(0, n, 180), devices=n)


def ring_of_points(n=6, seed=0):
    """Return points between two circles on n devices."""
    angle, radius = np.random.default_rng(seed).uniform(0, 1, (2, 480))
    table = (4.0 + 2.0 * radius) * np.array([np.cos(2.0 * np.pi * angle), np.sin(2.0 * np.pi * angle)])
    return p2pkm.Shards.deal(table.T, np.arange(480) % n, devices=n)


@pytest.mark.parametrize("name", thin(NAMES, 7))
@pytest.mark.sample(3)
def test_every_method_runs_without_clear_clusters(name):
    method = build(name, 1)
    graph = None if method.traits.needs_hub else topologies.ring(6)
    result = p2pkm.simulate(method, graph, long_gaussian(), clusters="auto", k_max=6, rounds=2, baselines=False)
    assert result.summary["clusters"] == result.summary["k_chosen"] == 1 and result.summary["k_verdict"] == "none"
    assert result.centroids.shape[1] == 1 and np.isfinite(result.centroids).all()
    preferred = result.summary["k_preferred"]["ch"]
    assert [note for note in result.notes if "no clear clusters: k is 1" in note and f"-k {preferred}" in note]


def test_an_unclear_number_is_noted_with_what_the_indices_prefer():
    result = p2pkm.simulate(
        p2pkm.TreeLloyd(1), topologies.ring(6), ring_of_points(), clusters="auto", k_max=20, baselines=False
    )
    summary = result.summary
    assert summary["k_verdict"] == "unclear" and summary["clusters"] == summary["k_chosen"] > 4
    note = next(note for note in result.notes if "number of clusters is unclear" in note)
    assert "p2pkm help clusters" in note and "Unclear: " in here("help", "clusters").out
    assert f"k is {summary['k_chosen']}" in note and f"BIC {summary['k_preferred']['bic']}" in note


def test_fewer_clusters_than_calinski_harabasz_prefers_are_noted():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(2, 240, 2)) * [10.0, 1.0] + np.array([[[0.0, 0.0]], [[0.0, 8.0]]])
    shards = p2pkm.Shards.deal(table.reshape(-1, 2), np.arange(480) % 6)
    result = p2pkm.simulate(p2pkm.TreeLloyd(1), topologies.ring(6), shards, clusters="auto", k_max=12, baselines=False)
    assert result.summary["k_chosen"] == 2 < result.summary["k_preferred"]["ch"]
    (note,) = [note for note in result.notes if "k is 2; Calinski" in note]
    assert f"Compare with a run with -k {result.summary['k_preferred']['ch']}" in note and ".md" not in note
    assert result.summary["k_verdict"] == "clear"


def test_clear_clusters_need_no_note():
    result = p2pkm.simulate(p2pkm.GTVMin(1), topologies.ring(6), deal(), clusters="auto", k_max=9, baselines=False)
    assert result.summary["k_verdict"] == "clear"
    others = [note for note in result.notes if not note.startswith("disclosed points: ")]
    assert not [note for note in others if "clusters" in note or "Calinski" in note]


@pytest.mark.slow
def test_one_cluster_goes_through_report_and_run_folder(tmp_path):
    table = long_gaussian()
    np.savetxt(tmp_path / "long.csv", table.points, delimiter=",", header="a,b", comments="")
    run = tmp_path / "run"
    ending = here("-k", "auto", "--k-max", "6", "--data", tmp_path / "long.csv", "--devices", "5", "--rounds", "2",
                  "--no-plot", "--out", run)  # fmt: skip
    assert ending.code == 0, ending.err
    assert "no clear clusters" in next(line for line in ending.out.splitlines() if "k chosen" in line)
    found = load(run)
    assert found.summary["k_verdict"] == "none" and any("no clear clusters" in note for note in found.notes)
    assert here("report", run).code == 0
    page = (run / "report.html").read_text()
    assert "(no clear clusters)" in page and "not further apart than parts of one cluster" in page


def test_the_run_is_that_with_the_number_given_after_the_choice_has_been_counted():
    shards, graph = deal(), topologies.grid(6)
    auto = p2pkm.simulate(p2pkm.GTVMin(1), graph, shards, clusters="auto", k_max=9, seed=5)
    given = p2pkm.simulate(p2pkm.GTVMin(4), graph, shards, seed=5)
    assert_array_equal(auto.centroids, given.centroids)
    before = [record for record in auto.rounds if record["stage"] == "number-of-clusters"][-1]
    assert auto.summary["bytes"] == given.summary["bytes"] + before["bytes"]
    assert auto.summary["messages"] == given.summary["messages"] + before["messages"]
    assert given.summary["k_chosen"] is given.summary["k_indices"] is None


def test_the_ledger_of_a_choice_by_hand():
    """Root 1 of a path of three: devices 0 and 2 send one row of d + 2 = 3 columns for two points, and k comes down."""
    shards = p2pkm.Shards.from_list([np.array([[0.0], [1.0]]), np.array([[5.0], [6.0], [7.0]]), np.array([[9.0]])])
    result = p2pkm.simulate(p2pkm.GTVMin(1, init="local"), topologies.path(3), shards, clusters="auto", k_max=2,
                            rounds=0, baselines=False)  # fmt: skip
    last = [record for record in result.rounds if record["stage"] == "number-of-clusters"][-1]
    assert (last["messages"], last["bytes"]) == (4, 2 * 3 * 8 + 2 * 1 * 8)


def test_points_that_are_alike_and_one_point_are_one_cluster():
    alike = p2pkm.Shards.from_list([np.ones((4, 2)), np.ones((3, 2))])
    assert p2pkm.simulate(p2pkm.GTVMin(1), topologies.path(2), alike, clusters="auto", k_max=5).summary["clusters"] == 1
    single = p2pkm.Shards.from_list([np.zeros((0, 2)), np.ones((1, 2))])
    assert (
        p2pkm.simulate(p2pkm.GTVMin(1), topologies.path(2), single, clusters="auto", k_max=1).summary["clusters"] == 1
    )


@pytest.mark.parametrize(("method", "options", "kind", "words"), [
    (p2pkm.GTVMin(1), {"k_max": 0}, ExperimentError, "at least 1"),
    (p2pkm.GTVMin(1), {"k_max": 500}, DataError, "k_max is 500, but there are 120 points"),
    (p2pkm.GTVMin(1), {"k_max": 5, "start": np.zeros((6, 1, 2))}, ExperimentError, "Remove one of them"),
    (p2pkm.GTVMin(1, groups=True), {"k_max": 5}, ExperimentError, "or remove groups"),
    (p2pkm.GTVMin(1, init="tree-summaries:rows=60"), {"k_max": 5}, ExperimentError, "expected at least 100"),
])  # fmt: skip
def test_what_cannot_be_chosen_is_refused(method, options, kind, words):
    with pytest.raises(kind, match=words):
        p2pkm.simulate(method, topologies.ring(6), deal(), clusters="auto", **options)


def test_auto_alone_considers_as_many_clusters_as_points_of_the_run_but_at_most_25():
    points = clusters(4, 6, 0)  # 24 rows
    devices = np.arange(24) % 6
    for share, most in ((0.0, 24), (0.5, 12)):
        result = p2pkm.simulate("gtvmin", "ring", points, devices=devices, clusters="auto", test_share=share, rounds=2)
        assert len(result.summary["k_indices"]["cost"]) == most
        model = p2pkm.P2PKMeans("auto", test_share=share, random_state=0).fit(points, devices=devices)
        assert len(model.result_.summary["k_indices"]["cost"]) == most
    many = p2pkm.simulate("fkm", None, clusters(4, 20, 0), devices=6, partition="iid", clusters="auto", rounds=2)
    assert len(many.summary["k_indices"]["cost"]) == 25


def test_auto_is_the_same_for_text_class_object_and_command(tmp_path):
    path = tmp_path / "points.csv"
    np.savetxt(path, clusters(3, 20, 2), delimiter=",", header="x,y", comments="", fmt="%.17g")
    options = {"devices": 5, "partition": "iid", "clusters": "auto", "k_max": 6, "rounds": 3}
    methods = ("treelloyd", p2pkm.TreeLloyd, p2pkm.TreeLloyd(2))
    found = [p2pkm.simulate(method, "ring", f"file:{path}", **options).summary for method in methods]
    ending = here("-k", "auto", "--k-max", 6, "--data", path, "--devices", 5, "--rounds", 3, "--partition", "iid",
                  "--graph", "ring", "--algorithm", "treelloyd", "--out", "none", "--format", "json")  # fmt: skip
    found.append(json.loads(ending.out))
    assert {summary["centroids_sha256"] for summary in found} == {found[0]["centroids_sha256"]}
    assert found[0]["clusters"] == 3


UNUSED = {"data": "blobs", "devices": 4, "k_max": 7}  # a largest number without clusters="auto"
CALLS = {  # and what the message says of the number of clusters
    "simulate": (lambda: p2pkm.simulate("gtvmin", "ring", deal(), clusters=4, k_max=7), "clusters is 4"),
    "simulate, open": (lambda: p2pkm.simulate("gtvmin", "ring", deal(), k_max=7), "clusters is not set"),
    "simulate, object": (lambda: p2pkm.simulate(p2pkm.GTVMin(3), "ring", deal(), k_max=7), "clusters is not set"),
    "study": (lambda: p2pkm.study(**UNUSED, clusters=4), "clusters is 4"),
    "study, grid": (lambda: p2pkm.study(grid={"clusters": ["auto", 4]}, **UNUSED), "clusters is 4"),
    "compare": (lambda: p2pkm.compare(["gtvmin", "fkm"], **UNUSED), "clusters is not set"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_largest_number_is_never_ignored_and_replaces_nothing(name):
    call, said = CALLS[name]
    with pytest.raises(ExperimentError) as refusal:
        call()
    fix = "expected auto. Use k_max=7 with clusters='auto', or remove k_max"
    assert f"k_max is 7, but {said}; {fix}" in str(refusal.value)


def test_other_words_than_auto_are_refused():
    with pytest.raises(ExperimentError, match="clusters is 'many'; expected a whole number of at least 1, or 'auto'"):
        p2pkm.simulate("gtvmin", "ring", deal(), clusters="many")
    with pytest.raises(ExperimentError, match="clusters is 0; expected a whole number of at least 1"):
        p2pkm.simulate("gtvmin", "ring", deal(), clusters=0)


def test_devices_that_are_not_connected_cannot_agree():
    with pytest.raises(TopologyError, match="cannot agree on a number"):
        p2pkm.simulate(p2pkm.GTVMin(1), p2pkm.Topology.from_links(6, np.array([[0, 1, 1.0], [2, 3, 1.0]])), deal(),
                       clusters="auto", k_max=5, allow_disconnected=True)  # fmt: skip


def test_the_command_line_keeps_auto_and_says_what_was_chosen(tmp_path):
    run = tmp_path / "run"
    ending = here("-k", "auto", "--k-max", "8", "--data", "grid16:points=10", "--devices", "5", "--rounds", "2",
                  "--no-plot", "--out", run)  # fmt: skip
    assert ending.code == 0, ending.err
    config = (run / "config.toml").read_text()
    assert 'clusters = "auto"' in config and "k_max = 8" in config
    summary = load(run).summary
    line = next(line for line in ending.out.splitlines() if "k chosen" in line)
    assert line.split()[2] == str(summary["k_chosen"]) and "of 1 to 8 considered" in line
    assert len(summary["k_indices"]["cost"]) == 8
    again = here("--config", run / "config.toml", "--no-plot", "--out", tmp_path / "again", "--format", "json")
    assert json.loads(again.out)["k_indices"] == summary["k_indices"]


def test_the_estimator_chooses_too():
    points = clusters(5, 30, 1)
    model = p2pkm.P2PKMeans("auto", n_devices=6, random_state=0).fit(points)
    assert model.n_clusters_ == len(model.cluster_centers_) == 5
    assert p2pkm.P2PKMeans(3, n_devices=6, random_state=0).fit(points).n_clusters_ == 3
    few = p2pkm.P2PKMeans("auto", k_max=3, random_state=0, algorithm=p2pkm.FKM(1)).fit(points)
    assert few.n_clusters_ <= 3
    with pytest.raises(P2PKMError, match="k_max"):
        p2pkm.P2PKMeans("auto", k_max=0).fit(points)
    with pytest.raises(P2PKMError, match="n_clusters"):
        p2pkm.P2PKMeans("many").fit(points)


@pytest.mark.mpi
def test_all_ranks_choose_alike(tmp_path):
    words = ["-m", "p2pkm", "-k", "auto", "--data", "grid16:points=20", "--devices", "9", "--rounds", "3", "--no-plot",
             "--format", "json", "--scale", "standard"]  # fmt: skip
    found = []
    for line in ([sys.executable], ranks(3)):
        ending = there(*line, *words, "--out", tmp_path / str(len(found)))
        assert ending.code == 0, ending.err
        found.append(json.loads(ending.out))
    one, three = found
    for key in ("k_chosen", "k_verdict", "k_indices", "bytes", "ratio_mean"):
        assert one[key] == three[key]
