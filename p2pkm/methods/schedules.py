"""Schedules: which devices are active in each turn of a round, independent of the method."""

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Integers, Mask, Stream
from p2pkm.kernels.reference import philox


class Schedule(NamedTuple):
    """Order in which devices act.

    Attributes
    ----------
    opening : bool[n]
        Devices that send in the initial exchange, before any update.
    turns : callable
        From the number t of a round to an iterator of bool[n], the devices that are active in each turn of round t.
    is_request_reply : bool
        Whether a device that acts in a turn replies to messages of the turn before. Then silence in the last turn ends
        the run.
    is_synchronous : bool
        Whether all devices are active in every turn.
    length : int
        Largest number of turns in a round.
    check_termination : callable
        From the termination reason of the last round to the reason to stop now; empty as long as it does not count.
    """

    opening: Mask
    turns: Callable[[int], Iterator[Mask]]
    is_request_reply: bool = False
    is_synchronous: bool = False
    length: int = 1
    check_termination: Callable[[str], str] = str

    def ends_graph_round(self, turn: int) -> bool:
        """Whether the links of a time-varying graph change in this turn, from 1: after its updates, before it sends.

        If a device replies in a turn to messages of the turn before, both use the same links, so they change in the
        first turn. Otherwise they change in every turn in which all devices act, or in the last one.
        """
        return self.is_synchronous or turn == (1 if self.is_request_reply else self.length)


def jacobi(devices: Devices, turns: int = 1, before: int = 0) -> Schedule:
    """Activate all devices in each of `turns` turns; the first round has `before` more turns."""
    everybody = np.ones(len(devices), np.bool_)
    return Schedule(
        everybody,
        lambda t: repeat(everybody, turns + (before if t == 1 else 0)),
        is_synchronous=before == 0,
        length=turns + before,
    )


def colored(devices: Devices, colors: Integers) -> Schedule:
    """Activate one color class per turn; neighbors have different colors.

    Parameters
    ----------
    colors : int64[N]
        Color of every device of the system.
    """
    local_colors = colors[devices.ids]
    masks = [local_colors == color for color in range(int(colors.max(initial=0)) + 1)]
    return Schedule(np.ones(len(devices), np.bool_), lambda t: iter(masks), length=len(masks))


def asynchronous(devices: Devices, names: Integers | None = None) -> Schedule:
    """Activate the devices whose random key is smaller than the keys of all neighbors, in one turn per round.

    Keys are drawn from (seed, round, name), so every rank computes those of its halo without messages.

    Parameters
    ----------
    names : int64[N], optional
        Number by which each device of the system draws its key; default: its id.
    """
    names = np.arange(devices.total) if names is None else names
    device_names = names[devices.ids].astype(np.uint64)
    neighbor_names = names[devices.indices].astype(np.uint64)
    source = devices.sources

    def turns(t: int) -> Iterator[Mask]:
        key = philox(device_names, t, devices.shared_key, Stream.ACTIVE)[:, 0]
        neighbor_key = philox(neighbor_names, t, devices.shared_key, Stream.ACTIVE)[:, 0]
        active = np.ones(len(devices), np.bool_)
        # The name decides between equal keys. Otherwise two neighbors could act at once, and the objective increase.
        is_tie_lost = (neighbor_key == key[source]) & (neighbor_names < device_names[source])
        loses = (neighbor_key < key[source]) | is_tie_lost
        active[source[loses & devices.active_edges]] = False
        yield active

    return Schedule(np.ones(len(devices), np.bool_), turns)


def star(devices: Devices) -> Schedule:
    """Activate the server, then the clients; the clients send in the initial exchange."""
    hub = devices.ids == devices.server
    return Schedule(~hub, lambda t: iter((hub, ~hub)), is_request_reply=True, length=2)


def deep_star(devices: Devices) -> Schedule:
    """Activate clients and server in turn, clients last; in round 1 the server comes first.

    The clients send in the initial exchange.
    """
    hub = devices.ids == devices.server
    clients = ~hub

    def turns(number: int) -> Iterator[Mask]:
        if number == 1:
            yield from (hub, clients)
        yield from (clients, hub, clients, hub, clients)

    return Schedule(clients, turns, length=7)


def _jacobi_of(devices: Devices, colors: Integers, turns: str) -> Schedule:
    """Create a `jacobi` schedule from a text such as 3 or 3+1; empty: one turn."""
    turns_per_round, _, before = turns.partition("+")
    return jacobi(devices, int(turns_per_round or 1), int(before or 0))


SCHEDULES: Mapping[str, Callable[[Devices, Integers, str], Schedule]] = {
    "jacobi": _jacobi_of,
    "colored": lambda devices, colors, _: colored(devices, colors),
    "async": lambda devices, *_: asynchronous(devices),
    "star": lambda devices, *_: star(devices),
    "deep-star": lambda devices, *_: deep_star(devices),
}


def make(name: str, devices: Devices, colors: Integers) -> Schedule:
    """Create a schedule by name.

    Parameters
    ----------
    name : str
        One of `SCHEDULES`. ``jacobi*T`` has T turns per round, ``jacobi*T+B`` B more in round 1.
    colors : int64[N]
        Color of every device of the system.
    """
    family, _, turns = name.partition("*")
    return SCHEDULES[family](devices, colors, turns)
