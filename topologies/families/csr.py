"""Families as arrays, for very many devices: the same graphs as `regular` and `random`, without networkx.

Every function takes the options of the family of its name and returns a connected `CSRGraph`. Without chance it is
the same graph; drawn by chance it follows the same distribution, but the same seed gives another draw.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from topologies.csr_graph import CSRGraph, Integers, pack
from topologies.families import random as randomized
from topologies.families.random import (
    albert_options,
    draws,
    geometric_options,
    regular_options,
    small_world_options,
    unconnected,
)
from topologies.families.regular import sides, strides
from topologies.families.textbook import dimensions
from topologies.validation import whole

if TYPE_CHECKING:
    from numpy.random import Generator
else:
    Generator = Any

_TRIES = 100  # draws of a new end before a link stays where it is


def ring(n: int) -> CSRGraph:
    """Link every device with the next one, and the last with the first."""
    size = whole(n, "ring: n", 1)
    return _circulant(size, [1] if size > 1 else [], "ring")


def grid(n: int, *, rows: int | None = None) -> CSRGraph:
    """Link each device with those beside, above and below in rows of n / rows devices."""
    import numpy as np

    place = np.arange(n).reshape(sides(n, rows, "grid"))
    one, other = (place[:, :-1], place[:-1]), (place[:, 1:], place[1:])
    return pack(n, *(np.concatenate([part.ravel() for part in ends]) for ends in (one, other)), name="grid")


def torus(n: int, *, rows: int | None = None) -> CSRGraph:
    """Set the devices on a grid whose rows and columns are rings."""
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
    """Draw a ring where each device knows its `degree` nearest, some links moved to random ends (Watts-Strogatz)."""
    size, links, chance = small_world_options(n, degree, rewire)
    return _redraw(size, seed, lambda rng: rewire_lattice(size, links // 2, chance, rng), "small-world", "degree")


def random_regular(n: int, *, degree: int = 4, seed: int = 0) -> CSRGraph:
    """Draw a graph in which every device has the same degree (Steger and Wormald)."""
    size, links = regular_options(n, degree)
    if 2 * links >= size:  # nearly complete: nothing is light about it
        return CSRGraph.from_networkx(randomized.random_regular(n, degree=degree, seed=seed), "random-regular")
    return _redraw(size, seed, lambda rng: _pair(size, links, rng), "random-regular", "degree")


def barabasi_albert(n: int, *, m: int = 2, seed: int = 0) -> CSRGraph:
    """Grow a graph from a star of m + 1 devices: each new one links to m others, the well-linked preferred."""
    size, links = albert_options(n, m)
    return _redraw(size, seed, lambda rng: _grow(size, links, rng), "barabasi-albert", "m")


def random_geometric(n: int, *, radius: float | None = None, seed: int = 0) -> CSRGraph:
    """Throw the devices on the unit square and link those at most `radius` apart."""
    from scipy.spatial import cKDTree

    size, reach = geometric_options(n, radius)

    def draw(rng: Generator) -> tuple[Integers, Integers]:
        pairs = cKDTree(rng.random((size, 2))).query_pairs(reach, output_type="ndarray")
        return pairs[:, 0], pairs[:, 1]

    return _redraw(size, seed, draw, "random-geometric", "radius")


def _circulant(n: int, steps: list[int], name: str) -> CSRGraph:
    """Link every device with those so many steps before and after it, around a ring."""
    import numpy as np

    both = sorted({*steps, *(n - step for step in steps)})
    neighbors = (np.arange(n)[:, None] + np.array(both, np.int64)) % n
    neighbors.sort(axis=1)
    return CSRGraph(np.arange(n + 1) * len(both), neighbors.ravel(), name=name)


def _redraw(
    n: int, seed: int, draw: Callable[[Generator], tuple[Integers, Integers]], family: str, option: str
) -> CSRGraph:
    """Draw the ends of all links until the graph is connected."""
    from numpy.random import default_rng

    for drawn in draws(seed, family):
        graph = pack(n, *draw(default_rng(drawn)), name=family)
        if graph.connected:
            return graph
    raise unconnected(n, family, option)


def rewire_lattice(n: int, reach: int, chance: float, rng: Generator) -> tuple[Integers, Integers]:
    """Move links of a ring lattice to ends that are drawn uniformly, from the shortest to the longest."""
    import numpy as np

    u = np.tile(np.arange(n), reach)
    v = (u + np.repeat(np.arange(1, reach + 1), n)) % n
    gone = np.zeros(len(u), bool)  # from their place in the lattice, in the steps before
    drawn = np.zeros(0, np.int64)  # the links that they have become
    for step in range(reach):
        moving = step * n + np.flatnonzero(rng.random(n) < chance)
        left = [moving[:0]]
        for _ in range(_TRIES):
            if not len(moving):
                break
            ends = rng.integers(n, size=len(moving))
            keys = _keys(n, u[moving], ends)
            free = (ends != u[moving]) & ~_holds(drawn, keys) & _is_first(keys)
            free &= ~_in_lattice(n, reach, gone, u[moving], ends)  # those that move now, too: so one can stay
            v[moving[free]] = ends[free]
            drawn = np.sort(np.concatenate((drawn, keys[free])))
            left.append(moving[free])
            moving = moving[~free]
        gone[np.concatenate(left)] = True
    return u, v


def _in_lattice(n: int, reach: int, gone: Any, u: Integers, v: Integers) -> Any:
    """Return which of the links u[i] - v[i] are still where they were in the lattice."""
    import numpy as np

    ahead = (v - u) % n
    near = np.minimum(ahead, n - ahead)
    place = (near - 1) * n + np.where(ahead == near, u, v)
    found = (near > 0) & (near <= reach)
    found[found] = ~gone[place[found]]
    return found


def _pair(n: int, degree: int, rng: Generator) -> tuple[Integers, Integers]:
    """Pair loose ends at random, again and again, keep what makes a new link, and start over in a dead end."""
    import numpy as np

    while True:
        loose, keys = np.tile(np.arange(n), degree), np.zeros(0, np.int64)
        while len(loose) and not _is_stuck(n, degree, loose, keys):
            pairs = rng.permutation(loose).reshape(-1, 2)
            drawn = _keys(n, pairs[:, 0], pairs[:, 1])
            new = (pairs[:, 0] != pairs[:, 1]) & ~_holds(keys, drawn) & _is_first(drawn)
            keys, loose = np.sort(np.concatenate((keys, drawn[new]))), pairs[~new].ravel()
        if not len(loose):
            return keys // n, keys % n


def _is_stuck(n: int, degree: int, loose: Integers, keys: Integers) -> bool:
    """Return whether all devices with loose ends are linked with each other already."""
    import numpy as np

    devices = np.unique(loose) if len(loose) <= degree * degree else loose
    if len(devices) > degree:  # each has fewer links than there are others
        return False
    one, other = np.triu_indices(len(devices), 1)
    return bool(_holds(keys, _keys(n, devices[one], devices[other])).all())


def _grow(n: int, m: int, rng: Generator) -> tuple[Integers, Integers]:
    """Let every new device choose m distinct ones among the ends of all links there are.

    `ends` lists both ends of every link: those of the star, then, for each new device, the m that it chose and itself
    m times. A choice is a position in this list; blocks of new devices, each as long as all before, choose together.
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
    """Return the choices of a block of new devices, int64[b, m]; equal ones are drawn again."""
    import numpy as np

    known = np.repeat(2 * m * (1 + rows), m)
    places = rng.integers(known)
    while True:
        chosen = ends[follow_choices(places, 2 * m * (1 + int(rows[0])), m)].reshape(-1, m)
        order = np.argsort(chosen, axis=1, kind="stable")
        ranked = np.take_along_axis(chosen, order, axis=1)
        again = np.zeros(chosen.shape, bool)
        np.put_along_axis(again, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1)
        if not again.any():
            return chosen
        places[again.ravel()] = rng.integers(known[again.ravel()])


def follow_choices(places: Integers, start: int, m: int) -> Integers:
    """Replace places that hold a choice of this block, which begins at `start`, by the place that was chosen there."""
    import numpy as np

    found = places.copy()
    while True:
        chain = np.flatnonzero((found >= start) & ((found - start) // m % 2 == 0))
        if not len(chain):
            return found
        within = found[chain] - start
        found[chain] = found[within // (2 * m) * m + within % m]


def _keys(n: int, u: Integers, v: Integers) -> Integers:
    """Return one number for each link, whatever the order of its ends."""
    import numpy as np

    return np.minimum(u, v) * n + np.maximum(u, v)


def _holds(ordered: Integers, keys: Integers) -> Any:
    """Return for each key whether it is among the ordered ones, bool[keys]."""
    import numpy as np

    if not len(ordered):
        return np.zeros(len(keys), bool)
    return ordered[np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)] == keys


def _is_first(keys: Integers) -> Any:
    """Return for each key whether it is the first of its value, bool[keys]."""
    import numpy as np

    ordered = np.sort(keys)
    repeated = np.flatnonzero(_holds(ordered[1:][ordered[1:] == ordered[:-1]], keys))  # few
    first = np.ones(len(keys), bool)
    first[repeated] = False
    first[repeated[np.unique(keys[repeated], return_index=True)[1]]] = True
    return first
