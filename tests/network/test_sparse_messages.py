"""What few devices say to few, by hand; and that it costs by what is said."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from p2pkm.core.messages import DenseMessages, SparseMessages, Tables, expand_ranges
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from p2pkm.network.sparse_routing import SparseRouter


def build(n, links):
    return Topology.from_links(n, np.column_stack((np.array(links, float), np.ones(len(links)))))


# A path 0 - 1 - 2 - 3: own directed edges in order (0,1), (1,0), (1,2), (2,1), (2,3), (3,2).
PATH = build(4, [(0, 1), (1, 2), (2, 3)])
ROWS = np.arange(8.0).reshape(4, 2)


def open_path():
    network = LocalNetwork(place(PATH, 0, 1))
    network.open()
    return network


def say(who, starts, rows, edges, header=0):
    given = (np.array(part, np.int64) for part in (who, starts, rows, edges))
    who, starts, rows, edges = given
    return SparseMessages(who, Tables(ROWS, starts, rows), edges, header)


def heard(delivery):
    """Return what came over each edge: the first column of the rows."""
    return {int(e): delivery.tables.take(np.array([i])).flat()[:, 0].tolist() for i, e in enumerate(delivery.edges)}


def test_spans_run_one_after_another():
    assert_array_equal(expand_ranges(np.array([5, 0, 7]), np.array([2, 0, 3])), [5, 6, 7, 8, 9])
    assert len(expand_ranges(np.array([], np.int64), np.array([], np.int64))) == 0


def test_letters_go_over_the_named_edges_alone_and_may_share_rows():
    delivery = open_path().deliver(say([0, 2], [1, 0], [2, 3], [0, 4]))
    assert heard(delivery) == {1: [2.0, 4.0], 5: [0.0, 2.0, 4.0]}  # 1 hears 0, 3 hears 2, 1 does not hear 2
    assert np.shares_memory(delivery.tables.values, ROWS)
    assert not delivery.tables.values.flags.writeable


def test_what_is_heard_lies_by_device_and_then_by_neighbor():
    delivery = open_path().deliver(say([0, 2], [3, 1], [1, 1], [0, 3]))
    assert_array_equal(delivery.edges, [1, 2])
    assert heard(delivery) == {1: [6.0], 2: [2.0]}


def test_nobody_may_speak_and_a_table_may_be_empty():
    network = open_path()
    assert heard(network.deliver(say([], [], [], []))) == {}
    assert heard(network.deliver(say([1], [0], [0], [1, 2]))) == {0: [], 3: []}
    assert network.ledger.totals == (2, 0)


def test_letters_leave_alone_what_mail_said():
    network = open_path()
    network.exchange(DenseMessages(np.arange(4.0).reshape(4, 1, 1), np.ones(4, np.int64)))
    network.deliver(say([1], [3], [1], [1, 2]))
    inbox = network.exchange(DenseMessages(np.zeros((4, 1, 1)), np.array([-1, -1, -1, 1])))
    assert inbox.tables[inbox.slots, 0, 0].tolist() == [1.0, 0.0, 2.0, 1.0, 0.0, 2.0]
    assert inbox.fresh.tolist() == [False] * 4 + [True, False]
    assert [one.turn for one in network.ledger.exchanges] == [0, 1, 2]


def test_letters_go_over_edges_in_use_alone():
    network = open_path()
    network.set_active_edges(np.array([True, True, False, False, True, True]))
    assert heard(network.deliver(say([1], [3], [1], [1, 2]))) == {0: [6.0]}
    assert network.ledger.totals == (1, 16)


def test_the_ledger_counts_a_message_per_edge_without_the_header():
    network = open_path()
    network.deliver(say([1, 3], [0, 2], [3, 1], [1, 2], header=1))
    assert_array_equal(network.ledger.edges, np.outer([0, 1, 1, 0, 0, 0], [1, 3, 24, 24]))
    (one,) = network.ledger.exchanges
    who, rows = one.sent_rows
    assert_array_equal(who, [1, 3])  # 3 says it to nobody
    assert_array_equal(rows, [3, 1])


def test_the_ledger_counts_encoded_lengths_per_sender():
    network = open_path()
    network.deliver(say([1, 3], [0, 2], [3, 1], [1, 2])._replace(wire=np.array([5, 9])))
    assert_array_equal(network.ledger.edges[:, 3], [0, 5, 5, 0, 0, 0])  # 3 sends to nobody
    network.deliver(say([1], [0], [1], [2]))
    assert_array_equal(network.ledger.edges[:, 3], [0, 5, 5 + 16, 0, 0, 0])


def test_a_table_for_several_edges_travels_once_to_another_rank():
    star = build(4, [(0, 2), (0, 3), (1, 2)])
    parts = [place(star, rank, 2) for rank in range(2)]
    posts = [SparseRouter(part) for part in parts]
    said = posts[0].route(say([0, 1], [0, 2], [2, 2], [0, 1, 2]), None)
    (parcel,) = posts[0].pack(said)
    assert parcel[:4].tolist() == [len(parcel), 2, 3, 2]
    assert parcel[-8:].tolist() == ROWS.ravel().tolist()
    nothing = posts[1].route(SparseMessages(np.array([], np.int64), Tables(ROWS[:0], *[np.array([], np.int64)] * 2),
                                    np.array([], np.int64)), None)  # fmt: skip
    delivery = posts[1].assemble(nothing, [parcel])
    assert heard(delivery) == {0: [0.0, 2.0], 1: [4.0, 6.0], 2: [0.0, 2.0]}  # 2 hears 0 and 1, 3 hears 0


def test_tables_that_begin_or_end_alike_stay_apart_and_each_rank_gets_its_own():
    """On three ranks: 0 and 1 on rank 0, 2 and 3 on the others."""
    graph = build(4, [(0, 2), (0, 3), (1, 2), (1, 3)])
    posts = [SparseRouter(place(graph, rank, 3)) for rank in range(3)]
    said = posts[0].route(
        say([0, 1], [0, 1], [3, 0], [0, 1, 2, 3]), None
    )  # three rows from row 0 on; none from row 1 on
    nobody = np.zeros(0, np.int64)
    for post, parcel in zip(posts[1:], posts[0].pack(said), strict=True):
        assert parcel[:4].tolist() == [len(parcel), 2, 2, 2]
        nothing = post.route(SparseMessages(nobody, Tables(ROWS[:0], nobody, nobody), nobody), None)
        (silent,) = post.pack(nothing)
        assert silent.tolist() == [4, 0, 0, 2]
        others = [parcel if peer.rank == 0 else silent for peer in post._peers]
        assert heard(post.assemble(nothing, others)) == {0: [0.0, 2.0, 4.0], 1: []}


def test_three_ranks_hear_what_one_process_hears():
    graph = build(6, [(i, j) for j in range(6) for i in range(j)])
    parts = [place(graph, rank, 3) for rank in range(3)]
    posts, said, parcels = [SparseRouter(part) for part in parts], [], []
    for part, post in zip(parts, posts, strict=True):
        tables = Tables(np.repeat(part.ids, 2)[:, None].astype(float), np.array([0, 2]), 1 + part.ids % 2)
        said.append(post.route(SparseMessages(np.arange(2), tables, np.arange(10)), None))
        parcels.append({peer.rank: parcel for peer, parcel in zip(part.peers, post.pack(said[-1]), strict=True)})
    for part, post, own in zip(parts, posts, said, strict=True):
        delivery = post.assemble(own, [parcels[peer.rank][part.rank] for peer in part.peers])
        assert heard(delivery) == {e: [j] * (1 + j % 2) for e, j in enumerate(part.indices.tolist())}


@pytest.mark.parametrize("count", [2, 6])
def test_tables_are_copied_without_the_rows_of_others(count):
    """A few tables and many; not if most rows are their own."""
    rows = np.arange(2 * count) % 3
    tables = Tables(np.arange(2.0 * rows.sum()).reshape(-1, 2), np.cumsum(rows) - rows, rows)
    some = tables.take(np.arange(count)[::-1])
    compact = some.compact()
    assert_array_equal(compact.flat(), some.flat())
    assert_array_equal(compact.values, some.flat())
    assert_array_equal(compact.rows, some.rows)
    most = tables.take(np.arange(count - 1, 2 * count))
    assert tables.compact() is tables and most.compact() is most
