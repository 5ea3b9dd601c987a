"""The figures that p2pkm draws: matplotlib's, which no pyplot state knows and a notebook shows by itself."""

from io import BytesIO
from typing import Any

from matplotlib.figure import Figure

from p2pkm.viz.settings import use_own_settings

_SHOWN = 90  # dots per inch in a notebook


class Picture(Figure):
    """A matplotlib figure whose files hold their fonts; the last expression of a notebook's cell shows it.

    Attributes
    ----------
    look : Look or None
        What it is to be made into when it is complete, see `p2pkm.style`; None: it stays as it is.
    grows : bool
        Whether it may become larger when it is complete, to hold what stands beside its axes.
    """

    look: Any = None
    grows: bool = False

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the figure, as `matplotlib.figure.Figure.savefig` does."""
        with use_own_settings():
            super().savefig(fname, **options)

    def draw(self, renderer: Any) -> None:
        """Draw the figure, as `matplotlib.figure.Figure.draw` does: ticks are made then."""
        with use_own_settings():
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png", dpi=_SHOWN)
        return file.getvalue()
