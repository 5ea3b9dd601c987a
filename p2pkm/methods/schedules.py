"""Who is awake when: masks of devices, decided outside every algorithm."""

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Integers, Mask, Stream
from p2pkm.kernels.reference import philox


class Schedule(NamedTuple):
    """Who acts when.

    Attributes
    ----------
    opening : bool[n]
        Who sends at the opening.
    turns : callable
        Returns who acts in each turn of round t, an iterator of bool[n].
    answers : bool
        Whether any device that acts in a turn answers the turn before: then silence in the last turn is the end.
    in_step : bool
        Whether every device acts in every turn.
    length : int
        Turns of a round, at most.
    check_termination : callable
        Returns why to stop, given the reason of the last round; nothing while that does not count yet.
    """

    opening: Mask
    turns: Callable[[int], Iterator[Mask]]
    is_request_reply: bool = False
    is_synchronous: bool = False
    length: int = 1
    check_termination: Callable[[str], str] = str


def jacobi(devices: Devices, turns: int = 1, before: int = 0) -> Schedule:
    """Wake every device, in one turn or in several; before: turns that the first round has more."""
    everybody = np.ones(len(devices), np.bool_)
    return Schedule(
        everybody,
        lambda t: repeat(everybody, turns + (before if t == 1 else 0)),
        is_synchronous=before == 0,
        length=turns + before,
    )


def colored(devices: Devices, colors: Integers) -> Schedule:
    """Wake one color class after the other; neighbors never have the same color.

    Parameters
    ----------
    colors : int64[N]
        Color of every device of the system.
    """
    own = colors[devices.ids]
    masks = [own == color for color in range(int(colors.max(initial=0)) + 1)]
    return Schedule(np.ones(len(devices), np.bool_), lambda t: iter(masks), length=len(masks))


def asynchronous(devices: Devices, names: Integers | None = None) -> Schedule:
    """Wake the devices whose key of (seed, round, name) is smaller than those of all neighbors; one turn a round.

    Parameters
    ----------
    names : int64[N], optional
        Under which name each device of the system draws its key; default: its id.
    """
    names = np.arange(devices.total) if names is None else names
    own, others = names[devices.ids].astype(np.uint64), names[devices.indices].astype(np.uint64)
    source = devices.sources

    def turns(t: int) -> Iterator[Mask]:
        key, other = (philox(part, t, devices.shared_key, Stream.AWAKE)[:, 0] for part in (own, others))
        awake = np.ones(len(devices), np.bool_)
        loses = (other < key[source]) | ((other == key[source]) & (others < own[source]))
        awake[source[loses & devices.active_edges]] = False
        yield awake

    return Schedule(np.ones(len(devices), np.bool_), turns)


def star(devices: Devices) -> Schedule:
    """Wake the hub, then the clients, who also send at the opening."""
    hub = devices.ids == devices.server
    return Schedule(~hub, lambda t: iter((hub, ~hub)), is_request_reply=True, length=2)


def deep_star(devices: Devices) -> Schedule:
    """Wake the clients, who also send at the opening, and the hub by turns, clients last; first round: hub first."""
    hub = devices.ids == devices.server
    return Schedule(~hub, lambda t: iter((hub, ~hub) * (t == 1) + (~hub, hub, ~hub, hub, ~hub)), length=7)


def _jacobi_of(devices: Devices, colors: Integers, turns: str) -> Schedule:
    """Return `jacobi` of a text such as 3 or 3+1; empty: one turn."""
    each, _, before = turns.partition("+")
    return jacobi(devices, int(each or 1), int(before or 0))


SCHEDULES: Mapping[str, Callable[[Devices, Integers, str], Schedule]] = {
    "jacobi": _jacobi_of,
    "colored": lambda devices, colors, _: colored(devices, colors),
    "async": lambda devices, *_: asynchronous(devices),
    "star": lambda devices, *_: star(devices),
    "deep-star": lambda devices, *_: deep_star(devices),
}


def make(name: str, devices: Devices, colors: Integers) -> Schedule:
    """Return the schedule of that name: one of `SCHEDULES`, with jacobi*T for T turns a round, or jacobi*T+B.

    B: turns that the first round has more.
    """
    word, _, turns = name.partition("*")
    return SCHEDULES[word](devices, colors, turns)
