"""Play random experiments, or, with --one, what a failure printed."""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from itertools import chain, combinations, count
from pathlib import Path

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
    parser.add_argument("--tally", type=Path, help=f"write to this file, every {_TOLD} experiments, what is printed last")
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


def _many(given: argparse.Namespace, place: Path) -> int:
    began, codes, seen, failures, cases = time.monotonic(), Counter(), Counter(), 0, []
    stops: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):  # the experiment in hand is played to its end, and counts
        signal.signal(number, lambda number, frame: stops.append(number))
    for experiment, case, faults in chain.from_iterable(play_one(seed, place) for seed in count(given.seed)):
        codes[case.ending.code] += 1
        if case.ending.code in {0, 5}:
            names = [*experiment.options, experiment.options.get("algorithm", "").partition(":")[0]]
            seen.update(chain(combinations(sorted(names), 2), combinations(sorted(names), 3)))
            cases.append(case)
        if given.ranks and len(cases) >= _CHUNK:
            faults += [("ranks", text) for text in on_ranks(cases, given.ranks)]
            cases = []
        for name in dict.fromkeys(name for name, _ in faults):
            failures += 1
            _tell(experiment, name, "; ".join(text for one, text in faults if one == name), place, given.log)
        if not given.ranks:
            shutil.rmtree(case.folder)
            cases = []
        ends = bool(stops) or codes.total() == given.number
        if ends or codes.total() % _TOLD == 0:
            pairs, seconds = sum(len(key) == 2 for key in seen), time.monotonic() - began
            tally = (
                f"{codes.total()} experiments, seeds {given.seed} to {experiment.seed}, in {seconds:.0f} s: "
                f"endings {dict(sorted(codes.items()))}, {pairs} pairs and {len(seen) - pairs} triples of options, "
                f"{failures} failures\n"
            )
            if given.tally:
                given.tally.write_text(tally, "utf-8")
        if ends:
            break
    print(tally, end="")
    return int(failures > 0)


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
