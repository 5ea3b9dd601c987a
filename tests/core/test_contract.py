"""A run of a plug-in that returns a wrong shape or type ends at once, with the function, its file and its line."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.contract import guard
from p2pkm.core.errors import ContractError
from p2pkm.core.protocols import Report
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.testing.check_method import check_method
from p2pkm.testing.trial import CheckError
from tests.support.each import each
from tests.support.install_plugin import install, site  # noqa: F401 - a fixture
from tests.support.run_cli import here

X = np.random.default_rng(0).normal(size=(40, 2))
SHARDS = p2pkm.Shards.deal(X, np.arange(40) % 4, devices=4)


def change(**fields):
    """Return what replaces fields of a NamedTuple by functions of them."""
    return lambda found: found._replace(**{name: call(getattr(found, name)) for name, call in fields.items()})


def flat(array):
    return array.reshape(len(array), -1)


SERVER = {
    "report: nothing": ("report", lambda found: None, "NoneType"),
    "report: a plain tuple": ("report", tuple, "tuple"),
    "report: a list": ("report", change(values=lambda a: a.tolist()), "values as list"),
    "report: flat": ("report", change(values=flat), "values of float64 and shape"),
    "report: whole numbers": ("report", change(values=lambda a: np.zeros(a.shape, np.int64)), "values of int64"),
    "report: single precision": ("report", change(values=lambda a: a.astype(np.float32)), "values of float32"),
    "report: a device too few": ("report", change(values=lambda a: a[1:]), "values of float64 and shape"),
    "report: rows of numbers": ("report", change(rows=lambda a: a.astype(float)), "rows of float64"),
    "report: one number of rows": ("report", change(rows=lambda a: 3), "rows as int"),
    "report: too many rows": ("report", change(rows=lambda a: a + 99), "the rows of its tables"),
    "report: local of more features": (
        "report",
        change(local=lambda a: np.zeros((*a.shape[:2], 3))),
        "local of float64",
    ),
    "aggregate: nothing": ("aggregate", lambda found: None, "the centroids as NoneType"),
    "aggregate: a list": ("aggregate", lambda found: found.tolist(), "the centroids as list"),
    "aggregate: one row": ("aggregate", lambda found: found[0], "the centroids of float64"),
    "aggregate: a count more": ("aggregate", lambda found: np.ones((3, 3)), r"expected float64\[any, 2\]"),
    "aggregate: too many": ("aggregate", lambda found: np.ones((4, 2)), "4 centroids; expected at most k = 3"),
    "aggregate: whole numbers": ("aggregate", lambda found: np.ones((3, 2), int), "the centroids of int64"),
}
PEER = {
    "initial_state: nothing": ("initial_state", lambda found: None, "NoneType"),
    "initial_state: an array": ("initial_state", lambda found: found.centroids, "ndarray"),
    "initial_state: one device": ("initial_state", change(centroids=lambda a: a[0]), "centroids of float64"),
    "message: nothing": ("message", lambda found: None, "NoneType"),
    "message: an array": ("message", lambda found: found.values, "ndarray"),
    "message: flat": ("message", change(values=flat), "values of float64 and shape"),
    "message: too many rows": ("message", change(rows=lambda a: a + 1), "the rows of its tables"),
    "message: rows of some": ("message", change(rows=lambda a: a[1:]), r"rows of int64 and shape \(3,\)"),
    "message: other senders": ("message", change(senders=lambda a: np.arange(2)), r"senders \[0 1\]"),
    "update: nothing": ("update", lambda found: None, "NoneType"),
    "update: single precision": ("update", change(centroids=lambda a: a.astype(np.float32)), "centroids of float32"),
    "update: one centroid more": ("update", change(centroids=lambda a: a[:, :2]), "centroids of float64 and shape"),
    "update: numbers for truths": ("update", change(converged=lambda a: a.astype(float)), "converged of float64"),
}  # fmt: skip


def break_method(base, function, spoil):
    """Return a method of a base, of which one function returns something else."""

    def broken(self, *given):
        return spoil(getattr(base, function)(self, *given))

    return type("Mine", (base,), {function: broken, "__module__": __name__}), broken


def place_of(function):
    return f"{inspect.getsourcefile(function)}:{function.__code__.co_firstlineno}"


@each(("function", "spoil", "told"), SERVER.values(), ids=SERVER)
def test_server_methods(function, spoil, told):
    kind, broken = break_method(p2pkm.FKM, function, spoil)
    with pytest.raises(ContractError, match=told) as caught:
        p2pkm.simulate(kind(3), None, SHARDS, rounds=2)
    assert str(caught.value).startswith(f"Mine.{function} returned ") and place_of(broken) in str(caught.value)
    assert caught.value.code == 2 and caught.value.__cause__ is None


@pytest.mark.parametrize(("function", "spoil", "told"), PEER.values(), ids=PEER)
def test_peer_methods(function, spoil, told):
    kind, broken = break_method(p2pkm.ConsensusLloyd, function, spoil)
    with pytest.raises(ContractError, match=told) as caught:
        p2pkm.simulate(kind(3), topologies.ring(4), SHARDS, rounds=2)
    assert str(caught.value).startswith(f"Mine.{function} returned ") and place_of(broken) in str(caught.value)


def test_a_method_that_reads_a_start_is_told_to_declare_an_initialization():
    kind = type(
        "Mine",
        (p2pkm.ConsensusLloyd,),
        {"traits": MethodTraits(message_content=MessageContent.OTHER), "__module__": __name__},
    )
    with pytest.raises(ContractError, match=r"Mine.initial_state uses start, which is None because .* init=None"):
        p2pkm.simulate(kind(3), topologies.ring(4), SHARDS, rounds=2)


def test_check_method_names_file_and_line():
    for base, function, spoil in (
        (p2pkm.FKM, "aggregate", lambda found: found[0]),
        (p2pkm.ConsensusLloyd, "update", tuple),
    ):
        kind, broken = break_method(base, function, spoil)
        with pytest.raises(CheckError) as caught:
            check_method(kind)
        assert place_of(broken) in str(caught.value) and list(caught.value.failed) == ["shapes"]


def test_methods_of_the_package_are_not_wrapped_and_others_keep_their_bits():
    own = p2pkm.ConsensusLloyd(3)
    assert guard(own, any_shape=False) is own
    kind, _ = break_method(p2pkm.FKM, "aggregate", lambda found: found)
    one, other = (p2pkm.simulate(method(3), None, SHARDS, rounds=3) for method in (kind, p2pkm.FKM))
    assert np.array_equal(one.centroids, other.centroids)
    assert Report._fields == ("values", "rows", "local")


WRONG_PARTS = {
    "nothing": "def part(at): return None",
    "a name": "def part(at): return ('local',)",
    "a number": "def part(at): return 5",
    "an empty tuple": "def part(at): return ()",
}


@pytest.mark.parametrize("module", WRONG_PARTS.values(), ids=WRONG_PARTS)
def test_initializations_of_other_packages(site, module):  # noqa: F811
    install(site, "wrong-part", module, {"p2pkm.inits": {"wrong": "wrong_part:part"}})
    found = here("--data", "grid16:points=5", "--devices", "4", "--out", "none", "--init", "wrong")
    assert found.code == 2 and "init wrong returned" in found.err and "expected a tuple" in found.err


@pytest.mark.parametrize("module", ["def part(): pass", "class part: pass", "part = 3"])
def test_transforms_of_other_packages(site, module):  # noqa: F811
    install(site, "wrong-part", module, {"p2pkm.transforms": {"wrong": "wrong_part:part"}})
    found = here("--data", "grid16:points=5", "--devices", "4", "--out", "none", "--transforms", "wrong")
    assert found.code == 2 and "transform wrong is" in found.err and "subclass of" in found.err


def test_the_init_of_traits_is_a_value_and_not_its_text():
    with pytest.raises(
        ContractError, match=r"init of the traits is 'global'; expected p2pkm.Init.*Init.of\('global'\)"
    ):
        MethodTraits(message_content=MessageContent.OTHER, init="global")
    assert str(MethodTraits(message_content=MessageContent.OTHER, init=p2pkm.Init.of("global")).init) == "global"


def test_traits_are_built_once_for_each_method_and_anew_for_changed_parameters():
    method = p2pkm.Private(3, epsilon=1.0, radius=9.0)
    assert method.traits is method.traits
    seeded = method.replaced(noise_seed=1)
    assert (method.traits.noise_seed, seeded.traits.noise_seed) == (None, 1)
    for same in (copy.copy(method), copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert same == method and same.traits == method.traits and vars(same).keys() == vars(method).keys()
