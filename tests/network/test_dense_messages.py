"""What devices send to all of their neighbors, by hand: over links that fail, late, and with no rows."""

import numpy as np
from numpy.testing import assert_array_equal

from p2pkm.core.messages import DenseMessages
from p2pkm.network.delay_model import ReceivedTables
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork

# A path 0 - 1 - 2: own directed edges in order (0, 1), (1, 0), (1, 2), (2, 1).
PATH = Topology.from_links(3, np.array([(0, 1, 1.0), (1, 2, 1.0)]))
ALL, SECOND = np.ones(4, np.bool_), np.array([False, False, True, True])


class OneLate:
    """Every table is received one exchange after it was sent."""

    bound = 1
    exchanges = 0

    def receive(self, said):
        """Return age 1 as soon as there is such a table."""
        self.exchanges += 1
        return ReceivedTables(np.full(4, 1 if self.exchanges > 1 else -1), ALL)


def send(network, number):
    """Let every device send ten times its id, plus a number."""
    return network.exchange(DenseMessages(10.0 * np.arange(3).reshape(3, 1, 1) + number, np.ones(3, np.int64)))


def test_what_was_on_its_way_over_a_link_that_failed_is_never_received():
    network = LocalNetwork(place(PATH, 0, 1))
    network.open(OneLate())
    assert not send(network, 1).fresh.any()
    network.set_active_edges(SECOND)
    network.set_active_edges(ALL)
    inbox = send(network, 2)
    assert_array_equal(inbox.slots >= 0, SECOND)
    assert_array_equal(inbox.fresh, SECOND)
    assert_array_equal(inbox.tables[inbox.slots[2:], 0, 0], [21.0, 11.0])
    inbox = send(network, 3)
    assert_array_equal(inbox.tables[inbox.slots, 0, 0], [12.0, 2.0, 22.0, 12.0])


def test_a_table_without_rows_is_a_message_also_where_some_links_are_down():
    network = LocalNetwork(place(PATH, 0, 1))
    network.open()
    network.set_active_edges(SECOND)
    network.exchange(DenseMessages(np.zeros((3, 1, 2)), np.array([1, 0, -1])))
    assert_array_equal(network.ledger.edges, [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    assert network.ledger.totals == (1, 0)


def test_tables_are_read_by_the_edge_over_which_they_came():
    network = LocalNetwork(place(PATH, 0, 1))
    network.open()
    values = np.arange(12.0).reshape(3, 2, 2)
    network.exchange(DenseMessages(values, np.array([2, 0, 1])))
    inbox = network.exchange(DenseMessages(values + 100.0, np.array([1, -1, -1])))
    assert inbox.received.all()
    assert_array_equal(inbox.rows_of(slice(None)), [0, 1, 1, 0])
    assert_array_equal(inbox.rows_of(np.array([2, 1])), [1, 1])
    assert_array_equal(inbox.tables_of(np.array([2, 1]), 1, 2), [[[8.0, 9.0]], [[100.0, 101.0]]])
    assert_array_equal(inbox.tables_of(2, inbox.rows_of(2), 1), [[8.0]])
    assert_array_equal(inbox.tables_of(~inbox.fresh, 1, 1)[1:], [[[8.0]], [[4.0]]])


def test_where_nothing_was_received_there_are_no_rows():
    network = LocalNetwork(place(PATH, 0, 1))
    network.open()
    inbox = network.exchange(DenseMessages(np.ones((3, 1, 1)), np.array([1, -1, -1])))
    assert_array_equal(inbox.received, [False, True, False, False])
    assert_array_equal(inbox.rows_of(slice(None)), [-1, 1, -1, -1])


def test_replaced_tables_come_over_their_edges():
    network = LocalNetwork(place(PATH, 0, 1))
    network.open()
    inbox = send(network, 1).with_tables(np.array([3, 1]), np.array([[[7.0]], [[8.0]]]), np.array([1, 1]))
    assert_array_equal(inbox.rows_of(slice(None)), [-1, 1, -1, 1])
    assert_array_equal(inbox.tables_of(np.array([1, 3]), 1, 1).ravel(), [8.0, 7.0])
