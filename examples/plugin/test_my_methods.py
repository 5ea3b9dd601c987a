"""Tests of the package, after ``pip install .`` in this folder: ``python -m pytest``."""

import pytest
from matched import Matched
from pull import Pull
from serverlloyd import ServerLloyd

import p2pkm
import topologies


@pytest.mark.parametrize("method", [Matched, Pull, ServerLloyd])
def test_contract_of_methods(method):
    p2pkm.check_method(method)


def run(method, graph, **options):
    points, labels = p2pkm.blobs(clusters=3, points=40, seed=0)
    shards = p2pkm.Shards.deal(points, p2pkm.partition.iid(len(points), 6, seed=0), devices=6, labels=labels)
    return p2pkm.simulate(method, graph, shards, **options).summary


@pytest.mark.parametrize(("method", "graph"), [(Pull(3), topologies.ring(6)), (ServerLloyd(3), None)])
def test_half_precision_saves_bytes_and_hardly_changes_the_result(method, graph):
    plain, half = (run(method, graph, transforms=transforms) for transforms in (None, "half"))
    assert half["wire_bytes"] < half["bytes"] and half["ratio_mean"] == pytest.approx(plain["ratio_mean"], rel=1e-3)


def test_half_precision_rejects_lossy_links():
    with pytest.raises(ValueError, match=r"transforms='half' cannot be combined with faults='loss=0.1'"):
        run(Pull(3), topologies.ring(6), transforms="half", faults="loss=0.1")
