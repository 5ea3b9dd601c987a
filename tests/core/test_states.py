"""What a checkpoint may name: states that have registered, by names that do not change when modules move."""

from importlib import import_module
from pkgutil import walk_packages
from typing import Any, NamedTuple

import numpy as np
import pytest

import p2pkm.methods
from p2pkm.core import states
from p2pkm.core.errors import DataError
from p2pkm.core.states import optional
from p2pkm.engine.state_tree import gather, rebuild
from p2pkm.methods.registry import METHODS, find
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from tests.support.each import each
from topologies import ring

# Names in checkpoints of released versions. At a release, add those of new states.
NAMES = {
    "admm", "averages", "bounding-box", "coreset", "d2-sampling", "deep", "deep:learned", "dgc", "feddp", "flood",
    "flooded-summaries", "group-links", "gtvmin", "interned", "leader", "local", "local-kmeanspp",
    "median-imputation", "min-id-agreement", "number-of-clusters", "pairwise-gossip", "private", "ragged-array",
    "regrown-tree", "running-sums", "saturation-thresholds", "select-candidate",
    "star", "tree", "tree-groups", "tree-summaries", "tree-summaries:walk", "tree-totals", "tree:front", "tree:routes",
    "treelloyd", "treelloyd:root", "treelloyd:tracking-root",
}  # fmt: skip


class Other(NamedTuple):
    """No state."""

    centroids: Any


def _network():
    return LocalNetwork(place(Topology.from_graph(ring(4)), 0, 1))


def test_names_are_those_of_the_checkpoints_that_are_out_there():
    # Methods with a server import their state when they are placed on the star.
    for module in walk_packages(p2pkm.methods.__path__, "p2pkm.methods."):
        import_module(module.name)
    for name in METHODS:
        find(name)
    assert NAMES - states._KINDS.keys() == set()


def test_no_checkpoint_depends_on_where_a_state_is_defined(monkeypatch):
    """The same state after its module has moved, and its class has another name."""
    flood = states.find("flood")
    tree = flood(*(np.zeros((4, 4)) for _ in flood._fields))
    arrays = {}
    outline = gather({"state": tree}, _network(), arrays)
    assert "p2pkm" not in repr(outline) and flood.__qualname__ not in repr(outline)
    moved = NamedTuple("Moved", [(name, Any) for name in flood._fields])
    monkeypatch.setitem(states._KINDS, "flood", moved)
    assert type(rebuild(outline, dict(arrays))["state"]) is moved


@pytest.mark.parametrize("kind", ["os:system", "p2pkm.channel.fault_trace:Tape",
                                  "p2pkm.methods.building_blocks.flooding:Flood", "subprocess:Popen",
                                  "Flood", "p2pkm.core.states:register", "tests.core.test_states:Other",
                                  "flood "])  # fmt: skip
def test_nothing_else_can_be_named(monkeypatch, kind):
    monkeypatch.setattr("importlib.import_module", lambda *given: pytest.fail("imported"))
    with pytest.raises(DataError, match="expected a state class registered"):
        rebuild({"kind": kind, "parts": {"centroids": {"value": 1}}}, {})


def test_a_state_with_other_fields_is_refused():
    with pytest.raises(DataError, match="with fields centroids"):
        rebuild({"kind": "flood", "parts": {"centroids": {"value": 1}}}, {})


def test_what_is_not_registered_is_found_at_any_depth():
    flood = states.find("flood")
    tree = {"a": flood(Other(1), {"b": (1, 2)}), "c": [1, np.zeros(2)]}
    assert states.unnamed(tree) == ["tests.core.test_states.Other"]
    assert states.unnamed(flood(1, 2)) == states.unnamed(np.zeros(3)) == states.unnamed((1, 2)) == []
    with pytest.raises(KeyError):
        gather(Other(np.zeros(4)), _network(), {})


@each("name", ["", "Flood", "p2pkm.flood", "a b", ":a", "a-", "flood\n"])
def test_names_that_are_none(name):
    with pytest.raises(ValueError, match="name of a state is"):
        states.register(name)(Other)


def test_two_states_of_one_name_and_what_is_no_state():
    with pytest.raises(ValueError, match="state 'flood' is already Flood of p2pkm"):
        states.register("flood")(Other)
    for kind in (tuple, dict, type("Plain", (), {})):
        with pytest.raises(TypeError, match="expected a NamedTuple"):
            states.register("tests:plain")(kind)
    assert states.find("tests:plain") is None


def test_only_registered_fields_are_optional():
    assert optional(None, "held", 7) == 7
    with pytest.raises(ValueError, match="optional field of a state is"):
        optional(None, "holds")
