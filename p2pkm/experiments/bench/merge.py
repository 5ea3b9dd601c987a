"""Joined results of several benchmarks of one suite."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from p2pkm.analysis.bench_personal import PersonalSummary
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.experiments.bench.references import References
from p2pkm.experiments.bench.run_bench import Benchmark, read_mark_of, write_bench, write_text
from p2pkm.storage.lock import Lock
from p2pkm.storage.study_folder import open_folder
from p2pkm.storage.study_mark import BENCH, write_mark
from p2pkm.storage.study_rows import Row

_PLACE = ("task", "graph", "entry", "seed")


def merge_folders(paths: Sequence[str], out: str) -> Benchmark:
    """Join the rows of benchmarks of one version of a suite with the same points, and write a new folder.

    The excess is computed again for the lowest reference of all folders.

    Parameters
    ----------
    paths : sequence of str
        Folders of benchmarks.
    out : str
        New folder.

    Raises
    ------
    DataError
        If a folder does not hold a benchmark.
    ExperimentError
        If suites, versions or points differ, or two folders have different rows of one run.
    """
    if len(paths) < 2:
        raise ExperimentError(f"merge has {len(paths)} folder; expected at least two. Name the folders to join")
    folders = [Path(path) for path in paths]
    parts = [Benchmark.load(folder) for folder in folders]
    _check_suites(folders, parts)
    references = _join_references(folders)
    rows: dict[tuple[Any, ...], tuple[Row, Path]] = {}
    for folder, part in zip(folders, parts, strict=True):
        for row in part.rows:
            _add(rows, row, folder)
    joined = [_compare_again(row, references) for row, _ in rows.values()]
    target = open_folder(out, BENCH)
    assert target is not None
    with Lock(target):
        first = parts[0].rows[0]
        options = {name: value for name, value in read_mark_of(folders[0])._asdict().items() if value is not None}
        write_mark(target, BENCH, {"suite": first["suite"], "version": first["suite_version"],
                                   "merged": list(paths), "options": options})  # fmt: skip
        write_bench(target, joined, references)
    merged = Benchmark(joined, target)
    ranking = merged.ranking()
    if isinstance(ranking, PersonalSummary):
        write_text(target, ranking)
    return merged


def _check_suites(folders: Sequence[Path], parts: Sequence[Benchmark]) -> None:
    """Check that all rows are of one version of one suite."""
    seen: dict[tuple[str, int], Path] = {}
    for folder, part in zip(folders, parts, strict=True):
        if not part.rows:
            raise DataError(f"{folder} has no rows; expected a benchmark that has ended. Run p2pkm resume {folder}")
        for row in part.rows:
            seen.setdefault((row["suite"], row["suite_version"]), folder)
    if len(seen) > 1:
        listed = ", ".join(f"{path} has {name} version {version}" for (name, version), path in seen.items())
        raise ExperimentError(f"the benchmarks are of different suites: {listed}; expected one version of one suite")


def _join_references(folders: Sequence[Path]) -> References:
    """Join the references of folders; the lowest cost of the same points counts."""
    joined = References.load(folders[0])
    for folder in folders[1:]:
        other = References.load(folder)
        clash = joined.join(other)
        if clash is not None:
            raise ExperimentError(
                f"{folders[0]} and {folder} have different points of {clash}; expected equal checksums. Run both with "
                "the same versions of p2pkm and NumPy, and the same files"
            )
    return joined


def _add(rows: dict[tuple[Any, ...], tuple[Row, Path]], row: Row, folder: Path) -> None:
    """Add a row, unless an equal one is there."""
    place = tuple(row[name] for name in _PLACE)
    if place in rows:
        before, path = rows[place]
        if (before["cost"], before["status"], before["algorithm"]) != (row["cost"], row["status"], row["algorithm"]):
            raise ExperimentError(
                f"{path} and {folder} have different results of {row['entry']} on {row['task']}, {row['graph']}, seed "
                f"{row['seed']}; expected equal ones. Rename the entry, or remove one folder"
            )
        return
    rows[place] = row, folder


def _compare_again(row: Row, references: References) -> Row:
    """Return a row with the excess over the joined reference."""
    known = references.by_name(row["points"])
    if known is None or row["status"] != "done" or known.cost == row["reference_cost"]:
        return row
    factor = row["reference_cost"] / known.cost
    changed = {
        name: None if row[name] is None else (row[name] + 1.0) * factor - 1.0
        for name in ("start_excess", "excess_worst")
    }
    return row | changed | {"reference_cost": known.cost, "excess": row["cost"] / known.cost - 1.0}
