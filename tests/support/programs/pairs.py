"""Sample of the runs of tests/support/pairs.txt on the ranks that mpirun starts, one line of JSON each.

In every second run, rank 0 has no device.
"""

import sys
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import p2pkm.experiments.deal
from p2pkm.cli.main import main
from p2pkm.core.termination import WITHOUT_CENTROIDS
from tests.support.pairs import command_line, read
from tests.support.programs.placement import reverse


def run(number, words):
    if number % 2 == 0:
        return main(words)
    with patch.object(p2pkm.experiments.deal, "choose", reverse):
        return main(words)


if __name__ == "__main__":
    codes = {run(number, command_line(words)) for number, words in enumerate(read()[:: int(sys.argv[1])])}
    # Two rounds are too few for the centroids of some methods.
    sys.exit(max(codes - {WITHOUT_CENTROIDS}, default=0))
