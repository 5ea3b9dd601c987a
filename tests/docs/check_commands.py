"""Checker of the commands of the measured values in docs/results: runs those of a random sample of values.

    python -m tests.docs.check_commands [--number 50] [--seed N] [--seconds 60]

Every command has to end with exit code 0, or to be still running after the time limit, when it is stopped: many take
hours. Commands run in a temporary folder with links to the files of the repository. Of commands that ended, the checker
also counts the values that they printed; it does not fail where one is missing, because values of another machine or
other library versions may differ, and because some values are computed from what is printed.
"""

import argparse
import importlib.util
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.docs.check_blocks import DOCS, ROOT, parse_words

# Words in the place of a value, such as METHOD or N.
_PLACEHOLDER = re.compile(r"(?:^|[=:,.])[A-Z]+(?:$|[=:,])")
_ASSIGNMENT = re.compile(r"^[A-Z_]+=\S+$")


def read_rows() -> list[Any]:
    """Read all measured values, see docs/measured.py."""
    spec = importlib.util.spec_from_file_location("measured", DOCS / "measured.py")
    assert spec is not None and spec.loader is not None
    measured = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(measured)
    return [row for rows in measured.read_results().values() for row in rows]


def find_problem(command: str) -> str:
    """Return why a command cannot be executed as written, without running it; an empty text if it can.

    Options of p2pkm are parsed, files and modules of Python must exist, and the output folder must not.
    """
    splitter = shlex.shlex(command, posix=True, punctuation_chars="();<>|&")
    splitter.whitespace_split = True
    try:
        words = list(splitter)
    except ValueError as error:
        return str(error)
    if wrong := [word for word in words if "..." in word or set(word) & set("()")]:
        return f"not a word of a command: {wrong[0]}"
    parts: list[list[str]] = [[]]
    for word, previous in zip(words, ["", *words], strict=False):
        if word in ("&&", "|"):
            parts.append([])
        # What follows > is a file.
        elif ">" not in (word, previous):
            parts[-1].append(word)
    return next((problem for part in parts if (problem := _problem_of_part(part))), "")


def _problem_of_part(words: list[str]) -> str:
    """Return why a simple command cannot be executed."""
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    if not words:
        return "no command"
    if words[0] == "sed":
        return ""
    if words[0] == "mpirun":
        if words[1:2] != ["-n"] or len(words) < 4 or not words[2].isdigit():
            return "mpirun without -n and a number of ranks"
        return _problem_of_part(words[3:])
    if words[:3] == ["python", "-m", "p2pkm"]:
        words = words[2:]
    if words[0] == "p2pkm":
        wrong = [word for word in words if _PLACEHOLDER.search(word)]
        if wrong:
            return f"placeholder: {wrong[0]}"
        for option, value in pairwise(words):
            if option == "--out" and (ROOT / value).exists():
                return f"--out {value} is not empty: the repository has {value}"
        return parse_words(words[1:])
    if words[:2] == ["python", "-m"] and len(words) > 2:
        return "" if importlib.util.find_spec(words[2]) else f"no module {words[2]}"
    if words[0] == "python" and len(words) > 1:
        return "" if (ROOT / words[1]).is_file() else f"no file {words[1]}"
    return f"unknown program {words[0]}"


def run(command: str, seconds: float) -> tuple[int | None, str]:
    """Run a command for at most some seconds; return its exit code, None if it was still running, and its output."""
    with tempfile.TemporaryDirectory() as folder:
        for path in ROOT.iterdir():
            if not path.name.startswith("."):
                (Path(folder) / path.name).symlink_to(path)
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        # In a session of its own, so that all its processes can be stopped together.
        process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, start_new_session=True,
            env=os.environ | {"PATH": programs, "PYTHONPATH": folder, "MPLBACKEND": "Agg"},
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
        return process.returncode, output


def main() -> int:
    """Run the commands of a sample; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=50, help="values in the sample")
    parser.add_argument("--seed", type=int, help="seed of the sample; default: a new one, which is printed")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of a command")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    rows = read_rows()
    sample = random.Random(seed).sample(rows, min(options.number, len(rows)))
    print(f"{len(sample)} of {len(rows)} values, --seed {seed}", flush=True)
    failed = 0
    for command in dict.fromkeys(row.command for row in sample):
        own = [row for row in sample if row.command == command]
        problem = find_problem(command)
        code, output = (2, problem) if problem else run(command, options.seconds)
        if code is None:
            verdict = f"runs, stopped after {options.seconds:g} s"
        elif code == 0:
            printed = sum(re.search(rf"(?<![\d.]){re.escape(row.value)}(?!\d)", output) is not None for row in own)
            verdict = f"done, prints {printed} of {len(own)} values"
        else:
            verdict = f"FAILED with exit code {code}"
            failed += 1
        print(f"{verdict}: {command} ({', '.join(row.id for row in own)})", flush=True)
        if code:
            print(output[-2000:], flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
