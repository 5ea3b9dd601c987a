"""The figures that p2pkm draws: matplotlib's, which no pyplot state knows and a notebook shows by itself."""

from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

FONTS: Any = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
}  # TrueType in the file; SVG text stays text
_SHOWN = 90  # dots per inch in a notebook


class Picture(Figure):
    """A matplotlib figure whose files hold their fonts; the last expression of a notebook's cell shows it.

    Attributes
    ----------
    look : Look or None
        What it is to be made into when it is complete, see `p2pkm.style`; None: it stays as it is.
    """

    look: Any = None

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the figure, as `matplotlib.figure.Figure.savefig` does."""
        with rc_context(FONTS):
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png", dpi=_SHOWN)
        return file.getvalue()
