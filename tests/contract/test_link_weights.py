"""Weights of links: every method says whether they act, and a run in which they do not says so."""

import json
from contextlib import nullcontext

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

import p2pkm
import topologies
from p2pkm.cli.algorithms import describe
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.registry import METHODS as ALL
from p2pkm.methods.registry import find, with_link_weights
from tests.support.each import each
from tests.support.methods import LEARNERS, METHODS, build
from tests.support.run_cli import SMALL, here, on_ranks
from tests.support.sampling import thin

PEERS = [name for name in METHODS if not needs_hub(build(name, 3))]
ACTING = ["gtvmin", "consensus", "pushsum", "tracking"]
NOTE = "the weights of the links (1 to 5) are ignored by {name}; methods that use them: " + ", ".join(ACTING)


def weigh(graph, weights=(1.0, 5.0, 2.0)):
    """Return the graph with these weights on its links, in turn."""
    found = nx.Graph(graph)
    for i, (u, v) in enumerate(found.edges):
        found[u][v]["weight"] = weights[i % len(weights)]
    return found


def run(name, graph, **options):
    rng = np.random.default_rng(3)
    own = [8.0 * np.eye(3, 4)[rng.integers(0, 3, 10)] + rng.normal(size=(10, 4)) for _ in range(9)]
    # private needs more rounds
    with pytest.warns(ConvergenceWarning, match="9 of 9 devices") if name == "private" else nullcontext():
        return p2pkm.simulate(build(name, 3, **options), graph, p2pkm.Shards.from_list(own), rounds=2, seed=1)


@pytest.mark.parametrize("name", thin(PEERS, 3))
@pytest.mark.sample(3)
def test_weights_act_in_the_methods_that_say_so_and_a_note_says_it_of_the_others(name):
    options = {"gossips": 2} if name in ("consensus", "pushsum", "tracking") else {}
    options |= {"coupling": 2.0} if name == "gtvmin" else {}
    plain, weighted, same = (
        run(name, graph, **options)
        for graph in (topologies.ring(9), weigh(topologies.ring(9)), weigh(topologies.ring(9), (1.0,)))
    )
    acts = name in ACTING
    assert bool(build(name, 3).traits.link_weights) == acts
    assert (plain.centroids != weighted.centroids).any() == acts
    assert_array_equal(plain.centroids, same.centroids)
    assert plain.notes == same.notes
    # The failure of private, which needs more rounds, comes first, and then the note on the graph.
    failure = [note for note in plain.notes if note == plain.summary["failure"]]
    ignored = [] if acts else [NOTE.format(name=name)]
    assert weighted.notes == [*failure, *ignored, *plain.notes[len(failure) :]]


def test_the_note_lists_the_methods_whose_traits_say_so():
    assert with_link_weights() == ACTING


@each("name", ALL)
def test_catalogue_and_docstring_say_whether_weights_act(name):
    method, found = find(name)(3), describe(name)
    if needs_hub(method):
        assert found["link_weights"] == "ignored; the links of a star have none."
        return
    if name not in LEARNERS:
        assert ("**Link weights.**" in method.__doc__) == bool(method.traits.link_weights)
    assert found["link_weights"].startswith("ignored") != (bool(method.traits.link_weights) or name in LEARNERS)


def test_deepgossip_mixes_by_weights_if_it_gossips():
    kind = find("deepgossip")
    assert not kind(3).traits.link_weights
    assert kind(3, gossips=2).traits.link_weights == build("consensus", 3).traits.link_weights


def test_the_catalogue_as_a_list_names_the_methods():
    assert f"Weights of links act in {', '.join(ACTING)}; the others ignore them by default." in here("algorithms").out
    assert "Link weights: ignored; the links of a star have none." in here("algorithms", "fkm").out


@pytest.mark.parametrize("name", ["consensus", "pushsum"])
def test_the_mixing_matrix_of_a_graph_takes_the_place_of_its_weights(name):
    links = topologies.CSRGraph.from_networkx(weigh(topologies.ring(9)))
    shares = np.full(18, 0.25)
    graph = topologies.TimeVaryingGraph(links, 1, lambda turn: np.ones(18, np.bool_), lambda turn: shares)
    notes = [note for note in run(name, graph).notes if not note.startswith("disclosed points")]
    told = "the weights of the links (1 to 5) are ignored: the graph has its own mixing matrix"
    assert notes == [told] * (name == "consensus")


def test_weights_act_on_graphs_whose_links_change():
    links = topologies.CSRGraph.from_networkx(weigh(topologies.complete(9)))
    active = topologies.edge_markov(9, seed=2).active
    for name in ("consensus", "pushsum", "tracking"):
        plain, weighted = (
            run(name, topologies.TimeVaryingGraph(one, None, active))
            for one in (topologies.CSRGraph(links.indptr, links.indices), links)
        )
        assert (plain.centroids != weighted.centroids).any()


@pytest.mark.mpi
def test_weighted_runs_have_the_same_bits_on_three_ranks(tmp_path):
    path = tmp_path / "g.json"
    path.write_text(json.dumps(nx.node_link_data(weigh(topologies.small_world(9, degree=4, seed=1)), edges="edges")))
    commands = [
        ("run", *SMALL, "--devices", "9", "--graph", f"file:{path}", "--algorithm", f"{method}:gossips=2", *faults,
         "--rounds", "4", "--out", "none", "--format", "json")
        for method in ("consensus", "pushsum", "tracking") for faults in ((), ("--faults", "loss=0.2"))
    ]  # fmt: skip
    for words, apart in zip(commands, on_ranks(3, commands), strict=True):
        together = here(*words)
        for key in ("chain_sha256", "centroids_sha256", "messages", "bytes"):
            assert apart.summary[key] == together.summary[key], words
        assert "p2pkm: g.json: 9 nodes and 18 links" in apart.err
