"""The page of the benchmark is that of the stored rows."""

import sys
from pathlib import Path

import pytest

from p2pkm.analysis.bench_blocks import name_unit
from p2pkm.analysis.bench_personal import rank_by_tests
from p2pkm.analysis.bench_statistics import summarize

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_ranking_and_advice_are_those_of_the_stored_rows(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])
    import benchmark

    rows = benchmark.read_rows()
    ranking = summarize(rows)
    page = (DOCS / "results" / "benchmark.md").read_text("utf-8")
    assert f"```text sample\n{benchmark.leave_out_variants(ranking.text()).rstrip()}\n```" in page
    assert f"{len({row['task'] for row in rows})} tasks on {len(set(map(name_unit, rows)))} sets of points" in page
    assert f"{len(rows):,} runs" in page
    assert "\n".join(benchmark.tabulate_advice(ranking)) + "\n" in page


@pytest.mark.slow
def test_ranking_by_test_points_is_that_of_the_stored_rows(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])
    import benchmark

    rows = benchmark.read_rows("personal")
    page = (DOCS / "results" / "personal.md").read_text("utf-8")
    assert f"```text sample\n{rank_by_tests(rows).text()}\n```" in page
    assert "\n".join(benchmark.tabulate_families(rows)) in page


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
