"""Extension of the study in a folder by seeds and values; its runs that have ended are not repeated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.spec import suggest
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.engine import Execution
from p2pkm.experiments.studies.seeds import parse_seeds
from p2pkm.experiments.studies.study_command import run_study_command
from p2pkm.experiments.studies.study_file import StudyFile, restore_study
from p2pkm.storage.lock import describe_lock_holder
from p2pkm.storage.study_mark import COMPARISON, MARK, SWEEP, read_mark
from p2pkm.storage.toml import parse_value


def extend_study(
    folder: Path, seeds: str | None, values: Sequence[str], output: OutputOptions, execution: Execution
) -> int:
    """Add seeds and values to the study in a folder, run what is missing, and return the exit code.

    Parameters
    ----------
    folder : Path
    seeds : str or None
        Further seeds, such as 5-9.
    values : sequence of str
        Further values, ``OPTION=VALUE``, of options that are varied already.
    output : OutputOptions
    execution : Execution

    Raises
    ------
    P2PKMError
        If the folder holds no study or is in use, or a value cannot be added; nothing has been changed then.
    """
    asked = read_mark(folder)
    if asked.get("kind") not in (SWEEP, COMPARISON):
        raise DataError(f"{folder} is not the folder of a study; expected one written by p2pkm study or p2pkm compare")
    if seeds is None and not values:
        raise ExperimentError("study extend requires what is added: --seeds 5-9, or --add graph=torus")
    if process := describe_lock_holder(folder):
        raise DataError(f"{folder} is in use by {process}. Wait until it ends, or stop it first")
    where = str(folder / MARK)
    study = restore_study(asked, where)
    study = study._replace(
        seeds=list(dict.fromkeys([*study.seeds, *(parse_seeds(seeds) if seeds else [])])),
        grid=_add_values(study, values),
    )
    return run_study_command(study, where, str(folder), output, execution)


def _add_values(study: StudyFile, values: Sequence[str]) -> dict[str, list[Any]]:
    """Return the lists of the grid with further values.

    Raises
    ------
    ExperimentError
        If an option has no list, or a text is not ``OPTION=VALUE``.
    """
    grid = {name: list(known) for name, known in study.grid.items()}
    for text in values:
        option, equals, value = text.partition("=")
        name = option.strip().replace("-", "_")
        if not equals or not value:
            raise ExperimentError(f"--add is {text!r}; expected OPTION=VALUE, such as graph=torus")
        if name not in grid:
            raise ExperimentError(
                f"--add is {text!r}; expected an option that is varied in [grid]. {suggest(name, grid)}"
            )
        added = parse_value(value)
        if added not in grid[name]:
            grid[name].append(added)
    return grid
