"""Slurm installation for tests: munged, slurmctld and two slurmd on this machine, ended after the tests."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_PARTS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo", "squeue", "scancel")
_LIMIT = 30.0  # seconds for a daemon to come up or to go
_SYSTEM = "/usr/sbin:/sbin"  # where daemons lie; not on everybody's PATH
_CONFIG = """
ClusterName={name}
FirstJobId={first}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmctldPidFile={place}/slurmctld.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdSpoolDir={place}/spool-%n
SlurmdPidFile={place}/slurmd-%n.pid
SlurmdLogFile={place}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=4000
PartitionName=main Nodes=ALL Default=YES State=UP
"""


def lacking() -> str:
    """Return the reason why Slurm cannot be started here, "" if it can."""
    if os.geteuid() != 0:
        return "not root: slurmd starts jobs of its users"
    missing = [name for name in _PARTS if _find(name) is None]
    return f"no {', '.join(missing)}: apt-get install slurm-wlm munge" if missing else ""


@contextlib.contextmanager
def two_nodes(place: Path) -> Iterator[dict[str, str]]:
    """Start Slurm with nodes n1 and n2 of two processors each; yield the environment variables of its users."""
    place.chmod(0o755)
    daemons = ("munge", "slurmctld", "slurmd-n1", "slurmd-n2")
    settings = {"SLURM_CONF": str(place / "slurm.conf")}
    try:
        _start(place, settings)
        yield settings
    finally:
        _cancel(settings)
        for name in reversed(daemons):
            _stop(place / f"{name}.pid")


def _start(place: Path, settings: dict[str, str]) -> None:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(3)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in sockets]
    (place / "state").mkdir()
    key = place / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    (place / "slurm.conf").write_text(
        _CONFIG.format(
            name=f"p2pkm{ports[0]}", first=ports[0], host=socket.gethostname(), place=place, ports=ports
        )  # MPICH names its shared memory after the job: a number used before meets what a killed job left behind
    )
    files = [f"--{kind}-file={place}/munge.{kind}" for kind in ("key", "pid", "log", "seed")]
    files.append(f"--socket={place}/munge.socket")
    _run(settings, "munged", "--force", *files)
    _run(settings, "slurmctld", "-c")
    for node in ("n1", "n2"):
        (place / f"spool-{node}").mkdir()
        _run(settings, "slurmd", "-N", node)
    until = time.monotonic() + _LIMIT
    while _run(settings, "sinfo", "--noheader", "--format=%t %D").split() != ["idle", "2"]:
        if time.monotonic() > until:
            logs = "\n".join(path.read_text()[-2000:] for path in place.glob("slurm*.log"))
            raise RuntimeError(f"the nodes of Slurm do not come up:\n{logs}")
        time.sleep(0.2)


def _cancel(settings: dict[str, str]) -> None:
    """End all jobs, which would outlive the daemons, and wait for their end."""
    with contextlib.suppress(RuntimeError):  # Slurm itself has not come up
        _run(settings, "scancel", "--full", "--user=root")
        until = time.monotonic() + _LIMIT
        while _run(settings, "squeue", "--noheader") and time.monotonic() < until:
            time.sleep(0.2)


def _run(settings: dict[str, str], name: str, *words: str) -> str:
    """Run a Slurm program and return its output."""
    done = subprocess.run(
        ["timeout", "-k", "2", "30", str(_find(name)), *words],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, env=os.environ | settings, check=False,
    )  # fmt: skip
    if done.returncode != 0 and name != "sinfo":
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM}")


def _stop(file: Path) -> None:
    """End the daemon of a pid file and wait for its end."""
    try:
        pid = int(file.read_text())
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError):
        return
    until = time.monotonic() + _LIMIT
    while _lives(pid):
        if time.monotonic() > until:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.1)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
