"""Xu et al., table 2: purity and NMI on features of CIFAR-10 and CIFAR-100 images, for ten clients.

The paper takes the features of an image network, which are not part of the project: give your own as an npz file with
the arrays X (float[m, d]) and y (m labels), or as a CSV file with a column `label`. It prints means over three runs for
equal shares and for Dirichlet(1.0), (0.3) and (0.1), with k as in the data; k-FED has k' = 3 (CIFAR-10) or 10.

With --dataset cifar10 or cifar100 we compare all values, else we print ours alone.
"""

from pathlib import Path
from typing import Any

import numpy as np
from paper import canvas, claim, need, options, save, show, table
from ssets import SPLITS, Case, Scores, Sset, row, study

import p2pkm
from p2pkm.viz.style import CATEGORIES, GRAY

SCENARIOS = ("IID", "1.0, by class", "0.3, by class", "0.1, by class")
PRINTED: dict[str, dict[str, tuple[float, ...]]] = {  # purity in the four scenarios, then NMI
    "cifar10": {
        "M-Avg": (0.48, 0.45, 0.41, 0.39, 0.43, 0.41, 0.35, 0.34),
        "FFCM v1, round 1": (0.24, 0.32, 0.37, 0.36, 0.33, 0.37, 0.38, 0.36),
        "FFCM v1, round 10": (0.20, 0.20, 0.23, 0.24, 0.31, 0.31, 0.32, 0.31),
        "FFCM v2, round 1": (0.32, 0.44, 0.53, 0.56, 0.27, 0.43, 0.48, 0.50),
        "FFCM v2, round 10": (0.32, 0.43, 0.53, 0.56, 0.27, 0.43, 0.48, 0.50),
        "k-FED": (0.28, 0.41, 0.47, 0.51, 0.30, 0.39, 0.47, 0.52),
        "FeCA": (0.61, 0.60, 0.58, 0.57, 0.53, 0.51, 0.49, 0.50),
        "central": (0.64, 0.64, 0.64, 0.64, 0.53, 0.53, 0.53, 0.53),
    },
    "cifar100": {
        "M-Avg": (0.20, 0.19, 0.19, 0.18, 0.37, 0.37, 0.36, 0.36),
        "FFCM v1, round 1": (0.06, 0.07, 0.07, 0.07, 0.24, 0.25, 0.24, 0.25),
        "FFCM v1, round 10": (0.03, 0.03, 0.04, 0.03, 0.13, 0.13, 0.15, 0.14),
        "FFCM v2, round 1": (0.10, 0.11, 0.11, 0.12, 0.27, 0.30, 0.30, 0.32),
        "FFCM v2, round 10": (0.10, 0.10, 0.10, 0.12, 0.26, 0.28, 0.29, 0.31),
        "k-FED": (0.10, 0.22, 0.34, 0.48, 0.27, 0.37, 0.49, 0.62),
        "FeCA": (0.37, 0.37, 0.37, 0.34, 0.49, 0.49, 0.49, 0.47),
        "central": (0.39, 0.39, 0.39, 0.39, 0.50, 0.50, 0.50, 0.50),
    },
}


def read(path: Path) -> Sset:
    """Read features and labels."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            points, labels = np.asarray(arrays["X"], float), arrays["y"]
    else:
        columns = table(path)
        points, labels = columns["x"], columns["label"]
    return Sset(points, np.unique(labels, return_inverse=True)[1], None)


def cases(k: int, width: int) -> dict[tuple[str, str], Case]:
    """Return what is run, by method and scenario."""
    methods: dict[str, tuple[Any, int | None]] = {
        "M-Avg": (p2pkm.MAvg(k), None),
        **{
            f"FFCM v{version}, round {rounds}": (p2pkm.FFCM(k, version=version, fuzzifier=2.0), rounds)
            for version in (1, 2)
            for rounds in (1, 10)
        },
        "k-FED": (p2pkm.KFED(k, local_k=width, seeding="plain", finish="one"), None),
        "FeCA": (p2pkm.FeCA(k), None),
        "central": (p2pkm.Central(k, n_init=1), None),
    }
    return {(name, s): Case(method, s, rounds) for name, (method, rounds) in methods.items() for s in SCENARIOS}


def picture(scores: dict[Any, Scores]) -> Any:
    """Return the figure: purity and NMI over the scenarios."""
    figure, axes = canvas(1, 2, (11, 4.4))
    for ax, field in zip(axes[0], ("purity", "nmi"), strict=True):
        for i, name in enumerate(dict.fromkeys(name for name, _ in scores)):
            style = {"color": GRAY, "ls": "--"} if name == "central" else {"color": CATEGORIES[i]}
            ax.plot(
                SCENARIOS, [getattr(scores[name, s], field).mean() for s in SCENARIOS], marker="o", label=name, **style
            )
        ax.set_ylabel({"nmi": "NMI"}.get(field, field))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, 1].legend(fontsize=8)
    return figure


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(
        __doc__, 3,
        features={"default": "features.npz", "metavar": "NAME", "help": "the file in --data-dir (features.npz)"},
        dataset={"choices": ("cifar10", "cifar100"), "help": "whose values of the paper to compare with"},
    )  # fmt: skip
    data = read(need(chosen.data_dir, chosen.features))
    k = int(data.labels.max()) + 1
    scores = study(data, cases(k, 10 if k == 100 else max(2, round(0.3 * k))), chosen)
    printed = PRINTED.get(chosen.dataset, {})
    for j, field in enumerate(("purity", "nmi")):
        rows = []
        for (name, scenario), found in scores.items():
            place = SCENARIOS.index(scenario) + 4 * j
            paper = (printed[name][place],) if printed else None
            rows.append(row(f"{scenario}, {name}", getattr(found, field), paper, 0.01))
        means = {of: float(getattr(found, field).mean()) for of, found in scores.items() if of[0] != "central"}
        first = [means["FeCA", s] == max(mean for of, mean in means.items() if of[1] == s) for s in SCENARIOS[:3]]
        show(f"Table 2: {field}", rows, [
            claim("FeCA is the best of the federated methods but for strong label skew",
                  all(first)),
        ])  # fmt: skip
    print(*SPLITS, sep="\n")
    save(picture(scores), chosen.out, "feca_table2")


if __name__ == "__main__":
    main()
