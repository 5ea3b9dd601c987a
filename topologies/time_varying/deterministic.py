"""Deterministic time-varying families, designed for exact averages in as few rounds as possible.

Every function returns a `TimeVaryingGraph` with the mixing matrix of its paper. If devices send in one direction in the
paper, it is the mean of that matrix and its transpose.
"""

from collections.abc import Iterator
from functools import cache
from math import lcm

from topologies.csr_graph import Integers
from topologies.errors import GraphError
from topologies.families.regular import divisors
from topologies.time_varying.graph import Exchange, TimeVaryingGraph, record
from topologies.validation import require_integer


def one_peer_exponential(n: int) -> TimeVaryingGraph:
    """Link every device in round t with the one at distance 2^t around a ring; t counts modulo ceil(log2 n).

    In the paper, devices only send in that direction, and the new value is the mean of the local and the received
    value. Here, both ends of a link receive: the shares are 1/2 for the device and 1/4 for either neighbor (1/2 if they
    are the same device). For a power of two, both variants give every device the exact mean after each period. Cost: at
    most n links per round, degree 1 or 2; all links together are the exponential graph of base 2.

    Parameters
    ----------
    n : int

    References
    ----------
    Ying, Yuan, Chen, Hu, Pan and Yin (2021), Exponential graph is provably efficient for decentralized deep training,
    Advances in Neural Information Processing Systems 34.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.one_peer_exponential(8)
    >>> graph.period, [int(graph.active(r).sum()) // 2 for r in range(3)]  # links in use
    (3, [8, 8, 4])
    """
    import numpy as np

    size = require_integer(n, "one-peer-exponential: n", 1)
    devices = np.arange(size)
    rounds = (_send(devices, (devices + step) % size) for step in _powers(size))
    return record(size, rounds, "one-peer-exponential")


def inner_outer_exponential(n: int, *, size: int = 4) -> TimeVaryingGraph:
    """Link one device of every machine with another machine, and the others within their machine.

    Machine m has the devices m size to (m + 1) size - 1. In round t, the outer member of each machine is member t
    modulo `size`. It is linked with the same member of the machine at distance 2^s, s = (t // size) modulo ceil(log2
    machines). The inner members form a ring and are linked with those at distance 2^r, r = t modulo ceil(log2(size -
    1)). (In BlueFog, s is t modulo the same number, so that some members use only some distances.) Devices send in one
    direction in BlueFog; here both ends receive, with shares as in `one_peer_exponential`. Cost: at most n links per
    round, degree 1 or 2, most of them inside a machine.

    Parameters
    ----------
    n : int
    size : int, default=4
        Devices per machine, a divisor of n, not 2: then the inner member would be isolated.

    References
    ----------
    Ying, Yuan, Hu, Chen and Yin (2021), BlueFog: make decentralized algorithms practical for optimization and deep
    learning, arXiv:2111.04287.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.inner_outer_exponential(8)
    >>> graph.period, [int(graph.active(r).sum()) // 2 for r in range(3)]  # links in use
    (4, [7, 7, 7])
    """
    machines, each = _count_machines(n, size, "inner-outer-exponential")
    return _alternate(machines, each, _powers(machines) or [0], _powers(each - 1) or [0], "inner-outer-exponential")


def inner_outer_ring(n: int, *, size: int = 4) -> TimeVaryingGraph:
    """Link one device of every machine with the next machine, and the others as a ring within their machine.

    The same as `inner_outer_exponential` with all distances 1. Devices send in one direction in BlueFog; here both ends
    receive. Cost: at most n links per round, degree 1 or 2; few links, slow averaging.

    Parameters
    ----------
    n, size
        As in `inner_outer_exponential`.

    References
    ----------
    Ying, Yuan, Hu, Chen and Yin (2021), BlueFog: make decentralized algorithms practical for optimization and deep
    learning, arXiv:2111.04287.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.inner_outer_ring(8)
    >>> graph.period, [int(graph.active(r).sum()) // 2 for r in range(3)]  # links in use
    (4, [7, 7, 7])
    """
    machines, each = _count_machines(n, size, "inner-outer-ring")
    return _alternate(machines, each, [int(machines > 1)], [int(each > 1)], "inner-outer-ring")


def _count_machines(n: int, size: int, family: str) -> tuple[int, int]:
    """Check the options, and return the number of machines and of devices in each."""
    total = require_integer(n, f"{family}: n", 1)
    each = require_integer(size, f"{family}: size", 1)
    if total % each or each == 2:
        legal = ", ".join(str(divisor) for divisor in divisors(total, least=1) if divisor != 2)
        raise GraphError(
            f"{family}: size is {each}; expected a divisor of {total}, the number of devices, except 2, which leaves a "
            f"device without a neighbor: one of {legal}"
        )
    return total // each, each


def _alternate(machines: int, each: int, outer: list[int], inner: list[int], family: str) -> TimeVaryingGraph:
    """Build the graph in which each member of a machine is the outer one in turn, with given distances of links."""
    import numpy as np

    first = np.arange(0, machines * each, each)

    def build_round(turn: int) -> Exchange:
        outer_member = turn % each
        members = np.delete(np.arange(each), outer_member)
        partners = np.roll(members, -inner[turn % len(inner)])
        next_first = np.roll(first, -outer[turn // each % len(outer)])
        u = np.concatenate((first + outer_member, (first[:, None] + members).ravel()))
        v = np.concatenate((next_first + outer_member, (first[:, None] + partners).ravel()))
        return _send(u, v)

    period = lcm(each * len(outer), len(inner))
    return record(machines * each, map(build_round, range(period)), family)


def hyper_hypercube(n: int, *, peers: int = 1) -> TimeVaryingGraph:
    """Link devices along one digit of their number per round, with digits in mixed bases: the factors of n.

    There are as few factors as possible, each at most peers + 1. In round t, devices whose numbers differ only in digit
    t form a clique and compute its mean: after a period, every device has the exact mean. For a power of two and one
    peer, the rounds are the dimensions of a hypercube. Cost: degree at most `peers`, n (f - 1) / 2 links in a round
    with factor f.

    Parameters
    ----------
    n : int
        Without a prime factor above peers + 1; `simple_base` accepts any number.
    peers : int, default=1
        Most neighbors of a device in a round.

    References
    ----------
    Takezawa, Sato, Bao, Niwa and Yamada (2023), Beyond exponential graph: communication-efficient topologies for
    decentralized learning via finite-time convergence, Advances in Neural Information Processing Systems 36.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.hyper_hypercube(8)
    >>> graph.period, [int(graph.active(r).sum()) // 2 for r in range(3)]  # links in use
    (3, [4, 4, 4])
    """
    import numpy as np

    size = require_integer(n, "hyper-hypercube: n", 1)
    most = require_integer(peers, "hyper-hypercube: peers", 1) + 1
    if not is_smooth(size, most):
        lower, upper = (_find_smooth(size, most, step) for step in (-1, 1))
        raise GraphError(
            f"hyper-hypercube: the number of devices, {size}, has a prime factor above peers + 1 = {most}. Use {lower} "
            f"or {upper} devices, peers={_largest_prime(size) - 1}, or the graph simple-base, which accepts any number"
        )
    return record(size, _cube(np.arange(size), most), "hyper-hypercube")


def simple_base(n: int, *, peers: int = 1) -> TimeVaryingGraph:
    """Link any number of devices for exact averages in few rounds with few peers: the Simple Base-(peers + 1) Graph.

    Let b = peers + 1 and n = sum of a_l b^p_l with descending powers. The devices are divided into V_1, V_2, ..., and
    V_l into a_l parts of b^p_l devices.

    1. Every V_l averages internally (a hyper-hypercube).
    2. For l = 1, 2, ...: each device of V_l+1, V_l+2, ... exchanges with one device of each part of V_l, with share
       ``|V_l| / (a_l (|V_l| + |V_l+1| + ...))``. Then the mean of each part of V_l is the mean of all, and the parts
       average again. Devices of V_l without a partner form groups of b in that round.

    If all prime factors of n are at most b, the graph is the hyper-hypercube. Cost: degree at most `peers`, a period of
    at most 2 log(n) / log(b) + 2 rounds.

    Parameters
    ----------
    n : int
    peers : int, default=1
        Most neighbors of a device in a round.

    References
    ----------
    As in `hyper_hypercube`, algorithm 2.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.simple_base(5)
    >>> graph.period, [int(graph.active(r).sum()) // 2 for r in range(3)]  # links in use
    (5, [2, 2, 2])
    """
    import numpy as np

    size = require_integer(n, "simple-base: n", 1)
    most = require_integer(peers, "simple-base: peers", 1) + 1
    rounds = _cube(np.arange(size), most) if is_smooth(size, most) else _base_rounds(size, most)
    return record(size, rounds, "simple-base")


def _base_rounds(n: int, base: int) -> Iterator[Exchange]:
    """Yield the rounds of a period for n devices that are not smooth, see `simple_base`."""
    parts = _divide_devices(n, base)
    # Rounds of the first averaging within each V_l, and of the second one within each part of V_l.
    first_cubes = [_cube(part.ravel(), base) for part in parts]
    # Parts of one device already have their mean; averaging among all of them again does not change it.
    second_cubes = [_cube(part, base) if part.shape[1] > 1 else first_cubes[i] for i, part in enumerate(parts)]
    last = len(parts) - 1
    # Turn after which V_l has exchanged with all later ones.
    starts = [min(i + 1, last) for i in range(len(parts))]
    for turn in range(len(first_cubes[0])):
        yield _join([cube[turn % len(cube)] for cube in first_cubes if cube])
    for turn in range(len(second_cubes[0]) + 1):
        exchanges = [_link_parts(parts[turn:], base)] if turn < last else []
        for cube, start in zip(second_cubes, starts, strict=True):
            if cube and turn >= start:
                exchanges.append(cube[(turn - start) % len(cube)])
        yield _join(exchanges)


def _divide_devices(n: int, base: int) -> list[Integers]:
    """Divide the devices into V_1, V_2, ...: one int64[a, base^p] for each digit a of n that is not 0."""
    import numpy as np

    parts = []
    first, power = 0, 1
    while power * base <= n:
        power *= base
    while power:
        count = (n - first) // power
        if count:
            parts.append(np.arange(first, first + count * power).reshape(count, power))
        first += count * power
        power //= base
    return parts


def _link_parts(parts: list[Integers], base: int) -> Exchange:
    """Link every device of the later parts with one device of each row of the first; its other devices form groups."""
    import numpy as np

    first = parts[0]
    later = np.concatenate([part.ravel() for part in parts[1:]])
    share = first.size / (len(first) * (first.size + len(later)))
    partners = first[:, : len(later)]
    idle = first[:, len(later) :].ravel()
    exchange = Exchange(np.tile(later, len(first)), partners.ravel(), np.full(partners.size, share))
    full = len(idle) // base * base
    return _join([exchange, _link_groups(idle[:full].reshape(-1, base)), _link_groups(idle[None, full:])])


def _cube(devices: Integers, most: int) -> list[Exchange]:
    """Build the rounds of a hyper-hypercube of the devices in each row, int64[..., size]."""
    size = devices.shape[-1]
    stride = 1
    rounds = []
    for factor in split_factors(size, most):
        digits = devices.reshape(-1, size // (factor * stride), factor, stride)
        rounds.append(_link_groups(digits.swapaxes(2, 3).reshape(-1, factor)))
        stride *= factor
    return rounds


def _link_groups(groups: Integers) -> Exchange:
    """Link all devices in each row with equal shares, so that they compute their mean."""
    import numpy as np

    size = groups.shape[1]
    first, second = np.triu_indices(size, 1)
    u, v = groups[:, first].ravel(), groups[:, second].ravel()
    return Exchange(u, v, np.full(len(u), 1 / max(size, 1)))


def _send(u: Integers, v: Integers) -> Exchange:
    """Link u[i] with v[i]: the mean of the matrix in which v[i] averages with u[i], and its transpose."""
    import numpy as np

    return Exchange(u, v, np.full(len(u), 0.25))


def _join(exchanges: list[Exchange]) -> Exchange:
    import numpy as np

    columns = [np.concatenate([getattr(exchange, field) for exchange in exchanges]) for field in Exchange._fields]
    return Exchange(*columns)


def _powers(n: int) -> list[int]:
    """List the powers of two below n."""
    return [1 << t for t in range(max(n - 1, 0).bit_length())]


@cache
def split_factors(n: int, most: int) -> tuple[int, ...]:
    """Split n into as few factors as possible, each at most `most`, with large factors first if there is a choice."""
    if n == 1:
        return ()
    ways = [(factor, *split_factors(n // factor, most)) for factor in divisors(n, least=2)[::-1] if factor <= most]
    return min(ways, key=len)


def is_smooth(n: int, most: int) -> bool:
    """Return whether all prime factors of n are at most `most`."""
    return _largest_prime(n) <= most


def _largest_prime(n: int) -> int:
    """Return the largest prime factor of n, 1 for n = 1."""
    largest, remainder, factor = 1, n, 2
    while factor * factor <= remainder:
        if remainder % factor:
            factor += 1
        else:
            largest, remainder = factor, remainder // factor
    return max(largest, remainder)


def _find_smooth(n: int, most: int, step: int) -> int:
    """Return the nearest smooth number in the direction of `step`, 1 or -1."""
    while not is_smooth(n, most):
        n += step
    return n
