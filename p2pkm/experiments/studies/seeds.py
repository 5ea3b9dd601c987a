"""One configuration with several seeds, each run in a folder of its own."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.analysis.conclusion import conclude
from p2pkm.analysis.study_table import name_run
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import read_range
from p2pkm.core.termination import STOPPED
from p2pkm.core.units import count
from p2pkm.engine.build_run import Run
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.resume import resume_run
from p2pkm.experiments.run import OutputOptions, assemble, execute, exit_code, lock_output_folder
from p2pkm.experiments.studies.engine import Execution, Outcome
from p2pkm.experiments.studies.run_study import ProgressCallback
from p2pkm.experiments.studies.series import Series, restore_experiment
from p2pkm.metrics.closing_rows import describe_publication
from p2pkm.metrics.registry import ShownIn, keys, metrics_shown_in
from p2pkm.network.world import connect
from p2pkm.storage.load import load
from p2pkm.storage.run_folder import lock_folder
from p2pkm.storage.run_status import run_status
from p2pkm.storage.study_mark import SEEDS
from p2pkm.storage.study_rows import Row
from p2pkm.storage.toml import read_toml

_MAX_SEEDS = 10_000
_DIGITS = 18  # maximum number of digits of a seed


def parse_seeds(text: str) -> list[int]:
    """Read a list of seeds such as ``0-9`` or ``0,3,5-7``.

    Raises
    ------
    ExperimentError
        If the text is not such a list, contains a seed twice, or contains more than 10,000 seeds.
    """
    seeds: list[int] = []
    for part in text.split(","):
        numbers = read_range(part.strip(), _DIGITS)
        if numbers is None:
            raise ExperimentError(
                f"--seeds is {text!r}; expected a list of seeds, such as 0-9 or 0,3,5-7, with the smaller number of a "
                "range first"
            )
        if len(seeds) + len(numbers) > _MAX_SEEDS:
            raise ExperimentError(f"--seeds is {text!r}; expected at most {_MAX_SEEDS} seeds")
        seeds += numbers
    if len(set(seeds)) < len(seeds):
        raise ExperimentError(f"--seeds is {text!r}; expected each seed once")
    return seeds


def write_seeds(seeds: Sequence[int]) -> str:
    """Write seeds in the format of `parse_seeds`, consecutive ones as a range."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


class Seeds(Series):
    """One configuration with several seeds, each run in a folder of its own.

    Parameters
    ----------
    experiment : RunOptions
    seeds : list of int
    asked : mapping, optional
        As in `Series`.
    """

    kind = SEEDS
    option = "--seeds"

    def __init__(self, experiment: RunOptions, seeds: list[int], asked: Mapping[str, Any] | None = None) -> None:
        super().__init__(experiment, asked)
        self.seeds = seeds
        self.cells = [replace(experiment, seed=seed) for seed in seeds]
        self._first: list[Run] = []  # the assembled first run, until it starts

    def to_mapping(self) -> dict[str, Any]:
        """Return the seeds."""
        return {"seeds": write_seeds(self.seeds)}

    def first(self) -> Run:
        """Assemble the run of the first seed."""
        self._first = [super().first()]
        return self._first[0]

    def folder_of_first(self, folder: Path) -> Path:
        """Return the folder of the run of the first seed."""
        return folder / f"seed-{self.seeds[0]}"

    def run(
        self, folder: Path | None, output: OutputOptions, execution: Execution, progress: ProgressCallback
    ) -> list[Row]:
        """Run the seeds that have not finished, and return the summaries of all; an interrupted one is the last."""
        summaries: list[Row] = []

        def prepare(cell: RunOptions) -> Run:
            return self._first.pop() if self._first else assemble(cell, connect())

        for cell in self.cells:
            summary = _run_seed(partial(prepare, cell), folder and folder / f"seed-{cell.seed}", output)
            # Only the first run is assembled before.
            self._first.clear()
            summaries.append(summary)
            if summary["termination"] in STOPPED:
                break
            _tell_seed(summary, output)
        return summaries

    def list_rows(self, study_rows: Sequence[Row]) -> list[Row]:
        """Return the metrics of a study for each seed."""
        return [
            {
                "algorithm": summary["algorithm"],
                "graph": summary["graph"],
                "seed": summary["seed"],
                "error": f"no result: {summary['failure']}" if summary.get("failure") else None,
                **{name: summary.get(name) for name in keys(ShownIn.STUDY)},
            }
            for summary in study_rows
        ]

    def say(self, outcome: Outcome) -> dict[str, Any]:
        """Return mean, standard deviation and worst value of the main metrics, with the summaries."""
        return summarize(outcome.study_rows)

    def format(self, outcome: Outcome) -> str:
        """Format mean, standard deviation and worst value of the main metrics."""
        return format_seeds(outcome.said)

    def describe(self, output: OutputOptions) -> str:
        """Return the options of all runs."""
        lock_output_folder(self.experiment, output, ExitStack())
        runs = [assemble(cell, connect()).options for cell in self.cells]
        resolved = {"seeds": self.seeds, "runs": [run.to_mapping() for run in runs]}
        return json.dumps(resolved, indent=None if output.json else 1)

    def has_ended(self, outcome: Outcome) -> bool:
        """Return whether no run is missing or interrupted."""
        return self.exit_code(outcome) not in STOPPED.values()

    def exit_code(self, outcome: Outcome) -> int:
        """Return the largest exit code of the runs."""
        return max(exit_code(summary, self.experiment) for summary in outcome.study_rows)


def restore_seeds(folder: Path, asked: Mapping[str, Any]) -> Seeds:
    """Return the seeds whose folder is continued.

    Finished seeds are not run again. An interrupted one continues from its last checkpoint.

    Raises
    ------
    DataError
        If the file in the folder lacks an entry.
    """
    experiment = restore_experiment(folder, asked, ("seeds",))
    return Seeds(experiment, parse_seeds(asked["seeds"]), asked)


def _run_seed(prepare: Callable[[], Run], folder: Path | None, output: OutputOptions) -> dict[str, Any]:
    """Return the summary of one seed, which is run or resumed unless it has finished."""
    if folder is None:
        return execute(prepare(), connect(), None, output).summary
    state = run_status(folder) if folder.is_dir() else ""
    if state == "done":
        return load(folder).summary
    with lock_folder(folder) as lock:
        if not state:
            return execute(prepare(), connect(), lock, output).summary
        config = str(folder / "config.toml")
        return resume_run(RunOptions.from_mapping(read_toml(config), config), lock, output).summary


def _tell_seed(summary: dict[str, Any], output: OutputOptions) -> None:
    if not output.quiet:
        ratio = summary["ratio_mean"]
        shown = "not compared" if ratio is None else f"{ratio:.4f}"
        outcome = summary.get("failure") or f"ratio {shown}, {summary['termination']}"
        print(f"seed {summary['seed']}: {outcome}", file=sys.stderr, flush=True)


def summarize(summaries: Sequence[Row]) -> dict[str, Any]:
    """Compute mean, standard deviation (n - 1) and worst value of the main metrics; None if a run lacks the metric."""
    closing: dict[str, Any] = {"seeds": [summary["seed"] for summary in summaries], "mean": {}, "sd": {}, "worst": {}}
    for metric in metrics_shown_in(ShownIn.SEEDS):
        name = metric.key
        values = [summary[name] for summary in summaries]
        known = np.array([value for value in values if value is not None], float)
        is_complete = len(known) == len(values)
        worst = np.min if metric.better == "higher" else np.max
        closing["mean"][name] = float(known.mean()) if is_complete else None
        closing["sd"][name] = float(known.std(ddof=1)) if is_complete and len(known) > 1 else None
        closing["worst"][name] = float(worst(known)) if is_complete else None
    releases = _compose_releases(summaries)
    runs = {summary["seed"]: summary for summary in summaries}
    name = name_run(str(summaries[0].get("algorithm")), summaries[0].get("graph"))
    closing["conclusion"] = conclude({name: runs})
    return closing | ({} if releases is None else {"privacy": releases}) | {"runs": summaries}


def _compose_releases(summaries: Sequence[Row]) -> dict[str, Any] | None:
    """Compose the privacy guarantees of runs on the same points; None unless all runs have one for all points."""
    from p2pkm.methods.building_blocks.gdp import compose, epsilon_of

    for summary in summaries:
        if summary.get("mu") is None or summary.get("noise_seed") is not None or summary.get("server_points"):
            return None
    mu, delta = compose(*(summary["mu"] for summary in summaries)), max(summary["delta"] for summary in summaries)
    return {"releases": len(summaries), "mu": mu, "epsilon": epsilon_of(mu, delta), "delta": delta}


def format_seeds(closing: dict[str, Any]) -> str:
    """Format the result of `summarize` as text."""
    lines = [f"{count(len(closing['seeds']), 'seed')}: {', '.join(map(str, closing['seeds']))}"]
    shown = metrics_shown_in(ShownIn.SEEDS)
    width = max(len(metric.label) for metric in shown)
    lines.append(f"  {'':{width}} {'mean':>12} {'sd':>12} {'worst':>12}")
    for metric in shown:
        cells = [closing[kind][metric.key] for kind in ("mean", "sd", "worst")]
        line = " ".join(f"{'-' if cell is None else format(cell, '.6g'):>12}" for cell in cells)
        lines.append(f"  {metric.label:{width}} {line}")
    if closing["mean"]["ratio_mean"] is not None:
        lines.append(f"  {closing['conclusion']}")
    if (privacy := closing.get("privacy")) is not None:
        lines.append(
            f"  differential privacy: {count(privacy['releases'], 'release')}, of the same points together eps "
            f"{privacy['epsilon']:.3g} at delta {privacy['delta']:g} (mu {privacy['mu']:.3g}, "
            f"{privacy['mu'] / closing['runs'][0]['mu']:.3g} times that of one run)"
        )
        published, withheld = describe_publication(closing["runs"][0]["relation"])
        lines.append(f"  may be published: {published}; {withheld}; p2pkm privacy budget RUN... adds up further runs")
    return "\n".join(lines)
