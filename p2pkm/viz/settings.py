"""Settings of matplotlib while p2pkm draws: its own, whatever the user's matplotlibrc or style sheet says."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

FONTS: Any = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
}  # TrueType in the file; SVG text stays text
STYLE: dict[str, Any] = {}  # settings of the current style, see `p2pkm.style`
# Settings that stay the user's: programs, windows, the LaTeX of pgf files, and what the caller has set for a file.
_USERS = ("animation.", "backend", "interactive", "macosx.", "pgf.", "svg.hashsalt", "tk.", "toolbar", "webagg.")


def use_own_settings() -> Any:
    """Return a context in which matplotlib has its own defaults, plain text, and the text size of the current style.

    Text is not read as mathematics: a device may be called ``$1`` or ``a_$b$``.
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
    """Decorate what draws a figure: it has p2pkm's settings unless it is given axes, whose figure is the caller's."""

    @wraps(draw)
    def drawn(*given: _P.args, **options: _P.kwargs) -> _T:
        from matplotlib.axes import Axes

        foreign = any(isinstance(one, Axes) for one in (*given, *options.values()))
        with nullcontext() if foreign else use_own_settings():
            return draw(*given, **options)

    return drawn
