"""Settings of matplotlib while p2pkm draws, independent of the user's matplotlibrc and style sheets."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Type 42 embeds TrueType fonts; "none" keeps text in SVG files as text.
FONTS: Any = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
}
# Settings of the current style, see `p2pkm.style`.
STYLE: dict[str, Any] = {}
# Settings of the user that are not replaced: programs, windows, the LaTeX of pgf files, and the hash salt of a file.
_USERS = ("animation.", "backend", "interactive", "macosx.", "pgf.", "svg.hashsalt", "tk.", "toolbar", "webagg.")


def use_own_settings() -> Any:
    """Return a context with matplotlib's defaults, plain text, and the text size of the current style.

    Text is not parsed as mathematics, because device names may contain dollar signs, such as ``$1`` or ``a_$b$``.
    """
    from matplotlib import rc_context

    return rc_context(_read_defaults() | FONTS | STYLE)


@cache
def _read_defaults() -> dict[str, Any]:
    from matplotlib import rcParamsDefault

    defaults: Any = rcParamsDefault
    plain = {"text.usetex": False, "text.parse_math": False}
    return {name: value for name, value in defaults.items() if not name.startswith(_USERS)} | plain


def with_own_settings(draw: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a drawing function: use p2pkm's settings unless the caller passes axes of another figure."""

    @wraps(draw)
    def drawn(*arguments: _P.args, **options: _P.kwargs) -> _T:
        from matplotlib.axes import Axes

        foreign = any(isinstance(value, Axes) for value in (*arguments, *options.values()))
        with nullcontext() if foreign else use_own_settings():
            return draw(*arguments, **options)

    return drawn
