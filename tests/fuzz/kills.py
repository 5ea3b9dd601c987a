"""Kill runs with SIGKILL at random moments and let them go on: python -m tests.fuzz.kills [NUMBER] [SEED]."""

import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

from tests.support.kill_runs import Outcome, kill_some

RESULTS = Path(__file__).with_name("RESULTS.md")
_TITLE = "## Kills"


def main(number: int, seed: int) -> int:
    began, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        for outcome in kill_some(number, Path(folder), seed):
            rows.append(outcome)
            print(len(rows), *outcome, flush=True)
            keep(describe(rows, f"{number} {seed}", time.monotonic() - began))
    good = sum(not row.fault for row in rows)
    print(f"{good} of {number}")
    return int(good < number)


def describe(rows: list[Outcome], given: str, seconds: float) -> str:
    """Return what was found so far."""
    good = sum(not row.fault for row in rows)
    lost = max(row.lost for row in rows)
    text = (
        f"{_TITLE}\n\n`python -m tests.fuzz.kills {given}` took {seconds:.0f} s. {good} of {len(rows)} runs that "
        f"were killed with SIGKILL ended with the bits of the run that was let alone; at most {lost} records were made "
        f"again. Every other run was on 3 ranks, of which one was killed; each went on "
        "on 1 or 3 ranks.\n\n| run | ranks | killed | after records | made again | difference |\n"
        "|---|---|---|---|---|---|\n"
    )
    return text + "".join(
        f"| {r.name} | {r.count} | rank {r.rank} | {r.records} | {r.lost} | {r.fault or 'none'} |\n" for r in rows
    )


def keep(text: str) -> None:
    """Replace this part of RESULTS.md, and leave the others."""
    old = RESULTS.read_text() if RESULTS.is_file() else "# Last results of the long tests\n\n"
    head, _, rest = old.partition(_TITLE)
    _, mark, others = rest.partition("\n## ")
    RESULTS.write_text(head + text + ("\n## " + others if mark else ""))


if __name__ == "__main__":
    parser = ArgumentParser(prog="python -m tests.fuzz.kills", description=__doc__)
    parser.add_argument("number", type=int, nargs="?", default=50, help="runs to kill (default: 50)")
    parser.add_argument("seed", type=int, nargs="?", default=0, help="seed of the moments (default: 0)")
    given = parser.parse_args()
    sys.exit(main(given.number, given.seed))
