"""Keys of runs: hashes of all that a row depends on, without preparing points or graphs."""

import hashlib
import importlib.util
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from functools import cache
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from p2pkm.core.plugins import INITS, METHODS, PARTITIONS, TRANSFORMS
from p2pkm.data.readers.folder import COMPANION
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.studies.measuring import UNMEASURED, Measuring
from topologies.plugins import GRAPHS

_OUTPUT = ("out", "plot", "figures")  # options that no row depends on
# Libraries whose random generators and data sets make points and graphs.
_LIBRARIES = ("numpy", "scipy", "networkx", "scikit-learn")
_SEPARATORS = re.compile("[:,;=]")  # between the parts of a spec
_FRESH = 2_000_000_000  # ns after a change in which another one may leave size and time of a file as they are
_checksums: dict[str, tuple[int, int, str]] = {}  # size, time of the last change and SHA-256 of files


class Fingerprints:
    """Keys of the runs of a study; runs that differ in the seed only are examined once, and so are named files.

    A key is a hash of the options, of the content of the files that they name, of the content of objects, of what is
    measured, and of the source of this program and of the packages with its plug-ins.

    Parameters
    ----------
    measuring : Measuring
    """

    def __init__(self, measuring: Measuring = UNMEASURED) -> None:
        metrics = "" if measuring.metrics is None else measuring.metrics.digest
        parts = [digest_program(), digest_packages(), json.dumps([*measuring.link_models, metrics]).encode()]
        self._start = hashlib.sha256(b"\0".join(parts))
        self._named: dict[str, list[list[str]]] = {}  # files and checksums by the text that names them
        self._hashed: dict[RunOptions, Any] = {}  # hashes of all but the seed

    def find(self, cell: RunOptions) -> str:
        """Return the key of a run, 32 hexadecimal digits."""
        configuration = cell.replaced(seed=0)
        if configuration not in self._hashed:
            self._hashed[configuration] = self._hash(configuration)
        total = self._hashed[configuration].copy()
        total.update(str(cell.seed).encode())
        return str(total.hexdigest()[:32])

    def find_all(self, cells: Sequence[RunOptions]) -> list[str]:
        """Return the keys of several runs."""
        return [self.find(cell) for cell in cells]

    def _hash(self, configuration: RunOptions) -> Any:
        options = {name: value for name, value in configuration.identify().items() if name not in _OUTPUT}
        files = [found for value in options.values() if isinstance(value, str) for found in self._examine(value)]
        total = self._start.copy()
        total.update(json.dumps([options, files], sort_keys=True).encode())
        return total

    def _examine(self, text: str) -> list[list[str]]:
        if text not in self._named:
            self._named[text] = [[path, find_checksum(path)] for path in list_files(text)]
        return self._named[text]


def list_files(text: str) -> list[str]:
    """List the files that the value of an option names: itself, or a part of a spec; of a folder, all in it."""
    found: dict[str, None] = {}
    for part in dict.fromkeys((text, text.partition(":")[2], *_SEPARATORS.split(text))):
        path = os.path.expanduser(part.strip())
        found |= dict.fromkeys(_list_existing(path))
    return sorted(found)


def _list_existing(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
        companion = f"{path.removesuffix('.npy')}{COMPANION}"
        if path.endswith(".npy") and os.path.isfile(companion):
            yield companion
    elif os.sep in path and os.path.isdir(path):
        # A folder is named with a slash; without one, ring may be a graph.
        for place, folders, names in os.walk(path):
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield from (os.path.join(place, name) for name in names if not name.startswith("."))
    elif has_magic(path):
        for match in glob(path, recursive=True):
            yield from _list_existing(match)


def find_checksum(path: str) -> str:
    """Return the SHA-256 of a file, computed again if its size or the time of its last change differ.

    A file that cannot be read has none: its run reports the error.
    """
    try:
        status = os.stat(path)
        size, changed = status.st_size, status.st_mtime_ns
        known = _checksums.get(path)
        if known is not None and known[:2] == (size, changed):
            return known[2]
        with open(path, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return str(error.strerror)
    # The clock of a file system is coarse: a file that has just been changed may change again within its tick.
    if time.time_ns() - changed > _FRESH:
        _checksums[path] = size, changed, checksum
    return checksum


@cache
def digest_program() -> bytes:
    """Compute the SHA-256 of the source of the program, so that rows of another version are not reused."""
    root, sha256 = Path(__file__).parents[3], hashlib.sha256()
    for path in sorted(path for package in ("p2pkm", "topologies") for path in (root / package).rglob("*.py")):
        text = path.read_bytes()
        sha256.update(f"{path.relative_to(root).as_posix()} {len(text)}\n".encode() + text)
    return sha256.digest()


def digest_packages() -> bytes:
    """Compute the SHA-256 of the versions of libraries that make points and graphs, and of the source of plug-ins.

    It is computed for every study: a plug-in may be installed while a notebook is open.
    """
    from importlib.metadata import entry_points, version

    points = entry_points()
    sha256 = hashlib.sha256(json.dumps([version(name) for name in _LIBRARIES]).encode())
    for group in (GRAPHS, INITS, METHODS, PARTITIONS, TRANSFORMS):
        for point in sorted(points.select(group=group), key=lambda point: (point.name, point.value)):
            sha256.update(f"{group} {point.name} {point.value}\n".encode())
            for path in _list_sources(point):
                sha256.update(path.read_bytes())
    return sha256.digest()


def _list_sources(point: Any) -> list[Path]:
    """List the source files of the package of a plug-in; none if it cannot be found, which its run reports."""
    try:
        found = importlib.util.find_spec(point.module.partition(".")[0])
    except (ImportError, ValueError):
        return []
    if found is None:
        return []
    if found.submodule_search_locations:
        return sorted(path for place in found.submodule_search_locations for path in Path(place).rglob("*.py"))
    return [Path(found.origin)] if found.origin and found.origin.endswith(".py") else []
