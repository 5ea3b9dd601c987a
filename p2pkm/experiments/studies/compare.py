"""Comparison of methods with the same points, partitions, seeds and message layer, by paired differences."""

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.core.cache import shared_cache
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.termination import INTERRUPTED
from p2pkm.core.units import count, describe_folder
from p2pkm.core.validation import as_list, check_integer, check_scalar
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import parse_graph, parse_method
from p2pkm.experiments.program_objects import ProgramObjects, available
from p2pkm.experiments.progress_line import StudyBar, in_notebook
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.program_values import ProgramValues, read_names, write_names
from p2pkm.experiments.studies.run_study import (
    announce_study_compilation,
    check_jobs,
    format_progress,
    on_every_rank,
    open_folder,
    print_graph_notes,
    run_study,
)
from p2pkm.experiments.studies.study_file import check_runs, read_seeds
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.metrics.registry import ShownIn, columns, keys, write_legend
from p2pkm.network.world import connect
from p2pkm.storage.conclusion import conclude, format_effect, format_verdict, list_verdicts, write_verdicts
from p2pkm.storage.lock import Lock
from p2pkm.storage.paired_tests import MARGIN, PairedTest, Verdicts, check_margin
from p2pkm.storage.save import write_bytes, write_json
from p2pkm.storage.study_table import (
    SERVED,
    Row,
    Study,
    average,
    describe_quality_loss,
    interval,
    name_run,
    name_sides,
)

_FAILED = 4  # exit code if a run failed
MARK = "comparison.json"  # file that marks the folder of a comparison, with its configuration
_JUDGED = ("ratio_mean",)  # metrics with verdicts in the summary


@on_every_rank
@shared_cache()
def compare(  # noqa: PLR0913 - the public signature
    algorithms: Any, graphs: Any = "ring", *, seeds: str | Iterable[int] = "0-4",
    reference: Any = None, jobs: int = 1, out: str | os.PathLike[str] | None = None, plot: bool = False,
    progress: bool = True, margin: float = MARGIN, **options: Any,
) -> Study:  # fmt: skip
    """Run methods on graphs with several seeds, all on the same points, as ``p2pkm compare`` does.

    Parameters
    ----------
    algorithms : str, method, iterable or dict
        Methods: specs such as ``"gtvmin,fkm:server_n_init=20"``, a list such as ``["gtvmin", p2pkm.FKM(16)]``, or a
        dict by the names that tables and figures show. Objects as in `p2pkm.study`.
    graphs : str, graph, iterable or dict, default="ring"
        Graphs of peer-to-peer methods, in the same forms. Server methods run once, on their star.
    seeds : str or iterable of int, default="0-4"
        ``"0-4"``, ``[0, 1, 7]`` or ``range(10)``.
    reference : str or method, optional
        Method with which ``summary.json`` compares the others, or its name; None: the first.
    jobs : int, default=1
        Number of processes.
    out : path, optional
        Folder of the comparison. An interrupted comparison continues there. None: nothing is written.
    plot : bool, default=False
        Draw figures into the folder.
    progress : bool, default=True
        Print a line on standard error for each finished run; in a notebook, show a bar, and a table at the end.
    margin : float, default=0.005
        Largest absolute log ratio at which two configurations are equivalent: 0.005 is 0.5 %; 0: never.
    **options
        Options of all runs, named as on the command line with ``_`` for ``-``, such as ``devices=16``.

    Returns
    -------
    Study
        With `to_frame`, `to_latex`, `conclusion` and `plot`. A failed run is a row with its ``error``.

    Raises
    ------
    P2PKMError
        If an option is unknown or invalid; nothing has been computed then.
    KeyboardInterrupt
        If the comparison is interrupted; finished runs are in the folder, if there is one.

    Examples
    --------
    >>> import p2pkm
    >>> study = p2pkm.compare(["gtvmin", "fkm"], seeds=range(3), devices=4, data="grid16:points=10", rounds=3)
    >>> sorted(study.configurations())
    ['fkm with a server', 'gtvmin on ring']
    """
    check_jobs(check_integer(jobs, 1, "jobs"))
    where = "compare(...)"
    program = ProgramValues(where)
    methods = program.take_specs("algorithm", algorithms, "algorithms")
    graph_specs = program.take_specs("graph", graphs, "graphs")
    wrong = sorted(options.keys() & {"algorithm", "graph", "seed"})
    if wrong:
        raise ExperimentError(f"{where}: {wrong[0]} is set. Use {wrong[0]}s, a list")
    folder = "none" if out is None else os.fspath(out)
    check_scalar(progress, "progress")
    base_options = program.take_options(options)
    reference = program.find("algorithm", reference)
    with available(program.collect()):
        base = RunOptions.from_mapping(base_options | {"plot": plot, "out": folder}, where)
        seed_list = read_seeds(seeds if isinstance(seeds, str) else as_list(seeds, f"{where}: seeds"), where)
        comparison = Comparison.of(base, methods, graph_specs, seed_list, reference)
        comparison = comparison._replace(margin=check_margin(margin), names=program.collect().names)
        cells = expand_runs(comparison)
        rows, _ = run_comparison(comparison, cells, OutputOptions(quiet=not progress), jobs)
    if len(rows) < len(cells):
        raise KeyboardInterrupt
    return Study([_without(row, "trace") for row in rows], None if out is None else Path(out), comparison.margin)


class Comparison(NamedTuple):
    """Configuration of a comparison: all methods on all graphs with all seeds.

    Attributes
    ----------
    base : RunOptions
        Options of all runs.
    algorithms, graphs : sequence of str
        Specs.
    seeds : sequence of int
    reference : str
        Method with which the others are compared.
    margin : float
        Largest absolute log ratio at which two configurations are equivalent.
    names : dict of dict
        Name of each value that has one, by option and value.
    """

    base: RunOptions
    algorithms: Sequence[str]
    graphs: Sequence[str]
    seeds: Sequence[int]
    reference: str
    margin: float = MARGIN
    names: Mapping[str, Mapping[Any, str]] = {}

    @classmethod
    def of(
        cls, base: RunOptions, algorithms: Sequence[str], graphs: Sequence[str], seeds: Sequence[int],
        reference: str | None = None,
    ) -> "Comparison":  # fmt: skip
        """Create a comparison whose reference is by default the first method.

        Raises
        ------
        ExperimentError
            If the reference is not among the methods.
        """
        reference = reference or algorithms[0]
        if reference not in algorithms:
            listed = ", ".join(algorithms)
            raise ExperimentError(f"--reference is {reference}; expected one of the compared methods: {listed}")
        return cls(base, algorithms, graphs, seeds, reference)

    def to_mapping(self) -> dict[str, Any]:
        """Convert to the content of the file in the folder."""
        return self._asdict() | {"base": self.base.to_mapping(), "names": write_names(self.names)}


@shared_cache()
def run_compare_command(comparison: Comparison, output: OutputOptions, jobs: int = 1) -> int:
    """Run a comparison, print its table, write its folder, and return the exit code.

    Raises
    ------
    ExperimentError
        If a method, a graph or the folder cannot be used; nothing has been computed then.
    """
    check_jobs(jobs)
    cells = expand_runs(comparison)
    rows, compared = run_comparison(comparison, cells, output, jobs)
    if output.json:
        print(json.dumps({"rows": [_without(row, "trace") for row in rows], **compared}), flush=True)
    else:
        print(tabulate(compared), flush=True)
    if len(rows) < len(cells):
        return INTERRUPTED
    return _FAILED if compared["failed"] else 0


def resume_compare(folder: Path, jobs: int, output: OutputOptions) -> int:
    """Complete the runs in the folder of a comparison, and end as `run_compare_command` does.

    Raises
    ------
    DataError
        If the configuration in the folder cannot be read.
    """
    mark = folder / MARK
    try:
        content = json.loads(mark.read_text("utf-8"))
        parts = [content[name] for name in ("algorithms", "graphs", "seeds", "reference")]
        base = RunOptions.from_mapping(content["base"] | {"out": str(folder)}, str(mark))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{mark} cannot be read: {type(error).__name__}: {error}. Start the comparison again with compare --out NEW"
        ) from None
    margin = check_margin(content.get("margin", MARGIN))
    names = read_names(content.get("names", []), str(mark))
    with available(ProgramObjects(names=names)):
        return run_compare_command(Comparison.of(base, *parts)._replace(margin=margin, names=names), output, jobs)


def run_comparison(
    comparison: Comparison, cells: Sequence[RunOptions], output: OutputOptions, jobs: int
) -> tuple[list[Row], dict[str, Any]]:
    """Run the cells of a comparison and write its folder, if any; return rows, and means with differences."""
    folder = open_folder(comparison.base.out, "comparison", MARK)
    bar = StudyBar() if in_notebook() and not output.quiet else None

    def print_progress(row: Row, number: int, count: int) -> None:
        if not output.quiet:
            print(format_progress(row, number, count), file=sys.stderr, flush=True)

    with nullcontext() if folder is None else Lock(folder):
        if folder is not None:
            write_json(folder, MARK, comparison.to_mapping())
        announce_study_compilation(quiet=output.quiet)
        print_graph_notes(cells, quiet=output.quiet)
        rows = [
            _without(row, "options") for row in run_study(cells, folder, connect(), bar or print_progress, jobs=jobs)
        ]
        reference = comparison.names.get("algorithm", {}).get(comparison.reference, comparison.reference)
        compared = compare_rows(rows, reference, comparison.margin)
        errors = [row["error"] for row in rows if row["error"] is not None]
        compared |= {
            "out": None if folder is None else str(folder),
            "failed": len(errors),
            "error": next(iter(errors), None),
        }
        if folder is not None:
            write_folder(folder, rows, compared, comparison.base)
    if bar is not None:
        bar.finish(tabulate(compared))
    return rows, compared


def expand_runs(comparison: Comparison) -> list[RunOptions]:
    """List the runs: all methods on all graphs with all seeds; server methods once, on their star.

    All runs have the same number of devices: the values one, else that of the device column or of the graphs, else 16.

    Raises
    ------
    P2PKMError
        If a method cannot run on a graph with any seed, or the graphs have different numbers of devices.
    """
    on_graphs, on_stars = list[RunOptions](), list[RunOptions]()
    configurations = []
    for algorithm in comparison.algorithms:
        with_method = replace(comparison.base, algorithm=algorithm, graph=None)
        method = parse_method(with_method).build(comparison.base.draft_k)
        is_on_star = needs_hub(method)
        for graph in (None,) if is_on_star else comparison.graphs:
            configuration = replace(comparison.base, algorithm=algorithm, graph=graph, out=None)
            parse_graph(configuration, method)
            (on_stars if is_on_star else on_graphs).append(configuration)
            configurations.append(configuration)

    def with_seeds(options: Sequence[RunOptions], **changes: Any) -> list[RunOptions]:
        return [replace(one_options, seed=seed, **changes) for one_options in options for seed in comparison.seeds]

    resolved = check_runs(with_seeds(on_graphs), _label_cell)
    sizes = {int(options.devices or 0): options.graph for options in resolved}
    if len(sizes) > 1:
        listed = ", ".join(f"{graph} has {size}" for size, graph in sizes.items())
        raise ExperimentError(
            f"the graphs have different numbers of devices: {listed}; expected one number for all. Use --devices "
            f"{max(sizes)}, or graphs of one size"
        )
    # The stars take the size of the graphs; without graphs, all runs take the size of the first star.
    size = next(iter(sizes), comparison.base.devices)
    resolved_stars = check_runs(with_seeds(on_stars, devices=size), _label_cell)
    return with_seeds(configurations, devices=size or resolved_stars[0].devices)


def _label_cell(cell: RunOptions) -> str:
    """Label a configuration in messages."""
    return f"algorithm = {cell.algorithm}" + (f", graph = {cell.graph}" if cell.graph else "")


def compare_rows(rows: Sequence[Row], reference: str, margin: float = MARGIN) -> dict[str, Any]:
    """Compute means over seeds for each method and graph, verdicts against the reference, and the conclusion.

    Methods are compared over their common seeds on the same graph; a server method is compared on every graph.
    Verdicts and intervals are those of `p2pkm.storage.paired_tests`, corrected for all pairs.
    """
    groups: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        if row["error"] is None:
            groups.setdefault((row["algorithm"], row["graph"]), {})[row["seed"]] = row
    table = [_average(name, graph, list(group.values())) for (name, graph), group in groups.items()]
    references = {graph: group for (name, graph), group in groups.items() if name == reference}
    verdicts = {metric: Verdicts(groups, metric, margin) for metric in keys(ShownIn.PAIRED)}
    differences = []
    for (name, graph), group in groups.items():
        for reference_graph, reference_group in references.items():
            if name != reference and (graph == reference_graph or SERVED in (graph, reference_graph)):
                pair = (name, graph), (reference, reference_graph)
                tests = {metric: metric_verdicts.pair(*pair) for metric, metric_verdicts in verdicts.items()}
                difference = {
                    "algorithm": name,
                    "graph": graph,
                    "reference": reference,
                    "reference_graph": reference_graph,
                    "seeds": len(group.keys() & reference_group.keys()),
                }
                differences.append(difference | {key: test and test._asdict() for key, test in tests.items()})
    named = {name_run(*sides): group for sides, group in groups.items()}
    explanation = Study(list(rows)).explain()
    return {
        "reference": reference,
        "margin": margin,
        "table": table,
        "differences": differences,
        "conclusion": conclude(named, margin=margin),
        "explanation": explanation.headline if explanation.correlations else None,
        "verdicts": list_verdicts(named, _JUDGED, margin),
    }


def _average(name: str, graph: str, group: Sequence[Row]) -> dict[str, Any]:
    """Average the runs of one method on one graph over seeds, with a confidence interval of the cost ratio."""
    means: dict[str, Any] = {"algorithm": name, "graph": graph, "seeds": len(group)}
    means |= average(group, keys(ShownIn.MEANS))
    ratios = [row["ratio_mean"] for row in group]
    means["ratio_low"], means["ratio_high"] = (None, None) if None in ratios else interval(ratios)
    means["worse"] = describe_quality_loss(group) or None
    means["terminations"] = sorted({row["termination"] for row in group})
    return means


def write_folder(folder: Path, rows: Sequence[Row], compared: dict[str, Any], base: RunOptions) -> None:
    """Write rows.jsonl and rows.csv (one row per run), verdicts.csv, explain.csv, summary.json and the figure."""
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
    Study(plain).explain().write(folder)
    if base.plot and any(means["ratio_mean"] is not None for means in compared["table"]):
        from p2pkm.viz import draw_comparison

        draw_comparison(compared["table"], folder / "figures", **base.draw_kinds())


def tabulate(compared: dict[str, Any]) -> str:
    """Format a comparison as a text table."""
    table = compared["table"]
    names = [name_run(means["algorithm"], means["graph"]) for means in table]
    metrics = columns(ShownIn.COMPARISON, table)
    lines = [["", *(metric.column for metric in metrics)]]
    lines += [
        [name, *(metric.write_mean(means) for metric in metrics)] for name, means in zip(names, table, strict=True)
    ]
    text = []
    if names:
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
        text += write_legend(metrics)
    for name, means in zip(names, table, strict=True):
        if means["worse"]:
            text.append(f"quality got worse: {name}, {means['worse']}")
    text += _format_differences(compared)
    if any(means["ratio_mean"] is not None for means in table):
        text += ["", compared["conclusion"]]
    if compared["explanation"]:
        text += ["", compared["explanation"]]
    if compared["failed"]:
        text.append(f"{count(compared['failed'], 'run')} failed, the first of them: {compared['error']}")
    return "\n".join([*text, describe_folder(compared["out"])])


def _format_differences(compared: dict[str, Any]) -> list[str]:
    """Format the paired differences of cost ratios, one line each."""
    if not compared["differences"]:
        return []
    lines = ["", f"compared with {compared['reference']}, same seeds:"]
    for difference in compared["differences"]:
        if difference["ratio_mean"] is not None:
            test = PairedTest(**difference["ratio_mean"])
            sides = " - ".join(name_sides(difference))
            effect = format_effect(test, "ratio_mean")
            lines.append(f"  {sides}: ratio {test.difference:+.4f}, {effect}, {format_verdict(test)}")
    return lines


def _without(row: Row, key: str) -> Row:
    """Copy a row without one entry."""
    return {name: value for name, value in row.items() if name != key}
