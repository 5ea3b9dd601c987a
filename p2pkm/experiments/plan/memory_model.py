"""Model of the memory that each rank needs, the check against the free memory, and remedies if it does not suffice.

The constants are bytes per item, each fitted to the peak resident memory of measured runs.
"""

from typing import NamedTuple

from p2pkm.core.errors import DataError
from p2pkm.core.units import format_bytes
from p2pkm.experiments.plan.free_memory import LIMIT
from p2pkm.network.shared_arrays import SHARES

_PROGRAM = 180_000_000  # Python, libraries and compiled kernels
_COMPILER = 450_000_000  # in addition, if JAX trains networks

# Reading and distributing the points.
_READ = 20  # per point, while rank 0 generates and distributes all points
_READ_COPIES = 2  # copies of the points at that time
_DRAWN = 24  # per point of all ranks, while a rank draws the device of each point

# Points of a rank while the run lasts. Beyond _LABELED points, labels are not stored.
_POINT = 48
_LABELED = 10_000_000
_UNLABELED_POINT = 6

# Graph, per directed edge.
_EDGE = 37
_GLOBAL_EDGE = 8  # of it for edges of devices on other ranks
# Held once by the ranks of a machine: offset, degree, color, and parent and layer in the tree; neighbor at an edge.
_SHARED_DEVICE = 25
_SHARED_EDGE = 8
_EDGE_COUNTS = 16  # counts of the ledger, at the end
_EDGE_RESULT = 32  # counts, variation, source and reverse, which rank 0 gathers from several ranks
_EDGE_OBJECT = 250  # if the graph consists of Python objects, as in networkx
_OBJECT_DEVICES = 100_000  # number of devices up to which it does
_EDGE_MASK = 18  # while the edges in use of a time-varying graph are determined

# Devices.
_DEVICE = 400
_CENTROID_SETS = 3  # stored for each device
_ROUND_CENTROID_SETS = 2  # more of them during a round
# If candidates for the coupling are compared: per cluster of a device, and centroid sets.
_CANDIDATES = 420
_CANDIDATE_SETS = 9
# Freed arrays of 32 MB are returned to the system, which is one number for each of 4 million devices: above, less is
# retained per device.
_RETURNED_DEVICES = 4_000_000
_DEVICE_IF_RETURNED = 150

# Final evaluation; the limits are those of `p2pkm.metrics.cost_ratio`.
_DISTANCES = 1e9  # distances computed for the last record
_DISTANCES_WITH_BASELINES = 2e10
_MIN_EVALUATED_SETS = 16
_MAX_EVALUATED_POINTS = 4_000_000
_EVALUATED_RUNS = 62_500  # runs of consecutive points in a sample of them
_DEVICE_VISIT = 64  # distances that take as long as proceeding to the next device
_POOLED_VALUES = 2_000_000  # values on which central k-means works
_DIGEST = 64  # per device and record
_MAX_DIGESTS = 128_000_000  # bytes of all digests
_LAST_RECORD = 24  # per device

_RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # numbers of ranks that a remedy may suggest


class MemoryInputs(NamedTuple):
    """Inputs of the memory model.

    Attributes
    ----------
    points, features, devices, edges, clusters : int
        Sizes of the whole run; edges are directed.
    records : int
        Number of recorded rounds.
    baselines : bool
        Central k-means and the local-only baseline are computed.
    flooded_rows : int
        Rows of the table that each device floods; 0 without flooding.
    arriving_tables : float
        Flooded tables that arrive at a device in one exchange, mean over devices in the busiest exchange.
    halo : int
        Neighbors on other ranks, of the rank with the most.
    ranks : int
    value_bytes : int
        Bytes of a coordinate of a point.
    server_copies : int
        Copies of all points as tables with one additional column and 8 bytes per value, made by server methods.
    reader : {"first", "each", "drawn"}
        Reader of the points.

        * "first": rank 0 reads or generates all points.
        * "each": each rank reads its own points.
        * "drawn": as "each", after drawing the device of every point.
    graph_history_bytes : int
        Bytes in which each rank stores the rounds of a time-varying graph; 0 for a static graph.
    exchanges : int
        Exchanges for which the ledger stores the edges in use of a time-varying graph; 0 for a static graph.
    trains_networks : bool
        The method trains neural networks, which needs a compiler.
    compares_couplings : bool
        The coupling is chosen among candidates, whose centroids are kept.
    """

    points: int
    features: int
    devices: int
    edges: int
    clusters: int
    records: int = 2
    baselines: bool = False
    flooded_rows: int = 0
    arriving_tables: float = 0.0
    halo: int = 0
    ranks: int = 1
    value_bytes: int = 8
    server_copies: int = 0
    reader: str = "first"
    graph_history_bytes: int = 0
    exchanges: int = 0
    trains_networks: bool = False
    compares_couplings: bool = False


class MemoryEstimate(NamedTuple):
    """Bytes of one rank. The names of the fields are printed by ``p2pkm plan``.

    Attributes
    ----------
    program, points, graph, centroids, messages, monitor : int
        Held while the method runs.
    seeding : int
        Tables of a flood, in addition.
    rounds : int
        Arrays of a round, in addition.
    reading : int
        Points of all ranks while rank 0 distributes them, in addition to program and graph only.
    closing : int
        Final evaluation of centroids and baselines, and the counts of the ledger, in addition.
    gathering : int
        Result of all devices and final state of its own, which rank 0 holds in addition to program, graph and monitor:
        all else is freed before.
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
    gathering: int

    @property
    def resident(self) -> int:
        """Bytes held while the method runs."""
        return sum(self[:6])

    @property
    def peak(self) -> int:
        """Largest number of bytes at any time."""
        temporary = max(self.seeding, self.rounds, self.closing)
        graph = self.program + self.graph
        return max(self.resident + temporary, graph + self.reading, graph + self.monitor + self.gathering)


def estimate_memory(inputs: MemoryInputs, *, first: bool = True) -> MemoryEstimate:
    """Estimate the memory of a rank; `first` is rank 0, which also generates the points and stores the records."""
    m, d, n, e, k = inputs[:5]
    local_points, local_devices, local_edges = (-(-total // inputs.ranks) for total in (m, n, e))
    table = 8 * k * d
    per_device = _DEVICE if local_devices <= _RETURNED_DEVICES else _DEVICE_IF_RETURNED
    graph = 32 * n + _GLOBAL_EDGE * e + (_EDGE - _GLOBAL_EDGE) * local_edges
    if first and n <= _OBJECT_DEVICES and not inputs.graph_history_bytes:
        graph += _EDGE_OBJECT * e
    graph += inputs.graph_history_bytes
    centroids = local_devices * (per_device + _CENTROID_SETS * table)
    if inputs.compares_couplings:
        centroids += local_devices * (_CANDIDATES * k + _CANDIDATE_SETS * table)
    messages = 0
    if inputs.ranks > 1:
        messages = (local_devices + inputs.halo) * (table + 8 * (d + k + 1))
    flood = 0.0
    if inputs.flooded_rows:
        stored_rows = 2 * n + 2 * inputs.arriving_tables * local_devices
        flood = 4 * local_devices * n + inputs.flooded_rows * stored_rows * 8 * (d + 2)
    per_point = _POINT if m <= _LABELED else _UNLABELED_POINT
    return MemoryEstimate(
        program=_PROGRAM + _COMPILER * inputs.trains_networks,
        points=local_points * (inputs.value_bytes * d + 8 * inputs.server_copies * (d + 1) + per_point),
        graph=graph,
        centroids=centroids,
        messages=int(messages) + local_edges * inputs.exchanges,
        monitor=min(_DIGEST * n * inputs.records, _MAX_DIGESTS) + _LAST_RECORD * n if first else 0,
        seeding=int(flood),
        rounds=local_devices * _ROUND_CENTROID_SETS * table
        + 2 * local_edges * k
        + (_EDGE_MASK * e if inputs.graph_history_bytes else 0),
        reading=_estimate_reading(inputs, local_points, first=first),
        closing=_estimate_evaluation(inputs, local_devices, first=first) + _EDGE_COUNTS * local_edges,
        gathering=n * table + e * _EDGE_RESULT + local_devices * table if first and inputs.ranks > 1 else 0,
    )


def _estimate_reading(inputs: MemoryInputs, local_points: int, *, first: bool) -> int:
    """Estimate the bytes that a rank needs while points are generated or read."""
    m, d = inputs.points, inputs.features
    if inputs.reader == "first":
        return m * (_READ_COPIES * 8 * d + _READ) if first else 0
    return local_points * (inputs.value_bytes + 8) * d + (_DRAWN * m if inputs.reader == "drawn" else 0)


def _estimate_evaluation(inputs: MemoryInputs, local_devices: int, *, first: bool) -> int:
    """Estimate the bytes of the final evaluation: costs of each evaluated centroid set on each device, and the sets."""
    m, d, n, _, k = inputs[:5]
    distances = _DISTANCES_WITH_BASELINES if inputs.baselines else _DISTANCES
    per_set = max(min(m, _MAX_EVALUATED_POINTS) * k * d + _DEVICE_VISIT * n, 1)
    sets = min(n, max(int(distances / per_set), _MIN_EVALUATED_SETS)) + inputs.baselines
    gathers = first and inputs.ranks > 1
    pooled = 3 * 8 * min(_POOLED_VALUES, m * d) if inputs.baselines and first else 0
    # A sample of points belongs to some of the devices only.
    sampled = 1.0 if m <= _MAX_EVALUATED_POINTS else min(_MAX_EVALUATED_POINTS / m + _EVALUATED_RUNS / n, 1.0)
    evaluated = int(sampled * (local_devices + (n if gathers else 0)))
    return 8 * sets * evaluated + pooled


def machine_memory(inputs: MemoryInputs, local_ranks: int = 1) -> int:
    """Add the memory of the ranks that share a machine, one of which is rank 0; they hold the graph once."""
    further = estimate_memory(inputs, first=False).peak
    if SHARES:
        further -= _SHARED_DEVICE * inputs.devices + _SHARED_EDGE * inputs.edges
    return estimate_memory(inputs).peak + (local_ranks - 1) * further


def check_fits_memory(inputs: MemoryInputs, limit: int | None, local_ranks: int = 1) -> None:
    """Check that the ranks on this machine fit into its free memory.

    Parameters
    ----------
    inputs : MemoryInputs
    limit : int or None
        Bytes that are free; None: unknown, no check.
    local_ranks : int
        Number of ranks on this machine.

    Raises
    ------
    DataError
        If they need more than `limit`; the message lists remedies.
    """
    required = machine_memory(inputs, local_ranks)
    if limit is None or required <= limit:
        return
    ranks = "1 process" if inputs.ranks == 1 else f"{local_ranks} of {inputs.ranks} ranks"
    raise DataError(
        f"the run does not fit into memory: {ranks} would need {format_bytes(required)}; {format_bytes(limit)} is free "
        f"on this machine. Use {_join_words(list_remedies(inputs, limit, local_ranks))}. (Environment "
        f"variable {LIMIT}: {LIMIT}=8G sets the free memory, {LIMIT}=0 disables this check)"
    )


def list_remedies(inputs: MemoryInputs, limit: int, local_ranks: int = 1) -> list[str]:
    """List changes of the options each of which makes a run fit into memory, at least one."""
    remedies = []
    changes = {
        "--no-baselines": inputs._replace(baselines=False),
        "a larger --record-every": inputs._replace(records=2),
        "--dtype float32": inputs._replace(value_bytes=4),
        "--no-baselines and a larger --record-every": inputs._replace(baselines=False, records=2),
        "--init bounding-box": inputs._replace(flooded_rows=0),
        "--coupling strong": inputs._replace(compares_couplings=False),
    }
    for options, changed in changes.items():
        if changed != inputs and machine_memory(changed, local_ranks) <= limit:
            remedies.append(f"{options} ({format_bytes(machine_memory(changed, local_ranks))})")
    more_ranks = (r for r in _RANKS if r > inputs.ranks)
    ranks = next((r for r in more_ranks if estimate_memory(inputs._replace(ranks=r)).peak <= limit), None)
    if ranks is not None:
        remedies.append(f"{ranks} ranks on {ranks} machines like this one")
    if not remedies:
        smallest = inputs._replace(baselines=False, records=2, flooded_rows=0)
        fixed = machine_memory(smallest._replace(points=0), local_ranks)
        share = max((limit - fixed) / max(machine_memory(smallest, local_ranks), 1), 0.0)
        points = int(inputs.points * share)
        remedies.append(f"fewer points (about {points:,} fit)" if points else "fewer devices")
    return remedies


def _join_words(words: list[str]) -> str:
    """Join alternatives: "a, b or c"."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
