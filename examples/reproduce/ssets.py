"""The S-sets (Fränti and Virmajoki 2006), as Xu et al. (2024) deal and score them; what the scripts feca_*.py share.

The files sN.csv (x0, x1, label) and sN_centers.csv (x0, x1) of --data-dir hold 15 Gaussian clusters in the plane each.
Distances are in units of 10^4. The paper prints means over 10 runs with their standard deviations; two means agree if
they differ by no more than two standard errors of the difference, and by what rounding hides.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from paper import Row, need, repeat, table

import p2pkm
from p2pkm.core.batch import Stream
from p2pkm.core.protocols import ServerMethodBase
from p2pkm.kernels.reference import uniforms
from p2pkm.metrics.clustering import distance
from p2pkm.viz.style import BLUE, GRAY, INK, RED

UNIT = 1e4
RUNS = 10  # of the paper
SCENARIOS = ("IID", "0.3, by class", "0.1, by class", "0.3, by device", "0.1, by device")
PLACES = {name: ("IID", "0.3", "0.1").index(name.split(",")[0]) for name in SCENARIOS}  # columns of the paper's tables
SPLITS = (
    "by class: the proportions in which a cluster is dealt to clients are drawn; by device: those of the clusters at a",
    "client, which has an equal share of the points (Hsu et al. 2019, whom the paper cites)",
)


class Sset(NamedTuple):
    """A data set: points float64[m, d], labels int64[m], and the true centers float64[k, d], or None."""

    points: Any
    labels: Any
    centers: Any


class Scores(NamedTuple):
    """Figures of several runs, each float64[runs]: the distance to the true centers, purity, NMI, centroids found."""

    distance: Any
    purity: Any
    nmi: Any
    found: Any


class Case(NamedTuple):
    """What is run: a method, where the points are, and at most how many rounds."""

    method: Any
    scenario: str = "IID"
    rounds: int | None = None


@dataclass(frozen=True)
class Served(ServerMethodBase):
    """A server method with another server: a function of what `aggregate` gets."""

    method: Any
    server: Callable[..., Any]

    k = property(lambda self: self.method.k)
    name = property(lambda self: self.method.name)
    default_rounds = property(lambda self: self.method.default_rounds)
    tol = property(lambda self: self.method.tol)
    traits = property(lambda self: self.method.traits)

    def report(self, clients: Any, model: Any) -> Any:
        """Report as the method does."""
        return self.method.report(clients, model)

    def aggregate(self, hub: Any, tables: list[Any], model: Any) -> Any:
        """Ask the other server."""
        return self.server(hub, tables, model)


def draw_rows(hub: Any, tables: list[Any], model: Any) -> Any:
    """Return as many of the clients' rows as there are clusters, at random."""
    rows = np.concatenate(tables)
    return rows[np.argsort(uniforms(hub.shared_key, Stream.CHOICE, [0], len(rows))[0], kind="stable")[: len(model)]]


METHODS: dict[str, tuple[Any, int | None]] = {  # the lines of table 1, and most rounds
    "M-Avg": (p2pkm.MAvg(15), None),
    "FFCM v1, round 1": (p2pkm.FFCM(15, version=1, fuzzifier=2.0), 1),
    "FFCM v1, round 10": (p2pkm.FFCM(15, version=1, fuzzifier=2.0), 10),
    "FFCM v2, round 1": (p2pkm.FFCM(15, version=2, fuzzifier=2.0), 1),
    "FFCM v2, round 10": (p2pkm.FFCM(15, version=2, fuzzifier=2.0), 10),
    "k-FED": (p2pkm.KFED(15, local_k=5, seeding="plain", finish="one"), None),
    "FeCA": (p2pkm.FeCA(15), None),
    "central": (p2pkm.Central(15, n_init=1), None),
}


def load(folder: Path | None, number: int) -> Sset:
    """Read S-set `number`, 1 to 4."""
    columns, centers = (table(need(folder, f"s{number}{end}.csv")) for end in ("", "_centers"))
    return Sset(columns["x"], columns["label"], centers["x"])


def deal(data: Sset, scenario: str, seed: int, clients: int = 10) -> p2pkm.Shards:
    """Deal the points to the clients; a scenario is "IID", or for example "0.3, by class"."""
    if scenario == "IID":
        owner = p2pkm.partition.iid(len(data.points), clients, seed=seed)
    else:
        alpha, by = scenario.split(", by ")
        owner = p2pkm.partition.dirichlet(data.labels, clients, alpha=float(alpha), by=by, seed=seed)  # type: ignore[arg-type]
    return p2pkm.Shards.deal(data.points, owner, devices=clients, labels=data.labels)


def run(method: Any, shards: p2pkm.Shards, seed: int, rounds: int | None = None) -> Any:
    """Return the result of a run."""
    return p2pkm.simulate(method, None, shards, rounds=rounds, seed=seed, baselines=False)


def listen(method: Any, shards: p2pkm.Shards, seed: int) -> tuple[Any, list[Any]]:
    """Return the server's centroids and what every client said."""
    heard: list[Any] = []

    def server(hub: Any, tables: list[Any], model: Any) -> Any:
        heard[:] = [np.array(one) for one in tables]
        return method.aggregate(hub, tables, model)

    return run(Served(method, server), shards, seed).server_centroids, heard


def nearest(points: Any, centroids: Any) -> Any:
    """Return the nearest centroid of each point, int64[m]."""
    return ((points[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)


def play(data: Sset, case: Case, seed: int) -> tuple[float, float, float, int]:
    """Run a case once."""
    result = run(case.method, deal(data, case.scenario, seed), seed, case.rounds)
    centroids, summary = result.server_centroids, result.summary
    apart = np.nan if data.centers is None else distance(centroids, data.centers) / UNIT
    return apart, summary["purity"], summary["nmi"], len(centroids)


def gather(names: Iterable[Any], found: Sequence[tuple[float, ...]], runs: int) -> dict[Any, Scores]:
    """Return the scores by name; `found` has `runs` entries for each."""
    blocks = (found[i : i + runs] for i in range(0, len(found), runs))
    return {name: Scores(*np.array(block, float).T) for name, block in zip(names, blocks, strict=True)}


def study(data: Sset, cases: Mapping[Any, Case], chosen: Any) -> dict[Any, Scores]:
    """Run every case with the seeds 0 to runs - 1."""
    tasks = [(data, case, seed) for case in cases.values() for seed in chosen.seeds]
    return gather(cases, repeat(play, tasks, chosen.jobs), chosen.runs)


def row(what: str, values: Any, paper: tuple[float, ...] | None = None, digit: float = 0.1) -> Row:
    """Return a line of a table; `paper`: mean and, where known, standard deviation, rounded to `digit`.

    A deviation that the paper does not print is taken to be ours; with one run, ours to be the paper's.
    """
    if paper is None:
        return Row(what, None, values)
    own = float(np.std(values, ddof=1)) if len(values) > 1 else None
    theirs = paper[1] if len(paper) > 1 else own
    if theirs is None:
        return Row(what, paper[0], values)
    error = np.sqrt(theirs**2 / RUNS + (theirs if own is None else own) ** 2 / len(values))
    return Row(what, paper[0], values, 2 * float(error) + digit / 2)


def draw(ax: Any, data: Sset, centroids: Any, title: str) -> None:
    """Draw the points, the true centers as crosses and centroids as dots."""
    ax.scatter(*data.points.T / UNIT, s=2, color=GRAY, alpha=0.25, linewidth=0)
    ax.scatter(*data.centers.T / UNIT, s=42, marker="x", color=RED, linewidth=1.5, zorder=3)
    ax.scatter(*centroids.T / UNIT, s=20, color=BLUE, edgecolor="white", linewidth=0.6, zorder=4)
    frame(ax, title)


def frame(ax: Any, title: str) -> None:
    """Write the title, as wide as a panel, and leave the ticks away."""
    ax.set_title(title, fontsize=9, color=INK)
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_color(GRAY)
