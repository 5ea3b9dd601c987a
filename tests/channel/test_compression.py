"""Sparse messages: which numbers are sent, how they are counted, what receivers hold after losses, refused where."""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.channel.compression import Compressor
from p2pkm.channel.transform import Context
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.registry import find
from p2pkm.methods.schedules import Schedule
from p2pkm.network.delay_model import ReceivedTables
from tests.support.play_rounds import arrange, random_links
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import SMALL, here, on_ranks, solve
from tests.support.sampling import thin

ROWS, WIDTH = 3, 2


class Losses:
    """Losses that a test decides, in the place of faults."""

    def __init__(self, network, bound):
        self.placement, self.bound = network.placement, bound
        self.count = np.zeros(len(self.placement.ids), np.int64)
        self.held = np.zeros(len(self.placement.indices), np.int64)
        self.lost = np.zeros(len(self.placement.indices), np.bool_)

    def receive(self, tables):
        """Lose the tables over the edges that `lost` marks."""
        sent = tables.rows >= 0
        self.count += sent
        senders = self.placement.indices
        arrives = sent[senders] & ~self.lost
        self.held = np.where(arrives, self.count[senders], self.held)
        return ReceivedTables(np.where(self.held > 0, self.count[senders] - self.held, -1), arrives)


class Link:
    """Devices with a compressor, and a network that may lose messages."""

    def __init__(self, text, n, links, *, lossy=False, exchanges=500):
        points = [np.arange(4.0).reshape(2, 2) + i for i in range(n)]
        self.table = arrange(points, links)
        self.losses = Losses(self.table.network, exchanges) if lossy else None
        self.table.network.open(self.losses)
        self.devices = replace(self.table.devices, has_stale_links=lossy)
        self.transform = Compressor(spec=p2pkm.Compression.of(text))
        self.transform.start([], self.devices, self.table.network)
        self.transform.begin(Stage("stage", find("gtvmin")(ROWS), 1), closing=True)
        self.round = 0

    def send(self, tables, rows=None):
        """Send tables of all devices; return the messages and the inbox of the receivers."""
        rows = np.full(len(tables), tables.shape[1]) if rows is None else np.array(rows)
        context = Context(0, self.devices.at_turn(self.round, 0, self.devices.active_devices), None)
        self.round += 1
        messages = self.transform.outgoing(DenseMessages(tables, rows), context)
        return messages, self.transform.incoming(self.table.network.exchange(messages), context)


def read(inbox, edge):
    """Return the table that is held over an edge, None if it is not complete."""
    count = int(inbox.rows_of(edge))
    return None if count < 0 else inbox.tables_of(edge, count, WIDTH).tolist()


def test_topk_sends_what_differs_most_and_the_rest_later():
    link = Link("topk:share=0.3", 2, [(0, 1)])
    first = np.zeros((2, ROWS, WIDTH))
    whole, inbox = link.send(first)
    assert whole.rows.tolist() == [6, 6] and whole.wire.tolist() == [48, 48]
    assert read(inbox, 0) == first[1].tolist()
    moved = first + np.array([[1.0, 8.0], [0.0, 3.0], [2.0, -9.0]])
    sparse, inbox = link.send(moved)
    # Two of six: places 5 and 1, as positions and numbers, and a bit for each number of the table.
    assert sparse.rows.tolist() == [4, 4] and sparse.header == 2 and sparse.wire.tolist() == [17, 17]
    assert sparse.values[0, :4, 2].tolist() == [1.0, 5.0, 8.0, -9.0]
    assert read(inbox, 0) == [[0.0, 8.0], [0.0, 0.0], [0.0, -9.0]]
    # What was not sent is now the largest difference.
    assert read(link.send(moved)[1], 0) == [[0.0, 8.0], [0.0, 3.0], [2.0, -9.0]]
    assert read(link.send(moved)[1], 0) == moved[1].tolist()
    assert link.table.network.ledger.sums[1:] == (2 * (48 + 3 * 32), 2 * (48 + 3 * 17))


def test_randomk_draws_places_that_take_no_bytes():
    link = Link("randomk:share=0.5", 2, [(0, 1)])
    link.send(np.zeros((2, ROWS, WIDTH)))
    found = []
    for value in range(1, 40):
        messages, inbox = link.send(np.full((2, ROWS, WIDTH), float(value)))
        assert messages.rows.tolist() == [3, 3] and messages.wire.tolist() == [24, 24]
        found.append(np.ravel(read(inbox, 0)) == value)
    assert np.sum(found, axis=1).tolist() == [3] * 39
    assert np.all((np.mean(found, axis=0) > 0.2) & (np.mean(found, axis=0) < 0.8))


def test_another_number_of_rows_is_sent_whole():
    link = Link("topk:share=0.2", 2, [(0, 1)])
    tables = np.arange(12.0).reshape(2, ROWS, WIDTH)
    link.send(tables)
    for rows in (2, 3, 1):
        messages, inbox = link.send(-tables, [rows, rows])
        assert messages.rows.tolist() == [rows * WIDTH] * 2
        assert read(inbox, 0) == (-tables[1, :rows]).tolist()
    assert read(link.send(tables, [0, 0])[1], 0) == []
    # A silent device sends nothing, and its table stays.
    assert read(link.send(tables, [3, -1])[1], 0) == []


def naive_top(table, copy, ages, count):
    """Return the places of the numbers that differ most, by sorting a list."""

    def priority(place):
        return -abs(table[place] - copy[place]), ages[place], place

    return sorted(table, key=priority)[:count]


def naive(tables, lost, links, n, share):
    """Send tables[t][i], dicts of numbers by place, by lists and dicts; return what is held over each link."""
    m = ROWS * WIDTH
    copies, ages = [dict() for _ in range(n)], [dict.fromkeys(range(m), 0) for _ in range(n)]
    held, history = {link: {} for link in links}, []
    for t, step in enumerate(tables):
        for i in range(n):
            count = ceil(share * m)
            chosen = list(range(m))
            if copies[i]:
                chosen = naive_top(step[i], copies[i], ages[i], count)
                left = [place for place in range(m) if place not in chosen]
                chosen += sorted(left, key=lambda place: (ages[i][place], place))[: ceil(count / 4)]
                chosen = list(range(m)) if 2 * len(chosen) >= m else chosen
            for place in chosen:
                copies[i][place], ages[i][place] = step[i][place], t + 1
                for receiver, sender in links:
                    if sender == i and (receiver, sender) not in lost[t]:
                        held[receiver, sender][place] = step[i][place]
        history.append({link: dict(table) for link, table in held.items()})
    return history


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(3)
def test_receivers_hold_what_a_naive_twin_holds_after_losses(seed):
    rng = np.random.default_rng(seed)
    n, share, exchanges, quiet = 5, 0.2, 30, 20
    link = Link(f"topk:share={share}", n, random_links(rng, n, 0.6, connected=True), lossy=True)
    edges = list(zip(link.devices.sources.tolist(), link.devices.indices.tolist(), strict=True))
    tables = np.cumsum(rng.normal(size=(exchanges, n, ROWS, WIDTH)), axis=0)
    tables = np.concatenate((tables, np.repeat(tables[-1:], quiet, axis=0)))
    lost = [rng.random(len(edges)) < 0.4 for _ in range(exchanges)] + [np.zeros(len(edges), bool)] * quiet
    as_dicts = [[dict(enumerate(table.ravel().tolist())) for table in step] for step in tables]
    expected = naive(as_dicts, [{edges[e] for e in np.flatnonzero(marks)} for marks in lost], edges, n, share)
    for step, marks, twin in zip(tables, lost, expected, strict=True):
        link.losses.lost = marks
        _, inbox = link.send(step)
        for e, edge in enumerate(edges):
            complete = [twin[edge][place] for place in sorted(twin[edge])] if len(twin[edge]) == 6 else None
            found = read(inbox, e)
            assert (None if found is None else np.ravel(found).tolist()) == complete
    # Without changes and losses, every number is sent again within 4 / share tables.
    for e, (_, sender) in enumerate(edges):
        assert read(inbox, e) == tables[-1, sender].tolist()


def test_a_first_table_that_is_lost_is_held_once_all_its_numbers_have_come():
    link = Link("topk:share=0.1", 2, [(0, 1)], lossy=True)
    link.losses.lost = np.ones(2, bool)
    tables = np.arange(12.0).reshape(2, ROWS, WIDTH)
    _, inbox = link.send(tables)
    link.losses.lost = np.zeros(2, bool)
    seen = []
    for _ in range(4):
        _, inbox = link.send(tables)
        seen.append(read(inbox, 0))
        assert inbox.fresh.tolist() == [seen[-1] is not None] * 2
    assert seen == [None, None, tables[1].tolist(), tables[1].tolist()]


def test_a_lost_table_of_other_rows_is_not_completed_by_numbers_of_the_last_one():
    link = Link("topk:share=0.1", 2, [(0, 1)], lossy=True)
    tables = np.arange(12.0).reshape(2, ROWS, WIDTH)
    link.send(tables)
    link.losses.lost = np.ones(2, bool)
    _, inbox = link.send(-tables, [2, 2])
    assert read(inbox, 0) == tables[1].tolist()
    link.losses.lost = np.zeros(2, bool)
    # Of four numbers one and one that is sent again; the whole table would be as long.
    assert read(link.send(-tables, [2, 2])[1], 0) == (-tables[1, :2]).tolist()
    link = Link("randomk:share=0.3", 2, [(0, 1)], lossy=True)
    link.send(tables)
    link.losses.lost = np.ones(2, bool)
    link.send(-tables, [2, 2])
    link.losses.lost = np.zeros(2, bool)
    assert read(link.send(-tables, [2, 2])[1], 0) is None


def test_a_stage_ends_once_its_reason_holds_until_all_numbers_were_sent():
    answers = iter(["converged", "converged", "", *["oscillating"] * 4, "", "silent"])
    schedule = Schedule(None, None, check_termination=lambda stop: next(answers))
    transform = Compressor(spec=p2pkm.Compression("topk", share=0.25))
    transform.begin(Stage("stage", find("gtvmin")(3), 1), closing=True)
    _, stricter = transform.wrap(None, schedule, None)
    given = [stricter.check_termination("") for _ in range(9)]
    assert given == ["", "", "", "", "", "", "oscillating", "", "silent"]  # where nothing is sent nothing changes


def deal(n=6, d=3):
    rng = np.random.default_rng(0)
    return p2pkm.Shards.from_list([rng.normal(4.0 * rng.integers(0, 3, (12, 1)), 1.0, (12, d)) for _ in range(n)])


@pytest.mark.parametrize("faults", [None, "loss=0.2,delay=0.2", "dropout=0.2"])
@pytest.mark.parametrize("method", [p2pkm.GTVMin(3), p2pkm.DGC(3)], ids=["gtvmin", "dgc"])
@pytest.mark.parametrize("choice", ["topk", "randomk"])
@pytest.mark.sample(5)
def test_share_one_is_no_transform(choice, method, faults):
    asked = {"rounds": 6, "quantize": "none", "faults": faults, "baselines": False}
    plain = p2pkm.simulate(method, topologies.ring(6), deal(), **asked)
    whole = p2pkm.simulate(method, topologies.ring(6), deal(), compress=f"{choice}:share=1", **asked)
    assert whole.centroids.tobytes() == plain.centroids.tobytes()
    for key in ("messages", "bytes", "wire_bytes", "rounds", "termination"):
        assert whole.summary[key] == plain.summary[key], key
    assert whole.summary["numbers_sent"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["topk", "randomk"])
def test_fewer_bytes_lead_to_nearly_the_same_clustering(choice):
    plain, sparse = (
        p2pkm.simulate(
            p2pkm.GTVMin(3),
            topologies.ring(6),
            deal(d=20),
            rounds=60,
            all_rounds=True,
            quantize="none",
            compress=compress,
        ).summary
        for compress in (None, f"{choice}:share=0.1")
    )
    assert sparse["messages"] == plain["messages"] and sparse["bytes"] < 0.5 * plain["bytes"]
    assert sparse["ratio_mean"] < plain["ratio_mean"] + 0.01
    assert sparse["descent"] == "not claimed"


@pytest.mark.parametrize("choice", ["topk", "randomk"])
@pytest.mark.sample(2)
def test_it_keeps_the_contract_of_transforms(choice):
    assert "lossy-links" in p2pkm.check_transform(Compressor, options={"compress": choice})


@pytest.mark.parametrize("text", ["topk:share=0", "topk:share=0.7", "randomk:share=1.2", "topkk", "topk:k=3"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(ExperimentError, match=r"compress|topk"):
        p2pkm.Compression.of(text)


def test_a_text_reads_back():
    assert [str(p2pkm.Compression.of(text)) for text in ("topk", "randomk:share=0.7")] == [
        "topk:share=0.1", "randomk:share=0.7",
    ]  # fmt: skip


def test_a_note_names_the_stages_that_send_whole_tables():
    result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), deal(), rounds=2, compress="topk")
    assert any(note.startswith("compress acts in gtvmin; ") for note in result.notes), result.notes


RUNS = {
    "topk": ("--compress", "topk:share=0.2"),
    "randomk": ("--compress", "randomk:share=0.3", "--algorithm", "dgc"),
    "losses": ("--compress", "topk:share=0.1", "--faults", "loss=0.3,delay=0.2,dropout=0.1"),
    "groups": ("--compress", "topk", "--groups", "--graph", "complete"),
}


@pytest.mark.mpi
def test_the_same_bits_in_process_and_on_three_ranks():
    words = [(*SMALL, "--devices", "7", *run, "--out", "none", "--format", "json") for run in RUNS.values()]
    for name, ending in zip(RUNS, on_ranks(3, words), strict=True):
        expected = solve("--devices", "7", *RUNS[name])
        for key in ("chain_sha256", "bytes", "wire_bytes", "numbers_sent"):
            assert ending.summary[key] == expected[key], name


@pytest.mark.slow
@pytest.mark.parametrize("name", thin(["losses", "randomk"], 2))
def test_a_run_goes_on_from_its_checkpoints(name, tmp_path, monkeypatch):
    words = (*SMALL, *RUNS[name], "-q", "--rounds", "6", "--checkpoint-every", 1, "--out", tmp_path / "run")
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert here(*words).code == 0
    for copy in sorted((tmp_path / "copies").iterdir())[::2]:
        assert difference(tmp_path / "run", resume(copy)) == ""
