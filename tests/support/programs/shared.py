"""A run whose ranks share all arrays that rank 0 broadcasts, none, or none because one rank cannot open the file.

mpirun -n 3 python tests/support/programs/shared.py MODE; rank 0 prints the summary, and every rank a line of JSON.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from p2pkm.cli.main import main
from p2pkm.engine import run_job
from p2pkm.experiments import worker
from p2pkm.methods.init import registry
from p2pkm.network import mpi
from p2pkm.network.world import connect

# Number of devices: enough for several pages of memory in each array.
DEVICES = 2_000
WORDS = (
    "--devices", DEVICES, "--data", "blobs:clusters=3,points=2000", "--partition", "iid", "--clusters", "3",
    "--graph", "torus", "--algorithm", "gtvmin:coupling=strong", "--rounds", 3, "--no-baselines", "--no-plot",
    "--out", "none", "--format", "json",
)  # fmt: skip
# Bytes of a broadcast array from which it is shared.
MODES = {"all": 1, "none": 1 << 62, "refused": 1}
NAMES = ("indptr", "indices", "colors", "degrees")


def count_private(array):
    """Count the bytes of an array in memory that no other process has; None if it is not in a shared file."""
    first = array.__array_interface__["data"][0]
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            start, end = (int(part, 16) for part in words[0].split("-"))
            inside = start <= first < end
            if inside and "memfd:p2pkm" not in line:
                return None
        elif inside and words[0] == "Private_Dirty:":
            return 1024 * int(words[1])
    raise AssertionError("not mapped")


def run(mode):
    """Run the command; return what is printed, and the private bytes of each array of the graph while it is played."""
    world, private = connect(), {}
    play = run_job.play

    def play_and_count(rank, *rest):
        outcome = play(rank, *rest)
        topology = outcome.rank.run.topology
        arrays = {name: getattr(topology, name) for name in NAMES}
        arrays |= dict(zip(("parent", "layer"), vars(topology).get("spanning_tree", ()), strict=False))
        private.update({name: count_private(array) for name, array in arrays.items()})
        return outcome

    open_file = os.open

    def refuse(path, *rest, **options):
        if str(path).startswith("/proc/"):
            raise PermissionError
        return open_file(path, *rest, **options)

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(run_job, "play", play_and_count))
        stack.enter_context(patch.object(worker, "play", play_and_count))
        stack.enter_context(patch.object(mpi, "_LEAST", MODES[mode]))
        stack.enter_context(patch.object(registry, "LARGE", 0))
        if mode == "refused" and world.rank == world.size - 1:
            stack.enter_context(patch.object(os, "open", refuse))
        out = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        code = main([str(word) for word in WORDS])
    return code, out.getvalue(), private


def start():
    """Run once, and print what this rank found, in one piece."""
    code, text, private = run(sys.argv[1])
    summary = json.loads(text) if text else {}
    line = json.dumps({"rank": connect().rank, "code": code, "summary": summary, "private": private})
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    start()
