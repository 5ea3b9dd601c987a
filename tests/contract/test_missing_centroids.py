"""Fewer centroids than clusters are reported in note, metric and row; devices without any centroid fail the run."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import product

import networkx as nx
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import p2pkm
import topologies
from p2pkm.core.errors import DataError
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.metrics.closing_table import list_summary_rows
from tests.support.methods import METHODS, build
from tests.support.run_cli import here
from tests.support.sampling import thin

# methods whose centroids are no means of equal points: noise, memberships in all clusters, weights of a sample
OTHERS = ("private", "feddp", "fkmeanscb", "ffcm1", "ffcm2", "mufc", "coreset")


def run(name, points, k, **options):
    """Return the result of a method on points dealt to four devices in turn."""
    shards = p2pkm.Shards.deal(points, np.arange(len(points)) % 4, devices=4)
    method = build(name, k)
    return p2pkm.simulate(method, None if needs_hub(method) else topologies.ring(4), shards, rounds=3, **options)


def count_fewest(result):
    """Return the fewest finite centroids of a device or the server."""
    tables = [*result.centroids, *([] if result.server_centroids is None else [result.server_centroids])]
    return min(int(np.isfinite(table[:, 0]).sum()) for table in tables)


@pytest.mark.parametrize(("name", "distinct"), thin(product(METHODS, [3, 30]), 3))
@pytest.mark.sample(5)
def test_fewer_centroids_than_clusters_are_reported(name, distinct):
    places = np.random.default_rng(0).normal(0.0, 9.0, (distinct, 2))
    result = run(name, np.tile(places, (60 // distinct, 1)), 5)
    fewest, notes = count_fewest(result), [note for note in result.notes if "ended with fewer than 5" in note]
    assert result.summary["centroids_held"] == fewest
    assert len(notes) == (fewest < 5)
    assert not [note for note in notes if f"(minimum {fewest})" not in note]
    rows = [figure for label, figure, _ in list_summary_rows(result.summary, result.notes) if label == "centroids"]
    assert rows == [str(fewest)] * (fewest < 5)
    assert distinct > 3 or fewest == 3 or name in OTHERS


def test_one_device_with_fewer_centroids_is_found_and_devices_without_points_are_not_blamed():
    parts = [np.random.default_rng(0).normal(size=(9, 2)), np.zeros((9, 2)), np.zeros((0, 2))]
    result = p2pkm.simulate(p2pkm.LocalOnly(4), None, p2pkm.Shards.from_list(parts))
    assert [note for note in result.notes if note.startswith("1 of 3 devices ended with fewer than 4 centroids")]
    assert result.summary["centroids_held"] == 1
    np.testing.assert_array_equal(result.devices["centroids_held"], [4, 1, np.nan])


# Two hospitals have four patients each, and one has none: groups of five patients exist nowhere.
SMALL = [np.random.default_rng(1).normal(size=(4, 2)), np.random.default_rng(2).normal(size=(4, 2)), np.zeros((0, 2))]


def run_small(name, **options):
    """Return the result of a method on hospitals that are too small, with names; the run must fail with a warning."""
    method = build(name, 2)
    graph = None if needs_hub(method) else topologies.path(3)
    shards = replace(p2pkm.Shards.from_list(SMALL), names=("Bonn", "Ulm", "Jena"))
    with pytest.warns(ConvergenceWarning, match="with points ended without centroids") as caught:
        result = p2pkm.simulate(method, graph, shards, **options)
    assert [warning.filename for warning in caught] == [__file__] and "--" not in str(caught[0].message)
    return result


@pytest.mark.parametrize("name", ["gtvmin", "consensus", "gossip", "fkm", "kfed", "mavg"])
@pytest.mark.sample(3)
def test_a_run_that_suppresses_every_cluster_fails_and_says_what_would_help(name):
    result = run_small(name, min_cluster_size=5)
    assert not (result.centroids < np.inf).any()
    failure = result.summary["failure"]
    assert failure.startswith("2 of 2 devices with points ended without centroids (Bonn, Ulm)")
    assert "lower --min-cluster-size" in failure and result.notes[0] == failure and "failure: 2 of 2" in repr(result)
    with pytest.raises(DataError, match=r"device Ulm has 0 centroids.*lower min_cluster_size"):
        result.predict([[0.0, 0.0]], "Ulm")


def test_a_run_that_ends_before_centroids_arrive_asks_for_rounds():
    start = np.array([[[0.0, 0.0], [1.0, 1.0]], [[np.inf] * 2] * 2, [[np.inf] * 2] * 2])
    result = run_small("gtvmin", start=start, rounds=0)
    failure = "1 of 2 devices with points ended without centroids (Ulm), so their points have no cluster: the run ended"
    assert result.summary["failure"].startswith(failure) and result.summary["failure"].endswith("Use more --rounds")


@pytest.mark.parametrize("name", thin(["dwfkm", "fkm", "kfed", "mavg", "central"], 2))
@pytest.mark.sample(3)
def test_a_run_whose_messages_are_all_lost_blames_the_faults(name):
    failure = run_small(name, faults="loss=1")
    assert "faults lost" in failure.summary["failure"] and failure.summary["failure"].endswith("Use fewer --faults")


@pytest.mark.parametrize(("devices", "fails"), [(9, True), (10, False)])
def test_a_run_fails_if_more_than_a_tenth_of_the_devices_with_points_lack_centroids(devices, fails):
    """The others count neither as devices nor as failures; a run that does not fail still names the device."""
    shards = p2pkm.Shards.from_list([np.array([[0.0], [8.0]])] * devices + [np.zeros((0, 1))] * 5)
    start = np.tile([[0.0], [8.0]], (devices + 5, 1, 1))
    start[1] = start[devices:] = np.inf
    call = partial(p2pkm.simulate, p2pkm.GTVMin(2), topologies.path(devices + 5), shards, rounds=0, start=start)
    with pytest.warns(ConvergenceWarning) if fails else nullcontext():
        result = call()
    problem = f"1 of {devices} devices with points ended without centroids (1)"
    assert result.notes[0].startswith(problem)
    assert result.summary["failure"] == (result.notes[0] if fails else None)
    assert result.summary["centroids_held"] == 0 and np.isfinite(result.summary["ratio_mean"])


def test_a_complete_run_has_no_failure():
    assert run("gtvmin", np.random.default_rng(0).normal(size=(40, 2)), 2).summary["failure"] is None


@pytest.fixture
def hospitals(tmp_path):
    """Return the options of a run on three hospitals that are too small."""
    path = tmp_path / "hospitals.csv"
    rows = [f"{name},{age},{age / 3}" for name in ("Bonn", "Ulm") for age in (30, 32, 68, 71)]
    path.write_text("\n".join(["hospital,age,bmi", *rows]))
    return ["--data", path, "--device-column", "hospital", "-k", "2", "--min-cluster-size", "5", "--no-plot"]


def test_the_exit_code_and_the_first_line_name_the_devices(hospitals, tmp_path):
    out = tmp_path / "run"
    first = "gtvmin: 2 of 2 devices with points ended without centroids (Bonn, Ulm)"
    for words in (["run", *hospitals, "--out", out], ["resume", out]):
        ending = here(*words)
        assert ending.code == 7 and ending.out.startswith(first), ending.err
        assert "--min-cluster-size" in ending.out.splitlines()[0] and "converged" not in ending.out
    ending = here("run", *hospitals, "--out", "none", "--seeds", "0-1")
    assert ending.code == 7 and "seed 1: 2 of 2 devices" in ending.err
    assert here("run", *hospitals, "--out", "none", "--coupling-path", "1,2").code == 7
    assert "Bonn has 0 centroids" in here("predict", out, hospitals[1]).err


def test_a_comparison_counts_such_a_run_as_failed(hospitals):
    ending = here("compare", *hospitals, "--algorithm", "gtvmin,kfed", "--seeds", "0", "--out", "none")
    assert ending.code == 4 and "no result: 2 of 2 devices with points ended without centroids (Bonn" in ending.out


def test_a_comparison_keeps_a_run_in_which_few_devices_lack_centroids(tmp_path):
    """One of eleven hospitals has two patients and no neighbor: groups of three exist at all others."""
    path, graph = tmp_path / "hospitals.csv", nx.cycle_graph([f"h{number}" for number in range(10)])
    graph.add_node("alone")
    nx.write_graphml(graph, tmp_path / "network.graphml")
    rows = [f"{name},{age},{age / 3}" for name in sorted(graph) for age in (30, 31, 32, 68, 70, 71)]
    path.write_text("\n".join(["hospital,age,bmi", *rows[4:]]))
    words = [
        "--data",
        path,
        "--device-column",
        "hospital",
        "-k",
        "2",
        "--graph",
        f"file:{tmp_path}/network.graphml,isolated=alone",
    ]
    words += ["--allow-disconnected", "--min-cluster-size", "3", "--out", "none"]
    ending = here("run", *words, "--no-plot")
    assert ending.code == 0 and "1 of 11 devices with points ended without centroids (alone)" in ending.out, ending.err
    ending = here("compare", *words, "--algorithm", "gtvmin,consensus", "--seeds", "0")
    assert ending.code == 0 and "failed" not in ending.out, ending.out


def test_the_estimator_refuses_to_be_fitted_without_centroids():
    points, owner = np.concatenate(SMALL), np.repeat(["Bonn", "Ulm"], 4)
    message = "2 of 2 devices with points ended without centroids"
    with pytest.warns(ConvergenceWarning, match=message), pytest.raises(DataError, match=message):
        p2pkm.P2PKMeans(2, algorithm=p2pkm.FKM(2, min_count=5)).fit(points, devices=owner)
