"""Planned bytes on the wire against those of real runs: about where messages are encoded, else the same."""

import pytest

from p2pkm.data.stream import DataStream
from p2pkm.engine.build_run import Rank
from p2pkm.engine.run_job import Observers, play
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.plan.draft import build_plan
from p2pkm.experiments.plan.message_counts import stage_traffic
from p2pkm.experiments.plan.run import describe_plan
from p2pkm.methods.init.pipelines import number_stages
from p2pkm.network.world import connect
from tests.support.prepare import prepare
from tests.support.sampling import thin

RUNS = {
    "treelloyd": {"algorithm": "treelloyd"},
    "treelloyd, five features": {
        "algorithm": "treelloyd",
        "data": "blobs:points=2000,clusters=9,features=5",
        "clusters": 9,
    },
    "breathing": {"algorithm": "treelloyd:search=breathing"},
    "rows": {"algorithm": "gtvmin", "init": "rows:lean=true"},
    "k auto": {"algorithm": "treelloyd", "clusters": "auto", "k_max": 20},
    "integers": {"algorithm": "gtvmin", "quantize": "rice", "init": "rows:lean=true"},
    "int8": {"algorithm": "gtvmin", "quantize": "int8"},
    "fedlloyd": {"algorithm": "fedlloyd", "graph": None},
    "local steps": {"algorithm": "ditto", "graph": None},
    "fkm": {"algorithm": "fkm", "quantize": "rice", "graph": None},
    "groups": {"algorithm": "treelloyd:groups=2"},
    "real numbers": {"algorithm": "gtvmin", "quantize": "none"},
    "default": {"algorithm": "gtvmin:coupling=strong"},
    "points that change": {"algorithm": "treelloyd", "stream": DataStream(kind="jump")},
}


def spend(**options):
    """Return of every stage what was planned, and the wire bytes and bytes that the real run sent in it."""
    given = {
        "graph": "ring",
        "devices": 10,
        "data": "grid16:points=100",
        "clusters": 16,
        "partition": "iid",
        "rounds": 3,
    }
    experiment = RunOptions(baselines=False, out="none", **(given | options))
    plan = build_plan(experiment, None)
    real = prepare(plan.experiment, None)
    trace, found, last = [], [], (0, 0)
    play(Rank(real, connect(), real.points), Observers(on_record=trace.append))
    planned = stage_traffic(plan)
    for record, at in zip(trace, number_stages(trace, plan.stages), strict=True):
        now = record["wire_bytes"], record["bytes"]
        if record["round"] < 2:
            found.append((planned[at].volume(record["round"]), now[0] - last[0], now[1] - last[1]))
        last = now
    return plan, found


@pytest.mark.parametrize("name", thin(RUNS, 3))
@pytest.mark.sample(3)
def test_bytes_on_the_wire_are_about_those_that_were_planned(name):
    plan, rounds = spend(**RUNS[name])
    encoded = 0
    for volume, wire, size in rounds:
        if volume.wire is None:
            assert wire == size
            assert volume.wire_bytes == volume.bytes
        else:
            encoded += 1
            assert volume.wire / 2 - 20 <= wire <= 2 * volume.wire + 20
            assert wire <= volume.bytes
        assert size <= volume.bytes
    assert bool(encoded) == (name != "real numbers")
    stages = describe_plan(plan, 1)["stages"]
    assert not [one for one in stages if not one["first"]["wire_bytes"] <= one["first"]["bytes"]]
