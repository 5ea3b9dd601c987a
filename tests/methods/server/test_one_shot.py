"""What every one-shot method must bear: any batch, and a server that hears nothing."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from p2pkm.kernels import reference as plain
from p2pkm.methods.server.centralized import Central
from p2pkm.methods.server.fkmeanscb import FKMeansCB
from p2pkm.methods.server.kfed import KFED
from p2pkm.methods.server.mavg import MAvg
from tests.support.server import clients_of, serve

METHODS = [KFED(4), KFED(4, local_k=9, seeding="greedy"), MAvg(4), FKMeansCB(4), Central(4), Central(4, method="cdkm")]
EVERY = pytest.mark.parametrize("method", METHODS, ids=[f"{one.name}-{i}" for i, one in enumerate(METHODS)])


def clients(seed=0):
    rng = np.random.default_rng(seed)
    return clients_of([rng.normal(size=(m, 3)) for m in (20, 0, 3, 12)], weights=rng.integers(1, 3, 35))[0]


def batch(devices, first, last):
    """Return the devices first .. last - 1 as a batch of their own."""
    own = slice(devices.offsets[first], devices.offsets[last])
    return replace(
        devices,
        ids=devices.ids[first:last],
        keys=devices.keys[first:last],
        stored=devices.stored[own].copy(),
        point_weights=devices.point_weights[own].copy(),
        offsets=devices.offsets[first : last + 1] - devices.offsets[first],
    )


@EVERY
def test_a_batch_says_what_its_devices_say_alone(method):
    devices = clients()
    together = method.report(devices, np.full((5, 4, 3), np.inf))
    for i in range(5):
        alone = method.report(batch(devices, i, i + 1), np.full((1, 4, 3), np.inf))
        rows = together.rows[i]
        assert alone.rows[0] == rows and alone.values.shape[2] == together.values.shape[2]
        assert_array_equal(alone.values[0, :rows], together.values[i, :rows])
        assert_array_equal(alone.local[0], together.local[i])


@EVERY
def test_a_batch_without_devices(method):
    said = method.report(batch(clients(), 5, 5), np.full((0, 4, 3), np.inf))
    assert len(said.values) == len(said.rows) == len(said.local) == 0


@EVERY
def test_a_server_that_hears_nothing_stays_where_it_is(method):
    devices, model = clients(), np.full((4, 3), np.inf)
    width = method.report(devices, model[None]).values.shape[2]
    assert method.aggregate(devices, [np.zeros((0, width))] * 4, model).shape == (0, 3)
    model[:2] = 7.0
    assert_array_equal(method.aggregate(devices, [np.zeros((0, width))] * 4, model), model[:2])


@EVERY
def test_nothing_that_was_given_is_written_to(method):
    devices = replace(clients(), kernels=plain)  # the compiled form would be compiled once more
    model = np.full((5, 4, 3), np.inf)
    for array in (devices.points, devices.point_weights, model):
        array.flags.writeable = False
    values, rows, _ = method.report(devices, model)
    values.flags.writeable = False
    method.aggregate(devices, [values[i, : rows[i]] for i in range(4)], model[0])


@EVERY
def test_it_ends_after_one_round(method):
    rng = np.random.default_rng(2)
    data = [rng.normal(size=(m, 3)) for m in (20, 0, 3, 12)]
    one, three = serve(method, data, 1), serve(method, data, 3)
    assert method.traits.one_shot and method.default_rounds == 1
    assert one.ledger == three.ledger and one.ledger[0] == 8
    assert_array_equal(one.model, three.model)
