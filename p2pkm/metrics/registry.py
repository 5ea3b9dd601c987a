"""Registry of all metrics of a run; tables, files, reports, figures and documentation are made from it.

A metric that can be computed from the finished run is one function and one entry of `METRICS`. Ledger, channel and
engine supply the others, under the key of the entry.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Flag, auto
from functools import partial
from typing import Any, Literal

import numpy as np

from p2pkm.core.array_tree import read_only
from p2pkm.core.batch import Floats
from p2pkm.core.errors import ContractError, ExperimentError
from p2pkm.core.program_function import is_function, name_function
from p2pkm.core.sorting import sum_by
from p2pkm.core.units import format_value
from p2pkm.metrics import closing_rows as rows
from p2pkm.metrics.alignment import distance_to_central, distance_to_neighbors
from p2pkm.metrics.clustering import ari
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
    # Column of the table that `study` prints.
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
_BYTES_LEGEND = "kB plain: 8 bytes for each value; kB encoded: messages as encoded, which is what the links carry"
_MILESTONES_LEGEND = (
    "to final 1 %, to central 1 %: rounds of the method until the cost ratio stays within 1 % of its final value, or "
    "of central k-means; in parentheses, all rounds including the initialization"
)
_WORST_LEGEND = (
    "ratio: cost divided by that of central k-means, mean of devices and seeds; worst: that of the worst device in any "
    "seed"
)
_TESTS_LEGEND = (
    "ratio, ARI: one clustering for all devices; test: a clustering for each device, cost of its test points over that "
    "of a common clustering, of the device alone and of its true centers"
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

    def __post_init__(self) -> None:
        """Reject an unknown direction."""
        if self.better not in ("", "lower", "higher"):
            raise ContractError(f"better of metric {self.key} is {self.better!r}; expected 'lower', 'higher' or ''")

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


def _read_personal(name: str, result: Result) -> Floats | None:
    """Return scores of each device on its test points, float64[n]; None if they are not known for any device."""
    values = None if result.personal is None else getattr(result.personal, name)
    return None if values is None or np.isnan(values).all() else values


def _divide_personal(name: str, result: Result) -> float | None:
    """Divide the summed cost of test points by that of other centroids, see `PersonalScores.divide_by`."""
    return None if result.personal is None else result.personal.divide_by(getattr(result.personal, name))


def _compare_personal(result: Result) -> Floats | None:
    """Divide the test cost of each device by the better one of common clustering and device alone, float64[n]."""
    ratios = None if result.personal is None else result.personal.compare()
    return None if ratios is None or np.isnan(ratios).all() else ratios


def _count_better(result: Result) -> float | None:
    """Compute the share of devices with a lower test cost than the common clustering and the device alone have."""
    return None if result.personal is None else result.personal.share_better


def _count_tests(result: Result) -> int | None:
    """Count the test points of all devices."""
    return None if result.personal is None else int(result.personal.sizes.sum())


def _count_tested(result: Result) -> int | None:
    """Count the devices whose test cost is known."""
    return None if result.personal is None else int(np.count_nonzero(~np.isnan(result.personal.cost)))


def _score_all_tests(result: Result) -> float | None:
    """Compute the adjusted Rand index of the test points of all devices together, by common cluster numbers."""
    if result.personal is None or result.summary.get("no_correspondence"):
        return None
    table = result.personal.tabulate(result.cluster_numbers)
    score = np.nan if table is None else float(ari(table))
    return None if np.isnan(score) else score


def _average(values: Floats) -> float:
    """Average in the order of the devices."""
    return float(np.cumsum(values)[-1]) / len(values)


_NONE = ShownIn(0)
_CLOSING = ShownIn.CLOSING
# Values of `needs`.
_LABELS = "true labels"
_SERVER = "a server"
_CENTRAL = "the central baseline"
_FAULTS = "`--faults`"
_STREAM = "`--stream`"
_OBJECTIVE = "an objective (GTVMin, tree Lloyd)"
_AVERAGING = "`consensus`, `pushsum` or `tracking` on a static graph, without faults"
_TREE = "`treelloyd` without faults, or `fedlloyd`"
_LINK_MODEL = "`--link-model`"
_SILHOUETTE = "`--silhouette`"
_GTVMIN = "GTVMin"
_PRIVATE = "`private` or `feddp`"
_TESTS = "test points (`--test-share`)"
_TO_FINAL = "until the cost ratio stays within 1 % of its final value"
_TO_CENTRAL = "until the cost ratio stays within 1 % of central k-means"
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
    Metric("halo_size", "halo size", "devices of other ranks whose messages a rank receives, sum over ranks",
           "devices", needs="several ranks", tables=_NONE),
    Metric("load_imbalance", "load imbalance", "most points on a rank divided by the mean", needs="several ranks",
           tables=_NONE),
    Metric("load_imbalance_devices", "load imbalance of devices", "most devices on a rank divided by the mean",
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
    Metric("coupling", "coupling",
           "link strength without unit: weight of the differences between neighbors; mean of devices that differ in it",
           needs=_GTVMIN, tables=_CLOSING, row=rows.format_coupling, **_SETUP),
    Metric("coupling_choice", "choice of the coupling", "source of the coupling: given, usual, or the name of a choice",
           needs=_GTVMIN, tables=_NONE),
    Metric("coupling_chosen", "chosen coupling",
           "strong, bayes or links, with shares or without; several if components differ",
           needs="`coupling=auto`, `bayes` or `links`", tables=ShownIn.STUDY),
    Metric("alpha", "alpha", "link strength in the objective, in units of point weight", needs=_GTVMIN, tables=_NONE),
    Metric("schedule", "schedule", "order in which devices update", tables=_NONE),
    Metric("relaxation", "relaxation", "relaxation factor of the centroid update, if devices have the same",
           needs=_GTVMIN, tables=_NONE),
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
           "expected increase of the mean cost ratio by sampling noise, with fixed labels; where clusters overlap, it "
           "is higher", needs=_GTVMIN, better="lower",
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
           better="higher", title="ARI", form=".3f", tables=EVERYWHERE | ShownIn.PATH | ShownIn.CARD,
           row=rows.format_ari, row_label="ARI", **_QUALITY | _DEFAULT),
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
    Metric("test_points", "test points", "points that no stage of the run has seen", unit="points", needs=_TESTS,
           tables=_CLOSING, compute=_count_tests, **_QUALITY),
    Metric("test_devices", "devices with a test cost", "devices with test points and centroids", unit="devices",
           needs=_TESTS, tables=_CLOSING, compute=_count_tested, **_QUALITY),
    Metric("test_cost", "test cost",
           "mean squared distance of the test points of a device to its nearest centroid, mean of devices",
           "squared distance", per_device=True, needs=_TESTS, better="lower", tables=ShownIn.STUDY,
           compute=partial(_read_personal, "cost"), reduce=_average),
    Metric("test_cost_common", "test cost of a common clustering",
           "the same with the centroids of central k-means on all other points", "squared distance", per_device=True,
           needs=_TESTS, better="lower", tables=ShownIn.STUDY, compute=partial(_read_personal, "common"),
           reduce=_average),
    Metric("test_cost_alone", "test cost of devices alone",
           "the same with k-means on the other points of the device, best of ten", "squared distance",
           per_device=True, needs=_TESTS, better="lower", tables=ShownIn.STUDY,
           compute=partial(_read_personal, "alone"), reduce=_average),
    Metric("test_cost_centers", "test cost of the true centers", "the same with the true centers of the device",
           "squared distance", per_device=True, needs="test points and known centers", better="lower",
           tables=ShownIn.STUDY, compute=partial(_read_personal, "centers"), reduce=_average),
    Metric("test_ratio_common", "relative test cost",
           "summed test costs of the devices divided by those of a common clustering", needs=_TESTS, better="lower",
           title="test/common", form=".4f",
           tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.SWEEP | ShownIn.PAIRED,
           compute=partial(_divide_personal, "common"), row=rows.format_test_cost, row_label="relative test cost",
           **_QUALITY | _OPTION),
    Metric("test_ratio_alone", "test cost over alone",
           "summed test costs of the devices divided by those of the devices alone", needs=_TESTS, better="lower",
           title="test/alone", form=".4f", tables=_MEANS | ShownIn.COMPARISON | ShownIn.SWEEP,
           compute=partial(_divide_personal, "alone")),
    Metric("test_ratio_centers", "test cost over true centers",
           "summed test costs of the devices divided by those of their true centers",
           needs="test points and known centers", better="lower", title="test/true", form=".4f",
           tables=_MEANS | ShownIn.COMPARISON | ShownIn.SWEEP, compute=partial(_divide_personal, "centers")),
    Metric("test_ratio_worst", "test cost, worst device",
           "largest test cost of a device over the lower one of the common clustering and the device alone",
           per_device=True, needs=_TESTS, better="lower", form=".4f", over_runs=np.max, tables=_MEANS,
           compute=_compare_personal, reduce=np.max),
    Metric("test_better", "devices better than both",
           "share of the devices with a lower test cost than a common clustering and the device alone", needs=_TESTS,
           better="higher", form=".3f", tables=_MEANS, compute=_count_better),
    Metric("test_ari", "test ARI",
           "agreement of the labels of the test points of a device with true labels, mean of devices (1 = perfect)",
           per_device=True, needs="test points and true labels", better="higher", form=".3f",
           tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.SWEEP, compute=partial(_read_personal, "ari"),
           reduce=_average, row=rows.format_test_ari, **_QUALITY | _OPTION),
    Metric("test_ari_all", "test ARI over all",
           "the same for the test points of all devices together, with the cluster numbers that neighbors share",
           needs="test points and true labels", better="higher", form=".3f",
           tables=_MEANS | ShownIn.COMPARISON | ShownIn.SWEEP, compute=_score_all_tests),
    Metric("no_correspondence", "no common cluster numbers",
           "reason why cluster c need not be the same cluster at all devices; null if it is",
           needs="a method or a graph without common numbers", tables=_NONE),
    Metric("gtv", "disagreement", "total variation between neighbors (0 = consensus)", "squared distance",
           better="lower", title="GTV", tables=_CLOSING | ShownIn.STUDY | ShownIn.PATH, **_QUALITY),
    Metric("consensus_distance", "distance to consensus",
           "root mean square distance of each centroid to the nearest one of the best device; unlike the variation it "
           "ignores repeated and absent centroids", better="lower", tables=_NONE),
    Metric("central_deviation", "deviation from central",
           "mean squared distance of centroids to those of central k-means, matched one to one (column xi_1)",
           "squared distance", per_device=True, needs=_CENTRAL, better="lower", title="xi_1", tables=_MEANS,
           compute=distance_to_central),
    Metric("consensus_variation", "consensus variation",
           "mean squared distance of centroids to those of neighbors, matched one to one (column xi_2)",
           "squared distance", per_device=True, better="lower", title="xi_2", tables=_MEANS,
           compute=distance_to_neighbors),
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
    Metric("messages", "messages", "number over all links, with initialization", unit="messages", better="lower",
           form=".0f", tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.PATH | ShownIn.CARD,
           row=rows.format_messages, **_TRAFFIC | _DEFAULT),
    Metric("bytes", "plain bytes", "8 for each value that was sent, before any encoding", unit="bytes", better="lower",
           title="kB plain", form=".1f",
           scale=1000, tables=EVERYWHERE | ShownIn.PATH | ShownIn.CARD, **_TRAFFIC),
    Metric("wire_bytes", "encoded bytes", "after encoding, whole bytes per message", unit="bytes", better="lower",
           title="kB encoded", form=".1f", scale=1000,
           tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.SWEEP, row=rows.format_wire, **_TRAFFIC),
    Metric("quantize", "encoding", "integer encoding of the messages; null for real numbers", tables=_CLOSING,
           row=rows.format_integers, **_TRAFFIC),
    Metric("compress", "compression", "choice of the numbers of a table that are sent", needs="`--compress`",
           tables=_CLOSING, row=rows.format_compression, **_TRAFFIC | _OPTION),
    Metric("numbers_sent", "numbers sent", "share of the numbers of all tables that were sent, without positions",
           needs="`--compress`", better="lower", tables=ShownIn.STUDY, **_TRAFFIC | _OPTION),
    Metric("bytes_busiest", "plain bytes of the busiest device",
           "most plain bytes that a device or the server sent and received", unit="bytes", per_device=True,
           better="lower", title="kB plain, busiest", form=".1f", scale=1000, compute=_count_bytes, reduce=np.max,
           tables=_MEANS | ShownIn.COMPARISON | ShownIn.PAIRED),
    Metric("wire_bytes_busiest", "encoded bytes of the busiest device",
           "most encoded bytes that a device or the server sent and received", unit="bytes",
           per_device=True, better="lower", compute=_count_encoded, reduce=np.max, tables=ShownIn.STUDY),
    Metric("rows_max_per_device", "rows of the busiest device",
           "most rows that a device or the server sent and received", unit="rows", tables=ShownIn.STUDY),
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
    Metric("failure", "failure", "devices with points that ended without centroids, and what would help; None if they "
           "are at most a tenth", tables=_NONE),
    Metric("rounds_before", "initialization rounds", "rounds of all stages before the method; their messages count",
           unit="rounds", tables=_CLOSING, row=rows.format_before, **_TRAFFIC),
    Metric("method_rounds_to_1pct", "rounds to final 1 %", f"rounds of the method {_TO_FINAL}", unit="rounds",
           needs=_CENTRAL, better="lower", title="to final 1 %", row=rows.format_own,
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
    Metric("bytes_to_1pct", "plain bytes to final 1 %", f"plain bytes of all stages {_TO_FINAL}", unit="bytes",
           needs=_CENTRAL, better="lower", title="kB plain to final 1 %", form=".1f", scale=1000,
           tables=_MEANS | ShownIn.COMPARISON),
    Metric("bytes_to_1pct_of_central", "plain bytes to central 1 %", f"plain bytes of all stages {_TO_CENTRAL}",
           unit="bytes", needs=_CENTRAL, better="lower", title="kB plain to central 1 %", form=".1f", scale=1000,
           tables=_MEANS | ShownIn.COMPARISON),
    Metric("seconds_to_1pct", "time to final 1 %", f"simulated time of all stages {_TO_FINAL}", "s",
           needs=_LINK_MODEL, better="lower", title="s to final 1 %",
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
    Metric("bound", "bound of averaging",
           "largest factor by which an exchange can multiply the disagreement of devices, by the eigenvalues of the "
           "averaging weights", needs=_AVERAGING, better="lower", tables=_NONE),
    Metric("bound_measured", "disagreement per exchange",
           "largest factor by which exchanges of a recorded round multiplied the disagreement of devices",
           needs=_AVERAGING, better="lower", over_runs=np.max, tables=_CLOSING, row=rows.format_bound,
           **_CHECKS | _OPTION),
    Metric("bound_slack", "slack of the bound", "measured factor divided by its bound; above 1 the bound is broken",
           needs=_AVERAGING, better="lower", over_runs=np.max, tables=_NONE),
    Metric("tree_error", "sums along the tree",
           "largest difference between an integer sum at the root and the sum over all devices, at the end of the run; "
           "0: exact", needs=_TREE, better="lower", over_runs=np.max, tables=_CLOSING, row=rows.format_tree,
           **_CHECKS | _OPTION),
    # faults, adversaries and disclosure
    Metric("faults", "faults", "fault model", needs=_FAULTS, tables=_NONE),
    Metric("stale_policy", "stale policy", "use of outdated neighbor tables", needs=_FAULTS, tables=_NONE),
    Metric("deadline", "deadline", "longest time of a round", "s", needs="`--deadline`", tables=_NONE),
    Metric("messages_late", "messages late", "messages that missed the deadline of their round", unit="messages",
           needs="`--deadline`", better="lower", tables=ShownIn.STUDY, **_TRAFFIC | _OPTION),
    Metric("client_share", "client share", "share of the clients that the server asks in each round",
           needs="`--client-share`", tables=_NONE),
    Metric("messages_lost", "messages lost",
           "messages sent but never received: lost, to unavailable devices, or late with `--stale-policy drop`",
           "messages", needs=_FAULTS, better="lower",
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
           "standard deviation of the noise on the number of points in a cluster, in the last sums", unit="points",
           needs=_PRIVATE, better="lower", tables=_CLOSING, row=rows.format_count_noise, **_CHECKS | _OPTION),
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
           needs=_STREAM, better="lower", title="kB encoded per round", form=".1f", scale=1000, compute=bytes_per_round,
           tables=_MEANS | _CLOSING, **_TRAFFIC | _OPTION),
    # what identifies it
    Metric("centroids_sha256", "hash of the centroids", "SHA-256 of the final centroids of all devices",
           tables=ShownIn.STUDY | ShownIn.PATH),
    Metric("chain_sha256", "hash of the rounds", "SHA-256 over all recorded rounds; `verify` compares it",
           tables=_NONE),
    Metric("out", "run folder", "folder with the files of the run", tables=_NONE),
)  # fmt: skip


_requested: ContextVar[tuple[Metric, ...]] = ContextVar("requested metrics", default=())


@contextmanager
def request(metrics: Iterable[Metric]) -> Iterator[None]:
    """Add metrics to `METRICS` for the runs and tables inside the context, in place of those of an outer context."""
    token = _requested.set(tuple(metrics))
    try:
        yield
    finally:
        _requested.reset(token)


def list_metrics() -> tuple[Metric, ...]:
    """List all metrics, with those of the context, see `request`."""
    return (*METRICS, *_requested.get())


def read_metrics(value: Any, where: str) -> tuple[Metric, ...]:
    """Read metrics that a program requests: a function of the result, a `Metric`, or a list of them.

    A function is a metric of its name, one number, a text or None for a run, explained by the first line of its
    docstring. It has no direction, so paired differences leave it out.

    Raises
    ------
    ExperimentError
        If a value is none of these, or two metrics have one key.
    """
    metrics = list[Metric]()
    for given in value if isinstance(value, (list, tuple)) else [value]:
        metric = given
        if is_function(given):
            key = name_function(given)
            meaning = (inspect.getdoc(given) or f"of the function {key}").partition("\n")[0]
            metric = Metric(key, key.replace("_", " "), meaning, compute=given, tables=EVERYWHERE & ~ShownIn.PAIRED)
        if not isinstance(metric, Metric) or metric.compute is None:
            raise ExperimentError(
                f"{where} contains {given!r}; expected functions of the p2pkm.Result, or p2pkm.metrics.registry.Metric "
                "with compute=function"
            )
        if metric.key in (known.key for known in (*METRICS, *metrics)):
            raise ExperimentError(f"{where} contains {metric.key!r}, which exists already. Use another name")
        if not metric.key.isidentifier():
            raise ExperimentError(
                f"{where} contains a function called {metric.key}; expected a name for the column. Use def, not lambda"
            )
        metrics.append(metric)
    return tuple(metrics)


def summary_keys() -> list[str]:
    """List the keys of a summary, in order."""
    return [metric.key for metric in list_metrics()]


def metrics_shown_in(table: ShownIn) -> list[Metric]:
    """List the metrics that an output shows, in order."""
    return [metric for metric in list_metrics() if table in metric.tables]


def keys(table: ShownIn) -> list[str]:
    """List the keys of the metrics that an output shows, in order."""
    return [metric.key for metric in metrics_shown_in(table)]


def find(key: str) -> Metric:
    """Return the metric of a key; for other columns, such as options, a metric with the key as its label."""
    matches = (metric for metric in list_metrics() if metric.key == key)
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
    legends = (
        ({"wire_bytes"}, _BYTES_LEGEND),
        ({"ratio_worst"}, _WORST_LEGEND),
        ({*MILESTONES}, _MILESTONES_LEGEND),
        ({"test_ratio_common"}, _TESTS_LEGEND),
    )
    return [text for keys_explained, text in legends if shown & keys_explained]


def compute_value(metric: Metric, result: Result) -> Any:
    """Compute a metric and validate its value.

    Returns
    -------
    float64[n] or float64[n + 1]
        With `per_device`: a value for each device, or for each device and the server. NaN: unknown.
    int, float, str, list or None
        Otherwise; NaN is None, unknown.

    Raises
    ------
    ContractError
        If the value has another shape or type.
    """
    assert metric.compute is not None
    value = metric.compute(result)
    if value is None:
        return None
    where = f"compute of metric {metric.key}"
    n, total = len(result.centroids), result.ledger.devices
    if metric.per_device:
        array = np.asarray(value)
        if array.ndim != 1 or len(array) not in (n, total) or not np.issubdtype(array.dtype, np.number):
            raise ContractError(
                f"{where} returned {_describe_value(value)}; expected float64[{n}], one number for each device (NaN: "
                "unknown), because per_device=True"
            )
        return array
    if isinstance(value, np.ndarray) and value.ndim:
        raise ContractError(
            f"{where} returned {_describe_value(value)}; expected one number, a text or None. For one value of each "
            f"device, {n} here, declare per_device=True; otherwise return for example float(values.mean())"
        )
    value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    # JSON has no NaN.
    return None if isinstance(value, float) and np.isnan(value) else value


def _describe_value(value: Any) -> str:
    """Describe type and shape of a value, for errors."""
    shape = np.shape(value)
    return (
        f"an array of {np.asarray(value).dtype} and shape {shape}" if shape else f"the {type(value).__name__} {value}"
    )


def check_keys() -> None:
    """Reject two metrics of one key: one would replace the other.

    Raises
    ------
    ContractError
        If a key occurs twice.
    """
    listed = summary_keys()
    if len(set(listed)) < len(listed):
        twice = next(key for number, key in enumerate(listed) if key in listed[:number])
        raise ContractError(f"the key {twice!r} belongs to two metrics. Give the new one another key")


def measure(result: Result) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Compute the metrics that follow from a finished run: values of the summary, and values of all devices."""
    check_keys()
    summary, devices = dict[str, Any](), dict[str, Floats]()
    computed = [metric for metric in list_metrics() if metric.compute is not None]
    # Once around all metrics: the records of a run are thousands of dictionaries, which `read_only` walks.
    with read_only(vars(result)):
        for metric in computed:
            try:
                value = compute_value(metric, result)
            except ValueError as error:
                if "read-only" not in str(error):
                    raise
                raise ContractError(
                    f"compute of metric {metric.key} wrote into the result, whose arrays are read-only: {error}. "
                    "Change a copy, such as result.centroids.copy()"
                ) from error
            if metric.per_device and value is not None:
                devices[metric.key] = value
                known = value[~np.isnan(value)]
                value = metric.reduce(known) if len(known) else None
            summary[metric.key] = value.item() if isinstance(value, np.generic) else value
    return summary, devices
