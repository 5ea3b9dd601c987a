"""Families as arrays, for very many devices, without networkx.

Every function takes the options of the family with its name and returns a connected `CSRGraph`. Deterministic families
give the same graph as there. Random families follow the same distribution, but the same seed gives another graph.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from topologies.csr_graph import CSRGraph, Integers, pack
from topologies.families import random as randomized
from topologies.families.random import (
    albert_options,
    disconnected_error,
    draw_seeds,
    geometric_options,
    regular_options,
    small_world_options,
)
from topologies.families.regular import sides, strides
from topologies.families.textbook import dimensions
from topologies.validation import require_integer

if TYPE_CHECKING:
    from numpy.random import Generator
else:
    Generator = Any

_TRIES = 100  # draws of a new end before a link is not moved


def ring(n: int) -> CSRGraph:
    """Link every device with the next one, and the last with the first."""
    size = require_integer(n, "ring: n", 1)
    return _circulant(size, [1] if size > 1 else [], "ring")


def grid(n: int, *, rows: int | None = None) -> CSRGraph:
    """Link each device with the next one in its row and in its column, in rows of n / rows devices."""
    import numpy as np

    place = np.arange(n).reshape(sides(n, rows, "grid"))
    u = np.concatenate((place[:, :-1].ravel(), place[:-1].ravel()))
    v = np.concatenate((place[:, 1:].ravel(), place[1:].ravel()))
    return pack(n, u, v, name="grid")


def torus(n: int, *, rows: int | None = None) -> CSRGraph:
    """Place the devices on a grid whose rows and columns are rings."""
    import numpy as np

    place = np.arange(n).reshape(sides(n, rows, "torus"))
    other = np.concatenate([np.roll(place, -1, axis).ravel() for axis in (0, 1)])
    return pack(n, np.tile(place.ravel(), 2), other, name="torus")


def exponential(n: int, *, base: int = 2) -> CSRGraph:
    """Link every device with those 1, base, base^2, ... further on, around a ring."""
    return _circulant(*strides(n, base), "exponential")


def hypercube(n: int) -> CSRGraph:
    """Link devices whose numbers differ in one binary digit."""
    import numpy as np

    digits = 1 << np.arange(dimensions(n), dtype=np.int64)
    neighbors = np.arange(n)[:, None] ^ digits
    neighbors.sort(axis=1)
    return CSRGraph(np.arange(n + 1) * len(digits), neighbors.ravel(), name="hypercube")


def small_world(n: int, *, degree: int = 4, rewire: float = 0.1, seed: int = 0) -> CSRGraph:
    """Draw a ring lattice with `degree` links per device, some moved to random ends (Watts-Strogatz)."""
    size, links, chance = small_world_options(n, degree, rewire)
    return _redraw(size, seed, lambda rng: rewire_lattice(size, links // 2, chance, rng), "small-world", "degree")


def random_regular(n: int, *, degree: int = 4, seed: int = 0) -> CSRGraph:
    """Draw a graph in which every device has the same degree (Steger and Wormald)."""
    size, links = regular_options(n, degree)
    # With at least half of all possible links, arrays are not light either.
    if 2 * links >= size:
        return CSRGraph.from_networkx(randomized.random_regular(n, degree=degree, seed=seed), "random-regular")
    return _redraw(size, seed, lambda rng: _pair(size, links, rng), "random-regular", "degree")


def barabasi_albert(n: int, *, m: int = 2, seed: int = 0) -> CSRGraph:
    """Grow a graph from a star of m + 1 devices: each new one links to m others, the well-linked preferred."""
    size, links = albert_options(n, m)
    return _redraw(size, seed, lambda rng: _grow(size, links, rng), "barabasi-albert", "m")


def random_geometric(n: int, *, radius: float | None = None, seed: int = 0) -> CSRGraph:
    """Place the devices at random in the unit square and link those at a distance of at most `radius`."""
    from scipy.spatial import cKDTree

    size, reach = geometric_options(n, radius)

    def draw(rng: Generator) -> tuple[Integers, Integers]:
        pairs = cKDTree(rng.random((size, 2))).query_pairs(reach, output_type="ndarray")
        return pairs[:, 0], pairs[:, 1]

    return _redraw(size, seed, draw, "random-geometric", "radius")


def _circulant(n: int, steps: list[int], name: str) -> CSRGraph:
    """Link every device with those at the given distances before and after it, around a ring."""
    import numpy as np

    offsets = sorted({*steps, *(n - step for step in steps)})
    neighbors = (np.arange(n)[:, None] + np.array(offsets, np.int64)) % n
    neighbors.sort(axis=1)
    return CSRGraph(np.arange(n + 1) * len(offsets), neighbors.ravel(), name=name)


def _redraw(
    n: int, seed: int, draw: Callable[[Generator], tuple[Integers, Integers]], family: str, option: str
) -> CSRGraph:
    """Draw the ends of all links until the graph is connected."""
    from numpy.random import default_rng

    for attempt_seed in draw_seeds(seed, family):
        graph = pack(n, *draw(default_rng(attempt_seed)), name=family)
        if graph.connected:
            return graph
    raise disconnected_error(n, family, option)


def rewire_lattice(n: int, reach: int, chance: float, rng: Generator) -> tuple[Integers, Integers]:
    """Move links of a ring lattice to uniformly drawn ends, from the shortest to the longest links."""
    import numpy as np

    u = np.tile(np.arange(n), reach)
    v = (u + np.repeat(np.arange(1, reach + 1), n)) % n
    # Links that were moved from their place in the lattice in previous steps, and the sorted keys of the moved links.
    is_moved = np.zeros(len(u), bool)
    drawn = np.zeros(0, np.int64)
    for step in range(reach):
        moving = step * n + np.flatnonzero(rng.random(n) < chance)
        moved = [moving[:0]]
        for _ in range(_TRIES):
            if not len(moving):
                break
            ends = rng.integers(n, size=len(moving))
            keys = _keys(n, u[moving], ends)
            free = (ends != u[moving]) & ~_holds(drawn, keys) & _is_first(keys)
            # Links that move in this step still count as occupied, because one of them may remain in place.
            free &= ~_is_in_lattice(n, reach, is_moved, u[moving], ends)
            v[moving[free]] = ends[free]
            drawn = np.sort(np.concatenate((drawn, keys[free])))
            moved.append(moving[free])
            moving = moving[~free]
        is_moved[np.concatenate(moved)] = True
    return u, v


def _is_in_lattice(n: int, reach: int, is_moved: Any, u: Integers, v: Integers) -> Any:
    """Return for each link u[i] - v[i] whether it is a link of the lattice that was not moved, bool[links]."""
    import numpy as np

    ahead = (v - u) % n
    distance = np.minimum(ahead, n - ahead)
    place = (distance - 1) * n + np.where(ahead == distance, u, v)
    in_lattice = (distance > 0) & (distance <= reach)
    in_lattice[in_lattice] = ~is_moved[place[in_lattice]]
    return in_lattice


def _pair(n: int, degree: int, rng: Generator) -> tuple[Integers, Integers]:
    """Pair free ends of links at random until all are paired; start again if only repeated links are possible."""
    import numpy as np

    while True:
        loose = np.tile(np.arange(n), degree)
        keys = np.zeros(0, np.int64)
        while len(loose) and not _is_stuck(n, degree, loose, keys):
            pairs = rng.permutation(loose).reshape(-1, 2)
            drawn = _keys(n, pairs[:, 0], pairs[:, 1])
            new = (pairs[:, 0] != pairs[:, 1]) & ~_holds(keys, drawn) & _is_first(drawn)
            keys, loose = np.sort(np.concatenate((keys, drawn[new]))), pairs[~new].ravel()
        if not len(loose):
            return keys // n, keys % n


def _is_stuck(n: int, degree: int, loose: Integers, keys: Integers) -> bool:
    """Return whether all devices with free ends are already linked with each other."""
    import numpy as np

    devices = np.unique(loose) if len(loose) <= degree * degree else loose
    # With more devices than links per device, some two of them are not linked.
    if len(devices) > degree:
        return False
    first, second = np.triu_indices(len(devices), 1)
    return bool(_holds(keys, _keys(n, devices[first], devices[second])).all())


def _grow(n: int, m: int, rng: Generator) -> tuple[Integers, Integers]:
    """Link every new device with m distinct devices, drawn from the ends of all existing links.

    `ends` lists both ends of every link: those of the star, then, for each new device, the m chosen ones and the device
    itself m times. A choice is a position in this list. New devices are drawn in blocks, each as long as all previous
    blocks together.
    """
    import numpy as np

    rows = n - m - 1
    ends = np.empty(2 * m * (rows + 1), np.int64)
    ends[:m], ends[m : 2 * m] = 0, np.arange(1, m + 1)
    newer = ends[2 * m :].reshape(rows, 2, m)
    newer[:, 1] = np.arange(m + 1, n)[:, None]
    first = 0
    while first < rows:
        last = min(2 * first + 1, rows)
        newer[first:last, 0] = _choose(ends, np.arange(first, last), m, rng)
        first = last
    chosen = newer[:, 0].ravel()
    return np.concatenate((ends[:m], np.repeat(np.arange(m + 1, n), m))), np.concatenate((ends[m : 2 * m], chosen))


def _choose(ends: Integers, rows: Integers, m: int, rng: Generator) -> Integers:
    """Draw the choices of a block of new devices, int64[b, m]; repeated choices of a device are drawn again."""
    import numpy as np

    known = np.repeat(2 * m * (1 + rows), m)
    places = rng.integers(known)
    while True:
        chosen = ends[follow_choices(places, 2 * m * (1 + int(rows[0])), m)].reshape(-1, m)
        order = np.argsort(chosen, axis=1, kind="stable")
        ranked = np.take_along_axis(chosen, order, axis=1)
        repeated = np.zeros(chosen.shape, bool)
        np.put_along_axis(repeated, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1)
        if not repeated.any():
            return chosen
        places[repeated.ravel()] = rng.integers(known[repeated.ravel()])


def follow_choices(places: Integers, start: int, m: int) -> Integers:
    """Replace positions of choices within the current block, which begins at `start`, by the position chosen there."""
    import numpy as np

    resolved = places.copy()
    while True:
        chain = np.flatnonzero((resolved >= start) & ((resolved - start) // m % 2 == 0))
        if not len(chain):
            return resolved
        within = resolved[chain] - start
        resolved[chain] = resolved[within // (2 * m) * m + within % m]


def _keys(n: int, u: Integers, v: Integers) -> Integers:
    """Return a number for each link that does not depend on the order of its ends."""
    import numpy as np

    return np.minimum(u, v) * n + np.maximum(u, v)


def _holds(ordered: Integers, keys: Integers) -> Any:
    """Return for each key whether a sorted array contains it, bool[keys]."""
    import numpy as np

    if not len(ordered):
        return np.zeros(len(keys), bool)
    return ordered[np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)] == keys


def _is_first(keys: Integers) -> Any:
    """Return for each key whether it is the first with its value, bool[keys]."""
    import numpy as np

    ordered = np.sort(keys)
    # Few keys are repeated, so only these are sorted with their positions.
    repeated = np.flatnonzero(_holds(ordered[1:][ordered[1:] == ordered[:-1]], keys))
    first = np.ones(len(keys), bool)
    first[repeated] = False
    first[repeated[np.unique(keys[repeated], return_index=True)[1]]] = True
    return first
