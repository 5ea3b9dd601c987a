"""Plans of graphs that change, and planned virtual seconds, against the ledgers and clocks of real runs."""

import json

import numpy as np
import pytest

import topologies
from p2pkm.channel.quantization import Quantization
from p2pkm.engine.run_job import RankPart, run_job
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.plan import time_model as speed
from p2pkm.experiments.plan.draft import build_plan
from p2pkm.experiments.plan.memory_check import weigh_plan
from p2pkm.experiments.plan.memory_model import need
from p2pkm.experiments.plan.message_counts import stage_traffic
from p2pkm.experiments.plan.time_model import Costs, Link
from p2pkm.experiments.plan.virtual_time import ABOUT, EXACT, MOST, predict_virtual_time, tell
from p2pkm.network.link_model import LinkModel
from p2pkm.network.world import connect
from tests.support.prepare import prepare
from tests.support.run_cli import here
from tests.support.sampling import thin

NET = "lan:latency=0.5,access=1000,speed=1000"
METHODS = {
    "jacobi": {"schedule": "jacobi"}, "colored": {"schedule": "colored"}, "async": {"schedule": "async"},
    "consensus": {"algorithm": "consensus:gossips=3"}, "pushsum": {"algorithm": "pushsum"},
    "gossip": {"algorithm": "gossip"}, "dgc": {"algorithm": "dgc"}, "gossip-sum": {"algorithm": "gossip-sum:sends=3"},
    "epidemic": {"algorithm": "epidemic:cycles=3"},
}  # fmt: skip


@pytest.fixture
def uncalibrated(monkeypatch):
    """Spare the trials."""
    monkeypatch.setattr(speed, "calibrate", lambda plan: Costs(1e-4, 1e-7, 1e-8, 1e-7, 1e-8))
    monkeypatch.setattr(speed, "measure_link", lambda *rest: Link(1e-4, 1e9, "given"))


def both(**options):
    """Return a plan and the records of its real run, which has its own idea of when to stop."""
    given = {
        "data": "blobs:points=60,clusters=4",
        "clusters": 3,
        "partition": "iid",
        "rounds": 7,
        "link_model": NET,
    } | options
    experiment = RunOptions(baselines=False, out="none", **{key: one for key, one in given.items() if one is not None})
    plan = build_plan(experiment, None)
    real = prepare(plan.experiment, None)
    return plan, run_job(real.run, RankPart(real.shards), connect()).rounds


def check_traffic(plan, records):
    """Hold every round against the plan; return whether all of it was planned for sure."""
    planned, before, at, sure = stage_traffic(plan), np.zeros(2, int), -1, True
    for record in records:
        at += record["round"] == 0
        volume, now = planned[at].volume(record["round"]), np.array((record["messages"], record["bytes"]))
        for told, exact, sent in zip(volume[:2], volume[2:4], now - before, strict=True):
            assert sent == told if exact else sent <= told
            sure &= exact
        before = now
    return sure


def check_time(plan, records, net=NET):
    """Hold every round against the planned seconds; return how they were meant, stage by stage."""
    ahead, at, kinds = predict_virtual_time(plan, LinkModel.of(net).place(plan.topology)), -1, []
    before = shift = 0.0  # by the shift the stages before took less than "at most"
    for record in records:
        if record["round"] == 0:
            at += 1
            kinds.append(ahead[at].kind)
            if at:
                shift = ahead[at - 1].last - before
        told, real = ahead[at].ends[record["round"]] - shift, record["virtual_seconds"]
        before = real
        assert real == pytest.approx(told) if ahead[at].kind == EXACT else real <= told * (1 + 1e-12)
    assert at == len(ahead) - 1
    return kinds


@pytest.mark.parametrize("graph", [*sorted(topologies.TIME_VARYING), "peer-sampler:period=3"])
@pytest.mark.parametrize("method", thin(METHODS, 2))
def test_runs_over_links_that_change_send_and_last_as_planned(graph, method):
    plan, records = both(graph=graph, devices=16, seed=2, **METHODS[method])
    assert len({record["stage"] for record in records}) == len(stage_traffic(plan))
    assert check_traffic(plan, records)
    assert set(check_time(plan, records)) == {EXACT}


def test_a_period_adds_up_as_if_every_round_were_played():
    plan, _ = both(graph="peer-sampler:period=3", devices=16, schedule="jacobi", rounds=1)
    graph, course = plan.topology.varying, stage_traffic(plan)[-1]
    assert course.volume(301) == course.volume(1)
    assert [course.volume(t).messages for t in range(5)] == [int(graph.active(t).sum()) for t in range(5)]


def test_methods_that_need_links_that_last_are_refused(uncalibrated):
    for words in (("--algorithm", "admm"), ("--groups",), ("--relaxation", "1.5")):
        ended = here("plan", "--graph", "one-peer-exponential", *words)
        assert ended.code == 2 and "change" in ended.err and not ended.out


def test_a_graph_that_changes_takes_more_memory_the_longer_it_is_kept():
    plans = [
        build_plan(RunOptions(graph=f"peer-sampler:period={p}", devices=200, schedule="jacobi"), None) for p in (2, 20)
    ]
    sizes = [need(weigh_plan(plan, 1, 0)).graph for plan in plans]
    assert sizes[0] < sizes[1]
    runs = [need(weigh_plan(build_plan(RunOptions(graph="peer-sampler", devices=200, rounds=r), None), 1, 0)).held
            for r in (2, 200)]  # fmt: skip
    assert runs[0] < runs[1]


SEEDINGS = (
    "local leader flooded-summaries flooded-summaries:hops=1 flooded-summaries:candidates=3 tree-summaries "
    "tree-summaries:candidates=3"
).split()


@pytest.mark.parametrize("scale", ["none", "standard"])
@pytest.mark.parametrize("seeding", SEEDINGS)
def test_seedings_last_as_planned(seeding, scale):
    plan, records = both(graph="grid", devices=12, init=seeding, coupling=30, scale=scale)
    assert set(check_time(plan, records)) == {EXACT}


ALONG = {
    "init": "tree-summaries:candidates=2,rows=60",
    "coupling": 30,
    "devices": 100,
    "graph": "path",
    "data": "blobs:points=300",
}


SCALED = {"scale": "minmax", "quantize": Quantization("none")}


@pytest.mark.parametrize("options", [{"init": "bounding-box"}, {"init": "d2-sampling"}, SCALED, ALONG])
def test_stages_that_data_decide_last_at_most_so_long(options):
    plan, records = both(**{"graph": "grid", "devices": 12} | options)
    kinds = check_time(plan, records)
    assert MOST in kinds and kinds[-1] == EXACT


def test_stages_that_send_integers_last_at_most_so_long():
    plan, records = both(graph="grid", devices=12)
    check_time(plan, records)
    assert {one.name: one.kind for one in predict_virtual_time(plan, LinkModel.of(NET).place(plan.topology))} == {
        "total-variance": EXACT, "tree-summaries": EXACT, "rehearsal": MOST, "gtvmin": MOST, "accept-test": MOST,
    }  # fmt: skip


def test_recipe_groups_lasts_at_most_so_long():
    plan, records = both(graph="grid", devices=12, groups=True, rounds=3)
    kinds = check_time(plan, records)
    assert kinds[-1] == MOST


@pytest.mark.parametrize("method", "fkm mavg feca fkmeanscb kfed central cdkm local".split())
def test_runs_with_a_server_last_as_planned(method):
    plan, records = both(algorithm=method, devices=6)
    (kind,) = check_time(plan, records)
    assert kind == (EXACT if method in ("mavg", "central", "cdkm", "local") else MOST)


@pytest.mark.parametrize("method", ["admm", "tracking", "pushsum"])
def test_other_methods_last_as_planned(method):
    plan, records = both(algorithm=method, graph="grid", devices=12, rounds=3)
    assert set(check_time(plan, records)) == {EXACT}


def test_seconds_are_about_so_many_where_nobody_knows_how_many_points_a_device_has():
    plan, records = both(devices=12, partition="dirichlet", coupling=30)
    told = tell(plan)
    assert set(told["kind"].values()) == {ABOUT}
    assert told["round"] == pytest.approx(records[-1]["virtual_seconds"] / 12, rel=0.5)


def test_a_ring_with_a_barrier_is_planned_in_closed_form():
    plan, _ = both(graph="ring", devices=8, schedule="jacobi", init="local", rounds=40, data="grid16:points=5",
                   clusters=3, link_model="lan:latency=0.5,bandwidth=64,access=none,speed=1", tol=0.0)  # fmt: skip
    told = tell(plan)
    one = (3 * 3 + 2) * 2 * 10 + 3 * 9 * 2 * 2 + 0.5 + 3 * 2 * 8 / 64
    assert told["round"] == pytest.approx(one) == pytest.approx(told["first"])
    assert told["total"] == pytest.approx(told["opening"] + 40 * one)
    assert told["kind"] == {"opening": EXACT, "first": EXACT, "round": EXACT, "total": MOST}


def test_rounds_that_would_take_long_to_play_are_carried_on(monkeypatch):
    plan, _ = both(graph="grid", devices=12)
    whole = tell(plan)
    monkeypatch.setattr("p2pkm.experiments.plan.virtual_time._WORK", 200.0)
    short = tell(plan)
    assert short["kind"]["total"] == ABOUT and len(short) == len(whole)
    assert short["total"] == pytest.approx(whole["total"], rel=0.1)


def test_plan_tells_of_virtual_seconds_and_links_in_use(uncalibrated):
    words = ("plan", "--graph", "one-peer-exponential", "--devices", "16", "--partition", "iid", "--link-model", "wan")
    text, found = here(*words), json.loads(here(*words, "--format", "json").out)
    assert text.code == 0 and "seconds, estimated on the link model wan" in text.out and "at most" in text.out
    assert "56 links (14 in use in a round)" in text.out
    assert found["links_in_use"] == 14 and found["virtual"]["rounds"] == 150
    assert found["virtual"]["total"] > 0.075 * 150
    silent = json.loads(here("plan", "--format", "json").out)
    assert silent["virtual"] is silent["links_in_use"] is None
    unknown = here("plan", "--algorithm", "coreset", "--link-model", "lan")
    assert unknown.code == 0 and "not known before the run" in unknown.out
    assert here("plan", "--link-model", "lam").code == 2


def test_plan_says_which_placement_it_counts(uncalibrated):
    words = ("plan", "--graph", "small-world", "--devices", "200", "--ranks", "5", "--format", "json")
    blocks = json.loads(here(*words, "--rank-partition", "blocks").out)["strong"]
    auto = json.loads(here(*words).out)["strong"]
    assert {row["rank_partition"] for row in blocks} == {"blocks"}
    assert all(row["edge_cut"] <= other["edge_cut"] for row, other in zip(auto, blocks, strict=True))
    for row, other in zip(auto, blocks, strict=True):
        assert row["rank_partition"] == "metis" or row["edge_cut"] == other["edge_cut"]
