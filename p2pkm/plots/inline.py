"""A figure as SVG that can stand inside a page, beside others."""

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DPI = 110  # of what is a picture inside the figure
_LONG = re.compile(r"(\d+\.\d\d)\d+")
_FONT = re.compile(r"font: ([^;\"]*?)'DejaVu Sans'[^;\"]*")
_NAME = re.compile(r'\bid="([^"]*)"')


def draw_inline(draw: "Callable[[], Axes]", name: str) -> str:
    """Return a figure as an ``<svg>`` element without a background, in the fonts of the page.

    Parameters
    ----------
    draw : callable
    name : str
        Put before every id that the figure refers to, as a page must not hold an id twice.
    """
    from matplotlib import rc_context

    target = io.StringIO()
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure: Any = draw().figure
        figure.savefig(target, format="svg", dpi=_DPI, metadata={"Date": None})
    text = target.getvalue()
    return _shrink(text[text.index("<svg") :], name)


def _shrink(text: str, name: str) -> str:
    """Drop what a picture in a page does not need: most decimals, metadata, ids that nothing refers to."""
    text = text.replace('style="fill: #ffffff"', 'style="fill: none"')  # the background
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, count=1, flags=re.DOTALL)
    asked = set(re.findall(r'(?:url\(|href=")#([^")]*)', text))
    text = _NAME.sub(lambda found: f'id="{name}-{found[1]}"' if found[1] in asked else "", text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    head, *rest = re.split(r'(href="data:[^"]*")', text)  # pictures stay as they are
    parts = [part if part.startswith('href="data:') else _LONG.sub(r"\1", part) for part in [head, *rest]]
    return _FONT.sub(r"font: \1system-ui, sans-serif", "".join(parts))
