"""Warnings that cross-validation does not repeat in each fold."""

import sys
import warnings
from types import FrameType

_FOLD = ("sklearn.model_selection._validation", "_fit_and_score")  # module and function that fits one fold
_shown = set[str]()  # kinds of warnings that a fold of this process has shown


def warn(text: str, category: type[Warning], kind: str) -> None:
    """Issue a warning for the caller of p2pkm; in folds of cross-validation once per kind and process.

    scikit-learn resets the filters of warnings in each fold, so that Python would repeat it. The final fit of a search
    is not a fold.
    """
    frame, level = sys._getframe(1), 2
    wrappers = ("p2pkm.", "sklearn.utils.")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(wrappers):
        frame, level = frame.f_back, level + 1
    caller: FrameType | None = frame
    in_fold = False
    while caller is not None and not in_fold:
        in_fold = (caller.f_globals.get("__name__"), caller.f_code.co_name) == _FOLD
        caller = caller.f_back
    if in_fold and kind in _shown:
        return
    _shown.update({kind} if in_fold else ())
    warnings.warn(text, category, stacklevel=level)
