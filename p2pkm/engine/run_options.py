"""The options of a run: names, types, defaults and help texts, for the command line, TOML files and `simulate`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from p2pkm.core.errors import ExperimentError
from p2pkm.core.late_binding import call
from p2pkm.core.option import option, options_of
from p2pkm.core.spec import convert, suggest


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Everything that defines a run; the field names are the keys of a TOML file and, with dashes, the options.

    Attributes
    ----------
    start : float64[n, k, d] or None
        Centroids that replace those of the initialization; from `simulate` alone.
    checkpoint : str, Path or None
        Folder for checkpoints; from `simulate` alone.
    """

    graph: str | None = option(
        None,
        "Communication graph of a peer-to-peer method: ring, path, star, complete, tree, grid, torus, "
        "small-world:degree=4,rewire=0.1, random-regular:degree=4, erdos-renyi:p=0.3, barabasi-albert:m=2, "
        "random-geometric, exponential:base=2, barbell, communities:bridges=1, caveman:size=4, karate, file:PATH "
        "(GraphML, edge list, ...), gallery:NAME, hypercube, ladder, wheel, d-cliques:size=4, ... (a wrong name "
        "lists all).  [default: ring; methods with a server run as a star]",
        metavar="SPEC",
        completes=True,
    )
    devices: int | None = option(None, "Number of devices.  [default: ranks under mpirun, else 16]", least=1)
    data: str = option(
        "grid16",
        "Points: grid16:points=200,sd=1, blobs:clusters=8, slike, balls, communities:second=fresh, shapes:side=16, "
        "iris, wine, digits:components=10, or a file: .csv .tsv .npy .npz .parquet .arrow .feather .json (LEAF) "
        ".h5ad; FOLDER/ or 'FOLDER/*.csv': a device per file.  [default: grid16]",
        metavar="SPEC",
        completes=True,
    )
    label_column: str | None = option(None, "Column of a file with the true class (name or index).", metavar="NAME")
    device_column: str | None = option(None, "Column of a file with the device of each point.", metavar="NAME")
    columns: str | None = option(
        None, "Columns of a file that are the features, such as age,bmi.  [default: all others]", metavar="LIST"
    )
    drop: str | None = option(None, "Columns of a file to leave out.", metavar="LIST")
    encode: str | None = option(
        None,
        "Columns of a file with categories, which become a feature of 0 and 1 for each, or with dates and times, "
        "which become days.",
        metavar="LIST",
    )
    missing: Literal["refuse", "drop", "mean", "median"] = option(
        "refuse",
        "Missing values of a file: refuse them, drop their rows, or fill in mean or median of the known ones, by "
        "messages: refuse, drop, mean or median.  [default: refuse]",
        metavar="NAME",
        completes=True,
    )
    header: Literal["auto", "yes", "no"] = option(
        "auto",
        "Whether the first row of a text file holds the names of the columns: yes, no, or auto, as far as it can "
        "be told.  [default: auto]",
        metavar="NAME",
        completes=True,
    )
    scale: Literal["none", "standard", "minmax"] = option(
        "none",
        "Scale the features first, by messages: none, standard or minmax.  [default: none]",
        metavar="NAME",
        completes=True,
    )
    dtype: Literal["float64", "float32"] = option(
        "float64",
        "How points are stored: float64, or float32 in half the memory.  [default: float64]",
        metavar="NAME",
        completes=True,
    )
    partition: str | None = option(
        None,
        "How points are partitioned over devices: iid, blocks, dirichlet:alpha=0.3,by=class, beta:beta=1, "
        "by-label:labels=2, quantity:alpha=0.5, mufc, column.  [default: the file's column, else dirichlet with "
        "labels, else iid]",
        metavar="SPEC",
        completes=True,
    )
    clusters: int | Literal["auto"] | None = option(
        None,
        "Number of clusters; auto: the devices choose it, by messages.  [default: classes of the data, else 8]",
        metavar="K",
        flags=("-k", "--clusters"),
        least=1,
    )
    k_max: int | None = option(
        None,
        "Largest number of clusters that -k auto considers.  [default: 25, or the number of points]",
        metavar="K",
        least=1,
    )
    algorithm: str = option(
        "gtvmin",
        "Method, with its own options, such as fkm:server_n_init=20; `p2pkm algorithms` lists them.  [default: gtvmin]",
        metavar="SPEC",
        completes=True,
    )
    init: Any = option(
        None,
        "How the devices get their first centroids: global:candidates=5, local, bounding-box, leader, "
        "d2-sampling:greedy=true,draw=points, flooded-summaries:hops=1,candidates=1, "
        "tree-summaries:candidates=1,rows=200, rows:per-cluster=2,least=1,lean=true.  [default: global]",
        metavar="SPEC",
        group="method",
        completes=True,
        reads="p2pkm.methods.init.value:Init",
    )
    groups: bool | None = option(
        None, "One clustering for each group of devices whose points differ; of gtvmin and treelloyd.", group="method"
    )
    alpha: float | None = option(None, "Strength of every link as in the paper, instead of --coupling.", group="method")
    coupling: float | Literal["auto", "rehearsal"] | None = option(
        None,
        "Strength of the links against the own points, without unit; auto: as strong as the graph needs; "
        "rehearsal: as the devices' points need.  [default: rehearsal, else auto, 10 or 30: docs/methods.md]",
        metavar="C",
        group="method",
    )
    schedule: Literal["colored", "jacobi", "async"] | None = option(
        None,
        "colored, jacobi or async (with --link-model: a device acts when new messages arrive; up to 2,000 "
        "devices).  [default: colored]",
        metavar="NAME",
        group="method",
        completes=True,
    )
    relaxation: float | Literal["auto"] | None = option(
        None,
        "Relaxation factor of the centroid update, above 0 and below 2; 1: exact minimizer; auto: optimal for the "
        "coupling.  [default: auto; with a number as the coupling 1.5, for jacobi and async with --link-model 1]",
        metavar="THETA",
        group="method",
    )
    accept: bool | None = option(
        None,
        "Compare the result with the start that all devices agreed on, and keep what costs less; of gtvmin.  "
        "[default: wherever they agree on one, unless the coupling is given]",
        flags=("--accept/--no-accept",),
        group="method",
    )
    local_steps: int | None = option(None, "Local Lloyd iterations per turn.  [default: 1]", group="method", least=1)
    rounds: int | None = option(None, "Maximum number of rounds.  [default: gtvmin 150, fkm 100, ffcm 10]", least=0)
    all_rounds: bool = option(
        False,
        "Play all --rounds, and all that an initialization can take, also when all devices have converged: when a "
        "run ends then tells nothing about the points.",
    )
    tol: float | None = option(
        None,
        "Convergence tolerance: maximum centroid change, relative to the standard deviation of the data.  "
        "[default: 0.001]",
        group="method",
    )
    robust: str | None = option(
        None,
        "Robust aggregation against Byzantine neighbors: none, clip, trim, saturate; of fkm: none, trim or "
        "median.  [default: none]",
        metavar="NAME",
        group="method",
    )
    seed: int = option(0, "Random seed.  [default: 0]", least=0)
    record_every: int | None = option(
        None,
        "Record metrics every N rounds, and in the last round of each stage.  [default: 1; above 100,000 devices 1000]",
        metavar="N",
        least=1,
    )
    silhouette: bool = option(False, "Also compute the silhouette.")
    true_centers: str | None = option(
        None, "Measure the distance to known cluster centers: a file like those of --data.", metavar="FILE"
    )
    link_model: Any = option(
        None,
        "Estimate wall-clock time on a network model: lan, wan:latency=0.05, edge, lora:access=6.84 (each with "
        "latency, bandwidth, access, speed, server_access, server_speed).",
        metavar="SPEC",
        completes=True,
        reads="p2pkm.network.link_model:LinkModel",
    )
    faults: Any = option(
        None,
        "Fault model: loss=0.1,dropout=0.02 (docs/faults.md has all), or a trace.jsonl, which `p2pkm faults` writes.",
        metavar="SPEC",
        reads="p2pkm.channel.sampled_faults:Faults",
    )
    stale_policy: Any = option(
        None,
        "What to do with outdated neighbor tables: reuse them for up to N rounds (keep:age=N), or drop.  [default: "
        "keep:age=8]",
        metavar="SPEC",
        reads="p2pkm.channel.stale_policy:StalePolicy",
    )
    byzantine: Any = option(
        None,
        "Number and behavior of Byzantine devices: 2:kind=flip,place=central; kinds random, flip, drift, nan, "
        "collude; places random, central, peripheral.",
        metavar="SPEC",
        reads="p2pkm.channel.byzantine:Byzantine",
    )
    min_cluster_size: int = option(
        0,
        "Suppress clusters with fewer than N points in all messages; methods that cannot are rejected; no privacy "
        "guarantee.  [default: 0]",
        metavar="N",
    )
    noise: float = option(
        0.0,
        "Add Gaussian noise to every row of centroids sent, in units of the points' standard deviation; no privacy "
        "guarantee.  [default: 0]",
        metavar="SD",
    )
    quantize: Any = option(
        "auto",
        "Send tables as integers, differences in whole steps: rice or int8, each with bits=B, the step 2^-B of the "
        "points' standard deviation, and threshold=T, the least number of steps of a row "
        "(rice:bits=12,threshold=1); or as real numbers: none.  [default: auto: rice of gtvmin where it rehearses "
        "by default, else none: docs/methods.md]",
        metavar="SPEC",
        reads="p2pkm.channel.quantization:Quantization",
    )
    stream: Any = option(
        None,
        "How points arrive, leave and move while the method runs: drawn:kind=slow,share=0.1; kinds none, slow, "
        "jump, birth, turn; or a data tape, a file .jsonl (docs/drift.md).",
        metavar="SPEC",
        reads="p2pkm.data.stream:DataStream",
    )
    transforms: Any = option(
        None,
        "What installed packages do to messages, such as rounding:digits=3.",
        metavar="LIST",
        reads="p2pkm.channel.registry:PluginTransforms",
    )
    out: str | None = option(None, "Run folder, or none.  [default: runs/<time>-...]", metavar="FOLDER")
    checkpoint_every: int | None = option(
        None,
        "Write a checkpoint every R rounds (0: never), for `p2pkm resume`. No checkpoints with --out none or "
        "--coupling-path.  [default: about every 30 s]",
        metavar="R",
        least=0,
    )
    plot: bool = option(True, "Draw figures into the run folder.  [default: yes, no with json]")
    figures: str | None = option(
        None,
        "Kinds of files for figures: png, svg, pdf, and pgf where there is TeX.  [default: png,svg]",
        metavar="LIST",
    )
    baselines: bool = option(True, "Compare with central k-means and with the local-only baseline.  [default: yes]")
    allow_disconnected: bool = option(False, "Accept a disconnected graph.")
    rank_partition: Literal["auto", "blocks", "metis"] = option(
        "auto",
        "How devices are assigned to MPI ranks: blocks, metis, or auto, the one that cuts fewer links; the results "
        "are the same.  [default: auto]",
        metavar="NAME",
        completes=True,
    )
    require_converged: bool = option(False, "End with code 5 unless it converged.")
    start: Any = None
    checkpoint: Any = None

    def __post_init__(self) -> None:
        """Refuse values that can never work, before anything is read, and read those that are text."""
        from p2pkm.core.validation import whole

        for name, one in OPTIONS.items():
            value = getattr(self, name)
            if one.least is not None and value is not None and not (name == "clusters" and value == "auto"):
                whole(value, one.least, name)
        self._refuse_contradictions()
        empty = [name for name in ("partition", "init", "true_centers", "out") if getattr(self, name) == ""]
        if empty:
            raise ExperimentError(f"{empty[0]} is empty; leave it out, or give a value")
        self._refuse_bytes()
        self.draw_kinds()
        if self.quantize is None:
            object.__setattr__(self, "quantize", "none")
        for name, one in OPTIONS.items():
            if one.reads and (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, one.reader(given))

    def _refuse_bytes(self) -> None:
        """Refuse names of files that config.toml cannot hold."""
        for name in OPTIONS:
            value = getattr(self, name)
            if not isinstance(value, str) or name == "out":
                continue
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ExperimentError(
                    f"{name} is {value!r}, which is no UTF-8, as config.toml must be; rename the file"
                ) from None

    def _refuse_contradictions(self) -> None:
        if self.k_max is not None and self.clusters != "auto":
            raise ExperimentError(
                f"k_max is {self.k_max}, but clusters is {self.clusters}; say --clusters auto (-k auto)"
            )
        if self.all_rounds and self.require_converged:
            raise ExperimentError(
                "all_rounds and require_converged are both given, but a run that plays all rounds does not end by "
                "convergence; leave one of them out"
            )

    @property
    def draft_k(self) -> int:
        """Number of clusters to check a method with while it is open: the largest possible, or 1."""
        return (self.k_max if self.clusters == "auto" else self.clusters) or 1

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any], where: str) -> "RunOptions":
        """Read options from TOML keys or the command line, each converted to its type.

        Raises
        ------
        ExperimentError
            If a key is unknown (the nearest is named), or a value has the wrong type or range.
        """
        kinds = get_type_hints(cls)
        values = {}
        for raw, value in given.items():
            name = raw.replace("-", "_")
            if name not in OPTIONS:
                raise ExperimentError(f"unknown key {raw!r} in {where}. {suggest(name, OPTIONS, value)}")
            if name.endswith("_column") and isinstance(value, int):
                value = str(value)  # a column may be named by its index
            values[name] = convert(value, str if OPTIONS[name].reads else kinds[name], f"{name} in {where}")
        return cls(**values)

    def name_columns(self) -> dict[str, Any]:
        """Return which columns of a file are what, for `p2pkm.data.sources.load`."""
        from p2pkm.data.readers.intake import Intake

        intake = Intake.of(self.columns, self.drop, self.encode, missing=self.missing, header=self.header)
        return {"label_column": self.label_column, "device_column": self.device_column, "intake": intake}

    def draw_kinds(self) -> Mapping[str, tuple[str, ...]]:
        """Return ``kinds`` for functions that draw figures, empty for the default ones."""
        return {} if self.figures is None else {"kinds": call("read_kinds", self.figures)}

    def to_mapping(self) -> dict[str, Any]:
        """Return the options that have a value, as TOML holds them; without `out`, so that a run can be repeated."""
        found = {name: getattr(self, name) for name in OPTIONS if name != "out"}
        return {
            name: str(value) if OPTIONS[name].reads else value for name, value in found.items() if value is not None
        }


OPTIONS = options_of(RunOptions)
METHOD_FIELDS = tuple(name for name, one in OPTIONS.items() if one.group == "method")
