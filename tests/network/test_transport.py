"""Who hosts whom and who sends what to whom, without MPI; and what the network in one process delivers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from p2pkm.core.messages import DenseMessages, no_messages, pack
from p2pkm.network import mailbox
from p2pkm.network.delay_model import ReceivedTables
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from p2pkm.network.mailbox import Mailbox
from p2pkm.network.mpi import _pack, _unpack
from p2pkm.network.rank_partition import RankPartition, divide


def build(n, links):
    links = np.array(links, float).reshape(-1, 2)
    return Topology.from_links(n, np.column_stack((links, np.ones(len(links)))))


def draw(n, share, seed):
    return build(n, np.argwhere(np.triu(np.random.default_rng(seed).random((n, n)) < share, 1)))


def deal(topology, size, seed):
    """Return the placements of all ranks: contiguous blocks, or each device anywhere."""
    division = None
    if seed is not None:
        division = RankPartition.by_owner("anywhere", np.random.default_rng(seed).integers(0, size, topology.n), size)
    return [place(topology, rank, size, division) for rank in range(size)]


graphs = st.builds(draw, st.integers(1, 15), st.floats(0, 1), st.integers(0, 2**32 - 1))
seeds = st.none() | st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("n", "size", "bounds"),
    [(7, 3, [0, 3, 5, 7]), (6, 3, [0, 2, 4, 6]), (2, 4, [0, 1, 2, 2, 2]), (5, 1, [0, 5])],
)
def test_devices_lie_in_contiguous_blocks_the_longer_ones_first(n, size, bounds):
    assert_array_equal(divide(n, size), bounds)


def test_arrays_are_packed_and_unpacked():
    arrays = {
        "ones": np.broadcast_to(1.0, 1000), "table": np.broadcast_to(np.int32(7), (20, 3)), "name": np.array("metis"),
        "none": np.zeros((0, 3)), "columns": np.arange(6).reshape(2, 3).T, "flag": np.array(True), "one": np.ones(1),
        "odd": np.frombuffer(b"abc", np.uint8), "every": np.arange(10)[::2],
    }  # fmt: skip
    blob = _pack(arrays)
    assert len(blob) < 1000  # a repeated number is sent once
    unpacked = _unpack(blob)
    assert list(unpacked) == list(arrays) and unpacked["ones"].strides == (0,)
    for name, array in arrays.items():
        assert unpacked[name].dtype == array.dtype and unpacked[name].shape == array.shape
        assert_array_equal(unpacked[name], array)
    assert _unpack(_pack({})) == {}


@given(graphs, st.integers(1, 7), seeds)
def test_every_device_and_every_edge_has_one_rank(topology, size, seed):
    parts, numbers = deal(topology, size, seed), np.arange(len(topology.indices))
    assert_array_equal(np.sort(np.concatenate([part.ids for part in parts])), np.arange(topology.n))
    assert_array_equal(np.sort(np.concatenate([numbers[part.edges] for part in parts])), numbers)
    for rank, part in enumerate(parts):
        assert part.rank == rank
        assert_array_equal(part.ids, np.flatnonzero(part.division.owner == rank))
        assert_array_equal(numbers[part.edges], np.flatnonzero(np.isin(topology.sources, part.ids)))
        assert_array_equal(part.indices, topology.indices[part.edges])
        assert_array_equal(part.edge_counts, topology.degrees)
        assert_array_equal(np.diff(part.indptr), topology.degrees[part.ids])
        known = np.concatenate((part.ids, part.ghosts))
        assert part.slots == len(known)
        assert_array_equal(known[part.senders], part.indices)
        ghosts = np.setdiff1d(part.indices, part.ids)
        assert_array_equal(part.ghosts, ghosts[np.lexsort((ghosts, part.division.owner[ghosts]))])


@given(graphs, st.integers(1, 7), seeds)
def test_what_a_rank_sends_is_what_its_peer_expects(topology, size, seed):
    parts = deal(topology, size, seed)
    for a in parts:
        assert a.rank not in [peer.rank for peer in a.peers]
        covered = np.concatenate([np.arange(peer.first, peer.last) for peer in a.peers] or [[]])
        assert_array_equal(covered, np.arange(len(a.ids), a.slots))
        for peer in a.peers:
            b = parts[peer.rank]
            (back,) = [other for other in b.peers if other.rank == a.rank]
            wanted = np.concatenate((b.ids, b.ghosts))[back.first : back.last]
            assert_array_equal(a.ids[peer.send], wanted)
            sent = np.stack((topology.sources[a.edges], a.indices))[:, peer.send_edges]
            heard = np.stack((b.indices, topology.sources[b.edges]))[:, back.recv_edges]
            assert_array_equal(sent, heard)  # the same edges in the same order


@given(graphs, st.integers(1, 7), seeds)
def test_the_mirror_of_an_edge_is_the_way_back(topology, size, seed):
    for part in deal(topology, size, seed):
        own = topology.sources[part.edges]
        inside = np.isin(part.indices, part.ids)
        assert_array_equal(part.mirror >= 0, inside)
        assert_array_equal(own[part.mirror[inside]], part.indices[inside])
        assert_array_equal(part.indices[part.mirror[inside]], own[inside])


# A path 0 - 1 - 2: own directed edges in order (0,1), (1,0), (1,2), (2,1).
PATH = build(3, [(0, 1), (1, 2)])


def open_path():
    network = LocalNetwork(place(PATH, 0, 1))
    network.open()
    return network


def tables(*values, width=1):
    """Return tables of two rows that hold a number."""
    return np.repeat(np.repeat(np.array(values, float)[:, None, None], 2, axis=1), width, axis=2)


def heard(inbox):
    """Return what came last over each edge: None, or the first column of the rows."""
    return [None if slot < 0 else inbox.tables[slot, : inbox.rows[slot], 0].tolist() for slot in inbox.slots]


def test_what_is_said_is_heard_by_neighbors_alone():
    inbox = open_path().exchange(DenseMessages(tables(0, 1, 2), np.array([2, 1, 2])))
    assert heard(inbox) == [[1.0], [0.0, 0.0], [2.0, 2.0], [1.0]]
    assert inbox.fresh.all()


def test_silent_devices_are_remembered_and_an_empty_table_replaces():
    network = open_path()
    inbox = network.exchange(DenseMessages(tables(0, 1, 2), np.array([2, -1, 2])))
    assert heard(inbox) == [None, [0.0, 0.0], [2.0, 2.0], None]
    assert_array_equal(inbox.slots, [-1, 0, 2, -1])
    assert_array_equal(inbox.fresh, [False, True, True, False])
    inbox = network.exchange(DenseMessages(tables(10, 11, 12), np.array([-1, 1, 0])))
    assert heard(inbox) == [[11.0], [0.0, 0.0], [], [11.0]]
    assert_array_equal(inbox.fresh, [True, False, True, True])
    inbox = network.exchange(no_messages(3, 2, 1))
    assert heard(inbox) == [[11.0], [0.0, 0.0], [], [11.0]]
    assert not inbox.fresh.any()


def test_a_stage_begins_without_memory():
    network = open_path()
    network.exchange(DenseMessages(tables(0, 1, 2), np.full(3, 2)))
    network.open()
    inbox = network.exchange(DenseMessages(tables(3, 4, 5), np.array([2, -1, -1])))
    assert heard(inbox) == [None, [3.0, 3.0], None, None]
    assert [(one.stage, one.turn) for one in network.ledger.exchanges] == [(0, 0), (1, 0)]


def test_selective_mail_goes_over_the_chosen_edges_alone():
    network = open_path()
    over = np.array([True, False, True, True])  # 1 speaks to 2, not to 0
    inbox = network.exchange(DenseMessages(tables(0, 1, 2), np.array([2, 2, -1]), edges=over))
    assert heard(inbox) == [None, [0.0, 0.0], None, [1.0, 1.0]]
    assert_array_equal(inbox.fresh, [False, True, False, True])
    assert_array_equal(network.ledger.edges[:, 0], [1, 0, 1, 0])


def test_mail_goes_over_edges_in_use_alone():
    network = open_path()
    network.exchange(DenseMessages(tables(0, 1, 2), np.full(3, 2)))
    network.set_active_edges(np.array([True, True, False, False]))  # the link between 1 and 2 goes out of use
    inbox = network.exchange(DenseMessages(tables(3, 4, 5), np.full(3, 2)))
    assert heard(inbox) == [[4.0, 4.0], [3.0, 3.0], None, None]
    assert_array_equal(inbox.fresh, [True, True, False, False])
    assert_array_equal(network.ledger.edges[:, 0], [2, 2, 1, 1])
    inbox = network.exchange(DenseMessages(tables(6, 7, 8), np.full(3, 2), edges=np.array([True, False, True, True])))
    assert_array_equal(inbox.fresh, [False, True, False, False])
    assert_array_equal(network.ledger.edges[:, 0], [3, 2, 1, 1])
    network.open()
    inbox = network.exchange(DenseMessages(tables(0, 1, 2), np.full(3, 2)))
    assert_array_equal(inbox.fresh, [True, True, False, False])  # in later stages, too
    network.set_active_edges(np.ones(4, bool))
    inbox = network.exchange(DenseMessages(tables(3, -1, 5), np.array([2, -1, 2])))
    assert heard(inbox) == [[1.0, 1.0], [3.0, 3.0], [5.0, 5.0], None]  # what was said meanwhile is not caught up with
    assert network.ledger.totals[0] == 3 + 2 + 1 + 1 + 2 + 2


def test_with_all_edges_in_use_nothing_is_masked():
    network = open_path()
    network.set_active_edges(np.ones(4, bool))
    inbox = network.exchange(DenseMessages(tables(0, 1, 2), np.full(3, 2)))
    assert inbox.open_edges is None and inbox.sent is None
    assert network.ledger.exchanges[0].edges is None


def test_tables_are_read_only_and_mail_is_never_written_to():
    network = open_path()
    given = tables(0, 1, 2)
    messages = DenseMessages(given, np.full(3, 2))
    inbox = network.exchange(messages)
    with pytest.raises(ValueError, match="read-only"):
        inbox.tables[0, 0, 0] = 5.0
    network.exchange(DenseMessages(tables(9, 9, 9), np.array([2, -1, -1])))
    network.exchange(DenseMessages(tables(8, 8, 8, width=3), np.array([-1, 2, -1])))
    assert_array_equal(given, tables(0, 1, 2))
    assert_array_equal(messages.rows, 2)


def test_widths_and_heights_may_differ_by_turn():
    network = open_path()
    network.exchange(DenseMessages(tables(0, 1, 2, width=3), np.full(3, 2)))
    inbox = network.exchange(DenseMessages(np.full((3, 5, 1), 7.0), np.array([5, -1, -1])))
    assert inbox.tables.shape == (3, 5, 3)
    assert heard(inbox) == [[1.0, 1.0], [7.0] * 5, [2.0, 2.0], [1.0, 1.0]]
    assert_array_equal(inbox.tables[1, :2], np.ones((2, 3)))
    assert_array_equal(network.ledger.edges[:, 2], [2 * 3 * 8 + 5 * 8, 48, 48, 48])
    inbox = network.exchange(DenseMessages(np.full((3, 1, 2), 6.0), np.ones(3, np.int64)))
    assert heard(inbox) == [[6.0]] * 4
    assert inbox.tables.shape == (3, 5, 3)
    assert network.exchange(DenseMessages(np.full((3, 1, 3), 5.0), np.ones(3, np.int64))).tables.shape == (3, 5, 3)


def test_the_header_travels_uncounted():
    network = open_path()
    inbox = network.exchange(DenseMessages(tables(0, 1, 2, width=4), np.array([2, 0, -1]), header=1))
    assert_array_equal(inbox.tables[inbox.slots[1], :2], np.zeros((2, 4)))
    assert_array_equal(network.ledger.edges, [[1, 2, 48, 48], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    assert network.ledger.totals == (3, 48)


def test_encoded_lengths_are_counted_beside_eight_bytes_per_value():
    network = open_path()
    rows, wire = np.array([2, 0, -1]), np.array([7, 1, 99])
    network.exchange(DenseMessages(tables(0, 1, 2), rows, wire=wire))
    network.exchange(DenseMessages(tables(0, 1, 2), rows, np.array([True, False, True, True]), wire=wire))
    network.exchange(DenseMessages(tables(0, 1, 2), np.array([-1, 1, 1])))  # without lengths: 8 bytes per value
    assert_array_equal(network.ledger.edges[:, 3], [7 + 7, 1 + 8, 1 + 1 + 8, 8])
    assert_array_equal(network.ledger.edges[:, 2], [32, 8, 8, 8])
    assert network.ledger.wire_total == 14 + 9 + 10 + 8
    lengths = [one.lengths.tolist() for one in network.ledger.exchanges]
    assert lengths == [[7, 1], [7, 1], [8, 8]]


def test_pack_moves_real_rows_to_the_front_in_their_order():
    table = np.array([[[np.inf], [3.0], [np.inf], [1.0]], [[1.0], [2.0], [3.0], [4.0]], [[np.inf]] * 4])
    values, rows = pack(table)
    assert_array_equal(rows, [2, 4, 0])
    assert_array_equal(values[0, :2, 0], [3.0, 1.0])
    assert_array_equal(values[1], table[1])
    assert_array_equal(pack(table[1:2])[0], table[1:2])
    assert_array_equal(table[0, :, 0], [np.inf, 3.0, np.inf, 1.0])
    many = np.where(np.arange(90) % 3 == 1, np.inf, np.arange(90.0)).reshape(1, 90, 1)
    assert_array_equal(pack(many)[0][0, :60, 0], np.arange(90)[np.arange(90) % 3 != 1])


@pytest.mark.parametrize("find_senders", [lambda rows: None, lambda rows: np.flatnonzero(rows >= 0)])
def test_standing_tables_are_read_where_they_are_until_they_no_longer_stand(find_senders):
    network, (n, k) = LocalNetwork(place(build(4, [(0, 1), (1, 2), (2, 3), (0, 3)]), 0, 1)), (4, 2)
    network.open()
    some, rest = np.array([k, -1, k, -1]), np.array([-1, k, -1, k])
    first = np.arange(16.0).reshape(n, k, 2)
    network.exchange(DenseMessages(first, np.full(n, k)))
    state = first.copy()
    for rows in (some, rest):
        state[rows > 0] += 100.0
        inbox = network.exchange(DenseMessages(state, rows, is_stable=True, senders=find_senders(rows)))
        assert np.shares_memory(inbox.tables, state)
        assert_array_equal(inbox.tables, state)
        assert_array_equal(inbox.rows, np.full(n, k))
        assert_array_equal(inbox.fresh, (rows > 0)[inbox.senders])
    other = state.copy()
    other[some > 0] += 7.0
    inbox = network.exchange(DenseMessages(other, some))  # the tables of the silent ones are of no meaning
    other[:], expected = np.nan, state.copy()
    expected[some > 0] += 7.0
    assert_array_equal(inbox.tables, expected)


@pytest.mark.parametrize("before", [np.array([2, 1, 2, 2]), np.array([2, -1, 2, 2])])
def test_tables_do_not_stand_unless_every_device_has_sent_a_full_one(before):
    network = LocalNetwork(place(build(4, [(0, 1), (1, 2), (2, 3)]), 0, 1))
    network.open()
    network.exchange(DenseMessages(np.arange(16.0).reshape(4, 2, 2), before))
    state = np.full((4, 2, 2), 50.0)
    inbox = network.exchange(DenseMessages(state, np.array([2, -1, -1, 2]), is_stable=True))
    assert not np.shares_memory(inbox.tables, state)
    assert_array_equal(inbox.tables[2], [[8, 9], [10, 11]])


@given(graphs, st.integers(2, 4), st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("few", [0, 1024])
def test_ranks_hear_who_sent_how_many_rows_whatever_was_said_before(few, topology, size, seed):
    rng, parts = np.random.default_rng(seed), deal(topology, size, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mailbox, "_MAX_COMPARED_SLOTS", few)
        boxes = [Mailbox(part, header_rows=1) for part in parts]
    patterns = [rng.integers(low, 4, topology.n) for low in (-1, -1, 0, 1)]
    last, received = np.full(topology.n, -1), [np.zeros(len(part.indices), np.bool_) for part in parts]
    values = np.zeros((topology.n, 3, 2))
    for _ in range(12):
        rows, cut, r = patterns[rng.integers(4)], rng.random() < 0.2, rng.integers(3, 6)
        sent = rows >= 0
        last, fresh = np.where(sent, rows, last), rng.random((topology.n, 3, 2))
        values[sent, :] = fresh[sent]
        for part, box in zip(parts, boxes, strict=True):
            known = np.flatnonzero(sent[part.ids]) if rng.random() < 0.5 else None
            box.write(DenseMessages(fresh[part.ids], rows[part.ids], senders=known), r)
        for part, box in zip(parts, boxes, strict=True):
            for peer in part.peers:
                there = next(one for one in parts[peer.rank].peers if one.rank == part.rank)
                box.tables[peer.first : peer.last] = boxes[peer.rank].tables[there.send]
        for part, box, came in zip(parts, boxes, received, strict=True):
            box.receive()
            inbox, who = box.inbox(None), np.concatenate((part.ids, part.ghosts))
            came |= sent[part.indices]
            assert_array_equal(inbox.rows, last[who])
            assert_array_equal(inbox.fresh, sent[part.indices])
            assert_array_equal(inbox.slots, np.where(came, part.senders, -1))
            for table, count, wanted in zip(inbox.tables, inbox.rows, values[who], strict=True):
                assert_array_equal(table[: max(count, 0)], wanted[: max(count, 0)])
            if cut:
                box.discard(lost := rng.random(len(came)) < 0.3)
                came &= ~lost


def test_over_which_edges_is_told_anew_though_the_same_devices_send():
    network, some = open_path(), np.array([True, False, True, True])
    network.exchange(DenseMessages(tables(0, 1, 2), np.full(3, 2)))
    for edges in (None, None, None, some, some, None):
        inbox = network.exchange(DenseMessages(tables(0, 1, 2), np.array([2, -1, 2]), edges))
        over = None if edges is None else edges[[1, 0, 3, 2]].tolist()
        assert (inbox.open_edges if over is None else inbox.open_edges.tolist()) == over
        after = open_path()
        back = after.restore(network.snapshot())
        assert (back.open_edges if over is None else back.open_edges.tolist()) == over


def test_what_was_forgotten_is_gone_though_the_same_devices_send():
    network, rows = open_path(), np.array([2, -1, 2])
    network.exchange(DenseMessages(tables(0, 1, 2), np.full(3, 2)))
    for _ in range(3):
        network.exchange(DenseMessages(tables(3, 4, 5), rows))
    network.set_active_edges(np.array([False, False, True, True]))
    network.set_active_edges(np.ones(4, np.bool_))
    inbox = network.exchange(DenseMessages(tables(3, 4, 5), rows))
    assert heard(inbox) == [None, [3.0, 3.0], [5.0, 5.0], [1.0, 1.0]]


def test_arrays_that_were_given_are_not_written_to():
    network, given = open_path(), [tables(*numbers) for numbers in ((0, 1, 2), (3, 4, 5), (6, 7, 8))]
    for number, rows in enumerate(([2, 2, 2], [2, 2, 2], [2, -1, 2])):
        inbox = network.exchange(DenseMessages(given[number], np.array(rows)))
        assert np.shares_memory(inbox.tables, given[number]) == (-1 not in rows)  # nor copied, if all send
        assert [one.ravel().tolist() for one in given] == [np.repeat([i, i + 1, i + 2], 2).tolist() for i in (0, 3, 6)]


def test_few_patterns_of_who_sends_are_remembered():
    network = LocalNetwork(place(build(5, [(i, i + 1) for i in range(4)]), 0, 1))
    network.open()
    for number in range(31, 0, -1):
        sends = number >> np.arange(5) & 1
        network.exchange(DenseMessages(tables(*range(5)), np.where(sends, 2, -1)))
        assert len(network.memory._sent_slots) == (31 - number) % mailbox._MAX_PATTERNS + 1


class Late:
    """Every table is one exchange late; what was asked is kept."""

    bound = 1

    def __init__(self):
        self.asked = []

    def receive(self, said):
        self.asked.append((said.rows.tolist(), said.row_bytes))
        come = np.full(4, len(self.asked) > 1)
        return ReceivedTables(np.where(come, 1, -1), come)


def test_a_model_of_delays_learns_rows_and_bytes_and_tables_without_rows_count():
    network, late = open_path(), Late()
    network.open(late)
    messages = [DenseMessages(tables(0, 1, 2, width=3), np.array(rows), header=1) for rows in ([0, 2, 1], [2, 0, 2])]
    assert heard(network.exchange(messages[0])) == [None] * 4
    assert heard(network.exchange(messages[1])) == [[1.0, 1.0], [], [2.0], [1.0, 1.0]]
    assert late.asked == [([0, 2, 1], 16), ([2, 0, 2], 16)]


def check_resumed(network, inbox, delays=None):
    """Return a network that goes on from a snapshot; its inbox and its own snapshot must be the same."""
    after, kept = LocalNetwork(network.placement), network.snapshot()
    after.open(delays)
    back = after.restore(kept)
    for name in ("slots", "fresh", "tables"):
        assert_array_equal(getattr(back, name), getattr(inbox, name))
    assert_array_equal(back.rows[back.slots[back.slots >= 0]], inbox.rows[inbox.slots[inbox.slots >= 0]])
    again = after.snapshot()["memory"]
    for name, part in kept["memory"].items():
        assert_array_equal(again[name], part)
    return after


def test_what_was_received_is_kept_whoever_was_silent():
    network, some = open_path(), np.array([True, False, True, True])
    rows = [[-1, -1, -1], [2, -1, 0], [-1, -1, -1], [-1, 1, 2], [0, 2, 0], [2, -1, 0], [2, 2, 2]]
    for number, one in enumerate(rows):
        edges = some if number == 5 else None
        inbox = network.exchange(DenseMessages(tables(*range(number, number + 3)), np.array(one), edges))
        network = check_resumed(network, inbox)


def test_what_is_late_or_was_forgotten_is_kept():
    network, late = open_path(), Late()
    network.open(late)
    inbox = network.exchange(DenseMessages(tables(0, 1, 2), np.array([2, 1, 2])))
    assert inbox.slots.tolist() == [-1] * 4
    network.set_active_edges(np.array([False, False, True, True]))
    network.set_active_edges(np.ones(4, np.bool_))
    network = check_resumed(network, inbox, late)
    inbox = network.exchange(DenseMessages(tables(3, 4, 5), np.array([2, 2, 2])))
    assert heard(inbox) == [None, None, [2.0, 2.0], [1.0]]
    network = check_resumed(network, inbox, late)
    network.exchange(DenseMessages(tables(6, 7, 8), np.array([2, 2, 2])))
    inbox = network.exchange(DenseMessages(tables(9, 9, 9), np.array([2, -1, 2])))
    assert inbox.fresh.all()  # also over edges from the one that is silent now
    check_resumed(network, inbox, late)
