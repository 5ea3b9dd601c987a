"""Traps of clusters and containers: Slurm's default, shared memory, crowded or networked machines."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from p2pkm.cli.doctor.checks import Check, family, oversubscribe, run_command
from p2pkm.core.mpi_environment import expected_size, launched

SHARED = Path("/dev/shm")
MOUNTS = Path("/proc/mounts")
_SRUN = "start with: srun --mpi=pmi2 python -m p2pkm ..."
_NONE = "the usual default, --mpi=none, gives each rank its own world"
_PART, _USUAL = 6, 16  # MB of shared memory that MPI takes for a rank, measured with MPICH 5; ranks that one may want
_MB = 1e6
_CROWD = 8  # ranks per core
_NETWORKED = ("nfs", "cifs", "smb", "lustre", "beegfs", "gpfs", "ceph", "afs", "9p", "fuse.sshfs", "fuse.glusterfs")


def check_slurm() -> Check:
    """Return what Slurm needs, inside and outside a job."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None and shutil.which("srun") is None:
        return Check("ok", "slurm", "no Slurm here")
    if job is not None and launched() and expected_size() > 1:
        return Check("ok", "slurm", f"in job {job}, {os.environ.get('SLURM_NTASKS', '?')} tasks")
    default = re.search(r"^MpiDefault\s*=\s*(\S+)", run_command(["scontrol", "show", "config"])[1], re.MULTILINE)
    plugin = f", MpiDefault={default[1]}" if default else ""
    if job is None:
        return Check("ok", "slurm", f"no job here{plugin}", f"see launch/slurm.sbatch; {_SRUN} ({_NONE})")
    return Check(
        "ok", "slurm", f"in job {job}, {os.environ.get('SLURM_NTASKS', '?')} tasks{plugin}", f"{_SRUN} ({_NONE})"
    )


def check_crowd(ranks: int, cores: int, library: str) -> Check:
    """Return how many ranks share the cores of this machine."""
    found = f"{cores} for {ranks} rank{'s' * (ranks > 1)} on this machine"
    if ranks > _CROWD * cores:
        advice = "each takes its time to start, and they take turns; --devices needs no rank each, so start fewer"
        return Check("warn", "cores", found, advice)
    turns = ": they take turns, the result is the same" if ranks > cores else ""
    advice = "" if family(library) != "Open MPI" or launched() else oversubscribe()
    return Check("ok", "cores", found + turns, f"for more ranks than cores: {advice}" if advice else "")


def check_shared_memory(ranks: int, cores: int) -> Check:
    """Return for how many ranks there is shared memory; too little makes MPI hang or crash without a word."""
    try:
        free = shutil.disk_usage(SHARED).free / _MB
    except OSError:
        return Check("ok", "shared memory", "not known on this system")
    found = f"{free:,.0f} MB free in {SHARED}, enough for {int(free / _PART):,} ranks on this machine"
    if free < _PART * max(ranks, cores, _USUAL):
        advice = "with more, MPI hangs or crashes; give it more: docker run --shm-size=1g, mount -o remount,size=1g"
        return Check("warn", "shared memory", found, advice)
    left = list(_left_over())
    if left:
        found += f"; segments of ranks that were killed: {len(left)}, {sum(left):,.0f} MB"
        return Check("warn", "shared memory", found, f"while no MPI program runs: rm {SHARED}/mpich_shm_*")
    return Check("ok", "shared memory", found)


def _left_over() -> Iterator[float]:
    """Yield the MB of the user's own segments that no process has mapped; a run that ends by itself removes its own."""
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # of somebody else, or gone
            mapped.update(re.findall(r"\S*mpich_shm_\S+", maps.read_text(errors="replace")))
    for path in SHARED.glob("mpich_shm_*"):
        with suppress(OSError):
            status = path.stat()
            if str(path) not in mapped and status.st_uid == os.geteuid():
                yield status.st_blocks * 512 / _MB


def check_file_system() -> Check:
    """Return whether the current folder, or that of the program and its compiled kernels, is on a network."""
    try:
        here = Path.cwd()
    except OSError:
        return Check("ok", "file system", "not known: the current folder cannot be used")
    places = {"current folder": here, "program": Path(os.environ.get("NUMBA_CACHE_DIR", Path(__file__).parent))}
    networked = {name: kind for name, place in places.items() if (kind := _kind_of(place)).startswith(_NETWORKED)}
    if not networked:
        return Check(
            "ok", "file system", "disks of this machine; other hosts need the same program under the same path"
        )
    found = ", ".join(f"{name} on {kind}" for name, kind in networked.items())
    slow = "if ranks start slowly: export NUMBA_CACHE_DIR=<a folder on a disk of each host>"
    return Check("ok", "file system", found, slow if "program" in networked else "")


def _kind_of(place: Path) -> str:
    """Return the type of the file system that holds a path."""
    kind, longest = "unknown", -1
    with suppress(OSError):
        for line in MOUNTS.read_text("utf-8", "replace").splitlines():
            where, what = line.split()[1:3]
            root = where.replace("\\040", " ")
            if (place == Path(root) or Path(root) in place.parents) and len(root) >= longest:
                kind, longest = what, len(root)
    return kind
