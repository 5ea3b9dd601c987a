"""Memory: what every rank needs, what there is, and what to change where the first is more than the second."""

from typing import NamedTuple

from p2pkm.core.errors import DataError
from p2pkm.core.units import write_size
from p2pkm.experiments.plan.free_memory import LIMIT

_PROGRAM, _COMPILER = 180_000_000, 450_000_000  # Python, libraries and compiled kernels; JAX beside them
# Bytes, as measured: what a run holds of each point, link and device beside points and centroids; and how many copies
# of points and centroids there are at a time.
_READ, _READING, _DRAWN = 28, 2, 24  # per point while rank 0 makes and deals all; copies; while each rank draws whose
_HELD, _LABELED, _UNLABELED = 48, 10_000_000, 16  # from then on, up to so many points; of more, labels are not kept
_EDGE, _COUNTS, _OBJECT = 51, 40, 250  # per directed edge; counts in the end; more if the graph is of Python objects
_MASK = 18  # per directed edge, where it is looked at which of them are in use
_DEVICE, _TABLES, _MOVING = 400, 3, 5  # tables of centroids all the time, and more of them in a round
_RETURNED, _KEPT = 4_000_000, 200  # devices of which a number each, 32 MB, is given back when freed; per device then
_OBJECTS = 100_000  # devices up to which it does
# As in `p2pkm.metrics.cost_ratio`: distances that the last record takes, without and with baseline; sets that it prices
# at least, and points at most; what it costs to visit a device; values of the baseline.
_SAMPLE, _COMPARED, _LEAST, _PRICED, _VISIT, _POOLED = 1e9, 2e10, 16, 4_000_000, 64, 2_000_000
_DIGEST, _DIGESTS, _LAST = 64, 128_000_000, 24  # per device and record, so much at most; of the last record
_RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class MemoryInputs(NamedTuple):
    """What the memory of a run depends on.

    Attributes
    ----------
    points, features, devices, edges, clusters : int
        Of the whole run; edges are directed.
    records : int
        Rounds that are recorded.
    baselines : bool
    flooded : int
        Rows of the table of each device that is flooded, 0 if none is.
    swell : float
        Of these tables, how many arrive at a device at a time, on average in the busiest turn.
    ghosts : int
        Neighbors on other ranks, of the rank that has most.
    ranks : int
    word : int
        Bytes of a coordinate of a point.
    copies : int
        Tables of 8 bytes per number, one column wider than the points, that a method with a server makes of them.
    reading : {"first", "each", "drawn"}
        Who reads the points: rank 0 all of them, or every rank its own, and whether it draws for all whose they are.
    tape, exchanges : int
        Of a graph that changes: bytes in which every rank keeps its rounds, and exchanges whose links are kept for the
        ledger; 0 of other graphs.
    compiles : bool
        Whether networks are trained.
    """

    points: int
    features: int
    devices: int
    edges: int
    clusters: int
    records: int = 2
    baselines: bool = False
    flooded: int = 0
    swell: float = 0.0
    ghosts: int = 0
    ranks: int = 1
    word: int = 8
    copies: int = 0
    reading: str = "first"
    tape: int = 0
    exchanges: int = 0
    compiles: bool = False


class MemoryEstimate(NamedTuple):
    """Bytes of one rank: what it holds while the method runs, and what comes on top for a time.

    Attributes
    ----------
    program, points, graph, centroids, messages, monitor : int
        What it holds.
    seeding, rounds, reading, closing : int
        The tables of a flood; of a round; the points of all ranks while rank 0 makes and deals them (as a whole, in the
        place of all else but program and graph); the price of centroids in the end, or of the baseline, and what went
        over each edge.
    """

    program: int
    points: int
    graph: int
    centroids: int
    messages: int
    monitor: int
    seeding: int
    rounds: int
    reading: int
    closing: int

    @property
    def held(self) -> int:
        """Return what the rank holds while the method runs."""
        return sum(self[:6])

    @property
    def peak(self) -> int:
        """Return what the rank needs at a time, at most."""
        return max(self.held + max(self.seeding, self.rounds, self.closing), self.program + self.graph + self.reading)


def need(load: MemoryInputs, *, first: bool = True) -> MemoryEstimate:
    """Return what a rank needs; first: rank 0, which makes all points and keeps the records."""
    m, d, n, e, k = load[:5]
    own, mine, links = -(-m // load.ranks), -(-n // load.ranks), -(-e // load.ranks)
    table = 8 * k * d
    graph = 32 * n + 24 * e + (_EDGE - 24) * links
    if first and n <= _OBJECTS and not load.tape:
        graph += _OBJECT * e
    graph += load.tape
    messages = 2 * (mine + load.ghosts) * (table + 8 * (d + k + 1)) if load.ranks > 1 else 0
    flood = 4 * mine * n + load.flooded * (2 * n + 2 * load.swell * mine) * 8 * (d + 2) if load.flooded else 0
    return MemoryEstimate(
        program=_PROGRAM + _COMPILER * load.compiles,
        points=own * (load.word * d + 8 * load.copies * (d + 1) + (_HELD if m <= _LABELED else _UNLABELED)),
        graph=graph,
        centroids=mine * ((_DEVICE if mine <= _RETURNED else _KEPT) + _TABLES * table),
        messages=int(messages) + links * load.exchanges,
        monitor=min(_DIGEST * n * load.records, _DIGESTS) + _LAST * n if first else 0,
        seeding=int(flood),
        rounds=mine * _MOVING * table + 2 * links * k + (_MASK * e if load.tape else 0),
        reading=_read(load, own, first=first),
        closing=_price(load, mine, first=first) + _COUNTS * links,
    )


def _read(load: MemoryInputs, own: int, *, first: bool) -> int:
    """Return what a rank needs while the points are made or read, `own` of which it keeps."""
    m, d = load.points, load.features
    if load.reading == "first":
        return m * (_READING * 8 * d + _READ) if first else 0
    return own * (load.word + 8) * d + (_DRAWN * m if load.reading == "drawn" else 0)


def _price(load: MemoryInputs, mine: int, *, first: bool) -> int:
    """Return what a rank with so many devices needs to price centroids: costs of each set on each device, and sets."""
    m, d, n, _, k = load[:5]
    most = _COMPARED if load.baselines else _SAMPLE
    sets = min(n, max(int(most / max(min(m, _PRICED) * k * d + _VISIT * n, 1)), _LEAST)) + load.baselines
    several = load.ranks > 1
    pooled = 3 * 8 * min(_POOLED, m * d) if load.baselines and first else 0
    return 8 * sets * (mine + (n if first and several else 0)) + (n * 8 * k * d if several else 0) + pooled


def together(load: MemoryInputs, ranks: int = 1) -> int:
    """Return what so many of the ranks need, rank 0 among them, that share a machine."""
    return need(load).peak + (ranks - 1) * need(load, first=False).peak


def refuse(load: MemoryInputs, limit: int | None, here: int = 1) -> None:
    """Refuse a run if those of its ranks that are on this machine need more than there is.

    Raises
    ------
    DataError
        With what to change.
    """
    wanted = together(load, here)
    if limit is None or wanted <= limit:
        return
    ranks = "1 process" if load.ranks == 1 else f"{here} of {load.ranks} ranks"
    raise DataError(
        f"the run does not fit into memory: {ranks} would need {write_size(wanted)}, and {write_size(limit)} are free "
        f"here. {'; '.join(advise(load, limit, here))}. ({LIMIT}=8G sets how much there is, {LIMIT}=0: no check)"
    )


def advise(load: MemoryInputs, limit: int, here: int = 1) -> list[str]:
    """Return what would make a run fit, at least one thing."""
    found = []
    changes = {
        "--no-baselines": load._replace(baselines=False),
        "a larger --record-every": load._replace(records=2),
        "--dtype float32": load._replace(word=4),
        "--no-baselines and a larger --record-every": load._replace(baselines=False, records=2),
        "--init bounding-box": load._replace(flooded=0),
    }
    for what, other in changes.items():
        if other != load and together(other, here) <= limit:
            found.append(f"{what} would do: {write_size(together(other, here))}")
    enough = next((r for r in _RANKS if r > load.ranks and need(load._replace(ranks=r)).peak <= limit), None)
    if enough is not None:
        found.append(f"or {enough} ranks on as many machines like this one")
    if not found:
        least = load._replace(baselines=False, records=2, flooded=0)
        share = max((limit - together(least._replace(points=0), here)) / max(together(least, here), 1), 0.0)
        most = int(load.points * share)
        found.append(f"take fewer points (about {most:,} would fit)" if most else "take fewer devices")
    return found
