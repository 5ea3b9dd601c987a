"""Sample of the runs of tests/support/pairs.txt on the ranks that mpirun starts, one line of JSON each."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from p2pkm.cli.main import main
from tests.support.pairs import command_line, read

if __name__ == "__main__":
    sys.exit(max(main(command_line(run)) for run in read()[:: int(sys.argv[1])]))
