"""Play random experiments, or, with --one, what a failure printed."""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from itertools import chain, combinations, count
from pathlib import Path

from p2pkm.experiments import run, simulate
from tests.swarm.checks import CHECKS, find_faults, play_one
from tests.swarm.experiments import Experiment
from tests.swarm.ranks import on_ranks
from tests.swarm.shrink import shrink

_CHUNK = 40  # experiments that share one mpirun
_TOLD = 200  # experiments between two writings of the tally


def main() -> int:
    """Play the experiments that the command line asks for; return 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.swarm", description=__doc__)
    parser.add_argument("--number", type=int, default=200, help="experiments (200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one; the others follow (0)")
    parser.add_argument("--ranks", type=int, default=0, help="repeat all that ran on so many MPI ranks (0: do not)")
    parser.add_argument("--one", help="play this experiment, the JSON that a failure prints, with all checks")
    parser.add_argument("--check", choices=[*CHECKS, "ranks"], help="this check alone")
    parser.add_argument("--log", type=Path, help="append failures to this file")
    parser.add_argument("--tally", type=Path, help=f"write what is printed last to this file, too, every {_TOLD}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if given.one:
            return _one(Experiment.of(given.one), given, place)
        return _many(given, place)


def _one(experiment: Experiment, given: argparse.Namespace, place: Path) -> int:
    names = [given.check] if given.check else [name for name in CHECKS] + ["ranks"] * bool(given.ranks)
    faults = []
    for name in names:
        if name == "ranks":
            case, _ = find_faults(experiment, place / "one", "ending")
            faults += [("ranks", text) for text in on_ranks([case], given.ranks or 3)]
        else:
            faults += find_faults(experiment, place / "one", name)[1]
    for name, text in faults:
        print(f"{name}: {text}")
    print("fails" if faults else "holds")
    return int(bool(faults))


class Tally:
    """Counts of what was played."""

    def __init__(self, seed: int) -> None:
        self.first = self.last = seed
        self.began, self.failures = time.monotonic(), 0
        self.codes: Counter[int] = Counter()
        self.seen: set[tuple[str, ...]] = set()

    def add(self, experiment: Experiment, code: int) -> None:
        """Count an experiment and, if it ran, the pairs and triples of its options."""
        self.last = experiment.seed
        self.codes[code] += 1
        if code in {0, 5}:
            names = sorted([*experiment.options, experiment.options.get("algorithm", "").partition(":")[0]])
            self.seen.update(chain(combinations(names, 2), combinations(names, 3)))

    def __str__(self) -> str:
        seconds, number = time.monotonic() - self.began, self.codes.total()
        pairs = sum(len(key) == 2 for key in self.seen)
        return (
            f"{number} experiments, seeds {self.first} to {self.last}, in {seconds:.0f} s ({number / seconds:.1f} /s): "
            f"endings {dict(sorted(self.codes.items()))}, {pairs} pairs and {len(self.seen) - pairs} triples of "
            f"options, {self.failures} failures"
        )


def _listen() -> list[int]:
    """Return where signals that ask for an end are noted; the experiment in hand is played on, and counts."""
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: asked.append(number))
    for module in (run, simulate):
        module.asked_to_stop = lambda: nullcontext(lambda: 0)  # its runs do not look
    return asked


def _many(given: argparse.Namespace, place: Path) -> int:
    tally, cases = Tally(given.seed), []
    asked = _listen()
    for experiment, case, faults in chain.from_iterable(play_one(seed, place) for seed in count(given.seed)):
        tally.add(experiment, case.ending.code)
        cases += [case] * (given.ranks > 0 and case.ending.code in {0, 5})
        if len(cases) == _CHUNK:
            faults += [("ranks", text) for text in on_ranks(cases, given.ranks)]
            cases = []
        for name in dict.fromkeys(name for name, _ in faults):
            tally.failures += 1
            _tell(experiment, name, "; ".join(text for one, text in faults if one == name), place, given.log)
        if not given.ranks:
            shutil.rmtree(case.folder)
        ends = bool(asked) or tally.codes.total() == given.number
        if given.tally and (ends or tally.codes.total() % _TOLD == 0):
            given.tally.write_text(f"{tally}\n", "utf-8")
        if ends:
            break
    print(tally)
    return int(tally.failures > 0)


def _tell(experiment: Experiment, name: str, text: str, place: Path, log: Path | None) -> None:
    """Print what failed and the one command that repeats it, on as small an experiment as was found."""
    small = experiment if name == "ranks" else shrink(experiment, name, place / "shrunk")
    line = f"FAILS {name}: {text}\n  python -m tests.swarm --check {name} --one '{small.text()}'"
    print(line, flush=True)
    if log:
        with log.open("a") as file:
            file.write(json.dumps({"seed": experiment.seed, "check": name, "text": text, "small": small.text()}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
