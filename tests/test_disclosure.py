"""What leaves a device: rows of few points never, points as they are counted, and who has seen whom."""

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.mail import Mail
from p2pkm.methods import METHODS, find
from p2pkm.network.local import LocalNetwork
from p2pkm.recipe import needs_hub
from tests.invoke import here, solve

LEAST = 4
SHY = [name for name in METHODS if not getattr(find(name)(3), "no_min_count", "") and name != "alone"]


def deal(n=8, seed=0):
    """Return points of n devices around four corners, unevenly: many rows would stand for one, two or three points."""
    rng = np.random.default_rng(seed)
    corners = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    y = [rng.choice(4, 14, p=rng.dirichlet([0.6] * 4)) for _ in range(n)]
    return p2pkm.Shards.from_list([corners[one] + rng.normal(size=(14, 2)) for one in y])


class Tap:
    """Keeps what every device says first in each stage, and of tables of centroids all that is said."""

    def __init__(self, monkeypatch):
        self.mails, inner = [], LocalNetwork.exchange
        letters = LocalNetwork.deliver

        def exchange(network, mail):
            self.mails.append((network._stage, network._turn, mail))
            return inner(network, mail)

        def deliver(network, said):
            self.mails.append((network._stage, network._turn, said))
            return letters(network, said)

        monkeypatch.setattr(LocalNetwork, "exchange", exchange)
        monkeypatch.setattr(LocalNetwork, "deliver", deliver)


def nearest_counts(points, rows):
    """Return how many points are nearest to each row."""
    return np.bincount(((points[:, None] - rows[None]) ** 2).sum(axis=2).argmin(axis=1), minlength=len(rows))


def told(mail, i):
    """Return the rows that device i says, without the ids of origins."""
    if isinstance(mail, Mail):
        return mail.values[i, : max(mail.rows[i], 0), mail.header :]
    place = np.flatnonzero(mail.who == i)
    return mail.tables.take(place).flat()[:, mail.header :]


def check(tap, shards, *, counted):
    """Return how many rows were looked at; none of them may stand for fewer than LEAST points."""
    seen, method = 0, tap.mails[-1][0]
    for stage, turn, mail in tap.mails:
        for i in range(shards.n):
            rows, points = told(mail, i), shards.points[shards.offsets[i] : shards.offsets[i + 1]]
            if not len(rows) or rows.shape[1] not in (2, 3):
                continue
            if rows.shape[1] == 3 and (counted or stage < method) and turn == 0:  # a count stands beside the row
                assert ((rows[:, 2] > LEAST - 1e-9) | (rows[:, 2] == 0)).all()
                assert (rows[rows[:, 2] == 0] == 0).all()
                seen += len(rows)
            elif stage == method and not counted:
                assert (nearest_counts(points, rows[:, :2]) >= LEAST).all()
                seen += len(rows)
    return seen


@pytest.mark.parametrize("name", SHY)
def test_no_row_of_fewer_points_ever_leaves(name, monkeypatch):
    tap, shards = Tap(monkeypatch), deal()
    graph = None if needs_hub(find(name)(4)) else topologies.ring(8)
    result = p2pkm.simulate(find(name)(4), graph, shards, rounds=4, seed=1, min_count=LEAST)
    counted = name in ("consensus", "pushsum", "tracking")
    if name == "pushsum":  # its first message is a known share of the mass
        tap.mails = [(s, t, m._replace(values=m.values * 3.0) if s == tap.mails[-1][0] and t == 0 else m)
                     for s, t, m in tap.mails]  # fmt: skip
    assert check(tap, shards, counted=counted) > 5
    assert result.summary["min_count"] == LEAST
    assert result.summary["descent"] in ("not claimed", None)


@pytest.mark.parametrize("seeding", ["summaries", "summaries:hops=1", "rooted", "own", "box"])
@pytest.mark.parametrize("recipe", [None, "groups"])
def test_no_row_of_fewer_points_leaves_in_any_seeding(seeding, recipe, monkeypatch):
    tap, shards = Tap(monkeypatch), deal()
    method = p2pkm.GTVMin(4, recipe="groups") if recipe else p2pkm.GTVMin(4, seeding=seeding)
    p2pkm.simulate(method, topologies.ring(8), shards, rounds=4, seed=1, min_count=LEAST)
    assert check(tap, shards, counted=False) > 10


def test_without_the_option_such_rows_do_leave(monkeypatch):
    tap, shards = Tap(monkeypatch), deal()
    p2pkm.simulate(p2pkm.GTVMin(4), topologies.ring(8), shards, rounds=4, seed=1)
    with pytest.raises(AssertionError):
        check(tap, shards, counted=False)


@pytest.mark.parametrize(("words", "said"), [
    (("--algorithm", "central"), "says points as they are"),
    (("--algorithm", "coreset"), "says points as they are"),
    (("--algorithm", "mufc"), "masked as a whole"),
    (("--algorithm", "ffcm2"), "a share in every row"),
    (("--algorithm", "admm"), "by their number"),
    (("--seeding", "raced"), "points as they are"),
    (("--seeding", "leader"), "points as they are"),
])  # fmt: skip
def test_what_cannot_withhold_is_refused(words, said):
    ended = here("--min-count", 3, *words, "--out", "none", "-q", "--devices", "4")
    assert ended.code == 2
    assert said in ended.err
    assert here("--min-count", -1, "--out", "none", "-q").code == 2


def test_raw_points_are_counted_once_each():
    shards, n = deal(), 8
    count = {}
    for name in ("central", "fkm", "kfed", "coreset", "gtvmin"):
        graph = None if needs_hub(find(name)(4)) else topologies.ring(n)
        count[name] = p2pkm.simulate(find(name)(4), graph, shards, rounds=2, seed=1).summary["raw_points"]
    assert count["central"] == len(shards.points)
    own = [p2pkm.simulate(p2pkm.GTVMin(4, seeding=seeding), topologies.ring(n), shards, rounds=2).summary["raw_points"]
           for seeding in ("own", "leader")]  # fmt: skip
    assert own[0] == n * 4  # k-means++ seeds are points of their device
    assert own[1] == 4
    assert 0 < count["fkm"] <= n * 4
    assert count["coreset"] > 20
    assert count["gtvmin"] < 15  # k-means of few points has clusters of one


def test_small_clients_of_kfed_ship_all_their_points():
    blocks = [np.random.default_rng(i).normal(size=(size, 2)) for i, size in enumerate((3, 2, 40, 40))]
    shards = p2pkm.Shards.from_list(blocks)
    summary = p2pkm.simulate(p2pkm.KFED(4, local_k=4), None, shards).summary
    assert summary["raw_points"] >= 5
    assert p2pkm.simulate(p2pkm.KFED(4, local_k=4), None, shards, min_count=2).summary["raw_points"] == 0


def test_who_has_seen_whom():
    shards = deal()
    path = topologies.path(8)
    everybody = p2pkm.simulate(p2pkm.GTVMin(4), path, shards, rounds=2)
    assert_array_equal(everybody.exposure.devices, np.full(8, 7))
    near = p2pkm.simulate(p2pkm.GTVMin(4, seeding="own"), path, shards, rounds=2)
    assert_array_equal(near.exposure.devices, [1, 2, 2, 2, 2, 2, 2, 1])
    assert near.summary["exposure_max"] == 2
    two = p2pkm.simulate(p2pkm.GTVMin(4, seeding="summaries:hops=2"), path, shards, rounds=2)
    assert_array_equal(two.exposure.devices, [2, 3, 4, 4, 4, 4, 3, 2])
    server = p2pkm.simulate(p2pkm.FKM(4), None, shards, rounds=2)
    assert_array_equal(server.exposure.devices, [0] * 8 + [8])

    assert near.exposure.rows.sum() == near.ledger.edge_rows.sum()


def test_reach_is_that_of_networkx():
    graph = nx.gnp_random_graph(14, 0.15, seed=3)
    for hops in (1, 2, 3):
        expected = [len(nx.single_source_shortest_path_length(graph, i, hops)) - 1 for i in range(14)]
        assert_array_equal(topologies.measures.count_within(graph, hops), expected)


def test_the_closing_table_says_it():
    ended = here("--data", "grid16:points=5", "--devices", "4", "--rounds", "3", "--out", "none", "--no-plot", "-q")
    assert "points in the open" in ended.out
    assert "seen by one device" in ended.out
    assert solve("--min-count", 2)["min_count"] == 2
