"""What single precision is sure of is what float64 finds, however close it comes to a tie."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from numpy.testing import assert_array_equal

from p2pkm.core.messages import pack
from p2pkm.kernels.numba.filter import float32_workspace, label_float32, limits, prepare_float32, transpose_float32
from p2pkm.kernels.numba.nearest import _prepare_labels, _workspace
from p2pkm.kernels.reference.nearest import find_nearest, measure_distances
from tests.kernels.test_kernels import assert_same, draw_graph, freeze

SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 40))
SCALES = [5e-324, 1e-310, 1e-160, 1e-45, 1e-20, 1e-3, 1.0, 1e9, 1e14, 1e17, 1e19, 1e25, 1e38, 1e100, 1e150]


@njit
def _guesses(points, centroids):
    """Return the labels of up to 128 points and which of them are sure."""
    m, (k, d) = len(points), centroids.shape
    room = float32_workspace(k, d, 128)
    radius = prepare_float32(centroids, k, room)
    labels, sure = np.empty(128, np.int64), np.zeros(m, np.bool_)
    if radius < np.inf:
        start, slope = limits(d, radius)
        transpose_float32(points, 0, m, room)
        for r in range(0, m, 16):
            unsure = label_float32(room[1], room[2], r, start, slope, labels)
            for j in range(r, min(r + 16, m)):
                sure[j] = unsure >> (j - r) & 1 == 0
    return labels[:m], sure


@njit
def _aims(points, centroids):
    return _prepare_labels(centroids, len(centroids), len(points), _workspace(*centroids.shape)[4])


def draw_near_ties(rng, k, d):
    """Draw centroids, some of them equal or nearly so, and points half-way between two, give or take a few ulps."""
    m = int(rng.integers(1, 129))
    centroids = rng.normal(size=(k, d)).round(int(rng.choice([0, 1, 15])))
    same = rng.random(k) < 0.3
    centroids[same] = centroids[rng.integers(0, k, same.sum())] * (1 + rng.choice([0, 1e-15, 1e-8, 1e-6, 1e-4]))
    points = (centroids[rng.integers(0, k, m)] + centroids[rng.integers(0, k, m)]) / 2
    off = rng.normal(size=(m, d)) * 10.0 ** rng.choice([-np.inf, -16, -9, -7, -6, -5, -3, 0], (m, 1))
    return points + off + rng.choice([0.0, 1.0, 1e4, 1e9]), centroids


def near_ties(seed, shape):
    """Draw such points at some scale, once in a while beside centroids that are absent and points that are far off."""
    rng = np.random.default_rng(seed)
    points, centroids = draw_near_ties(rng, *shape)
    if rng.random() < 0.3:
        centroids = centroids + points[0, 0].round()
    scale = rng.choice(SCALES) if rng.random() < 0.5 else 1.0
    points, centroids = points * scale, centroids * scale
    if rng.random() < 0.3:
        centroids[rng.random(len(centroids)) < 0.3] = np.inf
    if rng.random() < 0.3:
        centroids[rng.random(len(centroids)) < 0.3] *= rng.choice([1e10, 1e20, 1e150])
    if rng.random() < 0.3:
        points[rng.random(len(points)) < 0.3] *= rng.choice([1e10, 1e20, 1e150])
    return np.ascontiguousarray(points, rng.choice([np.float64, np.float64, np.float32])), centroids


@pytest.mark.slow
@np.errstate(over="ignore", invalid="ignore")
@settings(max_examples=100)
@given(st.integers(0, 2**32), SHAPES)
def test_what_is_sure_is_what_float64_finds(seed, shape):
    points, centroids = near_ties(seed, shape)
    labels, sure = _guesses(points, centroids)
    wanted, _ = find_nearest(np.nan_to_num(measure_distances(points.astype(float), centroids), nan=np.inf))
    assert_array_equal(labels[sure], wanted[sure])


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("away", [0.0, 1e6])
@pytest.mark.sample(3)
def test_a_clear_case_is_sure(scale, away):
    centroids = np.random.default_rng(0).normal(size=(8, 8))
    points = centroids[np.arange(100) % 8] + 1e-2
    assert np.isfinite(_aims(points, centroids))
    labels, sure = _guesses((points + away) * scale, (centroids + away) * scale)
    assert sure.all()
    assert_array_equal(labels, np.arange(100) % 8)


@pytest.mark.parametrize(("m", "k", "d"), [(100, 8, 3), (100, 8, 2), (20, 8, 8), (100, 8, 64)])
def test_single_precision_is_left_where_it_does_not_pay(m, k, d):
    assert _aims(np.ones((m, d)), np.ones((k, d))) == np.inf


@given(st.integers(0, 2**32))
def test_refined_centroids_have_equal_bits(seed):
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(5, 20)), int(rng.integers(2, 20))
    points, start = draw_near_ties(rng, *shape)
    points, start = np.tile(points, (3, 1)), start[None]
    weights = rng.random(len(points))
    offsets, limit = np.array([0, len(points)]), int(rng.integers(0, 4))
    rows, tols = np.array([rng.integers(1, shape[0] + 1)]), np.zeros(1)
    assert_same((points, weights, offsets, start, rows, limit, tols, bool(rng.integers(2))), "refine")


@given(st.integers(0, 2**32))
def test_updates_have_equal_bits(seed):
    rng = np.random.default_rng(seed)
    n, shape = 3, (int(rng.integers(5, 20)), int(rng.integers(2, 20)))
    parts = [draw_near_ties(rng, *shape) for _ in range(n)]
    points, offsets = np.concatenate([one for one, _ in parts]), np.cumsum([0, *(len(one) for one, _ in parts)])
    centroids = np.stack([one for _, one in parts])
    centroids[rng.random((n, shape[0])) < 0.2] = np.inf
    indptr, indices = draw_graph(rng, n)
    tables, rows = pack(centroids)
    case = (points, rng.random(len(points)), offsets, centroids, centroids, np.arange(n), indptr, freeze(tables), rows,
            indices, np.ones(len(indices)), np.ones(n), 1, True, False, False)  # fmt: skip
    assert_same(case, "gtvmin")
