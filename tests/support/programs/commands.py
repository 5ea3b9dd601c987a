"""Command lines on the ranks that mpirun starts: for each one line of JSON, with exit code and output of rank 0.

mpirun -n 3 python tests/support/programs/commands.py '[["--rounds", "2"], ["run", "--graph", "star"]]'
"""

import contextlib
import io
import json
import sys

from p2pkm.cli.main import main
from p2pkm.network.world import connect

if __name__ == "__main__":
    for words in json.loads(sys.argv[1]):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
        if connect().rank == 0:
            print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
