"""Plans of graphs that change, against the ledgers of real runs."""

import json
from itertools import product

import numpy as np
import pytest

import topologies
from p2pkm.engine.build_run import Rank
from p2pkm.engine.run_job import play, report
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.plan.draft import build_plan
from p2pkm.experiments.plan.memory_check import plan_memory_inputs
from p2pkm.experiments.plan.memory_model import estimate_memory
from p2pkm.experiments.plan.message_counts import stage_traffic
from p2pkm.methods.init.pipelines import number_stages
from p2pkm.network.world import connect
from tests.support.prepare import prepare
from tests.support.run_cli import here
from tests.support.sampling import thin

METHODS = {
    "jacobi": {"schedule": "jacobi"}, "colored": {"schedule": "colored"}, "async": {"schedule": "async"},
    "consensus": {"algorithm": "consensus:gossips=3"}, "pushsum": {"algorithm": "pushsum"},
    "gossip": {"algorithm": "gossip"}, "dgc": {"algorithm": "dgc"}, "gossip-sum": {"algorithm": "gossip-sum:sends=3"},
    "epidemic": {"algorithm": "epidemic:cycles=3"},
}  # fmt: skip


def both(**options):
    """Return a plan and the records of its real run, which has its own idea of when to stop."""
    given = {
        "data": "blobs:points=60,clusters=4",
        "clusters": 3,
        "partition": "iid",
        "rounds": 7,
    } | options
    experiment = RunOptions(baselines=False, out="none", **{key: one for key, one in given.items() if one is not None})
    plan = build_plan(experiment, None)
    real = prepare(plan.experiment, None)
    return plan, report(play(Rank(real, connect(), real.points))).rounds


def check_traffic(plan, records):
    """Hold every round against the plan; return whether all of it was planned for sure."""
    planned, before, sure = stage_traffic(plan), np.zeros(2, int), True
    for record, at in zip(records, number_stages(records, plan.stages), strict=True):
        volume, now = planned[at].volume(record["round"]), np.array((record["messages"], record["bytes"]))
        for told, exact, sent in zip(volume[:2], volume[2:4], now - before, strict=True):
            assert sent == told if exact else sent <= told
            sure &= exact
        before = now
    return sure


@pytest.mark.parametrize(
    ("method", "graph"), thin(product(METHODS, [*sorted(topologies.TIME_VARYING), "peer-sampler:period=3"]), 7)
)
@pytest.mark.sample(5)
def test_runs_over_links_that_change_send_what_was_planned(graph, method):
    plan, records = both(graph=graph, devices=16, seed=2, **METHODS[method])
    assert len({record["stage"] for record in records}) == len(stage_traffic(plan))
    assert check_traffic(plan, records)


def test_a_period_adds_up_as_if_every_round_were_played():
    plan, _ = both(graph="peer-sampler:period=3", devices=16, schedule="jacobi", rounds=1)
    graph, course = plan.topology.varying, stage_traffic(plan)[-1]
    assert course.volume(301) == course.volume(1)
    assert [course.volume(t).messages for t in range(5)] == [int(graph.active(t).sum()) for t in range(5)]


def test_methods_that_need_links_that_last_are_refused():
    for words in (("--algorithm", "admm"), ("--groups",), ("--relaxation", "1.5")):
        ended = here("plan", "--graph", "one-peer-exponential", *words)
        assert ended.code == 2 and "change" in ended.err and not ended.out


def test_a_graph_that_changes_takes_more_memory_the_longer_it_is_kept():
    plans = [
        build_plan(RunOptions(graph=f"peer-sampler:period={p}", devices=200, schedule="jacobi"), None) for p in (2, 20)
    ]
    sizes = [estimate_memory(plan_memory_inputs(plan, 1, 0)).graph for plan in plans]
    assert sizes[0] < sizes[1]
    runs = [build_plan(RunOptions(graph="peer-sampler", devices=200, rounds=rounds), None) for rounds in (2, 200)]
    sizes = [estimate_memory(plan_memory_inputs(plan, 1, 0)).resident for plan in runs]
    assert sizes[0] < sizes[1]


@pytest.mark.slow
def test_plan_tells_of_links_in_use():
    words = ("plan", "--graph", "one-peer-exponential", "--devices", "16", "--partition", "iid")
    text, found = here(*words), json.loads(here(*words, "--format", "json").out)
    assert text.code == 0 and "56 links (14 in use in a round)" in text.out
    assert found["links_in_use"] == 14
    assert json.loads(here("plan", "--format", "json").out)["links_in_use"] is None


@pytest.mark.slow
def test_plan_says_which_placement_it_counts():
    words = ("plan", "--graph", "small-world", "--devices", "60", "--ranks", "5", "--format", "json")
    blocks = json.loads(here(*words, "--rank-partition", "blocks").out)["split"]
    auto = json.loads(here(*words).out)["split"]
    assert {row["rank_partition"] for row in blocks} == {"blocks"}
    assert all(row["edge_cut"] <= other["edge_cut"] for row, other in zip(auto, blocks, strict=True))
    for row, other in zip(auto, blocks, strict=True):
        assert row["rank_partition"] == "metis" or row["edge_cut"] == other["edge_cut"]
