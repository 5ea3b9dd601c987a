"""Push-sum Lloyd: shares on the path, fair shares, and running totals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from p2pkm.methods.building_blocks.averaging import local_sums, relative_weights
from p2pkm.methods.peer.pushsum import PushSumLloyd
from tests.support.averages import GRAPHS, column, neighbors, scene, states
from tests.support.play_rounds import arrange, last

GRAPH_OF_TREE = neighbors(*GRAPHS["tree"])


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_shares_on_a_path_of_three():
    table = arrange([column(6), np.zeros((0, 1)), np.zeros((0, 1))], [(0, 1), (1, 2)])
    found, said = states(PushSumLloyd(1, gossips=300), table, np.zeros((3, 1, 1)), 1)
    # the ends keep a half, the middle a third
    for turn, expected in ((0, [6, 0, 0]), (1, [3, 3, 0]), (2, [2.5, 2.5, 1])):
        close(found[turn].averages[:, 0, 0], expected)
        close(found[turn].averages[:, 0, 1], np.array(expected) / 6)
        close(said[turn].values[:, 0, 0], np.array(expected) / [2, 3, 2])
    close(found[299].averages[:, 0, 0], 6 * np.array([2, 3, 2]) / 7)  # devices with more links gather more
    close(found[300].centroids.ravel(), [6, 6, 6])


def test_what_weighted_shares_gather_in_the_long_run_is_by_the_weights():
    data, links, table, start = scene("tree", weighted=True)
    found, _ = states(PushSumLloyd(4, gossips=4000), table, start, 1)
    held = found[3999].averages[:, :, -1].sum(axis=1)
    strength = np.zeros(len(data))
    for i, j, weight in links:
        strength[[i, j]] += weight
    strength *= 1 + 1 / table.devices.degrees
    close(held / held.sum(), strength / strength.sum())
    around = np.array([strength[near].mean() for near in GRAPH_OF_TREE])
    assert_allclose(PushSumLloyd(1).fair_shares(table.devices), np.minimum(1.0, strength / around))


@pytest.mark.parametrize("gossips", [1, 3])
def test_counters_keep_the_mass_with_weights_of_links(gossips):
    _, _, table, start = scene("tree", weighted=True)
    found, _ = states(PushSumLloyd(4, gossips=gossips, counters=True), table, start, 4)
    devices = table.devices
    weights = relative_weights(devices)
    for state in found[1:]:
        under_way = weights[:, None, None] * (state.totals.total[devices.indices] - state.totals.edge_received)
        held = state.averages.sum(axis=0) + under_way.sum(axis=0)
        assert_allclose(held, state.local.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("gossips", [1, 3])
def test_counters_change_nothing_in_the_first_round_and_from_then_on_what_is_held_adds_up_to_the_own_sums(gossips):
    _, _, table, start = scene("tree")
    method = PushSumLloyd(4, gossips=gossips, counters=True)
    found, _ = states(method, table, start, 4)
    close(found[gossips].centroids, last(PushSumLloyd(4, gossips=gossips), table, start, 1))
    sources, reverse = table.devices.sources, np.lexsort((table.devices.sources, table.devices.indices))
    for state in found[1:]:
        under_way = state.totals.total[sources] - state.totals.edge_received[reverse]
        held = state.averages.sum(axis=0) + under_way.sum(axis=0)
        assert_allclose(held, state.local.sum(axis=0), atol=1e-9)
    for i, state in enumerate(found):
        expected = local_sums(table.devices, found[i - i % gossips].centroids)
        assert_allclose(state.local, expected, atol=1e-12)


def test_who_has_more_links_than_those_around_it_should_hold_a_mean_number_of_points():
    star = arrange([[[0.0]]] * 5, [(0, i) for i in range(1, 5)]).devices
    assert_allclose(PushSumLloyd(1).fair_shares(star), [1.0, 0.4, 0.4, 0.4, 0.4])


def test_a_device_that_holds_too_little_keeps_its_centroids_and_has_not_converged():
    table = arrange([column(6), np.zeros((0, 1)), np.zeros((0, 1))], [(0, 1), (1, 2)])
    found, _ = states(PushSumLloyd(1, gossips=1, counters=True), table, np.zeros((3, 1, 1)), 1)
    close(found[1].centroids.ravel(), [6, 6, 0])  # nothing has come two links far
    assert not found[1].converged.any()
