"""Trial runs, and what the checks of methods, transforms and metrics share."""

import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import suggest
from p2pkm.data.shards import Shards
from p2pkm.engine.build_run import Rank, Run
from p2pkm.engine.run_job import Observers, play, report
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.metrics.monitor import Record
from p2pkm.network.graph import Topology
from p2pkm.network.rank_partition import RankPartition
from p2pkm.testing.recording import PlayedRun, RecordingWorld

CLUSTERS, FEATURES = 3, 2  # of the points of trial runs
# Points of each device. 64 in total, a power of 2, so that the mean of grid points is exact; device 2 is empty.
SIZES = (8, 7, 0, 9, 8, 1, 8, 23)
CHANGED = 0  # device whose points differ in the second run


class CheckError(AssertionError):
    """Failure of a method, transform or metric in one or more checks.

    Attributes
    ----------
    failed : dict of str to str
        Violation found by each failed check, by the name of the check.
    """

    def __init__(self, checked: str, failed: Mapping[str, str]) -> None:
        super().__init__("\n".join(f"{checked} fails the check {name!r}: {text}" for name, text in failed.items()))
        self.failed = dict(failed)


class CrashError(Exception):
    """Exception during a trial run."""


def run_checks(
    checked: str,
    checks: Mapping[str, Callable[[Any], str]],
    names: tuple[str, ...],
    trial: Any,
    first: Collection[str],
    last: Collection[str] = (),
) -> tuple[str, ...]:
    """Run checks and return their names.

    Parameters
    ----------
    checked : str
        Name of the method, transform or metric.
    checks : mapping of str to callable
        Functions of the trial that return a violation, "" if there is none.
    names : tuple of str
        Checks to run.
    first : collection of str
        If one of these fails, later checks are not meaningful.
    last : collection of str
        Run only if no check before failed.

    Raises
    ------
    CheckError
        If a check fails.
    """
    failed: dict[str, str] = {}
    for name in names:
        if failed and name in last:
            break
        try:
            violation = checks[name](trial)
        except CrashError as error:
            violation = str(error)
        if violation:
            failed[name] = violation
            if name in first:
                break
    if failed:
        raise CheckError(checked, failed)
    return names


def choose_checks(checks: Iterable[str], only: str | Collection[str], skip: str | Collection[str]) -> tuple[str, ...]:
    """Return the names of the checks to run, in their order.

    Raises
    ------
    ExperimentError
        If a name does not exist.
    """
    names = tuple(checks)
    included, excluded = ({given} if isinstance(given, str) else set(given) for given in (only, skip))
    for name in (*included, *excluded):
        if name not in names:
            raise ExperimentError(f"check {name!r} does not exist. {suggest(str(name), names)}")
    return tuple(name for name in names if name not in excluded and (not included or name in included))


def play_run(
    config: Run,
    shards: Shards,
    start: Floats | None,
    *,
    what: str = "the run",
    advice: str,
    read_only: str,
    refusals: tuple[type[Exception], ...] = (),
    checkpoints: "CheckpointsInMemory | None" = None,
    saved: Any = None,
    overwrite_unsent: bool = False,
) -> PlayedRun:
    """Play a run in one process and record its messages.

    Parameters
    ----------
    config : Run
    shards : Shards
    start : float64[n, k, d] or None
    what : str
        Name of the run in messages.
    advice, read_only : str
        Ends of the message about an exception, in general and about arrays that are read-only.
    refusals : tuple of type
        Exceptions that are not failures.
    checkpoints : CheckpointsInMemory, optional
        Receives a checkpoint after every round.
    saved : optional
        Checkpoint from which the run continues.
    overwrite_unsent : bool
        Overwrite rows of message tables that are not sent.

    Raises
    ------
    CrashError
        If the run ends with an exception.
    """
    world, records = RecordingWorld(overwrite_unsent=overwrite_unsent), list[Record]()
    division = RankPartition("blocks", np.array([0, config.topology.n]))
    try:
        with warnings.catch_warnings():
            # Of divisions by zero and the like, whose results the check "finite" reports.
            warnings.simplefilter("ignore", RuntimeWarning)
            rank = Rank(config, world, shards, start, division, saved)
            result = report(play(rank, Observers(on_record=records.append, checkpoints=checkpoints)))
    except refusals:
        raise
    except Exception as error:
        ending = read_only if "read-only" in str(error) else advice
        raise CrashError(
            f"{what} failed with {type(error).__name__}: {error}; expected {config.rounds} rounds without an "
            f"exception, also for devices without points. {ending}"
        ) from error
    return PlayedRun(result, world.exchanges, records)


def place_points(topology: Topology, *, changed: bool = False) -> Shards:
    """Generate the points of the trial runs for a graph, with an empty device for a server."""
    shards = trial_points(changed=changed)
    return shards if topology.hub < 0 else shards.with_hub()


class CheckpointsInMemory:
    """Checkpoints after every round, kept in memory; implements `p2pkm.engine.checkpointing.CheckpointSink`."""

    is_enabled = True

    def __init__(self) -> None:
        self.saved: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.reason = ""  # why no checkpoint can be written

    def is_due(self, t: int) -> bool:
        """Return True: every round is saved."""
        return True

    def start_timer(self) -> None:
        """Do nothing: saving takes no time."""

    def report_unavailable(self, reason: str) -> None:
        """Store why no checkpoint can be written."""
        self.reason = reason

    def put(self, outline: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Store a copy of a checkpoint, with the outline as it would be read from a file."""
        copies = {name: np.array(array) for name, array in arrays.items()}
        self.saved.append((json.loads(json.dumps(outline)), copies))


def trial_points(*, changed: bool = False) -> Shards:
    """Generate the points of the trial runs, on a grid of 1/16.

    If `changed`, the points of one device are reflected about their mean. This changes neither their mean nor the total
    variance, which all devices know from the start. Sums of grid points are exact, so both are bit-identical.
    """
    rng = np.random.default_rng(0)
    corners = 6.0 * rng.normal(size=(CLUSTERS, FEATURES))
    points = [
        np.round(16.0 * (corners[rng.integers(CLUSTERS, size=m)] + rng.normal(size=(m, FEATURES)))) / 16.0
        for m in SIZES
    ]
    if changed:
        mean = points[CHANGED].mean(axis=0)
        points[CHANGED] = mean + (points[CHANGED] - mean)[:, ::-1] * (-1.0, 1.0)
    return Shards.from_list(points)


def trial_start(method: Any, topology: Topology) -> Floats | None:
    """Generate common initial centroids of all devices; None if the method does not accept initial centroids."""
    traits = method.traits
    if needs_hub(method) or traits.init is None or traits.needs_agreed_start or traits.groups:
        return None
    centroids: Floats = 6.0 * np.random.default_rng(1).normal(size=(1, method.k, FEATURES))
    return centroids.repeat(topology.n, axis=0)
