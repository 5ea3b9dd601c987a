"""Options of a run: names, types, defaults and help texts, for the command line, TOML files and `simulate`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_type_hints

from p2pkm.core.errors import ExperimentError
from p2pkm.core.late_binding import call
from p2pkm.core.option import option, options_of
from p2pkm.core.program_object import ProgramObject, describe, require_object
from p2pkm.core.spec import convert, suggest

# Headings of the options in the help of the command line, in its order.
_EXPERIMENT = "Experiment"
_DATA = "Data"
_OUTPUT = "Output"
_DATA_FILES = "Data files"
_METHOD = "Method"
_NETWORK = "Network and faults"
_MESSAGES = "Messages and privacy"
_REPETITION = "Repetition"
_RECORDING = "Recording"
_MPI = "MPI"
_K_MAX = 25  # default of k_max
SECTIONS = (
    _EXPERIMENT,
    _DATA,
    _OUTPUT,
    _DATA_FILES,
    _METHOD,
    _NETWORK,
    _MESSAGES,
    _REPETITION,
    _RECORDING,
    _MPI,
)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options that define a run.

    Values are text and numbers; graph, data, partition, algorithm and true_centers may be a `ProgramObject`, and
    link_model, stale_policy and robust one that is a function.

    The names of the fields are the keys of a TOML file and, with dashes, the options of the command line. Their order
    is that of the keys in ``config.toml``.

    Attributes
    ----------
    start : float64[n, k, d] or None
        Centroids that replace those of the initialization; set by `simulate` only.
    checkpoint : str, Path or None
        Folder for checkpoints; set by `simulate` only.
    """

    graph: str | None = option(
        None,
        "Communication graph of a peer-to-peer method.  [default: ring]",
        section=_EXPERIMENT,
        is_basic=True,
        details="Family with its options, such as small-world:degree=4,rewire=0.1; file:PATH for GraphML, edge lists "
        "and other formats; gallery:NAME for a graph of the gallery. Methods with a server run as a star.",
        metavar="SPEC",
        completes=True,
    )
    devices: int | None = option(
        None,
        "Number of devices.  [default: ranks under mpirun, else 16]",
        section=_EXPERIMENT,
        is_basic=True,
        details="Without the server. Graphs of fixed size, such as karate or file:PATH, determine the number "
        "themselves.",
        least=1,
    )
    data: str | None = option(
        None,
        "Source of the points.  [default: device-clusters:amplitude=0.6; compare: grid16]",
        section=_DATA,
        is_basic=True,
        details="The default has clusters that differ between devices, and test points; it is grid16 in compare and "
        "studies, with --partition or --stream, and for methods that learn features. Generator with its options, such "
        "as blobs:clusters=8; or a file: .csv .tsv .txt .xlsx .ods .npy .npz "
        ".parquet .arrow .feather .arff .json (LEAF) .h5ad. FOLDER/ or 'FOLDER/*.csv' reads one file per device.",
        metavar="SPEC",
        completes=True,
    )
    label_column: str | None = option(
        None,
        "Column of a file with the true classes.",
        section=_DATA,
        is_basic=True,
        details="Name or index of the column. With true classes, a run reports ARI, NMI and purity.",
        metavar="NAME",
    )
    device_column: str | None = option(
        None,
        "Column of a file with the device of each point.",
        section=_DATA,
        is_basic=True,
        details="Name or index of the column. It determines the partition and the names of the devices.",
        metavar="NAME",
    )
    columns: str | None = option(
        None,
        "Columns of a file that are features, such as age,bmi.  [default: all others]",
        section=_DATA_FILES,
        metavar="LIST",
    )
    drop: str | None = option(
        None,
        "Columns of a file to ignore.",
        section=_DATA_FILES,
        metavar="LIST",
    )
    encode: str | None = option(
        None,
        "Columns of a file with categories, dates or times, converted to numbers.",
        section=_DATA_FILES,
        details="Each category becomes a feature of 0 and 1, two categories one feature; dates and times become days.",
        metavar="LIST",
    )
    missing: Literal["refuse", "drop", "mean", "median"] = option(
        "refuse",
        "Missing values of a file: refuse, drop, mean or median.  [default: refuse]",
        section=_DATA_FILES,
        details="refuse: end with an error. drop: remove the rows. mean, median: replace them by the mean or median "
        "of the known values of all devices, which the devices compute by messages.",
        metavar="NAME",
        completes=True,
    )
    header: Literal["auto", "yes", "no"] = option(
        "auto",
        "Column names in the first row of a text file: auto, yes, no.  [default: auto]",
        section=_DATA_FILES,
        details="auto: detected from the contents.",
        metavar="NAME",
        completes=True,
    )
    weight_column: str | None = option(
        None,
        "Column of a file with the weight of each point.",
        section=_DATA_FILES,
        details="Name or index of the column. Weights are numbers above 0.",
        metavar="NAME",
    )
    keep: str | None = option(
        None,
        "Columns of a file that are copied to labels.csv, such as an identifier.",
        section=_DATA_FILES,
        details="They are features only if --columns names them.",
        metavar="LIST",
    )
    na: str | None = option(
        None,
        "Texts of a file for missing values, such as -99,unknown.",
        section=_DATA_FILES,
        details="In addition to the usual ones: empty, NA, N/A, #N/A, NaN, NaT, <NA>, null, none. =LIST replaces them.",
        metavar="LIST",
    )
    decimal: Literal[".", ","] = option(
        ".",
        "Decimal separator of numbers in text files.  [default: .]",
        section=_DATA_FILES,
        metavar="CHAR",
    )
    thousands: str | None = option(
        None,
        "Separator of thousands in numbers of text files.  [default: none]",
        section=_DATA_FILES,
        metavar="CHAR",
    )
    separator: str | None = option(
        None,
        "Separator of the fields of text files.  [default: detected]",
        section=_DATA_FILES,
        details="One character, or comma, semicolon, tab, space, pipe.",
        metavar="CHAR",
    )
    encoding: str | None = option(
        None,
        "Encoding of text files.  [default: utf-8, else cp1252]",
        section=_DATA_FILES,
        metavar="NAME",
    )
    sheet: str | None = option(
        None,
        "Sheet of a spreadsheet.  [default: the first]",
        section=_DATA_FILES,
        details="Name of the sheet, or its number from 0.",
        metavar="NAME",
    )
    dates: Literal["iso", "ymd", "dmy", "mdy", "none"] = option(
        "iso",
        "Order of dates in encoded columns: iso, ymd, dmy, mdy, none.  [default: iso]",
        section=_DATA_FILES,
        details="iso: 2026-01-31. dmy, mdy, ymd: order of day, month and year, with years of two or four digits. none: "
        "one category per text.",
        metavar="NAME",
        completes=True,
    )
    rename: str | None = option(
        None,
        "New values of devices, labels and categories, such as Koeln=Köln.",
        section=_DATA_FILES,
        details="Two spellings of a site become one device.",
        metavar="LIST",
    )
    skip_rows: str | None = option(
        None,
        "Rows of a text or sheet to skip: N at the top, or 2-4.  [default: none]",
        section=_DATA_FILES,
        details="3 skips three rows of titles; 2-2 or 1-3,5-5 are row numbers, from 1. Messages keep the row numbers.",
        metavar="N",
    )
    scale: Literal["none", "standard", "minmax"] | Any = option(
        "none",
        "Scaling of the features: none, standard, minmax or ranges:...  [default: none]",
        section=_DATA_FILES,
        details="The devices compute means, deviations and ranges by messages, before the initialization. standard: "
        "mean 0 and standard deviation 1. minmax: range 0 to 1. ranges:age=0..100,bmi=10..50: these ranges, which must "
        "be known without looking at the points, become -1 to 1, and no message is sent; ranges:-20..20 for all "
        "features.",
        metavar="SPEC",
        completes=True,
        reads="p2pkm.data.scale:FeatureRanges",
    )
    dtype: Literal["float64", "float32"] = option(
        "float64",
        "Precision of stored points: float64 or float32.  [default: float64]",
        section=_DATA_FILES,
        details="float32 halves the memory of the points.",
        metavar="NAME",
        completes=True,
    )
    partition: str | None = option(
        None,
        "Assignment of points to devices, such as iid or dirichlet:alpha=0.3.",
        section=_DATA,
        is_basic=True,
        details="Default: the column of --device-column or the files of a folder; else dirichlet if the data have "
        "true classes; else iid.",
        metavar="SPEC",
        completes=True,
    )
    test_share: float = option(
        0.0,
        "Share of the points of each device that only measure it.  [default: 0]",
        section=_DATA,
        details="Test points: of m points of a device, test_share times m, rounded down, which no stage and no "
        "baseline sees. The table of the run then answers a second question: how good the clustering of each device "
        "is on its own test points, compared with one clustering for all devices and with each device alone.",
        metavar="S",
    )
    clusters: int | Literal["auto"] | None = option(
        None,
        "Number of clusters, or auto.  [default: classes of the data, else 8]",
        section=_EXPERIMENT,
        is_basic=True,
        details="auto: the devices choose k from 1 to --k-max, by messages: the k of the largest Calinski-Harabasz "
        "index (distances between clusters relative to those within), another one if a mixture of normal distributions "
        "explains clusters that are elongated or of different size better, or 1 if no clusters are separated more than "
        "in uniform data. Unclear: no gaps between clusters, too few points, or a k that changes with the penalty of "
        "the mixture. With few points per device, messages contain single points; --min-cluster-size 3 suppresses "
        "them.",
        metavar="K",
        flags=("-k", "--clusters"),
        least=1,
    )
    k_max: int | None = option(
        None,
        "Largest k that -k auto considers.  [default: 25, or the number of points]",
        section=_METHOD,
        metavar="K",
        least=1,
    )
    algorithm: str = option(
        "gtvmin",
        "Method with its options; see p2pkm algorithms.  [default: gtvmin]",
        section=_EXPERIMENT,
        is_basic=True,
        details="Name and options, such as fkm:server_n_init=20. p2pkm algorithms NAME explains a method and lists "
        "its options.",
        metavar="SPEC",
        completes=True,
    )
    init: Any = option(
        None,
        "Initialization of the centroids.  [default: global]",
        section=_EXPERIMENT,
        is_basic=True,
        details="Name and options, such as d2-sampling:greedy=false. Methods with a server have their own "
        "initialization.",
        metavar="SPEC",
        group="method",
        completes=True,
        reads="p2pkm.methods.init.value:Init",
    )
    groups: bool | None = option(
        None,
        "Separate clusterings for groups of devices (gtvmin, treelloyd).",
        section=_METHOD,
        details="Devices whose points differ form groups, found at the root of a spanning tree. gtvmin then uses only "
        "the links within groups.",
        group="method",
    )
    alpha: float | None = option(
        None,
        "Link strength as in the paper, instead of --coupling.",
        section=_METHOD,
        details="In units of point weight: if all weights are multiplied by r, multiply alpha by r.",
        group="method",
    )
    coupling: float | Literal["auto", "strong", "bayes", "links"] | None = option(
        None,
        "Link strength of gtvmin: a number, strong, bayes, links or auto.",
        section=_METHOD,
        details="strong: from graph and number of points, without messages. bayes: where devices differ, from "
        "differences between neighbors beyond noise. links: the same with a weight for each link. auto: chosen among "
        "strong, bayes and links, each with and without shares, by leave-one-out likelihood. Default: auto; a fixed "
        "coupling where auto cannot be combined with the run, which a note says (docs/explain/gtvmin.md).",
        metavar="C",
        group="method",
    )
    schedule: Literal["colored", "jacobi", "async"] | None = option(
        None,
        "Order of updates: colored, jacobi or async.  [default: colored]",
        section=_METHOD,
        details="colored: one color class of the graph per turn, so that no two neighbors update at the same time. "
        "jacobi: all devices at once. async: a random set of non-adjacent devices per round; with --link- "
        "model, a device acts when new messages arrive (at most 2,000 devices).",
        metavar="NAME",
        group="method",
        completes=True,
    )
    relaxation: float | Literal["auto"] | None = option(
        None,
        "Relaxation factor of the centroid update, between 0 and 2, or auto.",
        section=_METHOD,
        details="1: exact minimizer. auto: optimal for the coupling. Default: auto with coupling auto, bayes or links; "
        "otherwise 1.5, and 1 for jacobi and for async with --link-model.",
        metavar="THETA",
        group="method",
    )
    local_steps: int | None = option(
        None,
        "Lloyd iterations of a device per turn.  [default: 1]",
        section=_METHOD,
        group="method",
        least=1,
    )
    rounds: int | None = option(
        None,
        "Maximum number of rounds of the method.",
        section=_EXPERIMENT,
        is_basic=True,
        details="Default: as the method declares, for example gtvmin 150, fkm 100, ffcm1 10; p2pkm algorithms NAME "
        "shows it.",
        least=0,
    )
    all_rounds: bool = option(
        False,
        "All rounds, even after convergence, so that the run length reveals nothing.",
        section=_METHOD,
        details="The method runs all --rounds, and the initialization its largest number of rounds.",
    )
    tol: float | None = option(
        None,
        "Convergence tolerance, relative to the spread of the data.  [default: 0.001]",
        section=_METHOD,
        details="gtvmin: maximum centroid change of a turn, in standard deviations of the data. Other methods "
        "define it themselves; p2pkm algorithms NAME shows how. With 0, a run still ends before --rounds if nothing "
        "changes any more; --all-rounds prevents that.",
        group="method",
    )
    robust: str | None = option(
        None,
        "Robust aggregation against Byzantine neighbors.  [default: none]",
        section=_METHOD,
        details="gtvmin: none, clip, trim or saturate. fkm: none, trim or median.",
        metavar="NAME",
        group="method",
    )
    seed: int = option(
        0,
        "Random seed.  [default: 0]",
        section=_EXPERIMENT,
        is_basic=True,
        least=0,
    )
    record_every: int | None = option(
        None,
        "Rounds between records.  [default: 1; above 100,000 devices 1000]",
        section=_RECORDING,
        details="The last round of each stage is recorded, too.",
        metavar="N",
        least=1,
    )
    silhouette: bool = option(
        False,
        "Silhouette of the final labels.",
        section=_RECORDING,
    )
    true_centers: str | None = option(
        None,
        "File with true cluster centers, to report the distance to them.",
        section=_RECORDING,
        details="A file like those of --data.",
        metavar="FILE",
    )
    link_model: Any = option(
        None,
        "Link model for the simulated time: lan, wan, edge or lora.",
        section=_NETWORK,
        details="Profile with its options, such as wan:latency=0.05.",
        metavar="SPEC",
        completes=True,
        reads="p2pkm.network.link_model:LinkModel",
    )
    faults: Any = option(
        None,
        "Fault model, such as loss=0.1,dropout=0.02, or a fault trace (.jsonl).",
        section=_NETWORK,
        details="Shares of messages, links and devices with faults; or the file of a fault trace, which p2pkm faults "
        "writes.",
        metavar="SPEC",
        reads="p2pkm.channel.sampled_faults:Faults",
    )
    stale_policy: Any = option(
        None,
        "Use of outdated neighbor tables: keep:age=N or drop.  [default: keep:age=8]",
        section=_NETWORK,
        details="keep:age=N: use them for at most N rounds. drop: use only messages that arrive in time.",
        metavar="SPEC",
        reads="p2pkm.channel.stale_policy:StalePolicy",
    )
    deadline: float | None = option(
        None,
        "Longest time of a round on the link model, in seconds.",
        section=_NETWORK,
        details="Messages that arrive later are used in the next round, or with --stale-policy drop lost. For methods "
        "with a server, and --schedule jacobi.",
        metavar="S",
    )
    client_share: Any = option(
        None,
        "Share of the clients that a server asks in each round, such as 0.1.",
        section=_NETWORK,
        details="0.1:by=size draws clients in proportion to their number of points, by=availability among those that "
        "are available. The others neither compute nor send in this round. Stages before the method run with all "
        "clients.",
        metavar="SPEC",
        reads="p2pkm.network.client_share:ClientShare",
    )
    byzantine: Any = option(
        None,
        "Number and behavior of Byzantine devices, such as 2:kind=flip,place=central.",
        section=_NETWORK,
        metavar="SPEC",
        reads="p2pkm.channel.byzantine:Byzantine",
    )
    min_cluster_size: int = option(
        0,
        "Smallest cluster in messages; smaller ones are suppressed.  [default: 0]",
        section=_MESSAGES,
        details="From 2 on, no cluster of a single point is sent. Methods that cannot suppress clusters are rejected. "
        "No privacy guarantee.",
        metavar="N",
    )
    noise: float = option(
        0.0,
        "Gaussian noise on rows of centroids, in standard deviations.  [default: 0]",
        section=_MESSAGES,
        details="In units of the standard deviation of the points. No privacy guarantee; p2pkm algorithms names the "
        "methods that have one.",
        metavar="SD",
    )
    quantize: Any = option(
        "auto",
        "Integers in messages: auto, possible, rice, int8 or none.  [default: auto]",
        section=_MESSAGES,
        details="Messages become differences in integer steps. bits=B sets the step to 2^-B standard deviations of "
        "the points; threshold=T is the smallest change of a row, in steps, that is sent: "
        "rice:bits=12,threshold=1. none: real numbers. auto: rice for gtvmin with coupling strong, up to 16 "
        "clusters, else none (docs/explain/gtvmin.md). possible: rice where method and options allow it, else none.",
        metavar="SPEC",
        reads="p2pkm.channel.quantization:Quantization",
    )
    compress: Any = option(
        None,
        "Part of each table that is sent: topk:share=0.1 or randomk:share=0.1.",
        section=_MESSAGES,
        details="topk: the numbers that differ most from those that the neighbors hold. randomk: random ones. The "
        "others follow in later messages. For methods that send rows of centroids to all neighbors "
        "(docs/howto/reduce-bytes.md).",
        metavar="SPEC",
        reads="p2pkm.channel.compression:Compression",
    )
    stream: Any = option(
        None,
        "Changes of the points, such as drawn:kind=slow, or a data trace (.jsonl).",
        section=_NETWORK,
        details="Points arrive, leave and move while the method runs (docs/howto/streams.md).",
        metavar="SPEC",
        reads="p2pkm.data.stream:DataStream",
    )
    transforms: Any = option(
        None,
        "Message transforms of installed packages, such as rounding:digits=3.",
        section=_MESSAGES,
        metavar="LIST",
        reads="p2pkm.channel.registry:PluginTransforms",
    )
    out: str | None = option(
        None,
        "Run folder, or none.  [default: runs/<time>-...]",
        section=_OUTPUT,
        is_basic=True,
        metavar="FOLDER",
    )
    checkpoint_every: int | None = option(
        None,
        "Rounds between checkpoints, 0 for none.  [default: about every 30 s]",
        section=_RECORDING,
        details="p2pkm resume continues a run from its last checkpoint. No checkpoints with --out none or --coupling- "
        "path.",
        metavar="R",
        least=0,
    )
    plot: bool = option(
        True,
        "Figures in the run folder.  [default: yes, no with json]",
        section=_RECORDING,
    )
    figures: str | None = option(
        None,
        "File formats of figures: png, svg, pdf, pgf.  [default: png,svg]",
        section=_RECORDING,
        details="pgf requires TeX.",
        metavar="LIST",
    )
    baselines: bool = option(
        True,
        "Central k-means and local-only baseline, for comparison.  [default: yes]",
        section=_RECORDING,
    )
    allow_disconnected: bool = option(
        False,
        "A disconnected graph is accepted; each component is clustered separately.",
        section=_NETWORK,
    )
    rank_partition: Literal["auto", "blocks", "metis"] = option(
        "auto",
        "Assignment of devices to MPI ranks: auto, blocks, metis.  [default: auto]",
        section=_MPI,
        details="auto: blocks or metis, whichever has the smaller edge cut. The results are the same.",
        metavar="NAME",
        completes=True,
    )
    require_converged: bool = option(
        False,
        "Exit code 5 unless the run converged.",
        section=_REPETITION,
    )
    start: Any = None
    checkpoint: Any = None

    def __post_init__(self) -> None:
        """Validate values that no run can use, before any file is read, and parse values that are text."""
        from p2pkm.core.validation import check_integer, check_positive

        for name, declared in OPTIONS.items():
            value = getattr(self, name)
            if declared.least is not None and value is not None and not (name == "clusters" and value == "auto"):
                check_integer(value, declared.least, name)
        self._check_combinations()
        if not 0.0 <= check_positive(self.test_share, "test_share", zero=True) < 1.0:
            raise ExperimentError(
                f"test_share is {self.test_share:g}; expected a number from 0 to below 1, because at least one point "
                "of a device is not a test point. Use a share such as 0.2"
            )
        if self.deadline is not None:
            check_positive(self.deadline, "deadline")
        for name in ("partition", "init", "true_centers", "out"):
            if getattr(self, name) == "":
                raise ExperimentError(f"{name} is empty; expected a value. Remove it, or set a value")
        self._check_encoding()
        self.draw_kinds()
        if self.quantize is None:
            object.__setattr__(self, "quantize", "none")
        for name, declared in OPTIONS.items():
            value = getattr(self, name)
            # Without a scale, all ranks do without the module that reads it.
            if value is None or (name == "scale" and isinstance(value, str) and value == "none"):
                continue
            if declared.reads and require_object(value, name) is None:
                object.__setattr__(self, name, declared.reader(value))

    def _check_encoding(self) -> None:
        """Reject file names that config.toml, which is UTF-8, cannot store; the run folder itself is not in it."""
        for name in OPTIONS:
            value = getattr(self, name)
            if not isinstance(value, str) or name == "out":
                continue
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ExperimentError(
                    f"{name} is {value!r}; expected UTF-8, because config.toml stores it. Rename the file"
                ) from None

    def _check_combinations(self) -> None:
        """Reject options that exclude each other whatever the method."""
        if self.k_max is not None and self.clusters != "auto":
            given = "not set" if self.clusters is None else self.clusters
            raise ExperimentError(
                f"k_max is {self.k_max}, but clusters is {given}; expected auto. Use --k-max {self.k_max} with "
                "-k auto, or remove --k-max"
            )
        if self.all_rounds and self.require_converged:
            raise ExperimentError(
                "all_rounds cannot be combined with require_converged: a run of all rounds does not end by "
                "convergence. Remove one of them"
            )

    def find_k_max(self, points: int) -> int:
        """Return the largest number of clusters that the devices may choose: as given, or by the number of points."""
        return self.k_max or min(_K_MAX, max(1, points))

    @property
    def draft_k(self) -> int:
        """Number of clusters to validate a method with before k is known: the largest possible one, or 1."""
        return (self.k_max if self.clusters == "auto" else self.clusters) or 1

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], where: str) -> "RunOptions":
        """Read options from TOML keys or the command line, each converted to its type.

        Parameters
        ----------
        mapping : mapping of str to object
            Values by key, with dashes or underscores.
        where : str
            Source of the values, for error messages.

        Raises
        ------
        ExperimentError
            If a key is unknown (the message suggests the nearest key), or a value has a wrong type or range.
        """
        types = _read_types()
        values = {}
        for key, value in mapping.items():
            name = key.replace("-", "_")
            if name not in OPTIONS:
                raise ExperimentError(f"unknown key {key!r} in {where}. {suggest(name, OPTIONS, value)}")
            if name in values:
                raise ExperimentError(f"{where} has {name} twice, with - and with _. Remove one")
            # The name of a column may be its index.
            if (name.endswith("_column") or name in ("sheet", "skip_rows")) and isinstance(value, int):
                value = str(value)
            # Some specs begin with a number: byzantine, client_share.
            if OPTIONS[name].reads and isinstance(value, (int, float)) and not isinstance(value, bool):
                value = str(value)
            if not isinstance(value, ProgramObject):
                value = convert(value, str if OPTIONS[name].reads else types[name], f"{name} in {where}")
            values[name] = value
        return cls(**values)

    def replaced(self, **changes: Any) -> "RunOptions":
        """Return options with values that the program has chosen: unlike ``dataclasses.replace``, they are not checked.

        Values of options that are read from text must be the objects that it stands for.
        """
        changed = object.__new__(RunOptions)
        vars(changed).update(vars(self), **changes)
        return changed

    def name_columns(self) -> dict[str, Any]:
        """Collect the options that describe the columns of a file, as arguments of `p2pkm.data.sources.load`."""
        from p2pkm.data.readers.intake import ColumnOptions

        intake = ColumnOptions.of(**{name: getattr(self, name) for name in ColumnOptions._fields})
        return {"label_column": self.label_column, "device_column": self.device_column, "intake": intake}

    def draw_kinds(self) -> Mapping[str, tuple[str, ...]]:
        """Validate the file formats of figures and return them as ``kinds``; empty for the default formats."""
        return {} if self.figures is None else {"kinds": call("read_kinds", self.figures)}

    def to_mapping(self) -> dict[str, Any]:
        """Map the options that have a value to TOML values, without `out`, so that a run can be repeated."""
        values = vars(self)
        return {
            name: str(value) if declared.reads and not isinstance(value, ProgramObject) else describe(value)
            for name, declared in OPTIONS.items()
            if (value := values[name]) is not None and name != "out"
        }

    def to_words(self) -> list[str]:
        """Write method, seed and the options without their default as words of the command line.

        Those of figures are left out.

        Raises
        ------
        ExperimentError
            If the value of an option is an object of a program.
        """
        words, usual = list[str](), RunOptions().to_mapping()
        for name, value in self.to_mapping().items():
            # The value may be the text of an object, or the object itself, which `to_mapping` writes as this text.
            require_object(value, name)
            is_usual = value == usual.get(name) and name not in ("algorithm", "seed")
            # There is no opposite of --groups: a method is without groups unless they are asked for.
            if is_usual or name in ("plot", "figures") or (name == "groups" and not value):
                continue
            flag = max(OPTIONS[name].flags, key=len, default=f"--{name.replace('_', '-')}")
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            else:
                words += [flag, str(value)]
        return words

    def identify(self) -> dict[str, Any]:
        """Map the options as `to_mapping` does, but an object of a program to the digest of its content alone."""
        digests = {name: value.digest for name, value in vars(self).items() if isinstance(value, ProgramObject)}
        return self.to_mapping() | digests


OPTIONS = options_of(RunOptions)
METHOD_FIELDS = tuple(name for name, declared in OPTIONS.items() if declared.group == "method")


@cache
def _read_types() -> dict[str, Any]:
    """Read the type of each option."""
    return get_type_hints(RunOptions)
