"""Folders and patterns of data files, one file per device."""

import os
import re
from collections.abc import Iterable
from glob import glob
from pathlib import Path
from urllib.parse import unquote

from p2pkm.core.errors import DataError
from p2pkm.data.readers.columns import list_names

# Suffixes of text files, and of compressed ones after them.
TEXTS = (".csv", ".tsv", ".txt")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# Suffix of the file with the labels of a .npy file of points.
COMPANION = ".labels.npy"
# Largest number of names in a note.
_LISTED = 5


def format_of(path: str | Path) -> str:
    """Return the suffix that names the format of a file, such as .csv for ``sites.csv.gz``."""
    name = Path(path)
    packed = name.suffix.lower() in COMPRESSED and Path(name.stem).suffix.lower() in TEXTS
    return Path(name.stem).suffix.lower() if packed else name.suffix.lower()


def list_keys(place: str, path: Path) -> dict[str, str]:
    """List the names and values in folders such as ``site=A`` between a folder and a file in it."""
    folder = Path(os.path.expanduser(place))
    inner = path.relative_to(folder).parent.parts if os.path.isdir(folder) else ()
    return {name: unquote(value) for name, _, value in (part.partition("=") for part in inner)}


def expand_path(path: str, suffixes: Iterable[str]) -> list[str] | None:
    """Return the files of a folder or a pattern, in natural order; None if the path is that of a single file.

    Parameters
    ----------
    path : str
        Path of a file or folder, or a pattern with ``*``, ``?`` or ``[``.
    suffixes : iterable of str
        Suffixes of data files; other files in a folder are ignored.

    Raises
    ------
    DataError
        If no file is found, or the files have different suffixes.
    """
    place = os.path.expanduser(path)
    if os.path.isdir(place):
        known = tuple(suffixes)
        files = [str(Path(place, name)) for name in os.listdir(place) if not name.startswith(".")]
        files = _list_partitioned(place) or files
        files = _sort_naturally(name for name in files if format_of(name) in known and not os.path.isdir(name))
        # Notes next to tables in other formats.
        files = [name for name in files if format_of(name) != ".txt"] or files
        if not files:
            raise DataError(
                f"{path} is a folder without data files; expected one file per device, with one of the suffixes "
                f"{', '.join(known)}"
            )
    elif any(sign in path for sign in "*?[") and not os.path.isfile(place):
        files = match_pattern(path)
    else:
        return None
    kinds = sorted({format_of(name) for name in files})
    if len(kinds) > 1:
        raise DataError(
            f"{path} contains files of several kinds: {list_names(kinds)}; expected one kind. Use a pattern such as "
            f"'{place if os.path.isdir(place) else os.path.dirname(place) or '.'}/*{kinds[0]}'"
        )
    return files


def note_ignored(path: str, files: Iterable[str]) -> tuple[str, ...]:
    """Note what else is in a folder whose data files are read; hidden files are not named."""
    place = os.path.expanduser(path)
    if not os.path.isdir(place):
        return ()
    rest = [os.path.relpath(name, place) for name in _list_rest(place, set(files))]
    if not rest:
        return ()
    listed = ", ".join(rest[:_LISTED]) + (f" and {len(rest) - _LISTED} more" if len(rest) > _LISTED else "")
    return (f"not read in the folder {path}: {listed}",)


def _list_rest(folder: str, files: set[str]) -> list[str]:
    """List files and folders without any of the files read, at any depth, in order."""
    rest: list[str] = []
    for name in _sort_naturally(os.path.join(folder, name) for name in os.listdir(folder) if name[0] not in "._"):
        if os.path.isdir(name) and any(file.startswith(name + os.sep) for file in files):
            rest += _list_rest(name, files)
        elif name not in files:
            rest.append(name)
    return rest


def _list_partitioned(folder: str) -> list[str]:
    """List the files in subfolders such as ``site=A`` of a folder, at any depth."""
    files: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and "=" in entry.name[1:]:
                inner = [file.path for file in os.scandir(entry.path) if file.is_file() and file.name[0] not in "._"]
                files += inner + _list_partitioned(entry.path)
    return files


def match_pattern(pattern: str) -> list[str]:
    """Return the files that match a pattern in natural order (part-2 before part-10), without files of labels.

    Raises
    ------
    DataError
        If no file matches.
    """
    files = _sort_naturally(glob(os.path.expanduser(pattern)))
    if not files:
        raise DataError(
            f"no file matches {pattern} (searched in {Path.cwd()}). Check the pattern, and put it in quotes"
        )
    return files


def name_files(paths: list[str]) -> tuple[str, ...] | None:
    """Return names that distinguish files: stems or, if these repeat, relative paths; None if these are numbers."""
    import topologies

    paths = [
        path[: -len(Path(path).suffix)] if format_of(path) != Path(path).suffix.lower() else path for path in paths
    ]
    names = [Path(path).stem for path in paths]
    if len(set(names)) < len(names):
        top = os.path.commonpath([os.path.dirname(path) for path in paths])
        names = [str(Path(os.path.relpath(path, top or ".")).with_suffix("")) for path in paths]
    return tuple(names) if len(set(names)) == len(names) and topologies.are_names(names) else None


def _sort_naturally(paths: Iterable[str]) -> list[str]:
    points = (path for path in paths if not path.endswith(COMPANION))
    return sorted(points, key=lambda path: [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
                                            for part in re.split(r"(\d+)", path)])  # fmt: skip
