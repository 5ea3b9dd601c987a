"""Readers of NumPy files from untrusted sources: without pickles, and with limits on the decompressed size."""

import math
import re
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
# Words in the names of the arrays of points, labels and devices in an archive, such as train_images and y_train.
WORDS = {
    "labels": ("y", "labels", "label", "targets", "target", "classes", "class"),
    "devices": ("client", "clients", "device", "devices"),
    "points": ("x", "points", "images", "data", "features", "samples"),
}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
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


def _find_role(name: str) -> tuple[str, frozenset[str]]:
    """Return the role of an array by the words in its name, and the other words, such as train; "": unknown role."""
    words = [word.lower() for word in _WORD.findall(name)]
    role = next((role for role, known in WORDS.items() if set(words) & set(known)), "")
    return role, frozenset(words) - frozenset(WORDS.get(role, ()))


def find_points(shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return the name of the array of points in an archive; None if this is ambiguous.

    The array is called X, points, images, data, features or samples, or is the only one with such a word in its name.
    Without such names it is the only one with two to four dimensions that is neither labels nor devices, and has as
    many rows as the labels. A single column next to other arrays of its length may be labels, too.
    """
    usual = [name for name in shapes if name.lower() in WORDS["points"]]
    if usual:
        return usual[0] if len(usual) == 1 else None
    roles = {name: _find_role(name)[0] for name in shapes}
    tables = [name for name, shape in shapes.items() if 2 <= len(shape) <= 4]
    named = [name for name in tables if roles[name] == "points"]
    if named:
        return named[0] if len(named) == 1 else None
    rows = {shapes[name][0] for name in shapes if roles[name] == "labels" and shapes[name]}
    candidates = [name for name in tables if not roles[name] and (not rows or shapes[name][0] in rows)]
    if len(candidates) != 1:
        return None
    shape = shapes[candidates[0]]
    alike = [name for name in shapes if name != candidates[0] and not roles[name] and shapes[name][:1] == shape[:1]]
    return None if shape[1:] == (1,) and alike else candidates[0]


def find_partner(points: str, shapes: Mapping[str, tuple[int, ...]], role: str) -> str | None:
    """Return the name of the array of labels or devices that belongs to an array of points; None if there is none.

    Parameters
    ----------
    points : str
        Name of the array of points.
    shapes : mapping of str to tuple of int
    role : {"labels", "devices"}
    """
    found = {name: _find_role(name)[1] for name in shapes if _find_role(name)[0] == role and name != points}
    words = _find_role(points)[1]
    # Of train_images the labels are train_labels; of images they are labels, and not test_labels.
    partners = [name for name, rest in found.items() if rest == words] or [
        name for name, rest in found.items() if not rest
    ]
    if not partners:
        partners = [name for name in found if shapes[name][:1] == shapes[points][:1]]
        partners = partners if len(partners) == 1 else []
    return min(partners, key=lambda name: [word in name.lower() for word in WORDS[role]][::-1], default=None)


def to_column(array: NDArray[Any]) -> NDArray[Any]:
    """Return a column [n, 1], or 0/1 indicators of classes [n, c] (one-hot), as one value per row; else unchanged."""
    if array.shape[1:] == (1,):
        return array.ravel()
    is_one_hot = array.ndim == 2 and array.shape[1] > 1 and array.dtype.kind in "biuf"
    if is_one_hot and np.isin(array, (0, 1)).all() and (array.astype(np.int64).sum(axis=1) == 1).all():
        return array.argmax(axis=1)
    return array


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
