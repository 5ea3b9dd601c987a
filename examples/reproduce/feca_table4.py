"""Xu et al., table 4: purity and NMI of the clusters that the centroids of table 1 make of the S-sets.

The paper prints means over 10 runs, rounded to 0.01, and says that FeCA is better than all the others in every setting.

We compare what is legible in our copy of the paper: purity, and NMI but for some values. The standard errors are from
our runs. Purity and NMI are those of all points together, with the label of the nearest centroid; "k-FED, induced" has
the labels that Dennis et al. define, by way of the client's own centroid, and is in no count.
"""

from typing import Any

from paper import PUBLISHED, canvas, claim, options, save, show
from ssets import METHODS, PLACES, SCENARIOS, SPLITS, Case, Scores, load, row, study

import p2pkm
from p2pkm.viz.style import BLUE, GRAY, ORANGE

PURITY: dict[str, tuple[float, ...]] = {  # IID, 0.3 and 0.1 of S1, then of S2, S3 and S4
    "M-Avg": (0.99, 0.79, 0.69, 0.93, 0.74, 0.68, 0.80, 0.66, 0.61, 0.75, 0.64, 0.57),
    "FFCM v1, round 1": (0.97, 0.69, 0.66, 0.95, 0.68, 0.58, 0.83, 0.60, 0.54, 0.79, 0.60, 0.53),
    "FFCM v1, round 10": (0.98, 0.78, 0.68, 0.96, 0.74, 0.71, 0.85, 0.66, 0.57, 0.80, 0.61, 0.55),
    "FFCM v2, round 1": (0.95, 0.69, 0.66, 0.95, 0.63, 0.61, 0.83, 0.58, 0.52, 0.78, 0.57, 0.54),
    "FFCM v2, round 10": (0.99, 0.80, 0.76, 0.97, 0.70, 0.72, 0.86, 0.65, 0.61, 0.80, 0.60, 0.59),
    "k-FED": (0.62, 0.76, 0.75, 0.60, 0.71, 0.71, 0.55, 0.61, 0.60, 0.55, 0.62, 0.58),
    "FeCA": (0.99, 0.98, 0.96, 0.97, 0.95, 0.90, 0.86, 0.80, 0.78, 0.80, 0.73, 0.65),
    "central": (0.97, 0.97, 0.97, 0.96, 0.96, 0.96, 0.83, 0.83, 0.83, 0.77, 0.77, 0.77),
}
NMI: dict[str, tuple[float | None, ...]] = {  # those of S1 to S3, and two lines of S4; None: not legible
    "M-Avg": (0.98, 0.85, 0.79, 0.92, 0.80, 0.78, 0.77, 0.71, 0.69, 0.70, 0.65, 0.62),
    "FFCM v1, round 1": (0.98, 0.80, 0.78, 0.93, 0.77, 0.71, 0.78, 0.67, 0.64, 0.72, 0.63, 0.60),
    "FFCM v1, round 10": (0.98, 0.85, 0.80, 0.94, 0.80, 0.78, 0.79, 0.71, 0.66, 0.72, 0.64, 0.61),
    "FFCM v2, round 1": (0.97, 0.80, 0.78, 0.93, 0.75, 0.72, 0.78, 0.67, 0.63, 0.71, 0.62, 0.60),
    "FFCM v2, round 10": (0.99, 0.87, 0.85, 0.95, 0.78, 0.79, 0.79, 0.70, 0.68),
    "k-FED": (0.80, 0.84, 0.83, 0.75, 0.80, 0.80, 0.66, 0.69, 0.68),
    "FeCA": (0.99, None, None, 0.95, 0.94, 0.90, 0.80, 0.77, 0.75),
}

INDUCED: dict[str, tuple[Any, int | None]] = {
    "k-FED, induced": (p2pkm.KFED(15, local_k=5, seeding="plain", finish="one", labels="induced"), None)
}


def tell(number: int, scores: dict[Any, Scores]) -> None:
    """Print the table of one S-set."""
    for title, printed, field in (("purity", PURITY, "purity"), ("NMI", NMI, "nmi")):
        rows = []
        for (name, scenario), found in scores.items():
            legible = dict(enumerate(printed.get(name.removesuffix(", induced"), ())))
            known = legible.get(3 * (number - 1) + PLACES[scenario])
            values = getattr(found, field)
            line = row(f"S{number}, {scenario}, {name}", values, None if known is None else (known,), 0.01)
            rows.append(line._replace(counted=name in METHODS))
        best = {
            scenario: max((name for name in METHODS if name != "central"), key=lambda n: means(scores, n, field)[at])
            for at, scenario in enumerate(SCENARIOS)
        }
        text = f"FeCA has the best {title} of the federated methods throughout"
        note = "; ".join(f"{scenario}: {name}" for scenario, name in best.items())
        show(f"Table 4: {title}, S{number}", rows, [claim(text, set(best.values()) == {"FeCA"}), f"best: {note}"])
        print()


def means(scores: dict[Any, Scores], name: str, field: str) -> list[float]:
    """Return a method's mean in every scenario."""
    return [float(getattr(scores[name, scenario], field).mean()) for scenario in SCENARIOS]


def picture(scores: dict[int, dict[Any, Scores]]) -> Any:
    """Return the figure: purity, a panel per S-set, the scenarios beside each other for every method."""
    figure, axes = canvas(len(scores), 1, (11, 2.7 * len(scores) + 0.5), sharex=True, sharey=True)
    names = [name for name in METHODS if name != "central"]
    for (number, found), ax in zip(scores.items(), axes[:, 0], strict=True):
        for j, scenario in enumerate(SCENARIOS):
            color = GRAY if scenario == "IID" else ORANGE if "device" in scenario else BLUE
            style = {"color": color, "alpha": 0.55 if "0.1" in scenario else 0.9}
            x = [i + 0.16 * (j - 2) for i in range(len(names))]
            ax.bar(x, [found[name, scenario].purity.mean() for name in names], 0.14, label=scenario, **style)
            known = [PURITY[name][3 * (number - 1) + PLACES[scenario]] for name in names]
            ax.scatter(x, known, label="paper" if j == 4 else None, **PUBLISHED | {"s": 20})
        ax.set(title=f"S{number}", ylabel="purity", ylim=(0.4, 1.02), xticks=range(len(names)), xticklabels=names)
        ax.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=6, fontsize=9, loc="outside upper center")
    return figure


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(
        __doc__, 40, sets={"type": int, "nargs": "+", "default": [1, 2, 3, 4], "help": "S-sets (default all)"}
    )
    scores = {}
    for number in chosen.sets:
        cases = {
            (name, scenario): Case(method, scenario, rounds)
            for name, (method, rounds) in (METHODS | INDUCED).items()
            for scenario in (SCENARIOS if name != "central" else SCENARIOS[:1])
        }
        scores[number] = study(load(chosen.data_dir, number), cases, chosen)
        tell(number, scores[number])
    print(*SPLITS, sep="\n")
    save(picture(scores), chosen.out, "feca_table4")


if __name__ == "__main__":
    main()
