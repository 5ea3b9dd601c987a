"""The page of the benchmark is that of the stored rows; its tables are written by docs/write_pages.py."""

import sys
from pathlib import Path

import pytest

from p2pkm.analysis.bench_blocks import name_unit

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_page_counts_the_stored_rows(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])
    import benchmark

    rows = benchmark.read_rows()
    page = (DOCS / "results" / "benchmark.md").read_text("utf-8")
    assert f"{len({row['task'] for row in rows})} tasks on {len(set(map(name_unit, rows)))} sets of points" in page
    assert f"{len(rows):,} runs" in page


@pytest.mark.slow
def test_changed_rows_are_rejected(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])
    import gzip

    import benchmark

    stored = benchmark.RESULTS / "bench-core.jsonl.gz"
    (tmp_path / "bench-core.jsonl.gz").write_bytes(gzip.compress(gzip.decompress(stored.read_bytes())[:-1]))
    (tmp_path / "bench-core.sha256").write_bytes(stored.with_name("bench-core.sha256").read_bytes())
    with pytest.raises(ValueError, match="does not have the checksum"):
        benchmark.read_rows(folder=tmp_path)
