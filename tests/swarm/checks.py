"""What must hold of an experiment, whatever its options: each check returns what is wrong, nothing if all is well."""

import json
import os
import re
import shutil
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import p2pkm
import p2pkm.kernels.numba  # noqa: F401 - so that small runs take the compiled kernels
from p2pkm.core.errors import P2PKMError
from p2pkm.core.termination import WITHOUT_CENTROIDS
from p2pkm.engine.build_run import Rank
from p2pkm.engine.run_job import Observers
from p2pkm.engine.run_job import play as play_rank
from p2pkm.engine.run_options import RunOptions as Config
from p2pkm.experiments.plan.draft import build_plan
from p2pkm.experiments.plan.message_counts import stage_traffic
from p2pkm.metrics.closing_rows import describe_broken_bound
from p2pkm.network.world import connect
from p2pkm.storage import checkpoint
from p2pkm.storage.toml import load_toml
from tests.support.prepare import prepare
from tests.support.resume import OWN, difference
from tests.support.run_cli import StageResult, here
from tests.swarm.experiments import Experiment, draw
from tests.swarm.relations import RELATIONS, read


class Case(NamedTuple):
    """An experiment that was run, where, with what ending; the copy that a kill would have left behind, if any."""

    experiment: Experiment
    folder: Path
    words: list[str]
    ending: StageResult
    fault: str
    killed: Path | None

    @property
    def run(self) -> Path:
        """Return the run folder."""
        return self.folder / "run"

    @property
    def summary(self) -> dict[str, Any]:
        """Return what was printed."""
        return self.ending.summary


def play(experiment: Experiment, folder: Path, *, kill: bool = True) -> Case:
    """Run an experiment in this process; kill: keep a copy of its folder at a drawn checkpoint."""
    words = [*experiment.words(folder), "--no-plot", "--format", "json"]
    killed, at, puts = folder / "killed", Random(experiment.seed).randint(1, 12), iter(range(1, 10**9))
    put = checkpoint.CheckpointWriter.put

    def copying(self: Any, outline: Any, arrays: Any) -> None:
        put(self, outline, arrays)
        if next(puts) <= at:  # the last one that there is, if there are fewer
            shutil.rmtree(killed, ignore_errors=True)
            shutil.copytree(folder / "run", killed)

    durable = patch.object(os, "fsync", lambda handle: None)  # no power fails here
    with durable, patch.object(checkpoint.CheckpointWriter, "put", copying):
        ending, fault = _call(*words, "--checkpoint-every", int(kill), "--out", folder / "run")
    return Case(experiment, folder, words, ending, fault, killed if killed.is_dir() else None)


def _call(*words: object) -> tuple[StageResult, str]:
    """Run the command line here, warnings being errors; return its ending and the traceback, if there was one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return here(*words), ""
    except Exception:
        return StageResult(1, "", ""), traceback.format_exc()[-1500:]


def check_ending(case: Case) -> Iterator[str]:
    """No traceback; a refusal is one message and leaves nothing behind."""
    code, err = case.ending.code, case.ending.err
    if case.fault:
        yield case.fault
    elif code in {2, 3}:
        if case.run.exists():
            yield f"refused with code {code}, but wrote {sorted(path.name for path in case.run.iterdir())}"
        lines = [line for line in err.splitlines() if line.startswith("p2pkm: error: ")]
        if len(lines) != 1 or case.ending.out:
            yield f"refused with code {code} and {len(lines)} messages: {err[-300:]}"
    elif code not in {0, 5, WITHOUT_CENTROIDS}:
        yield f"code {code}: {err[-500:]}"
    if "Traceback" in err or "Warning" in err:
        yield err[-500:]


def check_ledger(case: Case) -> Iterator[str]:
    """Messages and bytes of summary, records and the sum over all links are the same; no guarantee is violated."""
    summary, ledger = case.summary, _arrays(case.run / "ledger.npz")
    records = [json.loads(line) for line in (case.run / "rounds.jsonl").read_text().splitlines()]
    for name in ("messages", "bytes", "wire_bytes"):
        values, total = [record[name] for record in records], int(ledger[name].sum())
        if not summary[name] == total == values[-1] or values != sorted(values):
            yield f"{name}: {summary[name]} in the summary, {total} over all links, {values} in the records"
    if summary["descent"] == "violated":
        yield "descent: violated"
    if broken := describe_broken_bound(summary):
        yield broken
    yield from (
        f"{name} is {value}" for name, value in summary.items() if isinstance(value, float) and not np.isfinite(value)
    )


def check_folder(case: Case) -> Iterator[str]:
    """What was printed is what the folder says; a loaded result says the same, and a report can be written."""
    written = json.loads((case.run / "summary.json").read_text())
    if written != case.summary:
        yield f"summary.json differs: {[key for key in written if written[key] != case.summary.get(key)]}"
    result = p2pkm.load(case.run)
    if result.summary["centroids_sha256"] != case.summary["centroids_sha256"]:
        yield "loaded: other centroids"
    with np.load(case.run / "centroids.npz") as arrays:
        stored = arrays[arrays.files[0]]
    if stored.shape != result.centroids.shape or not np.array_equal(stored, result.centroids, equal_nan=True):
        yield "loaded: centroids are not those of the file"


def check_report(case: Case) -> Iterator[str]:
    """A report can be written."""
    ending, fault = _call("report", case.run, "--out", case.folder / "report.html")
    if fault or ending.code:
        yield f"report: code {ending.code} {fault or ending.err[-300:]}"


def check_plan(case: Case) -> Iterator[str]:
    """A plan that is exact is met, one that says at most is not exceeded; as long as nothing goes wrong."""
    config = Config.from_mapping(load_toml(str(case.run / "config.toml"), "config"), "config")
    if config.faults or config.deadline or config.stream or config.checkpoint_every is None:
        return
    config = replace(config, record_every=1)
    plan = build_plan(replace(config, out="none"), None)
    planned = stage_traffic(plan)
    real = prepare(replace(config, out="none"), None)
    trace: list[dict[str, Any]] = []
    play_rank(Rank(real, connect(), read(real.points)), Observers(on_record=trace.append))
    before, at = (0, 0), -1
    for record in trace:
        at += record["round"] == 0
        # Planned for the largest number of clusters, or left out by all devices.
        while at < len(planned) and planned[at].name != record["stage"]:
            if config.clusters != "auto" and not plan.stages[at].may_be_left_out:
                break
            at += 1
        now = record["messages"], record["bytes"]
        if at >= len(planned) or planned[at].name != record["stage"]:
            yield f"stage {record['stage']} is not the one planned: {[one.name for one in planned]}"
            return
        if planned[at].volume is not None:
            sent = now[0] - before[0], now[1] - before[1]
            yield from _exceeds(record, planned[at].volume(record["round"]), sent)
        before = now


def _exceeds(record: dict[str, Any], volume: Any, sent: tuple[int, int]) -> Iterator[str]:
    for name, most, certain, real in zip(("messages", "bytes"), volume[:2], volume[2:4], sent, strict=True):
        if (real != most) if certain else (real > most):
            word = "exactly" if certain else "at most"
            yield f"{record['stage']} round {record['round']}: {real} {name}, planned {word} {most}"


def check_kernels(case: Case) -> Iterator[str]:
    """The reference kernels give the same bits."""
    with patch.dict(os.environ, {"NUMBA_DISABLE_JIT": "1"}):
        ending, fault = _call(*case.words, "--out", "none", "--checkpoint-every", "0")
    yield from _compare(case, ending, fault)


def check_resume(case: Case) -> Iterator[str]:
    """A run that was killed at a drawn checkpoint ends with the same files."""
    if case.killed is None:
        return
    ending, fault = _call("resume", case.killed, "-q")
    if fault or ending.code not in {0, 5}:
        yield f"resume: code {ending.code} {fault or ending.err[-300:]}"
        return
    found = difference(case.run, case.killed)
    if found:
        yield f"resumed: {found}"


def check_verify(case: Case) -> Iterator[str]:
    """The run repeated as its folder says has the same bits."""
    ending, fault = _call("verify", case.run)
    if fault or ending.code:
        yield f"verify: code {ending.code} {fault or (ending.out + ending.err)[-300:]}"


def _compare(case: Case, ending: StageResult, fault: str) -> Iterator[str]:
    if fault or ending.code != case.ending.code:
        yield f"code {ending.code} instead of {case.ending.code}: {fault or ending.err[-300:]}"
        return
    other, one = ending.summary, case.summary
    keys = [key for key in one if key not in OWN and one[key] != other[key]]
    if keys:
        yield f"differs: { {key: (one[key], other[key]) for key in keys[:3]} }"


def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


Check = Callable[[Case], Iterator[str]]
CHECKS: dict[str, Check] = {
    "ending": check_ending, "ledger": check_ledger, "folder": check_folder, "report": check_report, "plan": check_plan,
    "kernels": check_kernels, "resume": check_resume, "verify": check_verify,
    **RELATIONS,
}  # fmt: skip
_ALWAYS = ("ending", "ledger", "folder")
_SELDOM = {"report": 0.02}  # a second each; the others are drawn with weight 1
_DRAWN = 2  # of the other checks, of an experiment
_WORD = re.compile(r"[a-z][a-z_-]*[a-z]")


def find_faults(experiment: Experiment, folder: Path, only: str | None = None) -> tuple[Case, list[tuple[str, str]]]:
    """Return the case, and the name of each check that fails with what it found.

    Parameters
    ----------
    only : str, optional
        This check alone; None: those that are always made, and two that are drawn.
    """
    names = (only,) if only else _choose(Random(experiment.seed))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    case = play(experiment, folder, kill="resume" in names)
    found = [("ending", text) for text in check_ending(case)] if "ending" in names else []
    if case.ending.code in {0, 5} and not case.fault:
        for name in names:
            if name != "ending":
                found += [(name, text) for text in _guarded(CHECKS[name], case)]
    return case, found


def _choose(rng: Random) -> tuple[str, ...]:
    """Return the checks that are always made, and some that are drawn; the dear ones seldom."""
    others = [name for name in CHECKS if name not in _ALWAYS and rng.random() < _SELDOM.get(name, 1.0)]
    return (*_ALWAYS, *rng.sample(others, _DRAWN))


def play_one(seed: int, place: Path) -> Iterator[tuple[Experiment, Case, list[tuple[str, str]]]]:
    """Yield the experiment of a seed with what was found, and, as long as it is refused, itself with an option less."""
    experiment, rng = draw(seed), Random(seed)
    while True:
        case, faults = find_faults(experiment, place / str(seed))
        yield experiment, case, faults
        spare = [name for name in experiment.options if name not in {"devices", "clusters", "rounds", "data"}]
        if case.ending.code not in {2, 3} or not spare:
            return
        named = [name for name in spare if {name, name.replace("-", "_")} & set(_WORD.findall(case.ending.err))]
        less = rng.choice(named or spare)  # what the refusal names is most often in the way
        experiment = experiment._replace(options={k: v for k, v in experiment.options.items() if k != less})


def _guarded(check: Check, case: Case) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield from check(case)
    except (P2PKMError, Exception):
        yield traceback.format_exc()[-1200:]
