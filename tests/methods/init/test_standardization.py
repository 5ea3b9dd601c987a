"""Scaling by messages equals scaling by a server, and is paid for."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import p2pkm
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.init.min_max_scaling import MinMaxScaling
from p2pkm.methods.init.standardization import Standardization
from tests.support.play_rounds import arrange, play

rng = np.random.default_rng(5)
BLOCKS = [rng.normal(1e6, 3.0, (9, 3)), np.zeros((0, 3)), rng.normal(1e6, 1.0, (1, 3)), rng.normal(0, 5.0, (20, 3))]
POOLED = np.concatenate(BLOCKS)
LINKS = {
    "path": [(0, 1), (1, 2), (2, 3)],
    "star": [(0, 1), (0, 2), (0, 3)],
    "complete": [(i, j) for i in range(4) for j in range(i)],
}


def scaling_of(kind, data, links, *, least=0):
    """Return shift and span at every device, after checking that a row went up and one down each link of the tree."""
    table = arrange(data, links)
    table = table._replace(devices=replace(table.devices, min_count=least))
    n, d = len(data), table.devices.d
    tree = build_spanning_tree(table.topology)
    _, state = play(kind(1, tree), table, np.zeros((n, 1, d)), 1)
    edges = int((tree.parent >= 0).sum())
    width = 4 * d + (kind is Standardization)
    assert state.converged.all() and table.network.ledger.totals == (2 * edges, 8 * edges * width)
    return state.scaling


@pytest.mark.parametrize("links", LINKS.values(), ids=LINKS)
def test_standard_scaling_equals_that_of_a_server(links):
    shift, span = scaling_of(Standardization, BLOCKS, links)
    server = StandardScaler().fit(POOLED)
    assert (shift == shift[0]).all() and (span == span[0]).all()
    assert_allclose(shift[0], server.mean_, rtol=1e-12)
    assert_allclose(span[0], server.scale_, rtol=1e-12)


def test_a_star_merges_one_device_after_the_other():
    """The naive twin, Welford's formula in ascending id, has the same bits."""
    blocks = [np.zeros((0, 2)), *(rng.normal(3.0, 1.0, (m, 2)) for m in (4, 1, 7, 2, 30))]
    shift, span = scaling_of(Standardization, blocks, [(0, i) for i in range(1, 6)])
    weight, mean, squares = 0.0, np.zeros(2), np.zeros(2)
    for points in blocks[1:]:
        m, u = float(len(points)), np.cumsum(points, axis=0)[-1] / len(points)
        q = np.cumsum((points - u) ** 2, axis=0)[-1]
        squares = squares + q + (u - mean) * (u - mean) * (weight * m / (weight + m))
        mean = mean + (u - mean) * (m / (weight + m))
        weight += m
    assert_array_equal(shift, np.tile(mean, (6, 1)))
    assert_array_equal(span, np.tile(np.sqrt(squares / weight), (6, 1)))


def test_the_order_of_children_is_that_of_their_ids():
    """Devices with different numbers of children in one layer merge as if each were alone."""
    blocks = [rng.normal(0.0, 1.0, (m, 2)) for m in (3, 5, 2, 9, 4, 1, 6, 8)]
    links = [(0, 1), (0, 2), (1, 3), (1, 4), (1, 5), (2, 6), (0, 7)]
    stage = Standardization(1, build_spanning_tree(arrange(blocks, links).topology))
    rows = stage.measure(arrange(blocks, links).devices)
    merged = stage.merge(rows, np.array([1, 1, 1, 2]), rows[[3, 4, 5, 6]])
    wanted = rows.copy()
    for parent, child in ((1, 3), (1, 4), (1, 5), (2, 6)):
        wanted[parent] = stage.combine(wanted[[parent]], rows[[child]])[0]
    assert merged.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("kind", [Standardization, MinMaxScaling])
def test_devices_that_know_of_no_points_keep_their_units(kind):
    shift, span = scaling_of(kind, BLOCKS[:2], [])
    assert_array_equal([shift[1], span[1]], [np.zeros(3), np.full(3, 1.0 if kind is Standardization else 0.0)])


@pytest.mark.parametrize(("least", "counted"), [(1, [0, 1, 2, 3]), (2, [2, 3]), (4, [3])])
def test_devices_of_too_few_points_do_not_contribute(least, counted):
    blocks = [rng.normal(0.0, 1.0, (m, 2)) for m in (1, 2, 4, 6)]
    shift, span = scaling_of(Standardization, blocks, LINKS["path"], least=least)
    server = StandardScaler().fit(np.concatenate([blocks[i] for i in counted]))
    assert_allclose(shift, np.tile(server.mean_, (4, 1)), rtol=1e-12)
    assert_allclose(span, np.tile(server.scale_, (4, 1)), rtol=1e-12)


def test_a_mean_whose_square_overflows_is_merged_with_nothing():
    shift, span = scaling_of(Standardization, [np.zeros((0, 1)), np.full((2, 1), 1e200)], [(0, 1)])
    assert_array_equal([shift[:, 0], span[:, 0]], [[1e200, 1e200], [0.0, 0.0]])


@pytest.mark.parametrize("links", LINKS.values(), ids=LINKS)
def test_min_max_scaling_equals_that_of_a_server(links):
    shift, span = scaling_of(MinMaxScaling, BLOCKS, links)
    server = MinMaxScaler().fit(POOLED)
    assert_array_equal(shift, np.tile(server.data_min_, (4, 1)))
    assert_array_equal(span, np.tile(server.data_range_, (4, 1)))


@pytest.mark.parametrize("scale", ["standard", "minmax"])
@pytest.mark.sample(2)
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
    assert_allclose(one.centroids, other.centroids, atol=1e-9)
    assert one.summary["ratio_mean"] == pytest.approx(other.summary["ratio_mean"], rel=1e-9)
    stage = {"standard": "standardization", "minmax": "min-max-scaling"}[scale]
    assert one.rounds[0]["stage"] == stage and other.rounds[0]["stage"] != stage
    assert one.summary["bytes"] > other.summary["bytes"]
    assert_array_equal(one.predict(values), other.predict(scaler.transform(values)))
