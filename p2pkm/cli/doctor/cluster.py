"""Checks of clusters and containers: Slurm, shared memory, ranks per core, network file systems."""

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
# MB of shared memory that MPI allocates per rank, measured with MPICH 5.
_SHARED_PER_RANK = 6
# Ranks that shared memory should suffice for, at least.
_USUAL_RANKS = 16
_MB = 1e6
# Ranks per core; with more, starting them takes long.
_CROWD = 8
_NETWORKED = ("nfs", "cifs", "smb", "lustre", "beegfs", "gpfs", "ceph", "afs", "9p", "fuse.sshfs", "fuse.glusterfs")


def check_slurm() -> Check:
    """Check Slurm and its MPI plug-in, inside and outside a job."""
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
    """Check the number of ranks per core of this machine."""
    finding = f"{cores} for {ranks} rank{'s' * (ranks > 1)} on this machine"
    if ranks > _CROWD * cores:
        advice = "ranks start slowly and share cores; a rank can host many devices, so start fewer ranks"
        return Check("warn", "cores", finding, advice)
    turns = ": they take turns, the result is the same" if ranks > cores else ""
    advice = "" if family(library) != "Open MPI" or launched() else oversubscribe()
    return Check("ok", "cores", finding + turns, f"for more ranks than cores: {advice}" if advice else "")


def check_shared_memory(ranks: int, cores: int) -> Check:
    """Check the shared memory; with too little, MPI hangs or crashes without a message."""
    try:
        free = shutil.disk_usage(SHARED).free / _MB
    except OSError:
        return Check("ok", "shared memory", "not known on this system")
    finding = f"{free:,.0f} MB free in {SHARED}, enough for {int(free / _SHARED_PER_RANK):,} ranks on this machine"
    if free < _SHARED_PER_RANK * max(ranks, cores, _USUAL_RANKS):
        advice = "with more, MPI hangs or crashes; give it more: docker run --shm-size=1g, mount -o remount,size=1g"
        return Check("warn", "shared memory", finding, advice)
    left = list(_left_over())
    if left:
        finding += f"; segments of ranks that were killed: {len(left)}, {sum(left):,.0f} MB"
        return Check("warn", "shared memory", finding, f"while no MPI program runs: rm {SHARED}/mpich_shm_*")
    return Check("ok", "shared memory", finding)


def _left_over() -> Iterator[float]:
    """Yield the MB of segments of this user that no process has mapped; runs that were not killed leave none."""
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        # The process may belong to another user, or have ended.
        with suppress(OSError):
            mapped.update(re.findall(r"\S*mpich_shm_\S+", maps.read_text(errors="replace")))
    for path in SHARED.glob("mpich_shm_*"):
        with suppress(OSError):
            status = path.stat()
            if str(path) not in mapped and status.st_uid == os.geteuid():
                yield status.st_blocks * 512 / _MB


def check_file_system() -> Check:
    """Check whether the current folder, or that of the program and its compiled kernels, is on a network."""
    try:
        folder = Path.cwd()
    except OSError:
        return Check("ok", "file system", "not known: the current folder cannot be used")
    places = {"current folder": folder, "program": Path(os.environ.get("NUMBA_CACHE_DIR", Path(__file__).parent))}
    networked = {name: kind for name, place in places.items() if (kind := _kind_of(place)).startswith(_NETWORKED)}
    if not networked:
        return Check(
            "ok", "file system", "disks of this machine; other hosts need the same program under the same path"
        )
    finding = ", ".join(f"{name} on {kind}" for name, kind in networked.items())
    slow = "if ranks start slowly: export NUMBA_CACHE_DIR=<a folder on a disk of each host>"
    return Check("ok", "file system", finding, slow if "program" in networked else "")


def _kind_of(place: Path) -> str:
    """Return the type of the file system that holds a path."""
    kind = "unknown"
    longest = -1
    with suppress(OSError):
        for line in MOUNTS.read_text("utf-8", "replace").splitlines():
            mount_point, file_system = line.split()[1:3]
            # /proc/mounts writes a space as its octal code.
            root = mount_point.replace("\\040", " ")
            if (place == Path(root) or Path(root) in place.parents) and len(root) >= longest:
                kind = file_system
                longest = len(root)
    return kind
