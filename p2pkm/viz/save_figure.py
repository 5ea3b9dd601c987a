"""Figures as files: in every kind that is asked for, with what they draw as a table beside them."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pkm.core.errors import ExperimentError
from p2pkm.core.validation import as_list
from p2pkm.storage.save import staging_folder
from p2pkm.viz.figure_data import write_table
from p2pkm.viz.settings import use_own_settings
from p2pkm.viz.style import DPI

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("png", "svg", "pdf", "pgf")
USUAL = ("png", "svg")
_DATES = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # left out


def read_kinds(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of files in a list such as ``png,pdf``, or in a sequence of words.

    Raises
    ------
    ExperimentError
        If one is not known, or needs a TeX that is not installed.
    """
    given = given if isinstance(given, str) else ",".join(map(str, as_list(given, "kinds")))
    kinds = tuple(dict.fromkeys(part.strip().lower().removeprefix(".") for part in given.split(",")))
    wrong = [kind for kind in kinds if kind not in KINDS]
    if wrong:
        raise ExperimentError(f"figures is {given!r}; expected a list of {', '.join(KINDS)}, such as png,pdf")
    if "pgf" in kinds:
        _require_tex(given)
    return kinds


def _require_tex(given: str) -> None:
    from matplotlib import rcParams

    program = str(rcParams["pgf.texsystem"])
    if shutil.which(program) is None:
        raise ExperimentError(
            f"figures is {given!r}, but pgf needs TeX, and there is no {program} on the PATH; install TeX Live, or "
            "take pdf, which LaTeX includes as well"
        )


def save_figure(
    draw: "Callable[[], Axes | Figure]", folder: Path, name: str, kinds: Sequence[str] = USUAL
) -> list[Path]:
    """Write the figure that is drawn, and what it draws as ``NAME.data.csv``; the same figure gives the same bytes.

    The folder is made if it does not exist; a file appears under its name only when it is complete.

    Returns
    -------
    list of pathlib.Path
        A file of every kind, then the table.
    """
    from matplotlib import rc_context

    paths = [*(folder / f"{name}.{kind}" for kind in kinds), folder / f"{name}.data.csv"]
    with use_own_settings(), rc_context({"svg.hashsalt": "p2pkm"}):
        figure: Any = draw().figure
        with staging_folder(folder) as place:
            _write(figure, place, paths, kinds)
    return paths


def _write(figure: Any, place: Path, paths: Sequence[Path], kinds: Sequence[str]) -> None:
    """Write a figure in every kind, then its table."""
    for path, kind in zip(paths, kinds, strict=False):
        figure.savefig(place / path.name, format=kind, dpi=DPI, metadata=_DATES.get(kind))
    (place / paths[-1].name).write_text(write_table(figure), "utf-8")
