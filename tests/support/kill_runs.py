"""Runs that are killed with SIGKILL, as a program or one of its ranks, and then resumed."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from p2pkm.storage.checkpoint import load_newest
from tests.support.methods import METHODS, spell
from tests.support.resume import difference
from tests.support.run_cli import environment, ranks, there

SMALL = ("--data", "grid16:points=6", "--devices", "8", "-k", "4", "--partition", "iid", "--no-plot", "--no-baselines",
         "--quiet", "--checkpoint-every", "1", "--record-every", "1", "--rounds", "40")  # fmt: skip
PEERS = ("gtvmin", "consensus", "pushsum", "tracking", "admm", "gossip", "dgc", "gossip-sum", "epidemic")
OTHERS = sorted(set(METHODS) - set(PEERS))
RUNS = {
    **{name: ("--algorithm", name, "--init", "leader") for name in PEERS},
    **{name: ("--algorithm", spell(name)) for name in OTHERS},
    "recipe global": (),
    "recipe groups": ("--groups", "--graph", "complete"),
    "d2-sampling": ("--init", "d2-sampling"),
    "tree-summaries": ("--init", "tree-summaries:candidates=3", "--link-model", "wan"),
    "scaled": ("--scale", "standard", "--init", "bounding-box"),
    "async": ("--schedule", "async", "--init", "local", "--scale", "minmax"),
    "changing": ("--graph", "exponential:base=2", "--algorithm", "pushsum", "--init", "leader"),
    "struck": ("--faults", "loss=0.2,delay=0.3,max_delay=3,dropout=0.05,straggler=0.05", "--init", "local"),
    "parted": ("--faults", "partition=5-15,link_failure=0.05", "--algorithm", "tracking", "--init", "leader"),
    "struck everywhere": ("--faults", "loss=0.2,delay=0.2,dropout=0.05,stages=all"),
    "struck server": ("--faults", "dropout=0.1,server=0.1,delay=0.2", "--algorithm", "fkm"),
    "struck liars": ("--faults", "loss=0.2,delay=0.2", "--byzantine", "2:kind=drift,stages=all", "--algorithm",
                     "consensus", "--init", "local", "--min-cluster-size", "3"),
    "liars in groups": ("--byzantine", "2:kind=nan", "--robust", "saturate", "--groups", "--graph",
                        "complete"),
    "withheld": ("--min-cluster-size", "4"),
    "events": ("--schedule", "async", "--link-model", "lora", "--init", "local"),
}  # fmt: skip


class Outcome(NamedTuple):
    """Outcome of killing and resuming a run.

    Attributes
    ----------
    name : str
        Name of the run.
    count, rank : int
        Number of ranks, and the rank that was killed.
    records : int
        Number of records after which it was killed.
    lost : int
        Records after the last checkpoint.
    fault : str
        Difference to the uninterrupted run, "" if there is none.
    """

    name: str
    count: int
    rank: int
    records: int
    lost: int
    fault: str


def start(words, count):
    """Start the program on `count` ranks (1: without a launcher)."""
    before = [sys.executable] if count == 1 else ranks(count)
    return subprocess.Popen(
        [*before, "-m", "p2pkm", *words], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


def lines(folder):
    """Read the complete lines of rounds.jsonl, each of which must be JSON."""
    try:
        text = (folder / "rounds.jsonl").read_text()
    except FileNotFoundError:
        return []
    records = [json.loads(line) for line in text.split("\n")[:-1]]
    return [
        {name: record[name] for name in record if name != "virtual_seconds"} for record in records
    ]  # known at the end


def _children(pid):
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def family(pid):
    """List the ids of a process and of all its descendants."""
    return [pid, *(one for child in _children(pid) for one in family(child))]


def members(process):
    """Map ranks of a program to process ids."""
    found = {}
    for pid in family(process.pid):
        words = _words(pid, "environ")
        rank = next((int(word[9:]) for word in words if word.startswith(b"PMI_RANK=")), None)
        if rank is not None and b"p2pkm" in _words(pid, "cmdline"):
            found[rank] = pid
    return found


def launcher(process):
    """Return the process id of mpirun, which may be a child of timeout."""
    timed = _words(process.pid, "cmdline")[0].endswith(b"timeout")
    return _children(process.pid)[0] if timed else process.pid


def _words(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def end(process):
    """End a program and all its descendants."""
    for pid in family(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def kill_at(words, folder, count, records, rank):
    """Run until a number of records is written, then kill one rank, unless the run has ended before."""
    process = start([*words, "--out", str(folder)], count)
    try:
        limit = time.monotonic() + 60
        while process.poll() is None and len(lines(folder)) < records and time.monotonic() < limit:
            time.sleep(0.002)
        if process.poll() is None:
            os.kill(process.pid if count == 1 else members(process)[rank], signal.SIGKILL)
        process.wait(30)
    finally:
        end(process)


def one(name, count, draw, references, folder):
    """Kill a run at a random moment, resume it, and compare it with an uninterrupted run."""
    endless = () if {name, *RUNS[name]} & set(OTHERS) else ("--tol", "0")
    words = (*SMALL, *RUNS[name], *endless)
    if name not in references:
        references[name] = folder.parent / f"{folder.name}-whole"
        done = there(sys.executable, "-m", "p2pkm", *words, "--out", references[name])
        assert done.code == 0, done.err
    whole, rank = references[name], draw.randrange(count)
    records = draw.randint(1, len(lines(whole)))
    kill_at(words, folder, count, records, rank)
    there_are, notes = lines(folder), []
    saved = load_newest(folder, notes.append)
    held = len(saved.outline["parts"]["monitor"]["parts"]["trace"]["value"]) if saved else 0
    lost = len(there_are) - held if (folder / "checkpoint").is_dir() else 0
    before = [sys.executable] if draw.randrange(2) else ranks(3)
    ending = there(*before, "-m", "p2pkm", "resume", folder, "-q")
    fault = f"code {ending.code}: {ending.err[-300:]}" if ending.code else difference(whole, folder)
    if there_are != lines(whole)[: len(there_are)]:
        fault += " records before the kill differ"
    shutil.rmtree(folder)
    return Outcome(name, count, rank, records, lost, fault + " ".join(notes))


def kill_some(number, folder, seed=0):
    """Yield the outcomes of `number` kills: all runs in turn, every second one on 3 ranks."""
    draw, references, names = random.Random(seed), {}, list(RUNS)
    for i in range(number):
        name = names[i % len(names)] if number >= len(names) else draw.choice(names)
        yield one(name, 3 if i % 2 else 1, draw, references, folder / f"run-{i}")
