"""`check_method`: every method passes, and methods that are broken in one way fail the one check that is about it."""

from dataclasses import dataclass, replace
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
from p2pkm.core.traits import Condition
from p2pkm.methods.building_blocks.averaging import local_sums
from p2pkm.methods.building_blocks.table_method import TableMethod
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


@dataclass(frozen=True)
class Means(TableMethod):
    """A right method: half the mean of the local points of a cluster, half that of the tables that arrived."""

    name = "means"

    def combine(self, device):
        with np.errstate(invalid="ignore", divide="ignore"):
            own = np.where(device.counts[:, None] > 0, device.sums / device.counts[:, None], device.centroids)
        return (own + device.tables.mean(axis=0)) / 2 if len(device.tables) else own


class PutsZeroForNaN(Means):
    def combine(self, device):
        return np.nan_to_num(device.sums / device.counts[:, None])


class DividesByOneAtLeast(Means):
    def combine(self, device):
        return device.sums / np.maximum(device.counts, 1.0)[:, None]


class AddsLittleToCounts(Means):
    def combine(self, device):
        return device.sums / (device.counts[:, None] + 1e-12)


class AveragesZeros(Means):
    def combine(self, device):
        own = np.nan_to_num(device.sums / device.counts[:, None])
        return (own + device.tables.sum(axis=0)) / (1 + len(device.tables))


class ForgetsTheWeightsOfTables(Means):
    def combine(self, device):
        return (device.sums + device.tables.sum(axis=0)) / device.counts[:, None]


class SendsZeros(p2pkm.DGC):
    """Its own centroids are right, but neighbors get 0 for a cluster without points."""

    def message(self, state, devices):
        sent = super().message(state, devices)
        counts = local_sums(devices, state.centroids)[:, :, -1:]
        return sent._replace(values=np.where(counts == 0.0, 0.0, sent.values))


class ServesZeros(p2pkm.FKM):
    def aggregate(self, hub, tables, model):
        found = super().aggregate(hub, tables, model)
        return np.where(np.arange(len(found))[:, None] == 1, 0.0, found)


class HidesAColumn(Means):
    header = 1

    def message(self, state, devices):
        return super().message(state, devices)._replace(header=self.header)

    def expected_messages(self, known):
        return None


class HidesCounts(Means):
    """An additional column with the number of points of each cluster: integers, as ids are."""

    def message(self, state, devices):
        sent = super().message(state, devices)
        counts = local_sums(devices, state.centroids)[:, :, -1:]
        counts = np.where(np.isfinite(sent.values[:, :, :1]), counts, np.inf)
        return sent._replace(values=np.concatenate((counts, sent.values), axis=2), header=1)

    def update(self, state, inbox, devices):
        return super().update(state, inbox._replace(tables=inbox.tables[:, :, 1:]), devices)


class DeclaresFewBytes(Means):
    encoded = 16

    def message(self, state, devices):
        return super().message(state, devices)._replace(wire=np.full(len(devices), self.encoded))


class DeclaresNoBytes(DeclaresFewBytes):
    encoded = 0


class NeedsAllMessages(Means):
    def update(self, state, inbox, devices):
        assert inbox.fresh.all()
        return super().update(state, inbox, devices)


class ReadsTablesThatWereLost(Means):
    """Takes the place where the table of a neighbor would be, whether it arrived or not."""

    def update(self, state, inbox, devices):
        return super().update(state, inbox._replace(slots=inbox.senders, open_edges=None, sent=None), devices)


class DividesByTablesThatArrived(Means):
    def combine(self, device):
        return device.tables.sum(axis=0) / len(device.tables) if len(device.tables) else device.centroids * np.nan

    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        is_alone = np.bincount(devices.sources[inbox.fresh], minlength=len(devices)) == 0
        return after._replace(centroids=np.where(is_alone[:, None, None], np.nan, after.centroids))


class CountsLostTablesAsZeros(Means):
    def combine(self, device):
        return super().combine(device) * (len(device.tables) / 2 if len(device.tables) else 1.0)


class NeedsAllLinks(Means):
    def update(self, state, inbox, devices):
        assert devices.active_edges.all()
        return super().update(state, inbox, devices)


class ClaimsToTolerateAbsence(Means):
    @property
    def traits(self):
        traits = super().traits
        refused = {**traits.incompatible_with, Condition.LOSSY_LINKS: "adds up sums"}
        return replace(traits, tolerates_absence=True, incompatible_with=refused)

    def update(self, state, inbox, devices):
        assert devices.active_devices.all()
        return super().update(state, inbox, devices)


class NeedsAllReports(p2pkm.FKM):
    def aggregate(self, hub, tables, model):
        assert hub.min_count or sum(map(bool, map(len, tables))) == 6  # of the clients with more than one point
        return super().aggregate(hub, tables, model)


class NeedsExactTables(Means):
    """Expects tables as they were sent: of what changes them, it excludes only a part."""

    excluded = (Condition.LOSSY_LINKS, Condition.CHANGING_LINKS)

    @property
    def traits(self):
        traits = super().traits
        return replace(
            traits, incompatible_with={**traits.incompatible_with, **dict.fromkeys(self.excluded, "sums up")}
        )

    def update(self, state, inbox, devices):
        if len(devices) == 8:  # not a part of the batch
            assert np.array_equal(inbox.tables_of(slice(None), self.k, devices.d), state.centroids[devices.indices])
        return super().update(state, inbox, devices)


class NeedsWholeTables(NeedsExactTables):
    excluded = (*NeedsExactTables.excluded, "quantization")


class NeedsUnscaledPoints(Means):
    def update(self, state, inbox, devices):
        assert len(devices) < 8 or devices.points.max() > 4.0
        return super().update(state, inbox, devices)


class ClaimsToIgnoreWeights(Means):
    @property
    def traits(self):
        return replace(super().traits, ignores_weights=True)


class ClaimsCommonCentroids(Means):
    @property
    def traits(self):
        return replace(super().traits, common_centroids=True)


class ClaimsDescent(p2pkm.GTVMin):
    def update(self, state, inbox, devices):
        after = super().update(state, inbox, devices)
        is_moving = devices.active_devices[:, None, None] & np.isfinite(after.centroids)
        return after._replace(centroids=np.where(is_moving, after.centroids + devices.round, after.centroids))


class ReadsPointsOnce(Means):
    def update(self, state, inbox, devices):
        return super().update(state, inbox, replace(devices, stored=np.zeros_like(devices.stored)))


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
    (PutsZeroForNaN, "range", r"update returned centroid \d of device \d as \[0. 0.\]; expected a centroid near"),
    (DividesByOneAtLeast, "range", "0 / 0 must not become 0"),
    (AddsLittleToCounts, "range", "a small number that is added"),
    (AveragesZeros, "range", "add only tables that are there"),
    (ForgetsTheWeightsOfTables, "range", "Divide a sum of points and tables by all of their weights"),
    (SendsZeros, "range", r"message returned centroid \d of device \d as \[0. 0.\]"),
    (ServesZeros, "range", r"aggregate returned centroid 1 of device 0 as \[0. 0.\]"),
    (HidesAColumn, "bytes", r"device 0 sent .* in column 0 of the header .* Bytes of the header are not counted"),
    (HidesCounts, "bytes", r"device 0 sent 3 in column 0 of the header"),
    (DeclaresFewBytes, "bytes", r"declared 16 encoded bytes \(wire\) for a table of . numbers in exchange"),
    (DeclaresNoBytes, "bytes", "expected at least 6 bytes for each such number"),
    (NeedsAllMessages, "losses", "a run in which messages are lost and late, the run failed with AssertionError"),
    (ReadsTablesThatWereLost, "losses", "Compute with the messages that arrived only"),
    (DividesByTablesThatArrived, "losses", "update returned centroids with NaN"),
    (CountsLostTablesAsZeros, "losses", "far from the points"),
    (NeedsAllLinks, "losses", r"links change, (?s:.*)incompatible_with=\{Condition.CHANGING_LINKS: reason\}"),
    (ClaimsToTolerateAbsence, "losses", "a run in which devices are absent, (?s:.*)without tolerates_absence"),
    (NeedsAllReports, "losses", "a run in which messages are lost and late, the run failed with AssertionError"),
    (NeedsExactTables, "options", r"messages are integers, (?s:.*)incompatible_with=\{'quantization': reason\}"),
    (NeedsWholeTables, "options", r"the largest numbers of a table are sent, (?s:.*)'compression': reason"),
    (NeedsUnscaledPoints, "options", r"features are scaled, (?s:.*)Condition.MEASURED_POINTS: reason"),
    (ClaimsToIgnoreWeights, "weights", "ignores_weights says that every point counts once"),
    (ClaimsCommonCentroids, "claims", "ended with other centroids than device 0"),
    (ClaimsDescent, "claims", "the objective rose in round"),
    (ReadsPointsOnce, "claims", "follows_points says that each round reads the points"),
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
