"""Every figure of a summary, once: the tables, the files, the report, the figures and the documentation read it here.

A figure that can be computed from the finished run is one function and one entry of `METRICS`; the others are given
by what counts them (ledger, channel, engine), under the key that stands here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import partial
from typing import Any, Literal

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.sorting import sum_by
from p2pkm.core.units import write_figure
from p2pkm.metrics import closing_rows as rows
from p2pkm.metrics.alignment import deviate_from_central, vary_between_neighbors
from p2pkm.metrics.milestones import OF_CENTRAL, never_reached, write_rounds
from p2pkm.metrics.result import Result
from p2pkm.metrics.stream_figures import bytes_per_round, mean_excess, worst_excess


class ShownIn(Flag):
    """Where a figure is shown, besides the summary and the documentation, which have all."""

    CLOSING = auto()  # a row of the closing table, and of the report of a run
    STUDY = auto()  # a column of the rows of a study or a comparison
    MEANS = auto()  # mean over seeds: JSON of a comparison, reports of comparisons and studies
    COMPARISON = auto()  # a column of the table that `compare` prints
    PAIRED = auto()  # paired differences of a comparison
    SWEEP = auto()  # a column of the table that `sweep` prints
    SEEDS = auto()  # mean, sd and worst over --seeds
    PATH = auto()  # a row of a coupling path has it
    CARD = auto()  # the card of a result in a notebook
    MAP = auto()  # heat maps of a study


EVERYWHERE = ~(ShownIn.PATH | ShownIn.CARD | ShownIn.MAP)
_MEANS = ShownIn.STUDY | ShownIn.MEANS


@dataclass(frozen=True)
class Metric:
    """A figure of a run.

    Attributes
    ----------
    key : str
        Its name in the summary and in the rows of studies.
    label : str
        What tables and axes call it.
    meaning : str
        What it is, in a sentence that a newcomer understands.
    unit : str
        What is counted or measured; empty: a ratio, a score or no number.
    per_device : bool
        Whether `compute` returns one value per device: ``devices.npz`` and `Result.devices` hold them.
    needs : str
        What a run must have for it; empty: nothing. A column that no device has a value for is left out then.
    better : {"", "lower", "higher"}
    tables : ShownIn
    title : str
        Title of its column in printed tables; empty: the label.
    form : str
        Format of a mean in printed tables.
    scale : float
        What printed tables divide by, 1000 for kB.
    compute : callable, optional
        Returns its value, or float64[n] over the devices (NaN: not known), given the finished `Result`, which is the
        same on every rank; None: given elsewhere.
    reduce : callable
        Returns the figure of the summary from the known values of all devices.
    over_runs : callable
        Returns the figure of several runs from theirs.
    row : callable, optional
        Returns its row of the closing table (figure, meaning) from the summary where that takes other figures, too.
    cell : callable, optional
        Returns its cell in printed tables from means over runs where that takes other figures, too.
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

    @property
    def column(self) -> str:
        """Return the title of its column in printed tables."""
        return self.title or self.label

    @property
    def heading(self) -> str:
        """Return a title that says what it is."""
        return f"{self.label[0].upper()}{self.label[1:]}: {self.meaning}"

    @property
    def axis(self) -> str:
        """Return the label of an axis."""
        return self.label if not self.unit or self.unit in self.label else f"{self.label} ({self.unit})"

    def write_row(self, summary: rows.Summary) -> tuple[str, str, str]:
        """Return its row of the closing table; a dash as figure if there is none."""
        figure, meaning = self.row(summary) if self.row else (write_figure(summary[self.key]), self.meaning)
        return self.label, figure, meaning

    def write_mean(self, means: Mapping[str, Any]) -> str:
        """Return its cell in a printed table of means over runs."""
        if self.cell is not None:
            return self.cell(means)
        if never_reached(means, self.key):
            return "never"
        value = means[self.key]
        return "-" if value is None else format(value / self.scale, self.form)


def _count_bytes(result: Result) -> Floats:
    """Return the bytes that each device and the server sent and received, float64[n]."""
    ledger = result.ledger
    return sum_by(ledger.src, ledger.bytes, ledger.devices) + sum_by(ledger.dst, ledger.bytes, ledger.devices)


def _count_centroids(result: Result) -> Floats:
    """Return the finite centroids of each device and of the server; NaN: a Byzantine one, or without points and any."""
    held = np.isfinite(result.centroids[:, :, 0]).sum(axis=1).astype(np.float64)
    held[(held == 0.0) & (result.census.sizes == 0)] = np.nan
    if result.byzantine is not None:
        held[result.byzantine] = np.nan
    server = result.server_centroids
    return held if server is None else np.append(held, np.count_nonzero(np.isfinite(server[:, 0])))


_NONE, _CLOSING = ShownIn(0), ShownIn.CLOSING
_LABELS, _SERVER, _CENTRAL, _FAULTS = "true labels", "a server", "the central baseline", "`--faults`"
_STREAM = "`--stream`"
_OBJECTIVE, _NET, _SHAPE, _GROUPS = "an objective (GTVMin, tree Lloyd)", "a network model", "`--silhouette`", "GTVMin"
_PRIVATE = "`private`"
_TO_OWN, _TO_CENTRAL = (
    f"until the mean cost ratio stays within 1 % of {goal}" for goal in ("its own final value", "central k-means")
)

METRICS: tuple[Metric, ...] = (
    # what was run
    Metric("algorithm", "method", "the method, with the parameters that were given", tables=ShownIn.CARD),
    Metric("graph", "graph", "the graph that the devices communicate over", tables=ShownIn.CARD),
    Metric("devices", "devices", "number of devices, the server excluded", unit="devices",
           tables=_CLOSING | ShownIn.CARD, row=rows.tell_devices),
    Metric("device_names", "device names", "names of the devices", needs="data with names", tables=_NONE),
    Metric("feature_names", "features", "names of the features", needs="data with names", tables=_CLOSING,
           row=rows.tell_features),
    Metric("ranks", "ranks", "number of MPI ranks", unit="ranks", tables=_NONE),
    Metric("rank_partition", "rank partition", "how the devices are assigned to ranks", needs="several ranks",
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
    Metric("k_chosen", "k chosen", "number of clusters that the devices chose", unit="clusters", needs="`-k auto`",
           tables=_CLOSING, row=rows.tell_k),
    Metric("k_verdict", "verdict on k", "clear; none: no clear clusters, k is 1; unclear", needs="`-k auto`",
           tables=_NONE),
    Metric("k_preferred", "k preferred", "the number of clusters that each index prefers", needs="`-k auto`",
           tables=_NONE),
    Metric("k_indices", "indices of k", "cost and indices for every number of clusters from 1 on", needs="`-k auto`",
           tables=_NONE),
    Metric("data", "data", "where the points come from", tables=_NONE),
    Metric("partition", "partition", "how the points are partitioned over devices", tables=_NONE),
    Metric("init", "initialization", "how the centroids are initialized", tables=_NONE),
    Metric("coupling", "coupling", "strength of the penalty on differences between neighbors", needs=_GROUPS,
           tables=_CLOSING, row=rows.tell_coupling),
    Metric("coupling_choice", "choice of the coupling", "what the strength of the links is from: given, usual, auto or "
           "rehearsal", needs=_GROUPS, tables=_NONE),
    Metric("alpha", "alpha", "the same as it stands in the objective", needs=_GROUPS, tables=_NONE),
    Metric("schedule", "schedule", "which devices update at the same time", tables=_NONE),
    Metric("relaxation", "relaxation", "relaxation factor of the centroid update", needs=_GROUPS, tables=_NONE),
    Metric("local_steps", "local steps", "Lloyd iterations per turn", tables=_NONE),
    Metric("seed", "seed", "random seed", tables=_NONE),
    # quality
    Metric("ratio_mean", "cost ratio, mean device", "cost on all points / cost of central k-means; 1 is as good",
           needs=_CENTRAL, better="lower", title="ratio", form=".4f",
           tables=EVERYWHERE | ShownIn.PATH | ShownIn.CARD | ShownIn.MAP),
    Metric("ratio_start", "cost ratio of the start", "mean cost ratio before the first round of the method",
           needs=_CENTRAL, better="lower", form=".4f", tables=_MEANS | _CLOSING, row=rows.tell_start),
    Metric("excess_predicted", "predicted excess",
           "by how much noise of the devices' points alone, with all labels fixed, is expected to raise the mean cost "
           "ratio at this coupling on this graph; where clusters overlap, labels change and the ratio is higher",
           needs=_GROUPS, better="lower", tables=_CLOSING | ShownIn.STUDY, row=rows.tell_excess),
    Metric("ratio_best", "lowest cost ratio", "lowest mean cost ratio of all recorded rounds", needs=_CENTRAL,
           better="lower", tables=_MEANS | _CLOSING, row=rows.tell_worse),
    Metric("ratio_best_stage", "stage of the lowest ratio", "stage that it was reached in", needs=_CENTRAL,
           tables=ShownIn.STUDY),
    Metric("ratio_best_round", "round of the lowest ratio", "last round of that stage with it", "round",
           needs=_CENTRAL, tables=ShownIn.STUDY),
    Metric("ratio_worst", "cost ratio, worst device", "cost ratio of the worst device", needs=_CENTRAL,
           better="lower", title="worst", form=".4f", over_runs=np.max,
           tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.SEEDS | ShownIn.PATH | ShownIn.CARD),
    Metric("ratio_local_only", "local-only baseline", "mean cost ratio without any communication", needs=_CENTRAL,
           better="lower", tables=_CLOSING | ShownIn.STUDY),
    Metric("objective", "objective", "cost of all devices and the penalties of all links", "squared distance",
           needs=_OBJECTIVE, better="lower", tables=ShownIn.SEEDS | ShownIn.PATH),
    Metric("ari", "ARI against true labels", "adjusted Rand index, mean over devices; 1 is perfect", needs=_LABELS,
           better="higher", title="ARI", form=".3f", tables=EVERYWHERE | ShownIn.PATH | ShownIn.CARD),
    Metric("nmi", "NMI against true labels", "normalized mutual information, mean over devices; 1 is perfect",
           needs=_LABELS, better="higher", tables=_NONE),
    Metric("purity", "purity", "share of points in the majority class of their cluster, mean over devices",
           needs=_LABELS, better="higher", tables=_NONE),
    Metric("ari_clients", "ARI on own points", "of each device's own points, size-weighted mean", needs=_LABELS,
           better="higher", tables=_CLOSING | ShownIn.STUDY),
    Metric("nmi_clients", "NMI on own points", "of each device's own points, size-weighted mean", needs=_LABELS,
           better="higher", tables=_NONE),
    Metric("purity_clients", "purity on own points", "of each device's own points, size-weighted mean", needs=_LABELS,
           better="higher", tables=_NONE),
    Metric("silhouette", "silhouette", "of all points, or of a sample of 5,000; 1 is best", needs=_SHAPE,
           better="higher", tables=_CLOSING),
    Metric("simplified_silhouette", "simplified silhouette", "from distances to centroids alone", needs=_SHAPE,
           better="higher", tables=_CLOSING),
    Metric("l2_centers", "distance to true centers", "Frobenius norm after matching", needs="`--true-centers`",
           better="lower", tables=_CLOSING),
    Metric("loss_local", "cost ratio via own centroids",
           "points labeled by the server centroid nearest to their own centroid", needs=_SERVER, better="lower",
           tables=_NONE),
    Metric("loss_global", "cost ratio at the server", "points labeled by the nearest server centroid", needs=_SERVER,
           better="lower", tables=_NONE),
    Metric("gtv", "disagreement", "total variation between neighbors' centroids; 0 is consensus", "squared distance",
           better="lower", title="GTV", tables=_CLOSING | ShownIn.STUDY | ShownIn.PATH),
    Metric("consensus_distance", "distance to consensus",
           "from each row to the nearest row of the best device, root mean square over devices; blind to rows that "
           "repeat or are missing, unlike xi_2", better="lower", tables=_NONE),
    Metric("central_deviation", "deviation from central",
           "xi_1: mean squared distance of centroids to those of central k-means, matched one to one",
           "squared distance", per_device=True, needs=_CENTRAL, better="lower", title="xi_1", tables=_MEANS,
           compute=deviate_from_central),
    Metric("consensus_variation", "consensus variation",
           "xi_2: mean squared distance of centroids to those of neighbors, matched one to one", "squared distance",
           per_device=True, better="lower", title="xi_2", tables=_MEANS, compute=vary_between_neighbors),
    Metric("centroid_sets", "distinct models", "number of different centroid sets", unit="models",
           tables=_CLOSING | ShownIn.PATH, row=rows.tell_models),
    Metric("centroids_held", "centroids", "fewest finite centroids of a device or the server", unit="centroids",
           per_device=True, better="higher", compute=_count_centroids, reduce=np.min, over_runs=np.min,
           tables=_CLOSING | ShownIn.STUDY, row=rows.tell_centroids),
    Metric("groups", "groups", "groups of devices, each with a clustering of its own",
           unit="groups", needs="GTVMin, or tree Lloyd with `--groups`", tables=_CLOSING, row=rows.tell_groups),
    Metric("groups_ari", "ARI of groups", "adjusted Rand index over devices; 1 is perfect", needs="known groups",
           better="higher", tables=_CLOSING),
    # what it takes
    Metric("messages", "messages", "over links of the graph, initialization included", unit="messages",
           better="lower", form=".0f", tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.PATH | ShownIn.CARD),
    Metric("bytes", "bytes", "8 per number that was sent", unit="bytes", better="lower", title="kB", form=".1f",
           scale=1000, tables=EVERYWHERE | ShownIn.PATH | ShownIn.CARD),
    Metric("wire_bytes", "bytes on the wire", "as encoded, whole bytes a message", unit="bytes", better="lower",
           title="kB on the wire", form=".1f", scale=1000, tables=_MEANS | _CLOSING, row=rows.tell_wire),
    Metric("quantize", "integer messages", "how tables travel as integers; null: as real numbers", tables=_CLOSING,
           row=rows.tell_integers),
    Metric("bytes_busiest", "bytes of the busiest device", "most bytes that a device or the server sent and received",
           unit="bytes", per_device=True, better="lower", title="kB busiest", form=".1f", scale=1000,
           compute=_count_bytes, reduce=np.max, tables=_MEANS | ShownIn.COMPARISON | ShownIn.PAIRED),
    Metric("rows_max_per_device", "rows of the busiest device",
           "most rows that a device or the server sent and received", unit="rows", tables=ShownIn.STUDY),
    Metric("virtual_seconds", "simulated time", "on the network model", "s", needs=_NET, better="lower",
           title="virtual s", tables=_MEANS | _CLOSING | ShownIn.COMPARISON, row=rows.tell_time),
    Metric("link_model", "network model", "the network that time is simulated on", needs=_NET, tables=_NONE),
    Metric("age_mean", "mean age of messages", "on receipt", "s", needs="a network model and an event-driven method",
           tables=_NONE),
    Metric("age_max", "largest age of messages", "on receipt", "s",
           needs="a network model and an event-driven method", tables=_NONE),
    Metric("wall_seconds", "elapsed time", "on this machine, compilation excluded", "s", tables=ShownIn.STUDY),
    Metric("compile_seconds", "compilation", "of kernels, once per machine", "s", tables=_NONE),
    # how it went
    Metric("rounds", "rounds", "rounds of the method", unit="rounds", better="lower", form=".1f",
           tables=EVERYWHERE & ~ShownIn.PAIRED | ShownIn.PATH | ShownIn.CARD, row=rows.tell_rounds),
    Metric("termination", "termination", "why the run ended", tables=ShownIn.STUDY | ShownIn.PATH | ShownIn.CARD),
    Metric("rounds_before", "initialization rounds", "rounds of all stages before the method; their messages count",
           unit="rounds", tables=_CLOSING, row=rows.tell_before),
    Metric("method_rounds_to_1pct", "rounds to own 1 %", f"rounds of the method {_TO_OWN}", unit="rounds",
           needs=_CENTRAL, better="lower", title="to own 1 %", row=rows.tell_own,
           cell=partial(write_rounds, form=".1f"),
           tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.SWEEP | ShownIn.MAP),
    Metric("rounds_to_1pct", "rounds to own 1 %, with initialization", f"rounds of all stages {_TO_OWN}",
           unit="rounds", needs=_CENTRAL, better="lower", tables=_MEANS | ShownIn.MAP),
    Metric("method_rounds_to_1pct_of_central", "rounds to central 1 %", f"rounds of the method {_TO_CENTRAL}",
           unit="rounds", needs=_CENTRAL, better="lower", title="to central 1 %", row=rows.tell_central,
           cell=partial(write_rounds, goal=OF_CENTRAL, form=".1f"),
           tables=_MEANS | _CLOSING | ShownIn.COMPARISON | ShownIn.SWEEP | ShownIn.MAP),
    Metric("rounds_to_1pct_of_central", "rounds to central 1 %, with initialization",
           f"rounds of all stages {_TO_CENTRAL}", unit="rounds", needs=_CENTRAL, better="lower",
           tables=_MEANS | ShownIn.MAP),
    Metric("bytes_to_1pct", "bytes to own 1 %", f"bytes of all stages {_TO_OWN}", unit="bytes", needs=_CENTRAL,
           better="lower", title="kB to own 1 %", form=".1f", scale=1000, tables=_MEANS | ShownIn.COMPARISON),
    Metric("bytes_to_1pct_of_central", "bytes to central 1 %", f"bytes of all stages {_TO_CENTRAL}", unit="bytes",
           needs=_CENTRAL, better="lower", title="kB to central 1 %", form=".1f", scale=1000,
           tables=_MEANS | ShownIn.COMPARISON),
    Metric("seconds_to_1pct", "time to own 1 %", f"simulated time of all stages {_TO_OWN}", "s", needs=_NET,
           better="lower", title="s to own 1 %", tables=_MEANS | ShownIn.COMPARISON | ShownIn.SWEEP),
    Metric("seconds_to_1pct_of_central", "time to central 1 %", f"simulated time of all stages {_TO_CENTRAL}", "s",
           needs=_NET, better="lower", title="s to central 1 %", tables=_MEANS | ShownIn.COMPARISON | ShownIn.SWEEP),
    Metric("convergence_rate", "convergence rate",
           "fitted factor by which the remaining objective gap shrinks per round", needs=_OBJECTIVE, better="lower",
           tables=_CLOSING),
    Metric("distance_left", "distance left", "in units of --tol: about last move / (1 - convergence rate)",
           needs=_OBJECTIVE, better="lower", tables=_CLOSING),
    Metric("descent", "descent", "whether the objective only fell, and whether it had to", needs=_OBJECTIVE,
           tables=_CLOSING | ShownIn.STUDY | ShownIn.PATH | ShownIn.CARD, row=rows.tell_descent),
    # faults, adversaries and disclosure
    Metric("faults", "faults", "the fault model", needs=_FAULTS, tables=_NONE),
    Metric("stale_policy", "stale policy", "what becomes of outdated neighbor tables", needs=_FAULTS, tables=_NONE),
    Metric("messages_lost", "messages lost", "messages lost in transit", "messages", needs=_FAULTS, better="lower",
           tables=_CLOSING | ShownIn.STUDY, row=rows.tell_lost),
    Metric("unavailable_fraction", "unavailable devices", "mean fraction of unavailable devices over the rounds",
           needs=_FAULTS, better="lower", tables=_CLOSING | ShownIn.STUDY),
    Metric("byzantine", "Byzantine devices", "number and behavior of Byzantine devices", needs="`--byzantine`",
           tables=_NONE),
    Metric("messages_rejected", "messages rejected", "non-finite or malformed messages, never used", "messages",
           better="lower", tables=_CLOSING | ShownIn.STUDY, row=rows.tell_rejected),
    Metric("noise", "noise", "Gaussian noise on every row sent, standard deviation; no privacy guarantee",
           "standard deviations of the points", needs="`--noise`", tables=_CLOSING),
    Metric("min_cluster_size", "minimum cluster size", "smaller clusters are suppressed in all messages", "points",
           tables=_CLOSING, row=rows.tell_suppression),
    Metric("raw_points_disclosed", "raw points disclosed", "own points that appear unchanged in a sent message",
           "points", better="lower", tables=_CLOSING),
    Metric("max_peers_observed", "max. senders observed",
           "upper bound on the number of devices whose rows reached one device", "devices", better="lower",
           tables=_CLOSING),
    Metric("rows_at_server", "rows at the server", "rows in the last server aggregation", unit="rows", needs=_SERVER,
           tables=_CLOSING),
    Metric("epsilon", "differential privacy", "epsilon of the guarantee for each point", needs=_PRIVATE, better="lower",
           tables=_CLOSING | ShownIn.STUDY, row=rows.tell_privacy),
    Metric("delta", "delta", "delta of the guarantee for each point", needs=_PRIVATE, tables=_NONE),
    Metric("mu", "mu", "the guarantee in Gaussian differential privacy, all sums together", needs=_PRIVATE,
           better="lower", tables=_NONE),
    Metric("epsilon_alone", "if all others collude", "epsilon that is left for the points of one device against all "
           "others together, at the same delta", needs=_PRIVATE, better="lower", tables=_CLOSING, row=rows.tell_alone),
    Metric("noise_count", "noise", "standard deviation of the number of points in a cluster, last sums (without "
           "steps: in a cell)", unit="points", needs=_PRIVATE, better="lower", tables=_CLOSING,
           row=rows.tell_count_noise),
    Metric("trust", "trust", "who adds the noise: masks, none or server", needs=_PRIVATE, tables=_NONE),
    Metric("curious", "curious devices", "devices that may pool what they see", unit="devices", needs=_PRIVATE,
           tables=_NONE),
    Metric("relation", "relation", "what the guarantee is about: adding or removing a point, or exchanging it",
           needs=_PRIVATE, tables=_NONE),
    Metric("noise_seed", "noise seed", "replaces the secret of the operating system that noise and masks come from; "
           "then there is no guarantee", needs=_PRIVATE, tables=_NONE),
    Metric("steps", "private steps", "Lloyd steps by noisy sums", needs=_PRIVATE, tables=_NONE),
    Metric("radius", "radius", "of the ball that points are clipped to, as given", "distance", needs=_PRIVATE,
           tables=_NONE),
    Metric("center", "center", "coordinates of the center of that ball", "distance", needs=_PRIVATE, tables=_NONE),
    Metric("size", "size", "radius of the ball that was found to hold nearly all points", "distance", needs=_PRIVATE,
           tables=_NONE),
    # points that change
    Metric("stream", "stream", "how the points change during the run", needs=_STREAM, tables=_NONE),
    Metric("stream_excess", "excess over a central refit",
           "mean cost ratio minus 1, against central k-means on the points of each round, mean over rounds",
           needs=_STREAM, better="lower", form=".4f", compute=mean_excess, tables=_MEANS | _CLOSING),
    Metric("stream_excess_worst", "excess in the worst round", "the largest of these", needs=_STREAM, better="lower",
           form=".4f", over_runs=np.max, compute=worst_excess, tables=_MEANS | _CLOSING),
    Metric("stream_bytes_per_round", "bytes on the wire per round", "of the method, initialization left out",
           unit="bytes", needs=_STREAM, better="lower", title="kB per round", form=".1f", scale=1000,
           compute=bytes_per_round, tables=_MEANS | _CLOSING),
    # what identifies it
    Metric("centroids_sha256", "hash of the centroids", "SHA-256 of the final centroids of all devices",
           tables=ShownIn.STUDY | ShownIn.PATH),
    Metric("chain_sha256", "hash of the rounds", "SHA-256 over all recorded rounds; `verify` compares it",
           tables=_NONE),
    Metric("out", "run folder", "where the files of the run are", tables=_NONE),
)  # fmt: skip


def summary_keys() -> list[str]:
    """Return the keys of a summary, in order."""
    return [metric.key for metric in METRICS]


def metrics_shown_in(table: ShownIn) -> list[Metric]:
    """Return the figures that a table shows, in order."""
    return [metric for metric in METRICS if table in metric.tables]


def keys(table: ShownIn) -> list[str]:
    """Return the keys of the figures that a table shows, in order."""
    return [metric.key for metric in metrics_shown_in(table)]


def find(key: str) -> Metric:
    """Return the figure of this key; of another column, such as an option, one that is called by its name."""
    known = (metric for metric in METRICS if metric.key == key)
    return next(known, Metric(key, key.replace("_", " "), "", tables=_NONE))


def columns(table: ShownIn, means: Sequence[Mapping[str, Any]]) -> list[Metric]:
    """Return the columns of a printed table: without those that need something that no run had."""
    return [
        one for one in metrics_shown_in(table) if not one.needs or any(row.get(one.key) is not None for row in means)
    ]


def measure(result: Result) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Compute what can be computed from a finished run: figures of the summary, and values of all devices."""
    figures, devices = dict[str, Any](), dict[str, Floats]()
    for metric in METRICS:
        if metric.compute is None:
            continue
        found = metric.compute(result)
        if metric.per_device:
            devices[metric.key] = found = np.asarray(found)
            known = found[~np.isnan(found)]
            found = metric.reduce(known) if len(known) else None
        figures[metric.key] = found.item() if isinstance(found, np.generic) else found
    return figures, devices
