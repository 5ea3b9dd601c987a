"""What pictures are drawn of: a result, or the folder of one."""

import os
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from p2pkm.metrics.result import Result

    Run: TypeAlias = Result | str | os.PathLike[str]


def open_run(run: "Run") -> "Result":
    """Return the result, read from its run folder if that is given."""
    if not isinstance(run, str | os.PathLike):
        return run
    from p2pkm.storage.load import load

    return load(os.fspath(run))
