"""Registry of all metrics of a run; tables, files, reports, figures and documentation are made from it.

A metric that can be computed from the finished run is one function and one entry of `METRICS`. Ledger, channel and
engine supply the others, under the key of the entry.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import partial
from typing import Any, Literal

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.sorting import sum_by
from p2pkm.core.units import format_value
from p2pkm.metrics import closing_rows as rows
from p2pkm.metrics.alignment import distance_to_central, distance_to_neighbors
from p2pkm.metrics.milestones import MILESTONES, OF_CENTRAL, never_reached, write_rounds
from p2pkm.metrics.result import Result
from p2pkm.metrics.stream_figures import bytes_per_round, mean_excess, worst_excess


class ShownIn(Flag):
    """Outputs that show a metric, in addition to the summary and the documentation, which show all metrics."""

    # Row of the summary table, and of the report of a run.
    CLOSING = auto()
    # Column of the rows of a study or a comparison.
    STUDY = auto()
    # Mean over seeds: JSON of a comparison, reports of comparisons and studies.
    MEANS = auto()
    # Column of the table that `compare` prints.
    COMPARISON = auto()
    # Paired differences of a comparison.
    PAIRED = auto()
    # Column of the table that `sweep` prints.
    SWEEP = auto()
    # Mean, standard deviation and worst value over --seeds.
    SEEDS = auto()
    # Value in the rows of a coupling path.
    PATH = auto()
    # Card of a result in a notebook.
    CARD = auto()
    # Heat maps of a study.
    MAP = auto()


EVERYWHERE = ~(ShownIn.PATH | ShownIn.CARD | ShownIn.MAP)
_MEANS = ShownIn.STUDY | ShownIn.MEANS
_BYTES_LEGEND = "kB: 8 bytes for each value; kB encoded: messages as sent"
_MILESTONES_LEGEND = (
    "to own 1 %, to central 1 %: rounds of the method until the cost ratio stays within 1 % of its final value, or of "
    "central k-means; in parentheses, all rounds including the initialization"
)


@dataclass(frozen=True)
class Metric:
    """A metric of a run.

    Attributes
    ----------
    key : str
        Name in the summary and in the rows of studies.
    label : str
        Name in tables and on axes.
    meaning : str
        Explanation for a newcomer, in one sentence.
    unit : str
        Unit; empty for ratios, scores and text.
    per_device : bool
        Whether `compute` returns one value per device, which ``devices.npz`` and `Result.devices` contain.
    needs : str
        Condition under which a run has this metric; empty for none. A column without any value is left out then.
    better : {"", "lower", "higher"}
    tables : ShownIn
    title : str
        Title of the column in printed tables; empty for the label.
    form : str
        Format of a mean in printed tables.
    scale : float
        Divisor in printed tables, 1000 for kB.
    compute : callable, optional
        Function of the finished `Result`, identical on all ranks, that returns the value, or float64[n] over the
        devices (NaN: unknown), or None if it was not measured. None if another package supplies the value.
    reduce : callable
        Function of the known values of all devices that returns the value of the summary.
    over_runs : callable
        Function of the values of several runs that returns their common value.
    row : callable, optional
        Function of the summary that returns the row (value, meaning) of the summary table; for rows that combine
        metrics.
    cell : callable, optional
        Function of means over runs that returns the cell of a printed table; for cells that combine metrics.
    group : {"setup", "quality", "communication", "checks"}
        Heading of the row in the summary table.
    level : {"default", "option", "verbose"}
        "default": always in the summary table. "option": shown if the run has a value, which takes an option or a
        method that asks for it. "verbose": shown with ``--verbose``, and in reports.
    row_label : str
        Label in the summary table; empty for `label`.
    """

    key: str
    label: str
    meaning: str
    unit: str = ""
    per_device: bool = False
    needs: str = ""
    better: Literal["", "lower", "higher"] = ""
    tables: ShownIn = EVERYWHERE
    title: str = ""
    form: str = ".4g"
    scale: float = 1
    compute: Callable[[Result], Any] | None = None
    reduce: Callable[[Floats], float] = np.mean
    over_runs: Callable[[Floats], float] = np.mean
    row: Callable[[rows.Summary], rows.Row] | None = None
    cell: Callable[[Mapping[str, Any]], str] | None = None
    group: Literal["setup", "quality", "communication", "checks"] = "quality"
    level: Literal["default", "option", "verbose"] = "option"
    row_label: str = ""

    @property
    def column(self) -> str:
        """Title of the column in printed tables."""
        return self.title or self.label

    @property
    def heading(self) -> str:
        """Label and meaning, as a heading."""
        return f"{self.label[0].upper()}{self.label[1:]}: {self.meaning}"

    @property
    def axis(self) -> str:
        """Label of an axis, with the unit."""
        return self.label if not self.unit or self.unit in self.label else f"{self.label} ({self.unit})"

    def write_row(self, summary: rows.Summary) -> tuple[str, str, str]:
        """Format the row (label, value, meaning) of the summary table; a value of "-" hides it."""
        value, meaning = self.row(summary) if self.row else (format_value(summary[self.key]), self.meaning)
        return self.row_label or self.label, value, meaning

    def write_mean(self, means: Mapping[str, Any]) -> str:
        """Format the cell in a printed table of means over runs."""
        if self.cell is not None:
            return self.cell(means)
        if never_reached(means, self.key):
            return "never"
        value = means[self.key]
        return "-" if value is None else format(value / self.scale, self.form)


def _count_bytes(result: Result) -> Floats:
    """Count the bytes that each device and the server sent and received, float64[n]."""
    ledger = result.ledger
    return sum_by(ledger.src, ledger.bytes, ledger.devices) + sum_by(ledger.dst, ledger.bytes, ledger.devices)


def _count_encoded(result: Result) -> Floats:
    """Count the encoded bytes that each device and the server sent and received, float64[n]."""
    ledger = result.ledger
    sent, received = (sum_by(end, ledger.wire_bytes, ledger.devices) for end in (ledger.src, ledger.dst))
    return sent + received


def _count_centroids(result: Result) -> Floats:
    """Count the finite centroids of each device and of the server.

    NaN for Byzantine devices, and for devices with neither points nor centroids.
    """
    counts = np.isfinite(result.centroids[:, :, 0]).sum(axis=1).astype(np.float64)
    counts[(counts == 0.0) & (result.census.sizes == 0)] = np.nan
    if result.byzantine is not None:
        counts[result.byzantine] = np.nan
    server = result.server_centroids
    return counts if server is None else np.append(counts, np.count_nonzero(np.isfinite(server[:, 0])))


def _read_silhouettes(result: Result) -> Floats | None:
    """Return the mean silhouette of the points of each device, float64[n]; NaN without points in the sample."""
    return result.census.device_silhouettes


def _find_worst_silhouette(result: Result) -> str | None:
    """Return the name or number of the device with the lowest mean silhouette."""
    means = result.census.device_silhouettes
    return None if means is None else result.topology.label(int(np.nanargmin(means)))


_NONE = ShownIn(0)
_CLOSING = ShownIn.CLOSING
# Values of `needs`.
_LABELS = "true labels"
_SERVER = "a server"
_CENTRAL = "the central baseline"
_FAULTS = "`--faults`"
_STREAM = "`--stream`"
_OBJECTIVE = "an objective (GTVMin, tree Lloyd)"
_LINK_MODEL = "`--link-model`"
_SILHOUETTE = "`--silhouette`"
_GTVMIN = "GTVMin"
_PRIVATE = "`private` or `feddp`"
_TO_FINAL = "until the mean cost ratio stays within 1 % of its final value"
_TO_CENTRAL = "until the mean cost ratio stays within 1 % of central k-means"
# Groups and levels of rows of the summary table.
_SETUP: dict[str, Any] = {"group": "setup", "level": "verbose"}
_NAMED: dict[str, Any] = {"group": "setup", "level": "option"}
_QUALITY: dict[str, Any] = {"group": "quality", "level": "verbose"}
_TRAFFIC: dict[str, Any] = {"group": "communication", "level": "verbose"}
_CHECKS: dict[str, Any] = {"group": "checks", "level": "verbose"}
_DEFAULT: dict[str, Any] = {"level": "default"}
_OPTION: dict[str, Any] = {"level": "option"}

METRICS: tuple[Metric, ...] = (
    # what was run
    Metric("algorithm", "method", "method, with the parameters that were set", tables=ShownIn.CARD),
    Metric("graph", "graph", "communication graph", tables=ShownIn.CARD),
    Metric("devices", "devices", "number of devices, without the server", unit="devices",
           tables=_CLOSING | ShownIn.CARD, row=rows.format_devices, **_NAMED),
    Metric("device_names", "device names", "names of the devices", needs="data with names", tables=_NONE),
    Metric("feature_names", "features", "names of the features", needs="data with names", tables=_CLOSING,
           row=rows.format_features, **_NAMED),
    Metric("ranks", "ranks", "number of MPI ranks", unit="ranks", tables=_NONE),
    Metric("rank_partition", "rank partition", "assignment of devices to MPI ranks", needs="several ranks",
           tables=_NONE),
    Metric("edge_cut", "edge cut", "links between devices of different ranks", "links", needs="several ranks",
           tables=_NONE),
    Metric("halo_size", "halo size", "devices whose messages a rank receives from other ranks, over all ranks",
           "devices", needs="several ranks", tables=_NONE),
    Metric("load_imbalance", "load imbalance", "most points on a rank over the mean", needs="several ranks",
           tables=_NONE),
    Metric("load_imbalance_devices", "load imbalance of devices", "most devices on a rank over the mean",
           needs="several ranks", tables=_NONE),
    Metric("clusters", "clusters", "number of clusters k", unit="clusters", tables=ShownIn.CARD),
    Metric("k_chosen", "k chosen", "number of clusters chosen by the devices", unit="clusters", needs="`-k auto`",
           tables=_CLOSING, row=rows.format_k, **_SETUP | _OPTION),
    Metric("k_verdict", "verdict on k", "clear, unclear, or none: no clear clusters, k is 1", needs="`-k auto`",
           tables=_NONE),
    Metric("k_preferred", "k preferred", "number of clusters that each index prefers", needs="`-k auto`",
           tables=_NONE),
    Metric("k_indices", "indices of k", "cost and indices for every number of clusters from 1 on", needs="`-k auto`",
           tables=_NONE),
    Metric("data", "data", "source of the points", tables=_NONE),
    Metric("partition", "partition", "assignment of points to devices", tables=_NONE),
    Metric("init", "initialization", "initialization of the centroids", tables=_NONE),
    Metric("coupling", "coupling", "link strength without unit: weight of the differences between neighbors",
           needs=_GTVMIN, tables=_CLOSING, row=rows.format_coupling, **_SETUP),
    Metric("coupling_choice", "choice of the coupling", "source of the coupling: given, usual, auto or rehearsal",
           needs=_GTVMIN, tables=_NONE),
    Metric("alpha", "alpha", "link strength in the objective, in units of point weight", needs=_GTVMIN, tables=_NONE),
    Metric("schedule", "schedule", "order in which devices update", tables=_NONE),
    Metric("relaxation", "relaxation", "relaxation factor of the centroid update", needs=_GTVMIN, tables=_NONE),
    Metric("local_steps", "local steps", "Lloyd iterations per turn", tables=_NONE),
    Metric("seed", "seed", "random seed", tables=_NONE),
    # quality
    Metric("ratio_mean", "cost ratio, mean device",
           "cost on the pooled points divided by that of central k-means, mean of devices", needs=_CENTRAL,
           better="lower", title="ratio", form=".4f", tables=EVERYWHERE | ShownIn.PATH | ShownIn.CARD | ShownIn.MAP,
           row=rows.format_quality, row_label="cost ratio", **_QUALITY | _DEFAULT),
    Metric("ratio_start", "initial cost ratio", "mean cost ratio before the first round of the method",
           needs=_CENTRAL, better="lower", form=".4f", tables=_MEANS | _CLOSING, row=rows.format_start, **_QUALITY),
    Metric("excess_predicted", "predicted excess",
           "expected increase of the mean cost ratio by sampling noise at this coupling on this graph, with fixed "
           "labels; where clusters overlap, labels change and the ratio is higher", needs=_GTVMIN, better="lower",
           tables=_CLOSING | ShownIn.STUDY, row=rows.format_excess, **_QUALITY),
    Metric("ratio_best", "lowest cost ratio", "lowest mean cost ratio of all recorded rounds", needs=_CENTRAL,
           better="lower", tables=_MEANS | _CLOSING, row=rows.format_quality_loss, **_QUALITY),
    Metric("ratio_best_stage", "stage of the lowest ratio", "stage in which the lowest ratio was reached",
           needs=_CENTRAL, tables=ShownIn.STUDY),
    Metric("ratio_best_round", "round of the lowest ratio", "last round of that stage with the lowest ratio", ""
           "round", needs=_CENTRAL, tables=ShownIn.STUDY),
    Metric("ratio_worst", "cost ratio, worst device", "cost ratio of the worst device", needs=_CENTRAL,
           better="lower", title="worst", form=".4f", over_runs=np.max,
           tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.SEEDS | ShownIn.PATH | ShownIn.CARD,
           row=rows.format_worst, **_QUALITY),
    Metric("cost_mean", "cost, mean device", "cost on the pooled points, mean of devices", unit="squared distance",
           better="lower", tables=ShownIn.STUDY),
    Metric("cost_worst", "cost, worst device", "cost of the worst device on the pooled points",
           unit="squared distance", better="lower", over_runs=np.max, tables=ShownIn.STUDY),
    Metric("cost_central", "cost of central k-means", "cost of central k-means on the pooled points",
           unit="squared distance", needs=_CENTRAL, better="lower", tables=ShownIn.STUDY),
    Metric("ratio_local_only", "local-only baseline", "cost ratio without communication", needs=_CENTRAL,
           better="lower", tables=_CLOSING | ShownIn.STUDY, **_QUALITY | _DEFAULT),
    Metric("objective", "objective", "cost of all devices and the penalties of all links", "squared distance",
           needs=_OBJECTIVE, better="lower", tables=ShownIn.SEEDS | ShownIn.PATH),
    Metric("ari", "ARI against true labels", "agreement with true labels (1 = perfect)", needs=_LABELS,
           better="higher", title="ARI", form=".3f", tables=EVERYWHERE | ShownIn.PATH | ShownIn.CARD, row_label="ARI",
           **_QUALITY | _DEFAULT),
    Metric("nmi", "NMI against true labels", "normalized mutual information, mean of devices (1 = perfect)",
           needs=_LABELS, better="higher", tables=_NONE),
    Metric("purity", "purity", "share of points in the majority class of their cluster, mean of devices",
           needs=_LABELS, better="higher", tables=_NONE),
    Metric("ari_clients", "ARI, local points", "of each device on its local points, mean weighted by points",
           needs=_LABELS, better="higher", tables=_CLOSING | ShownIn.STUDY, **_QUALITY),
    Metric("nmi_clients", "NMI, local points", "of each device on its local points, mean weighted by points",
           needs=_LABELS, better="higher", tables=_NONE),
    Metric("purity_clients", "purity, local points", "of each device on its local points, mean weighted by points",
           needs=_LABELS, better="higher", tables=_NONE),
    Metric("silhouette", "silhouette", "of all points, or of a sample of 5,000 (1 = best)", needs=_SILHOUETTE,
           better="higher", tables=_CLOSING, **_QUALITY | _OPTION),
    Metric("simplified_silhouette", "simplified silhouette", "from distances to centroids only", needs=_SILHOUETTE,
           better="higher", tables=_CLOSING, **_QUALITY | _OPTION),
    Metric("silhouette_worst", "silhouette, worst device", "lowest mean over the points of a device (1 = best)",
           per_device=True, needs=_SILHOUETTE, better="higher", tables=_CLOSING, compute=_read_silhouettes,
           reduce=np.min, over_runs=np.min, row=rows.format_silhouettes, **_QUALITY | _OPTION),
    Metric("silhouette_worst_device", "device with the worst silhouette", "name or number", needs=_SILHOUETTE,
           tables=_NONE, compute=_find_worst_silhouette),
    Metric("l2_centers", "distance to true centers", "Frobenius norm after matching", needs="`--true-centers`",
           better="lower", tables=_CLOSING, **_QUALITY | _OPTION),
    Metric("loss_local", "cost ratio via local centroids",
           "points labeled by the server centroid nearest to their local centroid", needs=_SERVER, better="lower",
           tables=_NONE),
    Metric("loss_global", "cost ratio at the server", "points labeled by the nearest server centroid", needs=_SERVER,
           better="lower", tables=_NONE),
    Metric("gtv", "disagreement", "total variation between neighbors (0 = consensus)", "squared distance",
           better="lower", title="GTV", tables=_CLOSING | ShownIn.STUDY | ShownIn.PATH, **_QUALITY),
    Metric("consensus_distance", "distance to consensus",
           "from each centroid to the nearest one of the best device, root mean square over devices; unlike xi_2 it "
           "ignores repeated and absent centroids", better="lower", tables=_NONE),
    Metric("central_deviation", "deviation from central",
           "xi_1: mean squared distance of centroids to those of central k-means, matched one to one",
           "squared distance", per_device=True, needs=_CENTRAL, better="lower", title="xi_1", tables=_MEANS,
           compute=distance_to_central),
    Metric("consensus_variation", "consensus variation",
           "xi_2: mean squared distance of centroids to those of neighbors, matched one to one", "squared distance",
           per_device=True, better="lower", title="xi_2", tables=_MEANS, compute=distance_to_neighbors),
    Metric("centroid_sets", "distinct models", "number of different centroid sets", unit="models",
           tables=_CLOSING | ShownIn.PATH, row=rows.format_models, **_QUALITY),
    Metric("centroids_held", "centroids", "smallest number of centroids of a device or the server", unit="centroids",
           per_device=True, better="higher", compute=_count_centroids, reduce=np.min, over_runs=np.min,
           tables=_CLOSING | ShownIn.STUDY, row=rows.format_centroids, **_QUALITY | _OPTION),
    Metric("groups", "groups", "groups of devices with separate clusterings", unit="groups",
           needs="GTVMin, or tree Lloyd with `--groups`", tables=_CLOSING, row=rows.format_groups,
           **_SETUP | _OPTION),
    Metric("groups_ari", "ARI of groups", "agreement with the true groups of devices (1 = perfect)",
           needs="known groups", better="higher", tables=_CLOSING, **_QUALITY | _OPTION),
    # what it takes
    Metric("messages", "messages", "over all links, including initialization", unit="messages", better="lower",
           form=".0f", tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.PATH | ShownIn.CARD,
           row=rows.format_messages, **_TRAFFIC | _DEFAULT),
    Metric("bytes", "bytes", "8 for each value that was sent", unit="bytes", better="lower", title="kB", form=".1f",
           scale=1000, tables=EVERYWHERE | ShownIn.PATH | ShownIn.CARD, **_TRAFFIC),
    Metric("wire_bytes", "encoded bytes", "after encoding, whole bytes per message", unit="bytes", better="lower",
           title="kB encoded", form=".1f", scale=1000,
           tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.SWEEP, row=rows.format_wire, **_TRAFFIC),
    Metric("quantize", "encoding", "integer encoding of the messages; null for real numbers", tables=_CLOSING,
           row=rows.format_integers, **_TRAFFIC),
    Metric("bytes_busiest", "bytes of the busiest device",
           "largest number of bytes that a device or the server sent and received", unit="bytes", per_device=True,
           better="lower", title="kB busiest", form=".1f", scale=1000, compute=_count_bytes, reduce=np.max,
           tables=_MEANS | ShownIn.COMPARISON | ShownIn.PAIRED),
    Metric("wire_bytes_busiest", "encoded bytes of the busiest device",
           "largest number of encoded bytes that a device or the server sent and received", unit="bytes",
           per_device=True, better="lower", compute=_count_encoded, reduce=np.max, tables=ShownIn.STUDY),
    Metric("rows_max_per_device", "rows of the busiest device",
           "largest number of rows that a device or the server sent and received", unit="rows", tables=ShownIn.STUDY),
    Metric("virtual_seconds", "simulated time", "on the link model", "s", needs=_LINK_MODEL, better="lower",
           title="simulated s", tables=_MEANS | _CLOSING | ShownIn.COMPARISON, row=rows.format_time,
           **_TRAFFIC | _OPTION),
    Metric("link_model", "link model", "model of links and devices for the simulated time", needs=_LINK_MODEL,
           tables=_NONE),
    Metric("age_mean", "mean age of messages", "on receipt", "s", needs="`--link-model` and `--schedule async`",
           tables=_NONE),
    Metric("age_max", "largest age of messages", "on receipt", "s", needs="`--link-model` and `--schedule async`",
           tables=_NONE),
    Metric("wall_seconds", "elapsed time", "on this machine, without compilation", "s", tables=ShownIn.STUDY),
    Metric("compile_seconds", "compilation", "of kernels, once per machine", "s", tables=_NONE),
    # how it went
    Metric("rounds", "rounds", "rounds of the method", unit="rounds", better="lower", form=".1f",
           tables=EVERYWHERE & ~ShownIn.PAIRED | ShownIn.PATH | ShownIn.CARD, row=rows.format_rounds,
           **_TRAFFIC | _DEFAULT),
    Metric("termination", "termination", "reason for the end of the run",
           tables=ShownIn.STUDY | ShownIn.PATH | ShownIn.CARD),
    Metric("rounds_before", "initialization rounds", "rounds of all stages before the method; their messages count",
           unit="rounds", tables=_CLOSING, row=rows.format_before, **_TRAFFIC),
    Metric("method_rounds_to_1pct", "rounds to final 1 %", f"rounds of the method {_TO_FINAL}", unit="rounds",
           needs=_CENTRAL, better="lower", title="to own 1 %", row=rows.format_own,
           cell=partial(write_rounds, form=".1f"),
           tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.SWEEP | ShownIn.MAP, **_TRAFFIC),
    Metric("rounds_to_1pct", "rounds to final 1 %, with initialization", f"rounds of all stages {_TO_FINAL}",
           unit="rounds", needs=_CENTRAL, better="lower", tables=_MEANS | ShownIn.MAP),
    Metric("method_rounds_to_1pct_of_central", "rounds to central 1 %", f"rounds of the method {_TO_CENTRAL}",
           unit="rounds", needs=_CENTRAL, better="lower", title="to central 1 %", row=rows.format_central,
           cell=partial(write_rounds, goal=OF_CENTRAL, form=".1f"),
           tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.SWEEP | ShownIn.MAP, **_TRAFFIC),
    Metric("rounds_to_1pct_of_central", "rounds to central 1 %, with initialization",
           f"rounds of all stages {_TO_CENTRAL}", unit="rounds", needs=_CENTRAL, better="lower",
           tables=_MEANS | ShownIn.MAP),
    Metric("bytes_to_1pct", "bytes to final 1 %", f"bytes of all stages {_TO_FINAL}", unit="bytes", needs=_CENTRAL,
           better="lower", title="kB to own 1 %", form=".1f", scale=1000, tables=_MEANS | ShownIn.COMPARISON),
    Metric("bytes_to_1pct_of_central", "bytes to central 1 %", f"bytes of all stages {_TO_CENTRAL}", unit="bytes",
           needs=_CENTRAL, better="lower", title="kB to central 1 %", form=".1f", scale=1000,
           tables=_MEANS | ShownIn.COMPARISON),
    Metric("seconds_to_1pct", "time to final 1 %", f"simulated time of all stages {_TO_FINAL}", "s",
           needs=_LINK_MODEL, better="lower", title="s to own 1 %",
           tables=_MEANS | ShownIn.COMPARISON | ShownIn.SWEEP),
    Metric("seconds_to_1pct_of_central", "time to central 1 %", f"simulated time of all stages {_TO_CENTRAL}", "s",
           needs=_LINK_MODEL, better="lower", title="s to central 1 %",
           tables=_MEANS | ShownIn.COMPARISON | ShownIn.SWEEP),
    Metric("convergence_rate", "convergence rate", "fitted factor per round of the distance to the final objective",
           needs=_OBJECTIVE, better="lower", tables=_CLOSING, **_CHECKS),
    Metric("distance_left", "distance to limit",
           "estimated remaining centroid change, in standard deviations of the data", needs=_OBJECTIVE,
           better="lower", tables=_CLOSING, **_CHECKS),
    Metric("descent", "descent",
           "certified, not claimed or violated: whether the objective never increased, as guaranteed",
           needs=_OBJECTIVE, tables=_CLOSING | ShownIn.STUDY | ShownIn.PATH | ShownIn.CARD, row=rows.format_descent,
           **_CHECKS | _DEFAULT),
    # faults, adversaries and disclosure
    Metric("faults", "faults", "fault model", needs=_FAULTS, tables=_NONE),
    Metric("stale_policy", "stale policy", "use of outdated neighbor tables", needs=_FAULTS, tables=_NONE),
    Metric("messages_lost", "messages lost", "messages lost in transit", "messages", needs=_FAULTS, better="lower",
           tables=_CLOSING | ShownIn.STUDY, row=rows.format_lost, **_TRAFFIC | _OPTION),
    Metric("unavailable_fraction", "unavailable devices", "share of the devices, mean over rounds", needs=_FAULTS,
           better="lower", tables=_CLOSING | ShownIn.STUDY, **_TRAFFIC | _OPTION),
    Metric("byzantine", "Byzantine devices", "number and behavior of Byzantine devices", needs="`--byzantine`",
           tables=_NONE),
    Metric("messages_rejected", "messages rejected", "non-finite or malformed messages, never used", "messages",
           better="lower", tables=_CLOSING | ShownIn.STUDY, row=rows.format_rejected, **_TRAFFIC | _OPTION),
    Metric("noise", "noise", "standard deviation of the Gaussian noise on every row sent; no privacy guarantee",
           "standard deviations of the points", needs="`--noise`", tables=_CLOSING, **_CHECKS | _OPTION),
    Metric("min_cluster_size", "minimum cluster size", "smaller clusters are suppressed in all messages", "points",
           tables=_CLOSING, row=rows.format_suppression, **_CHECKS | _OPTION),
    Metric("raw_points_disclosed", "disclosed points", "local points sent unchanged", "points", better="lower",
           tables=_CLOSING | ShownIn.STUDY, row=rows.format_disclosed, **_CHECKS | _DEFAULT),
    Metric("max_peers_observed", "devices observed", "most other devices whose data reached one device (upper "
           "bound)", "devices", better="lower", tables=_CLOSING, **_CHECKS),
    Metric("rows_at_server", "rows at the server", "rows in the last server aggregation", unit="rows", needs=_SERVER,
           tables=_CLOSING, **_TRAFFIC),
    Metric("epsilon", "differential privacy", "epsilon of the guarantee for each point, or device", needs=_PRIVATE,
           better="lower", tables=_CLOSING | ShownIn.STUDY, row=rows.format_privacy, **_CHECKS | _OPTION),
    Metric("delta", "delta", "delta of the guarantee for each point", needs=_PRIVATE, tables=_NONE),
    Metric("mu", "mu", "parameter mu of Gaussian differential privacy, for all sums together", needs=_PRIVATE,
           better="lower", tables=_NONE),
    Metric("epsilon_alone", "if all others collude",
           "epsilon for the points of one device against all others together, at the same delta", needs=_PRIVATE,
           better="lower", tables=_CLOSING, row=rows.format_alone, **_CHECKS | _OPTION),
    Metric("noise_count", "noise",
           "standard deviation of the noise on the number of points in a cluster, in the last sums (with 0 steps: "
           "in a cell)", unit="points", needs=_PRIVATE, better="lower", tables=_CLOSING, row=rows.format_count_noise,
           **_CHECKS | _OPTION),
    Metric("trust", "trust", "trust model: masks, none or server", needs=_PRIVATE, tables=_NONE),
    Metric("curious", "curious devices", "number of colluding devices that the guarantee tolerates", unit="devices",
           needs=_PRIVATE, tables=_NONE),
    Metric("points_per_device", "points per device",
           "points whose contribution limits that of a device, with relation=device", "points", needs=_PRIVATE,
           tables=_NONE),
    Metric("server_points", "points at the server",
           "points per cluster that the server holds, which the guarantee does not protect", "points", needs=_PRIVATE,
           tables=_NONE),
    Metric("relation", "relation",
           "neighboring data sets differ by adding, removing or replacing one point, or by all points of a device",
           needs=_PRIVATE, tables=_CLOSING, row=rows.format_published, row_label="may be published",
           **_CHECKS | _OPTION),
    Metric("noise_seed", "noise seed",
           "seed of noise and masks instead of a secret of the operating system; then the guarantee is void",
           needs=_PRIVATE, tables=_NONE),
    Metric("steps", "private steps", "Lloyd steps from noisy sums", needs=_PRIVATE, tables=_NONE),
    Metric("radius", "radius", "of the ball to which points are clipped, as set", "distance", needs=_PRIVATE,
           tables=_NONE),
    Metric("center", "center", "value of all coordinates of the center of that ball", "distance", needs=_PRIVATE,
           tables=_NONE),
    Metric("size", "size", "radius of the ball that contains nearly all points, found by the method", "distance",
           needs=_PRIVATE, tables=_NONE),
    # points that change
    Metric("stream", "stream", "changes of the points during the run", needs=_STREAM, tables=_NONE),
    Metric("stream_excess", "excess over a central refit",
           "mean cost ratio minus 1, against central k-means on the points of each round, mean over rounds",
           needs=_STREAM, better="lower", form=".4f", compute=mean_excess, tables=_MEANS | _CLOSING,
           **_QUALITY | _OPTION),
    Metric("stream_excess_worst", "excess in the worst round", "largest excess of a round", needs=_STREAM,
           better="lower", form=".4f", over_runs=np.max, compute=worst_excess, tables=_MEANS | _CLOSING,
           **_QUALITY | _OPTION),
    Metric("stream_bytes_per_round", "encoded bytes per round", "of the method, without initialization", unit="bytes",
           needs=_STREAM, better="lower", title="kB per round", form=".1f", scale=1000, compute=bytes_per_round,
           tables=_MEANS | _CLOSING, **_TRAFFIC | _OPTION),
    # what identifies it
    Metric("centroids_sha256", "hash of the centroids", "SHA-256 of the final centroids of all devices",
           tables=ShownIn.STUDY | ShownIn.PATH),
    Metric("chain_sha256", "hash of the rounds", "SHA-256 over all recorded rounds; `verify` compares it",
           tables=_NONE),
    Metric("out", "run folder", "folder with the files of the run", tables=_NONE),
)  # fmt: skip


def summary_keys() -> list[str]:
    """List the keys of a summary, in order."""
    return [metric.key for metric in METRICS]


def metrics_shown_in(table: ShownIn) -> list[Metric]:
    """List the metrics that an output shows, in order."""
    return [metric for metric in METRICS if table in metric.tables]


def keys(table: ShownIn) -> list[str]:
    """List the keys of the metrics that an output shows, in order."""
    return [metric.key for metric in metrics_shown_in(table)]


def find(key: str) -> Metric:
    """Return the metric of a key; for other columns, such as options, a metric with the key as its label."""
    matches = (metric for metric in METRICS if metric.key == key)
    return next(matches, Metric(key, key.replace("_", " "), "", tables=_NONE))


def columns(table: ShownIn, means: Sequence[Mapping[str, Any]]) -> list[Metric]:
    """List the columns of a printed table, without those whose condition no run fulfilled."""
    return [
        metric
        for metric in metrics_shown_in(table)
        if not metric.needs or any(row.get(metric.key) is not None for row in means)
    ]


def write_legend(metrics: Sequence[Metric]) -> list[str]:
    """Write the lines below a printed table that explain its columns."""
    shown = {metric.key for metric in metrics}
    return [_BYTES_LEGEND] * ("wire_bytes" in shown) + [_MILESTONES_LEGEND] * bool(shown & {*MILESTONES})


def measure(result: Result) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Compute the metrics that follow from a finished run: values of the summary, and values of all devices."""
    summary, devices = dict[str, Any](), dict[str, Floats]()
    for metric in METRICS:
        if metric.compute is None:
            continue
        value = metric.compute(result)
        if metric.per_device and value is not None:
            devices[metric.key] = value = np.asarray(value)
            known = value[~np.isnan(value)]
            value = metric.reduce(known) if len(known) else None
        summary[metric.key] = value.item() if isinstance(value, np.generic) else value
    return summary, devices
