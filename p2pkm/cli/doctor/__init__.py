"""Check of the installation: Python, MPI, threads, compiled kernels, memory and disk."""

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
from p2pkm.core.mpi_environment import count_cores, expected_size, launched, local_size, starter
from p2pkm.core.spec import read_count
from p2pkm.kernels import compiles, load
from p2pkm.kernels.background import is_cached

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_LIBRARY = """import mpi4py; mpi4py.rc.initialize = False
from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])"""
# MB of memory that a rank needs without its points.
_MEMORY = 150
# MB of disk that a run folder may need.
_DISK = 100
_MB = 1e6
_GB = 1e9


def diagnose(*, as_json: bool, host_file: str | None = None) -> int:
    """Print the checks on rank 0, and return the exit code: 0, or 4 if a check fails."""
    checks = examine() + ([] if host_file is None else check_hosts(host_file))
    if as_json:
        keys = ("status", "check", "found", "advice")
        print(json.dumps({"checks": [dict(zip(keys, check, strict=True)) for check in checks]}), flush=True)
    else:
        for status, name, finding, advice in checks:
            print(f"{status:4}  {name:13} {finding}" + (f"  -> {advice}" if advice else ""), flush=True)
    return NetworkError.code if any(check.status == "fail" for check in checks) else 0


def examine() -> list[Check]:
    """Run all checks; MPI is started in this process only under a launcher."""
    library = check_library()
    ranks, cores = local_size(), count_cores()
    version = library.finding if library.status == "ok" else ""
    mpi = []
    if version:
        mpi = [check_world() if launched() else check_pair(version), check_yield(version)]
    return [
        check_python(), library, check_launcher(), *mpi,
        check_crowd(ranks, cores, version), check_shared_memory(ranks, cores), check_threads(ranks, cores),
        check_kernels(), check_memory(ranks), check_folder(), check_file_system(), check_slurm(),
    ]  # fmt: skip


def check_python() -> Check:
    """Report the versions of Python and p2pkm."""
    from p2pkm.core.version import __version__

    return Check("ok", "python", f"Python {platform.python_version()}, p2pkm {__version__}")


def check_library() -> Check:
    """Check the MPI library that mpi4py loads, in another process unless a launcher started MPI in this one."""
    from importlib.util import find_spec

    if find_spec("mpi4py") is None:
        return Check("fail", "mpi library", "mpi4py is not installed; one process works without", INSTALL)
    if launched():
        from p2pkm.network.world import connect

        try:
            return Check("ok", "mpi library", _name(connect().library() or ""))
        except NetworkError as error:
            finding, _, advice = str(error).rpartition(". ")
            return Check("fail", "mpi library", finding, advice[:1].lower() + advice[1:])
    code, printed = run_command([sys.executable, "-c", _LIBRARY])
    if code == 0:
        return Check("ok", "mpi library", _name(printed.splitlines()[-1]))
    finding = f"mpi4py finds no MPI library ({last(printed)}); one process works without"
    return Check("fail", "mpi library", finding, INSTALL)


def check_launcher() -> Check:
    """Find the mpirun on PATH and its MPI implementation."""
    path = shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        folder = Path(sys.executable).parent
        if (folder / "mpirun").exists():
            return Check("warn", "mpirun", f"not on PATH, but in {folder}", f"source {folder / 'activate'}")
        return Check("warn", "mpirun", "no mpirun or mpiexec on PATH", f"{INSTALL}, or load your cluster's MPI")
    code, printed = run_command([path, "--version"])
    if code != 0:
        return Check("warn", "mpirun", f"{path} --version fails ({last(printed)})", SAME)
    return Check("ok", "mpirun", f"{path} ({family(printed)})")


def check_pair(library: str) -> Check:
    """Check that launcher and library match: two processes must form one world."""
    path = shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None or "SLURM_JOB_ID" in os.environ:
        return Check("ok", "mpirun -n 2", "not tried: " + ("no mpirun" if path is None else "inside a Slurm job"))
    outcome, printed = start_trial([path, "-n", "2"])
    if outcome == "together":
        return Check("ok", "mpirun -n 2", "one world of 2 ranks: launcher and library belong together")
    if outcome == "alone":
        finding = f"two worlds of size 1: {path} does not belong to the library that mpi4py loads ({library})"
        return Check("fail", "mpirun -n 2", finding, SAME)
    launcher_family = family(run_command([path, "--version"])[1])
    if {launcher_family, family(library)} == {"MPICH", "Open MPI"} and "slots" not in printed:
        finding = f"{path} is of {launcher_family}, but mpi4py loads {library}: they do not belong together ({printed})"
        return Check("fail", "mpirun -n 2", finding, SAME)
    advice = oversubscribe() if launcher_family == "Open MPI" else ""
    return Check("fail", "mpirun -n 2", f"did not run ({printed})", advice or SAME)


def check_world() -> Check:
    """Count the ranks in the world and name their launcher; worlds of size 1 fail in the check of the library."""
    from p2pkm.network.world import connect

    return Check("ok", "world", f"{connect().size} of {expected_size()} ranks see each other, started by {starter()}")


def check_yield(library: str) -> Check:
    """Check that a waiting rank yields its core."""
    library_family = family(library)
    if library_family == "Open MPI":
        return Check("ok", "yield", "Open MPI yields by itself when oversubscribed")
    if library_family == "Intel MPI":
        value = os.environ.get("I_MPI_THREAD_YIELD", "not set")
        return Check("ok", "yield", f"I_MPI_THREAD_YIELD {value}", "3 is best with more ranks than cores")
    value = os.environ.get("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1 (set by p2pkm)")
    if value.lower() in {"0", "no", "false", "off"}:
        advice = "good only with a core for every rank and nothing else running; else unset it"
        return Check("warn", "yield", f"MPIR_CVAR_ENABLE_HEAVY_YIELD={value}", advice)
    return Check("ok", "yield", f"MPIR_CVAR_ENABLE_HEAVY_YIELD={value}")


def check_threads(ranks: int, cores: int) -> Check:
    """Check the number of threads that the libraries of a rank may start."""
    settings = {name: os.environ[name] for name in _THREADS if name in os.environ}
    if not settings:
        return Check("ok", "threads", "each library decides; under mpirun p2pkm sets one per rank")
    finding = " ".join(f"{name}={value}" for name, value in settings.items())
    threads = {name: [read_count(part) for part in value.split(",")] for name, value in settings.items()}
    malformed = [name for name, counts in threads.items() if None in counts]
    if malformed:
        return Check("warn", "threads", finding, f"not a whole number: {', '.join(malformed)}")
    most = max(counts[0] or 0 for counts in threads.values())
    if most > 1 and most * ranks > cores:
        return Check(
            "warn", "threads", finding, f"{ranks} x {most} threads on {cores} cores: set them to 1, or unset them"
        )
    return Check("ok", "threads", finding)


def check_kernels() -> Check:
    """Check that numba's cache has all compiled kernels, newer than their source."""
    if not compiles():
        return Check("warn", "kernels", "numba does not compile (NUMBA_DISABLE_JIT)", "unset NUMBA_DISABLE_JIT")
    try:
        compiled: Any = load()
    except ExperimentError as error:
        finding, _, advice = str(error).partition("; ")
        return Check("warn", "kernels", first(finding), advice)
    functions = [compiled.entry(name) for name in compiled.__all__]
    folder = Path(str(functions[0].stats.cache_path))
    ready = sum(is_cached(function.py_func, folder) for function in functions)
    finding = f"{ready} of {len(functions)} compiled in {folder}"
    if ready == len(functions):
        return Check("ok", "kernels", finding)
    if not _writable(folder):
        return Check(
            "warn", "kernels", f"{finding}, not writable", "export NUMBA_CACHE_DIR=<a folder that you can write>"
        )
    return Check("warn", "kernels", finding, "compile ahead, once: python -m p2pkm compile")


def check_memory(ranks: int) -> Check:
    """Check the free memory of the machine, if the system reports it."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free, total = (int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
    except (OSError, ValueError, KeyError):
        return Check("ok", "memory", "not known on this system")
    finding = f"{free / _GB:.1f} GB of {total / _GB:.1f} GB free"
    if free < ranks * _MEMORY * _MB:
        return Check("warn", "memory", finding, f"a rank needs about {_MEMORY} MB and its points: start fewer ranks")
    return Check("ok", "memory", finding)


def check_folder() -> Check:
    """Check that the current folder can hold a run folder."""
    try:
        folder = Path.cwd()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("warn", "folder", f"the current folder cannot be used ({error})", "cd elsewhere")
    finding = f"{free / _GB:.1f} GB free in {folder}"
    if not _writable(folder):
        return Check("warn", "folder", f"{finding}, not writable", "use --out <folder>, or --out none")
    return Check("warn" if free < _DISK * _MB else "ok", "folder", finding)


def _name(library: str) -> str:
    return " ".join(library.split(",")[0].split())


def _writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
