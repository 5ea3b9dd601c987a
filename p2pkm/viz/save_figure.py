"""Figures as files of several formats, each with a table of its data."""

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
# Metadata that would make two files of one figure differ.
_DATES = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def read_kinds(text: str | Sequence[str]) -> tuple[str, ...]:
    """Parse file formats from a list such as ``png,pdf`` or a sequence of words.

    Raises
    ------
    ExperimentError
        If a format is unknown, or requires TeX, which is not installed.
    """
    text = text if isinstance(text, str) else ",".join(map(str, as_list(text, "kinds")))
    kinds = tuple(dict.fromkeys(part.strip().lower().removeprefix(".") for part in text.split(",")))
    if any(kind not in KINDS for kind in kinds):
        raise ExperimentError(f"figures is {text!r}; expected a list of {', '.join(KINDS)}, such as png,pdf")
    if "pgf" in kinds:
        _require_tex(text)
    return kinds


def _require_tex(text: str) -> None:
    """Check that the TeX program of matplotlib's pgf backend is installed."""
    from matplotlib import rcParams

    program = str(rcParams["pgf.texsystem"])
    if shutil.which(program) is None:
        raise ExperimentError(
            f"figures is {text!r}; pgf requires {program}, which is not on the PATH. Install TeX Live, or use pdf, "
            "which LaTeX can include"
        )


def save_figure(
    draw: "Callable[[], Axes | Figure]", folder: Path, name: str, kinds: Sequence[str] = USUAL
) -> list[Path]:
    """Write the figure that `draw` returns, and its data as ``NAME.data.csv``; equal figures give equal bytes.

    The folder is created if it does not exist. A file appears under its name only when it is complete.

    Returns
    -------
    list of pathlib.Path
        One file per kind, then the table.
    """
    from matplotlib import rc_context

    paths = [*(folder / f"{name}.{kind}" for kind in kinds), folder / f"{name}.data.csv"]
    with use_own_settings(), rc_context({"svg.hashsalt": "p2pkm"}):
        figure: Any = draw().figure
        with staging_folder(folder) as place:
            _write(figure, place, paths, kinds)
    return paths


def _write(figure: Any, place: Path, paths: Sequence[Path], kinds: Sequence[str]) -> None:
    """Write a figure in each format, then its table."""
    for path, kind in zip(paths, kinds, strict=False):
        figure.savefig(place / path.name, format=kind, dpi=DPI, metadata=_DATES.get(kind))
    (place / paths[-1].name).write_text(write_table(figure), "utf-8")
