"""A study in one process: methods on graphs over seeds, warm, and what it saves that its runs share their work."""

import os
import time

from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.studies import run_study as study
from p2pkm.network.local import LocalWorld
from tests.benchmarks.figure import Figure

_GRAPHS = (
    "ring", "path", "star", "complete", "grid", "torus", "small-world:degree=4,rewire=0.1", "random-regular:degree=4",
    "erdos-renyi:p=0.1", "barabasi-albert:m=2", "barbell", "caveman:size=4",
)  # fmt: skip
_METHODS = ("gtvmin", "consensus", "admm")
_DEVICES, _ROUNDS = 64, 100


def measure(quick: bool) -> list[Figure]:
    """Return the seconds of the study, and the processor time of a part of it over that of its runs one by one."""
    graphs, seeds = (_GRAPHS[::6], 1) if quick else (_GRAPHS, 5)
    cells = [
        RunOptions(algorithm=name, graph=graph, devices=_DEVICES, rounds=_ROUNDS, seed=seed, plot=False)
        for name in _METHODS for graph in graphs for seed in range(seeds)
    ]  # fmt: skip
    few = [cell for cell in cells if cell.seed == 0]
    study.run_study(few[::4], None, LocalWorld())  # warm
    cores = os.cpu_count() or 1
    seconds, beside = (_time(cells, jobs) for jobs in (1, cores))
    together, apart = _clock(few, shared=True), _clock(few, shared=False)
    what = f"study, {len(graphs)} graphs x {seeds} seeds x {len(_METHODS)} methods, {_DEVICES} devices"
    note = f"{len(cells)} runs of at most {_ROUNDS} rounds, warm, one process"
    started = f"as many processes as cores ({cores}), their start included"
    return [
        Figure(f"{what}: wall time", seconds, "s", "at most", 12.0, note),
        Figure(f"{what}: wall time, --jobs {cores}", beside, "s", "at most", 6.5, started),
        Figure(f"{what}: processor time over that of single runs", together / apart, "x", "", 0.0,
               f"{together:.1f} s against {apart:.1f} s, {len(few)} runs"),
    ]  # fmt: skip


def _time(cells: list[RunOptions], jobs: int) -> float:
    """Return the wall seconds of the study in so many processes."""
    began = time.perf_counter()
    study.run_study(cells, None, LocalWorld(), jobs=jobs)
    return time.perf_counter() - began


def _clock(cells: list[RunOptions], *, shared: bool) -> float:
    """Return the least processor time of two tries to run the cells."""
    taken = []
    for _ in range(2):
        began = time.process_time()
        if shared:
            study.run_study(cells, None, LocalWorld())
        else:
            for cell in cells:
                study.run_cell(cell, None)
        taken.append(time.process_time() - began)
    return min(taken)
