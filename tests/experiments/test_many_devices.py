"""Very many devices: what is kept, sampled or looked at in pieces, and that it is said."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.cli.main import main
from p2pkm.core import chunks as pieces
from p2pkm.metrics import cost_ratio as prices
from p2pkm.metrics.cost_ratio import find_local_rows
from p2pkm.metrics.summary import _count_different, measure_consensus
from p2pkm.network.graph import LARGE, Topology
from p2pkm.network.halo import place
from p2pkm.network.ledger import Ledger

N = 150_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Run more devices than are looked at one by one; return the folder."""
    folder = tmp_path_factory.mktemp("large") / "run"
    options = ["--graph", "small-world:degree=4", "--devices", str(N), "--data", f"blobs:clusters=2,points={N}"]
    more = ["--partition", "iid", "-k", "2", "--init", "local", "--rounds", "2", "--no-baselines", "--no-plot", "-q"]
    assert main([*options, *more, "--out", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_the_folder_of_very_many_devices(large):
    assert not (large / "graph.graphml").exists()
    config = (large / "config.toml").read_text()
    assert "record_every = 1000" in config
    records = [json.loads(line) for line in (large / "rounds.jsonl").read_text().splitlines()]
    assert [(one["stage"], one["round"]) for one in records[-2:]] == [("gtvmin", 0), ("gtvmin", 2)]
    with np.load(large / "ledger.npz") as ledger:
        assert set(ledger) == {"src", "dst", "messages", "bytes", "edge_rows", "devices", "wire_bytes"}
        assert ledger["bytes"].sum() == records[-1]["bytes"] and ledger["messages"].sum() == records[-1]["messages"]


@pytest.mark.slow
def test_very_many_devices_come_back(large, tmp_path):
    result = p2pkm.load(large)
    assert result.ledger.sender is None
    assert isinstance(result.graph, topologies.CSRGraph) and len(result.graph) == N
    assert_allclose(result.gtv.sum() / 2, result.summary["gtv"])
    assert_array_equal(result.gtv, result.gtv[result.topology.mirror])
    assert result.census.sizes.sum() == len(result.census.labels) == 2 * N
    again = p2pkm.load(result.save(tmp_path / "copy"))
    assert again.summary == result.summary and again.notes == result.notes
    assert_array_equal(again.centroids, result.centroids)
    assert_array_equal(again.topology.indices, result.topology.indices)


@pytest.mark.slow
def test_what_is_left_out_is_said(large):
    notes = " | ".join(p2pkm.load(large).notes)
    for words in (
        f"of {N} devices",
        "without senders",
        "one of 1000 rounds",
        "use --record-every 1 to record all rounds",
    ):
        assert words in notes


def test_scripts_look_as_seldom_as_the_command_line(monkeypatch):
    shards = p2pkm.Shards.from_list([np.arange(6.0).reshape(3, 2) + i for i in range(12)])
    rounds = p2pkm.simulate(
        p2pkm.GTVMin(2, init="local"), topologies.ring(12), shards, rounds=3, baselines=False
    ).rounds
    assert [one["round"] for one in rounds] == [0, 0, 1, 2, 3]
    monkeypatch.setattr("p2pkm.metrics.monitor.LARGE", 11)
    graph = topologies.ring(12)
    seldom = p2pkm.simulate(p2pkm.GTVMin(2, init="local"), graph, shards, rounds=3, baselines=False).rounds
    assert [one["round"] for one in seldom] == [0, 0, 3]
    assert seldom[-1] == rounds[-1]
    asked = p2pkm.simulate(
        p2pkm.GTVMin(2, init="local"), graph, shards, rounds=3, baselines=False, record_every=1
    ).rounds
    assert asked == rounds


@pytest.mark.parametrize("method", [p2pkm.GTVMin(3, init="local"), p2pkm.FKM(3)])
def test_results_do_not_depend_on_the_pieces(method, monkeypatch):
    rng = np.random.default_rng(2)
    shards = p2pkm.Shards.deal(
        rng.normal(size=(90, 2)), rng.integers(0, 8, 90), devices=9, labels=rng.integers(0, 3, 90)
    )
    graph = topologies.ring(9) if method.name == "gtvmin" else None
    one = p2pkm.simulate(method, graph, shards, rounds=3)
    monkeypatch.setattr(pieces, "_CHUNK_SIZE", 7)
    other = p2pkm.simulate(method, graph, shards, rounds=3)
    assert one.rounds == other.rounds
    timed = {"wall_seconds": 0, "compile_seconds": 0}
    assert one.summary | timed == other.summary | timed
    for name in ("labels", "classes", "scores", "sample", "sample_device", "sample_class"):
        assert_array_equal(getattr(one.census, name), getattr(other.census, name))


def test_pieces_cover_every_device_once(monkeypatch):
    monkeypatch.setattr(pieces, "_CHUNK_SIZE", 5)
    offsets = np.array([0, 0, 3, 3, 20, 21, 21])
    found = list(pieces.iter_chunks(offsets))
    assert [i for own, _ in found for i in range(own.start, own.stop)] == list(range(6))
    assert [r for _, rows in found for r in range(rows.start, rows.stop)] == list(range(21))
    assert all(offsets[own.start] == rows.start and offsets[own.stop] == rows.stop for own, rows in found)
    assert len(found) > 2


def test_a_sample_of_points_prices_almost_as_all_do(monkeypatch):
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 20_000)
    X = 8.0 * np.eye(3)[y][:, :2] + rng.normal(size=(20_000, 2))
    shards = p2pkm.Shards.deal(X, rng.integers(0, 40, 20_000), labels=y)
    run = lambda: p2pkm.simulate(p2pkm.GTVMin(3, init="local"), topologies.ring(40), shards, rounds=2)  # noqa: E731
    whole = run()
    monkeypatch.setattr(prices, "_PRICED", 6_400)
    part = run()
    assert "cost and scores of all points are over a sample of 6400 of 20000 points" in part.notes
    assert whole.summary["centroids_sha256"] == part.summary["centroids_sha256"]
    for name in ("ratio_mean", "ratio_worst", "ratio_local_only", "ari", "nmi", "purity"):
        assert part.summary[name] != whole.summary[name]
        assert part.summary[name] == pytest.approx(whole.summary[name], rel=0.05)


def test_the_cost_on_a_sample_stands_for_that_on_all_points(monkeypatch):
    rng = np.random.default_rng(5)
    shards = p2pkm.Shards.deal(rng.normal(size=(8000, 2)), rng.integers(0, 10, 8000), devices=10)
    whole = p2pkm.simulate(p2pkm.FKM(3), None, shards, rounds=2).summary
    monkeypatch.setattr(prices, "_PRICED", 3_200)
    part = p2pkm.simulate(p2pkm.FKM(3), None, shards, rounds=2).summary
    for name in ("loss_global", "loss_local"):  # what all points cost over what central k-means costs on the sample
        assert part[name] != whole[name]
        assert part[name] == pytest.approx(whole[name], rel=0.05)


def test_devices_alone_are_sampled_when_there_are_many(monkeypatch):
    rng = np.random.default_rng(4)
    shards = p2pkm.Shards.deal(rng.normal(size=(400, 2)), rng.integers(0, 100, 400), devices=100)
    run = lambda: p2pkm.simulate(p2pkm.GTVMin(2, init="local"), topologies.ring(100), shards, rounds=1)  # noqa: E731
    whole = run()
    monkeypatch.setattr(prices, "_IN_THE_END", 1.0)
    part = run()
    assert part.notes.count("ratio and scores are over a sample of 16 of 100 devices") == 1
    sample = np.flatnonzero(np.isfinite(part.ratios))
    assert len(sample) == 16
    assert_array_equal(part.ratios[sample], whole.ratios[sample])
    assert part.best == sample[np.argmin(whole.ratios[sample])]
    assert part.summary["ratio_local_only"] == pytest.approx(whole.summary["ratio_local_only"], rel=0.5)


def test_located_points_are_those_of_the_own_devices():
    # Positions 2 to 4 are one device's, 8 and 9 another's; a third one is empty.
    rows, counts = find_local_rows(np.array([0, 2, 2, 4, 7, 8, 9]), np.array([2, 5, 8]), np.array([3, 0, 2]))
    assert_array_equal(rows, [0, 0, 2, 3, 4])
    assert_array_equal(counts, [3, 0, 2])


def test_a_large_batch_keeps_totals_and_no_exchanges(monkeypatch):
    from p2pkm.core.messages import DenseMessages

    rng = np.random.default_rng(3)
    placement = place(Topology.from_graph(topologies.small_world(20, degree=4, seed=0)), 0, 1)
    ledgers = [Ledger(placement.indptr)]
    notes = []
    for turn in range(9):
        edges = None if turn % 3 else rng.random(len(placement.indices)) < 0.4
        notes.append((DenseMessages(np.zeros((20, 3, 2)), rng.integers(-1, 4, 20)), edges, 0, turn))
    for note in notes:
        ledgers[0].count_dense(*note)
    assert ledgers[0].totals[0] > 0
    monkeypatch.setattr("p2pkm.network.ledger.LARGE", 5)
    ledgers.append(Ledger(placement.indptr))
    for note in notes:
        ledgers[1].count_dense(*note)
    small, large = ledgers
    assert large.totals == small.totals
    assert_array_equal(large.edges, small.edges)
    assert large.exchanges == []
    source = np.repeat(np.arange(20), np.diff(placement.indptr))
    expected = np.zeros((len(source), 4), np.int64)
    for messages, edges, _, _ in notes:
        for e, i in enumerate(source):
            if messages.rows[i] >= 0 and (edges is None or edges[e]):
                expected[e] += 1, messages.rows[i], 16 * messages.rows[i], 16 * messages.rows[i]
    assert_array_equal(small.edges, expected)


def test_consensus_and_distinct_sets_against_plain_loops():
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(30, 4, 2))
    centroids[rng.random((30, 4)) < 0.3] = np.inf
    goal = centroids[7][centroids[7, :, 0] < np.inf]
    squared = []
    for rows in centroids:
        real = rows[rows[:, 0] < np.inf]
        if len(real):
            squared.append(sum(min(((row - one) ** 2).sum() for one in goal) for row in real))
    assert measure_consensus(centroids, 7) == pytest.approx(np.sqrt(np.mean(squared)), rel=1e-12)
    digests = np.frombuffer(rng.bytes(320), np.uint8).reshape(10, 32)[rng.integers(0, 10, 40)]
    assert _count_different(digests[:, :8].copy().view(np.uint64).ravel()) == len({row.tobytes() for row in digests})


def test_the_star_of_exactly_so_many_clients_comes_back(tmp_path, monkeypatch):
    for name in ("storage.save", "metrics.result", "metrics.summary"):
        monkeypatch.setattr(f"p2pkm.{name}.LARGE", 4)
    shards = p2pkm.Shards.from_list([np.arange(6.0).reshape(3, 2) + i for i in range(4)])
    result = p2pkm.simulate(p2pkm.FKM(2), None, shards, rounds=1)
    again = p2pkm.load(result.save(tmp_path / "star"))
    assert (tmp_path / "star" / "graph.npz").is_file()
    assert again.topology.hub == 4 and LARGE == 100_000
    assert_array_equal(again.topology.indices, result.topology.indices)


def test_long_arrays_a_block_at_a_time_give_the_same_bits(monkeypatch):
    """Summaries, tree, tables on their way, what is counted by edge and the end of a run: in blocks of few devices."""
    points, _ = p2pkm.blobs(clusters=3, points=200, seed=0)
    shards = p2pkm.Shards.deal(points, p2pkm.partition.iid(600, 60))
    graph = p2pkm.Topology.from_graph(topologies.build("small-world", 60, degree=4))
    whole = _play(graph, shards)
    monkeypatch.setattr("p2pkm.core.sorting._BLOCK", 300)
    parts = _play(graph, shards)
    assert parts.summary["chain_sha256"] == whole.summary["chain_sha256"]
    for one, other in ((whole.gtv, parts.gtv), (whole.exposure.rows, parts.exposure.rows),
                       (whole.ledger.wire_bytes, parts.ledger.wire_bytes)):  # fmt: skip
        assert_array_equal(one, other)
    assert parts.summary["rows_max_per_device"] == whole.summary["rows_max_per_device"]


def _play(graph, shards):
    return p2pkm.simulate(p2pkm.GTVMin(3), graph, shards, rounds=3)


def test_couplings_are_estimated_a_block_at_a_time_to_the_same_bits(monkeypatch):
    """Differences of clusters over links, the weights of links, and shares; blocks end within the links of a device."""

    def run(**options):
        method = p2pkm.GTVMin(4, **options)
        points = "device-clusters:amplitude=0.6,class_alpha=0.5"
        return p2pkm.simulate(method, "small-world:degree=4", points, devices=40, rounds=3, baselines=False)

    chosen = run().summary["coupling_chosen"]
    assert chosen not in ("strong", None)
    for options in ({}, {"coupling": "links", "shares": True}):
        whole = run(**options)
        with monkeypatch.context() as small:
            small.setattr("p2pkm.core.sorting._BLOCK", 300)
            parts = run(**options)
        for key in ("chain_sha256", "coupling", "coupling_chosen"):
            assert parts.summary[key] == whole.summary[key]
        assert_array_equal(parts.label_penalties, whole.label_penalties)
        assert_array_equal(parts.link_weights, whole.link_weights)
