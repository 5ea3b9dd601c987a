"""Extensions with one mistake each: a check is red and names the mistake; the same extension without it passes."""

import json
import re
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import p2pkm
import topologies
from p2pkm.channel.references import References, find_sent
from p2pkm.channel.registry import PluginTransforms
from p2pkm.channel.registry import find as find_transform
from p2pkm.channel.transform import (
    ANY_CONTENT,
    REFERENCES_AT_BOTH_ENDS,
    Order,
    ReshapesMethod,
    SavesItself,
    Transform,
)
from p2pkm.core.errors import ContractError, ExperimentError
from p2pkm.core.expected_messages import EveryTurn, Reports
from p2pkm.core.messages import SparseMessages
from p2pkm.core.spec import Spec
from p2pkm.core.traits import MessageContent, MethodTraits, ServerTraits
from p2pkm.methods.building_blocks.table_method import TableMethod
from p2pkm.methods.registry import find
from p2pkm.metrics.registry import Metric, ShownIn
from p2pkm.testing.trial import CheckError
from tests.support.each import each
from tests.support.sampling import first_of_each

RNG = np.random.default_rng(1)
SHARDS = p2pkm.Shards.from_list([RNG.normal(size=(m, 2)) for m in (8, 2, 0, 9, 8, 1)])


class Largest(Transform):
    """Send the half of the coordinates that changed most, and add the rest to the next changes."""

    name, order = "largest", Order.PERTURB
    acts_on = (MessageContent.CENTROIDS,)
    incompatible_with = REFERENCES_AT_BOTH_ENDS

    def begin(self, stage, *, closing):
        self.references, self.rest = References(), None
        return self if closing else None

    def outgoing(self, messages, context):
        if isinstance(messages, SparseMessages):
            return messages
        reference, sending = self.references.find(messages), messages.rows[:, None, None] >= 0
        rest = np.zeros(messages.values.shape) if self.rest is None else self.rest
        change = np.where(find_sent(messages), messages.values - reference + rest, 0.0)
        limit = np.median(np.abs(change), axis=(1, 2), keepdims=True) if len(change) else 0.0
        kept = np.where(np.abs(change) >= limit, change, 0.0)
        self.rest = np.where(sending, change - kept, rest)
        wire = 9 * np.count_nonzero(kept, axis=(1, 2))
        sent = messages._replace(values=np.where(sending, reference + kept, messages.values), wire=wire)
        self.references.keep(sent)
        return sent


class RunsOnLossyLinks(Largest):
    incompatible_with = {}  # noqa: RUF012


class RemembersItsTables(Transform):
    """Like a transform with `References`, with an array in their place."""

    name, order = "remembers", Order.PERTURB
    acts_on = ANY_CONTENT

    def begin(self, stage, *, closing):
        self.last = None
        return self if closing else None

    def outgoing(self, messages, context):
        if isinstance(messages, SparseMessages):
            return messages
        last = np.zeros(messages.values.shape) if self.last is None else self.last
        values = last + (messages.values - last).astype(np.float16)
        self.last = np.where(messages.rows[:, None, None] >= 0, values, last)
        return messages._replace(values=values)


class RestInABag(Largest):
    """The rest is in an object that nothing saves."""

    def __init__(self):
        self.bag = Bag()

    def begin(self, stage, *, closing):
        self.bag.rest = None
        return super().begin(stage, closing=closing)

    def outgoing(self, messages, context):
        self.rest = self.bag.rest
        sent = super().outgoing(messages, context)
        self.bag.rest, self.rest = self.rest, None
        return sent


class Bag:
    rest = None


class RestIsNotSaved(Largest):
    prepared = ("rest",)


class DoesNothing(Transform):
    name, order, acts_on = "nothing", Order.PERTURB, ANY_CONTENT


class Halves(Transform):
    """A right transform without state."""

    name, order, acts_on = "halves", Order.PERTURB, (MessageContent.CENTROIDS,)

    def outgoing(self, messages, context):
        return messages if isinstance(messages, SparseMessages) else messages._replace(values=messages.values / 2)


class SaysNothingOfContent(Halves):
    acts_on = None


class DefinesSnapshot(Halves):
    def snapshot(self):
        return {}


class IgnoresSelectedLinks(Halves):
    def outgoing(self, messages, context):
        is_dense = not isinstance(messages, SparseMessages)
        return super().outgoing(messages, context) if is_dense and messages.edges is None else messages


class WritesMessages(Halves):
    def outgoing(self, messages, context):
        messages.values[...] /= 2
        return messages


class AveragesTheBatch(Halves):
    def outgoing(self, messages, context):
        values = messages.values
        return messages._replace(values=values + (values.mean(axis=0) if len(values) else 0.0))


class AveragesAndReshapes(ReshapesMethod, AveragesTheBatch):
    """The averages begin when the method is wrapped, so each part must be told, too."""

    def equip(self, devices):
        self.is_equipped = True
        return devices

    def wrap(self, algorithm, schedule, network):
        self.is_wrapped = self.is_equipped
        return algorithm, schedule

    def outgoing(self, messages, context):
        return super().outgoing(messages, context) if self.is_wrapped else messages


class AveragesAndSavesItself(SavesItself, AveragesTheBatch):
    pass


class WrongLength(Halves):
    def outgoing(self, messages, context):
        return messages._replace(wire=np.ones(3, np.int64))


class NegativeLength(Halves):
    def outgoing(self, messages, context):
        return messages._replace(wire=np.full(len(messages.rows), -1))


ROUNDED = set()


class CountsInModule(Halves):
    def outgoing(self, messages, context):
        ROUNDED.add(context.devices.round)
        return super().outgoing(messages, context)


class ClaimsToHandleLoss(Transform):
    """Like `Largest`, with an array in place of `References`."""

    name, order, acts_on, handles_loss = "claims", Order.PERTURB, ANY_CONTENT, True

    def begin(self, stage, *, closing):
        self.last = None
        return self if closing else None

    def outgoing(self, messages, context):
        if isinstance(messages, SparseMessages):
            return messages
        last = np.zeros(messages.values.shape) if self.last is None else self.last
        change = np.where(find_sent(messages), messages.values - last, 0.0)
        limit = np.median(np.abs(change), axis=(1, 2), keepdims=True) if len(change) else 0.0
        kept = np.where(np.abs(change) >= limit, change, 0.0)
        self.last = last + kept
        return messages._replace(values=self.last, wire=9 * np.count_nonzero(kept, axis=(1, 2)))


class HidesAColumn(Halves):
    def outgoing(self, messages, context):
        return super().outgoing(messages, context)._replace(header=1)


class DeclaresFewBytes(Halves):
    def outgoing(self, messages, context):
        return super().outgoing(messages, context)._replace(wire=np.full(len(messages.rows), 2))


class SendsNaN(Halves):
    def outgoing(self, messages, context):
        return messages._replace(values=messages.values * np.nan)


class CountsBytes(Halves):
    def figures(self, network):
        return {"bytes": 1}


class DrawsByItself(Halves):
    def outgoing(self, messages, context):
        return messages._replace(values=messages.values + np.random.random(messages.values.shape))


class ListOfRests(Halves):
    def __init__(self):
        self.rests = []


TRANSFORMS = [
    (RunsOnLossyLinks, "runs", "incompatible_with = REFERENCES_AT_BOTH_ENDS"),
    (RemembersItsTables, "lossy-links", "incompatible_with = REFERENCES_AT_BOTH_ENDS"),
    (RestInABag, "resume", "Assign everything that the next round needs to attributes"),
    (RestIsNotSaved, "resume", "`prepared`"),
    (ListOfRests, "runs", "attribute rests of transform halves is a list"),
    (ClaimsToHandleLoss, "bytes", "REFERENCES_AT_BOTH_ENDS in place of handles_loss"),
    (HidesAColumn, "bytes", "whose bytes are not counted"),
    (DeclaresFewBytes, "bytes", "declared 2 encoded bytes (wire)"),
    (IgnoresSelectedLinks, "selected-links", "messages are sent over selected links"),
    (DoesNothing, "effect", "must do something, or refuse the method"),
    (SaysNothingOfContent, "declaration", "acts_on = (MessageContent.CENTROIDS,)"),
    (DefinesSnapshot, "declaration", "defines snapshot"),
    (WritesMessages, "inputs", "outgoing wrote into messages.values"),
    (AveragesTheBatch, "parts", "Treat each device separately"),
    (AveragesAndReshapes, "parts", "Treat each device separately"),
    (AveragesAndSavesItself, "parts", "Treat each device separately"),
    (WrongLength, "runs", "wire of int64 and shape (3,)"),
    (CountsInModule, "inputs", "a run changed ROUNDED, which no checkpoint contains"),
    (NegativeLength, "runs", "wire -1; expected encoded bytes of each table, at least 0"),
    (SendsNaN, "runs", "tables with NaN in rows that are sent"),
    (CountsBytes, "figures", "'bytes', which exists"),
    (DrawsByItself, "repeatable", "context.draw"),
]


@pytest.mark.parametrize(
    ("kind", "check", "told"),
    first_of_each(TRANSFORMS, itemgetter(1)),
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.sample(5)
def test_a_wrong_transform_is_found(kind, check, told):
    with pytest.raises(CheckError) as caught:
        p2pkm.check_transform(kind, only=("runs", check))
    assert list(caught.value.failed) == [check] and told in caught.value.failed[check]


@each(
    ("declared", "told"),
    [
        ({"acts_on": MessageContent.CENTROIDS}, "expected a tuple of MessageContent"),
        ({"acts_on": ("centroids",)}, "expected a tuple of MessageContent"),
        ({"order": None}, "expected a p2pkm.channel.transform.Order"),
        ({"order": "PERTURB"}, "order is 'PERTURB'"),
        ({"name": "my half"}, "name is 'my half'; expected lower-case letters, digits and hyphens"),
        ({"name": None}, "name is None"),
        ({"prepared": "last"}, "prepared is 'last'; expected a tuple of names"),
        ({"incompatible_with": ["suppression"]}, "expected a dict"),
    ],
)
def test_a_wrong_declaration_of_a_transform_is_found(declared, told):
    kind = type("Wrong", (Halves,), declared)
    with pytest.raises(CheckError) as caught:
        p2pkm.check_transform(kind)
    assert told in caught.value.failed["declaration"]
    with pytest.raises(ContractError, match=re.escape(told)):
        p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), SHARDS, transforms=kind)


@pytest.mark.parametrize(
    ("kind", "told"), [(SendsNaN, "with NaN"), (NegativeLength, "wire -1"), (WrongLength, r"shape \(3,\)")]
)
def test_a_wrong_transform_ends_the_run(kind, told):
    given = PluginTransforms(((kind, Spec("halves", {})),))
    with pytest.raises(ContractError, match=rf"{kind.__name__}: outgoing returned .*{told}"):
        p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), SHARDS, rounds=2, baselines=False, transforms=given)


class OfSummaries(Halves):
    acts_on = (MessageContent.SUMMARIES,)


class RefusesAll(Halves):
    acts_on = ANY_CONTENT

    @classmethod
    def check(cls, settings, algorithm):
        raise ExperimentError(f"halves is not for {algorithm.name}.")


class DoesNothingToOthers(DoesNothing):
    acts_on = (MessageContent.OTHER,)


@pytest.mark.parametrize(("kind", "reason"), [(OfSummaries, "expected SUMMARIES"), (RefusesAll, "is not for gtvmin")])
def test_a_transform_that_is_for_none_of_the_methods_asks_for_one(kind, reason):
    with pytest.raises(ExperimentError, match=reason) as caught:
        p2pkm.check_transform(kind)
    assert f"check_transform({kind.__name__}, MyMethod(3))" in str(caught.value)
    assert "coreset" not in str(caught.value)


def test_a_method_that_nobody_gave_is_explained():
    with pytest.raises(CheckError, match="tried with coreset, because no method was given") as caught:
        p2pkm.check_transform(DoesNothingToOthers, only="effect")
    assert "check_transform(DoesNothingToOthers, MyMethod(3))" in str(caught.value)
    with pytest.raises(CheckError) as caught:
        p2pkm.check_transform(DoesNothingToOthers, find("coreset")(3), only="effect")
    assert "coreset" not in str(caught.value)


def test_a_content_that_no_method_sends_is_refused():
    with pytest.raises(ExperimentError, match=r"expected SUMMARIES.* use a method of your own, because none of p2pkm"):
        p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), SHARDS, transforms=OfSummaries())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Largest, Halves])
def test_a_right_transform_passes_all_checks(kind):
    assert "resume" in p2pkm.check_transform(kind)


def test_differences_are_refused_on_selected_links():
    given = PluginTransforms(((Largest, Spec("largest", {})),))
    with pytest.raises(ExperimentError, match=r"selected links only, .* algorithm"):
        p2pkm.simulate(p2pkm.GossipMatching(3), topologies.ring(6), SHARDS, rounds=2, baselines=False, transforms=given)


def test_a_content_that_a_transform_does_not_act_on_is_refused():
    given = PluginTransforms(((Halves, Spec("halves", {})),))
    with pytest.raises(
        ExperimentError, match=r"halves.* cannot be combined with consensus: .* SUMS; expected CENTROIDS"
    ):
        p2pkm.simulate(p2pkm.ConsensusLloyd(3), topologies.ring(6), SHARDS, rounds=2, transforms=given)


class DeclaresNoContent(p2pkm.GTVMin):
    @property
    def traits(self):
        return MethodTraits(init=super().traits.init)


class HidesItsCentroids(p2pkm.DGC):
    @property
    def traits(self):
        return replace(super().traits, message_content=MessageContent.OTHER, suppresses_small_clusters=False)

    def update(self, state, inbox, devices):
        return super().update(state, inbox, replace(devices, min_count=0))

    def initial_state(self, devices, start):
        return super().initial_state(replace(devices, min_count=0), start)


class ClaimsToSuppress(HidesItsCentroids):
    @property
    def traits(self):
        return super(HidesItsCentroids, self).traits


class SendsSingleRows(p2pkm.DGC):
    @property
    def traits(self):
        return replace(super().traits, message_content=MessageContent.CENTROIDS, suppresses_small_clusters=False)

    def update(self, state, inbox, devices):
        return super().update(state, inbox, replace(devices, min_count=0))

    def initial_state(self, devices, start):
        return super().initial_state(replace(devices, min_count=0), start)


class SubtractsAbsentRows(p2pkm.DGC):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        return after._replace(centroids=after.centroids + 0.0 * (state.centroids - after.centroids))


class DeclaresTenTimesItsRows(p2pkm.DGC):
    def expected_messages(self, known):
        return EveryTurn(10 * self.k, known.features)


class DeclaresTenTimesItsReports(p2pkm.FKM):
    def expected_messages(self, known):
        return Reports(10 * known.clients * self.k, known.features + 1)


@dataclass(frozen=True)
class DividesByZero(TableMethod):
    """A mean of the centroids of the neighbors that is always 0 / 0."""

    name = "divides-by-zero"

    def combine(self, device):
        return device.tables.sum(axis=0) / (0.0 * device.counts[:, None])


class DividesByCounts(DividesByZero):
    """The mean of the local points: 0 / 0 in clusters without points only."""

    def combine(self, device):
        return device.sums / device.counts[:, None]


class MatchesAbsentRows(DividesByCounts):
    """Pairs the rows of neighbors with its own, also those of absent centroids, at infinity."""

    def combine(self, device):
        gaps = ((device.centroids[:, None] - device.tables[0]) ** 2).sum(axis=2) if len(device.tables) else np.eye(3)
        return device.centroids[linear_sum_assignment(gaps)[0]]


class SendsNaNToNeighbors(p2pkm.ConsensusLloyd):
    def message(self, state, devices):
        messages = super().message(state, devices)
        return messages._replace(values=messages.values * np.nan)


class SendsNaNToServer(p2pkm.FKM):
    def report(self, clients, model):
        report = super().report(clients, model)
        return report._replace(values=report.values * np.nan)


class HasTraitsOfPeers(p2pkm.FKM):
    traits = MethodTraits(message_content=MessageContent.CENTROIDS)


class HasTraitsOfServers(p2pkm.DGC):
    traits = ServerTraits(message_content=MessageContent.CENTROIDS)


SEEN = []
FIRST = {}


def remember(centroids):
    """Return the first centroids of all."""
    return FIRST.setdefault("first", centroids)


@dataclass(frozen=True)
class RemembersFirst(DividesByCounts):
    """All devices stay at the first centroids that any of them had: the same in every run of the process."""

    def combine(self, device):
        return remember(device.centroids)


class CountsInClass(RemembersFirst):
    rounds = np.zeros(1)

    def combine(self, device):
        self.rounds[:] = min(self.rounds[0] + 1, 5)
        return device.centroids


class CountsMessages(DividesByCounts):
    def message(self, state, devices):
        SEEN.append(len(devices))
        return super().message(state, devices)


class HasSpaceInName(p2pkm.DGC):
    name = "my method"


class MovesAll(p2pkm.GTVMin):
    schedule = "colored"

    def update(self, state, inbox, devices):
        return super().update(state, inbox, devices)._replace(centroids=state.centroids + 1.0)


class HasRoundsAsText(p2pkm.DGC):
    default_rounds = "30"


METHODS = [
    (MovesAll, "inputs", "which was not active in round"),
    (HasRoundsAsText, "declaration", "default_rounds is '30'; expected an integer"),
    (RemembersFirst, "inputs", "a run changed FIRST, which is not a part of the state"),
    (CountsInClass, "inputs", "a run changed CountsInClass.rounds"),
    (CountsMessages, "inputs", "a run changed SEEN"),
    (HasSpaceInName, "declaration", "name is 'my method'; expected letters, digits and hyphens"),
    (DividesByZero, "runs", "combine returned ["),
    (SendsNaNToNeighbors, "finite", "in rows that are sent"),
    (SendsNaNToServer, "finite", "in rows that are sent"),
    (HasTraitsOfPeers, "declaration", "its traits are MethodTraits; expected ServerTraits"),
    (HasTraitsOfServers, "declaration", "its traits are ServerTraits; expected MethodTraits"),
    (SendsSingleRows, "suppression", "local_sums"),
    (DeclaresTenTimesItsRows, "plan", "expected_messages of 'dgc' declares at most"),
    (DeclaresTenTimesItsReports, "plan", "expected at most 2 times as many"),
    (DeclaresNoContent, "declaration", "message_content=MessageContent.CENTROIDS"),
    (HidesItsCentroids, "suppression", "Declare MessageContent.CENTROIDS"),
    (ClaimsToSuppress, "suppression", "devices.min_count"),
    (SubtractsAbsentRows, "finite", "inf - inf is NaN"),
    (MatchesAbsentRows, "finite", "on all devices, as with fewer distinct points than clusters: the run failed with"),
]


@pytest.mark.parametrize(("kind", "check", "told"), METHODS, ids=lambda value: getattr(value, "__name__", None))
@pytest.mark.sample(5)
def test_a_wrong_method_is_found(kind, check, told):
    with pytest.raises(CheckError) as caught:
        p2pkm.check_method(kind, only=check)
    assert told in caught.value.failed[check]


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_run_does_not_end_with_centroids_that_are_no_numbers():
    with pytest.raises(ContractError, match=r"SubtractsAbsentRows\.update returned centroids with NaN"):
        p2pkm.simulate(SubtractsAbsentRows(3, init="local"), topologies.ring(6), SHARDS, rounds=2, baselines=False)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (DividesByZero, r"combine returned \[.*inf.*\] for cluster 0 of device 0"),
        (SendsNaNToNeighbors, "message returned tables with NaN in rows that are sent"),
        (SendsNaNToServer, "report returned tables with NaN in rows that are sent"),
    ],
)
def test_a_run_does_not_continue_with_numbers_that_are_none(kind, told):
    graph = None if issubclass(kind, p2pkm.FKM) else topologies.ring(6)
    with pytest.raises(ContractError, match=told):
        p2pkm.simulate(kind(3), graph, SHARDS, rounds=2, baselines=False)


def test_a_cluster_without_points_may_divide_by_zero():
    assert p2pkm.check_method(DividesByCounts, only=("finite", "runs"))


def write_into(result):
    centroids = result.centroids
    centroids *= 2.0
    return 1.0


METRICS = [
    ({"compute": lambda result: np.zeros(3), "per_device": True}, "values", "one number for each device"),
    ({"compute": lambda result: 1.0, "per_device": True}, "values", "one number for each device"),
    ({"compute": lambda result: result.centroids[:, 0, 0]}, "values", "declare per_device=True"),
    ({"compute": lambda result: 1.0, "key": "bytes"}, "declaration", "'bytes' exists already"),
    ({"compute": write_into}, "inputs", "arrays of the result are read-only"),
    ({"compute": lambda result: result.summary["ratio_mean"] + 1.0}, "runs", "return None if a run lacks"),
    ({"compute": lambda result: np.random.random()}, "repeatable", "expected the same bits"),
    ({"compute": None}, "declaration", "add compute=function"),
    ({"compute": lambda result: 1.0, "key": "my metric"}, "declaration", "letters, digits and underscores"),
]


@each(("changes", "check", "told"), METRICS)
def test_a_wrong_metric_is_found(changes, check, told):
    with pytest.raises(CheckError) as caught:
        p2pkm.check_metric(Metric(**{"key": "mine", "label": "mine", "meaning": "an example", **changes}))
    assert list(caught.value.failed) == [check] and told in caught.value.failed[check]


def test_right_metrics_pass_all_checks():
    for compute, per_device in ((lambda result: result.centroids[:, 0, 0], True), (lambda result: "text", False)):
        metric = Metric("mine", "mine", "an example", per_device=per_device, compute=compute, tables=ShownIn(0))
        assert "inputs" in p2pkm.check_metric(metric)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (METRICS[0][0], "float64"),
        (METRICS[3][0], "belongs to two metrics"),
        ({"compute": write_into}, "wrote into the result"),
    ],
)
def test_a_wrong_metric_is_refused_in_a_run(changes, told, monkeypatch):
    wrong = Metric(**{"key": "mine", "label": "mine", "meaning": "an example", **changes})
    monkeypatch.setattr("p2pkm.metrics.registry.METRICS", (*p2pkm.metrics.registry.METRICS, wrong))
    with pytest.raises(ContractError, match=told):
        p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), SHARDS, rounds=1, baselines=False)


def test_a_function_is_checked_as_a_metric():
    def ratio(result):
        return result.summary["cost_mean"]

    assert "inputs" in p2pkm.check_metric(ratio)
    with pytest.raises(CheckError, match="metric 'write_into' fails the check 'inputs'"):
        p2pkm.check_metric(write_into)


@pytest.mark.parametrize("compute", [lambda result: np.nan, lambda result: np.float64("nan")])
def test_a_metric_that_is_no_number_is_unknown(compute, tmp_path):
    wrong = Metric("mine", "mine", "an example", compute=compute)
    result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), SHARDS, rounds=1, baselines=False, metrics=wrong)
    assert result.summary["mine"] is None
    result.save(tmp_path / "run")
    summary = (tmp_path / "run" / "summary.json").read_text()
    assert json.loads(summary, parse_constant=pytest.fail)["mine"] is None


def test_an_unknown_direction_is_refused():
    with pytest.raises(ContractError, match="better of metric mine is 'up'; expected 'lower', 'higher' or ''"):
        Metric("mine", "mine", "an example", better="up")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("noise", {"noise": 0.1}),
        pytest.param("byzantine", {"byzantine": p2pkm.Byzantine(1, kind="flip")}, marks=pytest.mark.slow),
        pytest.param("quantization", {"quantize": p2pkm.Quantization.of("rice")}, marks=pytest.mark.slow),
        pytest.param("faults", {"faults": p2pkm.Faults(loss=0.2, dropout=0.1)}, marks=pytest.mark.slow),
    ],
)
def test_built_in_transforms_satisfy_the_laws_of_all_transforms(name, options):
    assert "resume" in p2pkm.check_transform(find_transform(name), options=options)


def test_a_transform_that_the_options_do_not_select_is_not_checked():
    with pytest.raises(p2pkm.ExperimentError, match=r"do not select GaussianNoise; .*options=\{'noise': "):
        p2pkm.check_transform(find_transform("noise"))
