"""Every device by itself: nothing is said, and the centroids are those of the baseline."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from p2pkm.core.batch import Stream
from p2pkm.core.errors import ExperimentError
from p2pkm.methods.peer.local_only import LocalOnly
from tests.support.server import clients_of


def test_every_device_clusters_its_own_points_and_is_silent():
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(m, 2)) for m in (30, 0, 2, 25)]
    devices, network = clients_of(data)
    network.open()
    method = LocalOnly(3)
    state = method.initial_state(devices, None)
    inbox = network.exchange(method.message(state, devices.at_stage_start(devices.ids != devices.server)))
    assert method.update(state, inbox, devices.at_turn(1, 0, devices.ids == devices.server)) is state
    assert network.ledger.totals == (0, 0)
    assert state.converged.all() and state.converged.shape == (5,)
    assert_array_equal(np.isfinite(state.centroids[:, :, 0]).sum(axis=1), [3, 0, 2, 3, 0])
    assert_array_equal(state.centroids, devices.kmeans(3, Stream.LOCAL_ONLY, starts=5)[0])


def test_more_seedings_are_not_worse():
    data = [np.random.default_rng(1).normal(size=(60, 2))]
    devices, _ = clients_of(data)
    costs = []
    for starts in (1, 20):
        rows = LocalOnly(8, n_init=starts).initial_state(devices, None).centroids[0]
        costs.append(((data[0][:, None] - rows) ** 2).sum(axis=2).min(axis=1).sum())
    assert costs[1] < costs[0]


@pytest.mark.parametrize("options", [{"k": 0}, {"n_init": 0}])
def test_options_out_of_range(options):
    with pytest.raises(ExperimentError):
        LocalOnly(**{"k": 2, **options})
