"""Declared incompatibilities of transforms: rejected in one place, with one message, before any work."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.channel import registry
from p2pkm.channel.references import References
from p2pkm.channel.registry import TRANSFORMS, PluginTransforms, find
from p2pkm.channel.transform import REFERENCES_AT_BOTH_ENDS, Order, Transform
from p2pkm.core.errors import ContractError, ExperimentError
from p2pkm.core.messages import DenseMessages
from p2pkm.core.spec import Spec
from p2pkm.core.traits import Condition
from tests.support.each import each
from tests.support.run_cli import SMALL, here

RNG = np.random.default_rng(2)
SHARDS = p2pkm.Shards.from_list([RNG.normal(4.0 * RNG.integers(0, 3, (9, 1)), 1.0, (9, 2)) for _ in range(6)])


class Coded(Transform):
    """A transform that keeps references at both ends of a link."""

    name, order = "coded", Order.PERTURB
    incompatible_with = REFERENCES_AT_BOTH_ENDS


class Plain(Transform):
    """A transform that changes messages and excludes nothing."""

    name, order = "plain", Order.PERTURB


def plug_in(*kinds):
    return PluginTransforms(tuple((kind, Spec(kind.name, {})) for kind in kinds))


def run(method=None, graph=None, **options):
    method = p2pkm.GTVMin(3) if method is None else method
    if not method.traits.needs_hub and graph is None:
        graph = topologies.ring(6)
    return p2pkm.simulate(method, graph, SHARDS, rounds=2, baselines=False, **options)


@each(
    ("method", "options", "cause"),
    [
        (p2pkm.GTVMin(3), {"faults": "loss=0.1"}, "faults='loss=0.1'"),
        (p2pkm.FKM(3), {"faults": "loss=0.1"}, "faults='loss=0.1'"),
        (p2pkm.GTVMin(3), {"noise": 0.1}, "noise=0.1"),
        (p2pkm.GTVMin(3), {"quantize": "rice"}, "quantize='rice'"),
        (p2pkm.GTVMin(3), {"byzantine": 1}, "byzantine='1:"),
        (p2pkm.GTVMin(3, schedule="async"), {"link_model": "lan"}, "link_model='lan' and schedule='async'"),
        (p2pkm.GTVMin(3), {"graph": topologies.peer_sampler(6, degree=4, period=2, seed=2)}, "the graph peer-sampler"),
    ],
)
def test_a_transform_with_references_rejects_what_makes_the_ends_of_a_link_differ(method, options, cause):
    with pytest.raises(ExperimentError, match=" cannot be combined with ") as error:
        run(method, transforms=plug_in(Coded), **options)
    assert cause in str(error.value) and "transforms='coded'" in str(error.value)
    assert any(f": {reason}. Remove " in str(error.value) for reason in REFERENCES_AT_BOTH_ENDS.values())


def test_it_runs_with_all_that_it_does_not_exclude():
    for options in ({}, {"link_model": "lan"}, {"min_cluster_size": 2}, {"byzantine": 0}, {"faults": "loss=0"}):
        assert run(transforms=plug_in(Coded), **options).summary["rounds"] >= 0


def test_two_plugins_that_change_messages_are_rejected_if_one_keeps_references():
    for kinds in ((Coded, Plain), (Plain, Coded)):
        with pytest.raises(ExperimentError, match="transforms='coded' cannot be combined with transforms='plain'"):
            run(transforms=plug_in(*kinds))
    with pytest.raises(ExperimentError, match="quantize='rice' cannot be combined with transforms='plain'"):
        run(transforms=plug_in(Plain), quantize="rice")
    found = run(transforms=plug_in(Plain)).summary
    assert found["quantize"] is None and found["wire_bytes"] == found["bytes"]  # integers are only the default


def test_command_line_and_scripts_give_the_same_message():
    ending = here(*SMALL, "--quantize", "rice", "--noise", "0.1", "--out", "none")
    with pytest.raises(ExperimentError) as error:
        run(quantize="rice", noise=0.1)
    reason = "noise is not a multiple of the step size"
    assert ending.code == 2 and " ".join(ending.err.split()) == (
        f"p2pkm: error: --quantize rice cannot be combined with --noise 0.1: {reason}. Remove --quantize rice, or "
        "remove --noise 0.1"
    )
    assert str(error.value) == (
        f"quantize='rice' cannot be combined with noise=0.1: {reason}. Remove quantize='rice', or remove noise=0.1"
    )


def test_built_in_transforms_declare_conditions_and_names_that_exist():
    for name in TRANSFORMS:
        for key, reason in find(name).incompatible_with.items():
            assert (isinstance(key, Condition) or key in TRANSFORMS) and reason and not reason.endswith(".")


@pytest.mark.parametrize(("name", "mixin"), [("wrap", "ReshapesMethod"), ("place", "PlacedOnGraph")])
def test_a_method_that_is_never_called_without_its_mixin_is_an_error(monkeypatch, name, mixin):
    kind = type("Stray", (Transform,), {"name": "stray", "order": Order.PERTURB, name: lambda self, *given: given})
    monkeypatch.setattr(registry, "extend", lambda known, group, text: {**known, "stray": kind})
    with pytest.raises(ContractError, match=f"transform stray .* defines {name}, .* without .*{mixin}"):
        PluginTransforms.of("stray")


def _table(values, rows, **more):
    return DenseMessages(np.array(values, float), np.array(rows), **more)


def test_references_are_those_of_each_sender_whatever_the_shapes_on_a_star():
    references = References(skip_selected=True)
    reports = _table([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]], [2, 1, -1])
    assert not references.find(reports).any()
    references.keep(reports)
    centroids = _table([[[0, 0]], [[0, 0]], [[1, 1]]], [-1, -1, 1])  # the server is the last device
    assert references.find(centroids).shape == (3, 1, 2) and not references.find(centroids)[2].any()
    references.keep(centroids)
    assert_array_equal(references.find(reports)[:2], reports.values[:2])
    assert references.find(centroids)[2].tolist() == [[1, 1]]


def test_what_some_neighbors_do_not_receive_and_what_is_no_number_is_no_reference():
    references = References(skip_selected=True)
    first = _table([[[1.0]], [[2.0]]], [1, 1])
    references.keep(first)
    references.keep(_table([[[5.0]], [[6.0]]], [1, 1], edges=np.array([True, False])))
    references.keep(_table([[[np.inf]], [[7.0]]], [1, -1]))
    assert_array_equal(references.find(first), first.values)
