"""Shards, sources and files: what comes in is what lies there, and what is wrong is named."""

import re
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pkm.core import sorting as order
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.spec import Spec, parameters
from p2pkm.data.partition import column
from p2pkm.data.random import draw_separated, generator
from p2pkm.data.readers import npy as arrays
from p2pkm.data.readers.any_format import read_table
from p2pkm.data.shards import Shards
from p2pkm.data.sources import (
    SOURCES,
    Table,
    balls,
    blobs,
    digits,
    grid16,
    iris,
    load,
    load_centers,
    parse_source,
    slike,
    wine,
)
from p2pkm.data.synthetic_shapes import KINDS, shapes
from p2pkm.data.table import encode
from tests.support.each import each

# Shards


def test_deal_keeps_the_order_of_rows():
    points = np.arange(10).reshape(5, 2)
    shards = Shards.deal(points, [2, 0, 2, 0, 2], devices=4, labels=list("baabc"), weights=[1, 2, 3, 4, 5])
    np.testing.assert_array_equal(shards.rows, [1, 3, 0, 2, 4])
    np.testing.assert_array_equal(shards.offsets, [0, 2, 2, 5, 5])
    np.testing.assert_array_equal(shards.points, points[[1, 3, 0, 2, 4]])
    np.testing.assert_array_equal(shards.labels, [0, 1, 1, 0, 2])
    np.testing.assert_array_equal(shards.weights, [2, 4, 1, 3, 5])
    np.testing.assert_array_equal(shards.sizes, [2, 0, 3, 0])
    np.testing.assert_array_equal(shards.devices, [0, 0, 2, 2, 2])
    assert (shards.n, shards.m, shards.d) == (4, 5, 2)
    assert [a.dtype for a in (shards.points, shards.weights)] == [np.float64] * 2
    assert {a.dtype for a in (shards.offsets, shards.rows, shards.devices, shards.sizes)} == {np.dtype(np.int64)}
    assert shards.labels.dtype == np.int16
    assert shards.points.flags.c_contiguous


@given(device=st.lists(st.integers(0, 7), min_size=1, max_size=40), data=st.data())
def test_every_point_is_dealt_once_and_take_is_from_list(device, data):
    m = len(device)
    points = np.arange(2.0 * m).reshape(m, 2)
    shards = Shards.deal(points, device, devices=8, labels=np.arange(m))
    np.testing.assert_array_equal(np.sort(shards.rows), np.arange(m))
    np.testing.assert_array_equal(points[shards.rows], shards.points)
    np.testing.assert_array_equal(np.array(device)[shards.rows], shards.devices)
    np.testing.assert_array_equal(shards.labels, shards.rows)
    assert all((np.diff(shards.rows[a:b]) > 0).all() for a, b in zip(shards.offsets, shards.offsets[1:], strict=False))
    ids = data.draw(st.lists(st.integers(0, 7), max_size=10))
    part = shards.take(ids)
    blocks = [shards.points[shards.offsets[i] : shards.offsets[i + 1]] for i in ids]
    np.testing.assert_array_equal(part.points, np.concatenate([np.empty((0, 2)), *blocks]))
    np.testing.assert_array_equal(part.sizes, shards.sizes[ids] if ids else [])
    np.testing.assert_array_equal(part.labels, part.rows)
    whole = shards.take(np.arange(8))
    for name in ("points", "offsets", "weights", "labels", "rows"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(shards, name))
    again = Shards.from_list([shards.points[a:b] for a, b in zip(shards.offsets, shards.offsets[1:], strict=False)])
    np.testing.assert_array_equal(again.points, shards.points)
    np.testing.assert_array_equal(again.offsets, shards.offsets)
    np.testing.assert_array_equal(again.rows, np.arange(m))


def test_take_of_neighboring_devices_is_a_view():
    shards = Shards.deal(np.arange(12.0).reshape(6, 2), [0, 1, 2, 3, 1, 2])
    assert np.shares_memory(shards.take([1, 2]).points, shards.points)
    assert not np.shares_memory(shards.take([2, 1]).points, shards.points)
    np.testing.assert_array_equal(shards.take([2, 1]).rows, [2, 5, 1, 4])
    assert np.shares_memory(shards.take(np.arange(shards.n)).offsets, shards.offsets)
    without = replace(shards, order=None)
    assert Shards.from_arrays(without.take([1, 2]).to_arrays()).order is None is without.take([2, 1]).order
    with pytest.raises(DataError, match="rows of the points are not stored"):
        without.rows  # noqa: B018 - computed on demand
    assert shards.take([]).n == 0
    for ids, message in (([4], "device id is 4; expected 0 to 3"), ([-1], "device id is -1"), ([0.5], "dtype float64")):
        with pytest.raises(DataError, match=message):
            shards.take(ids)


def test_points_in_device_order_are_not_copied_and_weights_of_one_take_no_room():
    points = np.arange(12.0).reshape(6, 2)
    shards = Shards.deal(points, [0, 0, 2, 2, 2, 4], devices=6)
    assert np.shares_memory(shards.points, points)
    np.testing.assert_array_equal(shards.rows, np.arange(6))
    for one in (shards, shards.take([2, 3, 4]), shards.take([4, 0]), shards.with_hub(), Shards.from_list([points])):
        assert one.weights.strides == (0,) and not one.weights.flags.writeable
        np.testing.assert_array_equal(one.weights, np.ones(one.m))
    np.testing.assert_array_equal(shards.take([4, 2]).rows, [5, 2, 3, 4])
    np.testing.assert_array_equal(shards.part(2, 5).rows, [2, 3, 4, 5])
    assert np.shares_memory(shards.part(2, 5).points, points)
    assert Shards.deal(points, np.zeros(6, int), weights=np.ones(6)).weights.strides == (8,)


@pytest.mark.parametrize("device", [[0, 0, 1, 2], [2, 0, 1, 0]])
@pytest.mark.parametrize("given", [{}, {"labels": list("abac"), "weights": [1, 2, 3, 4]}])
def test_shards_travel_as_arrays(device, given):
    shards = Shards.deal(np.arange(8.0).reshape(4, 2), device, devices=4, dtype="float32", **given)
    again = Shards.from_arrays({name: np.asarray(part) for name, part in shards.to_arrays().items()})
    assert ("weights" in shards.to_arrays()) == bool(given)
    assert again.points.dtype == np.float32
    for name in ("points", "offsets", "weights", "labels", "rows"):
        np.testing.assert_array_equal(getattr(again, name), getattr(shards, name))


def test_points_are_stored_in_the_precision_that_is_asked_for():
    points = np.random.default_rng(0).normal(size=(6, 2))
    for shards in (
        Shards.deal(points, [1, 0, 1, 0, 1, 0], dtype=np.float32),
        Shards.from_list([points[1::2], points[::2]], dtype="float32"),
    ):
        assert shards.points.dtype == np.float32 and shards.points.flags.c_contiguous
        np.testing.assert_array_equal(shards.points, np.concatenate((points[1::2], points[::2])).astype(np.float32))
    with pytest.raises(ExperimentError, match=r"dtype is 'float16'.*float32, float64"):
        Shards.deal(points, [0] * 6, dtype="float16")
    points[3, 1] = -1e39
    with pytest.raises(
        DataError, match=r"X is -1e\+39 at row 3, column 1 .*which float32 cannot hold.*at most 3.4e\+38"
    ):
        Shards.deal(points, [0] * 6, dtype="float32")


@each("values", [[3, 1, 1, 0], [0, 2, 9, 2], [-1, 5, 5], [10**9, 7], [True, False], [2.0, 0.5]])
def test_labels_are_numbered_in_sorted_order(values):
    numbers = encode(np.array(values), len(values), "labels")
    np.testing.assert_array_equal(numbers, np.unique(values, return_inverse=True)[1])
    assert numbers.dtype == np.int16


def test_the_first_label_that_is_missing_is_named():
    with pytest.raises(DataError, match=r"labels are missing at row 1 \(counted from 0\)"):
        encode([1.5, np.nan, 0.5, np.nan], 4, "labels")


@given(device=st.lists(st.integers(0, 9), max_size=50))
def test_counting_and_sorting_give_the_same_order(device):
    owner = np.array(device, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        sorted_, offsets = order.sort_by(owner, 10)
        patch.setattr(order, "_MIN_COUNTING_ROWS", 0)
        counted, others = order.sort_by(owner, 10)
    np.testing.assert_array_equal(sorted_, np.argsort(owner, kind="stable"))
    np.testing.assert_array_equal(counted, sorted_)
    np.testing.assert_array_equal(others, offsets)
    np.testing.assert_array_equal(np.diff(offsets), np.bincount(owner, minlength=10))
    assert [order.narrow(c) for c in (0, 2**15, 2**15 + 1, 2**31, 2**31 + 1)] == [
        np.int16, np.int16, np.int32, np.int32, np.int64
    ]  # fmt: skip


def test_deal_does_not_write_into_what_it_is_given_and_takes_any_numbers():
    points = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2))
    shards = Shards.deal(points, np.array([1, 0, 1], dtype=np.uint8))
    shards.points[:] = 0
    assert points.sum() == 15
    assert Shards.deal([[True, False]], [0]).points.tolist() == [[1.0, 0.0]]
    assert Shards.deal(np.array([[1, 2.5]], dtype=object), [0]).points.tolist() == [[1.0, 2.5]]

    class Frame:
        def __array__(self, dtype=None, copy=None):
            return np.ones((2, 3))

    assert Shards.deal(Frame(), [0, 1]).d == 3


@each(
    ("points", "message"),
    [
        (np.zeros(3), "X has shape (3,), expected (points, features); for a single feature use reshape(-1, 1)"),
        (np.zeros((2, 2, 2)), "X has shape (2, 2, 2), expected (points, features)"),
        (np.zeros((0, 2)), "X has shape (0, 2), expected at least one point"),
        (np.zeros((2, 0)), "X has shape (2, 0), expected at least one point and one feature"),
        ([[1.0, 2.0], [3.0, np.nan]], "X is nan at row 1, column 1 (counted from 0); expected finite numbers"),
        ([[-np.inf, 2.0]], "X is -inf at row 0, column 0"),
        ([["1", "b"]], "X has dtype <U1 and 'b' at row 0, column 1"),
        (np.array([[1, {}]], dtype=object), "X has dtype object and {} at row 0, column 1"),
        (np.array([[1, None]], dtype=object), "X is nan at row 0, column 1"),
        ([[1j]], "X has dtype complex128; expected real numbers"),
        ([[1.0], [1.0, 2.0]], "X has rows of different lengths"),
    ],
)
def test_points_that_cannot_be_used(points, message):
    with pytest.raises(DataError, match=re.escape(message)):
        Shards.deal(points, [0] * len(points))


def test_a_sparse_matrix_is_named():
    from scipy.sparse import eye_array

    with pytest.raises(DataError, match=r"X is a sparse matrix, expected a dense array; pass X.toarray\(\)"):
        Shards.deal(eye_array(3), [0, 0, 0])


@each(
    ("options", "message"),
    [
        ({"device": [0, 1]}, "device has shape (2,); expected (3,), one device per row of X"),
        ({"device": [0, None, 1]}, "the values of device are missing at row 1"),
        ({"device": [0, 1, 5], "devices": 4}, "devices is 4, but device names 3 devices: 0, 1, 5; expected 3"),
        (
            {"device": ["a", "b", "b"], "devices": ["b", "c"]},
            "device is 'a' at row 0 (counted from 0); expected one of the names in devices",
        ),
        ({"devices": ["0", "1", "2", "1"]}, "devices contains a name twice"),
        ({"devices": 2}, "belongs to device 2, counted from 0; expected at least 3. Use devices=3"),
        ({"devices": 3.0}, "devices is 3.0"),
        ({"labels": [0, 1]}, "labels have shape (2,); expected (3,), one per point"),
        ({"labels": [0, np.nan, 1]}, "labels are missing at row 1"),
        ({"labels": ["a", None, "b"]}, "labels are missing at row 1"),
        ({"weights": [1, 2]}, "weights have shape (2,)"),
        ({"weights": [1, 0, 2]}, "the weight at row 1 (counted from 0) is 0.0; expected a finite number above 0"),
        ({"weights": [1, 1, np.nan]}, "the weight at row 2 (counted from 0) is nan"),
        ({"weights": [1, 1, -1]}, "the weight at row 2"),
        ({"weights": ["a", "b", "c"]}, "weights have shape (3,) and dtype <U1"),
    ],
)
def test_deals_that_cannot_be_made(options, message):
    with pytest.raises(DataError, match=re.escape(message)):
        Shards.deal(np.zeros((3, 2)), **({"device": [0, 1, 2]} | options))


@each(
    ("device", "devices", "names", "sizes"),
    [
        ([101, 205, 309, 205], None, ("101", "205", "309"), [1, 2, 1]),
        ([3.0, 1.0, 2.0, 1.0], None, ("1", "2", "3"), [2, 1, 1]),
        (["b", "a", "b", "b"], None, ("a", "b"), [1, 3]),
        (["007", "7", "7", "7"], None, ("007", "7"), [1, 3]),
        ([0, 9, 0, 9], None, ("0", "9"), [2, 2]),
        ([0, 2, 0, 2], None, None, [2, 0, 2]),  # numbers, of which device 1 has no points
        ([0, 9, 0, 9], 10, None, [2, *[0] * 8, 2]),
        (["b", "a", "b", "b"], ["b", "empty", "a"], ("b", "empty", "a"), [3, 0, 1]),
        ([205, 101, 205, 205], [205, 7, 101], ("205", "7", "101"), [3, 0, 1]),
        ([1, 0, 1, 1], [0, 1, 2], None, [1, 3, 0]),
    ],
)
def test_codes_and_names_of_devices(device, devices, names, sizes):
    shards = Shards.deal(np.arange(4.0)[:, None], device, devices=devices)
    assert shards.names == names and shards.sizes.tolist() == sizes
    assert shards.n == len(sizes)


def test_from_list_takes_empty_devices():
    shards = Shards.from_list([[], [[1, 2]], np.empty((0, 2)), [[3, 4], [5, 6]]], labels=[[], ["b"], [], ["a", "b"]])
    np.testing.assert_array_equal(shards.offsets, [0, 0, 1, 1, 3])
    np.testing.assert_array_equal(shards.labels, [1, 0, 1])
    np.testing.assert_array_equal(shards.rows, [0, 1, 2])
    flat = Shards.from_list([[[1]], [[3], [5]]], labels=np.array([3, 2, 3]), weights=[[1.0], [2.0, 3.0]])
    np.testing.assert_array_equal(flat.labels, [1, 0, 1])
    np.testing.assert_array_equal(flat.weights, [1, 2, 3])


@each(
    ("arguments", "message"),
    [
        (([],), "all 0 arrays are empty"),
        (([[], np.empty((0, 2))],), "all 2 arrays are empty"),
        (([[[1, 2]], [[1]]],), "device 0 has 2 features, but device 1 has 1; expected the same features"),
        (([[[1]], [1, 2]],), "the array of device 1 has shape (2,)"),
        (([[[1]], [[np.inf]]],), "the array of device 1 is inf at row 0, column 0"),
        (([[[1]], [[2]]], [[0], [0, 1]]), "device 1 has 1 points and 2 labels"),
        (([[[1]], [[2]]], [[0]]), "labels contains arrays for 1 devices; expected 2"),
        (([[[1]], [[2]]], [0]), "labels have shape (1,); expected (2,)"),
        (([[[1]], [[2]]], None, [[1], [0]]), "the weight at row 1 (counted from 0) is 0.0"),
    ],
)
def test_lists_that_cannot_be_used(arguments, message):
    with pytest.raises(DataError, match=re.escape(message)):
        Shards.from_list(*arguments)


# Sources


def test_grid16_lies_on_its_grid():
    points, y = grid16(points=50, sd=1.0, seed=0)
    assert points.shape == (800, 2)
    assert (points.dtype, y.dtype) == (np.float64, np.int64)
    assert (np.bincount(y) == 50).all()
    centers, _ = grid16(points=1, sd=0, seed=3)
    np.testing.assert_array_equal(centers[[0, 1, 4, 15]], [[-7.5, -7.5], [-7.5, -2.5], [-2.5, -7.5], [7.5, 7.5]])
    spread = points - np.repeat(centers, 50, axis=0)
    assert np.abs(spread.mean(axis=0)).max() < 0.1
    assert np.abs(spread.std(axis=0) - 1).max() < 0.1
    assert (points != grid16(points=50, seed=1)[0]).any()
    np.testing.assert_array_equal(points, grid16(points=50, seed=0)[0])


def test_slike_means_are_apart():
    points, y = slike(points=1000, seed=2)
    means = np.array([points[y == c].mean(axis=0) for c in range(15)])
    gaps = np.linalg.norm(means[:, None] - means[None], axis=2) + 100 * np.eye(15)
    assert gaps.min() > 4.5 - 0.2
    assert np.abs(means).max() < 11.75 + 0.2
    assert points.shape == (15_000, 2)
    assert not [s for s in range(100) if len(slike(points=1, seed=s)[0]) != 15]


@given(k=st.integers(1, 12), d=st.integers(1, 5), gap=st.sampled_from([0.5, 4.0, 30.0]), seed=st.integers(0, 99))
def test_balls_have_radius_one_and_are_apart(k, d, gap, seed):
    points, y = balls(clusters=k, points=40, features=d, separation=gap, seed=seed)
    assert points.shape == (40 * k, d)
    rng = generator(seed, "balls")
    means = draw_separated(rng, k, d, side=2 * gap * k ** (1 / d), separation=gap)
    assert np.linalg.norm(points - means[y], axis=1).max() <= 1 + 1e-12
    assert min((np.linalg.norm(a - b) for i, a in enumerate(means) for b in means[:i]), default=gap) >= gap


def test_balls_are_uniform():
    points, _ = balls(clusters=1, points=20_000, features=3, seed=1)
    center = draw_separated(generator(1, "balls"), 1, 3, side=8.0, separation=4.0)
    radius = np.linalg.norm(points - center, axis=1)
    assert abs((radius**3).mean() - 0.5) < 0.01
    assert np.abs((points - center).mean(axis=0)).max() < 0.02


def test_blobs_and_their_box():
    points, y = blobs(clusters=3, points=7, features=5, sd=0.0, box=2.0, seed=1)
    assert points.shape == (21, 5)
    assert np.abs(points).max() <= 2
    assert len(np.unique(points, axis=0)) == 3
    np.testing.assert_array_equal(y, np.repeat([0, 1, 2], 7))


def test_shapes_are_images_in_which_no_pixel_tells_the_class():
    images, y = shapes(points=300, side=16, seed=4)
    assert images.shape == (1800, 256) and images.min() >= 0 and images.max() <= 1
    np.testing.assert_array_equal(y, np.repeat(np.arange(len(KINDS)), 300))
    even = np.arange(1800) % 2 == 0
    means = np.array([images[even & (y == c)].mean(axis=0) for c in range(6)])
    nearest = ((images[~even, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == y[~even]).mean() < 0.5  # a sixth is chance
    again, _ = shapes(points=300, side=16, seed=4)
    np.testing.assert_array_equal(again, images)
    assert (shapes(points=300, side=16, seed=5)[0] != images).any()


def test_shapes_without_noise_have_their_form():
    images, y = shapes(points=40, side=32, noise=0.0, contrast=1.0, seed=1)
    pictures = images.reshape(-1, 32, 32)
    assert pictures.max() == 1.0  # contrast=1: as bright as can be
    v, u = np.indices((32, 32))
    for picture, kind in zip(pictures[y < 4], y[y < 4], strict=True):
        row, column = ((axis * picture).sum() / picture.sum() for axis in (v, u))
        distance = np.hypot(v - row, u - column)
        axes = np.linalg.eigvalsh(np.cov(v.ravel(), u.ravel(), aweights=picture.ravel()))
        assert (axes[1] > 5 * axes[0]) == (kind == 0)  # a bar is long
        assert (picture[distance < 1].max() < 0.1) == (kind == 2)  # a ring is empty
        radius = np.sqrt(picture.sum() / np.pi)
        assert (picture[distance < radius - 1].min() > 0.99) == (kind == 3)  # a disc is the circle of its area


@pytest.mark.slow
def test_small_sets_and_principal_components():
    assert [f()[0].shape for f in (iris, wine, digits)] == [(150, 4), (178, 13), (1797, 64)]
    points, y = digits()
    reduced, same = digits(components=10)
    np.testing.assert_array_equal(y, same)
    assert reduced.shape == (1797, 10)
    from sklearn.decomposition import PCA

    reference = PCA(10, svd_solver="full").fit_transform(points)
    np.testing.assert_allclose(np.abs(reduced), np.abs(reference), atol=1e-8)
    axes = np.linalg.lstsq(reduced, points - points.mean(axis=0), rcond=None)[0]
    assert (axes[np.arange(10), np.abs(axes).argmax(axis=1)] > 0).all()
    with pytest.raises(ExperimentError, match="components is 65; expected at most 64"):
        digits(components=65)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: grid16(points=0), "points is 0; expected a whole number of at least 1"),
        (lambda: grid16(points=2.5), "points is 2.5"),
        (lambda: grid16(sd=-1.0), "sd is -1.0; expected a finite number of at least 0"),
        (lambda: grid16(seed=-1), "seed is -1; expected a whole number of at least 0"),
        (lambda: blobs(clusters=0), "clusters is 0"),
        (lambda: blobs(features=0), "features is 0"),
        (lambda: blobs(box=0.0), "box is 0.0; expected a finite number above 0"),
        (lambda: blobs(sd=float("nan")), "sd is nan"),
        (lambda: slike(points=-3), "points is -3"),
        (lambda: balls(separation=0.0), "separation is 0.0"),
        (lambda: digits(components=0), "components is 0"),
        (lambda: shapes(points=0), "points is 0"),
        (lambda: shapes(side=7), "side is 7; expected a whole number of at least 8"),
        (lambda: shapes(noise=-0.1), "noise is -0.1"),
        (lambda: shapes(contrast=1.5), "contrast is 1.5; expected a number above 0 and at most 1"),
        (lambda: draw_separated(np.random.default_rng(0), 3, 1, side=1.0, separation=2.0), "no place for 3 clusters"),
    ],
)
@pytest.mark.sample(5)
def test_options_out_of_range(call, message):
    with pytest.raises(ExperimentError, match=re.escape(message)):
        call()


def test_specs_of_sources(tmp_path):
    assert set(parameters(SOURCES["grid16"])) == {"points", "sd", "seed"}
    assert set(parameters(SOURCES["digits"])) == {"components"}
    spec = parse_source("grid16:points=3,sd=2")
    table = load(spec, seed=5)
    np.testing.assert_array_equal(table.points, grid16(points=3, sd=2.0, seed=5)[0])
    assert table.classes == 16
    np.testing.assert_array_equal(table.box, [[-12.5, -12.5], [12.5, 12.5]])
    np.testing.assert_array_equal(load(parse_source("grid16:points=3,sd=2,seed=5"), seed=9).points, table.points)
    assert load(parse_source("digits:components=3"), seed=0).points.shape == (1797, 3)
    assert load(parse_source("blobs"), seed=0).box is None
    for text in ("mine.csv", "file:mine.csv", "a:b,c=1.NPY", "file:grid16", "File:x.csv"):
        assert parse_source(text) == Spec(
            "file", {"path": text.split(":", 1)[1] if text[:4].lower() == "file" else text}
        )
    path = tmp_path / "mine.csv"
    path.write_text("x,who,class\n1,0,a\n2,1,b\n")
    table = load(parse_source(str(path)), seed=0, label_column="class", device_column=1)
    np.testing.assert_array_equal(table.device, [0, 1])
    with pytest.raises(ExperimentError, match=r"unknown data 'grid15'. Did you mean 'grid16'"):
        parse_source("grid15")
    with pytest.raises(ExperimentError, match="data='iris' cannot be combined with options for the columns of a file"):
        load(parse_source("iris"), seed=0, label_column="class")


def test_known_centers_are_found_by_the_names_of_the_features(tmp_path):
    (tmp_path / "c.csv").write_text("y,x\n2,1\n4,3\n")
    assert load_centers(str(tmp_path / "c.csv"), 2, ("x", "y")).tolist() == [[1, 2], [3, 4]]
    assert load_centers(str(tmp_path / "c.csv"), 2).tolist() == [[2, 1], [4, 3]]
    with pytest.raises(DataError, match="has also 'x'; lacks 'z'"):
        load_centers(str(tmp_path / "c.csv"), 2, ("y", "z"))


# Files


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "x,y,label,client\n1,2,5,0\n3,4,3,1\n"),
        ("a.csv", "\ufeffx,y,label,client\r\n1,2,5,0\r\n\r\n3,4,3,1"),
        ("a.csv", "x;y;label;client\n1;2;5;0\n3;4;3;1\n"),
        ("a.csv", '"x","y","label","client"\n"1","2","5","0"\n3,4,3,1\n'),
        ("a.tsv", "x\ty\tLabel\tdevice\n1\t2\tcat\t0\n3\t4\tant\t1\n"),
        ("a.tsv", "\n x , y , label , client\n1 , 2 , b , 0\n3 , 4 , a , 1\n"),
        ("A.CSV", "\ufefflabel,x,client,y\n1.5,1,0,2\n.5,3,1,4\n"),
    ],
)
def test_text_tables(tmp_path, name, text):
    table = read_table(write(tmp_path, name, text))
    np.testing.assert_array_equal(table.points, [[1, 2], [3, 4]])
    assert table.points.flags.c_contiguous
    np.testing.assert_array_equal(table.labels, [1, 0])
    assert table.classes == 2
    np.testing.assert_array_equal(table.device, [0, 1])
    assert table.device.dtype == np.int64


def test_text_without_header_and_names_as_devices(tmp_path):
    plain = read_table(write(tmp_path, "a.csv", "1,2\n3,4\n"))
    np.testing.assert_array_equal(plain.points, [[1, 2], [3, 4]])
    assert set(plain._replace(schema=None, notes=None)[1:]) == {None} and len(plain.notes) == 1
    named = read_table(write(tmp_path, "b.csv", "1,d2\n3,d10\n"), device_column="1")
    np.testing.assert_array_equal(column(named.device), [1, 0])
    first = read_table(write(tmp_path, "c.csv", "5.1,3.5,setosa\n4.9,3.0,setosa\n"), label_column=2)
    assert first.points.shape == (2, 2)
    pandas = read_table(write(tmp_path, "d.csv", "0,1,label\n5.1,3.5,setosa\n4.9,3.0,virginica\n"))
    np.testing.assert_array_equal(pandas.labels, [0, 1])
    chosen = read_table(write(tmp_path, "e.csv", "0,1,kind\n5.1,3.5,setosa\n4.9,3.0,virginica\n"), label_column="kind")
    np.testing.assert_array_equal(chosen.labels, [0, 1])
    assert read_table(write(tmp_path, "f.csv", "7\n")).points.tolist() == [[7.0]]


def test_numbers_and_names_are_read_alike(tmp_path):
    values = np.random.default_rng(0).normal(size=(50, 3)) * 10.0 ** np.arange(-5, 10, 5)
    lines = [",".join(repr(float(v)) for v in row) for row in values]
    fast = read_table(write(tmp_path, "a.csv", "\n".join(lines)))
    slow = read_table(write(tmp_path, "b.csv", "a,b,c,label\n" + "\n".join(f"{line},n" for line in lines)))
    np.testing.assert_array_equal(fast.points, values)
    np.testing.assert_array_equal(slow.points, values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected one point per line"),
        ("\n \n", "is empty"),
        ('""\n', "is empty"),
        ("x,y\n", "has a header and no points"),
        ("x,y\n1,2\n\n3\n", "line 4: 1 fields; expected 2, as in the first line"),
        ("1,2\n3,4,5\n", "line 2: 3 fields; expected 2"),
        ("x,y\n1,2,3\n4,5,6\n", "line 2: 3 fields; expected 2"),
        ("x,y\n1,2\n3,abc\n", "line 3, column 'y' is 'abc'; expected a number"),
        ("1,2\n3,\n", "line 2, column '1' is empty, in 1 of 2 rows"),
        ("x;y\n1,5;2\n", "line 2, column 'x' is '1,5'; expected a number with a decimal point"),
        ("x,y\n1,nan\n", "line 2, column 'y' is empty, in 1 of 1 rows; expected a value. Use drop='y'"),
        ("1,2\n\n3,-inf\n", "line 3, column '1' is '-inf'; expected a finite number"),
        ("x,label\n1,\n", "line 2, column 'label' is empty"),
        ("label\n1\n", "no column is left for the features; its columns are 'label'"),
        (
            "x,client,device\n1,0,0\n",
            "columns 'client', 'device' could all be the device; expected one. Choose one with device_column='client'",
        ),
        (b"x,y\n1,\xff\n", "text is not UTF-8 and was read as Windows-1252"),
        (b"x,y\n1,\x002\n", "line 2, column 'y' is '\\x002'"),
    ],
)
def test_text_that_cannot_be_used(tmp_path, text, message):
    path = write(tmp_path, "bad.csv", text)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        read_table(path)
    assert "bad.csv" in str(caught.value)
    assert caught.value.code == 3


@pytest.mark.parametrize("given", ["class", 3, -1, "3"])
def test_a_missing_column_lists_those_there_are(tmp_path, given):
    path = write(tmp_path, "a.csv", "x,y,kind\n1,2,0\n3,4,1\n")
    with pytest.raises(DataError, match=rf"label_column is {given!r}; expected one of the columns 'x', 'y', 'kind'"):
        read_table(path, label_column=given)
    with pytest.raises(DataError, match=rf"device_column is {given!r}; expected one of the columns"):
        read_table(path, device_column=given)
    with pytest.raises(DataError, match="column 'kind' is both label and device"):
        read_table(path, label_column="kind", device_column=2)


def test_paths_that_cannot_be_used(tmp_path):
    with pytest.raises(DataError, match=r"data file .*none.csv does not exist \(searched in .*\). Check the path"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"is a folder without data files; expected .*\.csv, .tsv"):
        read_table(tmp_path)
    with pytest.raises(
        DataError, match=r"has the suffix '.doc'; expected one of .csv, .tsv, .txt, .npy, .npz, .parquet"
    ):
        read_table(write(tmp_path, "a.doc", "1,2"))


def test_npy(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.array([[1, 2, 7], [3, 4, 5]], dtype=np.int32))
    assert read_table(path).points.shape == (2, 3)
    table = read_table(path, label_column="2", device_column=0)
    np.testing.assert_array_equal(table.points, [[2], [4]])
    np.testing.assert_array_equal(table.labels, [1, 0])
    np.testing.assert_array_equal(table.device, [1, 3])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4), "has shape (4,), expected (points, features); for a single feature use reshape(-1, 1)"),
        (np.zeros((0, 2)), "has shape (0, 2)"),
        (np.array([[1, np.nan]]), "is nan at row 0, column 1"),
        (np.array([["a"]]), "has dtype <U1 and 'a' at row 0, column 0"),
        (np.array([[object()]]), "cannot be read as NumPy arrays without pickles"),
    ],
)
def test_npy_that_cannot_be_used(tmp_path, array, message):
    path = tmp_path / "a.npy"
    np.save(path, array)
    with pytest.raises(DataError, match=re.escape(message)):
        read_table(path)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x01\x00\x03\x00{(\n"])
def test_broken_arrays(tmp_path, name, data):
    with pytest.raises(
        DataError,
        match=r"cannot be read as NumPy arrays|is not a .npz archive|contains (text|an array of NumPy); .* Rename",
    ):
        read_table(write(tmp_path, name, data))


def test_an_array_cut_short_or_with_an_absurd_shape(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((100, 2)))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="cannot be read as NumPy arrays"):
        read_table(path)
    np.save(path, np.zeros((100, 2)))
    path.write_bytes(path.read_bytes().replace(b"(100, 2), }           ", b"(1000000000000000, 2),"[:-1] + b"}"))
    with pytest.raises(DataError, match=r"cannot be read as NumPy arrays|does not fit into memory"):
        read_table(path)


def test_npz_by_name(tmp_path):
    path = tmp_path / "a.npz"
    points = np.arange(6.0).reshape(3, 2)
    for name in ("X", "points", "other"):
        np.savez_compressed(path, **{name: points}, y=[5, 3, 5], client=["b", "a", "b"])
        table = read_table(path)
        np.testing.assert_array_equal(table.points, points)
        np.testing.assert_array_equal(table.labels, [1, 0, 1])
        np.testing.assert_array_equal(column(table.device), [1, 0, 1])
    np.savez(path, X=points, Z=points, species=[1, 1, 0], who=[0, 1, 2])
    table = read_table(path, label_column="species", device_column="who")
    np.testing.assert_array_equal(table.labels, [1, 1, 0])
    np.testing.assert_array_equal(table.device, [0, 1, 2])
    table = read_table(path, label_column=1)
    assert table.points.shape == (3, 1)
    assert table.classes == 3


def test_npz_that_cannot_be_used(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    with pytest.raises(
        DataError,
        match="contains the arrays 'a' \\[2, 2\\], 'b' \\[2, 2\\]; expected 'X', 'points', 'images' or a single array",
    ):
        read_table(path)
    np.savez(path, X=np.zeros((2, 2)), y=[1, 2, 3])
    with pytest.raises(DataError, match=r"the labels have shape \(3,\); expected \(2,\)"):
        read_table(path)
    with pytest.raises(DataError, match="array 'kind' does not exist; expected one of 'X', 'y'"):
        read_table(path, label_column="kind")
    np.savez(path, X=np.zeros((2, 2)), y=np.array([None, 1]))
    with pytest.raises(DataError, match="without pickles"):
        read_table(path)
    np.savez_compressed(path, X=np.zeros((1000, 100)))
    monkeypatch.setattr(arrays, "_USUAL", 10_000)
    assert path.stat().st_size < 800128 / 200
    with pytest.raises(DataError, match="decompresses to 800128 bytes; expected at most 200 times its size of"):
        read_table(path)


def test_an_archive_of_other_things(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(DataError, match=r"a\.npz contains the arrays none; expected 'X'"):
        read_table(path)
    np.savez(tmp_path / "b.npz", X=np.zeros((2, 2)))
    (tmp_path / "b.npz").rename(tmp_path / "b.npy")
    with pytest.raises(DataError, match=r"contains arrays of NumPy.*Rename the file to b\.npz"):
        read_table(tmp_path / "b.npy")


def test_parquet_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        DataError, match=r"requires pyarrow, which is not installed. Run pip install 'p2pkm\[parquet\]'"
    ):
        read_table(write(tmp_path, "a.parquet", "PAR1"))


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"x": [1, 2], "label": ["b", "a"], "y": [0.5, 1.5], "client": [1, 0]}), path)
    table = read_table(path)
    np.testing.assert_array_equal(table.points, [[1, 0.5], [2, 1.5]])
    np.testing.assert_array_equal(table.labels, [1, 0])
    np.testing.assert_array_equal(table.device, [1, 0])
    with pytest.raises(DataError, match=r"row 0, column 'label' is 'b'; expected a number"):
        read_table(path, label_column="x")
    parquet.write_table(arrow.table({"x": [1, None], "y": [1, 2]}), path)
    with pytest.raises(DataError, match="row 1, column 'x' is empty, in 1 of 2 rows"):
        read_table(path)
    parquet.write_table(arrow.table({"x": arrow.array([], arrow.float64())}), path)
    with pytest.raises(DataError, match="has 0 rows"):
        read_table(path)
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_table(write(tmp_path, "b.parquet", "PAR1 nonsense"))


def test_a_table_needs_only_points():
    assert set(Table(np.zeros((1, 1)))[1:]) == {None}
