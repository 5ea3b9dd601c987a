"""Compilation of the kernels by a second process, while this one computes or compiles others.

The processes share compiled kernels through numba's cache. The second one ends when this one does, at the latest: what
it has compiled until then stays in the cache.
"""

import atexit
import os
import subprocess
import sys
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


def are_cached(compiled: Any) -> bool:
    """Test whether numba's cache has all kernels, compiled for one type of points at least."""
    functions = [compiled.entry(name) for name in compiled.__all__]
    folder = Path(str(functions[0].stats.cache_path))
    return all(is_cached(function.py_func, folder) for function in functions)


def start_compilation(*, ahead: bool) -> None:
    """Start the second process, unless it runs.

    Parameters
    ----------
    ahead : bool
        True: the kernels are for later runs. The process has a low priority, and waits while another one compiles.
        False: this process compiles, too, from the first kernel on.
    """
    if any(process.poll() is None for process in _running):
        return
    # The path of this process without the working directory, where any file may have the name of a module.
    path = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])}
    command = [sys.executable, "-P", "-m", "p2pkm.kernels", str(os.getpid()), "ahead" if ahead else "now"]
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
