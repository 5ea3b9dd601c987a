"""Draw mutants and see whether the tests notice them; what was tried before in the same folder is not tried again."""

import argparse
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest

from tests.mutants.operators import Mutant, find_mutants
from tests.mutants.play import Player

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "network", "channel", "methods", "engine", "storage", "metrics")
TESTS = (*PACKAGES, "contract", "privacy")


def draw(number: int, seed: int) -> list[Mutant]:
    """Return so many mutants, the packages in turn, each without repetition; fewer of a seed are the first of more."""
    rng, stacks = Random(seed), {}
    for package in PACKAGES:
        files = sorted((ROOT / "p2pkm" / package).rglob("*.py"))
        found = [one for path in files for one in find_mutants(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
        stacks[package] = rng.sample(found, len(found))
    return [stacks[PACKAGES[i % len(PACKAGES)]][i // len(PACKAGES)] for i in range(number)]


def wilson(killed: int, number: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (E. B. Wilson, 1927)."""
    z2 = 1.96**2
    middle = (killed + z2 / 2) / (number + z2)
    half = (z2 * killed * (number - killed) / number + z2**2 / 4) ** 0.5 / (number + z2)
    return middle - half, middle + half


def report(rows: list[dict]) -> str:
    """Return the score per package and in all, and what survived."""
    counts = defaultdict(Counter)
    for row in rows:
        for name in (row["file"].split("/")[1], "all"):
            counts[name][row["ending"]] += 1
    lines = [
        "| package | mutants | killed | no quick test reaches it | share killed | 95 % |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in sorted(counts.items()):
        total = found.total()
        killed = total - found["survived"] - found["unreached"]
        low, high = wilson(killed, total)
        share = f"{killed / total:.0%} | {low:.0%} to {high:.0%}"
        lines.append(f"| {name} | {total} | {killed} | {found['unreached']} | {share} |")
    for row in rows:
        if row["ending"] in {"survived", "unreached"}:
            place = f"{row['number']} {row['ending']} {row['file']}:{row['line']}"
            lines.append(f"{place} {row['old']!r} -> {row['new']!r} ({row['tests']} of {row['reaching']} tests)")
    return "\n".join(lines)


def main() -> int:
    """Play the mutants that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--number", type=int, default=100, help="mutants (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    parser.add_argument("--folder", type=Path, default=Path("mutants"), help="where results are kept (mutants)")
    parser.add_argument("--seconds", type=float, default=20, help="of tests per mutant, quick ones first (20)")
    parser.add_argument("--mapped", action="store_true", help="take the map of the tests as it is, though not whole")
    parser.add_argument("--report", action="store_true", help="only say what was found so far")
    given = parser.parse_args()
    results = given.folder / f"mutants-{given.seed}.jsonl"
    if not given.report:
        given.folder.mkdir(exist_ok=True)
        reach, drawn = given.folder / "reach.jsonl", draw(given.number, given.seed)
        player = Player(ROOT, drawn, reach, results, given.seconds, mapped=given.mapped)
        words = [*(f"tests/{name}" for name in TESTS), "-q", "-p", "no:cacheprovider"]
        code = pytest.main([*words, f"--rootdir={ROOT}"], plugins=[player])
        if code:
            return int(code)
    rows = map(json.loads, results.read_text("utf-8").splitlines())
    print(report([row for row in rows if row["ending"] != "no mutant"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
