"""Commands that run the study of a file: a parameter study or a comparison, new or continued."""

from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.compare import Comparison
from p2pkm.experiments.studies.engine import IN_THIS_PROCESS, Design, Execution, conduct_command
from p2pkm.experiments.studies.study_file import StudyFile
from p2pkm.experiments.studies.sweep import Sweep
from p2pkm.storage.study_mark import COMPARISON


def run_study_command(
    study: StudyFile,
    where: str,
    out: str | None,
    output: OutputOptions,
    execution: Execution = IN_THIS_PROCESS,
    *,
    plot: bool | None = None,
) -> int:
    """Run a study file, write its folder, print its table, and return the exit code.

    Parameters
    ----------
    study : StudyFile
    where : str
        Source of the study in messages.
    out : str or None
        Folder; None: that of the study file, or a new one below ``runs``.
    output : OutputOptions
    execution : Execution
    plot : bool or None
        Draw figures; None: as set in the study file, by default True.

    Raises
    ------
    P2PKMError
        If an entry of the file cannot be used; nothing has been computed then.
    """
    out = out or study.base.get("out")
    plot = study.base.get("plot", not output.json) if plot is None else plot
    study = study._replace(base=study.base | {"plot": plot})

    def read() -> Design:
        design = make_design(study, where, out)
        if execution.part is not None:
            design.take_share(execution.part, out)
        return design

    return conduct_command(read, out, output, execution)


def make_design(study: StudyFile, where: str, out: str | None) -> Sweep:
    """Return the design of a study file, which may be a comparison; see `Sweep`."""
    return Comparison(study, where, out) if study.kind == COMPARISON else Sweep(study, where, out)
