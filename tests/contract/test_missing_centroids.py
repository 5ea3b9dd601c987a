"""A run of any method that ends with fewer centroids than clusters reports it: a note, a figure and a table row."""

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.metrics.closing_table import list_summary_rows
from tests.support.methods import METHODS, build

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


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("distinct", [3, 30])
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
