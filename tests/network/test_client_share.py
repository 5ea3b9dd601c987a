"""Share of the clients that a server asks in each round: who is asked, what is sent, and what becomes of the others."""

import json

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import p2pkm
from p2pkm.channel.availability import Availability
from p2pkm.channel.fault_model import build_fault_model
from p2pkm.core.batch import Stream
from p2pkm.core.errors import ExperimentError
from p2pkm.kernels.reference import uniforms
from p2pkm.kernels.streams import shared_key
from p2pkm.network.graph import Topology
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import here, on_ranks

# Four clients with the means 1, 10, 100 / 3 and 90 of one coordinate.
POINTS = [np.array(part)[:, None] for part in ([0.0, 2.0], [10.0], [20.0, 30.0, 50.0], [70.0, 90.0, 110.0])]
ASKED = [[0, 2], [0, 1], [0, 3], [2, 3], [0, 2], [0, 1]]


def draw(share, clients, rounds, *, seed=0, sizes=None):
    """List the clients that are asked in each round, and check that both directions of their links are active."""
    star = Topology.star(clients)
    graph = p2pkm.ClientShare.of(share).apply(star, seed, None if sizes is None else np.array(sizes)).varying
    asked = []
    for t in range(rounds):
        active = graph.active(t)
        up, down = (sorted(ends[active & (ends < clients)].tolist()) for ends in (star.sources, star.indices))
        assert up == down
        asked.append(up)
    return asked


def average(rounds, **options):
    """Run DWF k-means with one cluster: a client reports the mean of its points."""
    shards = p2pkm.Shards.from_list(POINTS)
    return p2pkm.simulate(p2pkm.DWFKM(1), None, shards, rounds=rounds, client_share=0.5, baselines=False, **options)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_clients_by_hand():
    """The server averages the reports of the round before; clients that are not asked keep what they received last."""
    assert draw(0.5, 4, 6) == ASKED
    sizes, means = np.array([2, 1, 3, 3]), np.array([1.0, 10.0, 100 / 3, 90.0])
    held, expected = np.full(4, np.inf), []
    for t in range(1, 6):
        reported = ASKED[t - 1]
        # First reports are clustered without weights.
        weights = np.ones(2) if t == 1 else sizes[reported]
        held[ASKED[t]] = np.average(means[reported], weights=weights)
        expected.append(held.copy())
    with pytest.warns(
        ConvergenceWarning, match=r"\(2, 3\).*the server asked client_share 0.5 of the clients in a round"
    ):
        average(1)
    for rounds in (1, 2, 5):
        found = average(rounds)
        np.testing.assert_allclose(found.centroids[:4].ravel(), expected[rounds - 1], rtol=1e-12)
    assert any("the server asks 2 of 4 clients in each round of dwfkm" in note for note in found.notes)
    assert found.summary["client_share"] == "0.5"


@pytest.mark.parametrize("faults", [None, "loss=1e-300"])
def test_the_ledger_counts_those_who_are_asked_and_nobody_else(faults):
    ledger = average(5, faults=faults).ledger
    for t, asked in enumerate(ASKED):
        assert ledger.sender[ledger.turn == 2 * t].tolist() == asked
    for client in range(4):
        up, down = (
            (messages[0], size[0])
            for ends in ((ledger.src, ledger.dst), (ledger.dst, ledger.src))
            if (edge := (ends[0] == client) & (ends[1] == 4)).any()
            for messages, size in [(ledger.messages[edge], ledger.bytes[edge])]
        )
        reports, answers = (sum(client in asked for asked in rounds) for rounds in (ASKED, ASKED[1:]))
        assert (up, down) == ((reports, 16 * reports), (answers, 8 * answers))


def test_the_clock_waits_for_those_who_are_asked():
    """One of three clients computes in a round; it has as many operations as points, times 5."""
    sizes = [1, 10, 1000]
    shards = p2pkm.Shards.from_list([np.arange(float(size))[:, None] for size in sizes])
    result = p2pkm.simulate(
        p2pkm.DWFKM(1), None, shards, rounds=12, client_share=0.1, baselines=False,
        link_model="lan:latency=0,access=none,speed=1,server_speed=1e30",
    )  # fmt: skip
    seconds = np.diff([record["virtual_seconds"] for record in result.rounds], prepend=0.0)
    asked = [sizes[client] for (client,) in draw(0.1, 3, 13)]
    assert len(set(asked)) == 3 and seconds.tolist() == pytest.approx([5.0 * size for size in asked])


@pytest.mark.parametrize(("by", "odds"), [("uniform", [1, 1, 1, 1]), ("size", [0, 1, 3, 6])])
def test_clients_are_drawn_in_proportion(by, odds):
    counts = np.bincount([client for (client,) in draw(f"0.25:by={by}", 4, 4000, sizes=[0, 1, 3, 6])], minlength=4)
    expected = 4000 * np.array(odds) / sum(odds)
    assert (np.abs(counts - expected) <= 4.5 * np.sqrt(expected)).all() and (counts[expected == 0] == 0).all()


def test_the_number_of_clients_is_rounded_and_at_least_one():
    for share, count in ((0.01, 1), (0.3, 3), (0.26, 3), (1, 10)):
        assert {len(set(asked)) for asked in draw(share, 10, 20)} == {count}
    assert draw(0.3, 10, 9) != draw(0.3, 10, 9, seed=1)
    # Clients without points are asked by size only after all others.
    assert draw("0.5:by=size", 4, 5, sizes=[0, 7, 0, 1]) == [[1, 3]] * 5


def test_available_clients_are_drawn_alike():
    """Two of five clients are unavailable, others in odd rounds; if there are too few, all of them are asked."""
    star, now = Topology.star(5), [0]
    away = np.array([[True, False, False, True, False, False], [False, True, True, True, True, True]])
    graph = p2pkm.ClientShare.of("0.4:by=availability").apply(star, 0, absent=lambda: away[now[0] % 2]).varying
    counts = np.zeros((2, 5))
    for t in range(4000):
        now[0] = t
        ends = star.sources[graph.active(t) & (star.sources < 5)]
        counts[t % 2, ends] += 1
    assert (counts[away[:, :5]] == 0).all() and counts[1, 0] == 2000
    drawn = counts[0, [1, 2, 4]]
    assert drawn.sum() == 2 * 2000 and (np.abs(drawn - 4000 / 3) <= 4.5 * np.sqrt(4000 / 3)).all()


@pytest.mark.parametrize("stages", ["method", "all"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_only_available_clients_are_asked(stages, tmp_path):
    """Against the draws of the uniform share, from which unavailable clients are left out."""
    faults = p2pkm.Faults(dropout=0.3, dropout_length=2, stages=stages)
    shards = p2pkm.Shards.from_list([np.arange(4.0)[:, None] + 10 * i for i in range(8)])
    result = p2pkm.simulate(
        p2pkm.DWFKM(2), None, shards, rounds=20, all_rounds=True, client_share="0.5:by=availability", faults=faults,
        baselines=False, seed=3,
    )  # fmt: skip
    star = Topology.star(8)
    # All rounds of a server method belong to its own stage.
    online = Availability(build_fault_model(faults, star, 3), 9, star.indices, star.sources)
    ledger = result.ledger
    for t in range(21):
        online.start_round(t)
        draws = uniforms(shared_key(3), Stream.ASKED, [t], 8)[0]
        order = [i for i in np.argsort(draws).tolist() if not online.absent[i]]
        said = ledger.sender[ledger.turn == 2 * t]
        assert said[said < 8].tolist() == sorted(order[:4])
    assert result.summary["messages_lost"] == 0 and result.summary["unavailable_fraction"] > 0.3


def test_without_faults_all_clients_are_available():
    drawn, available = (
        p2pkm.simulate(p2pkm.DWFKM(1), None, p2pkm.Shards.from_list(POINTS), rounds=9, client_share=share)
        for share in ("0.5", "0.5:by=availability")
    )
    assert drawn.summary["chain_sha256"] == available.summary["chain_sha256"]
    assert drawn.summary["messages"] == available.summary["messages"]


@pytest.mark.parametrize("method", [p2pkm.DWFKM(3), p2pkm.FKM(3), p2pkm.FFCM(3, version=1), p2pkm.FFCM(3)])
@pytest.mark.parametrize("faults", [None, "loss=0.2,delay=0.2"])
def test_to_ask_all_is_to_have_no_share(method, faults):
    X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 5), labels=y)
    all_asked, plain = (
        p2pkm.simulate(method, None, shards, rounds=8, all_rounds=True, faults=faults, client_share=share)
        for share in (1, None)
    )
    assert all_asked.summary["chain_sha256"] == plain.summary["chain_sha256"]
    assert all_asked.summary["messages"] == plain.summary["messages"]


def test_a_client_without_a_reply_sends_its_first_report_when_it_is_asked():
    """The clients of the opening have no points, so the server has no centroids for those that it asks first."""
    shards = p2pkm.Shards.from_list([part if i in (1, 3) else part[:0] for i, part in enumerate(POINTS)])
    found = p2pkm.simulate(p2pkm.FKM(1, min_count=1), None, shards, rounds=5, client_share=0.5, baselines=False)
    assert draw(0.5, 4, 6) == ASKED  # only in round 1 client 1, in rounds 2 and 3 client 3
    np.testing.assert_allclose(found.server_centroids.ravel(), 90.0)
    assert found.summary["messages"] == 2 * 6 + 2 * 5


@pytest.mark.parametrize("value", ["0.1", "0.25:by=size", "0.25:by=availability", "1"])
def test_the_text_of_a_share_is_read_back(value):
    assert str(p2pkm.ClientShare.of(value)) == value


def test_what_is_no_share_is_refused():
    for value, message in (
        (0, "client_share is 0; expected a finite number above 0 and at most 1"),
        ("1.5", "client_share is 1.5"),
        ("half", "expected a share of the clients, with options"),
        ("0.5:by=points", "Known: availability, size, uniform"),
        (True, "client_share is True"),
    ):
        with pytest.raises(ExperimentError, match=message):
            p2pkm.ClientShare.of(value)


def test_a_share_is_an_axis_of_studies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = p2pkm.study(
        grid={"client_share": [0.25, "0.5:by=size"]}, algorithm="dwfkm", devices=8, data="grid16:points=5",
        clusters=4, rounds=20, seeds=[0], progress=False,
    ).rows  # fmt: skip
    assert [(row["client_share"], row["messages"]) for row in rows] == [("0.25", 2 * 41), ("0.5:by=size", 4 * 41)]


COMMON = (
    "--algorithm", "dwfkm", "--devices", "9", "--data", "grid16:points=5", "-k", "4", "--rounds", "8",
    "--client-share", "0.4:by=size", "--faults", "loss=0.1,dropout=0.1", "--link-model", "wan", "-q", "--no-plot",
    "--format", "json",
)  # fmt: skip


def _asking(by):
    return [f"0.4:by={by}" if word == "0.4:by=size" else word for word in COMMON]


def test_a_run_is_verified(tmp_path):
    assert here(*COMMON, "--out", tmp_path / "run").code == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))["client_share"] == "0.4:by=size"
    assert here("verify", tmp_path / "run").code == 0


def test_a_resumed_run_asks_the_same_clients(tmp_path, monkeypatch):
    words = [*_asking("availability"), "--checkpoint-every", 1, "--out", tmp_path / "run"]
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert here(*words).code in {0, 7}
    for copy in sorted((tmp_path / "copies").iterdir())[1::2]:
        assert difference(tmp_path / "run", resume(copy)) == ""
    assert here("verify", tmp_path / "run").code == 0


@pytest.mark.mpi
def test_three_ranks_ask_the_same_clients():
    commands = [(*_asking(by), "--out", "none") for by in ("size", "availability")]
    for words, ending in zip(commands, on_ranks(3, commands), strict=True):
        # Faults leave some devices without centroids: exit code 7.
        alone, together = json.loads(here(*words).out), json.loads(ending.out)
        assert together["ranks"] == 3
        for name in ("chain_sha256", "messages", "bytes", "virtual_seconds", "messages_lost"):
            assert alone[name] == together[name], (name, words)
