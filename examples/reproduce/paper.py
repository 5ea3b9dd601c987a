"""What the scripts of this folder share: options, runs on several cores, the table paper | ours | verdict, figures."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.viz.style import GRAY, INK

PUBLISHED = {"marker": "D", "s": 34, "facecolor": "none", "edgecolor": INK, "linewidth": 1.4, "zorder": 4}
"""The mark of a mean that the paper prints, for `Axes.scatter`."""


class Row(NamedTuple):
    """What a figure is, what the paper prints (None: nothing), our values, by how much the means may differ.

    With `best` the paper prints the largest value of its runs, so ours is compared, too, and stands beside the mean.
    Without `counted` the value was not printed there, or not of this method (another table's value, a reference from
    elsewhere, a variant of our own): its verdict stands in parentheses and is in no count.
    """

    what: str
    paper: float | None
    values: Any  # a sequence or an array of float
    allowed: float | None = None
    best: bool = False
    counted: bool = True


def options(text: str | None, runs: int, **more: Any) -> argparse.Namespace:
    """Read the command line; `more`: further options as name=dict(for argparse)."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=runs, help="repetitions (default %(default)s)")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="the seeds are this one and those after it (default 0)"
    )
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("P2PKM_DATA"),
                        help="folder of the papers' data (default: environment variable P2PKM_DATA)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for the figure (default figures)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    for name, settings in more.items():
        parser.add_argument("--" + name.replace("_", "-"), **settings)
    chosen = parser.parse_args()
    if chosen.runs < 1 or chosen.jobs < 1 or chosen.first_seed < 0:
        parser.error("--runs and --jobs are whole numbers of at least 1, --first-seed is one of at least 0")
    chosen.seeds = range(chosen.first_seed, chosen.first_seed + chosen.runs)
    return chosen


def need(folder: Path | None, name: str) -> Path:
    """Return the path of a file of a paper, or end with a word on what is missing."""
    if folder is None:
        sys.exit(f"this script reads {name}, which is not part of the project: give its folder as --data-dir")
    path = Path(folder) / name
    if not path.exists():
        sys.exit(f"{path} does not exist: give the folder that holds {name} as --data-dir")
    return path


def table(path: Path) -> dict[str, Any]:
    """Return the columns of a CSV file with a header: x (float64[m, d]), and label and client if it has them."""
    names = path.read_text().split("\n", 1)[0].strip().split(",")
    values = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    features = [i for i, name in enumerate(names) if name not in ("label", "client")]
    columns: dict[str, Any] = {"x": np.ascontiguousarray(values[:, features])}
    return columns | {name: values[:, names.index(name)].astype(int) for name in ("label", "client") if name in names}


def repeat(task: Callable[..., Any], cases: Iterable[tuple[Any, ...]], jobs: int) -> list[Any]:
    """Return task(*case) for all cases, in their order, on several cores."""
    cases = list(cases)
    if jobs == 1 or len(cases) == 1:
        return [task(*case) for case in cases]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return list(pool.map(task, *zip(*cases, strict=True), chunksize=max(1, len(cases) // (8 * jobs))))


def judge(row: Row) -> str:
    """Return whether the mean, or the best, is as near to the paper's as it may be."""
    if row.paper is None or row.allowed is None:
        return "-"
    gap = float(np.max(row.values) if row.best else np.mean(row.values)) - row.paper
    verdict = "as published" if abs(gap) <= row.allowed else f"differs by {gap:+.3g}"
    return verdict if row.counted else f"({verdict})"


def show(title: str, rows: Sequence[Row], notes: Sequence[str] = (), source: str = "paper") -> None:
    """Print the table paper | ours (mean, sd, runs) | verdict; where a row is about its best run, with that.

    `source` heads the column of the published values where they are not from the paper's text.
    """
    width, bests = max(len(row.what) for row in rows), any(row.best for row in rows)
    print(f"{title}\n{'':{width}}{source:>9}{'     best' * bests}     ours       sd  runs  allowed  verdict")
    for row in rows:
        known = np.asarray(row.values, float)
        paper = "-" if row.paper is None else f"{row.paper:.4g}"
        sd = f"{known.std(ddof=1):.3g}" if len(known) > 1 else "-"
        allowed = "-" if row.allowed is None else f"{row.allowed:.3g}"
        best = f"{known.max():.4g}" if row.best else "-"
        line = f"{row.what:{width}} {paper:>8} {f'{best:>8} ' * bests}{known.mean():>8.4g} {sd:>8}"
        print(f"{line} {len(known):>5} {allowed:>8}  {judge(row)}")
    for note in notes:
        print(note)


def claim(text: str, holds: bool) -> str:
    """Return a note: what the paper says of its figure, and whether our values show it, too."""
    return f"paper: {text} - here: {'yes' if holds else 'NO'}"


def canvas(rows: int, columns: int, size: tuple[float, float], **more: Any) -> tuple[Any, Any]:
    """Return a figure of so many inches that no pyplot state knows, and its axes in an array [rows, columns]."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **more)


def boxes(ax: Any, rows: Sequence[Row], colors: Sequence[str], y: str) -> None:
    """Draw a box of the values of each row, with our mean as a dot and the paper's as a hollow diamond."""
    places = np.arange(len(rows))
    style = {"medianprops": {"color": INK}, "flierprops": {"marker": ".", "markersize": 3, "alpha": 0.4}}
    parts = ax.boxplot([row.values for row in rows], positions=places, widths=0.6, patch_artist=True, **style)
    for box, color in zip(parts["boxes"], colors, strict=True):
        box.set(facecolor=color, alpha=0.55, edgecolor=INK)
    ax.scatter(places, [np.mean(row.values) for row in rows], s=16, color=INK, zorder=3, label="our mean")
    known = [(x, row.paper) for x, row in zip(places, rows, strict=True) if row.paper is not None]
    if known:
        ax.scatter(*zip(*known, strict=True), label="published mean", **PUBLISHED)
    ax.set_xticks(places, [row.what for row in rows], rotation=35, ha="right", rotation_mode="anchor", fontsize=8.5)
    ax.set_ylabel(y)
    ax.grid(axis="y", color=GRAY, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def save(figure: Any, out: Path, name: str) -> None:
    """Write the figure as PNG and say where."""
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png", dpi=150)
    print(f"figure: {out / name}.png")
