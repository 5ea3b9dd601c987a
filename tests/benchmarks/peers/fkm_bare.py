"""FKM by no simulator: a loop over the NumPy steps that the peers are given. Run by `tests.benchmarks.peers.fkm`."""

import sys

from tests.benchmarks.peers.fkm_twin import Task, play, step


def main() -> None:
    """Play the rounds."""
    task = Task.read(sys.argv[1])
    play(task, lambda model, t: [step(points, model) for points in task.points], ("numpy",))


if __name__ == "__main__":
    main()
