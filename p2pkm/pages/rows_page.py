"""The page of many runs: a comparison or a study, with its failed runs by name."""

import base64
import json
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.config import load_toml
from p2pkm.errors import DataError
from p2pkm.experiment import FIELDS, Experiment
from p2pkm.pages.markup import Cell, Content, Html, fold, section, tabulate, tag
from p2pkm.pages.sheet import assemble
from p2pkm.pages.verdict import tell_ratio
from p2pkm.plots.comparison import plot_quality
from p2pkm.plots.inline import draw_inline
from p2pkm.units import write_size

Row = dict[str, Any]
_ALWAYS = ("algorithm", "graph")  # named even if all are the same
_STRIKING = ("faults", "stale", "byzantine", "robust", "min_count")
_UNSPOKEN = ("seed", "graph", "algorithm", "placement", "require_converged", "checkpoint_every")  # by no comparison
_LISTED = 1_000  # runs
_MEANS = ("ratio_mean", "ratio_worst", "ari", "bytes", "bytes_busiest", "messages", "rounds", "rounds_to_1pct",
          "bytes_to_1pct", "virtual_seconds", "seconds_to_1pct")  # fmt: skip
_TITLES = {
    "ratio_mean": "ratio", "ratio_worst": "worst ratio", "ari": "ARI",
    "bytes_busiest": "bytes busiest", "rounds_to_1pct": "rounds to 1 %", "bytes_to_1pct": "bytes to 1 %",
    "virtual_seconds": "virtual s", "seconds_to_1pct": "virtual s to 1 %",
}  # fmt: skip
_LEFT_OUT = {"trace", "key", "error", "centroids_sha256"}
_AGAINST = {"bytes": "Quality against bytes", "bytes_busiest": "Quality against bytes at the busiest device"}


def draw_rows(kind: str, folder: Path) -> str:
    """Return the page of a folder of kind comparison or study.

    Raises
    ------
    DataError
        If it has not ended, or a file of it cannot be read.
    """
    try:
        rows = _read_lines(folder / ("study.jsonl" if kind == "study" else "rows.jsonl"))
        asked = _read_json(folder / "comparison.json")
        compared = _read_json(folder / "summary.json")
        study = folder / "study.toml"
        asked |= {"base": load_toml(str(study), "study")} if kind == "study" and study.is_file() else {}
        return _draw(kind, folder, rows, asked | compared)
    except FileNotFoundError as error:
        name = Path(error.filename).name
        raise DataError(
            f"{folder} has no {name}: this {kind} has not ended; the same command goes on with it"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} cannot be read: {type(error).__name__}: {error}") from None


def _read_lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def _read_json(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def _draw(kind: str, folder: Path, rows: Sequence[Row], told: dict[str, Any]) -> str:
    good, bad = ([row for row in rows if (row.get("error") is None) is fine] for fine in (True, False))
    axes = _find_axes(rows)
    means = _average(good, [name for name in axes if name != "seed"])
    title = f"{kind.capitalize()} of {len(rows)} runs over {', '.join(axes) or 'nothing'}"
    body: list[Content] = [
        tag("header", tag("p", f"p2pkm: report of a {kind}", class_="kind"), tag("h1", title)),
        section("Verdict", tag("p", _judge(means, axes, len(good), len(bad)) + _strike(told), class_="verdict")),
        _name_failures(bad, axes),
        section("Figures", tag("div", *_collect_figures(kind, folder, told.get("table", ())), class_="figures")),
        section("In numbers", _list_means(means, axes), *_list_differences(told), _list_runs(good, axes)),
        _repeat(kind, folder, told),
    ]
    return assemble(title, body, ["tables.js"])


def _find_axes(rows: Sequence[Row]) -> list[str]:
    """Return the options that differ between the runs, and the method and the graph in any case."""
    asked = {*FIELDS, "rounds_asked"} - {"rounds"}
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, set()).update([] if value is None else [str(value)])
    return [name for name, known in values.items() if name in asked and (name in _ALWAYS or len(known) > 1)]


def _average(rows: Sequence[Row], axes: Sequence[str]) -> list[Row]:
    """Return a row for all runs that differ in their seeds alone: means, and the worst device of all."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(_tell(row.get(name)) for name in axes), []).append(row)
    found = []
    for names, group in groups.items():
        mean: Row = {**dict(zip(axes, names, strict=True)), "runs": len(group)}
        for figure in _MEANS:
            values = [row.get(figure) for row in group]
            known = np.array([value for value in values if value is not None], float)
            whole = len(known) == len(values)
            mean[figure] = float((np.max if figure == "ratio_worst" else np.mean)(known)) if whole else None
        found.append(mean)
    return found


def _tell(value: Any) -> str:
    return "" if value is None else str(value)


def _name(row: Row, axes: Sequence[str]) -> str:
    """Return a run in words: gtvmin on ring, seed 3."""
    rest = [f"{name.replace('_', ' ')} {_tell(row.get(name))}" for name in axes if name not in ("algorithm", "graph")]
    return ", ".join([f"{_tell(row.get('algorithm'))} on {_tell(row.get('graph')) or 'its graph'}", *rest])


def _judge(means: Sequence[Row], axes: Sequence[str], good: int, bad: int) -> str:
    """Return what came out: the best, the cheapest nearly as good, the worst, and how many runs failed."""
    shown = [name for name in axes if name != "seed"]
    words = [f"{good} run{'s' * (good != 1)} ended" + (f", {bad} failed." if bad else ", none failed.")]
    rated = sorted((row for row in means if row["ratio_mean"] is not None), key=lambda row: row["ratio_mean"])
    if not rated:
        return " ".join([*words, "None was compared with central k-means."])
    best, worst = rated[0], rated[-1]
    words.append(f"Best: {_name(best, shown)}, whose centroids cost {tell_ratio(best['ratio_mean'])} central k-means, "
                 f"with {write_size(best['bytes'])} a run.")  # fmt: skip
    near = [row for row in rated if row["ratio_mean"] <= 1.01 * best["ratio_mean"]]
    thrift = min(near, key=lambda row: row["bytes"])
    if thrift is not best:
        words.append(f"Cheapest within 1 % of it: {_name(thrift, shown)} ({tell_ratio(thrift['ratio_mean'])} central "
                     f"k-means) with {write_size(thrift['bytes'])}.")  # fmt: skip
    if worst is not best:
        words.append(f"Last: {_name(worst, shown)}, {tell_ratio(worst['ratio_mean'])} central k-means.")
    return " ".join(words)


def _strike(told: dict[str, Any]) -> str:
    """Say what struck all runs alike, who lied in them, and what was held against it."""
    options = told.get("base") or {}
    words = [f"--{name.replace('_', '-')} {options[name]}" for name in _STRIKING if options.get(name)]
    return f" All runs with {', '.join(words)}." if words else ""


def _name_failures(bad: Sequence[Row], axes: Sequence[str]) -> Html:
    if not bad:
        return Html("")
    rows = [[_name(row, axes) or "a run", str(row["error"])] for row in bad]
    return section("Failed runs", tag("div", tabulate(f"{len(bad)} failed", ("run", "error"), rows), class_="bad"))


def _collect_figures(kind: str, folder: Path, table: Sequence[Row]) -> list[Html]:
    """Return the figures: drawn anew of a comparison, of a study those that it keeps, as pictures of their own."""
    if kind == "comparison":
        if not any(row["ratio_mean"] is not None for row in table):
            return [tag("p", "No run was compared with central k-means.", class_="note")]
        draws = {name: Html(draw_inline(partial(plot_quality, table, against=name), name)) for name in _AGAINST}
        return [tag("figure", draws[name], tabindex=0, role="group", aria_label=alt) for name, alt in _AGAINST.items()]
    paths = sorted((folder / "figures").glob("*.svg"))
    if not paths:
        return [tag("p", "There are none: the folder has no figures.", class_="note")]
    return [_embed(path) for path in paths]


def _embed(path: Path) -> Html:
    name = path.stem.replace("_", " ")
    text = base64.b64encode(path.read_bytes()).decode()
    return tag(
        "figure",
        tag("img", src=f"data:image/svg+xml;base64,{text}", alt=name),
        tabindex=0,
        role="group",
        aria_label=name,
    )


def _list_means(means: Sequence[Row], axes: Sequence[str]) -> Html:
    names = [name for name in axes if name != "seed"]
    figures = [name for name in _MEANS if any(row[name] is not None for row in means)]
    rows: list[list[Cell]] = [[*(row[name] for name in (*names, "runs", *figures))] for row in means]
    head = [*names, "runs", *(_TITLES.get(name, name) for name in figures)]
    return tabulate(
        "Means over seeds (ratio: cost on all points / central k-means); a click on a title sorts",
        head,
        rows,
        sortable=True,
    )


def _list_differences(told: dict[str, Any]) -> list[Html]:
    """Return the paired differences of a comparison."""
    rows: list[list[Cell]] = []
    for one in told.get("differences", ()):
        gap = one["ratio_mean"]
        if gap is not None:
            pair = f"{one['algorithm']} on {one['graph']} – {one['reference']} on {one['reference_graph']}"
            rows.append([pair, one["seeds"], gap["mean"], gap["low"], gap["high"]])
    if not rows:
        return []
    head = ("pair", "seeds", "difference of ratio", "95 %: from", "to")
    return [tabulate(f"Differences to {told['reference']}, same seeds", head, rows, sortable=True)]


def _list_runs(rows: Sequence[Row], axes: Sequence[str]) -> Html:
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _LEFT_OUT]
    names = [*axes, *(name for name in names if name not in axes)]
    kept = [name for name in names if name in axes or any(row.get(name) is not None for row in rows)]
    cells: list[list[Cell]] = [[_plain(row.get(name)) for name in kept] for row in rows[:_LISTED]]
    left_out = f", the first {_LISTED:,} of {len(rows):,}" if len(rows) > _LISTED else ""
    heads = [_TITLES.get(name, name.replace("_", " ")) for name in kept]
    return fold(f"All runs ({len(rows):,})", tabulate(f"Runs{left_out}", heads, cells, sortable=True))


def _plain(value: Any) -> Cell:
    if isinstance(value, bool) or not isinstance(value, (str, int, float, type(None))):
        return str(value)
    return value


def _repeat(kind: str, folder: Path, told: dict[str, Any]) -> Html:
    """Return the command that does it again: of a comparison from what was asked, of a study from its file."""
    if kind == "comparison":
        words = ["python", "-m", "p2pkm", "compare", "--algorithm", ",".join(told["algorithms"]), "--graph",
                 ",".join(told["graphs"]), "--seeds", ",".join(map(str, told["seeds"]))]  # fmt: skip
        return section("How to repeat it", tag("pre", shlex.join([*words, *_spell(told["base"])])))
    files = sorted(folder.glob("*.toml"))
    if not files:
        return section("How to repeat it", tag("p", "The folder does not hold the file of the study.", class_="note"))
    command = shlex.join(["python", "-m", "p2pkm", "sweep", str(files[0])])
    return section(
        "How to repeat it", tag("pre", command), fold(files[0].name, tag("pre", files[0].read_text("utf-8")))
    )


def _spell(options: dict[str, Any]) -> list[str]:
    """Return options as words of a command line, but for those that are what they would be anyway."""
    usual, words = Experiment().to_mapping(), list[str]()
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if name in _UNSPOKEN or value is None or usual.get(name) == value:
            continue
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [flag, str(value)]
    return words
