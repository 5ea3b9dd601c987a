"""Ranking and figures of the suite `core` from the stored rows: ``python docs/benchmark.py``.

The rows are those of ``p2pkm bench --suite core``. Their SHA-256 is stored with them and checked before use.
"""

import gzip
import hashlib
import json
import sys
from pathlib import Path

from p2pkm.storage.bench_statistics import summarize
from p2pkm.viz import plot_bench_fronts, plot_bench_map, plot_bench_profiles

HERE = Path(__file__).parent
ROWS = HERE / "results" / "bench-core.jsonl.gz"
FIGURES = {
    "bench_map.png": plot_bench_map,
    "bench_profiles.png": plot_bench_profiles,
    "bench_fronts.png": plot_bench_fronts,
}


def read_rows():
    """Read the stored rows.

    Raises
    ------
    ValueError
        If they are not those of the stored checksum.
    """
    content = gzip.decompress(ROWS.read_bytes())
    expected = ROWS.with_name("bench-core.sha256").read_text("utf-8").split()[0]
    if hashlib.sha256(content).hexdigest() != expected:
        raise ValueError(f"{ROWS} does not have the checksum {expected}")
    return [json.loads(line) for line in content.decode("utf-8").splitlines()]


def main():
    """Print the ranking and draw the figures into the working folder."""
    ranking = summarize(read_rows())
    sys.stdout.write(ranking.text() + "\n")
    for name, plot in FIGURES.items():
        plot(ranking).savefig(name, dpi=100)


if __name__ == "__main__":
    main()
