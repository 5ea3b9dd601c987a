"""Compilation of the kernels by a second process, while this one computes or compiles others.

The processes share compiled kernels through numba's cache. A second process that compiles for later runs continues
after the end of this one until the kernel at hand is in the cache, so that many short programs compile all kernels
together. When all are there, it leaves a mark, which is read without the import of numba.
"""

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pkm.core.mpi_environment import expected_rank, in_job

if TYPE_CHECKING:
    from subprocess import Popen

# Environment variable: 0 starts no process that compiles for later runs.
SWITCH = "P2PKM_COMPILE_AHEAD"
# Seconds between two kernels, in which a process that waits for its kernels can take the lock.
_PAUSE = 0.3
# Seconds in which a process that compiles for later runs waits for the lock.
_PATIENCE = 60.0

# Types of points for which the mark was found.
_marked: set[str] = set()
# The second process of this one, and whether it may continue after this one.
_running: list[tuple["Popen[bytes]", bool]] = []


def is_cached(function: object, folder: Path) -> bool:
    """Test whether numba's cache has an index for this function that is newer than the source."""
    code = function.__code__  # type: ignore[attr-defined]
    source = Path(code.co_filename)
    python = f"py{sys.version_info[0]}{sys.version_info[1]}"
    name = f"{source.stem}.{code.co_name}-{code.co_firstlineno}.{python}*.nbi"
    return any(file.stat().st_mtime >= source.stat().st_mtime for file in folder.glob(name))


def are_cached(compiled: Any, calls: Iterable[tuple[str, tuple[Any, ...]]]) -> bool:
    """Test whether numba's cache has the kernel of every call, compiled for the type of the first argument.

    Parameters
    ----------
    compiled : Kernels
    calls : iterable of (str, tuple)
        Names of kernels with arguments, of which the first is an array.
    """
    return all(str(args[0].dtype) in _cached_types(compiled.entry(name)) for name, args in calls)


def _cached_types(dispatcher: Any) -> set[str]:
    """Read from numba's cache for which types of the first argument a kernel is compiled from its present source."""
    # numba has no public function that reads the index without the code. Where a version of numba lacks this one, the
    # kernels count as compiled: runs then compile at the first call.
    try:
        index = dispatcher._cache._cache_file._load_index()
    except AttributeError:
        return {"float32", "float64", "int64", "uint64", "uint8", "bool"}
    return {str(signature[0].dtype) for signature, *_ in index}


def find_cache(compiled: Any) -> Path:
    """Return the folder of numba's cache for the kernels."""
    return Path(str(compiled.entry("moments").stats.cache_path))


def compile_missing(compiled: Any, calls: Sequence[tuple[str, tuple[Any, ...]]], goes_on: Callable[[], bool]) -> bool:
    """Compile the kernels that the cache lacks, the last first, as long as `goes_on`, but at least one.

    Each is compiled under the lock of the cache, which other processes can take in between.

    Returns
    -------
    bool
        True if the cache has all kernels.
    """
    from p2pkm.kernels.cache_lock import lock_cache

    for call in reversed(calls):
        if are_cached(compiled, [call]):
            continue
        with lock_cache(find_cache(compiled), _PATIENCE) as is_locked:
            if not is_locked:
                return False
            if not are_cached(compiled, [call]):
                name, args = call
                getattr(compiled, name)(*args)
        if not goes_on():
            return are_cached(compiled, calls)
        time.sleep(_PAUSE)
    return are_cached(compiled, calls)


def mark_compiled(compiled: Any, dtype: str) -> None:
    """Leave the mark that the cache has all kernels for a type of points."""
    # Without it, the next process looks again.
    with suppress(OSError):
        find_cache(compiled).joinpath(_name_mark(dtype)).touch()


def is_marked(dtype: str) -> bool:
    """Return whether the cache has all kernels for a type of points, without the import of numba.

    A mark that is older than a source file does not count. It is not checked for which processor the kernels are
    compiled: a process that has imported numba sees it.
    """
    if dtype not in _marked:
        place = Path(__file__).parent / "numba"
        newest = max(source.stat().st_mtime for source in place.glob("*.py"))
        if any(mark.stat().st_mtime >= newest for mark in _find_marks(place, _name_mark(dtype))):
            _marked.add(dtype)
    return dtype in _marked


def _find_marks(place: Path, name: str) -> list[Path]:
    """List the marks in the folders of which numba uses one: the one given, beside the source, and the user's."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return list(Path(given).glob(f"*/{name}"))
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "numba")
    return [*place.glob(f"__pycache__/{name}"), *user.glob(f"*/{name}")]


@cache
def _name_mark(dtype: str) -> str:
    """Return the name of a mark, with the version of Python and the age of numba, whose version takes long to read."""
    numba = find_spec("numba")
    age = int(os.stat(numba.origin).st_mtime) if numba is not None and numba.origin else 0
    return f"p2pkm-compiled-{dtype}-py{sys.version_info[0]}{sys.version_info[1]}-{age}"


def _can_write() -> bool:
    """Return whether one of the folders of `_find_marks`, or the folder that would contain it, can be written."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    folders = [Path(given)] if given else [Path(__file__).parent / "numba", Path.home()]
    return any(os.access(next(place for place in (folder, *folder.absolute().parents) if place.exists()), os.W_OK)
               for folder in folders)  # fmt: skip


def start_compilation(dtype: str, *, ahead: bool) -> bool:
    """Start the second process, unless it runs.

    Parameters
    ----------
    dtype : str
        Type of the points.
    ahead : bool
        True: the kernels are for later runs. The process has a low priority, compiles while no other process does, and
        finishes its kernel after the end of this one, except in the job of a scheduler and under an MPI launcher, where
        only rank 0 starts one.
        False: this process compiles, too, from the first kernel on.

    Returns
    -------
    bool
        Whether the process runs.
    """
    if ahead and (os.environ.get(SWITCH) == "0" or expected_rank() > 0 or not _can_write()):
        return False
    if any(process.poll() is None for process, _ in _running):
        return True
    # Most runs start none.
    import subprocess

    purpose = "now"
    if ahead:
        purpose = "ahead" if in_job() else "stay"
    # The path of this process without the working directory, where any file may have the name of a module.
    path = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])}
    command = [sys.executable, "-P", "-m", "p2pkm.kernels", str(os.getpid()), purpose, dtype]
    nothing = subprocess.DEVNULL
    # Without a second process, this one compiles alone. In a session of its own it gets no Ctrl-C.
    with suppress(OSError):
        process = subprocess.Popen(command, env=os.environ | path, stdin=nothing, stdout=nothing, stderr=nothing,
                                   start_new_session=purpose == "stay")  # fmt: skip
        _running[:] = [(process, purpose == "stay")]
        return True
    return False


@atexit.register
def stop_compilation() -> None:
    """End the second process, unless it finishes a kernel for later runs."""
    for process, stays in _running:
        if not stays:
            process.kill()
            process.wait()
        elif process.poll() is None:
            # It ends by itself. Otherwise Python would warn that it still runs.
            process.returncode = 0
    _running.clear()
