"""The options of a run on the command line, which several commands share."""

from collections.abc import Callable
from typing import Any

import click

from p2pkm.cli.completion import completing

with_format = click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
                           help="What to print: a table, or one JSON object.")  # fmt: skip

_OPTIONS: list[Callable[..., Any]] = [
    completing("--graph", metavar="SPEC", help="Communication graph of a peer-to-peer method: ring, path, star, "
                 "complete, tree, grid, torus, small-world:degree=4,rewire=0.1, random-regular:degree=4, "
                 "erdos-renyi:p=0.3, barabasi-albert:m=2, random-geometric, exponential:base=2, barbell, "
                 "communities:bridges=1, caveman:size=4, karate, file:PATH (GraphML, edge list, ...), gallery:NAME, "
                 "hypercube, ladder, wheel, d-cliques:size=4, ... (a wrong name lists all).  "
                 "[default: ring; methods with a server run as a star]"),
    click.option("--devices", type=int, help="Number of devices.  [default: ranks under mpirun, else 16]"),
    completing("--data", metavar="SPEC", help="Points: grid16:points=200,sd=1, blobs:clusters=8, slike, balls, "
                 "communities:second=fresh, shapes:side=16, iris, wine, digits:components=10, or a file: .csv .tsv "
                 ".npy .npz .parquet .arrow .feather .json (LEAF) .h5ad; FOLDER/ or 'FOLDER/*.csv': a device per "
                 "file.  [default: grid16]"),
    click.option("--label-column", metavar="NAME", help="Column of a file with the true class (name or index)."),
    click.option("--device-column", metavar="NAME", help="Column of a file with the device of each point."),
    click.option("--columns", metavar="LIST", help="Columns of a file that are the features, such as age,bmi.  "
                 "[default: all others]"),
    click.option("--drop", metavar="LIST", help="Columns of a file to leave out."),
    click.option("--encode", metavar="LIST", help="Columns of a file with categories, which become a feature of 0 and "
                 "1 for each, or with dates and times, which become days."),
    completing("--missing", metavar="NAME", help="Missing values of a file: refuse them, drop their rows, or fill in "
               "mean or median of the known ones, by messages: refuse, drop, mean or median.  [default: refuse]"),
    completing("--header", metavar="NAME", help="Whether the first row of a text file holds the names of the columns: "
               "yes, no, or auto, as far as it can be told.  [default: auto]"),
    completing("--scale", metavar="NAME", help="Scale the features first, by messages: none, standard or minmax.  "
                 "[default: none]"),
    completing("--dtype", metavar="NAME", help="How points are stored: float64, or float32 in half the memory.  "
                 "[default: float64]"),
    completing("--partition", metavar="SPEC", help="How points are partitioned over devices: iid, blocks, "
                 "dirichlet:alpha=0.3,by=class, beta:beta=1, by-label:labels=2, quantity:alpha=0.5, mufc, column.  "
                 "[default: the file's column, else dirichlet with labels, else iid]"),
    click.option("-k", "--clusters", metavar="K", help="Number of clusters; auto: the devices choose it, by messages.  "
                 "[default: classes of the data, else 8]"),
    click.option("--k-max", type=int, metavar="K", help="Largest number of clusters that -k auto considers.  "
                 "[default: 25, or the number of points]"),
    completing("--algorithm", metavar="SPEC", help="Method, with its own options, such as fkm:server_n_init=20; "
                 "`p2pkm algorithms` lists them.  [default: gtvmin]"),
    completing("--init", metavar="SPEC", help="How the devices get their first centroids: global:candidates=5, local, "
                 "bounding-box, leader, d2-sampling:greedy=true,draw=points, flooded-summaries:hops=1,candidates=1, "
                 "tree-summaries:candidates=1,rows=200, rows:per-cluster=2,least=1,lean=true.  "
                 "[default: global]"),
    click.option("--groups", is_flag=True, default=None, help="One clustering for each group of devices whose points "
                 "differ; of gtvmin and treelloyd."),
    click.option("--alpha", type=float, help="Strength of every link as in the paper, instead of --coupling."),
    click.option("--coupling", metavar="C", help="Strength of the links against the own points, without unit; auto: "
                 "as strong as the graph needs; rehearsal: as the devices' points need.  "
                 "[default: rehearsal, else auto, 10 or 30: docs/methods.md]"),
    completing("--schedule", metavar="NAME", help="colored, jacobi or async (with --link-model: a device acts when "
                 "new messages arrive; up to 2,000 devices).  [default: colored]"),
    click.option("--relaxation", metavar="THETA", help="Relaxation factor of the centroid update, above 0 and below 2; "
                 "1: exact minimizer; auto: optimal for the coupling.  [default: auto; with a number as the coupling "
                 "1.5, for jacobi and async with --link-model 1]"),
    click.option("--accept/--no-accept", default=None, help="Compare the result with the start that all devices agreed "
                 "on, and keep what costs less; of gtvmin.  [default: wherever they agree on one, unless the coupling "
                 "is given]"),
    click.option("--local-steps", type=int, help="Local Lloyd iterations per turn.  [default: 1]"),
    click.option("--rounds", type=int, help="Maximum number of rounds.  [default: gtvmin 150, fkm 100, ffcm 10]"),
    click.option("--all-rounds", is_flag=True, default=None, help="Play all --rounds, and all that "
                 "an initialization can take, also when all devices have converged: when a run ends then tells nothing "
                 "about the points."),
    click.option("--tol", type=float, help="Convergence tolerance: maximum centroid change, relative to the standard "
                 "deviation of the data.  [default: 0.001]"),
    click.option("--robust", metavar="NAME", help="Robust aggregation against Byzantine neighbors: none, clip, trim, "
                 "saturate; of fkm: none, trim or median.  [default: none]"),
    click.option("--seed", type=int, help="Random seed.  [default: 0]"),
    click.option("--seeds", metavar="LIST", help="Run once for each of several seeds, such as 0-9, and print mean, "
                 "standard deviation and worst case."),
    click.option("--coupling-path", metavar="LIST", help="Solve for a sequence of couplings, such as "
                 "30,10,...,0.1, with warm starts; plots local cost against disagreement."),
    click.option("--record-every", type=int, metavar="N", help="Record metrics every N rounds, and in the last round "
                 "of each stage.  [default: 1; above 100,000 devices 1000]"),
    click.option("--silhouette", is_flag=True, default=None, help="Also compute the silhouette."),
    click.option("--true-centers", metavar="FILE", help="Measure the distance to known cluster centers: a file like "
                 "those of --data."),
    completing("--link-model", metavar="SPEC", help="Estimate wall-clock time on a network model: lan, "
                 "wan:latency=0.05, edge, lora:access=6.84 (each with latency, bandwidth, access, speed, "
                 "server_access, server_speed)."),
    click.option("--faults", metavar="SPEC", help="Fault model: loss=0.1,dropout=0.02 (docs/faults.md has all), or a "
                 "trace.jsonl, which `p2pkm faults` writes."),
    click.option("--stale-policy", metavar="SPEC", help="What to do with outdated neighbor tables: reuse them for up "
                 "to N rounds (keep:age=N), or drop.  [default: keep:age=8]"),
    click.option("--byzantine", metavar="SPEC", help="Number and behavior of Byzantine devices: "
                 "2:kind=flip,place=central; kinds random, flip, drift, nan, collude; places random, central, "
                 "peripheral."),
    click.option("--min-cluster-size", type=int, metavar="N", help="Suppress clusters with fewer than N points in all "
                 "messages; methods that cannot are rejected; no privacy guarantee.  [default: 0]"),
    click.option("--noise", type=float, metavar="SD", help="Add Gaussian noise to every row of centroids sent, in "
                 "units of the points' standard deviation; no privacy guarantee.  [default: 0]"),
    click.option("--quantize", metavar="SPEC", help="Send tables as integers, differences in whole steps: rice or "
                 "int8, each with bits=B, the step 2^-B of the points' standard deviation, and threshold=T, the least "
                 "number of steps of a row (rice:bits=12,threshold=1); or as real numbers: none.  [default: auto: rice "
                 "of gtvmin where it rehearses by default, else none: docs/methods.md]"),
    click.option("--stream", metavar="SPEC", help="How points arrive, leave and move while the method "
                 "runs: drawn:kind=slow,share=0.1; kinds none, slow, jump, birth, turn; or a data tape, a file .jsonl "
                 "(docs/drift.md)."),
    click.option("--transforms", metavar="LIST", help="What installed packages do to messages, such as "
                 "rounding:digits=3."),
    click.option("--out", metavar="FOLDER", help="Run folder, or none.  [default: runs/<time>-...]"),
    click.option("--checkpoint-every", type=int, metavar="R", help="Write a checkpoint every R rounds (0: never), for "
                 "`p2pkm resume`. No checkpoints with --out none or --coupling-path.  [default: about every 30 s]"),
    click.option("--plot/--no-plot", default=None, help="Draw figures into the run folder.  "
                 "[default: yes, no with json]"),
    click.option("--figures", metavar="LIST", help="Kinds of files for figures: png, svg, pdf, and pgf where there is "
                 "TeX.  [default: png,svg]"),
    click.option("--baselines/--no-baselines", default=None, help="Compare with central k-means and with the "
                 "local-only baseline.  [default: yes]"),
    click.option("--allow-disconnected", is_flag=True, default=None, help="Accept a disconnected graph."),
    completing("--rank-partition", metavar="NAME", help="How devices are assigned to MPI ranks: blocks, metis, or "
                 "auto, the one that cuts fewer links; the results are the same.  [default: auto]"),
    click.option("--require-converged", is_flag=True, default=None, help="End with code 5 unless it converged."),
    click.option("--config", metavar="FILE.toml", help="Read options from a file; the command line wins."),
    click.option("--force", is_flag=True, help="Replace what is in --out."),
    with_format,
    click.option("--dry-run", is_flag=True, help="Check everything, show the resolved options, and stop."),
    click.option("-q", "--quiet", is_flag=True, help="No progress."),
    click.option("-v", "--verbose", is_flag=True, help="A line for every recorded round."),
]  # fmt: skip


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add all options of a run to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def without(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options of a run but for some."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(_OPTIONS):
            probe: Any = option(lambda: None)
            if probe.__click_params__[0].name not in names:
                function = option(function)
        return function

    return decorate
