"""Rows and centroids in few bits: messages of the counted length can be read, and the start hardly gets worse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.optimize import linear_sum_assignment

import p2pkm
import topologies
from p2pkm.core.adaptive_code import Coder
from p2pkm.core.messages import Tables
from p2pkm.methods.building_blocks.spanning_tree import Front
from p2pkm.methods.init.lean import (
    Cells,
    code_box,
    code_rows,
    count_box_bytes,
    count_centroid_bytes,
    count_row_bytes,
    own_box,
    pack_centroids,
    pack_rows,
)
from tests.methods.init.test_tree_groups import two_kinds
from tests.methods.init.test_tree_summaries import GRAPHS, mix, seeds

COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(sum)
SEEDS = st.integers(0, 10**6)


class Points:
    """What `own_box` asks of devices."""

    d, unit = 3, 2.0


def draw(seed, counts):
    """Return tables of rows (origin, mean, weight, SSE), some with weights that are no whole numbers; a box of all."""
    rng, total = np.random.default_rng(seed), int(sum(counts))
    flat = np.column_stack((
        rng.integers(0, 3, total), rng.normal(50, 9, (total, 2)), np.full(total, 7.0),
        2.0 * rng.integers(1, 300, total), rng.uniform(0, 40, total),
    ))  # fmt: skip
    flat[rng.random(total) < 0.1 * (seed % 2), 4] /= 3.0
    starts = np.cumsum(counts) - counts
    tables = Tables(flat, starts, np.array(counts))
    one = own_box(Front(np.array([0]), Tables(flat, np.array([0]), np.array([total]))), Points, 5)
    return tables, np.repeat(one.tables.values, len(counts), axis=0)


def test_numbers():
    ends = np.array([[0.0, -1.0, 7.0, -8.0, -1.0, -7.0, -0.25]])
    low, step, widths = Cells.of(ends)
    assert_array_equal(low, [[0, -1, 7]])
    assert_array_equal(step, [0.25])
    assert_array_equal(widths, [[6, 4, 0]])  # 32, 8 and 0 cells
    assert_array_equal(Cells.of(ends, 2).widths, [[8, 6, 0]])
    numbers, read = Cells(low, step, widths).round(np.array([[3.2, -0.4, 7.0], [99.0, -9.0, 8.0]]), np.array([0, 0]))
    assert_array_equal(numbers, [[13, 2, 0], [63, 0, 0]])
    assert_array_equal(read, [[3.25, -0.5, 7.0], [15.75, -1.0, 7.0]])


@given(SEEDS, COUNTS, st.booleans())
def test_what_is_read_is_near_and_stays_as_it_is(seed, counts, within):
    tables, boxes = draw(seed, counts)
    packed, (_, step, _) = pack_rows(tables, boxes, 2.0, within=within), Cells.of(boxes)
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


@given(SEEDS, COUNTS, st.booleans(), st.booleans())
def test_a_message_of_the_counted_length_is_read_as_it_was(seed, counts, within, apart):
    tables, boxes = draw(seed, counts)
    packed = pack_rows(tables, boxes, 2.0, within=within, apart=apart)
    below = np.full(len(counts), 4) if apart else None
    lengths = count_row_bytes(packed, boxes, 2.0, within=within, below=below)
    cells = Cells(*(part[:1] for part in Cells.of(boxes)))
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


@given(SEEDS, COUNTS)
def test_centroids_are_read_as_they_were(seed, counts):
    tables, boxes = draw(seed, counts)
    drawn = np.full((len(counts), max(counts), 3), np.inf)
    for i in range(len(counts)):
        drawn[i, : counts[i]] = tables.take([i]).flat()[:, 1:4]
    packed, cells = pack_centroids(drawn, boxes), Cells.of(boxes, 2)
    assert_array_equal(np.isinf(packed).sum(axis=1), np.isinf(drawn).sum(axis=1))
    assert_array_equal(pack_centroids(packed, boxes), packed)
    writer, length = Coder(), count_centroid_bytes(packed.reshape(1, -1, 3), boxes[:1], max(counts))[0]
    first = Cells(*(part[:1] for part in cells))
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
    ends = own_box(Front(np.array([0]), Tables(flat, np.array([0]), np.array([count]))), Points, 5).tables.values
    length, writer = int(count_box_bytes(ends)[0]), Coder()
    code_box(writer, 3, ends[0])
    assert_array_equal(code_box(Coder(writer.finish(8 * length)), 3, None), ends[0])
    if not count:
        assert np.isinf(ends).all()
        return
    assert (ends[0, :3] <= flat[:, 1:4].min(axis=0)).all()
    assert (-ends[0, 3:6] >= flat[:, 1:4].max(axis=0)).all()
    sides, widest = -ends[0, 3:6] - ends[0, :3], np.ptp(flat[:, 1:4], axis=0).max()
    assert (
        sides <= np.ptp(flat[:, 1:4], axis=0) + max(widest / 8, 4 * np.spacing(np.abs(flat[:, 1:4]).max()), 2.0**-998)
    ).all()


def sort(rows):
    """Return rows in an order of their own."""
    return rows[np.lexsort(rows.T)]


def test_the_step_is_an_eighth_of_the_distance_of_clusters():
    side = np.linspace(0.0, 40.0, 5)  # 25 clusters 10 apart, whose coordinates are 12 from their mean: 4 * 12 / 5 / 8
    flat = np.zeros((25, 5))
    flat[:, 1:3], flat[:, 3] = np.stack(np.meshgrid(side, side), axis=2).reshape(-1, 2), 1.0

    class Plane:
        d, unit = 2, 1.0

    ends = own_box(Front(np.array([0]), Tables(flat, np.array([0]), np.array([25]))), Plane, 25).tables.values[0]
    assert ends[-1] == -1.0
    flat[0, 1:3] = 1e4  # which one row far away hardly changes
    ends = own_box(Front(np.array([0]), Tables(flat, np.array([0]), np.array([25]))), Plane, 25).tables.values[0]
    assert ends[-1] >= -64.0


def test_rows_that_are_all_equal_ask_for_the_step_of_their_points_and_no_step_is_above_the_spread_within():
    def ask(rows, sse, *, within):
        flat = np.column_stack((np.zeros(4), rows, np.full((4, 2), [4.0, sse])))  # of weight 4, which is two points
        front = Front(np.array([0]), Tables(flat, np.array([0]), np.array([4])))
        return -own_box(front, Plane, 9, within=within).tables.values[0, -1]

    class Plane:
        d, unit = 2, 2.0

    equal, apart = np.ones((4, 2)), 8.0 * np.array([[0, 0], [0, 6], [6, 0], [6, 6]])
    for within in (False, True):
        assert ask(equal, 4 * 2 * 9.0, within=within) == 0.5  # 4 * 3 / sqrt(9) / 8, with 9 the variance of a coordinate
    assert ask(apart, 4 * 2 * 9.0, within=False) == 4.0  # 4 * 24 / sqrt(9) / 8
    assert ask(apart, 4 * 2 * 9.0, within=True) == 2.0  # the power of two below 3


@pytest.mark.parametrize("name", GRAPHS)
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


def test_the_number_of_clusters_is_chosen_from_encoded_rows():
    shards, graph = mix(10, 6, 2, points=60), topologies.ring(10)
    chosen, spent = [], []
    for init in ("rows", "rows:lean=true"):
        result = p2pkm.simulate(p2pkm.TreeLloyd(2, init=init), graph, shards, rounds=1, seed=1, k_max=10)
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
