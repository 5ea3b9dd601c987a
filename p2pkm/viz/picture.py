"""Figure class of p2pkm: a matplotlib figure outside pyplot's state, with a display method for notebooks."""

from io import BytesIO
from typing import Any

from matplotlib.figure import Figure

from p2pkm.viz.settings import use_own_settings

_SHOWN = 90  # dots per inch in a notebook


class Picture(Figure):
    """A matplotlib figure whose files embed their fonts; a notebook displays it as the result of a cell.

    Attributes
    ----------
    figure_style : FigureStyle or None
        Style that the finished figure is fitted to, see `p2pkm.style`; None: it is not changed.
    grows : bool
        Whether the finished figure may be enlarged to contain labels and legends next to its axes.
    """

    figure_style: Any = None
    grows: bool = False

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the figure, as `matplotlib.figure.Figure.savefig` does."""
        with use_own_settings():
            super().savefig(fname, **options)

    def draw(self, renderer: Any) -> None:
        """Draw the figure, as `matplotlib.figure.Figure.draw` does; ticks are created with p2pkm's settings."""
        with use_own_settings():
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png", dpi=_SHOWN)
        return file.getvalue()
