"""Readers of NumPy files from untrusted sources: without pickles, and with limits on the decompressed size."""

import math
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError

# Largest decompressed size of a file in bytes.
LARGEST = 16 * 2**30
# Names of an array of labels in an archive.
LABELS = ("y", "labels", "label")
# A file that decompresses to more than _USUAL bytes, and to more than _DENSEST times its size, is a decompression bomb.
_USUAL = 2**28
_DENSEST = 200
# Readers of array headers by format version.
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def load_array(path: Path) -> NDArray[Any]:
    """Read a .npy file.

    Raises
    ------
    DataError
        If the file is not a .npy file, contains objects, or has another size than its header states.
    """
    try:
        with path.open("rb") as file, warnings.catch_warnings(action="ignore"):
            if file.peek(2)[:2] == b"PK":
                raise DataError(f"{path} is an archive of arrays; expected a single array. Rename the file to .npz")
            return _read(file, path.stat().st_size)
    except (OSError, MemoryError, DataError):
        raise
    # NumPy raises almost any exception on a broken header, even SyntaxError.
    except Exception as error:
        raise DataError(
            f"{path} cannot be read as NumPy arrays without pickles: {error}. Write it again with numpy.save"
        ) from None


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a .npz file by name; other members are ignored.

    Raises
    ------
    DataError
        If the file is not a .npz archive, is damaged, contains objects, or is too large when decompressed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked_size(path, sum(entry.file_size for entry in archive.infolist()))
            return {entry.filename[: -len(".npy")]: _unpack(archive, entry)
                    for entry in archive.infolist() if entry.filename.endswith(".npy")}  # fmt: skip
    except (OSError, MemoryError, DataError):
        raise
    except zipfile.BadZipFile as error:
        raise DataError(
            f"{path} is not a .npz archive, or is damaged ({error}). Write it again with numpy.savez"
        ) from None
    # NumPy and zipfile raise almost any exception on a broken archive, even SyntaxError.
    except Exception as error:
        raise DataError(
            f"{path} cannot be read as NumPy arrays without pickles: {error}. Write it again with numpy.savez, and "
            "resize images to one size first: images of different sizes are stored as pickled objects"
        ) from None


def find_points(shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return the name of the array of points in an archive; None if this is ambiguous.

    The array has a usual name, or is the only one with two dimensions or, without such arrays, the only one with three
    or four dimensions (images). Arrays of labels are ignored.
    """
    for name in ("X", "points", "images"):
        if name in shapes:
            return name
    rows = {name: len(shape) for name, shape in shapes.items() if name not in LABELS}
    for least, most in ((2, 2), (3, 4)):
        candidates = [name for name, dimensions in rows.items() if least <= dimensions <= most]
        if candidates:
            return candidates[0] if len(candidates) == 1 else None
    return None


def find_image(shape: tuple[int, ...], d: int) -> tuple[int, ...] | None:
    """Return the shape of the images in an array; None if its d features are not the pixels of images."""
    return shape[1:] if len(shape) > 2 and math.prod(shape[1:]) == d else None


def check_unpacked_size(path: Path, size: float, most: float = LARGEST) -> None:
    """Validate that a file does not decompress to more than `most` bytes, or to a huge multiple of its size.

    Raises
    ------
    DataError
        If it does.
    """
    packed = path.stat().st_size
    if size > most or size > max(_USUAL, _DENSEST * packed):
        limit = most if size > most else f"{_DENSEST} times its size of {packed} bytes"
        raise DataError(
            f"{path} decompresses to {size} bytes; expected at most {limit}. Use fewer points, or write the file "
            "without compression"
        )


def check_regular_file(path: Path, what: str) -> None:
    """Validate that an existing path is a regular file: pipes and device files may never end.

    Raises
    ------
    DataError
        If it is not.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a regular file, so its length is unknown; expected {what}")


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as member, warnings.catch_warnings(action="ignore"):
        try:
            return _read(member, entry.file_size)
        except (ValueError, EOFError) as error:
            raise ValueError(f"array {entry.filename[: -len('.npy')]!r}: {error}") from None


def _read(file: IO[bytes], size: int) -> NDArray[Any]:
    """Read one array from a file of the given size in bytes."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"format version is {version}; expected 1.0 or 2.0")
    # The header is checked before memory is allocated: a false one could request any amount.
    shape, _, dtype = _HEADERS[version](file)
    actual = size - file.tell()
    stated = math.prod(shape) * dtype.itemsize
    if actual != stated and not dtype.hasobject:
        raise ValueError(f"the header states {stated} bytes for shape {shape}, but the file contains {actual}")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
