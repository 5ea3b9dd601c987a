"""The file that names the hosts for mpirun: its words, its names, and whether a rank on each host sees the others."""

import re
import shutil
import socket
from pathlib import Path
from typing import NamedTuple

from p2pkm.cli.doctor.checks import SAME, Check, family, run_command, start_trial
from p2pkm.core.spec import read_count
from p2pkm.core.units import count

_CHECK = "host file"
_COLON = re.compile(r"(\[[^\]]+\]|[^:\s]+)(?::(\S*))?(?:\s+\w+=\S*)*")  # MPICH, Intel MPI
_SLOTS = re.compile(r"(\S+?)(?:\s+slots\s*=\s*(\S+)|\s+(?!slots\b)\w+\s*=\s*\S+)*")  # Open MPI, in any order
_SSH = "ssh must reach each host without a question (ssh -o BatchMode=yes HOST true), and each needs the same program "
_SSH += "under the same path"
_WAYS = {"Open MPI": ["--hostfile", "{file}", "--map-by", "node"], "": ["-f", "{file}", "-ppn", "1"]}


class _Host(NamedTuple):
    line: int
    name: str
    ranks: int


class WrongLine(Exception):  # noqa: N818 - a finding, not an error of the program
    """Fault of a line, and its remedy."""


def check_hosts(file: str) -> list[Check]:
    """Return what is wrong with a host file for the mpirun on PATH; a trial starts a rank on each host."""
    launcher = shutil.which("mpirun") or shutil.which("mpiexec")
    if launcher is None:
        return [Check("fail", _CHECK, "no mpirun or mpiexec on PATH that could take it", SAME)]
    whose = family(run_command([launcher, "--version"])[1])
    try:
        hosts = _read(Path(file), whose)
    except OSError as error:
        return [Check("fail", _CHECK, f"{file} cannot be read: {error.strerror or error}", "give mpirun's own file")]
    except WrongLine as wrong:
        return [Check("fail", _CHECK, f"{file}, {wrong.args[0]}", wrong.args[1])]
    names = list(dict.fromkeys(host.name for host in hosts))
    ranks = count(sum(host.ranks for host in hosts), "rank")
    found = f"{count(len(names), 'host')} for {ranks}: {', '.join(names)}"
    how = [word.format(file=file) for word in _WAYS.get(whose, _WAYS[""])]
    ended, printed = start_trial([launcher, *how, "-n", str(max(2, len(names)))])
    if ended == "together":
        return [Check("ok", _CHECK, f"{found}; a rank on each sees the others")]
    if ended == "alone":
        return [Check("fail", _CHECK, f"{found}; but each rank is alone (a world of size 1)", SAME)]
    return [Check("fail", _CHECK, f"{found}; but ranks on them did not run ({printed})", _SSH)]


def _read(path: Path, whose: str) -> list[_Host]:
    """Return the hosts of a file that suits this MPI, all of them known."""
    lines = path.read_text(errors="replace").splitlines()
    words = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    hosts = [parse_line(number, line, whose) for number, line in words if line]
    if not hosts:
        raise WrongLine("no line names a host", "one host per line, as in launch/hostfile.example")
    for host in hosts:
        try:
            socket.getaddrinfo(host.name.strip("[]"), None)
        except (OSError, UnicodeError):
            raise WrongLine(
                f"line {host.line}: there is no host {host.name}", "correct the name, or give its address"
            ) from None
    return hosts


def parse_line(number: int, line: str, whose: str) -> _Host:
    """Read the host of a line, and its number of ranks."""
    open_mpi = whose == "Open MPI"
    found = (_SLOTS if open_mpi else _COLON).fullmatch(line)
    slots = re.search(r"\sslots\s*=", line) is not None
    foreign = ":" in line and "[" not in line and not slots if open_mpi else slots
    if foreign or found is None:
        right = "HOST slots=8" if open_mpi else "HOST:8"
        raise WrongLine(f"line {number}: {line!r} is not how {whose} writes a host and its ranks", f"write {right}")
    name, ranks = found.groups(default="1")
    size = read_count(ranks)
    if not size:
        raise WrongLine(f"line {number}: {ranks!r} ranks on {name}", "give a whole number of at least 1")
    return _Host(number, name, size)
