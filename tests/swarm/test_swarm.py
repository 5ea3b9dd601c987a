"""A sample of the random experiments, and whether their checks and the shrinking can notice anything."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import p2pkm
import p2pkm.kernels.reference as reference
from p2pkm.methods.building_blocks import averaging
from p2pkm.methods.peer import consensus
from tests.support.sampling import thin
from tests.swarm import relations
from tests.swarm.checks import CHECKS, find_faults, play_one
from tests.swarm.experiments import Experiment, draw
from tests.swarm.ranks import on_ranks
from tests.swarm.relations import RELATIONS
from tests.swarm.shrink import shrink

PLAIN = Experiment(7, {"devices": "4", "clusters": "2", "rounds": "3", "data": "@csv,kind=grid,m=17,d=2", "tol": "0"})


def test_a_seed_gives_one_experiment():
    assert draw(5) == draw(5) != draw(6)
    assert Experiment.of(draw(5).text()) == draw(5)


@pytest.mark.parametrize("check", thin(CHECKS, 2))
@pytest.mark.sample(5)
def test_a_plain_experiment_holds(check, tmp_path):
    case, faults = find_faults(PLAIN, tmp_path / "case", check)
    assert not faults and case.ending.code == 0


def test_a_kernel_that_is_wrong_in_its_last_bits_is_noticed(tmp_path):
    right = reference.gtvmin

    def wrong(*given, **more):
        found = right(*given, **more)
        return (found[0] * (1.0 + 1e-15), *found[1:]) if isinstance(found, tuple) else found * (1.0 + 1e-15)

    with patch.object(reference, "gtvmin", wrong):
        real = PLAIN._replace(options=PLAIN.options | {"quantize": "none"})  # whole numbers would round it away
        _, faults = find_faults(real, tmp_path / "case", "kernels")
    assert [name for name, _ in faults] == ["kernels"]


def _seeded(number):
    """Return a `simulate` whose draws depend on what they must not: a number of the shards and options."""

    def call(method, graph, shards, **options):
        return p2pkm.simulate(method, graph, shards, **options | {"seed": options["seed"] + number(shards, options)})

    return call


def _started(shift):
    """Return a `simulate` that moves a given start by an array of the shards, broadcast to float64[n, k, d]."""

    def call(method, graph, shards, **options):
        return p2pkm.simulate(method, graph, shards, **options | {"start": options["start"] + shift(shards)})

    return call


def _unweighted(method, graph, shards, **options):
    weights = np.broadcast_to(1.0, len(shards.points))
    return p2pkm.simulate(method, graph, replace(shards, weights=weights), **options)


_FEW = {
    "seed": "8",
    "min-cluster-size": "3",
    "data": "@csv,kind=grid,m=90,d=2",
    "partition": "quantity:alpha=0.1",
    "quantize": "none",
}
_REAL = {"init": "local", "quantize": "none"}


def _leaking(method, graph, shards, **options):
    """Lose a thousandth of the sums in every gossip."""
    with patch.object(consensus, "mix", lambda *given: 0.999 * averaging.mix(*given)):
        return p2pkm.simulate(method, graph, shards, **options)


_PLACED = _REAL | {"schedule": "jacobi"}
BROKEN = {
    "api": (_seeded(lambda shards, options: 1), {}),
    "scaled": (_seeded(lambda shards, options: shards.points.max() > 5.0), _REAL),
    "isolated": (_seeded(lambda shards, options: shards.n), {"init": "local"}),
    "observers": (_seeded(lambda shards, options: options["silhouette"]), _REAL),
    "longer": (_seeded(lambda shards, options: options["rounds"]), _REAL),
    "once": (
        _seeded(lambda shards, options: options["all_rounds"]),
        {"algorithm": "coreset:size=9,n_init=1", "tol": None, "data": "@csv,kind=clusters,m=90,d=2"},
    ),
    "light-cone": (_seeded(lambda shards, options: int(4.0 * shards.points.sum())), _REAL),
    "suppression": (_seeded(lambda shards, options: int(4.0 * shards.points.sum())), _FEW),
    "swapped": (_seeded(lambda shards, options: int(shards.points[1, 0])), _REAL),
    "shuffled": (_started(lambda shards: shards.points[0]), _REAL),
    "split": (_unweighted, _REAL),
    "renamed": (_started(lambda shards: np.arange(shards.n)[:, None, None]), _PLACED),
    "small-clusters": (_started(lambda shards: 1e-3 * shards.points.sum()), _PLACED),
    "translated": (_started(lambda shards: shards.points[0] > 8.0), _PLACED),
    "permuted": (_started(lambda shards: np.arange(2.0)[:, None]), _PLACED),
    "conserved": (_leaking, {"algorithm": "consensus", "tol": None}),
}


@pytest.mark.parametrize("check", thin(RELATIONS, 3))
@pytest.mark.sample(3)
def test_a_relation_that_does_not_hold_is_noticed(check, tmp_path):
    wrong, more = BROKEN[check]
    options = {name: value for name, value in (PLAIN.options | more).items() if value is not None}
    with patch.object(relations, "simulate", wrong):
        _, faults = find_faults(PLAIN._replace(options=options), tmp_path / "case", check)
    assert [name for name, _ in faults][:1] == [check]
    assert "Traceback" not in faults[0][1]


@pytest.mark.slow
def test_what_fails_is_shrunk_to_what_matters(tmp_path):
    def check(case):
        if "scale" in case.experiment.options and case.summary["devices"] > 1:
            yield "broken"

    with patch.dict(CHECKS, {"ledger": check}):
        large = PLAIN._replace(options=PLAIN.options | {"scale": "minmax", "silhouette": "", "dtype": "float32"})
        small = shrink(large, "ledger", tmp_path / "case")
    assert small.options == {
        "devices": "2",
        "clusters": "1",
        "rounds": "0",
        "data": "grid16:points=1",
        "scale": "minmax",
    }


FOUND = [json.loads(line) for line in Path(__file__).with_name("found.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("found", thin(FOUND, 5), ids=lambda found: found["cause"])
@pytest.mark.sample(3)
def test_what_once_failed_holds(found, tmp_path):
    _, faults = find_faults(Experiment.of(json.dumps(found["one"])), tmp_path / "case", found["check"])
    assert not faults


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 120))])
def test_random_experiments_hold(seed, tmp_path):
    for experiment, _, faults in play_one(seed, tmp_path):
        assert not faults, f"python -m tests.swarm --one '{experiment.text()}'"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The last case of some random experiments, of those that end as they should."""
    folder = tmp_path_factory.mktemp("good")
    last = [list(play_one(seed, folder))[-1][1] for seed in range(16)]
    return [case for case in last if case.ending.code in {0, 5}]


@pytest.mark.mpi
@pytest.mark.parametrize("count", [2, 5])
def test_random_experiments_give_the_same_bits_on_ranks(good, count):
    assert len(good) > 8 and on_ranks(good, count) == []
