"""Command lines on the ranks that mpirun starts: for each one line of JSON, with exit code and output of rank 0.

With KEEP in the environment, the folder of a run is copied after each checkpoint.

mpirun -n 3 python tests/support/programs/commands.py '[["--rounds", "2"], ["run", "--graph", "star"]]'
"""

import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path

from p2pkm.cli.main import main
from p2pkm.network.world import connect
from p2pkm.storage import checkpoint

_put = checkpoint.CheckpointWriter.put


def _copying(self, outline, arrays):
    _put(self, outline, arrays)
    copies = Path(f"{self._lock.folder}.copies")
    copies.mkdir(exist_ok=True)
    shutil.copytree(self._lock.folder, copies / f"{len(list(copies.iterdir())):04}")


if __name__ == "__main__":
    if "KEEP" in os.environ:
        checkpoint.CheckpointWriter.put = _copying
    for words in json.loads(sys.argv[1]):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
        if connect().rank == 0:
            print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
