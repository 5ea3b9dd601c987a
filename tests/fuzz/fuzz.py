"""Give every parser nonsense for a while: ``python -m tests.fuzz.fuzz --seconds 3600``.

A part of the cases are mutations of what parsers take; where atheris is installed, it leads the others through branches
that they have not seen. The last results stand in RESULTS-fuzz.md. Every case that raises anything but a P2PKMError,
takes more than two seconds of computing, or raises the peak of the memory by more than 256 MB, is a fault, and is shown
with its bytes.
"""

import argparse
import importlib.util
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from tests.fuzz.parsers import Parser, parsers, run

RESULTS = Path(__file__).with_name("RESULTS-fuzz.md")
SLOW = 2  # seconds of computing that a case may take
LARGE = 256  # megabytes by which a case may raise the peak of the memory
ROOM = 8 << 30  # bytes of addresses for all: whatever a case asks for, the machine goes on
MOST_FAULTS = 20
WORDS = (
    r"\r\n|,|;|\t|:|=|-|.|...|'|\"|{|[|(|<|&|#|_|nan|inf|-inf|1e400|1e-400|-1|0|1|none|true|null|__class__|"
    r"(1000000000, 2)|\x00|\xff|\xef\xbb\xbf|\xd9\xa3|\xd1\x96|\xed\xa0\x80|<U1000000|PK\x01\x02|<!DOCTYPE a>|%s|../|"
    r"/dev/zero|\x1b[31m"
)
TOKENS = [word.encode().decode("unicode_escape").encode("latin-1") for word in WORDS.split("|")]
TOKENS += [b"", b"9" * 20, b"9" * 5000, b"[" * 3000, b"<a>" * 500, b"|O", b"|V0"]


class Outcome(NamedTuple):
    """What became of one parser."""

    name: str
    cases: int
    taken: int
    faults: list[str]
    way: str


def mutate(draw: random.Random, seeds: list[bytes]) -> bytes:
    """Return a seed with a few changes, or bytes that nobody thought of."""
    data = bytearray(draw.choice(seeds) if draw.random() < 0.95 else draw.randbytes(draw.randrange(64)))
    for _ in range(draw.choice((1, 1, 2, 3, 8))):
        at, length = draw.randrange(len(data) + 1), draw.choice((1, 1, 2, 8, 40))
        kind = draw.randrange(7)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            data[at : at + length] = draw.randbytes(draw.randrange(length + 1))
        elif kind == 2:
            data[at:at] = draw.choice(TOKENS)
        elif kind == 3:
            data[at : at + length] = draw.choice(TOKENS)
        elif kind == 4:
            del data[at:]
        elif kind == 5:
            data[at:at] = data[at : at + length] * draw.choice((1, 2, 50))
        else:
            other = draw.choice(seeds)
            data[at : at + length] = other[draw.randrange(len(other) + 1) :][:length]
    return bytes(data[:1_000_000])


class TooSlowError(BaseException):
    """A case that takes too long; no parser may swallow it."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooSlowError(f"more than {SLOW} seconds of computing")


def _find_fault(parser: Parser, data: bytes) -> str | bool:
    """Return what is wrong with a case in words, else whether the parser took it."""
    signal.setitimer(signal.ITIMER_PROF, SLOW)
    before = _peak()
    try:
        with warnings.catch_warnings(action="ignore"):
            taken = run(parser, data)
        more = _peak() - before
        return taken if more <= LARGE else f"{more} MB of memory from {data[:300]!r}"
    except (Exception, TooSlowError) as error:
        return f"{type(error).__name__}: {error} from {data[:300]!r}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def shake(name: str, parser: Parser, seeds: list[bytes], until: Callable[[int], bool], seed: int) -> Outcome:
    """Give one parser mutations until it is enough."""
    draw, cases, taken, faults = random.Random(f"{name} {seed}"), 0, 0, []
    before = signal.signal(signal.SIGPROF, _stop)
    try:
        while not until(cases) and len(faults) < MOST_FAULTS:
            found = _find_fault(parser, mutate(draw, seeds))
            cases, taken = cases + 1, taken + (found is True)
            faults += [found] if isinstance(found, str) else []
    finally:
        signal.signal(signal.SIGPROF, before)
    return Outcome(name, cases, taken, faults, "mutation")


def lead_atheris(name: str, seconds: int) -> Outcome:
    """Let atheris look for cases in a process of its own, which ends with what it says."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.fuzz.guided", name, folder, f"-max_total_time={seconds}",
                   "-max_len=4096", f"-timeout={5 * SLOW}", "-rss_limit_mb=4096"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    counted = re.findall(r"Done (\d+) runs|^#(\d+)", done.stderr, re.MULTILINE)
    cases = max((int(one or other) for one, other in counted), default=0)
    faults = [] if done.returncode == 0 else [done.stderr[-1500:]]
    return Outcome(name, cases, 0, faults, "atheris")


def write(outcomes: list[Outcome], seconds: float) -> None:
    """Write the last results."""
    total, faults = sum(one.cases for one in outcomes), sum(len(one.faults) for one in outcomes)
    lines = [
        "# Fuzzing, last results\n",
        f"`python -m tests.fuzz.fuzz`, {seconds:.0f} s on {time.strftime('%Y-%m-%d')}, Python "
        f"{sys.version.split()[0]}: {total:,} cases, {faults} faults.\n",
        "| parser | way | cases | taken | faults |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.name} | {one.way} | {one.cases:,} | {one.taken or '-'} | {len(one.faults)} |" for one in outcomes
    ]
    RESULTS.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> int:
    """Share the time among the parsers; return 1 if there are faults."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--seconds", type=float, default=3600.0)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--only", default="", help="name of one parser")
    asked.add_argument("--no-atheris", action="store_true")
    given = asked.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))
    guided = importlib.util.find_spec("atheris") is not None and not given.no_atheris
    began, outcomes = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        known = {name: one for name, one in parsers(Path(folder)).items() if given.only in ("", name)}
        share = given.seconds / len(known)
        for name, (parser, seeds) in known.items():
            end = time.monotonic() + share * (0.6 if guided else 1.0)
            outcomes.append(shake(name, parser, seeds, lambda _, end=end: time.monotonic() > end, given.seed))
            if guided:
                outcomes.append(lead_atheris(name, max(1, int(0.4 * share))))
            for one in outcomes[-2 if guided else -1 :]:
                print(f"{one.name:12} {one.way:9} {one.cases:10,} cases, {len(one.faults)} faults", flush=True)
                print("".join(f"  {fault}\n" for fault in one.faults), end="", flush=True)
    if not given.only:
        write(outcomes, time.monotonic() - began)
    return int(any(one.faults for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
