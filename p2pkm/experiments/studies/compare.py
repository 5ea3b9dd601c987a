"""Methods side by side: the same points, partitions and seeds, the same message layer, and paired differences."""

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.core.cache import sharing
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.mpi_environment import launched
from p2pkm.core.spec import split_specs
from p2pkm.core.termination import INTERRUPTED
from p2pkm.core.units import count, tell_folder
from p2pkm.core.validation import list_of, single, whole
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import parse_graph, parse_method
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.run_study import (
    describe,
    open_folder,
    refuse_ranks,
    run_study,
    tell_compilation,
    tell_graphs,
)
from p2pkm.experiments.studies.study_file import check_runs, read_seeds
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.metrics.milestones import EXPLAINED
from p2pkm.metrics.registry import ShownIn, columns, keys
from p2pkm.network.world import connect
from p2pkm.storage.conclusion import conclude, list_verdicts, tell_effect, tell_verdict, write_verdicts
from p2pkm.storage.lock import Lock
from p2pkm.storage.paired_tests import MARGIN, PairedTest, Verdicts, check_margin
from p2pkm.storage.save import write_bytes, write_json
from p2pkm.storage.study_table import (
    SERVED,
    Row,
    Study,
    average,
    interval,
    name_run,
    name_sides,
    tell_worse,
)

_FAILED = 4
MARK = "comparison.json"
_JUDGED = ("ratio_mean",)


@sharing()
def compare(  # noqa: PLR0913 - the public signature
    algorithms: str | Iterable[str], graphs: str | Iterable[str] = "ring", *, seeds: str | Iterable[int] = "0-4",
    reference: str | None = None, jobs: int = 1, out: str | os.PathLike[str] | None = None, plot: bool = False,
    progress: bool = True, margin: float = MARGIN, **options: Any,
) -> Study:  # fmt: skip
    """Run methods on graphs over seeds, all on the same points, as ``p2pkm compare`` does.

    Parameters
    ----------
    algorithms : str or iterable of str
        ``"gtvmin,fkm:server_n_init=20"`` or ``["gtvmin", "fkm"]``.
    graphs : str or iterable of str
        For the peer-to-peer methods; those with a server run once, as a star.
    seeds : str or iterable of int
        ``"0-4"``, ``[0, 1, 7]`` or ``range(10)``.
    reference : str, optional
        The method that ``summary.json`` compares the others with; None: the first.
    jobs : int
        Number of processes.
    out : path, optional
        Folder; a comparison that was interrupted goes on there. None: nothing is written.
    plot : bool
        Whether to draw figures into the folder.
    progress : bool
        Whether to tell on standard error which runs have ended.
    margin : float
        Log ratio within which two configurations are equivalent: 0.005 is 0.5 %; 0: never.
    **options
        Options of all runs, by their names on the command line with ``_`` for ``-``, such as ``devices=16``.

    Returns
    -------
    Study
        With `to_frame`, `to_latex`, `conclusion` and `plot`. A run that failed is a row with its ``error``.

    Raises
    ------
    P2PKMError
        If an option is unknown or wrong; nothing has been computed then.
    KeyboardInterrupt
        If it was interrupted; what has ended is in the folder, if there is one.

    Examples
    --------
    >>> import p2pkm
    >>> found = p2pkm.compare(["gtvmin", "fkm"], seeds=range(3), devices=4, data="grid16:points=10", rounds=3)
    >>> sorted(found.configurations())
    ['fkm with a server', 'gtvmin on ring']
    """
    refuse_ranks("compare", "compare")
    where = "compare(...)"
    methods, places = (
        split_specs(_read_names(given, where, what)) for given, what in ((algorithms, "algorithms"), (graphs, "graphs"))
    )
    wrong = sorted(options.keys() & {"algorithm", "graph", "seed"})
    if wrong:
        raise ExperimentError(f"{where}: {wrong[0]} is given; give {wrong[0]}s, a list")
    folder = "none" if out is None else os.fspath(out)
    base = RunOptions.from_mapping(options | {"plot": plot, "out": folder}, where)
    chosen = read_seeds(seeds if isinstance(seeds, str) else list_of(seeds, f"{where}: seeds"), where)
    single(reference, "reference")
    single(progress, "progress")
    asked = Comparison.of(base, methods, places, chosen, reference)._replace(margin=check_margin(margin))
    cells = expand_runs(asked)
    rows, _ = run_comparison(asked, cells, OutputOptions(quiet=not progress), whole(jobs, 1, "jobs"))
    if len(rows) < len(cells):
        raise KeyboardInterrupt
    return Study([_without(row, "trace") for row in rows], None if out is None else Path(out), asked.margin)


def _read_names(given: str | Iterable[str], where: str, what: str) -> list[str]:
    """Return specs as they were given, and refuse a class, a method or a graph in the place of its name."""
    names: list[Any] = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list_of(given, what)
    if not all(isinstance(one, str) for one in names):
        example = {"algorithms": "gtvmin:coupling=30", "graphs": "small-world:degree=4"}[what]
        raise ExperimentError(
            f"{where}: {what} is {given!r}; expected specs as on the command line, such as {example}. Give one of "
            "your own a name by an entry point (docs/tutorial.md), or run it with p2pkm.simulate"
        )
    return names


class Comparison(NamedTuple):
    """What is compared: every method on every graph, over seeds."""

    base: RunOptions
    algorithms: Sequence[str]
    graphs: Sequence[str]
    seeds: Sequence[int]
    reference: str
    margin: float = MARGIN

    @classmethod
    def of(
        cls, base: RunOptions, algorithms: Sequence[str], graphs: Sequence[str], seeds: Sequence[int],
        reference: str | None = None,
    ) -> "Comparison":  # fmt: skip
        """Return the comparison with a reference, by default the first method.

        Raises
        ------
        ExperimentError
            If the reference is not one of the methods.
        """
        reference = reference or algorithms[0]
        if reference not in algorithms:
            raise ExperimentError(f"--reference {reference} is not one of the methods: {', '.join(algorithms)}")
        return cls(base, algorithms, graphs, seeds, reference)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as the folder keeps it."""
        return self._asdict() | {"base": self.base.to_mapping()}


@sharing()
def run_compare_command(asked: Comparison, manner: OutputOptions, jobs: int = 1) -> int:
    """Run methods on graphs over seeds, print the table, write the folder, and return the exit code.

    Raises
    ------
    ExperimentError
        If a method, a graph or the folder cannot be used; nothing has been computed then.
    """
    if jobs > 1 and launched():
        raise ExperimentError(f"--jobs {jobs} under mpirun, which deals the runs to its ranks; give one of them")
    cells = expand_runs(asked)
    rows, compared = run_comparison(asked, cells, manner, jobs)
    if manner.json:
        print(json.dumps({"rows": [_without(row, "trace") for row in rows], **compared}), flush=True)
    else:
        print(tabulate(compared), flush=True)
    if len(rows) < len(cells):
        return INTERRUPTED
    return _FAILED if compared["failed"] else 0


def resume_compare(folder: Path, jobs: int, manner: OutputOptions) -> int:
    """Run what is missing in the folder of a comparison, and close as `run_compare_command` does.

    Raises
    ------
    DataError
        If the folder does not hold what it was begun with.
    """
    mark = folder / MARK
    try:
        found = json.loads(mark.read_text("utf-8"))
        given = [found[name] for name in ("algorithms", "graphs", "seeds", "reference")]
        base = RunOptions.from_mapping(found["base"] | {"out": str(folder)}, str(mark))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{mark} cannot be read: {type(error).__name__}: {error}; give compare --out anew") from None
    margin = check_margin(found.get("margin", MARGIN))
    return run_compare_command(Comparison.of(base, *given)._replace(margin=margin), manner, jobs)


def run_comparison(
    asked: Comparison, cells: Sequence[RunOptions], manner: OutputOptions, jobs: int
) -> tuple[list[Row], dict[str, Any]]:
    """Run the cells of a comparison, write its folder, if any; return its rows, and means and differences."""
    folder = open_folder(asked.base.out, "comparison", MARK)

    def tell(row: Row, number: int, count: int) -> None:
        if not manner.quiet:
            print(describe(row, number, count), file=sys.stderr, flush=True)

    with nullcontext() if folder is None else Lock(folder):
        if folder is not None:
            write_json(folder, MARK, asked.to_mapping())
        tell_compilation(quiet=manner.quiet)
        tell_graphs(cells, quiet=manner.quiet)
        rows = [_without(row, "options") for row in run_study(cells, folder, connect(), tell, jobs=jobs)]
        compared = compare_rows(rows, asked.reference, asked.margin)
        errors = [row["error"] for row in rows if row["error"] is not None]
        compared |= {
            "out": None if folder is None else str(folder),
            "failed": len(errors),
            "error": next(iter(errors), None),
        }
        if folder is not None:
            write_folder(folder, rows, compared, asked.base)
    return rows, compared


def expand_runs(asked: Comparison) -> list[RunOptions]:
    """Return the runs: every method on every graph, methods with a server once, as a star; for every seed.

    All have the same number of devices: the given one, else that of the device column or of the graphs, else 16.

    Raises
    ------
    P2PKMError
        If a method on a graph can never run, or the graphs have different numbers of devices.
    """
    on_graphs, served = list[RunOptions](), list[RunOptions]()
    configurations = []
    for algorithm in asked.algorithms:
        method = parse_method(replace(asked.base, algorithm=algorithm, graph=None)).build(asked.base.draft_k)
        hub = needs_hub(method)
        for graph in (None,) if hub else asked.graphs:
            one = replace(asked.base, algorithm=algorithm, graph=graph, out=None)
            parse_graph(one, method)
            (served if hub else on_graphs).append(one)
            configurations.append(one)

    def with_seeds(some: Sequence[RunOptions], **more: Any) -> list[RunOptions]:
        return [replace(one, seed=seed, **more) for one in some for seed in asked.seeds]

    found = check_runs(with_seeds(on_graphs), _name_cell)
    sizes = {int(one.devices or 0): one.graph for one in found}
    if len(sizes) > 1:
        listed = ", ".join(f"{graph} has {size}" for size, graph in sizes.items())
        raise ExperimentError(
            f"the graphs have different numbers of devices: {listed}; expected one number for all. Use --devices "
            f"{max(sizes)}, or graphs of one size"
        )
    size = next(iter(sizes), asked.base.devices)
    resolved = check_runs(with_seeds(served, devices=size), _name_cell)
    return with_seeds(configurations, devices=size or resolved[0].devices)


def _name_cell(cell: RunOptions) -> str:
    """Return what tells a configuration from the others."""
    return f"algorithm = {cell.algorithm}" + (f", graph = {cell.graph}" if cell.graph else "")


def compare_rows(rows: Sequence[Row], reference: str, margin: float = MARGIN) -> dict[str, Any]:
    """Return means over seeds for every method and graph, verdicts beside the reference, and the conclusion.

    Methods are compared over the seeds that both have, on the same graph (a method with a server stands for all
    graphs). Verdicts and intervals are those of `p2pkm.storage.paired_tests`, corrected for all pairs.
    """
    groups: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        if row["error"] is None:
            groups.setdefault((row["algorithm"], row["graph"]), {})[row["seed"]] = row
    table = [_average(name, graph, list(group.values())) for (name, graph), group in groups.items()]
    ours = {graph: group for (name, graph), group in groups.items() if name == reference}
    verdicts = {figure: Verdicts(groups, figure, margin) for figure in keys(ShownIn.PAIRED)}
    differences = []
    for (name, graph), group in groups.items():
        for against, other in ours.items():
            if name != reference and (graph == against or SERVED in (graph, against)):
                sides = {"algorithm": name, "graph": graph, "reference": reference, "reference_graph": against}
                gaps = {figure: found.pair((name, graph), (reference, against)) for figure, found in verdicts.items()}
                seeds = {"seeds": len(group.keys() & other.keys())}
                differences.append(sides | seeds | {key: gap and gap._asdict() for key, gap in gaps.items()})
    named = {name_run(*sides): group for sides, group in groups.items()}
    found: dict[str, Any] = {"reference": reference, "margin": margin, "table": table, "differences": differences}
    return found | {"conclusion": conclude(named, margin=margin), "verdicts": list_verdicts(named, _JUDGED, margin)}


def _average(name: str, graph: str, group: Sequence[Row]) -> dict[str, Any]:
    """Return the means over seeds of one method on one graph, the worst device of all, and an interval of the ratio."""
    found: dict[str, Any] = {"algorithm": name, "graph": graph, "seeds": len(group)}
    found |= average(group, keys(ShownIn.MEANS))
    ratios = [row["ratio_mean"] for row in group]
    found["ratio_low"], found["ratio_high"] = (None, None) if None in ratios else interval(ratios)
    found["worse"] = tell_worse(group) or None
    found["terminations"] = sorted({row["termination"] for row in group})
    return found


def write_folder(folder: Path, rows: Sequence[Row], compared: dict[str, Any], base: RunOptions) -> None:
    """Write rows.jsonl and rows.csv (one row per run), verdicts.csv, summary.json and the figure."""
    plain = [_without(row, "trace") for row in rows]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    write_bytes(folder, "rows.jsonl", lambda file: file.write(lines.encode()))
    names = list(dict.fromkeys(name for row in plain for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(plain)
    write_bytes(folder, "rows.csv", lambda file: file.write(text.getvalue().encode()))
    write_json(folder, "summary.json", compared)
    verdicts = write_verdicts(Study(plain).configurations(), keys(ShownIn.PAIRED), compared["margin"])
    write_bytes(folder, "verdicts.csv", lambda file: file.write(verdicts.encode()))
    if base.plot and any(one["ratio_mean"] is not None for one in compared["table"]):
        from p2pkm.viz import draw_comparison

        draw_comparison(compared["table"], folder / "figures", **base.draw_kinds())


def tabulate(compared: dict[str, Any]) -> str:
    """Return the comparison as text."""
    names = [name_run(one["algorithm"], one["graph"]) for one in compared["table"]]
    shown = columns(ShownIn.COMPARISON, compared["table"])
    lines = [["", *(metric.column for metric in shown)]]
    for name, one in zip(names, compared["table"], strict=True):
        cells = [metric.write_mean(one) for metric in shown]
        lines.append([name, *cells])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))] if names else []
    text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines if names]
    text += [EXPLAINED] if names else []
    text += [f"quality got worse: {name}, {one['worse']}" for name, one in zip(names, compared["table"], strict=True)
             if one["worse"]]  # fmt: skip
    if compared["differences"]:
        text += ["", f"beside {compared['reference']}, same seeds:"]
    for one in compared["differences"]:
        if one["ratio_mean"] is not None:
            gap = PairedTest(**one["ratio_mean"])
            sides = " - ".join(name_sides(one))
            effect = tell_effect(gap, "ratio_mean")
            text.append(f"  {sides}: ratio {gap.difference:+.4f}, {effect}, {tell_verdict(gap)}")
    if any(one["ratio_mean"] is not None for one in compared["table"]):
        text += ["", compared["conclusion"]]
    if compared["failed"]:
        text.append(f"{count(compared['failed'], 'run')} failed, the first of them: {compared['error']}")
    return "\n".join([*text, tell_folder(compared["out"])])


def _without(row: Row, unwanted: str) -> Row:
    return {name: value for name, value in row.items() if name != unwanted}
