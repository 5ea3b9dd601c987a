"""The synthetic data of Garst and Reinders (ICPR 2024), drawn anew, and what the scripts of their figures share.

Sixteen Gaussian clusters on a grid are dealt to five clients: a client at distance d of a point takes it with
probability P = 1 - exp(-beta / d) (equation 2; the paper's "four clients" is a slip). The legacy generator of NumPy
with the seed 42 draws the very points and owners of the authors' files, so the scripts do not need them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from paper import Row, repeat, table

import p2pkm
from p2pkm.viz.style import BLUE, GRAY, ORANGE, RED

BETAS = (0.1, 1.0, 10.0)
NOISES = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
GRID = (-7.5, -2.5, 2.5, 7.5)
LOCATIONS = np.array(  # of the five clients
    [
        [6.99660115832405438, 4.12474540411465895],
        [-5.27106670384925646, 7.15714245170925878],
        [6.71479449353775593, -9.17480267710585551],
        [2.4435159206032413, 8.33191070847739113],
        [-9.60694859279587199, 2.76967339872204121],
    ]
)

FKM = p2pkm.FKM(16, server_seeding="unweighted", tol=0.0)
CENTRAL = p2pkm.Central(16, n_init=10)
KFED = p2pkm.KFED(16, local_k=16, seeding="plain", device="first", finish="converge")
KFED_GREEDY = p2pkm.KFED(16, local_k=16, seeding="greedy", device="first", finish="converge")
ROUNDS = {"type": int, "default": 100, "help": "rounds of FKM (default 100)"}  # an option of the scripts
COLORS = {"central": GRAY, "FKM": BLUE, "k-FED": RED, "k-FED greedy": ORANGE}

PRINTED = {  # (method, sd): mean ARI over 200 runs for each beta, 50 points per cluster, after 100 rounds
    ("FKM", 1.0): (0.949, 0.958, 0.957),
    ("FKM", 1.5): (0.697, 0.707, 0.709),
    ("central", 1.0): (0.955, 0.955, 0.955),
    ("central", 1.5): (0.725, 0.725, 0.725),
    ("k-FED", 1.0): (0.690, 0.729, 0.852),
    ("k-FED", 1.5): (0.432, 0.520, 0.607),
}
ALLOWED = {
    ("FKM", 1.0): 0.01, ("FKM", 1.5): 0.015, ("central", 1.0): 0.01, ("central", 1.5): 0.015,
    ("k-FED", 1.0): 0.03, ("k-FED", 1.5): 0.03,
}  # fmt: skip


class Scores(NamedTuple):
    """Adjusted Rand indices of several runs.

    Attributes
    ----------
    curve : float64[runs, rounds]
        After every round: mean over the clients, weighted by their points, of the index of the client's points with the
        labels of the nearest server centroid. This is the score of the paper.
    pooled : float64[runs]
        At the end: the index of all points together.
    """

    curve: Any
    pooled: Any

    @property
    def final(self) -> Any:
        """Return the paper's score at the end."""
        return self.curve[:, -1]


def draw(beta: float, points: int, sd: float) -> dict[str, Any]:
    """Draw the clusters and deal them to the clients: x (float64[16 points, 2]), label, client."""
    source = np.random.RandomState(42)
    clusters = []
    for mean_x in GRID:
        for mean_y in GRID:
            clusters.append(np.column_stack([source.normal(mean, sd, points) for mean in (mean_x, mean_y)]))
    x = np.concatenate(clusters)
    client = np.array([_deal(source, point, beta) for point in x])
    return {"x": x, "label": np.repeat(np.arange(16), points), "client": client}


def _deal(source: np.random.RandomState, point: Any, beta: float) -> int:
    """Return the client of a point: one of those that hit it, or else the closest."""
    distances = np.sqrt(((LOCATIONS - point) ** 2).sum(axis=1))
    chances = 1 - np.exp(-beta / distances)
    hits = [i for i, p in enumerate(chances) if source.choice([0, 1], p=[1 - p, p])]
    return int(source.choice(hits)) if hits else int(distances.argmin())


def name_file(beta: float, points: int, sd: float) -> str:
    """Return the name of the authors' data set."""
    return f"garst/abl_beta{beta:g}_ppc{points}_noise{sd:g}.csv"


def load(folder: Path | None, beta: float, points: int, sd: float) -> p2pkm.Shards:
    """Read the authors' data set if it is in the folder, or draw it."""
    path = None if folder is None else folder / name_file(beta, points, sd)
    return deal(table(path) if path is not None and path.exists() else draw(beta, points, sd))


def deal(columns: Mapping[str, Any]) -> p2pkm.Shards:
    """Return a table's points at their clients."""
    return p2pkm.Shards.deal(columns["x"], columns["client"], labels=columns.get("label"))


def play(method: Any, shards: p2pkm.Shards, rounds: int, seed: int) -> tuple[list[float], float]:
    """Return the scores of a run after every round, and that of all points together."""
    limit = None if method.traits.one_shot else rounds
    result = p2pkm.simulate(method, None, shards, rounds=limit, seed=seed, baselines=False)
    curve = [record["ari_clients"] for record in result.rounds if record["round"] > 0]
    return curve, result.summary["ari"]


def study(cases: Mapping[Any, tuple[Any, p2pkm.Shards]], chosen: Any) -> dict[Any, Scores]:
    """Run every case (method, shards) with the seeds 0 to runs - 1."""
    tasks = [(*case, chosen.rounds, seed) for case in cases.values() for seed in chosen.seeds]
    found = repeat(play, tasks, chosen.jobs)
    scores = {}
    for i, name in enumerate(cases):
        curves, pooled = zip(*found[i * chosen.runs : (i + 1) * chosen.runs], strict=True)
        scores[name] = Scores(np.array(curves), np.array(pooled))
    return scores


def values_of(method: str, scores: Scores) -> Any:
    """Return the scores that the paper shows: of central k-means that of all points, which no partition changes."""
    return scores.pooled if method == "central" else scores.final


def row(method: str, beta: float, sd: float, scores: Scores, points: int = 50) -> Row:
    """Return a line of the table; `method` is a name in COLORS."""
    known = (method.removesuffix(" greedy"), sd)
    paper = PRINTED[known][BETAS.index(beta)] if points == 50 and known in PRINTED else None
    what = f"beta {beta:g}, sd {sd:g}, {method}"
    return Row(what, paper, values_of(method, scores), None if paper is None else ALLOWED.get((method, sd)))
