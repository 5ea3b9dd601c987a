"""Deng, Wang and Alobaedy, table 2: FKmeansCB beside k-means, Nie's work, k-FED and MUFC.

The paper prints the best adjusted Rand index and the best NMI of 20 runs for ten clients, with the numbers of clusters
that served each method best, and says that FKmeansCB is better than all the others.

We compare the best of our runs and print the mean beside it. Our reading of the lines: k-means is central k-means from
one seeding; Nie's work is coordinate descent on the same cost ("cdkm"); k-FED starts at the server from a random client
and ends with one Lloyd step; MUFC says seeds; the numbers are those in the paper's parentheses, clusters of a client
before clusters of the server for FKmeansCB, after them for k-FED and MUFC. Two further lines take the number of classes
where the number in the parentheses cannot give the printed value.

The second table keeps one deal of the points for all runs, takes the best of them, and repeats that for as many deals:
a best of 20 depends on the deal, which the paper does not describe further.
"""

from typing import Any

import numpy as np
from deng import ALLOWED, CLIENTS, COLORS, SCORES, SMALL, WIDTHS, backbone, draw_runs, explain_marks, load, play, study
from paper import Row, canvas, claim, options, repeat, save, show

import p2pkm

Printed = dict[tuple[str, tuple[int, ...]], tuple[float | None, float | None]]
PRINTED: dict[str, Printed] = {  # by data set, method and numbers of clusters: ARI and NMI
    "thyroid": {
        ("k-means", (3,)): (0.58, 0.49), ("cdkm", (5,)): (0.33, 0.26), ("k-FED", (3, 1)): (0.43, 0.54),
        ("MUFC", (3, 3)): (0.58, 0.47), ("FKmeansCB", (7, 3)): (0.60, 0.51),
    },
    "breast": {
        ("k-means", (2,)): (0.17, 0.09), ("cdkm", (3,)): (0.06, 0.07), ("k-FED", (2, 1)): (0.16, 0.08),
        ("MUFC", (2, 2)): (0.17, 0.09), ("FKmeansCB", (9, 2)): (0.20, 0.10),
    },
    "ecoli": {
        ("k-means", (3,)): (0.39, 0.58), ("k-means", (8,)): (0.39, 0.58), ("cdkm", (3,)): (0.63, 0.67),
        ("k-FED", (4, 2)): (0.61, 0.62), ("MUFC", (3, 3)): (0.67, 0.64), ("FKmeansCB", (11, 3)): (0.71, 0.68),
    },
    "iris": {
        ("k-means", (3,)): (0.73, 0.76), ("cdkm", (2,)): (0.72, 0.74), ("cdkm", (3,)): (0.72, 0.74),
        ("k-FED", (4, 1)): (0.73, 0.75), ("MUFC", (3, 2)): (0.73, 0.77), ("FKmeansCB", (5, 3)): (0.75, 0.80),
    },
    "mnist": {
        ("k-means", (10,)): (0.39, 0.50), ("cdkm", (10,)): (None, None), ("k-FED", (10, 2)): (0.75, 0.84),
        ("MUFC", (10, 8)): (0.77, 0.85), ("FKmeansCB", (200, 10)): (0.88, 0.89),
    },
    "covertype": {
        ("k-means", (7,)): (0.01, 0.07), ("cdkm", (7,)): (None, None), ("k-FED", (7, 2)): (0.04, 0.13),
        ("MUFC", (5, 4)): (0.03, 0.12), ("FKmeansCB", (200, 10)): (0.05, 0.15),
    },
}  # fmt: skip
OWN = {("ecoli", "k-means", (8,)), ("iris", "cdkm", (3,))}  # lines that the paper does not have: our reading
DEALT = ("k-FED", "MUFC", "FKmeansCB")  # methods that depend on who has which points


def build(name: str, method: str, numbers: tuple[int, ...]) -> Any:
    """Return a method with the paper's numbers of clusters."""
    if method == "FKmeansCB":
        return backbone(name)
    k, local_k = numbers[0], numbers[-1]
    if method in ("k-FED", "MUFC"):
        return (p2pkm.KFED if method == "k-FED" else p2pkm.MUFC)(k, local_k=local_k)
    return p2pkm.Central(k, method="cdkm" if method == "cdkm" else "lloyd", n_init=1)


def say(case: Any) -> str:
    """Return the name of a line."""
    name, method, numbers = case
    return f"{name}, {method} {'/'.join(map(str, numbers))}{' (our reading)' * (case in OWN)}"


def rows_of(scores: dict[Any, Any], s: int, *, best: bool) -> dict[Any, Row]:
    """Return the lines for one of the SCORES."""
    printed = {case: PRINTED[case[0]][case[1:]][s] for case in scores}
    return {
        case: Row(say(case), printed[case], own[:, s], ALLOWED, best, counted=best and case not in OWN)
        for case, own in scores.items()
    }


def redeal(cases: dict[Any, Any], chosen: Any) -> dict[Any, Any]:
    """Return for as many deals as there are runs the best scores of so many runs, float64[deals, SCORES]."""
    cases = {case: known for case, known in cases.items() if case[0] in SMALL and case[1] in DEALT}
    runs = chosen.seeds
    tasks = [(*known, dealt, seed) for known in cases.values() for dealt in runs for seed in runs]
    found = np.array(repeat(play, tasks, chosen.jobs)).reshape(len(cases), chosen.runs, chosen.runs, len(SCORES))
    return dict(zip(cases, found.max(axis=2), strict=True))


def compare(scores: dict[Any, Any], pick: Any, word: str) -> str:
    """Return a note on whether FKmeansCB has the highest adjusted Rand index on every data set, and who has no less."""
    index = {case: pick(own[:, 0]) for case, own in scores.items()}
    ours = {case[0]: value for case, value in index.items() if case[1] == "FKmeansCB"}
    ahead = [say(case) for case, value in index.items() if case[1] != "FKmeansCB" and value >= ours[case[0]]]
    told = f" (not less: {'; '.join(ahead)})" if ahead else ""
    return claim(f"FKmeansCB is better than all the others, by the {word} index", not ahead) + told


def explain(scores: dict[Any, Any]) -> list[str]:
    """Return what we think of the lines that differ."""
    pair = np.array(PRINTED["ecoli"]["k-means", (3,)], float)
    near = []
    for k in (3, 8):
        runs = scores["ecoli", "k-means", (k,)]
        near.append("{:.2f}, {:.2f}".format(*runs[np.abs(runs - pair).sum(axis=1).argmin()]))
    central, ours = (scores["ecoli", *line][:, 0].max() for line in (("k-means", (3,)), ("FKmeansCB", WIDTHS["ecoli"])))
    return [
        f"ecoli, k-means: of our runs, the nearest to {pair[0]}, {pair[1]} (ARI, NMI) has {near[0]} with 3 clusters,",
        f"  {near[1]} with 8, its classes; we think that the paper's has 8. With 3, the best of k-means is",
        f"  {central:.2f}, that of FKmeansCB {ours:.2f}: the lead in the paper is one of the number of clusters.",
        f"iris, cdkm: no two clusters have an index above {bound():.3f} with the three classes, so (2) must be a slip.",
        "breast: all values of the paper are close to 0 and to each other, so a verdict says little there.",
    ]


def bound() -> float:
    """Return the highest adjusted Rand index of any two clusters with three classes of 50, over all their tables."""
    first = np.stack(np.meshgrid(*[np.arange(51)] * 3)).reshape(3, -1)[:, 1:-1]  # not all in one

    def pairs(count: Any) -> Any:
        return count * (count - 1) / 2

    together, classes = (pairs(first) + pairs(50 - first)).sum(axis=0), 3 * pairs(50)
    clusters = pairs(first.sum(axis=0)) + pairs(150 - first.sum(axis=0))
    expected = classes * clusters / pairs(150)
    return float(((together - expected) / ((classes + clusters) / 2 - expected)).max())


def picture(scores: dict[Any, Any], runs: int) -> Any:
    """Return the figure: a column per data set, ARI above, NMI below."""
    names = list(dict.fromkeys(case[0] for case in scores))
    figure, axes = canvas(2, len(names), (3.1 * len(names), 7.2), sharex="col")
    for s, (score, line) in enumerate(zip(SCORES, axes, strict=True)):
        rows = rows_of(scores, s, best=True)
        for name, ax in zip(names, line, strict=True):
            own = [case for case in rows if case[0] == name]
            places = range(len(own))
            draw_runs(ax, [rows[case] for case in own], places, [COLORS[case[1]] for case in own])
            ticks = [f"{case[1]} {'/'.join(map(str, case[2]))}{'*' * (case in OWN)}" for case in own]
            ax.set_xticks(places, ticks, rotation=40, ha="right", rotation_mode="anchor", fontsize=9)
            ax.set_title(f"{name}: {score}", fontsize=11)
    axes[0][0].set_ylabel("adjusted Rand index")
    axes[1][0].set_ylabel("normalized mutual information")
    explain_marks(figure, loc="outside upper center", ncols=4, frameon=False)
    figure.supxlabel(f"{runs} runs; * not in the paper: our reading of its number", fontsize=9)
    return figure


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(__doc__, 20)
    sets = load(chosen.data_dir)
    cases = {
        (name, *line): (build(name, *line), data, CLIENTS) for name, data in sets.items() for line in PRINTED[name]
    }
    scores = study(cases, chosen)
    notes = [compare(scores, np.max, "best"), compare(scores, np.mean, "mean"), *explain(scores)]
    for s, score in enumerate(SCORES):
        title = f"Table 2: {score}, {chosen.runs} runs, each with its own deal"
        show(title, list(rows_of(scores, s, best=True).values()), [] if s else notes)
    again = redeal(cases, chosen)
    for s, score in enumerate(SCORES):
        rows = rows_of(again, s, best=False)
        show(f"Table 2: {score}, the best of {chosen.runs} runs on one deal; mean of {chosen.runs} deals",
             list(rows.values()))  # fmt: skip
    save(picture(scores, chosen.runs), chosen.out, "fkmeanscb_table2")


if __name__ == "__main__":
    main()
