"""Attacks find as much as theory says, and not more; noise that is too small is found by mu."""

import math

import numpy as np
import pytest

import topologies
from p2pkm.methods.building_blocks.gdp import epsilon_of
from p2pkm.network.graph import Topology
from p2pkm.privacy import attacks
from p2pkm.privacy.attacks import Trials, attack_gossip, audit, filter_of, gossip_view, judge
from tests.support.each import each

FEW, MANY = 4_000, 20_000
DELTA = 1e-6


def gossip(graph, receiver, device, gossips, mu=1.0, trials=FEW, noise=1.0):
    """Return the judgment of an attack on a device, whose noise has `noise` times the sd that it needs."""
    view = gossip_view(Topology.from_graph(graph), receiver, gossips)
    claimed = mu * math.sqrt(filter_of(view, device)[1])
    return judge(attack_gossip(view, device, mu / noise, trials, 1), claimed, DELTA)


@each(("graph", "receiver", "device", "gossips", "leak"), [
    (topologies.path(3), 0, 2, 1, 0.0), (topologies.path(3), 0, 2, 2, 1.0), (topologies.star(16), 1, 2, 2, 1 / 14),
    (topologies.star(16), 1, 2, 9, 1 / 14), (topologies.ring(16), 0, 3, 3, 1.0), (topologies.ring(16), 0, 4, 3, 0.0),
    (topologies.hypercube(16), 0, 3, 2, 2 / 3),
])  # fmt: skip
def test_a_filter_has_the_share_of_the_exact_cases(graph, receiver, device, gossips, leak):
    view = gossip_view(Topology.from_graph(graph), receiver, gossips)
    assert filter_of(view, device)[1] == pytest.approx(leak, abs=1e-7)


def test_whatever_a_neighbor_sends_is_a_mean_of_values():
    view = gossip_view(Topology.from_graph(topologies.barbell(9)), 4, 5)
    assert (view >= 0).all() and view.sum(axis=1) == pytest.approx(1.0)


def test_of_a_device_that_is_not_seen_nothing_is_found():
    unseen = gossip(topologies.ring(16), 0, 4, 3)
    assert unseen.holds and (unseen.mu_measured, unseen.mu_claimed, unseen.epsilon_found) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("graph", "receiver", "device", "gossips"), [
    (topologies.path(2), 0, 1, 1), (topologies.ring(16), 0, 3, 3), (topologies.star(16), 1, 2, 2),
    (topologies.hypercube(16), 0, 3, 2),
])  # fmt: skip
def test_gossip_gives_away_what_is_claimed_and_no_more(graph, receiver, device, gossips):
    found = gossip(graph, receiver, device, gossips)
    assert found.holds and abs(found.mu_measured - found.mu_claimed) < 4 * found.mu_error
    half = gossip(graph, receiver, device, gossips, noise=0.5)
    assert not half.holds and half.mu_measured == pytest.approx(2 * half.mu_claimed, abs=4 * half.mu_error)


@pytest.mark.slow
def test_gossip_in_20000_trials():
    for graph, receiver, device, gossips in ((topologies.path(2), 0, 1, 1), (topologies.ring(16), 0, 3, 3)):
        found = gossip(graph, receiver, device, gossips, trials=MANY)
        assert abs(found.mu_measured - found.mu_claimed) < 0.04
        assert 1.5 < found.epsilon_found <= found.epsilon_claimed == pytest.approx(epsilon_of(1.0, DELTA))


def test_noise_halved_by_mistake_may_stay_below_epsilon_but_not_below_mu():
    half = gossip(topologies.path(2), 0, 1, 1, trials=MANY, noise=0.5)
    assert half.epsilon_found < half.epsilon_claimed  # so this alone does not find it
    assert not half.holds


def normal_trials(count, mu, seed):
    rng = np.random.default_rng(seed)
    return Trials(rng.standard_normal(count), mu + rng.standard_normal(count))


def test_the_unit_of_a_statistic_does_not_matter():
    trials = normal_trials(200, 3.0, 0)
    one, other = judge(trials, 3.0, DELTA), judge(Trials(*(32 * part for part in trials)), 3.0, DELTA)
    assert one == other and one.mu_measured == pytest.approx(3.0, abs=0.6)


def test_the_standard_error_is_what_repetitions_differ_by(monkeypatch):
    monkeypatch.setattr(attacks, "bound_epsilon", lambda *_: 0.0)
    found = [judge(normal_trials(50, 6.0, seed), 6.0, DELTA) for seed in range(200)]
    errors = [one.mu_error for one in found]
    assert np.std([one.mu_measured for one in found]) == pytest.approx(np.mean(errors), rel=0.2)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_statistic_that_only_moves_to_one_side_is_found_on_either(sign):
    """Half of 1,000 tested trials with the point exceed all without it, or half without it all with it."""
    some, none = sign * np.repeat(np.tile([0.0, 1.0], 500), 2), np.zeros(2000)
    trials = Trials(none, some) if sign > 0 else Trials(some, none)
    low, high = attacks.clopper_pearson(500, 1000)[0], attacks.clopper_pearson(0, 1000)[1]
    assert attacks.bound_epsilon(trials, 0.01) == pytest.approx(math.log((low - 0.01) / high))


def test_clopper_pearson_has_its_closed_forms():
    low, high = attacks.clopper_pearson(0, 100)
    assert (low, high) == (0.0, pytest.approx(1 - 0.025 ** (1 / 100)))
    assert attacks.clopper_pearson(100, 100) == (pytest.approx(0.025 ** (1 / 100)), 1.0)


def test_more_confidence_shows_less():
    trials = normal_trials(2000, 3.0, 1)
    low, high = (attacks.bound_epsilon(trials, DELTA, confidence) for confidence in (0.95, 0.99995))
    assert 0.0 < high < low


def canaries(mu, m, seed):
    rng = np.random.default_rng(seed)
    included = rng.random(m) < 0.5
    return rng.standard_normal(m) + mu * included, included


def test_an_audit_in_one_run_stays_below_the_claim_and_its_ceiling():
    """200 guesses cannot show more than 4.19, the epsilon at which all of them are right with probability 0.05."""
    found = audit(*canaries(1.0, 1000, 3), 200, DELTA)
    assert 0.8 < found.epsilon_found < epsilon_of(1.0, DELTA)
    right = 0.05 ** (1 / 200)
    assert found.ceiling == pytest.approx(math.log(right / (1 - right)), abs=0.02) == pytest.approx(4.19, abs=0.02)
    assert audit(*canaries(100.0, 1000, 3), 200, DELTA).epsilon_found == found.ceiling
    assert audit(*canaries(0.0, 1000, 3), 200, DELTA).epsilon_found < 0.5


@pytest.mark.parametrize("guesses", [4, 8, 20])
def test_few_guesses_that_are_all_right_show_an_epsilon_in_closed_form(guesses):
    """With probability (e^eps / (1 + e^eps))^guesses all are right: 4 are too few to show anything."""
    right = 0.05 ** (1 / guesses)
    found = audit(*canaries(100.0, 40, 3), guesses, 1e-12).epsilon_found
    assert found == pytest.approx(max(0.0, math.log(right / (1 - right))), abs=1e-6)


@pytest.mark.slow
def test_an_audit_is_wrong_in_at_most_one_of_twenty_runs():
    """Of randomized response at epsilon 1, where the bound is tight."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(200):
        included = rng.random(400) < 0.5
        answer = np.where(rng.random(400) < math.e / (1 + math.e), included, ~included)
        wrong += audit(answer + 1e-6 * rng.random(400), included, 200, 1e-12).epsilon_found > 1.0
    assert wrong <= 20
