"""Scaling by messages equals scaling by a server, and is paid for."""

import networkx as nx
import numpy as np
import pytest
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import p2pkm
from p2pkm.methods.init.bounding_box import BoundingBox
from p2pkm.methods.init.standardization import Standardization
from tests.support.stages import state_of

rng = np.random.default_rng(5)
BLOCKS = [rng.normal(1e6, 3.0, (9, 3)), np.zeros((0, 3)), rng.normal(1e6, 1.0, (1, 3)), rng.normal(0, 5.0, (20, 3))]
POOLED = np.concatenate(BLOCKS)


@pytest.mark.parametrize("graph", [nx.path_graph(4), nx.star_graph(3), nx.complete_graph(4)])
def test_standard_scaling_equals_that_of_a_server(graph):
    shift, span = state_of(Standardization(2), graph, p2pkm.Shards.from_list(BLOCKS)).scaling
    server = StandardScaler().fit(POOLED)
    assert (shift == shift[0]).all() and (span == span[0]).all()
    np.testing.assert_allclose(shift[0], server.mean_, rtol=1e-12)
    np.testing.assert_allclose(span[0], server.scale_, rtol=1e-12)


def test_devices_that_know_of_no_points_keep_their_units():
    shift, span = state_of(Standardization(2), nx.empty_graph(2), p2pkm.Shards.from_list(BLOCKS[:2])).scaling
    np.testing.assert_array_equal([shift[1], span[1]], [np.zeros(3), np.ones(3)])


def test_min_max_scaling_equals_that_of_a_server():
    shift, span = state_of(BoundingBox(1), nx.path_graph(4), p2pkm.Shards.from_list(BLOCKS)).scaling
    server = MinMaxScaler().fit(POOLED)
    np.testing.assert_array_equal(shift, np.tile(server.data_min_, (4, 1)))
    np.testing.assert_array_equal(span, np.tile(server.data_range_, (4, 1)))


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_a_scaled_run_equals_a_run_on_scaled_points(scale, tmp_path, capsys):
    from p2pkm.cli.main import main

    values = np.column_stack((rng.normal(size=60), 1e3 * rng.normal(size=60), np.ones(60)))
    np.savetxt(tmp_path / "points.csv", values, delimiter=",", header="a,b,c", comments="")
    scaler = StandardScaler() if scale == "standard" else MinMaxScaler()
    np.savetxt(tmp_path / "scaled.csv", scaler.fit_transform(values), delimiter=",", header="a,b,c", comments="")
    common = ["--devices", "4", "-k", "3", "--no-plot", "-q"]
    assert main(["--data", str(tmp_path / "points.csv"), "--scale", scale, "--out", str(tmp_path / "a"), *common]) == 0
    assert main(["--data", str(tmp_path / "scaled.csv"), "--out", str(tmp_path / "b"), *common]) == 0
    one, other = p2pkm.load(tmp_path / "a"), p2pkm.load(tmp_path / "b")
    np.testing.assert_allclose(one.centroids, other.centroids, atol=1e-9)
    assert one.summary["ratio_mean"] == pytest.approx(other.summary["ratio_mean"], rel=1e-9)
    stage = {"standard": "standardization", "minmax": "min-max-scaling"}[scale]
    assert one.rounds[0]["stage"] == stage and other.rounds[0]["stage"] != stage
    assert one.summary["bytes"] > other.summary["bytes"]
    np.testing.assert_array_equal(one.predict(values), other.predict(scaler.transform(values)))
