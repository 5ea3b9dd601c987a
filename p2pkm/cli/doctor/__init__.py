"""What helps or hinders a run on this machine: Python, MPI, threads, compiled kernels, disk."""

import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from p2pkm.cli.doctor.checks import INSTALL, SAME, Check, family, first, last, oversubscribe, run_command, start_trial
from p2pkm.cli.doctor.cluster import check_crowd, check_file_system, check_shared_memory, check_slurm
from p2pkm.cli.doctor.hostfile import check_hosts
from p2pkm.core.errors import ExperimentError, NetworkError
from p2pkm.core.mpi_environment import expected_size, launched, local_size, starter
from p2pkm.core.spec import read_count
from p2pkm.kernels import compiles, load

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_LIBRARY = """import mpi4py; mpi4py.rc.initialize = False
from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])"""
_MEMORY, _DISK, _MB, _GB = 150, 100, 1e6, 1e9  # the first two: MB that a rank, and a run folder, may need


def diagnose(*, as_json: bool, host_file: str | None = None) -> int:
    """Print what was found on this machine, rank 0 for all, and return the exit code: 0, or 4 if something fails."""
    checks = examine() + ([] if host_file is None else check_hosts(host_file))
    if as_json:
        print(json.dumps({"checks": [check._asdict() for check in checks]}), flush=True)
    else:
        for status, name, found, advice in checks:
            print(f"{status:4}  {name:13} {found}" + (f"  -> {advice}" if advice else ""), flush=True)
    return NetworkError.code if any(check.status == "fail" for check in checks) else 0


def examine() -> list[Check]:
    """Return all checks; MPI is started in this process only if a launcher started it."""
    library = check_library()
    ranks, cores = local_size(), _cores()
    mine = library.found if library.status == "ok" else ""
    mpi = [check_world() if launched() else check_pair(mine), check_yield(mine)] if mine else []
    return [
        check_python(), library, check_launcher(), *mpi,
        check_crowd(ranks, cores, mine), check_shared_memory(ranks, cores), check_threads(ranks, cores),
        check_kernels(), check_memory(ranks), check_folder(), check_file_system(), check_slurm(),
    ]  # fmt: skip


def check_python() -> Check:
    """Report the versions of Python and p2pkm."""
    from p2pkm.core.version import __version__

    return Check("ok", "python", f"Python {platform.python_version()}, p2pkm {__version__}")


def check_library() -> Check:
    """Check which MPI library mpi4py loads; asked in another process, unless MPI is needed in this one anyway."""
    from importlib.util import find_spec

    if find_spec("mpi4py") is None:
        return Check("fail", "mpi library", "mpi4py is not installed; one process works without", INSTALL)
    if launched():
        from p2pkm.network.world import connect

        try:
            return Check("ok", "mpi library", _name(connect().library() or ""))
        except NetworkError as error:
            found, _, advice = str(error).rpartition(". ")
            return Check("fail", "mpi library", found, advice[:1].lower() + advice[1:])
    code, printed = run_command([sys.executable, "-c", _LIBRARY])
    if code == 0:
        return Check("ok", "mpi library", _name(printed.splitlines()[-1]))
    found = f"mpi4py finds no MPI library ({last(printed)}); one process works without"
    return Check("fail", "mpi library", found, INSTALL)


def check_launcher() -> Check:
    """Find the mpirun on PATH and the MPI that it belongs to."""
    path = shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        beside = Path(sys.executable).parent
        if (beside / "mpirun").exists():
            return Check("warn", "mpirun", f"not on PATH, but in {beside}", f"source {beside / 'activate'}")
        return Check("warn", "mpirun", "no mpirun or mpiexec on PATH", f"{INSTALL}, or load your cluster's MPI")
    code, printed = run_command([path, "--version"])
    if code != 0:
        return Check("warn", "mpirun", f"{path} --version fails ({last(printed)})", SAME)
    return Check("ok", "mpirun", f"{path} ({family(printed)})")


def check_pair(library: str) -> Check:
    """Check that launcher and library belong together: two processes must see each other."""
    path = shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None or "SLURM_JOB_ID" in os.environ:
        return Check("ok", "mpirun -n 2", "not tried: " + ("no mpirun" if path is None else "inside a Slurm job"))
    how, printed = start_trial([path, "-n", "2"])
    if how == "together":
        return Check("ok", "mpirun -n 2", "one world of 2 ranks: launcher and library belong together")
    if how == "alone":
        found = f"two worlds of size 1: {path} does not belong to the library that mpi4py loads ({library})"
        return Check("fail", "mpirun -n 2", found, SAME)
    whose = family(run_command([path, "--version"])[1])
    if {whose, family(library)} == {"MPICH", "Open MPI"} and "slots" not in printed:
        found = f"{path} is of {whose}, but mpi4py loads {library}: they do not belong together ({printed})"
        return Check("fail", "mpirun -n 2", found, SAME)
    return Check("fail", "mpirun -n 2", f"did not run ({printed})", (whose == "Open MPI" and oversubscribe()) or SAME)


def check_world() -> Check:
    """Count the ranks that see each other, and name their launcher; worlds of size 1 were found with the library."""
    from p2pkm.network.world import connect

    return Check("ok", "world", f"{connect().size} of {expected_size()} ranks see each other, started by {starter()}")


def check_yield(library: str) -> Check:
    """Check that a waiting rank leaves its core to others."""
    whose = family(library)
    if whose == "Open MPI":
        return Check("ok", "yield", "Open MPI yields by itself when oversubscribed")
    if whose == "Intel MPI":
        value = os.environ.get("I_MPI_THREAD_YIELD", "not set")
        return Check("ok", "yield", f"I_MPI_THREAD_YIELD {value}", "3 is best with more ranks than cores")
    value = os.environ.get("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1 (set by p2pkm)")
    if value.lower() in {"0", "no", "false", "off"}:
        advice = "good only with a core for every rank and nothing else running; else unset it"
        return Check("warn", "yield", f"MPIR_CVAR_ENABLE_HEAVY_YIELD={value}", advice)
    return Check("ok", "yield", f"MPIR_CVAR_ENABLE_HEAVY_YIELD={value}")


def check_threads(ranks: int, cores: int) -> Check:
    """Check the number of threads that each library may start on each rank."""
    given = {name: os.environ[name] for name in _THREADS if name in os.environ}
    if not given:
        return Check("ok", "threads", "each library decides; under mpirun p2pkm sets one per rank")
    found = " ".join(f"{name}={value}" for name, value in given.items())
    threads = {name: [read_count(part) for part in value.split(",")] for name, value in given.items()}
    wrong = [name for name, counts in threads.items() if None in counts]
    if wrong:
        return Check("warn", "threads", found, f"not a whole number: {', '.join(wrong)}")
    most = max(counts[0] or 0 for counts in threads.values())
    if most > 1 and most * ranks > cores:
        return Check(
            "warn", "threads", found, f"{ranks} x {most} threads on {cores} cores: set them to 1, or unset them"
        )
    return Check("ok", "threads", found)


def check_kernels() -> Check:
    """Check that the compiled kernels are in numba's cache, newer than their source."""
    if not compiles():
        return Check("warn", "kernels", "numba does not compile (NUMBA_DISABLE_JIT)", "unset NUMBA_DISABLE_JIT")
    try:
        compiled: Any = load()
    except ExperimentError as error:
        found, _, way = str(error).partition("; ")
        return Check("warn", "kernels", first(found), way)
    functions = [compiled.entry(name) for name in compiled.__all__]
    folder = Path(str(functions[0].stats.cache_path))
    ready = sum(is_cached(function.py_func, folder) for function in functions)
    found = f"{ready} of {len(functions)} compiled in {folder}"
    if ready == len(functions):
        return Check("ok", "kernels", found)
    if not _writable(folder):
        return Check(
            "warn", "kernels", f"{found}, not writable", "export NUMBA_CACHE_DIR=<a folder that you can write>"
        )
    return Check("warn", "kernels", found, "compile ahead, once: python -m p2pkm compile")


def is_cached(function: object, folder: Path) -> bool:
    """Test whether numba's cache has an index for this function that is newer than the source."""
    code = function.__code__  # type: ignore[attr-defined]
    source = Path(code.co_filename)
    version = f"py{sys.version_info[0]}{sys.version_info[1]}"
    name = f"{source.stem}.{code.co_name}-{code.co_firstlineno}.{version}*.nbi"
    return any(file.stat().st_mtime >= source.stat().st_mtime for file in folder.glob(name))


def check_memory(ranks: int) -> Check:
    """Check the free memory of this machine, if the system reports it."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free, total = (int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
    except (OSError, ValueError, KeyError):
        return Check("ok", "memory", "not known on this system")
    found = f"{free / _GB:.1f} GB of {total / _GB:.1f} GB free"
    if free < ranks * _MEMORY * _MB:
        return Check("warn", "memory", found, f"a rank needs about {_MEMORY} MB and its points: start fewer ranks")
    return Check("ok", "memory", found)


def check_folder() -> Check:
    """Check that the current folder can hold a run folder."""
    try:
        here = Path.cwd()
        free = shutil.disk_usage(here).free
    except OSError as error:
        return Check("warn", "folder", f"the current folder cannot be used ({error})", "cd elsewhere")
    found = f"{free / _GB:.1f} GB free in {here}"
    if not _writable(here):
        return Check("warn", "folder", f"{found}, not writable", "give --out <folder>, or --out none")
    return Check("warn" if free < _DISK * _MB else "ok", "folder", found)


def _name(library: str) -> str:
    return " ".join(library.split(",")[0].split())


def _writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
