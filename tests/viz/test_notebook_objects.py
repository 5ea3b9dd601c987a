"""What objects say of themselves: brief in a script, a page or a picture in a notebook."""

import dataclasses
import inspect
import re
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.brief import short_repr
from p2pkm.viz.report.page import Page
from tests.support.run_cli import ROOT


@pytest.fixture(scope="module")
def run():
    X, y = p2pkm.grid16(points=20, seed=0)
    device = p2pkm.partition.dirichlet(y, 16, alpha=0.3, seed=0)
    shards = p2pkm.Shards.deal(X, device, devices=16, labels=y)
    return shards, p2pkm.simulate(p2pkm.GTVMin(16), topologies.ring(16), shards, rounds=2)


def build(shards, run):
    """Return an object of every public class that holds more than a few numbers."""
    rows = [{"algorithm": "gtvmin", "graph": "ring", "seed": seed, "ratio_mean": 1.0} for seed in range(50)]
    bench = [row | {"entry": "gtvmin", "task": "a", "status": "done"} for row in rows]
    deep = [{"name": "one", "seed": s, "accuracy": 0.5, "accuracy_few": 0.4, "bytes": 9} for s in range(50)]
    return [
        shards, run, run.topology, run.census, run.ledger, run.chain, run.frames, run.clusters, run.exposure,
        p2pkm.Study(rows), p2pkm.Benchmark(bench), p2pkm.DeepTable(deep),
        p2pkm.pair_leaks(topologies.ring(12), 3), p2pkm.Probe(0.5, 0.4),
        p2pkm.PrivacyBudget((), 0.0, 1e-6, 0.0, "add", "none", 0, ("note",) * 99),
        p2pkm.partition_report(shards), Page("<p>" * 999), topologies.show(topologies.ring(9)),
        topologies.build("ring", 200, light=True), topologies.one_peer_exponential(64), p2pkm.Init.of("global"),
        p2pkm.LinkModel.of("wan"), p2pkm.Faults.of("loss=0.1"), p2pkm.StalePolicy.keep(), p2pkm.Byzantine.of("2"),
        p2pkm.Quantization.of("rice"), p2pkm.Compression.of("topk"), p2pkm.ClientShare.of("0.1"),
        p2pkm.DataStream.of("drawn:kind=slow"), p2pkm.P2PKMeans(3),
        p2pkm.P2PStandardScaler(),
        topologies.read_recipe("inner-outer-32"),
        *(getattr(p2pkm, name)(3) for name in METHODS),
    ]  # fmt: skip


METHODS = [
    name for name in p2pkm.__all__ if inspect.isclass(getattr(p2pkm, name)) and hasattr(getattr(p2pkm, name), "traits")
]


def test_representations_are_brief(run):
    every = build(*run)
    for one in every:
        assert 1 <= len(repr(one).splitlines()) <= 5 and len(repr(one)) <= 500, type(one)
    covered = {type(one) for one in every}
    public = {getattr(p2pkm, name) for name in p2pkm.__all__ if inspect.isclass(getattr(p2pkm, name))}
    left = {one for one in public - covered if not issubclass(one, Exception)}
    assert left <= {p2pkm.style}, left  # is never looked at


def test_arrays_are_told_by_their_shape(run):
    shards, result = run
    text = " ".join(repr(shards).split())
    assert text.startswith("Shards(points=float64[320, 2], offsets=int64[17], weights=float64[320]")
    assert "names=None" in text
    words = " ".join(repr(result).split())
    assert (
        words.startswith("<Result algorithm: gtvmin, graph: given, devices: 16, clusters: 16") or "devices: 16" in words
    )
    wide = dataclasses.replace(result, summary={"algorithm": "x" * 2_000})
    assert len(repr(wide)) <= 500


@pytest.mark.slow
def test_a_report_is_shown_in_a_frame_and_saved(run, tmp_path):
    page = run[1].report()
    shown = page._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and 'sandbox="allow-scripts"' in shown and "<script" not in shown
    assert 'id="replay-data"' in page.html and "How it was run" in page.html
    path = page.save(tmp_path / "page.html")
    assert path.read_text("utf-8") == page.html and page.html.startswith("<!DOCTYPE html>")


def test_figures_are_reached_by_a_bare_import():
    program = (
        "import sys, p2pkm; p2pkm.viz.plot_graph; print('matplotlib' in sys.modules); import p2pkm.viz as v; v.draw_all"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_networkx_graphs_are_shown():
    shown = topologies.show(topologies.karate(34))
    assert shown._repr_html_().count("<circle") == 34
    ring = topologies.show(topologies.ring(4))._repr_html_()
    places = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', ring)  # clockwise from the top
    assert places == [("110.0", "10.0"), ("210.0", "110.0"), ("110.0", "210.0"), ("10.0", "110.0")]
    changing = topologies.one_peer_exponential(8)
    assert topologies.show(changing).graph is changing
    with pytest.raises(topologies.GraphError):
        topologies.show(np.ones(3))


class Sequences(NamedTuple):
    """Fields of several lengths."""

    three: tuple = (1, 2, 3)
    four: tuple = (1, 2, 3, 4)
    one: list = [1]  # noqa: RUF012 - never changed
    none: dict = {}  # noqa: RUF012


def test_long_sequences_are_shown_by_their_size():
    assert short_repr(Sequences()) == "Sequences(three=(1, 2, 3), four=<tuple of 4>, one=<list of 1>, none=<dict of 0>)"
