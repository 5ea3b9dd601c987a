"""What leaves a device: rows of few points never, points as they are counted, and who has seen whom."""

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.algorithms import gtvmin
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


def scatter(seed, moved):
    """Return 8 devices with many points at a place near each of two corners, and few near the others; these may move.

    Neighbours together know all four corners, so that nobody has reason to take few points and others as one cluster.
    """
    rng, blocks = np.random.default_rng(seed), []
    for i in range(8):
        sizes = np.roll([*rng.integers(LEAST, 9, 2), LEAST - 1, 1], i)
        places = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]]) + rng.normal(0, 0.4, (4, 2))
        places += moved * rng.normal(0, 0.05, (4, 2)) * (sizes < LEAST)[:, None]
        blocks.append(np.repeat(places, sizes, axis=0))
    return p2pkm.Shards.from_list(blocks)


def listen(method, moved, seed, monkeypatch, **options):
    """Return all rows of centroids, sums and counts that every device says in a run, in order."""
    with monkeypatch.context() as patch:
        tap, shards = Tap(patch), scatter(seed, moved)
        graph = None if needs_hub(method) else topologies.ring(8)
        p2pkm.simulate(method, graph, shards, rounds=5, seed=seed, min_count=LEAST, **options)
    said = [(stage, i, told(mail, i)) for stage, _, mail in tap.mails for i in range(8)]
    return [(stage, i, sorted(map(tuple, rows))) for stage, i, rows in said if rows.shape[1] in (2, 3)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SHY)
def test_nothing_that_is_said_depends_on_where_few_points_are(name, seed, monkeypatch):
    method = p2pkm.KFED(4, local_k=4) if name == "kfed" else find(name)(4)
    said = [listen(method, moved, seed, monkeypatch) for moved in (False, True)]
    assert len(said[0]) > 8 and said[0] == said[1]


FAULTS = "loss=0.2,churn=0.1,late=0.5,stages=all"


@pytest.mark.parametrize(("options", "faults"), [
    ({"seeding": "summaries:hops=1"}, None), ({"theta": 1.9}, None), ({"seeding": "rooted"}, FAULTS),
    ({"robust": "saturate"}, FAULTS), ({"robust": "trim"}, FAULTS), ({"schedule": "async"}, FAULTS),
    ({"schedule": "jacobi"}, FAULTS), ({"coupling": 1.0}, FAULTS),
], ids=str)  # fmt: skip
def test_nothing_that_gtvmin_says_depends_on_where_few_points_are(options, faults, monkeypatch):
    said = [listen(p2pkm.GTVMin(4, **options), moved, 1, monkeypatch, faults=faults) for moved in (False, True)]
    assert len(said[0]) > 8 and said[0] == said[1]


@pytest.mark.parametrize("options", [
    {}, {"recipe": "groups"}, {"seeding": "own"}, {"seeding": "box"}, {"update": "as-printed"}, {"schedule": "async"},
    {"recipe": "groups", "faults": FAULTS}, {"seeding": "own", "faults": FAULTS},
], ids=str)  # fmt: skip
def test_every_row_is_made_of_none_or_enough_of_the_own_points(options, monkeypatch):
    looked, inner, few = [], gtvmin.spare, set()

    def spare(devices, centroids):
        points, weights, offsets = inner(devices, centroids)
        for i, rows in enumerate(centroids):
            own = slice(offsets[i], offsets[i + 1])
            rows = np.where(np.isfinite(rows), rows, 1e9)
            taking = nearest_counts(points[own][weights[own] > 0], rows)
            few.update(nearest_counts(points[own], rows).tolist())
            assert ((taking == 0) | (taking >= LEAST)).all()
            assert_array_equal(taking, np.where((n := nearest_counts(points[own], rows)) >= LEAST, n, 0))
        looked.append(len(centroids))
        return points, weights, offsets

    monkeypatch.setattr(gtvmin, "spare", spare)
    faults = options.get("faults")
    method = p2pkm.GTVMin(4, **{name: value for name, value in options.items() if name != "faults"})
    p2pkm.simulate(method, topologies.ring(8), deal(), rounds=6, seed=1, min_count=LEAST, faults=faults)
    assert len(looked) >= 4 and (few & {1, 2, 3} or "own" in options.values())


def test_own_seeds_are_means_of_enough_points():
    points = np.array([[0.0], [1.0], [2.0], [3.0], [50.0], [51.0], [99.0]])
    tables = [p2pkm.simulate(p2pkm.GTVMin(3, seeding="own"), topologies.path(2), p2pkm.Shards.from_list([points] * 2),
                             rounds=0, min_count=least).centroids[0, :, 0] for least in (0, 2, 4)]  # fmt: skip
    assert set(tables[0]) <= set(points[:, 0])
    assert sorted(tables[1][np.isfinite(tables[1])]) == [1.5, 50.5]
    assert sorted(tables[2][np.isfinite(tables[2])]) == [1.5]


def test_a_row_of_few_points_is_what_the_neighbors_say():
    few = np.array([[0.0], [0.0], [0.0], [8.0]])
    many = np.array([[0.0]] * 3 + [[10.0]] * 3)
    start = np.array([[[1.0], [9.0]]] * 2)
    shards = p2pkm.Shards.from_list([few, many])

    def play(least):
        method = p2pkm.GTVMin(2, alpha=1.0, theta=1.0)
        return p2pkm.simulate(method, topologies.path(2), shards, rounds=1, min_count=least, start=start).centroids

    # device 0 speaks first: E2 and E3 add the row of device 1 twice to its own point, or to nothing
    assert_array_equal(play(0)[0, :, 0], [2 / 5, (8.0 + 2 * 9.0) / 3])
    assert_array_equal(play(2)[0, :, 0], [2 / 5, 9.0])


@pytest.mark.parametrize("name", [name for name in SHY if not getattr(find(name)(4), "spares", name == "gossip")])
def test_no_row_of_fewer_points_ever_leaves(name, monkeypatch):
    tap, shards = Tap(monkeypatch), deal()
    graph = None if needs_hub(find(name)(4)) else topologies.ring(8)
    result = p2pkm.simulate(find(name)(4), graph, shards, rounds=4, seed=1, min_count=LEAST)
    counted = name in ("consensus", "pushsum", "tracking", "fkm")
    if name == "pushsum":  # its first message is a known share of the mass
        tap.mails = [(s, t, m._replace(values=m.values * 3.0) if s == tap.mails[-1][0] and t == 0 else m)
                     for s, t, m in tap.mails]  # fmt: skip
    assert check(tap, shards, counted=counted) > 5
    assert result.summary["min_count"] == LEAST
    assert result.summary["descent"] in ("not claimed", None)


@pytest.mark.parametrize("method", [
    p2pkm.GTVMin(4, seeding="summaries"), p2pkm.GTVMin(4, seeding="rooted"), p2pkm.GTVMin(4, recipe="groups"),
], ids=["summaries", "rooted", "groups"])  # fmt: skip
def test_no_pair_of_fewer_points_leaves_before_the_method(method, monkeypatch):
    tap, shards = Tap(monkeypatch), deal()
    p2pkm.simulate(method, topologies.ring(8), shards, rounds=4, seed=1, min_count=LEAST)
    assert check(tap, shards, counted=True) > 1


def test_it_costs_little():
    words = "--data", "grid16:points=50", "--devices", 8
    ratios = [solve(*words, "--min-count", least)["ratio_mean"] for least in (0, 5)]
    assert max(ratios) < 1.02


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
    (("--algorithm", "gtvmin:swaps=true"), "tries own points as rows"),
    (("--algorithm", "gtvmin:passes=2"), "did not look at in between"),
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


@pytest.mark.parametrize("name", SHY)
def test_no_point_leaves_as_it_is(name):
    graph = None if needs_hub(find(name)(4)) else topologies.ring(8)
    for seeding in (None, "own") if name == "gtvmin" else (None,):
        method = find(name)(4, **({"seeding": seeding} if seeding else {}))
        assert p2pkm.simulate(method, graph, deal(), rounds=3, min_count=2).summary["raw_points"] == 0


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
