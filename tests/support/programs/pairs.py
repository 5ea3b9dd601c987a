"""Sample of the runs of tests/support/pairs.txt on the ranks that mpirun starts, one line of JSON each."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from p2pkm.cli.main import main
from p2pkm.core.termination import WITHOUT_CENTROIDS
from tests.support.pairs import command_line, read

if __name__ == "__main__":
    codes = {main(command_line(run)) for run in read()[:: int(sys.argv[1])]}
    # Two rounds are too few for the centroids of some methods.
    sys.exit(max(codes - {WITHOUT_CENTROIDS}, default=0))
