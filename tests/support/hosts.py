"""Two simulated hosts for tests: connected network namespaces with separate host names and shared memory."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_NET = "10.213.77"
_ENTER = """#!/usr/bin/env bash
# As ssh is called by mpirun: options, an address, and a command.
while [[ $1 == -* ]]; do shift; done
case $1 in
  {net}.1) host={hosts[0]} ;;
  {net}.2) host={hosts[1]} ;;
  *) echo "ssh: connect to host $1 port 22: No route to host" >&2; exit 255 ;;
esac
shift
command="hostname $host; mount -t tmpfs -o size=256m tmpfs /dev/shm; $*"
exec ip netns exec "$host" unshare --uts --ipc --mount bash -c "$command"
"""


class Hosts(NamedTuple):
    """Files with which programs are started on both hosts."""

    file: Path
    enter: Path

    def command(self, folder: Path, *words: object) -> list[str]:
        """Build the command that runs a program on the first host, in a folder."""
        return [str(self.enter), f"{_NET}.1", f"cd {shlex.quote(str(folder))}; exec {shlex.join(map(str, words))}"]

    def settings(self) -> dict[str, str]:
        """Return the environment variables with which the mpirun of MPICH reaches the hosts."""
        return {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(self.enter)}


def lacking() -> str:
    """Return the reason why this machine cannot simulate two hosts, "" if it can."""
    if os.geteuid() != 0:
        return "not root: network namespaces are for root"
    missing = [name for name in ("ip", "unshare", "mount", "hostname") if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install iproute2"
    name = f"p2pkm-{uuid.uuid4().hex[:6]}"
    if (tried := _run("ip", "netns", "add", name)).returncode == 0:
        _run("ip", "netns", "delete", name)
        return ""
    return f"ip netns add: {tried.stderr.strip()}"


@contextlib.contextmanager
def two_hosts(place: Path) -> Iterator[Hosts]:
    """Create the hosts, a host file with two ranks each, and a substitute for ssh; remove them at the end."""
    mark = uuid.uuid4().hex[:6]
    names = [f"host-{end}-{mark}" for end in "ab"]
    file, enter = place / "hosts", place / "enter"
    file.write_text(f"{_NET}.1:2\n{_NET}.2:2\n")
    enter.write_text(_ENTER.format(net=_NET, hosts=names))
    enter.chmod(0o755)
    try:
        _join(*names, mark)
        yield Hosts(file, enter)
    finally:
        for name in names:
            _remove(name)


def _join(near: str, far: str, mark: str) -> None:
    """Create two namespaces and connect them."""
    for name in (near, far):
        _must(f"ip netns add {name}")
    _must(f"ip link add p2a{mark} netns {near} type veth peer name p2b{mark} netns {far}")
    for number, (name, cable) in enumerate(((near, f"p2a{mark}"), (far, f"p2b{mark}")), 1):
        _must(f"ip -n {name} address add {_NET}.{number}/24 dev {cable}")
        for link in (cable, "lo"):
            _must(f"ip -n {name} link set {link} up")
    until = time.monotonic() + 10
    while any(" state UP " not in _must(f"ip -n {name} link show type veth") for name in (near, far)):
        if time.monotonic() > until:
            raise RuntimeError("the cable does not come up")
        time.sleep(0.02)  # MPI would look for the other host over links that are not up yet


def _remove(name: str) -> None:
    """Remove a namespace and end its processes."""
    for pid in _run("ip", "netns", "pids", name).stdout.split():
        with contextlib.suppress(OSError):
            os.kill(int(pid), signal.SIGKILL)
    _run("ip", "netns", "delete", name)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["timeout", "-k", "2", "20", *words], capture_output=True, text=True, check=False)


def _must(command: str) -> str:
    done = _run(*command.split())
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout
