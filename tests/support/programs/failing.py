"""Start the command line or a script with a fault built in; run by test_failures.py under mpirun.

    FAULT=update RANK=1 mpirun -n 3 python tests/support/programs/failing.py module --graph ring ...

The first word says how to start: `module` is ``python -m p2pkm``, `console` the installed script p2pkm, `script` a
program that calls `p2pkm.simulate`, and `threads` only shows the settings of this rank.
"""

import os
import runpy
import sys
import time
from pathlib import Path

import p2pkm
import p2pkm.experiments.run
import topologies
from p2pkm.core.mpi_environment import expected_rank
from p2pkm.methods.peer.gtvmin import GTVMin


def _fail(*arguments, **options):
    raise RuntimeError("a broken kernel")


def _wait(*arguments, **options):
    Path("waiting").touch()
    time.sleep(30)


def break_something(what):
    """Install the fault."""
    if what == "update":
        GTVMin.update = _fail
    elif what == "init":
        GTVMin.initial_state = _fail
    elif what == "prepare":
        p2pkm.experiments.run.prepare = _fail
    elif what == "wait":
        p2pkm.experiments.run.prepare = _wait


def simulate():
    """Run a small experiment as a script would."""
    points, labels = p2pkm.grid16(points=5)
    shards = p2pkm.Shards.deal(points, p2pkm.partition.iid(len(points), 4), devices=4, labels=labels)
    p2pkm.simulate(p2pkm.GTVMin(16), topologies.ring(4), shards)


def show_threads():
    """Print the settings after the command line has set them."""
    from p2pkm.cli.main import main

    main(["--out", "none", "--data", "grid16:points=5", "--rounds", "1", "--quiet", "--no-plot"])
    import numba

    names = ("MPIR_CVAR_ENABLE_HEAVY_YIELD", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    # As one write: the ranks share the output.
    words = ["SETTINGS", *(os.environ.get(name) for name in names), numba.config.NUMBA_NUM_THREADS]
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if expected_rank() == int(os.environ.get("RANK", "0")):
        break_something(os.environ.get("FAULT"))
    way = sys.argv.pop(1)
    if way == "module":
        runpy.run_module("p2pkm", run_name="__main__", alter_sys=True)
    elif way == "console":
        sys.argv[0] = str(Path(sys.executable).with_name("p2pkm"))
        runpy.run_path(sys.argv[0], run_name="__main__")
    elif way == "script":
        simulate()
    else:
        show_threads()
