"""A generated world of phones has the statistics that it states, and is a trace that runs."""

import json

import numpy as np
import pytest

from p2pkm.channel.fault_trace import parse_trace
from p2pkm.channel.phones import Phones
from p2pkm.channel.timed_trace import write_timed_trace
from p2pkm.network.graph import Topology
from tests.support.run_cli import here
from topologies import ring

MANY = Topology.from_links(4000, np.zeros((0, 3)))


def read(world, topology, seed=0):
    lines = list(write_timed_trace(world.draw(topology, seed), topology))
    return [json.loads(line) for line in lines], parse_trace(lines, topology, "trace")


def follow(lines, n, ends):
    """Return how many phones are online at each of some seconds."""
    online, counts, place = np.zeros(n, bool), [], 0
    for end in ends:
        while place < len(lines) and lines[place]["seconds"] <= end:
            online[lines[place]["device"]] = lines[place].get("online", online[lines[place]["device"]])
            place += 1
        counts.append(online.sum())
    return np.array(counts)


@pytest.mark.parametrize("zones", [1, 6])
def test_phones_are_online_mostly_at_night(zones):
    world, n = Phones(days=2, zones=zones), len(MANY.components)
    lines, _ = read(world, MANY)
    hours = np.arange(1, 48)
    share = follow(lines[1:], n, 3600.0 * hours) / n
    expected = np.array([
        np.mean([world.find_share(3600.0 * (hour - zone)) for zone in range(zones)]) for hour in hours
    ])
    assert np.abs(share - expected).max() < 5 * 0.5 / np.sqrt(n)
    assert world.find_share(3 * 3600.0) == pytest.approx(4 * world.find_share(15 * 3600.0))


def test_speeds_have_the_stated_median_and_tails():
    lines, _ = read(Phones(days=0.1), MANY)
    for key, median, spread in (("speed", 1e9, 2.0), ("access", 750_000.0, 3.0)):
        values = np.log([line[key] for line in lines[1:] if key in line])
        assert len(values) == 4000
        assert np.median(values) == pytest.approx(np.log(median), abs=5 * 1.25 * np.log(spread) / np.sqrt(4000))
        assert np.quantile(values, 0.8413) - np.median(values) == pytest.approx(np.log(spread), rel=0.1)


def test_sessions_have_their_mean_length_where_the_share_is_constant():
    lines, _ = read(Phones(days=4, rhythm=1, session=2), MANY)
    left = sum(not line["online"] for line in lines[1:] if line["seconds"] > 0)
    # Phones online times hours, divided by the departures.
    assert 4000 * 0.6 * 4 * 24 / left == pytest.approx(2.0, rel=0.02)


def test_links_lose_messages_in_bursts():
    links = Topology.from_graph(ring(200))
    lines, trace = read(Phones(days=1, loss=0.1, loss_length=300), links)
    assert trace.ignored_events == 0
    lost, bursts = 0.0, 0
    last = {}
    for line in (line for line in lines if line["kind"] == "link"):
        key = line["src"], line["dst"]
        if line["loss"]:
            last[key], bursts = line["seconds"], bursts + 1
        elif key in last:
            lost += line["seconds"] - last.pop(key)
    lost += sum(86400 - begun for begun in last.values())
    assert lost / (86400 * len(links.indices)) == pytest.approx(0.1, rel=0.06)
    assert lost / bursts == pytest.approx(300, rel=0.06)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("phones:days=0", "phones days is 0.0; expected a finite number above 0"),
        ("phones:rhythm=0.5", "phones rhythm is 0.5; expected a factor of at least 1"),
        ("phones:online=1.5", "at most 1"),
        ("phones:loss=1", "at most 0.99"),
        ("phones:zones=0", "a whole number of at least 1"),
        ("phones:day=3", "unknown key 'day' of world 'phones'. Did you mean 'days'"),
        ("phones:days=4000", "expected at most 2,000,000. Use fewer days"),
    ],
)
def test_a_wrong_world_is_refused(spec, said):
    done = here("faults", spec, "--devices", 100)
    assert done.code == 2 and said in done.err


def test_a_run_follows_the_clock_of_the_world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = here("faults", "phones:days=1", "--devices", 16, "--out", "phones.jsonl")
    assert made.code == 0 and made.err.startswith("0 to ") and "speed 16 times" in made.err
    again = here("faults", "phones:days=1", "--devices", 16)
    assert again.out == (tmp_path / "phones.jsonl").read_text()
    done = here("--faults", "phones.jsonl", "--link-model", "edge", "--rounds", 12, "--all-rounds", "--out", "none",
                "--algorithm", "gossip", "--format", "json")  # fmt: skip
    summary = json.loads(done.out)
    # A round per hour: the last of twelve begins after eleven hours.
    assert done.code == 0 and summary["virtual_seconds"] > 11 * 3600 and 0.2 < summary["unavailable_fraction"] < 0.8


def test_a_world_in_the_place_of_its_trace_names_the_command_that_writes_it():
    done = here("--faults", "phones:days=1", "--link-model", "edge", "--out", "none")
    assert done.code == 2 and "p2pkm faults phones:days=1 --out phones.jsonl" in done.err
