"""What is known of messages before a run: where it is certain, and sums of volumes."""

from dataclasses import dataclass

import pytest

import p2pkm
from p2pkm.core.expected_messages import EveryTurn, Known, MessageVolume, Reports
from p2pkm.core.protocols import ServerMethodBase, declares
from p2pkm.methods.building_blocks.table_method import TableMethod
from p2pkm.methods.server.star import Star
from tests.support.each import each

KNOWN = Known(clients=5, points=20, distinct=20, features=2, least=4, connected=True)


@pytest.mark.parametrize(
    ("change", "fills", "pools"),
    [
        ({}, True, True),
        ({"distinct": 19}, False, True),  # points of one device may be equal
        ({"least": 2}, False, True),
        ({"connected": False}, True, False),  # a part of the graph may know too little
        ({"distinct": 2}, False, False),
    ],
)
def test_three_clusters_are_found_for_sure(change, fills, pools):
    known = KNOWN._replace(**change)
    assert (known.fills(3), known.pools(3)) == (fills, pools)


def test_a_volume_is_added_to_volumes_alone():
    plain, encoded = MessageVolume(1, 16, exact_bytes=False), MessageVolume(2, 32, wire=10)
    both = plain + encoded
    assert both == encoded + plain == MessageVolume(3, 48, True, False, 26)
    with pytest.raises(TypeError):
        both + 1


@dataclass(frozen=True)
class Served(ServerMethodBase):
    """A method that leaves its messages to the base."""

    k: int = 3


def test_methods_that_say_nothing_of_their_messages_send_their_centroids():
    assert p2pkm.GTVMin(3).expected_messages(KNOWN) == EveryTurn(rows=3, columns=2)
    assert Served().expected_messages(KNOWN) == Reports(rows=5 * 3, columns=2 + 1)  # a count beside each


class Averages(TableMethod):
    """A method of one function: its base sends."""

    name = "averages"

    def combine(self, device):
        return device.centroids


class SendsOtherwise(Averages):
    """The same, but sends by itself."""

    def message(self, state, devices):
        return super().message(state, devices)


class Declares(SendsOtherwise):
    """The same, and says what it sends."""

    def expected_messages(self, known):
        return EveryTurn(self.k, known.features)


class DeclaresAll(Declares):
    """The same, and says that no centroid becomes absent."""

    def finds_all(self, known, before):
        return before


class Reporting(Served):
    """A method with a server that reports by itself."""

    def report(self, clients, model):
        return super().report(clients, model)


@each(
    ("method", "messages", "all_rows"),
    [
        (p2pkm.GTVMin(3), True, True),
        (Star(p2pkm.FKM(3)), True, True),
        (Averages(3), True, True),
        (SendsOtherwise(3), False, False),
        (Declares(3), True, False),
        (DeclaresAll(3), True, True),
        (Star(Reporting()), False, False),
    ],
    ids=lambda value: type(getattr(value, "method", value)).__name__,
)
def test_a_default_is_no_declaration_of_a_class_that_sends_by_itself(method, messages, all_rows):
    assert (declares(method, "expected_messages"), declares(method, "finds_all")) == (messages, all_rows)
