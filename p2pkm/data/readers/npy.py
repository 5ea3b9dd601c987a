"""NumPy files that may come from anywhere: no pickles, and nothing that claims or unpacks to more than it should."""

import math
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError

LARGEST = 16 * 2**30  # bytes that a file may unpack to
LABELS = ("y", "labels", "label")  # arrays of an archive
_USUAL, _DENSEST = 2**28, 200  # above so many bytes a file that unpacks to more than so many times its size is a bomb
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def load_array(path: Path) -> NDArray[Any]:
    """Read a .npy file.

    Raises
    ------
    DataError
        If it is no such file, holds objects, or not as many bytes as its header says.
    """
    try:
        with path.open("rb") as file, warnings.catch_warnings(action="ignore"):
            if file.peek(2)[:2] == b"PK":
                raise DataError(f"{path} is an archive of several arrays; expected one, or give it the suffix .npz")
            return _read(file, path.stat().st_size)
    except (OSError, MemoryError, DataError):
        raise
    except Exception as error:  # a broken header raises nearly anything, even SyntaxError
        raise DataError(f"{path} cannot be read as NumPy arrays without pickles: {error}") from None


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a .npz file by name; what is no array is left out.

    Raises
    ------
    DataError
        If it is no such file, is damaged, holds objects, or unpacks to too much.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            refuse_bomb(path, sum(entry.file_size for entry in archive.infolist()))
            return {entry.filename[: -len(".npy")]: _unpack(archive, entry)
                    for entry in archive.infolist() if entry.filename.endswith(".npy")}  # fmt: skip
    except (OSError, MemoryError, DataError):
        raise
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is no .npz archive, or a damaged one ({error}); write it with numpy.savez") from None
    except Exception as error:  # a broken archive raises nearly anything, even SyntaxError
        raise DataError(
            f"{path} cannot be read as NumPy arrays without pickles: {error} (images of different sizes are objects: "
            "bring them to one size)"
        ) from None


def find_points(shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return the array of an archive that holds the points, None if it cannot be told.

    It has a usual name, or is the only one of two dimensions or, if there is none of two, of three or four (images). A
    column of labels is none.
    """
    for name in ("X", "points", "images"):
        if name in shapes:
            return name
    rows = {name: len(shape) for name, shape in shapes.items() if name not in LABELS}
    for least, most in ((2, 2), (3, 4)):
        found = [name for name, dimensions in rows.items() if least <= dimensions <= most]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def find_image(shape: tuple[int, ...], d: int) -> tuple[int, ...] | None:
    """Return the shape of the images in an array of points, None if its d features are none."""
    return shape[1:] if len(shape) > 2 and math.prod(shape[1:]) == d else None


def refuse_bomb(path: Path, size: float, most: float = LARGEST) -> None:
    """Refuse a file that unpacks to more than memory should hold, or to far more than it can be worth."""
    packed = path.stat().st_size
    if size > most or size > max(_USUAL, _DENSEST * packed):
        limit = most if size > most else f"{_DENSEST} times its own {packed}"
        raise DataError(
            f"{path} unpacks to {size} bytes, expected at most {limit}; take fewer points, or do not pack it"
        )


def refuse_endless(path: Path, what: str) -> None:
    """Refuse what is there but is no regular file: a pipe or a device may never end."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is no regular file, so its length is unknown; expected {what}")


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as member, warnings.catch_warnings(action="ignore"):
        try:
            return _read(member, entry.file_size)
        except (ValueError, EOFError) as error:
            raise ValueError(f"array {entry.filename[: -len('.npy')]!r}: {error}") from None


def _read(file: IO[bytes], size: int) -> NDArray[Any]:
    """Read one array from a file of so many bytes; the header is checked before anything is made for it."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"its format is {version}; expected 1.0 or 2.0")
    shape, _, dtype = _HEADERS[version](file)
    held, stated = size - file.tell(), math.prod(shape) * dtype.itemsize
    if held != stated and not dtype.hasobject:
        raise ValueError(f"its header states {stated} bytes for the shape {shape}, but it holds {held}")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
