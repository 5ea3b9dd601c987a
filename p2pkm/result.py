"""What a run leaves behind, the same on every rank."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.devices import Floats, Integers
from p2pkm.topology import Topology

if TYPE_CHECKING:
    import networkx as nx

SUMMARY_KEYS = """
    algorithm graph devices ranks clusters data partition recipe seeding coupling alpha schedule theta passes seed
    rounds stop descent ratio_mean ratio_worst ratio_alone objective gtv ari nmi purity ari_local messages bytes
    rows_max_per_device centroid_sets centroids_sha256 chain_sha256 wall_seconds out
""".split()  # noqa: SIM905 - a list of names is read more easily as words


class Traffic(NamedTuple):
    """What was sent: totals of every directed edge, and the rows of every sender in every exchange.

    Attributes
    ----------
    src, dst, messages, rows, bytes : int64[e]
        Logical messages, rows and bytes over the edge from src to dst.
    stage, turn : int64[x]
        Stage and number of each exchange; turn 0 is the opening.
    said : int32[n, x] or None
        Rows that each device said, -1 = silent; None above 100,000 devices.
    """

    src: Integers
    dst: Integers
    messages: Integers
    rows: Integers
    bytes: Integers
    stage: Integers
    turn: Integers
    said: Any

    @property
    def rows_per_device(self) -> Integers:
        """Return how many rows each device sent and received, int64[n]."""
        n = int(max(self.src.max(initial=-1), self.dst.max(initial=-1))) + 1
        sent, received = (np.bincount(end, self.rows, minlength=n) for end in (self.src, self.dst))
        return (sent + received).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of a run.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Every device's centroids; absent rows are +inf.
    server_centroids : float64[k, d] or None
        The global model of a server method.
    rounds : list of dict
        What the referee recorded: rounds.jsonl of the run folder.
    summary : dict
        The closing JSON object of the command line.
    ledger : Traffic
        What was sent over each edge.
    topology : Topology
    notes : list of str
        What a reader of the figures should know, such as a sample that stands for the whole.
    """

    centroids: Floats
    server_centroids: Floats | None
    rounds: list[dict[str, Any]]
    summary: dict[str, Any]
    ledger: Traffic
    topology: Topology
    notes: list[str] = field(default_factory=list)

    @property
    def graph(self) -> "nx.Graph":
        """Return the communication graph with its devices as nodes 0 to n - 1 and the attribute `weight`."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(range(self.topology.n))
        ends = zip(self.topology.sources, self.topology.indices, self.topology.weights, strict=True)
        graph.add_weighted_edges_from((int(i), int(j), float(w)) for i, j, w in ends if i < j)
        return graph
