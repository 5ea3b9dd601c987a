"""Rows and centroids in few bits: messages of the counted length can be read, and the start hardly gets worse."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment

import p2pkm
import topologies
from p2pkm.core.arithmetic_coder import Coder
from p2pkm.core.messages import Tables
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference
from p2pkm.methods.init.lean import (
    CoordinateGrid,
    code_box,
    code_rows,
    count_box_bytes,
    count_centroid_bytes,
    count_row_bytes,
    local_box,
    pack_centroids,
    pack_rows,
    settle_step,
    widen_boxes,
)
from tests.methods.init.test_tree_groups import two_kinds
from tests.methods.init.test_tree_summaries import GRAPHS, mix, seeds
from tests.support.sampling import thin

COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(sum)
SEEDS = st.integers(0, 10**6)


class Points:
    """What `local_box` asks of devices."""

    d, unit, kernels = 3, 2.0, reference


class Plane(Points):
    """The same in the plane, where points weigh 1."""

    d, unit = 2, 1.0


def draw(seed, counts):
    """Return tables of rows (origin, mean, weight, SSE), some with weights that are no whole numbers; a box of all."""
    rng, total = np.random.default_rng(seed), int(sum(counts))
    flat = np.column_stack((
        rng.integers(0, 3, total), rng.normal(50, 9, (total, 2)), np.full(total, 7.0),
        2.0 * rng.integers(1, 300, total), rng.uniform(0, 40, total),
    ))  # fmt: skip
    flat[rng.random(total) < 0.1 * (seed % 2), 4] /= 3.0
    flat[0, 1:3] *= 10.0 ** rng.integers(0, 14)  # one row may lie far away
    starts = np.cumsum(counts) - counts
    tables = Tables(flat, starts, np.array(counts))
    return tables, np.repeat(box_of(flat, Points, 5), len(counts), axis=0)


def box_of(flat, devices, k, **options):
    """Return the box of one device with these rows, float64[1, 2 d + 2]."""
    return local_box(Tables(flat, np.array([0]), np.array([len(flat)])), devices, k, **options)


def test_numbers():
    # five votes, an eighth of a bit short of 2^-1 together
    ends = np.array([[0.0, -1.0, 7.0, -8.0, -1.0, -7.0, 5 * 8 * -1.0 - 1, 5]])
    low, step, widths = CoordinateGrid.of(ends)
    assert_array_equal(low, [[0, -1, 7]])
    assert_array_equal(step, [0.25])
    assert_array_equal(widths, [[6, 4, 0]])  # 32, 8 and 0 cells
    assert_array_equal(CoordinateGrid.of(ends, 2).widths, [[8, 6, 0]])
    numbers, read = CoordinateGrid(low, step, widths).round(
        np.array([[3.2, -0.4, 7.0], [99.0, -9.0, 8.0]]), np.array([0, 0])
    )
    assert_array_equal(numbers, [[13, 2, 0], [63, 0, 0]])
    assert_array_equal(read, [[3.25, -0.5, 7.0], [15.75, -1.0, 7.0]])


@given(SEEDS, COUNTS, st.booleans())
def test_what_is_read_is_near_and_stays_as_it_is(seed, counts, within):
    tables, boxes = draw(seed, counts)
    packed, (_, step, _) = pack_rows(tables, boxes, 2.0, within=within), CoordinateGrid.of(boxes)
    after = packed.flat()
    assert_array_equal(packed.rows, tables.rows)
    assert_array_equal(pack_rows(packed, boxes, 2.0, within=within).flat(), after)
    for i, rows in enumerate(tables.rows):
        one, other = tables.take([i]).flat(), packed.take([i]).flat()
        expected = np.sqrt(one[:, 5] / one[:, 4]) if within else 0.0 * one[:, 5]
        near = (np.abs(other[:, None, 1:4] - one[:, 1:4]) <= step[0] / 2 * (1 + 1e-9)).all(axis=2)
        near &= np.abs(other[:, None, 4] - one[:, 4]) <= 2.0**-23 * one[:, 4]
        near &= np.abs(np.sqrt(other[:, 5] / other[:, 4])[:, None] - expected) <= step[0] / 8 * np.sqrt(3) + 1e-9
        assert near[linear_sum_assignment(near, maximize=True)].sum() == rows == len(other)  # each row is read once


@pytest.mark.slow
@given(SEEDS, COUNTS, st.booleans(), st.booleans())
def test_a_message_of_the_counted_length_is_read_as_it_was(seed, counts, within, apart):
    tables, boxes = draw(seed, counts)
    packed = pack_rows(tables, boxes, 2.0, within=within, with_origins=apart)
    below = np.full(len(counts), 4) if apart else None
    lengths = count_row_bytes(packed, boxes, 2.0, within=within, below=below)
    cells = CoordinateGrid(*(part[:1] for part in CoordinateGrid.of(boxes)))
    for i, length in enumerate(lengths):
        rows = packed.take([i]).flat()
        numbers = np.column_stack((cells.round(rows[:, 1:4], np.zeros(len(rows), int))[0], rows[:, 4] / 2.0))
        if within:
            numbers = np.column_stack((numbers, np.rint(np.sqrt(rows[:, 5] / rows[:, 4] / 3) * 4 / cells.step)))
        blocks = [numbers[rows[:, 0] == origin] for origin in range(4)] if apart else [numbers]
        writer = Coder()
        code_rows(writer, cells, blocks, within=within)
        read = code_rows(Coder(writer.finish(8 * int(length))), cells, len(blocks), within=within)
        for one, other in zip(read, blocks, strict=True):
            assert_array_equal(sort(one), sort(other))
        assert 8 * length <= writer.size.denominator.bit_length() - writer.size.numerator.bit_length() + 10


@pytest.mark.slow
@given(SEEDS, COUNTS)
def test_centroids_are_read_as_they_were(seed, counts):
    tables, boxes = draw(seed, counts)
    drawn = np.full((len(counts), max(counts), 3), np.inf)
    for i in range(len(counts)):
        drawn[i, : counts[i]] = tables.take([i]).flat()[:, 1:4]
    packed, cells = pack_centroids(drawn, boxes), CoordinateGrid.of(boxes, 2)
    assert_array_equal(np.isinf(packed).sum(axis=1), np.isinf(drawn).sum(axis=1))
    assert_array_equal(pack_centroids(packed, boxes), packed)
    writer, length = Coder(), count_centroid_bytes(packed.reshape(1, -1, 3), boxes[:1], max(counts))[0]
    first = CoordinateGrid(*(part[:1] for part in cells))
    blocks = [first.round(one[np.isfinite(one[:, 0])], np.zeros(count, int))[0].astype(float)
              for one, count in zip(packed, counts, strict=True)]  # fmt: skip
    code_rows(writer, first, blocks, weighted=False)
    read = code_rows(Coder(writer.finish(8 * int(length))), first, len(blocks), weighted=False)
    for one, other in zip(read, blocks, strict=True):
        assert_array_equal(sort(one), sort(other))
    assert 8 * length <= writer.size.denominator.bit_length() - writer.size.numerator.bit_length() + 10


@given(SEEDS, st.sampled_from([0.0, 1e-300, 1.0, 1e100]), st.sampled_from([0.0, 1.0, 1e9, -1e100]), st.integers(0, 5))
def test_a_box_holds_the_rows_and_is_read_as_it_was(seed, size, offset, count):
    rng = np.random.default_rng(seed)
    flat = np.zeros((count, 6))
    flat[:, 1:4], flat[:, 4] = offset + size * rng.normal(size=(count, 3)), 2.0
    ends = box_of(flat, Points, 5)
    length, writer = int(count_box_bytes(ends)[0]), Coder()
    code_box(writer, 3, ends[0])
    assert_array_equal(code_box(Coder(writer.finish(8 * length)), 3, None), ends[0])
    if not count:
        assert np.isinf(ends[:, :6]).all() and not ends[:, 6:].any()
        return
    assert (ends[0, :3] <= flat[:, 1:4].min(axis=0)).all()
    assert (-ends[0, 3:6] >= flat[:, 1:4].max(axis=0)).all()
    sides, widest = -ends[0, 3:6] - ends[0, :3], np.ptp(flat[:, 1:4], axis=0).max()
    assert (
        sides <= np.ptp(flat[:, 1:4], axis=0) + max(widest / 8, 4 * np.spacing(np.abs(flat[:, 1:4]).max()), 2.0**-998)
    ).all()


def test_equal_tables_count_as_each_among_others():
    drawn = [draw(seed, (5,)) for seed in (4, 8)]
    boxes = np.concatenate([box for _, box in drawn])
    sets = np.concatenate([pack_centroids(tables.flat()[None, :, 1:4], box) for tables, box in drawn])
    # Each set in each box.
    sets, boxes = sets[[0, 0, 1, 1]], boxes[[0, 1, 0, 1]]
    of_boxes, of_sets = count_box_bytes(boxes), count_centroid_bytes(sets, boxes, 5)
    assert len(set(of_sets.tolist())) > 2
    for i in (0, 1, 2, 3, 0):
        assert_array_equal(count_box_bytes(boxes[[i, i]]), of_boxes[[i, i]])
        assert_array_equal(count_centroid_bytes(sets[[i, i]], boxes[[i, i]], 5), of_sets[[i, i]])
    assert_array_equal(count_centroid_bytes(sets[:2], boxes[:2], 5), of_sets[:2])


def sort(rows):
    """Return rows in an order of their own."""
    return rows[np.lexsort(rows.T)]


def step_of(flat, devices, k, **options):
    """Return the step that one device asks for, the power of two below."""
    return CoordinateGrid.of(box_of(flat, devices, k, **options)).step[0]


def rows_of(means, weights=1.0, sse=0.0):
    """Return rows (origin, mean, weight, SSE)."""
    means = np.asarray(means, float)
    return np.column_stack((np.zeros(len(means)), means, np.broadcast_to(weights, len(means)),
                            np.broadcast_to(sse, len(means))))  # fmt: skip


def ask(flat, d, k, *, unit, within):
    """Return the vote of one device and how many rows it has, row by row with logarithms."""
    means, inverse = np.unique(flat[:, 1 : 1 + d], axis=0, return_inverse=True)
    weights = np.bincount(inverse.ravel(), flat[:, 1 + d] / unit)
    gaps = ((means[:, None] - means) ** 2).sum(axis=2)
    gaps[gaps == 0.0] = np.inf
    spread = math.sqrt((flat[:, 2 + d] / unit).sum() / weights.sum() / d)
    if len(means) == 1:
        return (math.floor(8 * math.log2(spread / 4)), 1) if spread else (0, 0)
    order = np.argsort(gaps.min(axis=1))
    half = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    step = math.sqrt(gaps.min(axis=1)[order][half] / d) * min(1, len(means) / 2 / k) ** (1 / min(d, 2))
    step *= 0.35 if within else 0.5
    return math.floor(8 * math.log2(min(step, spread) if within and spread else step)), len(means)


@given(SEEDS, st.integers(1, 40), st.integers(1, 9), st.booleans(), st.booleans())
def test_each_row_votes_for_a_share_of_the_typical_distance_to_the_nearest_other_one(seed, count, k, within, alike):
    rng = np.random.default_rng(seed)
    flat = rows_of(rng.normal(size=(count, 3)), 2.0 * rng.integers(1, 9, count), rng.uniform(0, 9, count) * (seed % 3))
    flat = np.concatenate((flat, flat[: count // 3]))  # some are equal
    flat[:, 1:4] = flat[0, 1:4] if alike else flat[:, 1:4]
    mean, voters = ask(flat, 3, k, unit=2.0, within=within)
    votes = box_of(flat, Points, k, within=within)[0, 6:]
    assert_array_equal(votes, [mean * voters, voters])


@given(SEEDS, st.integers(-40, 40), st.booleans())
def test_steps_and_cells_scale_exactly_with_the_rows(seed, power, within):
    rng = np.random.default_rng(seed)
    flat = rows_of(np.round(100.0 * rng.standard_cauchy((20, 3))), 2.0, rng.uniform(0, 9, 20))
    larger = flat.copy()
    larger[:, 1:4] *= 2.0**power
    larger[:, 5] *= 4.0**power
    one, other = (CoordinateGrid.of(box_of(rows, Points, 5, within=within)) for rows in (flat, larger))
    assert_array_equal(one.step * 2.0**power, other.step)
    assert_array_equal(one.low * 2.0**power, other.low)
    assert_array_equal(one.widths, other.widths)


def test_the_step_is_half_the_distance_of_rows_in_a_coordinate_and_an_outlier_does_not_change_it():
    side = np.linspace(0.0, 40.0, 5)  # 25 rows 10 apart, of 13 clusters: sqrt(100 / 2) / 2
    flat = rows_of(np.stack(np.meshgrid(side, side), axis=2).reshape(-1, 2))
    assert step_of(flat, Plane, 12) == 2.0
    for far in (1e4, 1e12):
        flat[0, 1:3] = far
        assert step_of(flat, Plane, 12) == 2.0
    assert step_of(flat[1:7], Plane, 12) == 1.0  # a quarter of the rows are twice as far apart
    assert step_of(flat[:, [0, 1, 3, 4]][1:6], type("Line", (Plane,), {"d": 1}), 10) == 1.0  # 10 / 2 / 4


def test_rows_that_are_all_equal_ask_for_the_step_of_their_points_and_no_step_is_above_the_spread_within():
    equal, apart = np.ones((4, 2)), 32.0 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    for within in (False, True):
        # the variance of a coordinate is 9
        assert step_of(rows_of(equal, 2.0, 2 * 2 * 9.0), Plane, 2, within=within) == 0.5
    assert step_of(rows_of(apart, 2.0, 2 * 2 * 9.0), Plane, 2) == 8.0  # the power of two below 32 / sqrt(2) / 2
    assert step_of(rows_of(apart, 2.0, 2 * 2 * 9.0), Plane, 2, within=True) == 2.0  # that below 3
    assert box_of(rows_of(equal), Plane, 2)[0, -1] == 0  # no spread, no vote


@pytest.mark.parametrize("kernels", [compiled, reference])
def test_votes_of_a_device_do_not_depend_on_the_others(kernels):
    rng = np.random.default_rng(0)
    counts = np.array([0, 1, 7, 64, 0, 3, 2])
    flat = rows_of(rng.normal(size=(counts.sum(), 2)) * 10.0 ** rng.integers(-3, 9, (counts.sum(), 1)))
    devices = type("Devices", (Plane,), {"kernels": kernels})
    together = local_box(Tables(flat, np.cumsum(counts) - counts, counts), devices, 5)
    for i, (start, count) in enumerate(zip(np.cumsum(counts) - counts, counts, strict=True)):
        assert_array_equal(together[i], box_of(flat[start : start + count], Plane, 5)[0])


def test_the_root_takes_the_geometric_mean_of_all_votes():
    """Whatever the order: ends are the least, votes add up, and one vote for the mean comes down."""
    rng = np.random.default_rng(0)
    drawn = [rng.normal(size=(count, 2)) * 2.0**power for count, power in ((5, 0), (3, 9), (4, -6))]
    boxes = np.concatenate([box_of(rows_of(one), Plane, 5) for one in drawn])
    votes, voters = boxes[:, -2].sum(), boxes[:, -1].sum()
    found = widen_boxes(widen_boxes(boxes[:1], np.array([0]), boxes[1:2]), np.array([0]), boxes[2:])
    assert_array_equal(found[0, -2:], [votes, voters])
    assert (found[0, :4] <= boxes[:, :4].min(axis=0)).all()
    assert_array_equal(settle_step(found)[0, -2:], [8 * np.floor(votes / voters / 8), 1])
    assert_array_equal(CoordinateGrid.of(settle_step(found)).step, CoordinateGrid.of(found).step)
    assert CoordinateGrid.of(found).step == 2.0 ** np.floor(votes / voters / 8)
    nothing = np.array([[np.inf] * 4 + [0.0, 0.0]])
    assert_array_equal(settle_step(nothing), nothing)
    assert_array_equal(widen_boxes(found, np.array([0]), nothing), found)


def outlier(rng):
    """Return grid16 with a point far away."""
    points = p2pkm.grid16(points=40, seed=int(rng.integers(1000)))[0]
    return np.concatenate((np.full((1, 2), 1e5), points[1:])), 17


def dominant(rng):
    """Return 30 clusters along one of ten features."""
    points = rng.normal(size=(900, 10))
    points[:, 0] += np.repeat(1e3 * rng.uniform(size=30), 30)
    return points, 30


def line(rng):
    """Return 20 clusters on a line in twenty dimensions."""
    along = np.repeat(rng.uniform(0.0, 100.0, 20), 40) + 0.3 * rng.normal(size=800)
    return along[:, None] * rng.normal(size=20) + 0.1 * rng.normal(size=(800, 20)), 20


def heavy_tails(rng):
    """Return noise around ten places with heavier tails than those of Cauchy's distribution."""
    return np.repeat(30.0 * rng.uniform(size=(10, 2)), 80, axis=0) + 0.1 * rng.standard_t(0.6, (800, 2)), 40


def nested(rng):
    """Return four groups of six clusters, far apart."""
    centers = np.repeat(1e4 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), 6, axis=0) + rng.uniform(0, 30, (24, 2))
    return np.repeat(centers, 30, axis=0) + 0.2 * rng.normal(size=(720, 2)), 24


@pytest.mark.parametrize(("draw", "seed"), thin(product([outlier, dominant, line, heavy_tails, nested], range(2)), 7))
@pytest.mark.sample(2)
def test_encoded_rows_are_as_good_as_real_numbers_on_data_of_every_shape(draw, seed):
    points, k = draw(np.random.default_rng(seed))
    shards = p2pkm.Shards.deal(points, p2pkm.partition.iid(len(points), 5, seed=seed), devices=5)
    plain, lean = (
        p2pkm.simulate(p2pkm.TreeLloyd(k, init=init), topologies.ring(5), shards, seed=seed, baselines=False)
        for init in ("rows", "rows:lean=true")
    )
    assert np.isfinite(lean.centroids).all()
    assert lean.rounds[-1]["objective"] < 1.05 * plain.rounds[-1]["objective"]
    assert lean.summary["wire_bytes"] < plain.summary["wire_bytes"] / 4


@pytest.mark.parametrize("name", thin(GRAPHS, 3))
def test_all_devices_of_a_component_read_the_same(name):
    result = seeds("rows:lean=true", GRAPHS[name])
    for number in range(result.topology.components.max() + 1):
        own = result.centroids[result.topology.components == number]
        assert np.isfinite(own).all() and len(np.unique(own, axis=0)) == 1


def test_it_takes_a_fraction_of_the_bytes_at_nearly_the_same_cost():
    shards, graph = mix(10, 8, 2, points=60), topologies.ring(10)
    plain, lean = (
        p2pkm.simulate(p2pkm.GTVMin(8, init=init), graph, shards, rounds=0, seed=1)
        for init in ("rows", "rows:lean=true")
    )
    spent = [[r for r in one.rounds if r["stage"] == "rows"][-1] for one in (plain, lean)]
    assert spent[0]["wire_bytes"] == spent[0]["bytes"]
    assert spent[1]["wire_bytes"] < spent[0]["bytes"] / 8
    assert lean.summary["ratio_mean"] < 1.01 * plain.summary["ratio_mean"]


@pytest.mark.slow
def test_the_number_of_clusters_is_chosen_from_encoded_rows():
    shards, graph = mix(10, 6, 2, points=60), topologies.ring(10)
    chosen, spent = [], []
    for init in ("rows", "rows:lean=true"):
        result = p2pkm.simulate(
            p2pkm.TreeLloyd(2, init=init), graph, shards, rounds=1, seed=1, clusters="auto", k_max=10
        )
        record = [one for one in result.rounds if one["stage"] == "number-of-clusters"][-1]
        chosen.append(result.summary["k_chosen"])
        spent.append((record["bytes"], record["wire_bytes"]))
    assert chosen[0] == chosen[1]
    assert spent[0][0] == spent[0][1]
    assert spent[1][1] < spent[1][0] / 8


def test_groups_are_found_from_encoded_rows():
    shards, graph = p2pkm.Shards.from_list(two_kinds(n=8)), topologies.ring(8)
    result = p2pkm.simulate(p2pkm.TreeLloyd(3, groups="auto"), graph, shards, seed=1)
    assert_array_equal(result.groups, np.repeat([0, 1], 4))
    assert result.summary["wire_bytes"] < result.summary["bytes"] / 5


def test_spreads_of_many_steps_survive_packing():
    tables, boxes = draw(4, [5, 3])
    step = CoordinateGrid.of(boxes).step[0]
    flat = tables.flat()
    flat[:, 5] = 3.0 * flat[:, 4] * (np.arange(100.0, 900.0, 100.0) * step / 4.0) ** 2
    packed = pack_rows(tables._replace(values=flat), boxes, 2.0, within=True).flat()
    assert_allclose(sorted(packed[:, 5] / packed[:, 4]), sorted(flat[:, 5] / flat[:, 4]), rtol=1e-6)
