"""Comparison of methods with the same points, partitions, seeds and message layer, by paired differences."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from p2pkm.analysis.conclusion import format_comparison, list_verdicts
from p2pkm.analysis.paired_tests import COMMON, MARGIN, PairedTest, Verdicts, choose_figure, estimate_mean
from p2pkm.analysis.study_table import SERVED, Study, average, describe_quality_loss, name_run, name_sides
from p2pkm.core.cache import shared_cache
from p2pkm.core.errors import ExperimentError
from p2pkm.core.keywords import show_call
from p2pkm.core.text_table import align_blocks
from p2pkm.core.units import count
from p2pkm.core.validation import as_list, check_scalar
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.object_content import wrap_metrics
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.engine import Outcome, conduct, read_execution
from p2pkm.experiments.studies.program_values import ProgramValues
from p2pkm.experiments.studies.run_study import on_every_rank
from p2pkm.experiments.studies.study_file import StudyFile, check_runs, expand_grid, parse_study, run_label
from p2pkm.experiments.studies.sweep import Sweep, to_study
from p2pkm.metrics.registry import ShownIn, columns, keys, write_legend
from p2pkm.storage.save import write_json
from p2pkm.storage.study_mark import COMPARISON
from p2pkm.storage.study_rows import Row


@on_every_rank
@shared_cache()
@show_call("p2pkm.compare(['gtvmin', 'fkm'], 'ring', seeds='0-4', devices=16)")
def compare(
    algorithms: Any, graphs: Any = "ring", *, seeds: str | Iterable[int] = "0-4",
    reference: Any = None, jobs: int = 1, out: str | os.PathLike[str] | None = None, plot: bool = False,
    progress: bool = True, margin: float = MARGIN, metrics: Any = (), executor: Any = None,
    retry_failed: bool = False, retry_rejected: bool = False, on_run: Callable[[Row], None] | None = None,
    **options: Any,
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
        Relative difference up to which two configurations are equivalent: 0.005 is 0.5 %; 0: never.
    metrics : callable, Metric, or list of them
        Functions of the `Result` of a run, for each of which there is a column of its name.
    executor : concurrent.futures.Executor, optional
        Executes the runs, with `jobs` workers, as in `p2pkm.study`.
    retry_failed, retry_rejected : bool, default=False
        Repeat the runs in the folder that failed or took too long, or that were rejected.
    on_run : callable, optional
        Called in this process with the row of each run that has ended.
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
    execution = read_execution(jobs, executor, retry_failed=retry_failed, retry_rejected=retry_rejected, on_run=on_run)
    where = "compare(...)"
    program = ProgramValues(where)
    methods = program.take_specs("algorithm", algorithms, "algorithms")
    graph_specs = program.take_specs("graph", graphs, "graphs")
    wrong = sorted(options.keys() & {"algorithm", "graph", "seed"})
    if wrong:
        raise ExperimentError(f"{where}: {wrong[0]} is set. Use {wrong[0]}s, a list")
    check_scalar(progress, "progress")
    base_options = program.take_options(options)
    reference = program.find("algorithm", reference)
    base_options |= {"plot": plot}
    # Rejects keys of study files that are not options of a run.
    RunOptions.from_mapping(base_options, where)
    asked: dict[str, Any] = {
        "seeds": seeds if isinstance(seeds, str) else as_list(seeds, f"{where}: seeds"),
        "margin": margin,
    }
    asked["metrics"] = wrap_metrics(metrics, f"{where}: metrics")
    names = program.to_tables()
    study = make_comparison(base_options | asked | {"names": names}, methods, graph_specs, reference, where)
    path = "none" if out is None else os.fspath(out)
    outcome = conduct(Comparison(study, where, path), path, OutputOptions(quiet=not progress), execution)
    return to_study(outcome, study.margin)


def make_comparison(
    content: dict[str, Any], algorithms: Sequence[Any], graphs: Sequence[Any], reference: Any, where: str
) -> StudyFile:
    """Return the study of all methods on all graphs, whose reference is by default the first method.

    Parameters
    ----------
    content : dict
        Other entries of the study file.
    algorithms, graphs : sequence of str or ProgramObject
    reference : str, ProgramObject or None
    where : str
        Source of the study in messages.

    Raises
    ------
    ExperimentError
        If the reference is not among the methods, or an entry is wrong.
    """
    reference = reference or algorithms[0]
    if reference not in algorithms:
        listed = ", ".join(map(str, algorithms))
        raise ExperimentError(f"--reference is {reference}; expected one of the compared methods: {listed}")
    varied = {"kind": COMPARISON, "reference": reference, "grid": {"algorithm": algorithms, "graph": graphs}}
    return parse_study(content | varied, where)


class Comparison(Sweep):
    """Study of methods on graphs, all with the same number of devices, each compared with a reference."""

    kind = COMPARISON

    def expand(self, where: str) -> list[RunOptions]:
        """List the runs: all methods on all graphs with all seeds; server methods once, on their star.

        All have the same number of devices: the given one, else that of the device column or of the graphs, else 16.

        Raises
        ------
        P2PKMError
            If a method cannot run on a graph with any seed, or the graphs have different numbers of devices.
        """
        cells = expand_grid(self.study, where)
        if self.study.base.get("devices") is not None:
            return cells
        label = partial(run_label, study=self.study)
        resolved = check_runs([cell for cell in cells if cell.graph is not None], label)
        sizes = {int(options.devices or 0): options.graph for options in resolved}
        if len(sizes) > 1:
            listed = ", ".join(f"{graph} has {size}" for size, graph in sizes.items())
            raise ExperimentError(
                f"the graphs have different numbers of devices: {listed}; expected one number for all. Use --devices "
                f"{max(sizes)}, or graphs of one size"
            )
        # The stars take the size of the graphs; without graphs, all runs take the size of the first star.
        size = next(iter(sizes), self.study.base.get("devices"))
        stars = check_runs([replace(cell, devices=size) for cell in cells if cell.graph is None], label)
        return [replace(cell, devices=size or stars[0].devices) for cell in cells]

    def say(self, outcome: Outcome) -> dict[str, Any]:
        """Return rows, means, paired differences and the conclusion."""
        known = self.names.get("algorithm", {})
        reference = known.get(self.study.reference, str(self.study.reference))
        errors = [row["error"] for row in outcome.failed]
        return {
            "rows": outcome.rows,
            **compare_rows(outcome.rows, reference, self.study.margin),
            "out": outcome.out,
            "failed": len(errors),
            "error": next(iter(errors), None),
        }

    def write(self, outcome: Outcome) -> None:
        """Write the files of a study, and summary.json."""
        super().write(outcome)
        assert outcome.folder is not None
        write_json(outcome.folder, "summary.json", {key: said for key, said in outcome.said.items() if key != "rows"})

    def draw(self, outcome: Outcome, folder: Path) -> None:
        """Draw the figures of the comparison."""
        from p2pkm.viz import draw_comparison

        draw_comparison(outcome.rows, folder, **RunOptions(figures=self.study.base.get("figures")).draw_kinds())

    def format(self, outcome: Outcome) -> str:
        """Format means and differences as text."""
        return tabulate(outcome.said)


def compare_rows(rows: Sequence[Row], reference: str, margin: float = MARGIN) -> dict[str, Any]:
    """Compute means over seeds for each method and graph, verdicts against the reference, and the conclusion.

    Methods are compared over their common seeds on the same graph; a server method is compared on every graph.
    Verdicts and intervals are those of `p2pkm.analysis.paired_tests`, corrected for all pairs.
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
    study = Study(list(rows), margin=margin)
    explanation = study.explain()
    return {
        "reference": reference,
        "margin": margin,
        "table": table,
        "differences": differences,
        "conclusion": study.conclusion(),
        "explanation": explanation.headline if explanation.correlations else None,
        "verdicts": list_verdicts(named, list(dict.fromkeys((choose_figure(table), COMMON))), margin),
    }


def _average(name: str, graph: str, group: Sequence[Row]) -> dict[str, Any]:
    """Average the runs of one method on one graph over seeds, with a confidence interval of the cost ratio."""
    means: dict[str, Any] = {"algorithm": name, "graph": graph, "seeds": len(group)}
    means |= average(group, keys(ShownIn.MEANS))
    ratios = [row["ratio_mean"] for row in group]
    means["ratio_low"], means["ratio_high"] = (
        (None, None) if None in ratios else estimate_mean(ratios, "ratio_mean")[1:]
    )
    means["worse"] = describe_quality_loss(group) or None
    means["terminations"] = sorted({row["termination"] for row in group})
    return means


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
        # Quality first: what a method sends is below it, so that the table fits into a terminal.
        traffic = [column for column, metric in enumerate(metrics, 1) if metric.group == "communication"]
        text = [*align_blocks(lines, traffic[:1]), "", *write_legend(metrics)]
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
    return "\n".join(text)


def _format_differences(compared: dict[str, Any]) -> list[str]:
    """Format the paired differences of test costs or cost ratios, one line each."""
    if not compared["differences"]:
        return []
    lines = ["", f"compared with {compared['reference']}, same seeds and tests as below:"]
    figure = choose_figure(compared["table"])
    for difference in compared["differences"]:
        if difference[figure] is not None:
            test = PairedTest(**difference[figure])
            name, reference = name_sides(difference)
            lines.append(f"  {name} against {reference}: {test.verdict} ({format_comparison(test, figure)})")
    return lines
