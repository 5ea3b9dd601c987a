"""Figures as SVG elements inside an HTML page."""

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 110  # resolution of rasterized parts
_LONG = re.compile(r"(\d+\.\d\d)\d+")
_FONT = re.compile(r"(font(?:-family)?: [^;\"]*?)'DejaVu Sans'[^;\"]*")
_NAME = re.compile(r'\bid="([^"]*)"')
_REFERENCE = re.compile(r'(?:url\(|href=")#([^")]*)')
# Sufficient because matplotlib writes > in attributes as &gt;.
_TAG = re.compile(r"<[^>]*>")
_PLACES = re.compile(r'\b(?:d|points|x[12]?|y[12]?|width|height)="[^"]*"|(?:translate|rotate)\([^)]*\)')


def draw_inline(draw: "Callable[[], Axes | Figure]", name: str, look: str | None = None) -> str:
    """Draw a figure as an ``<svg>`` element without background, in the fonts of the page.

    Parameters
    ----------
    draw : callable
        Returns the figure or its axes.
    name : str
        Prefix of all ids, because ids must be unique within a page.
    look : str, optional
        Figure style, see `p2pkm.style`.
    """
    from matplotlib import rc_context

    from p2pkm.viz.looks import style
    from p2pkm.viz.settings import use_own_settings

    target = io.StringIO()
    with style(look), use_own_settings(), rc_context({"svg.hashsalt": name}):
        figure: Any = draw().figure
        figure.savefig(target, format="svg", dpi=_DPI, metadata={"Date": None})
    text = target.getvalue()
    return _shrink(text[text.index("<svg") :], name)


def _shrink(text: str, name: str) -> str:
    """Remove decimals beyond the second, metadata and unreferenced ids; the text of the figure is not changed."""
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    referenced = set(_REFERENCE.findall("".join(_TAG.findall(text))))
    return _TAG.sub(lambda tag: _shrink_tag(tag[0], name, referenced), text)


def _shrink_tag(tag: str, name: str, referenced: set[str]) -> str:
    # Transparent background, so that the page's color scheme shows.
    tag = tag.replace('style="fill: #ffffff"', 'style="fill: none"')
    tag = _NAME.sub(lambda match: f'id="{name}-{match[1]}"' if match[1] in referenced else "", tag)
    tag = re.sub(r'(url\(|href=")#', rf"\1#{name}-", tag)
    tag = _PLACES.sub(lambda match: _LONG.sub(r"\1", match[0]), tag)
    return _FONT.sub(r"\1system-ui, sans-serif", tag)
