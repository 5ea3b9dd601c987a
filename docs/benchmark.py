"""Rankings of the suites `core` and `personal` from the stored rows, and figures: ``python docs/benchmark.py``.

The rows are those of ``p2pkm bench --suite NAME``. Their SHA-256 is stored with them and checked before use. The
tables of the pages are written by write_pages.py.
"""

import gzip
import hashlib
import json
import math
import re
import sys
from functools import cache
from pathlib import Path

from p2pkm.analysis.bench_personal import rank_by_tests
from p2pkm.analysis.bench_statistics import summarize
from p2pkm.experiments.bench.entries import read_entries
from p2pkm.viz import plot_bench_fronts, plot_bench_map, plot_bench_profiles

RESULTS = Path(__file__).parent / "results"
FIGURES = {
    "bench_map.png": plot_bench_map,
    "bench_profiles.png": plot_bench_profiles,
    "bench_fronts.png": plot_bench_fronts,
}


def read_rows(suite="core", folder=RESULTS):
    """Read the stored rows of a suite; the classes of trust are those of the present table of entries.

    Raises
    ------
    ValueError
        If they are not those of the stored checksum.
    """
    path = folder / f"bench-{suite}.jsonl.gz"
    content = gzip.decompress(path.read_bytes())
    expected = (folder / f"bench-{suite}.sha256").read_text("utf-8").split()[0]
    if hashlib.sha256(content).hexdigest() != expected:
        raise ValueError(f"{path} does not have the checksum {expected}")
    trust = {entry.name: entry.trust for entry in read_entries()}
    rows = [json.loads(line) for line in content.decode("utf-8").splitlines()]
    return [row | {"trust": trust.get(row["entry"], row["trust"])} for row in rows]


@cache
def make_tables():
    """Make the tables of the results pages: rankings without their notes, advice, and costs by family."""
    ranking, rows = summarize(read_rows()), read_rows("personal")
    return {
        "ranking-core": _show_ranking(ranking),
        "advice-core": "\n".join(tabulate_advice(ranking)),
        "ranking-personal": _show_ranking(rank_by_tests(rows)),
        "families-personal": "\n".join(tabulate_families(rows)),
    }


def _show_ranking(ranking):
    """Return the table of a ranking without variants such as `tracking (real numbers)`, which have no place in it."""
    table = re.sub(r"^ {4}\S+ \(.*\n", "", ranking.text().partition("\n\n")[0] + "\n", flags=re.MULTILINE)
    return f"```text sample\n{table.rstrip()}\n```"


def tabulate_families(rows):
    """Return lines of a table: geometric mean of test/common and mean ARI over all, by entry and family."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    lines = [f"| entry | {' | '.join(families)} |", "|---" * (1 + len(families)) + "|"]
    for entry in rank_by_tests(rows).main:
        cells = []
        for family in families:
            own = [row for row in rows if (row["entry"], row["family"]) == (entry.entry, family)]
            ratio = math.exp(math.fsum(math.log(row["test_ratio_common"]) for row in own) / len(own))
            scores = [row["test_ari_all"] for row in own if "test_ari_all" in row]
            cells.append(f"{ratio:.3f} / " + (f"{math.fsum(scores) / len(scores):.3f}" if scores else "–"))
        lines.append(f"| `{entry.entry}` | {' | '.join(cells)} |")
    return lines


def tabulate_advice(ranking):
    """Return lines of a table: the advice for situations with more than two sets of points."""
    parts = {advice.situation: _shorten(advice) for advice in ranking.advice()}
    lines = ["| situation | without a server | with a server |", "|---|---|---|"]
    lines += [f"| all tasks | {parts['No server'][0]} | {parts['With a server'][0]} |"]
    for title in ("Skewed devices", "Devices with equal distributions"):
        lines.append(f"| {title.lower()} | {' | '.join(parts[title])} |")
    for title in ("Fewer bytes than the points", "Methods that send raw points"):
        lines.append(f"| {title.lower()}, with or without a server | – | {parts[title][0]} |")
    return [*lines, f"| differential privacy | {parts['Differential privacy'][0]} | – |"]


def _shorten(advice):
    """Return the advice without its title and units, one text for each of the two classes of trust that it names."""
    text = advice.sentence.removeprefix(f"{advice.situation}: ").removesuffix(".").removeprefix("no server: ")
    numbers = r"([\w-]+), excess ([<\d.]+ %), ([\d.]+) encoded bytes per raw byte \(([^)]*)\)"
    return re.sub(numbers, r"`\1`: \2, \3; \4", text).split("; with a server: ")


def main():
    """Print the rankings with all advice, and draw the figures into the working folder."""
    ranking, rows = summarize(read_rows()), read_rows("personal")
    sys.stdout.write(f"{ranking.text()}\n\n{rank_by_tests(rows).text()}\n\n")
    sys.stdout.write("\n".join([*tabulate_advice(ranking), *(one.sentence for one in ranking.advice())]) + "\n\n")
    sys.stdout.write("\n".join(tabulate_families(rows)) + "\n")
    for name, plot in FIGURES.items():
        plot(ranking).savefig(name, dpi=100)


if __name__ == "__main__":
    main()
