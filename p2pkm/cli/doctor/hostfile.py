"""Check of the host file of mpirun: its syntax, its host names, and a trial with a rank on each host."""

import re
import shutil
import socket
from pathlib import Path
from typing import NamedTuple

from p2pkm.cli.doctor.checks import SAME, Check, family, run_command, start_trial
from p2pkm.core.spec import read_count
from p2pkm.core.units import count

_CHECK = "host file"
# Lines of MPICH and Intel MPI: HOST:RANKS.
_COLON = re.compile(r"(\[[^\]]+\]|[^:\s]+)(?::(\S*))?(?:\s+\w+=\S*)*")
# Lines of Open MPI: HOST slots=RANKS, with keys in any order.
_SLOTS = re.compile(r"(\S+?)(?:\s+slots\s*=\s*(\S+)|\s+(?!slots\b)\w+\s*=\s*\S+)*")
_SSH = "ssh must reach each host without a question (ssh -o BatchMode=yes HOST true), and each needs the same program "
_SSH += "under the same path"
_LAUNCH_OPTIONS = {"Open MPI": ["--hostfile", "{file}", "--map-by", "node"], "": ["-f", "{file}", "-ppn", "1"]}


class _Host(NamedTuple):
    line: int
    name: str
    ranks: int


class WrongLine(Exception):  # noqa: N818 - a finding, not an error of the program
    """Error in a line, with its correction."""


def check_hosts(file: str) -> list[Check]:
    """Check a host file for the mpirun on PATH, and start a rank on each host."""
    launcher = shutil.which("mpirun") or shutil.which("mpiexec")
    if launcher is None:
        return [Check("fail", _CHECK, "no mpirun or mpiexec on PATH that could take it", SAME)]
    mpi_family = family(run_command([launcher, "--version"])[1])
    try:
        hosts = _read(Path(file), mpi_family)
    except OSError as error:
        return [
            Check("fail", _CHECK, f"{file} cannot be read: {error.strerror or error}", "use the host file of mpirun")
        ]
    except WrongLine as wrong:
        return [Check("fail", _CHECK, f"{file}, {wrong.args[0]}", wrong.args[1])]
    names = list(dict.fromkeys(host.name for host in hosts))
    ranks = count(sum(host.ranks for host in hosts), "rank")
    finding = f"{count(len(names), 'host')} for {ranks}: {', '.join(names)}"
    options = [text.format(file=file) for text in _LAUNCH_OPTIONS.get(mpi_family, _LAUNCH_OPTIONS[""])]
    outcome, printed = start_trial([launcher, *options, "-n", str(max(2, len(names)))])
    if outcome == "together":
        return [Check("ok", _CHECK, f"{finding}; a rank on each sees the others")]
    if outcome == "alone":
        return [Check("fail", _CHECK, f"{finding}; but each rank is alone (a world of size 1)", SAME)]
    return [Check("fail", _CHECK, f"{finding}; but ranks on them did not run ({printed})", _SSH)]


def _read(path: Path, mpi_family: str) -> list[_Host]:
    """Read the hosts of a file in the format of an MPI implementation, and resolve their names."""
    lines = path.read_text(errors="replace").splitlines()
    contents = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    hosts = [parse_line(number, line, mpi_family) for number, line in contents if line]
    if not hosts:
        raise WrongLine("no line names a host", "one host per line, as in launch/hostfile.example")
    for host in hosts:
        try:
            socket.getaddrinfo(host.name.strip("[]"), None)
        except (OSError, UnicodeError):
            raise WrongLine(
                f"line {host.line}: unknown host {host.name}", "correct the name, or use its address"
            ) from None
    return hosts


def parse_line(number: int, line: str, mpi_family: str) -> _Host:
    """Read the host and the number of ranks of a line."""
    open_mpi = mpi_family == "Open MPI"
    match = (_SLOTS if open_mpi else _COLON).fullmatch(line)
    slots = re.search(r"\sslots\s*=", line) is not None
    is_foreign = ":" in line and "[" not in line and not slots if open_mpi else slots
    if is_foreign or match is None:
        example = "HOST slots=8" if open_mpi else "HOST:8"
        raise WrongLine(f"line {number}: {line!r} is not in the format of {mpi_family}", f"write {example}")
    name, ranks = match.groups(default="1")
    size = read_count(ranks)
    if not size:
        raise WrongLine(f"line {number}: {ranks!r} ranks on {name}", "use a whole number of at least 1")
    return _Host(number, name, size)
