"""Mutation test of the test suite, with changes of one line: python -m tests.support.mutate [WORD ...].

Applies each mutation of tests/mutations.toml (those whose file or text has one of the words) to a copy of the tree, and
runs the default tests against it: first those that it names, then, while it survives, all, then the rest. Prints what
killed it, and at the end how many the default run and the whole suite kill.
"""

import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "mutations.toml"
DEFAULT = ("-n", "auto")
REST = ("-m", "(slow or mpi or hypothesis) and not system", "--hypothesis-profile", "full")


class Mutation(NamedTuple):
    """Text that occurs once in a file, its replacement, and the tests that should fail."""

    file: str
    old: str
    new: str
    tests: list[str]

    def apply(self, root: Path) -> str:
        """Change the file below `root` and return its original text."""
        before = (root / self.file).read_text("utf-8")
        (root / self.file).write_text(before.replace(self.old, self.new), "utf-8")
        return before


def read() -> list[Mutation]:
    """Read the list of mutations."""
    return [Mutation(**one) for one in tomllib.loads(LIST.read_text("utf-8"))["mutation"]]


def find_killer(root: Path, *words: str) -> str:
    """Return the first test that fails, "" if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    found = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return found[0][:150] if found else (done.stdout + done.stderr).strip()[-150:]


def main(words: list[str]) -> int:
    """Run the mutations; return 1 if one survives the complete suite."""
    chosen = [one for one in read() if not words or any(word in one.file + one.old for word in words)]
    counts = {"named": 0, "default": 0, "rest": 0, "nothing": 0}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "copy"
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in listed.splitlines():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
        for one in chosen:
            before = one.apply(root)
            stages = {"named": (*DEFAULT, *one.tests), "default": DEFAULT, "rest": REST}
            killers = ((stage, find_killer(root, *arguments)) for stage, arguments in stages.items())
            stage, killer = next(((stage, killer) for stage, killer in killers if killer), ("nothing", "SURVIVED"))
            counts[stage] += 1
            print(f"{one.file}: {one.old!r} -> {one.new!r}\n    {stage}: {killer}", flush=True)
            (root / one.file).write_text(before, "utf-8")
    killed = counts["named"] + counts["default"]
    print(
        f"{len(chosen)} mutations: the default run kills {killed}, the rest {counts['rest']}, {counts['nothing']} live"
    )
    return int(counts["nothing"] > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
