"""Laws of methods, transforms and metrics, each stated once.

`check_method`, `check_transform` and `check_metric` apply them to trial runs, the tests of p2pkm to all methods and to
random experiments. A law returns what violates it, or nothing.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.array_tree import list_arrays
from p2pkm.engine.state_tree import rebuild, split
from p2pkm.network.graph import Topology
from p2pkm.network.rank_partition import RankPartition
from p2pkm.testing.parts import Part, same_bits
from p2pkm.testing.recording import Exchange, PlayedRun
from p2pkm.testing.trial import CheckpointsInMemory

_MOST = 5  # devices listed in a message
# Bytes that any encoding needs for a number of which all digits matter: sign, exponent and the first digits may be
# known to the receiver, but not the last 48 bits.
BYTES_PER_NUMBER = 6
# Values that are equal in runs whose methods act alike, even if their graphs or points are described otherwise.
_OF_METHOD = ("centroids", "chain_sha256", "messages", "bytes", "wire_bytes", "rounds", "termination")


def list_differing(first: PlayedRun, second: PlayedRun) -> list[str]:
    """List the values in which two runs differ, without their messages."""
    other = second.bits
    return [name for name, value in first.bits.items() if other.get(name) != value]


def find_difference(first: PlayedRun, second: PlayedRun) -> str:
    """Describe the first difference between the messages or results of two methods, "" if they are equal."""
    for number, (a, b) in enumerate(zip(first.exchanges, second.exchanges, strict=False)):
        senders = [v for v, (table, other) in enumerate(zip(a.sent, b.sent, strict=True)) if table != other]
        if senders:
            return f"{list_devices(senders)} sent different tables in exchange {number}"
    names = [name for name in list_differing(first, second) if name in _OF_METHOD]
    return f"the results differ in {', '.join(names)}" if names else ""


def list_devices(ids: Collection[int]) -> str:
    """List the first devices."""
    listed = ", ".join(map(str, list(ids)[:_MOST]))
    return f"device{'s' if len(ids) > 1 else ''} {listed}{', ...' if len(ids) > _MOST else ''}"


def compare_light_cones(
    runs: tuple[list[Exchange], list[Exchange]], *, changed: int = 0, spread: bool = True
) -> tuple[int, list[tuple[int, int]]]:
    """Compare messages that cannot depend on changed points, because nothing of these has reached the sender.

    The device whose points were changed is tainted. A device becomes tainted when it receives a message from a tainted
    device.

    Parameters
    ----------
    runs : pair of list of Exchange
        Exchanges of two runs that differ in the points of one device, not in their number. Exchanges after the end of
        the shorter run are ignored.
    changed : int
        The device with different points.
    spread : bool
        False: other devices never become tainted, so messages differ as soon as information is passed on.

    Returns
    -------
    messages : int
        Number of messages compared.
    differing : list of (int, int)
        Exchange and device of messages that differ.
    """
    tainted, messages, differing = {changed}, 0, []
    for number, (first, second) in enumerate(zip(*runs, strict=False)):
        for v, (a, b) in enumerate(zip(first.sent, second.sent, strict=True)):
            if v not in tainted:
                messages += a is not None
                differing += [(number, v)] if a != b else []
        if spread:
            for run in (first, second):
                tainted |= {receiver for receiver, sender in run.edges.tolist() if sender in tainted}
    return messages, differing


def find_dependent(runs: tuple[list[Exchange], list[Exchange]]) -> list[tuple[int, int]]:
    """Find messages that depend on changed points, although clusters of so few points must not be sent.

    Returns
    -------
    list of (int, int)
        Exchange and device of messages that differ.
    """
    return compare_light_cones(runs, changed=-1, spread=False)[1]


def find_too_short(first: Exchange, second: Exchange) -> str:
    """Describe the first table whose encoded bytes are too few for the numbers that differ between two runs.

    The runs differ by a small change of all points. Bytes that are merely too few, but not absurdly so, are not found:
    a method declares only how many bytes its encoding takes, and encodes nothing that could be compared.

    Returns
    -------
    str
        Empty if there is none.
    """
    for v, (a, b) in enumerate(zip(first.sent, second.sent, strict=True)):
        if a is None or b is None or a[0] != b[0] or b[2] is None:
            continue
        numbers = count_differing(np.frombuffer(a[1]), np.frombuffer(b[1]))
        if b[2] < BYTES_PER_NUMBER * numbers:
            return f"device {v} declared {b[2]} encoded bytes (wire) for a table of {numbers} numbers"
    return ""


def count_differing(a: Any, b: Any) -> int:
    """Count the numbers of two tables that differ."""
    return int(np.count_nonzero(a != b)) if len(a) == len(b) else 0


class Resumed(NamedTuple):
    """Outcome of the runs that were resumed from the checkpoints of a run.

    Attributes
    ----------
    obstacle : str
        Why no checkpoint can be written; empty if there are checkpoints.
    names : str
        Values in which the first wrong run differs from the uninterrupted one, separated by commas; empty if none is
        wrong.
    wrong, all : int
        Number of wrong runs, and of all.
    """

    obstacle: str
    names: str = ""
    wrong: int = 0
    all: int = 0


def resume_everywhere(
    play: Callable[..., PlayedRun], topology: Topology, choose: Callable[[list[Any]], list[Any]] = list
) -> Resumed:
    """Resume a run from its checkpoints; all must be bit-identical to the uninterrupted run.

    Parameters
    ----------
    play : callable
        Plays the run with the parameters `checkpoints`, which takes them, and `saved`, from which the run continues.
    topology : Topology
    choose : callable
        Chooses the checkpoints; default: all.
    """
    checkpoints = CheckpointsInMemory()
    whole = play(checkpoints=checkpoints)
    if checkpoints.reason:
        return Resumed(checkpoints.reason)
    division = RankPartition("blocks", np.array([0, topology.n]))
    chosen = choose(checkpoints.saved)
    differing = []
    for outline, arrays in chosen:
        saved = rebuild(outline, split(outline, dict(arrays), topology, division, 0))
        differing.append(", ".join(list_differing(whole, play(saved=saved))))
    wrong = [names for names in differing if names]
    return Resumed("", wrong[0] if wrong else "", len(wrong), len(chosen))


@contextmanager
def unchanged(**arguments: Any) -> Iterator[list[str]]:
    """Watch the arguments of a function; the list that is yielded gets the names of arrays that it wrote into."""
    before = [
        (key, array, array.copy()) for name, value in arguments.items() for key, array in list_arrays(value, name)
    ]
    written: list[str] = []
    try:
        yield written
    finally:
        written += [name for name, array, original in before if not same_bits(array, original)]


@contextmanager
def on_part(findings: dict[str, str], function: str, part: Part) -> Iterator[None]:
    """Note an exception of a function as a finding: it must work on every batch."""
    try:
        yield
    except Exception as error:
        findings.setdefault(
            "parts",
            f"{function} raised {type(error).__name__} for {part.name}: {error}. It must work on every batch, "
            "including a batch without devices, which a rank may host. Avoid reshape with -1 and reductions without an "
            "initial value, and take sizes from len(devices)",
        )


def describe_part(function: str, quantity: str, expected: list[Any], actual: list[Any], part: Part) -> str:
    """Describe the first device whose result depends on the batch, "" if all are bit-identical."""
    if len(expected) != len(actual):
        return (
            f"{function} returned {len(actual)} {quantity} for {part.name}; expected {len(expected)}, one for each "
            "device"
        )
    differing = [i for i, (a, b) in enumerate(zip(expected, actual, strict=True)) if not same_bits(a, b)]
    if not differing:
        return ""
    places = [*(f"device {i}" for i in part.positions), "the edges"]
    place = places[min(differing[0], len(places) - 1)]
    return (
        f"{function} returned different {quantity} for {place} in {part.name} and in the batch of all devices; results "
        "must be bit-identical in every batch"
    )
