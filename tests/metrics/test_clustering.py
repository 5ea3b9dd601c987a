"""Scores from contingency tables against scikit-learn's from labels."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import p2pkm
from p2pkm.metrics.closing_table import list_summary_rows
from p2pkm.metrics.clustering import ari, distance, nmi, purity, silhouettes
from p2pkm.viz import plot_convergence
from p2pkm.viz.report.narrative import narrate
from tests.support.each import each

labels = st.integers(1, 40).flatmap(
    lambda m: st.tuples(*(arrays(np.int64, m, elements=st.integers(0, most)) for most in (4, 5)))
)


def tabulate(truth, found, classes=6, clusters=7):
    table = np.zeros((classes, clusters), np.int64)
    np.add.at(table, (truth, found), 1)
    return table


@given(labels)
def test_scores_are_those_of_scikit_learn(pair):
    truth, found = pair
    table = tabulate(truth, found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_allclose(ari(table), adjusted_rand_score(truth, found), atol=1e-12)
        assert_allclose(nmi(table), normalized_mutual_info_score(truth, found), atol=1e-9)
    majority = sum(np.bincount(truth[found == cluster]).max() for cluster in np.unique(found))
    assert_allclose(purity(table), majority / len(truth))


@given(labels)
def test_a_clustering_agrees_with_itself_under_other_names(pair):
    truth, _ = pair
    table = tabulate(truth, (truth + 2) % 6)
    assert_allclose([ari(table), nmi(table), purity(table)], 1.0)


@pytest.mark.parametrize("score", [ari, nmi, purity])
def test_scores_of_no_table_at_all(score):
    assert score(np.zeros((0, 3, 4), np.int64)).shape == (0,)


def test_scores_of_many_tables_at_once():
    rng = np.random.default_rng(0)
    many = rng.integers(0, 30, (5, 4, 3, 6))
    for score in (ari, nmi, purity):
        assert score(many).shape == (5, 4)
        assert_allclose(score(many)[2, 3], score(many[2, 3]))


@each(
    ("table", "expected"),
    [
        ([[5, 0], [0, 5]], (1.0, 1.0, 1.0)),
        ([[5, 5]], (0.0, 0.0, 1.0)),  # one class, two clusters
        ([[5], [5]], (0.0, 0.0, 0.5)),
        ([[7]], (1.0, 1.0, 1.0)),
        ([[1, 0], [0, 1]], (1.0, 1.0, 1.0)),
        ([[0, 0], [0, 0]], (np.nan, np.nan, np.nan)),  # no point at all: nothing agrees with nothing
        ([[1, 1], [1, 1]], (-0.5, 0.0, 0.5)),
    ],
)
def test_scores_by_hand(table, expected):
    table = np.array(table)
    assert_allclose([ari(table), nmi(table), purity(table)], expected, atol=1e-12)


NOTHING = ("ratio_mean", "ratio_worst", "ari", "nmi", "purity", "ari_clients", "nmi_clients",
           "purity_clients", "silhouette", "simplified_silhouette", "l2_centers", "loss_local", "loss_global",
           "objective", "gtv", "consensus_distance")  # fmt: skip


@pytest.mark.parametrize("empty", [False, True])
def test_without_any_centroid_nothing_is_scored_and_a_note_says_what_to_change(empty):
    """Every client has one point, or none, and fkm sends no row of fewer than two."""
    sizes = [1, 1, 0 if empty else 1]
    data = [np.arange(2.0 * size).reshape(size, 2) + i for i, size in enumerate(sizes)]
    shards = p2pkm.Shards.from_list(data, labels=[np.full(size, i) for i, size in enumerate(sizes)])
    with pytest.warns(ConvergenceWarning, match="without centroids"):
        result = p2pkm.simulate(p2pkm.FKM(2), None, shards, rounds=3)
    assert {name: result.summary[name] for name in NOTHING} == dict.fromkeys(NOTHING)
    assert [record["ari_clients"] for record in result.rounds] == [None] * 4
    assert result.summary["centroid_sets"] == 0
    assert "devices with points ended without centroids" in result.notes[0] and "fkm:min_count=1" in result.notes[0]
    assert "No device holds a centroid" in narrate(result) and "same centroids" not in narrate(result)


def test_scores_are_those_of_the_devices_that_hold_a_centroid():
    """The device without a centroid counts neither as perfect nor as wrong, nor does one without points."""
    data = [np.array([[0.0], [1.0], [8.0], [9.0]]), np.array([[0.0], [9.0]]), np.zeros((0, 1))]
    shards = p2pkm.Shards.from_list(data, labels=[np.array([0, 0, 1, 1]), np.array([0, 0]), np.zeros(0, np.int64)])
    graph = p2pkm.Topology.from_links(3, np.array([[0, 1, 1.0], [1, 2, 1.0]]))
    start = np.array([[[0.5], [8.5]], [[np.inf], [np.inf]], [[0.5], [8.5]]])
    with pytest.warns(ConvergenceWarning, match="without centroids"):
        result = p2pkm.simulate(p2pkm.GTVMin(2), graph, shards, rounds=0, start=start)
    assert (result.summary["ari_clients"], result.census.scores[0].tolist()) == (1.0, [1.0, 1.0, 1.0])
    assert np.isnan(result.census.scores[1:]).all()
    assert any(note.startswith("1 of 2 devices with points ended without centroids (1)") for note in result.notes)
    assert distance(np.zeros((0, 1)), np.ones((2, 1))) != 0.0


def test_quality_that_got_worse_is_told_in_table_verdict_and_figure():
    """Tracking's last of two rounds moves away from a start that central k-means would keep."""
    points = np.array([[0.0], [1.0], [9.0], [10.0]])
    shards = p2pkm.Shards.from_list([points, points[:2] + 4])
    graph = p2pkm.Topology.from_links(2, np.array([[0, 1, 1.0]]))
    start = np.tile(np.array([[0.5], [7.5]]), (2, 1, 1))
    result = p2pkm.simulate(p2pkm.GTVMin(2, alpha=1e-9), graph, shards, rounds=20, start=start)
    summary, words = result.summary, narrate(result)
    assert summary["ratio_mean"] > summary["ratio_best"] * 1.01 and summary["ratio_best_round"] == 0
    assert "Quality got worse before the end" in words and "in round 0 of gtvmin" in words
    rows = {row[0]: row for row in list_summary_rows(summary, result.notes)}
    assert "quality decreased after round 0 of gtvmin" in rows["warning"][2]
    assert rows["lowest cost ratio"][2].startswith("in round 0 of gtvmin; quality decreased afterwards")
    texts = [text.get_text() for text in plot_convergence(result).axes[0].child_axes[0].texts]
    assert any("then worse" in text for text in texts)
    still = p2pkm.simulate(p2pkm.GTVMin(2), graph, shards, rounds=0, start=start)
    assert "got worse" not in narrate(still) and "lowest cost ratio" not in dict(
        r[:2] for r in list_summary_rows(still.summary, [])
    )


def test_large_counts_do_not_overflow():
    table = np.array([[2_000_000_000, 1], [2, 900_000_000]])
    assert ari(table) > 0.999
    assert 0.999 < nmi(table) <= 1.0


def test_the_summary_scores_the_labels_of_all_points():
    rng = np.random.default_rng(1)
    classes = [rng.integers(0, 3, size) for size in (12, 9, 15)]
    data = [rng.normal(size=(len(kind), 2)) + 20.0 * kind[:, None] for kind in classes]
    shards = p2pkm.Shards.from_list(data, labels=classes)
    graph = p2pkm.Topology.from_links(3, np.array([[0, 1, 1.0], [1, 2, 1.0]]))
    good = p2pkm.simulate(p2pkm.GTVMin(3), graph, shards, rounds=20).summary
    assert_allclose([good[name] for name in ("ari", "nmi", "purity", "ari_clients")], 1.0)
    wrong = p2pkm.simulate(p2pkm.GTVMin(2), graph, shards, rounds=0, start=np.ones((3, 2, 2))).summary
    assert_allclose([wrong[name] for name in ("ari", "nmi", "ari_clients")], 0.0, atol=1e-12)
    assert_allclose(wrong["purity"], np.bincount(np.concatenate(classes)).max() / 36)


def test_points_at_two_equal_centroids_have_no_silhouette():
    assert silhouettes(np.zeros((4, 2)), np.zeros((2, 2))) == (None, 0.0)


def test_the_distance_from_no_centroids_is_undefined():
    assert np.isnan(distance(np.zeros((0, 2)), np.zeros((3, 2))))
