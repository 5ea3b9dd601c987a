"""Centroids that move by whole steps: theorems 4 and 5, and the bound on what is ever sent (docs/explain/proofs.md).

Many small random graphs are the components of one graph, as in `test_gtvmin_descent`.
"""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.core.batch import Grid
from p2pkm.methods.building_blocks.quantization import count_bits, count_steps
from tests.methods.peer.test_gtvmin_descent import INSTANCES, draw, objectives
from tests.support.play_rounds import arrange, play

FULL, ROUNDS = 120, 12
UNTIL = 400  # calls of so many rounds, at most, until nobody moves


def setting(seed, schedule, threshold=None):
    """Return a method, a table whose devices move on a grid, starts, and the component of each device."""
    rng = np.random.default_rng((seed, 5))
    k, d = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    data, links, start, mass, component = draw(seed, k, d)
    table = arrange(data, links, d=d, weights=mass, seed=seed)
    steps = 2.0 ** rng.integers(-7, 2, INSTANCES)  # 2 to 1/128; the points spread over several units
    grid = Grid(steps[component], int(rng.integers(1, 3)) if threshold is None else threshold)
    theta = float(rng.choice([1.0, rng.uniform(0.05, 1.0)] if schedule == "jacobi" else [1.5, rng.uniform(0.05, 1.99)]))
    method = p2pkm.GTVMin(k, alpha=1.0, schedule=schedule, relaxation=theta, tol=0.0)
    return method, table._replace(devices=replace(table.devices, grid=grid)), start, component


def rises(seed, schedule):
    """Return by how much the objective rose at most in every instance, relative to what rounding may do."""
    method, table, start, component = setting(seed, schedule)
    history, _ = play(method, table, start, ROUNDS)
    assert (history[-1] != start).any()
    seen = objectives(history, table, method, component)
    allowed = 1e-9 * np.maximum(seen[:-1], 1e-9 * seen[0])
    return ((np.diff(seen, axis=0) - allowed) / np.maximum(seen[0], 1e-300)).max(axis=0)


BATCHES = [pytest.param(2, id="quick"), pytest.param(FULL, id="full", marks=pytest.mark.slow)]


@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("schedule", ["colored", "async", "jacobi"])
def test_whole_steps_never_raise_the_objective(schedule, batches):
    """Theorem 4 for colored and async, theorem 5 for jacobi."""
    assert FULL * INSTANCES >= 2000
    assert max((rises(seed, schedule).max(), seed) for seed in range(batches))[0] <= 0.0


@pytest.mark.slow
@pytest.mark.parametrize("batches", BATCHES)
def test_every_run_ends_in_silence_and_the_bound_on_what_is_sent_holds(batches):
    for seed in range(batches):
        method, table, start, component = setting(seed, "colored", threshold=1)
        method = replace_relaxation(method, 1.5)
        alpha = np.bincount(table.devices.sources, method.objective.link_alpha(table.devices), len(component))
        step = table.devices.grid.step
        sent, now, first = np.zeros(len(component)), start, None
        for _ in range(UNTIL):
            history, _ = play(method, table, now, ROUNDS)
            with np.errstate(invalid="ignore"):
                sent += (np.nan_to_num(np.diff(history, axis=0)) != 0).sum(axis=(0, 2, 3))
            seen = objectives(history[[0, -1]], table, method, component)
            first, now = seen[0] if first is None else first, history[-1]
            if (history[-1] == history[0]).all():
                break
        else:
            raise AssertionError(f"seed {seed} does not end")
        fall = np.bincount(component, sent * step**2 / 4.0 * alpha)
        assert (fall <= (first - seen[1]) * (1 + 1e-9) + 1e-9 * first).all(), seed
        far = remaining(method, table, now) / step
        assert far[alpha > 0].max() < 5 / 8 + 1e-6


def remaining(method, table, centroids):
    """Return how far a coordinate of each device is from the minimizer, at most."""
    devices = replace(table.devices, grid=None)
    history, _ = play(replace_relaxation(method, 1.0, "jacobi"), table._replace(devices=devices), centroids, 1)
    return np.abs(np.nan_to_num(history[1] - np.where(np.isinf(centroids), np.nan, centroids))).max(axis=(1, 2))


def replace_relaxation(method, theta, schedule="colored"):
    return p2pkm.GTVMin(method.k, alpha=1.0, schedule=schedule, relaxation=theta, tol=0.0)


def test_steps_by_hand():
    e = np.array([0.1, 0.33, 0.34, 0.62, 0.63, 1.0, -1.0, 1.6, 2.5, -10.0, 0.0])
    assert_array_equal(count_steps(e, 1.5, within=False), [0, 0, 0, 0, 1, 1, -1, 2, 4, -15, 0])
    assert_array_equal(count_steps(e, 1.0, within=True), [0, 0, 0, 0, 0, 1, -1, 1, 2, -10, 0])
    assert_array_equal(count_steps(np.array([3.9, -3.9]), 0.5, within=True), [1, -1])
    assert [count_bits(c) for c in (0.0, 0.5, 10.0, 30.0, 1000.0, 1e100)] == [6, 7, 11, 12, 17, 52]


def test_a_row_of_small_moves_stays():
    table = arrange([np.array([[3.2, 0.0]])], [])
    start = np.array([[[0.0, 0.0]]])
    for threshold, expected in ((3, 3.0), (4, 0.0)):
        devices = replace(table.devices, grid=Grid(np.ones(1), threshold))
        history, state = play(p2pkm.GTVMin(1, relaxation=1.0), table._replace(devices=devices), start, 1)
        assert history[-1].tolist() == [[[expected, 0.0]]]
        assert state.converged.all() == (expected == 0.0)


@pytest.mark.parametrize(
    "options", [{}, {"schedule": "jacobi"}, {"schedule": "async"}, {"groups": 1}, {"robust": "saturate"}]
)
@pytest.mark.sample(3)
def test_descent_stays_certified(options):
    rng = np.random.default_rng(1)
    shards = p2pkm.Shards.from_list([rng.normal(4.0 * rng.integers(0, 3, (12, 1)), 1.0, (12, 2)) for _ in range(8)])
    for quantize in ("rice:threshold=1", "int8:bits=5"):
        result = p2pkm.simulate(p2pkm.GTVMin(3, **options), topologies.ring(8), shards, rounds=30, baselines=False,
                                quantize=quantize)  # fmt: skip
        assert result.summary["descent"] == "certified"
        assert result.summary["wire_bytes"] < result.summary["bytes"]
