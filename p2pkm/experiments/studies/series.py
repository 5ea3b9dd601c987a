"""Runs on all ranks, one after the other: with several seeds, or along a path of couplings."""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from p2pkm.core.digest import digest
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.version import __version__
from p2pkm.engine.build_run import Run
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.run import OutputOptions, assemble, lock_default_folder, lock_output_folder
from p2pkm.experiments.studies.engine import Design, Outcome, writing
from p2pkm.experiments.studies.fingerprint import digest_program
from p2pkm.network.world import connect
from p2pkm.storage.checkpoint import identify as list_facts
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import lock_folder, move_to_backup
from p2pkm.storage.run_status import repeated_from
from p2pkm.storage.save import write_json
from p2pkm.storage.study_folder import write_table
from p2pkm.storage.study_mark import MARK, write_mark


class Series(Design):
    """Design whose runs take all ranks, one after the other.

    Attributes
    ----------
    option : str
        Option of the command line that starts such a series.

    Parameters
    ----------
    experiment : RunOptions
        Options of all runs.
    asked : mapping, optional
        Content of the file in the folder `experiment.out`, which is continued; None: a new series.
    """

    option: ClassVar[str]

    def __init__(self, experiment: RunOptions, asked: Mapping[str, Any] | None = None) -> None:
        self.experiment = experiment
        self._asked = asked
        self.lock: Lock | None = None
        self._aside: str | None = None

    def first(self) -> Run:
        """Assemble the first run."""
        return assemble(self.cells[0], connect())

    def folder_of_first(self, folder: Path) -> Path:
        """Return the folder whose manifest knows where the first run was started."""
        return folder

    def open(self, out: str | None, output: OutputOptions, stack: ExitStack, *, shared: bool) -> Path | None:
        """Lock the folder and write what was asked; earlier content of a new series is moved aside."""
        if self._asked is not None:
            return self._continue(Path(str(out)), stack, self._asked)
        lock = lock_output_folder(self.experiment, output, stack)
        first = self.first()
        lock = lock or lock_default_folder(first, stack)
        self.lock = lock
        if lock is None:
            return None
        lock.check()
        with writing(lock.folder):
            old = move_to_backup(lock.folder)
            self._aside = None if old is None else old.name
            # The number of devices may come from the number of MPI ranks, which may be another one on resumption.
            options = replace(self.experiment, devices=first.options.devices)
            content = self.to_mapping() | {"version": __version__, "key": identify(first), "aside": self._aside}
            write_mark(lock.folder, self.kind, content | {"options": options.to_mapping()})
        return lock.folder

    def _continue(self, folder: Path, stack: ExitStack, asked: Mapping[str, Any]) -> Path:
        """Lock the folder of a series, and check that program, points, graph and options are the same.

        Raises
        ------
        DataError
            If points, graph or options have changed, or another process uses the folder.
        ExperimentError
            If another version of the program started the runs.
        """
        if asked["version"] != __version__:
            raise ExperimentError(
                f"{folder} was started with p2pkm {asked['version']}; this is p2pkm {__version__}. Install "
                f"p2pkm=={asked['version']}, or start again with {self.option}"
            )
        try:
            self.lock = stack.enter_context(lock_folder(folder))
        except ExperimentError as error:
            raise DataError(str(error)) from None
        with repeated_from(self.folder_of_first(folder)):
            first = self.first()
        if asked.get("key") != identify(first):
            raise DataError(
                f"points, graph, options or program differ from those of the original runs in {folder}. Restore them, "
                f"or start again with {self.option}"
            )
        # Only names as given by `move_to_backup`: the folder is deleted at the end.
        aside = Path(str(asked.get("aside", ""))).name
        self._aside = aside if aside.startswith(f"{folder.resolve().name}.old-") else None
        return folder

    def write(self, outcome: Outcome) -> None:
        """Write table and summary, and remove what --force has replaced when all runs have ended."""
        folder = outcome.folder
        assert folder is not None and self.lock is not None
        self.lock.check()
        write_json(folder, "summary.json", outcome.said)
        if outcome.rows:
            write_table(folder, outcome.rows)
        self.write_more(outcome, folder)
        if self._aside is not None and self.has_ended(outcome):
            shutil.rmtree(folder.resolve().with_name(self._aside), ignore_errors=True)

    def write_more(self, outcome: Outcome, folder: Path) -> None:
        """Write further files; seeds have none."""
        return

    def has_ended(self, outcome: Outcome) -> bool:
        """Return whether no run is missing or interrupted."""
        return outcome.is_complete


def restore_experiment(folder: Path, asked: Mapping[str, Any], varied: Sequence[str]) -> RunOptions:
    """Return the options of all runs of a series in a folder.

    Raises
    ------
    DataError
        If the file in the folder lacks an entry.
    """
    mark = folder / MARK
    for name in (*varied, "options", "version"):
        if name not in asked:
            raise DataError(f"{mark} is damaged: {name!r} is missing. Start again in another folder")
    return RunOptions.from_mapping(asked["options"], str(mark))


def identify(run: Run) -> str | None:
    """Hash points, graph, options and program; None for points on disk, which no process reads completely."""
    if not run.points.in_memory:
        return None
    shards = run.points.part(0, run.points.n)
    arrays = (
        shards.points,
        shards.offsets,
        shards.labels,
        run.scores.centers,
        run.scores.groups,
        *(run.link_model or ()),
    )
    parts = [json.dumps(list_facts(run.options.identify(), run), sort_keys=True).encode(), digest_program()]
    parts.append(digest(*(array for array in arrays if array is not None)))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
