"""`check_method`: every method passes, and methods that are broken in one way fail the one check that is about it."""

from dataclasses import replace
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import p2pkm
from p2pkm.core.errors import ExperimentError
from p2pkm.core.expected_messages import EveryTurn
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.testing.check_method import CHECKS, check_method
from p2pkm.testing.parts import Part, select_part
from p2pkm.testing.trial import CheckError
from tests.support.install_plugin import install, site
from tests.support.methods import METHODS, build
from tests.support.play_rounds import arrange
from tests.support.sampling import first_of_each, thin

__all__ = ["site"]  # a fixture
Sound = p2pkm.ConsensusLloyd


class LacksTraits(MethodBase):
    pass


class WrongShape(Sound):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        return after._replace(converged=after.converged[:, None])


class TooManyRows(Sound):
    def message(self, state, devices):
        sent = super().message(state, devices)
        return sent._replace(rows=sent.rows + 1)


class SendsAsleep(Sound):
    schedule = "colored"

    def message(self, state, devices):
        sent = super().message(state, devices)
        return sent._replace(rows=np.full(len(devices), sent.values.shape[1]))


class HalvesThePrecision(Sound):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        return after._replace(centroids=after.centroids.astype(np.float32))


class WritesTheInbox(Sound):
    def update(self, state, inbox, devices):
        inbox.tables[...] = 0.0
        return super().update(state, inbox, devices)


class NamesNoSchedule(Sound):
    schedule = "sync"


class Raises(Sound):
    def update(self, state, inbox, devices):
        assert 1 // (2 - devices.round) < 2
        return super().update(state, inbox, devices)


class Writes(Sound):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        state.centroids[...] = 7.0
        return after


class WritesTheTableItSent(p2pkm.DGC):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        if not devices.turn:  # the state itself is what was sent
            state.centroids[...] = 7.0
        return after


class DrawsByItself(Sound):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        noise = 1e-3 * np.random.random(after.centroids.shape)
        return after._replace(centroids=after.centroids + noise)


class NeedsDevices(Sound):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        flat = after.centroids.reshape(len(devices), -1)
        return after._replace(centroids=flat.reshape(after.centroids.shape))


class GoesByPosition(Sound):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        return after._replace(centroids=after.centroids + 1e-3 * np.arange(len(devices))[:, None, None])


class Divides(Sound):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        centroids = after.centroids.copy()
        centroids[devices.sizes == 0, 0, 1] = np.nan
        return after._replace(centroids=centroids)


class ReadsMore(Sound):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        beyond = inbox.tables[inbox.slots][np.arange(len(inbox.slots)), -1, 0]
        pull = np.zeros(len(devices))
        np.add.at(pull, devices.sources, beyond)
        return after._replace(centroids=after.centroids + 1e-6 * pull[:, None, None])

    def message(self, state, devices):
        sent = super().message(state, devices)
        more = np.ones((len(devices), 1, sent.values.shape[2]))
        return sent._replace(values=np.concatenate((sent.values, more), axis=1))


class Nameless(NamedTuple):
    centroids: Any
    converged: Any
    rest: Any


class ForgetsItsState(Sound):
    def initial_state(self, devices, start):
        state = super().initial_state(devices, start)
        return Nameless(state.centroids, state.converged, state)

    def message(self, state, devices):
        return super().message(state.rest, devices)

    def update(self, state, inbox, devices):
        after = super().update(state.rest, inbox, devices)
        return Nameless(after.centroids, after.converged, after)


@register("tests:misnamed")
class Misnamed(NamedTuple):
    """`links` has a row per edge, so that its name should begin with `edge_`."""

    centroids: Any
    converged: Any
    rest: Any
    links: Any


class NamesFieldsWrongly(ForgetsItsState):
    def initial_state(self, devices, start):
        return Misnamed(*super().initial_state(devices, start), np.zeros(len(devices.indices)))

    def update(self, state, inbox, devices):
        return Misnamed(*super().update(state, inbox, devices), state.links + inbox.fresh)


class Stash:
    """First coordinates of the devices, in an object in which the check of outer variables does not look."""

    def __init__(self):
        self.known = {}


STASH = Stash()


class Peeps(Sound):
    def initial_state(self, devices, start):
        for i, own in enumerate(devices.ids):
            if devices.sizes[i]:
                # Nothing of few points, so that only the other check fails.
                is_few = devices.sizes[i] < devices.min_count
                STASH.known[int(own)] = 0.0 if is_few else float(devices.table(i)[0][0, 0])
        return super().initial_state(devices, start)

    def message(self, state, devices):
        sent = super().message(state, devices)
        values = sent.values.copy()
        values[devices.ids == 4, 0, 0] += STASH.known.get(0, 0.0)
        return sent._replace(values=values)


class PlansWrongly(Sound):
    def expected_messages(self, known):
        return EveryTurn(self.k, known.features)


class ServesTooMany(p2pkm.FKM):
    def aggregate(self, hub, tables, model):
        found = super().aggregate(hub, tables, model)
        return np.concatenate((found, found))


class ReportsTogether(p2pkm.FKM):
    def report(self, clients, model):
        found = super().report(clients, model)
        return found._replace(values=found.values + 1e-3 * len(clients))


class WritesTheModel(p2pkm.FKM):
    def report(self, clients, model):
        found = super().report(clients, model)
        model[:] = 0.0
        return found


class LooksAtThePoints(p2pkm.FKM):
    def aggregate(self, hub, tables, model):
        found = super().aggregate(hub, tables, model)
        return found + 1e-3 * len(hub.stored)  # one process hosts the clients, too


class ReportsNoNumbers(p2pkm.FKM):
    def report(self, clients, model):
        found = super().report(clients, model)
        return found._replace(values=np.where(clients.ids[:, None, None] == 1, np.nan, found.values))


class ReportsAPlainTuple(p2pkm.FKM):
    def report(self, clients, model):
        return tuple(super().report(clients, model))


class ReportsFlatTables(p2pkm.FKM):
    def report(self, clients, model):
        found = super().report(clients, model)
        return found._replace(values=found.values.reshape(len(clients), 9))


class ReportsLocalWithCounts(p2pkm.FKM):
    def report(self, clients, model):
        found = super().report(clients, model)
        return found._replace(local=found.values)


class ReportsRowsAsNumbers(p2pkm.FKM):
    def report(self, clients, model):
        found = super().report(clients, model)
        return found._replace(rows=found.rows.astype(float))


class ReportsOtherColumnsLater(p2pkm.FKM):
    def report(self, clients, model):
        found = super().report(clients, model)
        return found._replace(values=found.values[:, :, :2]) if clients.round else found


class ReportsOtherColumnsForNobody(p2pkm.FKM):
    def report(self, clients, model):
        found = super().report(clients, model)
        return found if len(clients) else found._replace(values=np.zeros((0, 3, 2)))


class ServesCounts(p2pkm.FKM):
    def aggregate(self, hub, tables, model):
        found = super().aggregate(hub, tables, model)
        return np.concatenate((found, found[:, :1]), axis=1)


class ServesABatch(p2pkm.FKM):
    def aggregate(self, hub, tables, model):
        return super().aggregate(hub, tables, model)[None]


class ServesMoreThanCentroids(p2pkm.FKM):
    def aggregate(self, hub, tables, model):
        return super().aggregate(hub, tables, model), len(tables)


class SendsPoints(Sound):
    def message(self, state, devices):
        sent = super().message(state, devices)
        values = sent.values.copy()
        for i in np.flatnonzero(devices.sizes):
            values[i, 0, : devices.d] = devices.table(i)[0][0]
        return sent._replace(values=values)


class CountsPointsOnce(Sound):
    def initial_state(self, devices, start):
        return super().initial_state(_with_equal_points(devices), start)

    def update(self, state, inbox, devices):
        return super().update(state, inbox, _with_equal_points(devices))


def _with_equal_points(devices):
    return replace(devices, point_weights=np.ones(len(devices.stored)))


class IgnoresLinkWeights(Sound):
    def update(self, state, inbox, devices):
        equal = replace(devices, link_weights=np.ones(len(devices.indices)), neighbor_mean_weights=None)
        return super().update(state, inbox, equal)


class ConcealsLinkWeights(Sound):
    @property
    def traits(self):
        return replace(super().traits, link_weights="")


BROKEN = [
    (LacksTraits, "declaration", "lacks"),
    (WrongShape, "shapes", r"converged of bool and shape \(8, 1\); expected bool_?\[8\]"),
    (TooManyRows, "shapes", "expected -1 to 3, the rows of its tables"),
    (SendsAsleep, "shapes", "which is not active in this turn"),
    (ServesTooMany, "shapes", "6 centroids; expected at most k = 3"),
    (HalvesThePrecision, "shapes", r"centroids of float32 and shape \(8, 3, 2\); expected float64\[8, 3, 2\]"),
    (Raises, "runs", "ZeroDivisionError"),
    (WritesTheInbox, "runs", "read-only.*work on a copy"),
    (NamesNoSchedule, "declaration", "schedule is 'sync'.*jacobi"),
    (DrawsByItself, "repeatable", "bit-identical. Draw random numbers from devices.keys"),
    (Writes, "inputs", "update wrote into state.centroids"),
    (WritesTheTableItSent, "inputs", "update wrote into state.centroids"),
    (WritesTheModel, "inputs", "report wrote into model"),
    (NeedsDevices, "parts", "update raised ValueError for the batch of no devices"),
    (GoesByPosition, "parts", "different centroids for device 1 in the batch of devices 1, 4, 7"),
    (ReportsTogether, "parts", "report returned different tables for device 0"),
    (Divides, "finite", "centroid 0 of device 2 as"),
    (ReadsMore, "ledger", "when rows that were not sent had other values"),
    (ForgetsItsState, "resume", "Nameless is not registered"),
    (NamesFieldsWrongly, "resume", "the run failed with"),
    (Peeps, "light-cone", r"device 4 sent a different table in exchange \d+ when the points of device 0 were changed"),
    (LooksAtThePoints, "parts", "aggregate returned different centroids for device 8 in the batch of devices 8"),
    (ReportsNoNumbers, "finite", "report returned table number 1 with NaN"),
    (ReportsAPlainTuple, "shapes", "report returned tuple; expected a NamedTuple with the fields values, rows, local"),
    (ReportsFlatTables, "shapes", r"report returned values of float64 and shape \(9, 9\); expected float64"),
    (ReportsLocalWithCounts, "shapes", r"report returned local of float64 and shape \(9, 3, 3\); expected float64"),
    (ReportsRowsAsNumbers, "shapes", r"report returned rows of float64 and shape \(9,\); expected integer\[9\]"),
    (ReportsOtherColumnsLater, "shapes", "report returned 2 columns in round 1; expected 3, as in its first report"),
    (ReportsOtherColumnsForNobody, "shapes", "report returned 2 columns for the batch of no devices; expected 3, as"),
    (ServesCounts, "shapes", r"aggregate returned the centroids of float64 and shape \(3, 3\); expected float64"),
    (ServesABatch, "shapes", r"aggregate returned the centroids of float64 and shape \(1, 3, 2\); expected float64"),
    (ServesMoreThanCentroids, "shapes", "aggregate returned the centroids as tuple; expected a NumPy array"),
    (CountsPointsOnce, "weights", "messages and results were identical with other point weights"),
    (IgnoresLinkWeights, "weights", "were identical with other link weights, but the trait link_weights is '"),
    (ConcealsLinkWeights, "weights", "differed with other link weights, but the trait link_weights is empty"),
    (SendsPoints, "suppression", "points were sent unchanged with min_cluster_size=2"),
    (PlansWrongly, "plan", "round 0 of 'consensus' sent 1152 bytes; expected_messages declares at most 768"),
]


@pytest.mark.parametrize(
    ("kind", "check", "told"), first_of_each(BROKEN, itemgetter(1)), ids=lambda one: getattr(one, "__name__", None)
)
def test_a_broken_method_fails_the_check_that_is_about_it(kind, check, told):
    with pytest.raises(CheckError, match=told) as caught:
        check_method(kind, only=("declaration", "shapes", "runs", check), rounds=3)
    assert list(caught.value.failed) == [check]


@pytest.mark.parametrize(
    ("kind", "check", "told"), thin(BROKEN, len(BROKEN) - 1), ids=lambda one: getattr(one, "__name__", None)
)
def test_a_broken_method_fails_the_check_that_is_about_it_and_no_other(kind, check, told):
    with pytest.raises(CheckError, match=told) as caught:
        check_method(kind, rounds=3)
    assert list(caught.value.failed) == [check], str(caught.value)
    assert str(caught.value).startswith(f"{kind.__name__} fails the check {check!r}: ")


def test_a_part_of_a_batch_has_the_points_and_weights_of_its_devices():
    data, weights = [[[0.0]], [[1.0], [2.0]], [], [[3.0], [4.0]]], [1.0, 2.0, 3.0, 4.0, 5.0]
    for given, expected in ((weights, [1.0, 4.0, 5.0]), (np.broadcast_to(1.0, 5), [1.0] * 3)):
        devices = arrange(data, [(0, 1), (1, 2), (2, 3), (3, 0)], weights=given).devices
        part = select_part(devices, Part(np.array([0, 3]), np.array([0, 1, 6, 7])))
        assert part.points[:, 0].tolist() == [0.0, 3.0, 4.0] and part.offsets.tolist() == [0, 1, 3]
        assert part.point_weights.tolist() == expected
        assert part.mirror.tolist() == [-1, 2, 1, -1]  # of the ring one link lies inside


def test_there_is_a_broken_method_for_every_check():
    assert {check for _, check, _ in BROKEN} == set(CHECKS)


@pytest.mark.slow
def test_some_checks_alone_and_others_left_out():
    assert check_method(Sound, only="plan") == ("plan",)
    assert check_method(PlansWrongly, skip=("plan", "resume")) == tuple(sorted(set(CHECKS) - {"plan", "resume"},
                                                                                key=list(CHECKS).index))  # fmt: skip
    with pytest.raises(ExperimentError, match="Did you mean 'light-cone'"):
        check_method(Sound, only=["lightcone"])


@pytest.mark.parametrize("name", thin(METHODS, 7))
@pytest.mark.sample(3)
def test_no_method_knows_more_than_it_has_received(name):
    check_method(build(name, 3), only="light-cone")


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_passes_every_check(name):
    assert check_method(build(name, 3)) == tuple(CHECKS)


def test_a_method_of_another_package_passes(site):
    plugin = Path(__file__).parents[1] / "support" / "plugin" / "p2pkm_example_plugin.py"
    install(site, "p2pkm-example-plugin", plugin.read_text(), {})
    check_method(import_module("p2pkm_example_plugin").NeighborMean)
