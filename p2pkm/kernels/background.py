"""Compilation of the kernels by a second process, while this one computes or compiles others.

The processes share compiled kernels through numba's cache. The second one ends when this one does, at the latest: what
it has compiled until then stays in the cache.
"""

import atexit
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

# The second process of this one.
_running: list[subprocess.Popen[bytes]] = []


def is_cached(function: object, folder: Path) -> bool:
    """Test whether numba's cache has an index for this function that is newer than the source."""
    code = function.__code__  # type: ignore[attr-defined]
    source = Path(code.co_filename)
    version = f"py{sys.version_info[0]}{sys.version_info[1]}"
    name = f"{source.stem}.{code.co_name}-{code.co_firstlineno}.{version}*.nbi"
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


def start_compilation(dtype: str, *, ahead: bool) -> None:
    """Start the second process, unless it runs.

    Parameters
    ----------
    dtype : str
        Type of the points.
    ahead : bool
        True: the kernels are for later runs. The process has a low priority, and waits while another one compiles.
        False: this process compiles, too, from the first kernel on.
    """
    if any(process.poll() is None for process in _running):
        return
    # The path of this process without the working directory, where any file may have the name of a module.
    path = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])}
    command = [sys.executable, "-P", "-m", "p2pkm.kernels", str(os.getpid()), "ahead" if ahead else "now", dtype]
    nothing = subprocess.DEVNULL
    # Without a second process, this one compiles alone.
    with suppress(OSError):
        _running[:] = [subprocess.Popen(command, env=os.environ | path, stdin=nothing, stdout=nothing, stderr=nothing)]


@atexit.register
def stop_compilation() -> None:
    """End the second process."""
    for process in _running:
        process.kill()
        process.wait()
    _running.clear()
