"""A figure as SVG that can stand inside a page, beside others."""

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 110  # of what is a picture inside the figure
_LONG = re.compile(r"(\d+\.\d\d)\d+")
_FONT = re.compile(r"(font(?:-family)?: [^;\"]*?)'DejaVu Sans'[^;\"]*")
_NAME = re.compile(r'\bid="([^"]*)"')
_ASKED = re.compile(r'(?:url\(|href=")#([^")]*)')
_TAG = re.compile(r"<[^>]*>")  # matplotlib writes > in attributes as &gt;
_PLACES = re.compile(r'\b(?:d|points|x[12]?|y[12]?|width|height)="[^"]*"|(?:translate|rotate)\([^)]*\)')


def draw_inline(draw: "Callable[[], Axes | Figure]", name: str) -> str:
    """Return a figure as an ``<svg>`` element without a background, in the fonts of the page.

    Parameters
    ----------
    draw : callable
    name : str
        Put before every id that the figure refers to, as a page must not hold an id twice.
    """
    from matplotlib import rc_context

    from p2pkm.viz.looks import style
    from p2pkm.viz.settings import use_own_settings

    target = io.StringIO()
    with style(None), use_own_settings(), rc_context({"svg.hashsalt": name}):
        figure: Any = draw().figure
        figure.savefig(target, format="svg", dpi=_DPI, metadata={"Date": None})
    text = target.getvalue()
    return _shrink(text[text.index("<svg") :], name)


def _shrink(text: str, name: str) -> str:
    """Drop what a picture in a page does not need: most decimals of places, metadata, ids that nothing refers to.

    What is written in the picture stays as it is.
    """
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    asked = set(_ASKED.findall("".join(_TAG.findall(text))))
    return _TAG.sub(lambda tag: _shrink_tag(tag[0], name, asked), text)


def _shrink_tag(tag: str, name: str, asked: set[str]) -> str:
    tag = tag.replace('style="fill: #ffffff"', 'style="fill: none"')  # the background
    tag = _NAME.sub(lambda found: f'id="{name}-{found[1]}"' if found[1] in asked else "", tag)
    tag = re.sub(r'(url\(|href=")#', rf"\1#{name}-", tag)
    tag = _PLACES.sub(lambda found: _LONG.sub(r"\1", found[0]), tag)
    return _FONT.sub(r"\1system-ui, sans-serif", tag)
