"""The page of the benchmark is that of the stored rows."""

import sys
from pathlib import Path

import pytest

from p2pkm.storage.bench_statistics import summarize

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_ranking_and_advice_are_those_of_the_stored_rows(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])
    import benchmark

    ranking = summarize(benchmark.read_rows())
    page = (DOCS / "results" / "benchmark.md").read_text("utf-8")
    assert f"```text sample\n{ranking.text().rstrip()}\n```" in page
    assert all(f"* {advice.sentence}\n" in page for advice in ranking.advice())


@pytest.mark.slow
def test_changed_rows_are_rejected(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])
    import gzip

    import benchmark

    (tmp_path / "bench-core.jsonl.gz").write_bytes(gzip.compress(gzip.decompress(benchmark.ROWS.read_bytes())[:-1]))
    (tmp_path / "bench-core.sha256").write_bytes(benchmark.ROWS.with_name("bench-core.sha256").read_bytes())
    monkeypatch.setattr(benchmark, "ROWS", tmp_path / "bench-core.jsonl.gz")
    with pytest.raises(ValueError, match="does not have the checksum"):
        benchmark.read_rows()
