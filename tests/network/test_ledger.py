"""Messages, rows and bytes, counted by hand."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
from p2pkm.core.messages import Delivery, DenseMessages, SparseMessages, Tables
from p2pkm.network import ledger, ledger_state
from p2pkm.network.ledger import Ledger
from tests.support.play_rounds import random_links
from tests.support.sampling import thin

# 0 - 1, 1 - 2, 1 - 3, 2 - 3: degrees 1, 3, 2, 2; 8 directed edges in the order 01 10 12 13 21 23 31 32.
GRAPH = nx.Graph([(0, 1), (1, 2), (1, 3), (2, 3)])
DEGREES = np.array([1, 3, 2, 2])


def deal(*sizes, d=2):
    """Return random points, so many for each device."""
    rng = np.random.default_rng(1)
    return p2pkm.Shards.from_list([rng.normal(size=(size, d)) for size in sizes])


def run(method, shards, graph=GRAPH, rounds=0, **options):
    return p2pkm.simulate(method, graph, shards, rounds=rounds, baselines=False, **options)


def spent(result, stage):
    """Return messages and bytes of one stage."""
    before = (0, 0)
    for record in result.rounds:
        now = record["messages"], record["bytes"]
        if record["stage"] != stage:
            before = now
        else:
            found = now[0] - before[0], now[1] - before[1]
            after = found
    return after


def said(result, stage):
    """Return how many rows each device said in each exchange of a stage that somebody spoke in; -1 = silent."""
    ledger = result.ledger
    here = ledger.stage == stage
    rows = np.full((len(DEGREES), ledger.turn[here].max() + 1), -1)
    rows[ledger.sender[here], ledger.turn[here]] = ledger.rows[here]
    return rows


@pytest.mark.parametrize("schedule", ["colored", "jacobi"])
def test_gtvmin_says_every_centroid_once_per_round_and_at_the_opening(schedule):
    method = p2pkm.GTVMin(3, alpha=1.0, schedule=schedule, tol=0.0)
    result = run(method, deal(3, 3, 3, 3), rounds=4, start=np.random.default_rng(0).normal(size=(4, 3, 2)))
    assert (result.summary["messages"], result.summary["bytes"]) == (5 * 8, 5 * 8 * 3 * 2 * 8)
    assert_array_equal(result.ledger.messages, 5)
    assert_array_equal(result.ledger.edge_rows, 15)
    assert_array_equal(result.ledger.bytes, 240)
    assert_array_equal(result.ledger.src, [0, 1, 1, 1, 2, 2, 3, 3])
    assert_array_equal(result.ledger.dst, [1, 0, 2, 3, 1, 3, 1, 2])
    assert_array_equal(result.ledger.rows_per_device, 2 * 15 * DEGREES)
    assert result.summary["rows_max_per_device"] == 90
    assert [record["messages"] for record in result.rounds] == [8, 16, 24, 32, 40]


def test_colored_turns_are_told_apart():
    method = p2pkm.GTVMin(2, alpha=1.0, tol=0.0)  # colors 0, 1, 0, 2
    result = run(method, deal(3, 3, 3, 3), rounds=1, start=np.random.default_rng(0).normal(size=(4, 2, 2)))
    assert_array_equal(said(result, 0).T, [[2, 2, 2, 2], [2, -1, 2, -1], [-1, 2, -1, -1], [-1, -1, -1, 2]])


def test_absent_rows_are_not_said():
    start = np.random.default_rng(0).normal(size=(4, 3, 2))
    start[1, 0] = start[3] = np.inf
    result = run(p2pkm.GTVMin(3, alpha=1.0, tol=0.0), deal(3, 3, 3, 0), rounds=1, start=start)
    assert_array_equal(result.ledger.edge_rows, 2 * np.array([3, 2, 2, 2, 3, 3, 0, 0]))
    assert_array_equal(result.ledger.messages, 2)
    assert_array_equal(result.ledger.bytes, result.ledger.edge_rows * 16)


def test_isolated_devices_are_counted_with_zero_rows():
    graph = nx.Graph([(0, 1), (2, 3)])
    graph.remove_edge(2, 3)
    result = run(p2pkm.GTVMin(1, alpha=1.0, tol=0.0), deal(1, 1, 1, 1), graph, rounds=1, start=np.ones((4, 1, 2)),
                 allow_disconnected=True)  # fmt: skip
    assert_array_equal(result.ledger.rows_per_device, [4, 4, 0, 0])


def test_own_seeds_cost_nothing():
    result = run(p2pkm.GTVMin(2, init="local"), deal(3, 3, 3, 3))
    assert spent(result, "local") == (0, 0)
    assert spent(result, "gtvmin") == (8, 8 * 2 * 16)


def test_a_leader_costs_k_rows_per_tree_edge():
    result = run(p2pkm.GTVMin(2, init="leader", coupling=10), deal(3, 3, 3, 3))
    assert spent(result, "leader") == (3, 3 * 2 * 16)
    assert_array_equal(result.ledger.edge_rows, 2 * result.ledger.messages)
    over = result.ledger.messages - 1  # without the opening of gtvmin
    assert over.sum() == 3
    assert set(over) == {0, 1}


def test_the_box_costs_two_rows_whenever_it_grows():
    shards = p2pkm.Shards.from_list([np.array(x, float)[:, None] for x in ([0, 10], [4, 6], [4, 5], [5, 6])])
    result = run(p2pkm.GTVMin(2, init="bounding-box", coupling=10), shards)
    # opening: all; round 1: device 1 has [0, 10], 2 and 3 have [4, 6]; round 2: 2 and 3 have [0, 10]; round 3: silence
    assert spent(result, "bounding-box") == (8 + 7 + 4, (8 + 7 + 4) * 2 * 8)
    assert_array_equal(said(result, 0), [[2, -1, -1], [2, 2, -1], [2, 2, 2], [2, 2, 2]])


def test_a_device_without_points_says_one_empty_box():
    result = run(p2pkm.GTVMin(1, init="bounding-box", coupling=10), deal(1, 0, 0, 0))
    assert_array_equal(said(result, 0),
                       [[2, -1, -1], [0, 2, -1], [0, -1, 2], [0, -1, 2]])  # fmt: skip
    assert spent(result, "bounding-box") == (8 + 3 + 4, (1 + 3 + 4) * 2 * 2 * 8)


def flooding(k):
    """Return GTVMin from flooded summaries, with nothing before or after it that sums up over a tree."""
    return p2pkm.GTVMin(k, init="flooded-summaries:candidates=5", coupling=10)


def test_flooding_by_hand():
    result = run(flooding(2), deal(3, 4, 5, 6))
    # opening: all; round 1: all have news; round 2: only 0, 2 and 3, of each other
    messages = 8 + 8 + 5
    assert spent(result, "flooded-summaries") == (messages, 8 * 8 * 3 * 8)
    assert spent(result, "select-candidate") == (messages, 8 * 4 * 5 * 8)
    assert_array_equal(said(result, 0),
                       [[2, 2, 4], [2, 6, -1], [2, 4, 2], [2, 4, 2]])  # fmt: skip


def test_one_hop_is_one_message():
    result = run(p2pkm.GTVMin(2, init="flooded-summaries:hops=1"), deal(3, 4, 5, 6))
    assert spent(result, "flooded-summaries") == (8, 8 * 2 * 3 * 8)


def test_a_device_without_points_forwards_and_says_one_empty_table():
    result = run(flooding(2), deal(3, 0, 3, 3))
    assert spent(result, "flooded-summaries") == (8 + 3 + 5 + 2 * 2, 8 * 6 * 3 * 8)
    assert_array_equal(said(result, 0),
                       [[2, -1, 4], [0, 6, -1], [2, 2, 2], [2, 2, 2]])  # fmt: skip


@pytest.mark.parametrize("seed", thin(range(12), 3))
def test_flooding_sends_every_row_once_over_every_link_and_direction(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(2, 12)), int(rng.integers(1, 4))
    graph = nx.empty_graph(n)
    graph.add_edges_from(link[:2] for link in random_links(rng, n, 0.25))
    sizes = rng.integers(1, 7, n) * (rng.random(n) < 0.7)
    sizes[0] = 4
    result = run(flooding(k), deal(*sizes), graph, allow_disconnected=True)
    pairs = losses = 0
    for part in map(list, nx.connected_components(graph)):
        degrees = sum(degree for _, degree in graph.degree(part))
        pairs += degrees * np.minimum(sizes[part], k).sum()
        losses += degrees * (sizes[part] > 0).sum()
    assert spent(result, "flooded-summaries")[1] == pairs * 3 * 8
    assert spent(result, "select-candidate")[1] == losses * 5 * 8


def test_the_totals_are_the_sums_over_edges_and_records():
    result = run(flooding(2), deal(3, 4, 5, 6), rounds=3)
    assert result.ledger.messages.sum() == result.summary["messages"] == result.rounds[-1]["messages"]
    assert result.ledger.bytes.sum() == result.summary["bytes"] == result.rounds[-1]["bytes"]
    rows = np.bincount(result.ledger.sender, result.ledger.rows)
    assert (rows * DEGREES).sum() == result.ledger.edge_rows.sum()
    assert result.ledger.rows_per_device.sum() == 2 * result.ledger.edge_rows.sum()


def test_what_goes_over_some_edges_is_counted_beyond_32_bits():
    who, rows, edges = np.array([1]), np.array([2**27]), np.array([2])
    said = Delivery(edges, Tables(np.zeros((0, 1)), who, rows))
    ledger, over = Ledger(np.array([0, 1, 4])), np.array([False, False, True, True])
    for turn in range(6):  # 2^30 bytes each
        ledger.count_sparse(SparseMessages(who, said.tables, edges), said, (0, turn))
        ledger.count_dense(DenseMessages(np.zeros((2, 1, 1)), np.array([-1, 2**27])), over, 1, turn)
        assert_array_equal(ledger.edges[2:, 2], np.array([2, 1]) * (turn + 1) * 2**30)
        assert ledger.totals == (3 * (turn + 1), 3 * (turn + 1) * 2**30)
    again = Ledger(np.array([0, 1, 4]))
    again.restore(*ledger.counted, [])
    again.count_sparse(SparseMessages(who, said.tables, edges), said, (0, 6))
    assert again.volume(edges)[0] == 13 * 2**30


def test_encoded_lengths_over_some_edges_are_counted_beyond_32_bits():
    """One of the two lengths is short, as all tables are."""
    edges = np.array([0, 2])
    tables = Tables(np.zeros((0, 1)), np.zeros(2, np.int64), np.ones(2, np.int64))
    sparse = SparseMessages(np.array([0, 1]), tables, edges, wire=np.array([3, 2**30]))
    ledger = Ledger(np.array([0, 1, 4]))
    for turn in range(4):
        ledger.count_sparse(sparse, Delivery(edges, tables), (0, turn))
    assert_array_equal(ledger.edges[:, 3], [12, 0, 2**32, 0])


def test_counts_of_edges_take_the_smallest_type_that_holds_them():
    """Exchanges over different edges do not enlarge the type, although each may be the largest."""
    ledger, n = Ledger(np.arange(9)), 8
    total = np.zeros(n, np.int64)
    for edge, rows, kind in [*((edge, 1023, np.int16) for edge in range(n)), *((0, 1023, np.int16),) * 2,
                             (0, 1023, np.int32), (1, 2**28 - 6000, np.int32), (1, 3000, np.int64)]:  # fmt: skip
        tables = Tables(np.zeros((0, 1)), np.zeros(1, np.int64), np.array([rows]))
        ledger.count_sparse(SparseMessages(np.array([edge]), tables, np.array([edge])),
                            Delivery(np.array([edge]), tables), (0, 0))  # fmt: skip
        total[edge] += 8 * rows
        assert_array_equal(ledger.counted[1][:, 2], total)
        assert ledger.counted[1].dtype == kind
    dense = DenseMessages(np.zeros((n, 2**16, 1)), np.full(n, 2**16))
    ledger.count_dense(dense, None, 1, 0)
    assert_array_equal(ledger.edges[:, 2], total + 2**19)
    assert ledger.totals == (13 + n, total.sum() + n * 2**19)


def test_to_ask_for_the_counts_of_edges_changes_none():
    said = Delivery(np.array([2]), Tables(np.zeros((0, 1)), np.array([1]), np.array([3])))
    ledger = Ledger(np.array([0, 1, 4]))
    for turn in range(1, 4):
        ledger.count_dense(DenseMessages(np.zeros((2, 1, 1)), np.array([-1, 1])), None, 0, turn)
        ledger.count_sparse(SparseMessages(np.array([1]), said.tables, said.edges), said, (0, turn))
        before = ledger.totals, ledger.wire_total
        for _ in range(2):
            assert_array_equal(ledger.edges[:, 0], turn * np.array([0, 1, 2, 1]))
            assert_array_equal(ledger.edges[:, 2], turn * np.array([0, 8, 32, 8]))
        assert (ledger.totals, ledger.wire_total) == before
        assert_array_equal(ledger.volume(np.array([2, 3])), turn * np.array([32, 8]))


def test_exchanges_that_are_alike_are_counted_as_often_as_they_were():
    ledger, n = Ledger(np.arange(10)), 9
    rows, other = np.where(np.arange(n) == 4, 2, -1), np.arange(n)
    for turn in range(5):  # what is said of the lengths of silent devices makes no difference
        wire = np.full(n, 5) + turn % 2 * (other != 4)
        ledger.count_dense(DenseMessages(np.zeros((n, 3, 1)), rows, wire=wire), None, 0, turn)
        ledger.count_dense(DenseMessages(np.zeros((n, 3, 1)), other % 4), None, 1, turn)
    assert [(one.stage, one.turn) for one in ledger.exchanges] == [(i % 2, i // 2) for i in range(10)]
    assert not [one for one in ledger.exchanges[::2] if dict(zip(*one.sent_rows, strict=True)) != {4: 2}]
    assert len(set(ledger.digests)) == 2
    assert_array_equal(ledger.edges[:, 0], 5 + 5 * (other == 4))
    assert_array_equal(ledger.edges[:, 1], 5 * (other % 4) + 10 * (other == 4))
    assert ledger.wire_total == 5 * (5 + 8 * (other % 4).sum())


def test_more_than_256_patterns_are_told_apart():
    ledger = Ledger(np.array([0, 1, 2]))
    for turn in range(600):
        values = np.zeros((2, 300, 1))
        ledger.count_dense(DenseMessages(values, np.array([turn % 300, 1])), None, 0, turn)
    assert [one.rows[0] for one in ledger.exchanges] == [turn % 300 for turn in range(600)]
    assert [one.turn for one in ledger.exchanges] == list(range(600))


def test_above_the_size_what_is_sent_is_added_up_and_no_exchange_is_kept(monkeypatch):
    monkeypatch.setattr("p2pkm.network.ledger.LARGE", 2)
    large, rows = Ledger(np.array([0, 1, 3, 4])), np.array([2, 0, -1])
    for turn in range(3):
        large.count_dense(DenseMessages(np.zeros((3, 2, 3)), rows, wire=np.array([7, 1, 9])), None, 0, turn)
        large.count_dense(DenseMessages(np.zeros((3, 2, 1)), rows), np.array([1, 0, 1, 1], np.bool_), 1, turn)
    assert large.totals == (3 * (3 + 2), 3 * (48 + 16)) and large.wire_total == 3 * (7 + 2 + 16)
    assert_array_equal(large.edges, 3 * np.array([[2, 4, 64, 23], [1, 0, 0, 1], [2, 0, 0, 1], [0, 0, 0, 0]]))
    assert large.exchanges == large.digests == []


@pytest.mark.parametrize("known", [False, True])
def test_above_the_size_turns_of_some_devices_add_up_to_what_each_has_sent(monkeypatch, known):
    monkeypatch.setattr("p2pkm.network.ledger.LARGE", 2)
    rng, n = np.random.default_rng(0), 9
    large, expected = Ledger(np.arange(n + 1)), np.zeros((n, 4), np.int64)
    for turn in range(40):
        rows = np.where(rng.random(n) < rng.choice([0.2, 0.9, 1.0]), rng.integers(0, 3, n), -1)
        wire = rng.integers(0, 2**12, n) if rng.random() < 0.3 else None
        senders = np.flatnonzero(rows >= 0)
        sent = DenseMessages(np.zeros((n, 2, 3)), rows, wire=wire, senders=senders if known else None)
        large.count_dense(sent, None, 0, turn)
        for i in senders:
            expected[i] += 1, rows[i], 24 * rows[i], 24 * rows[i] if wire is None else wire[i]
    assert_array_equal(large.edges, expected)


@pytest.mark.parametrize("beside", [False, True])
def test_exchanges_come_back_from_what_a_checkpoint_keeps(beside):
    """beside: another rank has sent over some of its edges only, and has given lengths, in each exchange."""
    indptr = np.array([0, 1, 4, 6, 8])
    placement, book = SimpleNamespace(rank=1, indptr=indptr), Ledger(indptr)
    over, values = np.arange(8) % 3 == 1, np.zeros((4, 2, 3))
    for turn in range(2):
        book.count_dense(DenseMessages(values, np.array([2, -1, 0, 1])), None, 0, turn)
        book.count_dense(DenseMessages(values, np.array([2, 1, 0, 1])), over, 1, 3 * turn)
        book.count_dense(DenseMessages(values, np.array([1, 1, -1, -1]), wire=np.array([5, 0, 9, 9])), over, 2, turn)
        for wire in (None, np.array([3, 4])) if not beside else ():
            said = Delivery(np.array([0, 5]), Tables(np.zeros((2, 2)), np.array([0, 0]), np.array([1, 2])))
            sparse = SparseMessages(np.array([0, 2]), said.tables, said.edges, wire=wire)
            book.count_sparse(sparse, said, (3, 2 * turn + (wire is None)))
    kept = ledger_state.to_state(book, placement, lambda counts: counts + beside)
    found = ledger_state.from_state(kept, indptr)
    assert len(found) == len(book.exchanges)
    for one, other in zip(book.exchanges, found, strict=True):
        assert (one.stage, one.turn, one.row_bytes) == (other.stage, other.turn, other.row_bytes)
        assert_array_equal(one.sent_rows, other.sent_rows)
        assert_array_equal(one.lengths, other.lengths)
        edges = np.ones(8, np.bool_) if beside and one.edges is None else one.edges
        assert edges is other.edges is None or (edges == other.edges).all()
        assert (other.wire is None) == (one.wire is None and not beside)
    after = Ledger(indptr)
    after.restore(*book.counted, found)
    assert (after.digests == book.digests) is not beside


@pytest.mark.parametrize(("large", "kept"), [(3, 1), (2, 0)])
def test_exchanges_of_sparse_messages_are_kept_up_to_the_size_limit(monkeypatch, large, kept):
    monkeypatch.setattr(ledger, "LARGE", large)
    book = ledger.Ledger(np.arange(4))
    tables = Tables(np.zeros((1, 2, 2)), np.array([0]), np.array([2]))
    book.count_sparse(
        SparseMessages(np.array([1]), tables, np.array([0]), header=0), Delivery(np.array([1]), tables), (0, 0)
    )
    assert len(book.exchanges) == kept and book.totals[0] == 1
