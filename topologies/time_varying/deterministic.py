"""Time-varying families without chance, made to average everything in as few rounds as possible.

Every function returns a `TimeVaryingGraph` whose `mixing` is the paper's; where a paper sends in one direction, the
mean of its matrix and its transpose.
"""

from collections.abc import Iterator
from functools import cache
from math import lcm

from topologies.csr_graph import Integers
from topologies.errors import GraphError
from topologies.families.regular import divisors
from topologies.time_varying.graph import Exchange, TimeVaryingGraph, record
from topologies.validation import whole


def one_peer_exponential(n: int) -> TimeVaryingGraph:
    """Link every device, in round t, with the one 2^t further on around a ring; t counts modulo ceil(log2 n).

    In the paper device i only sends that way, and both halves of what it has and gets make its new value; here both
    ends receive from each other, and the shares are 1/2 for itself and 1/4 for either side (1/2 if they are the same
    device). For a power of two, either gives every device the exact mean after each period. Cost: at most n links in a
    round, degree 1 or 2; together they are the exponential graph of base 2.

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

    size = whole(n, "one-peer-exponential: n", 1)
    devices = np.arange(size)
    rounds = (_send(devices, (devices + step) % size) for step in _powers(size))
    return record(size, rounds, "one-peer-exponential")


def inner_outer_exponential(n: int, *, size: int = 4) -> TimeVaryingGraph:
    """Let one device of every machine communicate with another machine, and the others among themselves.

    Machine m holds the devices m size to (m + 1) size - 1. In round t the member t modulo `size` of each goes outside:
    it is linked with the same member of the machine 2^s further on, s = (t // size) modulo ceil(log2 machines). The
    other members, as a ring without it, are linked with those 2^r further on, r = t modulo ceil(log2(size - 1)). (In
    BlueFog s is t itself, modulo the same number, so that some members use some distances only.) Sent one way in
    BlueFog, received by both ends here, with shares as in `one_peer_exponential`. Cost: at most n links in a round,
    degree 1 or 2, most of them inside a machine.

    Parameters
    ----------
    n : int
    size : int
        Devices per machine, a divisor of n, not 2: of two, the one that stays has no partner.

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
    """Let one device of every machine communicate with the next machine, and the others to the next among themselves.

    As `inner_outer_exponential` with all distances 1: rings inside of the machines, and one between them. Sent one way
    in BlueFog, received by both ends here. Cost: at most n links in a round, degree 1 or 2; few links, and slow.

    Parameters
    ----------
    n, size
        As of `inner_outer_exponential`.

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
    """Return the number of machines, and of devices in each."""
    total, each = whole(n, f"{family}: n", 1), whole(size, f"{family}: size", 1)
    if total % each or each == 2:
        legal = ", ".join(str(divisor) for divisor in divisors(total, least=1) if divisor != 2)
        raise GraphError(
            f"{family}: size is {each}, but has to divide {total} devices, and of two in a machine one "
            f"would have no partner; legal sizes: {legal}"
        )
    return total // each, each


def _alternate(machines: int, each: int, outer: list[int], inner: list[int], family: str) -> TimeVaryingGraph:
    """Let one member of every machine after the other go outside; by which steps there, and by which inside."""
    import numpy as np

    first = np.arange(0, machines * each, each)

    def play(turn: int) -> Exchange:
        out = turn % each
        stay = np.delete(np.arange(each), out)
        far = first + out, np.roll(first, -outer[turn // each % len(outer)]) + out
        near = [(first[:, None] + who).ravel() for who in (stay, np.roll(stay, -inner[turn % len(inner)]))]
        return _send(np.concatenate((far[0], near[0])), np.concatenate((far[1], near[1])))

    period = lcm(each * len(outer), len(inner))
    return record(machines * each, map(play, range(period)), family)


def hyper_hypercube(n: int, *, peers: int = 1) -> TimeVaryingGraph:
    """Write the number of each device with digits to mixed bases, the factors of n; a round links along one digit.

    With as few factors as possible, each at most peers + 1. In round t the devices that differ in digit t alone form a
    clique and take its mean: after a period every device has the exact mean. For n a power of two and one peer: the
    dimensions of a hypercube, one by one. Cost: degree at most `peers`, n (f - 1) / 2 links in a round of factor f.

    Parameters
    ----------
    n : int
        Without a prime factor above peers + 1; `simple_base` takes any.
    peers : int
        The most others that a device communicates with in a round.

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

    size, most = whole(n, "hyper-hypercube: n", 1), whole(peers, "hyper-hypercube: peers", 1) + 1
    if not is_smooth(size, most):
        near = [_seek(size, most, step) for step in (-1, 1)]
        raise GraphError(
            f"hyper-hypercube: {size} devices has a prime factor above peers + 1 = {most}; take {near[0]} or {near[1]} "
            f"devices, peers={_largest_prime(size) - 1}, or the graph simple-base, which takes any number"
        )
    return record(size, _cube(np.arange(size), most), "hyper-hypercube")


def simple_base(n: int, *, peers: int = 1) -> TimeVaryingGraph:
    """Average any number of devices exactly, in few rounds with few peers: the Simple Base-(peers + 1) Graph.

    With b = peers + 1 and n = sum of a_l b^p_l, falling powers, the devices are parted into V_1, V_2, ..., and V_l
    into a_l parts of b^p_l devices. First every V_l averages by itself (a hyper-hypercube). Then, for l = 1, 2, ...,
    each device of V_l+1, V_l+2, ... trades with one of each part of V_l, with share
    ``|V_l| / (a_l (|V_l| + |V_l+1| + ...))``; so each part of V_l has the mean of all as its own, and averages once
    more. Those of V_l without a partner meet in groups of b meanwhile. If n has no prime factor above b, it is
    the hyper-hypercube alone. Cost: degree at most `peers`, a period of at most 2 log(n) / log(b) + 2 rounds.

    Parameters
    ----------
    n : int
    peers : int
        The most others that a device communicates with in a round.

    References
    ----------
    As for `hyper_hypercube`, algorithm 2.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.simple_base(5)
    >>> graph.period, [int(graph.active(r).sum()) // 2 for r in range(3)]  # links in use
    (5, [2, 2, 2])
    """
    import numpy as np

    size, most = whole(n, "simple-base: n", 1), whole(peers, "simple-base: peers", 1) + 1
    rounds = _cube(np.arange(size), most) if is_smooth(size, most) else _base_rounds(size, most)
    return record(size, rounds, "simple-base")


def _base_rounds(n: int, base: int) -> Iterator[Exchange]:
    """Yield the rounds of a period for n devices that no hyper-hypercube fits."""
    parts = _part(n, base)
    halls = [_cube(part.ravel(), base) for part in parts]
    # a part of single devices has its mean already; to average again among all of them does no harm
    cubes = [_cube(part, base) if part.shape[1] > 1 else halls[i] for i, part in enumerate(parts)]
    last = len(parts) - 1
    begins = [min(i + 1, last) for i in range(len(parts))]
    for turn in range(len(halls[0])):
        yield _join([cube[turn % len(cube)] for cube in halls if cube])
    for turn in range(len(cubes[0]) + 1):
        playing = [_trade(parts[turn:], base)] if turn < last else []
        again = [(cube, turn - begin) for cube, begin in zip(cubes, begins, strict=True) if cube and turn >= begin]
        yield _join(playing + [cube[step % len(cube)] for cube, step in again])


def _part(n: int, base: int) -> list[Integers]:
    """Cut the devices into V_1, V_2, ...: one int64[a, base^p] for each digit a of n that is not 0."""
    import numpy as np

    parts, first, power = [], 0, 1
    while power * base <= n:
        power *= base
    while power:
        count = (n - first) // power
        if count:
            parts.append(np.arange(first, first + count * power).reshape(count, power))
        first += count * power
        power //= base
    return parts


def _trade(parts: list[Integers], base: int) -> Exchange:
    """Let every device of the later parts trade with one device of each row of the first, the rest of it in groups."""
    import numpy as np

    first, later = parts[0], np.concatenate([part.ravel() for part in parts[1:]])
    share = first.size / (len(first) * (first.size + len(later)))
    met, idle = first[:, : len(later)], first[:, len(later) :].ravel()
    trades = Exchange(np.tile(later, len(first)), met.ravel(), np.full(met.size, share))
    full = len(idle) // base * base
    return _join([trades, _meet(idle[:full].reshape(-1, base)), _meet(idle[None, full:])])


def _cube(devices: Integers, most: int) -> list[Exchange]:
    """Return the rounds of a hyper-hypercube of the devices in each row, int64[..., size]."""
    size, stride, rounds = devices.shape[-1], 1, []
    for factor in split_factors(size, most):
        digits = devices.reshape(-1, size // (factor * stride), factor, stride)
        rounds.append(_meet(digits.swapaxes(2, 3).reshape(-1, factor)))
        stride *= factor
    return rounds


def _meet(groups: Integers) -> Exchange:
    """Let the devices of every row take their mean."""
    import numpy as np

    size = groups.shape[1]
    one, other = np.triu_indices(size, 1)
    u, v = groups[:, one].ravel(), groups[:, other].ravel()
    return Exchange(u, v, np.full(len(u), 1 / max(size, 1)))


def _send(u: Integers, v: Integers) -> Exchange:
    """Let u[i] send to v[i], who takes half of it: the mean of this matrix and its transpose."""
    import numpy as np

    return Exchange(u, v, np.full(len(u), 0.25))


def _join(exchanges: list[Exchange]) -> Exchange:
    import numpy as np

    columns = [np.concatenate([getattr(one, field) for one in exchanges]) for field in Exchange._fields]
    return Exchange(*columns)


def _powers(n: int) -> list[int]:
    """Return 1, 2, 4, ... below n."""
    return [1 << t for t in range(max(n - 1, 0).bit_length())]


@cache
def split_factors(n: int, most: int) -> tuple[int, ...]:
    """Split n into as few factors as possible, each at most `most`, the larger ones first if there is a choice."""
    if n == 1:
        return ()
    ways = [(factor, *split_factors(n // factor, most)) for factor in divisors(n, least=2)[::-1] if factor <= most]
    return min(ways, key=len)


def is_smooth(n: int, most: int) -> bool:
    """Test whether no prime factor of n is above `most`."""
    return _largest_prime(n) <= most


def _largest_prime(n: int) -> int:
    """Return the largest prime factor, 1 of 1."""
    found, rest, factor = 1, n, 2
    while factor * factor <= rest:
        if rest % factor:
            factor += 1
        else:
            found, rest = factor, rest // factor
    return max(found, rest)


def _seek(n: int, most: int, step: int) -> int:
    """Return the nearest number on one side that is smooth."""
    while not is_smooth(n, most):
        n += step
    return n
