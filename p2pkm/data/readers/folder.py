"""Several files of points, one per device: all in a folder, or all that are like a pattern."""

import os
import re
from collections.abc import Iterable
from glob import glob
from pathlib import Path

from p2pkm.core.errors import DataError
from p2pkm.data.readers.columns import listed

COMPANION = ".labels.npy"  # how a file of labels beside points ends


def several(path: str, suffixes: Iterable[str]) -> list[str] | None:
    """Return the files that a folder or a pattern stands for, None if the path is that of one file.

    Parameters
    ----------
    path : str
    suffixes : iterable of str
        Of files of points; what else lies in a folder is left alone.

    Raises
    ------
    DataError
        If there is none, or they are of several kinds.
    """
    place = os.path.expanduser(path)
    if os.path.isdir(place):
        known = tuple(suffixes)
        found = [str(Path(place, name)) for name in os.listdir(place) if not name.startswith(".")]
        found = _in_order(one for one in found if Path(one).suffix.lower() in known and not os.path.isdir(one))
        if not found:
            raise DataError(
                f"{path} is a folder without a file of points; expected one per device, each with one of the suffixes "
                f"{', '.join(known)}"
            )
    elif any(sign in path for sign in "*?[") and not os.path.isfile(place):
        found = find(path)
    else:
        return None
    kinds = sorted({Path(one).suffix.lower() for one in found})
    if len(kinds) > 1:
        raise DataError(
            f"{path} stands for files of several kinds: {listed(kinds)}; expected one kind: give a pattern such as "
            f"'{place if os.path.isdir(place) else os.path.dirname(place) or '.'}/*{kinds[0]}'"
        )
    return found


def find(pattern: str) -> list[str]:
    """Return the files that a pattern names, sorted as people count: part-2 before part-10; companions are left out.

    Raises
    ------
    DataError
        If there is none.
    """
    found = _in_order(glob(os.path.expanduser(pattern)))
    if not found:
        raise DataError(f"no file is like {pattern} (looked in {Path.cwd()}); check the pattern, and quote it")
    return found


def name_files(paths: list[str]) -> tuple[str, ...] | None:
    """Return what distinguishes files: their names without suffix, or else their places; None if these are numbers."""
    import topologies

    names = [Path(path).stem for path in paths]
    if len(set(names)) < len(names):
        top = os.path.commonpath([os.path.dirname(path) for path in paths])
        names = [str(Path(os.path.relpath(path, top or ".")).with_suffix("")) for path in paths]
    return tuple(names) if len(set(names)) == len(names) and topologies.are_names(names) else None


def _in_order(paths: Iterable[str]) -> list[str]:
    points = (path for path in paths if not path.endswith(COMPANION))
    return sorted(points, key=lambda path: [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
                                            for part in re.split(r"(\d+)", path)])  # fmt: skip
