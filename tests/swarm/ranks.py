"""Experiments that ran in one process, again on MPI ranks: one mpirun for many of them."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.resume import OWN
from tests.support.run_cli import MPIRUN, environment
from tests.swarm.checks import Case


def on_ranks(cases: Sequence[Case], count: int) -> list[str]:
    """Return what differs, on so many ranks, from the summaries of the cases; each with the experiment."""
    if not cases or MPIRUN is None:
        return []
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(case.words) + "\n" for case in cases)
        file.flush()
        words = [str(MPIRUN), "-n", str(count), sys.executable, "-m", "tests.swarm.ranks", file.name]
        limit = 60 + 20 * len(cases)
        try:
            done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=limit, check=False)
        except subprocess.TimeoutExpired as error:
            return [f"{count} ranks did not end within {limit} s, after {(error.stdout or b'')[-300:]!r}"]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(lines) != len(cases):
        at = cases[min(len(lines), len(cases) - 1)].experiment.text()
        return [f"{count} ranks ended with code {done.returncode} at {at}: {done.stderr[-600:]}"]
    faults = []
    for case, other in zip(cases, lines, strict=True):
        keys = [key for key, value in case.summary.items() if key not in OWN and value != other[key]]
        if keys:
            faults.append(f"{count} ranks, {case.experiment.text()} differs in {keys[:4]}")
    return faults


def _main(path: str) -> int:
    """Run every line of the file; for mpirun."""
    from p2pkm.cli.main import main

    codes = [
        main([*json.loads(line), "--out", "none", "--checkpoint-every", "0"])
        for line in Path(path).read_text("utf-8").splitlines()
    ]
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(min(_main(sys.argv[1]), 0))
