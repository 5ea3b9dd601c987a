"""Draw mutants and see whether the tests notice them; what was tried before in the same folder is not tried again."""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.mutants.operators import Mutant, find_mutants
from tests.mutants.play import Player, read_rows

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "network", "channel", "methods", "engine", "storage", "metrics")
FOLDERS = (*PACKAGES, "contract", "privacy", "experiments", "cli")
TESTS = (*(f"tests/{name}" for name in FOLDERS), "tests/test_estimator.py")
WORDS = ("-q", "--tb=native", "--assert=plain", "-p", "no:cacheprovider", f"--rootdir={ROOT}")


def draw(number: int, seed: int, packages: Sequence[str] = PACKAGES) -> dict[str, Mutant]:
    """Return so many mutants by their names, the packages in turn, each without repetition.

    Fewer of a seed are the first of more. Which are drawn depends on the text of each mutant alone, so that edits of
    the program take those away which they change, and leave the others.
    """
    stacks = []
    for package in packages:
        files = sorted((ROOT / ("" if package == "topologies" else "p2pkm") / package).rglob("*.py"))
        found = [one for path in files for one in find_mutants(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
        stacks.append(sorted((one.rank(seed), one) for one in found))
    turns = (stacks[i % len(stacks)][i // len(stacks)] for i in range(number))
    return dict(turns)


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
        for name in (row["file"].removeprefix("p2pkm/").split("/")[0], "all"):
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
            place = f"{row['key']} {row['ending']} {row['file']}:{row['line']} {row['function']}"
            lines.append(f"{place}: {row['before']} -> {row['after']} ({row['tests']} of {row['reaching']} tests)")
    return "\n".join(lines)


def main() -> int:
    """Play the mutants that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--number", type=int, default=100, help="mutants (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    parser.add_argument("--packages", default=",".join(PACKAGES), help="to draw from, by comma (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("mutants"), help="where results are kept (mutants)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of tests per mutant, at first (0.3)")
    parser.add_argument("--mapped", action="store_true", help="take the map of the tests as it is, though not whole")
    parser.add_argument("--together", action="store_true", help="then ask all tests about those that are alive")
    parser.add_argument("--report", action="store_true", help="only say what was found so far")
    parser.add_argument("--only", default="", help="names of mutants: ask all of the tests about them, keep no result")
    parser.add_argument("tests", nargs="*", default=TESTS, help="words for pytest (the tests of these packages)")
    given = parser.parse_args()
    results = given.folder / f"mutants-{given.seed}.jsonl"
    if not given.report:
        given.folder.mkdir(exist_ok=True)
        drawn = draw(given.number, given.seed, given.packages.split(","))
        if given.only:
            drawn = {key: drawn[key] for key in given.only.split(",")}
        player = Player(
            ROOT, drawn, given.folder, results, given.seconds,
            mapped=given.mapped, together=given.together, everything=bool(given.only),
        )  # fmt: skip
        with TemporaryDirectory() as folder:
            code = pytest.main([*given.tests, *WORDS, f"--basetemp={folder}/tests"], plugins=[player])
        if code or given.only:
            return int(code)
    rows = read_rows(results, "key").values()
    print(report([row for row in rows if row["ending"] != "no mutant"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
