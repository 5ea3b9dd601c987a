"""DGC-KM: steps by hand, a dense twin of its equation, an objective that never rises, and rows that are absent."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.protocols import Work
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.methods.peer.dgc import DGC
from tests.support.averages import GRAPHS, column, draw, scene, seeds, states, sums
from tests.support.play_rounds import arrange, loss, play, points_of


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def laplacian(near):
    L = np.zeros((len(near), len(near)))
    for i, neighbors in enumerate(near):
        L[i, neighbors], L[i, i] = -1.0, len(neighbors)
    return L


def twin(data, near, start, rho, step, steps, rounds):
    """Return the centroids by the equation of the paper, all devices in one dense array; `step`: a of every device."""
    L, m, x = laplacian(near), sum(map(len, data)), np.array(start)
    real = np.isfinite(x)
    x = np.where(real, x, 0.0)  # rows are absent everywhere or nowhere
    for _ in range(rounds):
        rows = np.where(real, x, np.inf)
        mass = np.array([sums(points, w) for points, w in zip(data, rows, strict=True)])
        S, W = mass[:, :, :-1] / m, mass[:, :, -1:] / m
        for _ in range(steps):
            x = x - step[:, None, None] * (W * x / rho - S / rho + np.einsum("ij,jkf->ikf", L, x))
    return np.where(real, x, np.inf)


def objective(table, near, centroids, rho):
    """Return J_rho by the textbook."""
    devices = table.devices
    own = sum(loss(points_of(devices, i), centroids[i]) for i in range(len(devices)))
    apart = sum(((centroids[i] - centroids[j]) ** 2).sum() for i in range(len(near)) for j in near[i] if i < j)
    return own / (2 * rho * len(devices.points)) + apart / 2


def test_two_devices_by_hand():
    # m = 3, rho = 1: device 0 (mean 1 of 2 points) and device 1 (10); a = .1; from 0 both
    table = arrange([column(0, 2), column(10)], [(0, 1)])
    found, said = states(DGC(1, rho=1.0, steps=2, step=0.1), table, np.zeros((2, 1, 1)), 1)
    close(found[1].centroids.ravel(), [0.2 / 3, 1 / 3])
    first, second = 0.2 / 3, 1 / 3
    expected = [first - 0.1 * (2 / 3 * first - 2 / 3 + first - second),
                second - 0.1 * (second / 3 - 10 / 3 + second - first)]  # fmt: skip
    close(found[2].centroids.ravel(), expected)
    assert not [messages for messages in said if not ((messages.rows == 1).all() and messages.edges is None)]


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_twin_finds_the_same(name, kernels):
    data, near, table, start = scene(name, kernels=kernels)
    m, rho = sum(map(len, data)), 0.3
    own = np.array([0.9 / (len(points) / (m * rho) + 2 * len(n)) if len(points) or n else 0.0
                    for points, n in zip(data, near, strict=True)])  # fmt: skip
    for step in (None, 0.05):
        found = play(DGC(4, rho=rho, step=step), table, start, 4)[0][-1]
        expected = twin(data, near, start, rho, own if step is None else np.full(len(data), step), 3, 4)
        close(found[:, :3], expected[:, :3])
        assert np.isinf(found[:, 3]).all()


@given(seeds)
def test_the_objective_never_rises_below_the_bound(graph):
    table, start = draw(graph)
    start[np.isinf(start)] = 5.0
    near = [table.devices.indices[a:b].tolist() for a, b in pairwise(table.devices.indptr)]
    m, rng = len(table.devices.points), np.random.default_rng(graph[2])
    rho = float(10 ** rng.uniform(-2, 2))
    bound = 1 / (table.devices.sizes.max() / (rho * m) + np.linalg.eigvalsh(laplacian(near)).max())
    for step in (None, 0.999 * bound):
        history = play(DGC(3, rho=rho, steps=2, step=step), table, start, 6)[0]
        values = np.array([objective(table, near, one, rho) for one in history])
        assert (np.diff(values) <= 1e-12 * values[:-1]).all()


def test_beyond_twice_the_bound_it_diverges():
    _, near, table, start = scene("ring", k=2)
    start[:, -1] = 1.0
    history = play(DGC(2, rho=1.0, step=2.2 / np.linalg.eigvalsh(laplacian(near)).max()), table, start, 20)[0]
    assert objective(table, near, history[-1], 1.0) > 1e3 * objective(table, near, history[0], 1.0)


def test_an_absent_row_has_no_links_and_is_not_revived():
    start = np.array([column(1, 50), column(np.inf, 9)])
    table = arrange([column(0, 2), column(10)], [(0, 1)])
    found, _ = states(DGC(2, rho=1.0, steps=1, step=0.1), table, start, 1)
    close(found[1].centroids[0], column(1, 50 - 0.1 * 41))
    close(found[1].centroids[1], column(np.inf, 9 - 0.1 * (9 / 3 - 10 / 3 + 9 - 50)))


def test_labels_stay_within_a_round():
    table = arrange([column(0, 4, 10)], [])
    found, _ = states(DGC(2, rho=1.0, steps=5, step=1.0), table, [column(0, 9)], 1)
    for before, state in pairwise(found[:5]):  # 0 and 4 to the first row, all along
        close(before.mass[0], state.mass[0])
    close(found[0].mass[0], [[4, 2], [10, 1]])
    assert_array_equal([state.converged.any() for state in found], False)


def test_rows_of_few_points_take_no_part():
    shards = p2pkm.Shards.from_list([column(0, 1, 50), column(0, 1, 2)])
    start = np.array([column(0.5, 50)] * 2)
    result = p2pkm.simulate(DGC(2, rho=1.0), topologies.path(2), shards, rounds=3, start=start, min_cluster_size=2)
    close(result.centroids[:, 1], 50.0)


def test_messages_and_flops_by_hand():
    shards = p2pkm.Shards.from_list([np.zeros((1, 2)), np.zeros((0, 2)), np.ones((2, 2))])
    start = [[[0, 0], [np.inf, np.inf]]] * 3
    result = p2pkm.simulate(DGC(2, steps=2, tol=0.0), topologies.path(3), shards, rounds=3, start=start,
                            baselines=False)  # fmt: skip
    messages = (1 + 2 * result.summary["rounds"]) * 4
    assert (result.summary["messages"], result.summary["bytes"]) == (messages, messages * 2 * 2 * 8)
    work = Work(np.array([6, 0]), np.array([2, 1]), np.array([4, 2]), 5)
    assert_array_equal(DGC(2, steps=3).flops(work), [5 * (8 * 6 // 3 + 4 * 4), 5 * 4 * 3])


def test_defaults_suit_the_ring_of_ten():
    X, y = p2pkm.grid16(points=40, seed=3)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 10, seed=0), devices=10, labels=y)
    result = p2pkm.simulate(DGC(16), topologies.ring(10), shards, rounds=60)
    assert result.summary["ratio_worst"] < 1.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "clusters is 0; expected a whole number of at least 1"),
        ({"steps": 0}, "steps is 0; expected a whole number of at least 1"),
        ({"rho": 0.0}, "rho is 0.0; expected a finite number above 0"),
        ({"step": -1.0}, "step is -1.0; expected a finite number above 0"),
        ({"tol": np.nan}, "tol is nan; expected a finite number of at least 0"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        DGC(**{"k": 3} | options)


def test_defaults():
    method = DGC(3)
    assert (method.schedule, str(method.init)) == ("jacobi*3", "global:candidates=1")
    assert (method.name, method.default_rounds, method.tol) == ("dgc", 150, 1e-5)
    assert method.effective_rho(arrange([column(0.0)] * 10, []).devices) == 2.0
