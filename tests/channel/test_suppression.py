"""What leaves a device: rows of few points never, points as they are counted, and who has seen whom."""

from itertools import combinations, product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.channel.pipeline import plan_channel
from p2pkm.channel.suppression import index_points, reach, sent_rows
from p2pkm.channel.transform import Context
from p2pkm.core.messages import DenseMessages
from p2pkm.core.traits import MessageContent
from p2pkm.engine.build_run import Rank, Run
from p2pkm.engine.run_job import play, report
from p2pkm.methods.init.pipelines import needs_hub, place_graph
from p2pkm.methods.peer import gtvmin
from p2pkm.network.local import LocalNetwork
from p2pkm.network.mailbox import restrict_edges
from p2pkm.network.world import connect
from tests.support.build import build_method
from tests.support.methods import METHODS, build
from tests.support.play_rounds import arrange
from tests.support.run_cli import here, solve
from tests.support.sampling import thin

LEAST = 4
SHY = [name for name in METHODS if not build(name, 3).traits.incompatible_with.get("suppression") and name != "local"]


def deal(n=8, seed=0):
    """Return points of n devices around four corners, unevenly: many rows would stand for one, two or three points."""
    rng = np.random.default_rng(seed)
    corners = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    y = [rng.choice(4, 14, p=rng.dirichlet([0.6] * 4)) for _ in range(n)]
    return p2pkm.Shards.from_list([corners[one] + rng.normal(size=(14, 2)) for one in y])


class Tap:
    """Keeps what every device says first in each stage, and of tables of centroids all that is said."""

    def __init__(self, monkeypatch):
        self.messages, inner = [], LocalNetwork.exchange
        sparse = LocalNetwork.deliver

        def exchange(network, messages):
            self.messages.append((network.stage, network.turn, messages))
            return inner(network, messages)

        def deliver(network, said):
            self.messages.append((network.stage, network.turn, said))
            return sparse(network, said)

        monkeypatch.setattr(LocalNetwork, "exchange", exchange)
        monkeypatch.setattr(LocalNetwork, "deliver", deliver)


def nearest_counts(points, rows):
    """Return how many points are nearest to each row."""
    return np.bincount(((points[:, None] - rows[None]) ** 2).sum(axis=2).argmin(axis=1), minlength=len(rows))


def told(messages, i):
    """Return the rows that device i says, without the ids of origins."""
    if isinstance(messages, DenseMessages):
        return messages.values[i, : max(messages.rows[i], 0), messages.header :]
    place = np.flatnonzero(messages.senders == i)
    return messages.tables.take(place).flat()[:, messages.header :]


def check(tap, shards, *, counted):
    """Return how many rows were looked at; none of them may stand for fewer than LEAST points."""
    seen, method = 0, tap.messages[-1][0]
    for stage, turn, messages in tap.messages:
        for i in range(shards.n):
            rows, points = told(messages, i), shards.points[shards.offsets[i] : shards.offsets[i + 1]]
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

    Neighbors together know all four corners, so that nobody has reason to take few points and others as one cluster.
    The few points of a device are fewer than LEAST together, for the accept test counts them as one group.
    """
    rng, blocks = np.random.default_rng(seed), []
    for i in range(8):
        few = rng.integers(0, LEAST)
        sizes = np.roll([*rng.integers(LEAST, 9, 2), few, LEAST - 1 - few], i)
        places = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]]) + rng.normal(0, 0.4, (4, 2))
        places += moved * rng.normal(0, 0.05, (4, 2)) * (sizes < LEAST)[:, None]
        blocks.append(np.repeat(places, sizes, axis=0))
    return p2pkm.Shards.from_list(blocks)


def listen(method, moved, seed, monkeypatch, **options):
    """Return all rows that every device sends in a run, in order: of centroids, sums, counts, losses, corners."""
    with monkeypatch.context() as patch:
        tap, shards = Tap(patch), scatter(seed, moved)
        graph = None if needs_hub(method) else topologies.ring(8)
        p2pkm.simulate(method, graph, shards, rounds=5, seed=seed, min_cluster_size=LEAST, baselines=False, **options)
    said = [(stage, i, told(messages, i)) for stage, _, messages in tap.messages for i in range(8)]
    return [(stage, i, sorted(map(tuple, rows))) for stage, i, rows in said]


@pytest.mark.parametrize(("seed", "name"), thin(product(range(3), SHY), 7))
@pytest.mark.sample(3)
def test_nothing_that_is_said_depends_on_where_few_points_are(name, seed, monkeypatch):
    method = p2pkm.KFED(4, local_k=4) if name == "kfed" else build(name, 4)
    said = [listen(method, moved, seed, monkeypatch) for moved in (False, True)]
    assert len(said[0]) > 8 and said[0] == said[1]


FAULTS = "loss=0.2,dropout=0.1,late_join=0.5,stages=all"


@pytest.mark.slow
@pytest.mark.parametrize(("options", "faults"), [
    ({"init": "flooded-summaries:hops=1"}, None), ({"relaxation": 1.9}, None), ({"init": "tree-summaries"}, FAULTS),
    ({"init": "tree-summaries:candidates=5"}, None), ({"init": "flooded-summaries:candidates=5"}, FAULTS),
    ({"robust": "saturate"}, FAULTS), ({"robust": "clip"}, FAULTS), ({"schedule": "async"}, FAULTS),
    ({"schedule": "jacobi"}, FAULTS), ({"coupling": 1.0}, FAULTS),
], ids=str)  # fmt: skip
def test_nothing_that_gtvmin_says_depends_on_where_few_points_are(options, faults, monkeypatch):
    said = [listen(p2pkm.GTVMin(4, **options), moved, 1, monkeypatch, faults=faults) for moved in (False, True)]
    assert len(said[0]) > 8 and said[0] == said[1]


@pytest.mark.parametrize("options", thin([
    {}, {"groups": True}, {"init": "local"}, {"init": "bounding-box"}, {"update": "as-printed"}, {"schedule": "async"},
    {"groups": True, "faults": FAULTS}, {"init": "local", "faults": FAULTS},
], 3), ids=str)  # fmt: skip
def test_every_row_is_made_of_none_or_enough_of_the_own_points(options, monkeypatch):
    looked, inner, few = [], gtvmin.suppress_small_clusters, set()

    def suppress(devices, centroids):
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

    monkeypatch.setattr(gtvmin, "suppress_small_clusters", suppress)
    faults = options.get("faults")
    method = p2pkm.GTVMin(4, **{name: value for name, value in options.items() if name != "faults"})
    p2pkm.simulate(method, topologies.ring(8), deal(), rounds=6, seed=1, min_cluster_size=LEAST, faults=faults)
    assert len(looked) >= 4 and (few & {1, 2, 3} or "local" in options.values())


def test_own_seeds_are_means_of_enough_points():
    points = np.array([[0.0], [1.0], [2.0], [3.0], [50.0], [51.0], [99.0]])
    tables = [p2pkm.simulate(p2pkm.GTVMin(3, init="local"), topologies.path(2), p2pkm.Shards.from_list([points] * 2),
                             rounds=0, min_cluster_size=least).centroids[0, :, 0] for least in (0, 2, 4)]  # fmt: skip
    assert set(tables[0]) <= set(points[:, 0])
    assert sorted(tables[1][np.isfinite(tables[1])]) == [1.5, 50.5]
    assert sorted(tables[2][np.isfinite(tables[2])]) == [1.5]


def test_a_row_of_few_points_is_what_the_neighbors_say():
    few = np.array([[0.0], [0.0], [0.0], [8.0]])
    many = np.array([[0.0]] * 3 + [[10.0]] * 3)
    start = np.array([[[1.0], [9.0]]] * 2)
    shards = p2pkm.Shards.from_list([few, many])

    def play(least):
        method = p2pkm.GTVMin(2, alpha=1.0, relaxation=1.0)
        return p2pkm.simulate(
            method, topologies.path(2), shards, rounds=1, min_cluster_size=least, start=start
        ).centroids

    # device 0 speaks first: E2 and E3 add the row of device 1 twice to its own point, or to nothing
    assert_array_equal(play(0)[0, :, 0], [2 / 5, (8.0 + 2 * 9.0) / 3])
    assert_array_equal(play(2)[0, :, 0], [2 / 5, 9.0])


@pytest.mark.parametrize("name", [name for name in SHY if not build(name, 4).traits.suppresses_small_clusters])
@pytest.mark.sample(5)
def test_no_row_of_fewer_points_ever_leaves(name, monkeypatch):
    tap, shards = Tap(monkeypatch), deal()
    graph = None if needs_hub(build(name, 4)) else topologies.ring(8)
    result = p2pkm.simulate(build(name, 4), graph, shards, rounds=4, seed=1, min_cluster_size=LEAST)
    counted = name in ("consensus", "pushsum", "tracking", "gossip-sum", "epidemic", "fkm")
    share = {"pushsum": 3.0, "gossip-sum": 2.0}.get(name)
    if share is not None:  # its first message is a known share of the mass
        tap.messages = [(s, t, m._replace(values=m.values * share) if s == tap.messages[-1][0] and t == 0 else m)
                     for s, t, m in tap.messages]  # fmt: skip
    assert check(tap, shards, counted=counted) > 5
    assert result.summary["min_cluster_size"] == LEAST
    assert result.summary["descent"] in ("not claimed", None)


@pytest.mark.parametrize("method", [
    p2pkm.GTVMin(4, init="flooded-summaries", coupling=10), p2pkm.GTVMin(4, init="tree-summaries", coupling=10),
], ids=["summaries", "rooted"])  # fmt: skip
def test_no_pair_of_fewer_points_leaves_before_the_method(method, monkeypatch):
    tap, shards = Tap(monkeypatch), deal()
    p2pkm.simulate(method, topologies.ring(8), shards, rounds=4, seed=1, min_cluster_size=LEAST)
    assert check(tap, shards, counted=True) > 1


def test_it_costs_little():
    words = "--data", "grid16:points=50", "--devices", 8
    ratios = [solve(*words, "--min-cluster-size", least)["ratio_mean"] for least in (0, 5)]
    assert max(ratios) < 1.02


def test_without_the_option_such_rows_do_leave(monkeypatch):
    tap, shards = Tap(monkeypatch), deal()
    p2pkm.simulate(p2pkm.GTVMin(4), topologies.ring(8), shards, rounds=4, seed=1)
    with pytest.raises(AssertionError):
        check(tap, shards, counted=False)


@pytest.mark.parametrize(("words", "said"), [
    (("--algorithm", "central"), "sends raw points"),
    (("--algorithm", "coreset"), "sends raw points"),
    (("--algorithm", "mufc"), "masked as a whole"),
    (("--algorithm", "treelloyd"), "which may be a single point"),
    (("--algorithm", "fedlloyd"), "which may be a single point"),
    (("--algorithm", "ffcm2"), "a share in every row"),
    (("--algorithm", "admm"), "by their number"),
    (("--init", "d2-sampling"), "raw points"),
    (("--init", "leader"), "raw points"),
    (("--algorithm", "gtvmin:swaps=true"), "gtvmin with swaps=true: the method tries local points as centroids"),
    (("--algorithm", "gtvmin:local_steps=2"), "sends centroids after passes that are not checked"),
])  # fmt: skip
def test_what_cannot_withhold_is_refused(words, said):
    ended = here("--min-cluster-size", 3, *words, "--out", "none", "-q", "--devices", "4")
    assert ended.code == 2
    assert said in ended.err
    assert here("--min-cluster-size", -1, "--out", "none", "-q").code == 2


def test_raw_points_are_counted_once_each():
    shards, n = deal(), 8
    count = {}
    for name in ("central", "fkm", "kfed", "coreset", "gtvmin"):
        graph = None if needs_hub(build(name, 4)) else topologies.ring(n)
        count[name] = p2pkm.simulate(build(name, 4), graph, shards, rounds=2, seed=1).summary["raw_points_disclosed"]
    assert count["central"] == len(shards.points)
    # A choice of the coupling sends means of local clusters, some of one point.
    methods = (p2pkm.GTVMin(4, coupling="strong", init=init) for init in ("local", "leader"))
    runs = (p2pkm.simulate(method, topologies.ring(n), shards, rounds=2) for method in methods)
    own = [run.summary["raw_points_disclosed"] for run in runs]
    assert own[0] == n * 4  # k-means++ seeds are points of their device
    assert own[1] == 4
    assert 0 < count["fkm"] <= n * 4
    assert count["coreset"] > 20
    assert count["gtvmin"] < 15  # k-means of few points has clusters of one


def test_small_clients_of_kfed_ship_all_their_points():
    blocks = [np.random.default_rng(i).normal(size=(size, 2)) for i, size in enumerate((3, 2, 40, 40))]
    shards = p2pkm.Shards.from_list(blocks)
    summary = p2pkm.simulate(p2pkm.KFED(4, local_k=4), None, shards).summary
    assert summary["raw_points_disclosed"] >= 5
    assert (
        p2pkm.simulate(p2pkm.KFED(4, local_k=4), None, shards, min_cluster_size=2).summary["raw_points_disclosed"] == 0
    )


@pytest.mark.parametrize("name", thin(SHY, 2))
@pytest.mark.sample(3)
def test_no_point_leaves_as_it_is(name):
    graph = None if needs_hub(build(name, 4)) else topologies.ring(8)
    for init in (None, "local") if name == "gtvmin" else (None,):
        method = build(name, 4, **({"init": init} if init else {}))
        result = p2pkm.simulate(method, graph, deal(), rounds=3, min_cluster_size=2, baselines=False)
        assert result.summary["raw_points_disclosed"] == 0


def test_who_has_seen_whom():
    shards = deal()
    path = topologies.path(8)
    everybody = p2pkm.simulate(p2pkm.GTVMin(4), path, shards, rounds=2)
    assert_array_equal(everybody.exposure.devices, np.full(8, 7))
    near = p2pkm.simulate(p2pkm.GTVMin(4, init="local"), path, shards, rounds=2)
    assert_array_equal(near.exposure.devices, [1, 2, 2, 2, 2, 2, 2, 1])
    assert near.summary["max_peers_observed"] == 2
    two = p2pkm.simulate(p2pkm.GTVMin(4, init="flooded-summaries:hops=2"), path, shards, rounds=2)
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
    words = ("--data", "grid16:points=5", "--devices", "4", "--rounds", "3", "--out", "none", "--no-plot", "-q", "-v")
    ended = here(*words)
    assert "disclosed points" in ended.out
    assert "devices observed" in ended.out
    assert solve("--min-cluster-size", 2)["min_cluster_size"] == 2


def graph_for(method, n=8):
    return None if needs_hub(method) else topologies.ring(n)


@pytest.mark.parametrize("name", thin(SHY, 3))
def test_points_are_counted_not_what_they_weigh(name, monkeypatch):
    tap, data = Tap(monkeypatch), deal()
    shards = p2pkm.Shards(data.points, data.offsets, np.full(len(data.points), 8.0), None, data.rows)
    method = build(name, 4)
    result = p2pkm.simulate(method, graph_for(method), shards, rounds=4, seed=1, min_cluster_size=LEAST)
    assert result.summary["raw_points_disclosed"] == 0
    seen = 0
    for stage, turn, messages in tap.messages:
        counted = stage < tap.messages[-1][0] or name in ("consensus", "tracking", "fkm")
        for i in range(shards.n if counted and turn == 0 else 0):
            rows = told(messages, i)
            if rows.shape[1] == 3:
                assert ((rows[:, 2] >= 8.0 * LEAST) | (rows[:, 2] == 0.0)).all()
                seen += len(rows)
    assert seen or name not in ("gtvmin", "consensus", "tracking", "fkm")


def lure(seed):
    """Return two clients; a Lloyd step of the first, from the rows of both, makes a row of its one far point alone."""
    rng = np.random.default_rng(seed)
    places = (((0, 0), 20), ((4.9, 0), 10), ((6.0123, 0.4567), 1)), (((3, 0), 200), ((8, 0.5), 200))
    return p2pkm.Shards.from_list([
        np.concatenate([at + rng.normal(0, 0.1 * (n > 1), (n, 2)) for at, n in one]) for one in places
    ])


@pytest.mark.parametrize(
    "options", thin([{}, {"keep_empty": True}, {"seeding": "random"}, {"local_steps": 3}], 3), ids=str
)
@pytest.mark.parametrize("seed", range(3))
def test_the_row_that_fkm_sends_is_the_one_that_was_counted(options, seed, monkeypatch):
    tap, shards = Tap(monkeypatch), lure(seed)
    result = p2pkm.simulate(p2pkm.FKM(2, **options), None, shards, rounds=5, seed=seed, min_cluster_size=5)
    assert result.summary["raw_points_disclosed"] == 0
    models = [messages.values[2, : messages.rows[2]] for _, _, messages in tap.messages if messages.rows[2] > 0]
    reports = [messages for _, _, messages in tap.messages if messages.rows[0] >= 0][1:]
    for model, messages in zip(models, reports, strict=True):
        for i in range(2 if options.get("local_steps", 1) == 1 else 0):
            points = shards.points[shards.offsets[i] : shards.offsets[i + 1]]
            nearest = ((points[:, None] - model) ** 2).sum(axis=2).argmin(axis=1)
            sets = [points[nearest == c] for c in range(len(model)) if (nearest == c).sum() >= 5]
            assert all(
                any(len(one) == row[2] and np.allclose(one.mean(axis=0), row[:2]) for one in sets)
                for row in told(messages, i)
            )


def test_without_the_option_fkm_is_as_the_paper_says():
    assert p2pkm.simulate(p2pkm.FKM(2), None, lure(0), rounds=5).summary["raw_points_disclosed"] > 0


@given(st.integers(0, 2**32), st.integers(2, 5), st.booleans())
def test_what_is_published_is_a_mean_of_enough_points(seed, least, weighted):
    from dataclasses import replace

    from p2pkm.methods.building_blocks.small_clusters import suppressed_means
    from tests.support.server import clients_of

    rng = np.random.default_rng(seed)
    data = [rng.normal(size=(n, 2)).round(1) for n in rng.integers(1, 12, 3)]
    mass = rng.uniform(0.5, 9.0, sum(map(len, data))) if weighted else None
    devices = replace(clients_of(data, weights=mass)[0], min_count=least)
    rows = rng.normal(size=(4, 3, 2))
    found = suppressed_means(devices, rows)
    for i, points in enumerate(data):
        weights = devices.point_weights[devices.offsets[i] : devices.offsets[i + 1]]
        nearest = ((points[:, None] - rows[i]) ** 2).sum(axis=2).argmin(axis=1)
        for c in range(3):
            own = nearest == c
            if own.sum() >= least:
                assert_allclose(
                    found[i, c], np.average(points[own], axis=0, weights=weights[own]), rtol=1e-12, atol=1e-12
                )
            else:
                assert (found[i, c] == np.inf).all()
    assert (found[3] == np.inf).all()
    assert suppressed_means(replace(devices, min_count=1), rows) is rows


@pytest.mark.parametrize("method", thin([
    p2pkm.FeCA(4), p2pkm.FeCA(3, seeding="random", local_steps=1), p2pkm.FeCA(4, variant="theoretical"),
    p2pkm.FeCA(4, pair="keep"),
    p2pkm.FeCA(4, seeding="random"), p2pkm.KFED(4, local_k=3), p2pkm.MAvg(4),
    p2pkm.FKMeansCB(4, local_k=3, epsilon=None),
], 5), ids=str)  # fmt: skip
def test_every_row_of_a_server_method_is_the_mean_of_enough_points(method, monkeypatch):
    rng, seen = np.random.default_rng(5), 0
    data = [rng.normal(size=(7, 2)) for _ in range(50)]
    tap, counts = Tap(monkeypatch), [some for r in range(3, 8) for some in combinations(range(7), r)]
    p2pkm.simulate(method, None, p2pkm.Shards.from_list(data), min_cluster_size=3, baselines=False)
    for i, points in enumerate(data):
        means = np.array([points[list(some)].mean(axis=0) for some in counts])
        for row in told(tap.messages[0][2], i):
            assert np.abs(means - row[:2]).max(axis=1).min() < 1e-12
            seen += 1
    assert seen > 25


def test_a_radius_does_not_tell_of_a_centroid_that_is_not_sent(monkeypatch):
    def radii(x):
        with monkeypatch.context() as patch:
            tap, many = Tap(patch), np.concatenate((np.zeros((20, 2)), [[-1.0, 0.0]]))  # reaches 0.95
            blocks = [np.concatenate((many, [[x, 0.0]])), 30.0 + many]
            p2pkm.simulate(p2pkm.FeCA(2), None, p2pkm.Shards.from_list(blocks), min_cluster_size=4)
        return told(tap.messages[0][2], 0).tolist()

    assert len(radii(1.7)) == 1  # half-way to the point is 0.87
    assert radii(1.7) == radii(1.75)


@pytest.mark.parametrize("name", thin(list(METHODS), 6))
@pytest.mark.sample(3)
def test_a_least_row_of_one_point_changes_nothing(name):
    rng, method = np.random.default_rng(2), build(name, 4)
    shards = p2pkm.Shards.from_list([rng.normal(3.0 * (i % 3), 1.0, (n, 2)) for i, n in enumerate((1, 2, 9, 5))])
    chains = {p2pkm.simulate(method, graph_for(method, 4), shards, rounds=3, baselines=False,
                             min_cluster_size=least).summary["chain_sha256"]
              for least in (0, 1)}  # fmt: skip
    assert len(chains) == 1


@pytest.mark.parametrize("name", ["ffcm1", "ffcm2"])
def test_fuzzy_clients_of_few_points_with_a_least_row_of_one(name):
    ended = here("--devices", 4, "--algorithm", name, "--data", "grid16:points=20", "--partition", "beta:beta=0.1",
                 "--min-cluster-size", 1, "--out", "none", "-q")  # fmt: skip
    assert ended.code == 0, ended.err


def test_a_device_of_one_point_says_no_losses(monkeypatch):
    tap, data = Tap(monkeypatch), [deal().points[14 * i : 14 * i + 14] for i in range(7)]
    p2pkm.simulate(
        p2pkm.GTVMin(4, init="flooded-summaries:candidates=5", coupling=10),
        topologies.ring(8),
        p2pkm.Shards.from_list([*data, [[5.21, -1.56]]]),
        min_cluster_size=5,
    )
    openings = [messages for stage, turn, messages in tap.messages if turn == 0 and told(messages, 0).shape[1] == 5]
    assert len(openings) == 1
    assert [len(told(openings[0], i)) for i in range(8)] == [1] * 7 + [0]


def test_losses_are_those_of_the_pairs_that_were_sent(monkeypatch):
    tap, shards = Tap(monkeypatch), deal()
    p2pkm.simulate(p2pkm.GTVMin(4), topologies.ring(8), shards, min_cluster_size=LEAST)
    pairs, losses = (next(messages for *_, messages in tap.messages if told(messages, 0).shape[1] == w) for w in (3, 5))
    collected = np.concatenate([told(pairs, i) for i in range(8)])
    assert (collected[:, 2] >= LEAST).all()
    devices = [told(pairs, i) for i in range(8)]
    found = [told(losses, i) for i in range(8)]
    assert not [(one, own) for one, own in zip(found, devices, strict=True) if len(one) != (len(own) > 0)]
    chosen = p2pkm.simulate(p2pkm.GTVMin(4), topologies.ring(8), shards, rounds=0, min_cluster_size=LEAST).centroids[0]
    costs = [(own[:, 2] * ((own[:, None, :2] - chosen) ** 2).sum(axis=2).min(axis=1)).sum() for own in devices]
    totals = np.concatenate([one for one in found if len(one)]).sum(axis=0)
    best = totals.argmin()
    assert_allclose([one[0, best] if len(one) else 0.0 for one in found], costs, rtol=1e-9, atol=1e-9)


def listen_scaling(scale, x, least, monkeypatch, tap=Tap):
    """Play 4 devices that agree on a scale first; return what they sent, result, data.

    Device 1 is the root of the tree; device 3, below device 0, has one point.
    """
    rng = np.random.default_rng(0)
    shards = p2pkm.Shards.from_list([*(rng.normal(size=(n, 2)) for n in (30, 9, 5)), [[x, 7.0]]])
    with monkeypatch.context() as patch:
        sent, method = tap(patch), p2pkm.GTVMin(5)
        graph = place_graph(method, topologies.ring(4), 4)
        channel = plan_channel({"min_cluster_size": least})
        config = Run(method, graph, scale=scale, rounds=2, channel=channel)
        result = report(play(Rank(config, connect(), shards)))
    return sent, result, shards


def first_stage(scale, x, least, monkeypatch):
    tap, _, _ = listen_scaling(scale, x, least, monkeypatch)
    return [
        sorted(map(tuple, told(messages, i))) for stage, _, messages in tap.messages if stage == 0 for i in range(4)
    ]


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_scaling_tells_nothing_of_a_device_of_few_points(scale, monkeypatch):
    said = [[first_stage(scale, x, least, monkeypatch) for x in (9.0, 9.5)] for least in (0, 5)]
    assert said[0][0] != said[0][1]
    assert said[1][0] == said[1][1] and any(said[1][0])
    assert listen_scaling(scale, 9.0, 5, monkeypatch)[1].summary["raw_points_disclosed"] == 0


def test_moments_take_more_points_than_they_have_numbers_of_each_coordinate(monkeypatch):
    said = first_stage("standard", 9.0, 5, monkeypatch)
    # Rows of 5 numbers go up the tree. 5 points are no more than 5: their weight is 0, as that of 1 point.
    assert [[row[0] for row in rows if len(row) == 5] for rows in said if rows] == [[0.0], [30.0], [0.0], [], []]


def test_corners_are_means_of_so_many_points(monkeypatch):
    tap, _, shards = listen_scaling("minmax", 9.0, 5, monkeypatch)
    own = np.sort(shards.points[: shards.offsets[1]], axis=0)
    corners = told(tap.messages[1][2], 0).reshape(2, 2)  # device 3 has none
    assert_allclose(corners, [own[:5].mean(axis=0), own[-5:].mean(axis=0)], rtol=1e-12)


class Recorder:
    """Keeps all runs of d numbers, side by side, in the rows that every device sends over a link, by stage."""

    def __init__(self, monkeypatch, d):
        self.sent, self.first, self.d = {}, {}, d
        exchange, deliver = LocalNetwork.exchange, LocalNetwork.deliver

        def record(network, i, rows, receivers):
            kept = self.sent.setdefault((network.stage == 0, i), set())
            for row in np.asarray(rows).tolist():
                parts = [tuple(row[first : first + d]) for first in range(len(row) - d + 1)]
                kept.update(parts)
                for key in ((i, j, part) for j in receivers for part in parts):
                    self.first.setdefault(key, (network.stage, network.turn))

        def send(network, messages):
            sources = np.repeat(np.arange(len(messages.rows)), np.diff(network.placement.indptr))
            edges = restrict_edges(messages.edges, network._active)
            edges = slice(None) if edges is None else edges
            for i in np.unique(sources[edges]).tolist():
                receivers = network.placement.indices[edges][sources[edges] == i].tolist()
                record(network, i, told(messages, i), receivers)
            return exchange(network, messages)

        def post(network, sparse):
            sources = np.searchsorted(network.placement.indptr, sparse.edges, side="right") - 1
            for i in np.unique(sources).tolist():
                record(network, i, told(sparse, i), network.placement.indices[sparse.edges][sources == i].tolist())
            return deliver(network, sparse)

        monkeypatch.setattr(LocalNetwork, "exchange", send)
        monkeypatch.setattr(LocalNetwork, "deliver", post)

    def count(self, units):
        """Return how many points left; units: for each device its points as in stage 0, and as in the others."""
        return sum(
            any(tuple(two[later][r].tolist()) in self.sent.get((not later, i), ()) for later in (0, 1))
            for i, two in enumerate(units) for r in range(len(two[0]))
        )  # fmt: skip


RECORDED = [
    *((build(name, 4), {}) for name in METHODS if name not in ("mufc", "local", "ffcm1", "ffcm2", "private", "feddp")),
    *((p2pkm.GTVMin(4, init=seeding), {}) for seeding in
      ("local", "bounding-box", "leader", "d2-sampling", "tree-summaries", "tree-summaries:candidates=5",
      "flooded-summaries:hops=1", "tree-summaries:rows=80", "rows")),
    (p2pkm.GTVMin(4, groups=True), {}), (p2pkm.TreeLloyd(4, groups=2), {}),
    (p2pkm.GTVMin(4, schedule="async"), {}), (p2pkm.GTVMin(4, swaps=True), {}),
    (p2pkm.GTVMin(4), {"faults": FAULTS}), (p2pkm.GTVMin(4), {"byzantine": "2:kind=flip,stages=all"}),
    (p2pkm.GTVMin(4), {"byzantine": "2:kind=nan"}), (p2pkm.Coreset(4, spread="tree"), {}),
    (p2pkm.FKM(4, seeding="random"), {"faults": "loss=0.3"}), (p2pkm.ConsensusLloyd(4), {"min_cluster_size": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "options"), thin(RECORDED, 7), ids=str)
@pytest.mark.sample(3)
def test_raw_points_are_those_that_a_recorder_of_all_messages_finds(method, options, monkeypatch):
    rng = np.random.default_rng(3)
    sizes, edges = (1, 2, 3, 20, 4, 9, 1, 0, 6, 5), [(i, i + 1) for i in range(8)]
    blocks = [rng.normal(4.0 * (i % 3), 1.0, (n, 2)) for i, n in enumerate(sizes)]
    blocks[4][1:3] = blocks[4][0]  # equal points
    recorder, graph = Recorder(monkeypatch, 2), nx.Graph(edges)
    graph.add_edges_from([(8, 9)] * bool(method.traits.groups))
    graph.add_node(9)  # who has no link sends nothing
    result = p2pkm.simulate(method, None if needs_hub(method) else graph, p2pkm.Shards.from_list(blocks), rounds=4,
                            allow_disconnected=True, baselines=False, **options)  # fmt: skip
    assert result.summary["raw_points_disclosed"] == recorder.count([(one, one) for one in blocks])
    assert result.summary["raw_points_disclosed"] > 0 or options.get("min_cluster_size") or method.name == "fkmeanscb"
    check_receivers(result, recorder, blocks)


def check_receivers(result, recorder, blocks):
    """Compare the pairs of a point and a receiver, and the exchange, with those of the recorder."""
    firsts = np.concatenate(([0], np.cumsum([len(one) for one in blocks])))
    expected = {
        (i, firsts[i] + r, j): recorder.first[i, j, tuple(point)]
        for i, points in enumerate(blocks) for r, point in enumerate(points.tolist())
        for j in range(len(blocks) + 1) if (i, j, tuple(point)) in recorder.first
    }  # fmt: skip
    found = result.disclosed
    assert [*zip(found.device, found.row, found.receiver, strict=True)] == sorted(expected)
    assert len({*zip(found.device, found.row, strict=True)}) == result.summary["raw_points_disclosed"]
    names = {}
    for key, stage, round, turn in zip(sorted(expected), *result.disclosed[3:6], strict=True):
        place = expected[key]
        assert names.setdefault(place[0], stage) == stage
        assert (round, turn) == (0, 0) if place[1] == 0 else 1 <= round <= place[1] and 1 <= turn <= place[1]


def test_points_that_are_passed_on_are_counted(monkeypatch):
    blocks = [np.random.default_rng(i).normal(size=(3, 2)) for i in range(9)]
    method = p2pkm.GTVMin(3, init="tree-summaries")
    result = p2pkm.simulate(method, topologies.path(9), p2pkm.Shards.from_list(blocks), rounds=0)
    assert result.summary["raw_points_disclosed"] == 8 * 3  # all but those of the root, which clusters


@pytest.mark.parametrize("name", ["ffcm1", "ffcm2"])
def test_points_in_the_units_of_a_server_method_are_counted(name, monkeypatch):
    rng = np.random.default_rng(4)
    blocks = [rng.integers(0, 64, (n, 2)) / 4.0 for n in (1, 1, 6, 9)]
    blocks[2][:2] = [[0.0, 0.0], [16.0, 16.0]]
    recorder = Recorder(monkeypatch, 2)
    result = p2pkm.simulate(build(name, 2), None, p2pkm.Shards.from_list(blocks), rounds=3)
    assert result.summary["raw_points_disclosed"] == recorder.count([(one, one / 16.0) for one in blocks]) >= 2


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_points_that_scaling_sends_are_counted(scale, monkeypatch):
    recorder, result, shards = listen_scaling(scale, 9.0, 0, monkeypatch, lambda patch: Recorder(patch, 2))
    own = np.split(shards.points, shards.offsets[1:-1])
    units = [(one, (one - shift) / span) for one, shift, span in zip(own, *result.scaling, strict=True)]
    assert result.summary["raw_points_disclosed"] == recorder.count(units)
    assert recorder.count([(one, one * np.nan) for one, _ in units]) >= 1
    assert recorder.count([(one * np.nan, two) for one, two in units]) >= 2


def test_points_in_the_units_of_a_method_are_found():
    from p2pkm.channel.suppression import Disclosure
    from p2pkm.methods.server.star import StarState
    from tests.support.server import clients_of

    rng = np.random.default_rng(4)
    devices, network = clients_of([rng.normal(size=(n, 2)) for n in (1, 3, 5)])
    for shift, span in (([0.3, 0.3], [1.7, 1.7]), ([0.3, 0.0], [1.0, 1.0]), ([0.0, 0.0], [1.0, 1.7])):
        state = StarState(*[None] * 6, np.tile(shift, (4, 1)), np.tile(span, (4, 1)), None)
        rows = ((devices.points[[0, 2, 8]] - shift) / span)[:, None]
        messages = DenseMessages(np.concatenate((rows, rows[:1])), np.array([1, 1, 1, -1]))
        found, plain, passed_on, resumed = (Disclosure(devices, 9) for _ in range(4))
        usual = state._replace(shift=state.shift * 0.0, span=state.span / state.span)
        others = messages._replace(values=messages.values[[2, 0, 1, 3]])  # points of other clients
        for one, units, sent in ((found, state, messages), (plain, usual, messages), (passed_on, state, others)):
            one.start((), devices, None)
            one.outgoing(sent, Context(0, devices, units))
            one.search()
        assert np.flatnonzero(found.left).tolist() == [0, 2, 8]
        assert not plain.left.any() and not passed_on.left.any()
        resumed.restore(found.snapshot())
        assert resumed.figures(network) == {"raw_points_disclosed": 3}
        shards = p2pkm.Shards.from_list(list(np.zeros((9, 1, 1))))
        arrays = [one.results(shards, network)["disclosed"] for one in (found, resumed)]
        assert [arrays[0][name].tolist() for name in ("device", "row", "receiver")] == [[0, 1, 2], [0, 2, 8], [3] * 3]
        assert {name: part.tolist() for name, part in arrays[0].items()} == {
            name: part.tolist() for name, part in arrays[1].items()
        }


def test_a_point_is_found_whatever_the_signs_of_its_zeros():
    points = np.array([[3.0, -0.0], [0.0, 1.0], [3.0, np.nextafter(0.0, 1.0)]])
    known = index_points(arrange([points], []).devices, points)
    found, _ = known.find(np.array([[3.0, 0.0], [-0.0, 1.0]]), lambda: np.zeros(2, np.int64))
    assert sorted(found) == [0, 1]


def test_a_table_that_claims_more_rows_than_it_has_moves_no_owner():
    devices = arrange([np.zeros((1, 2))] * 3, [(0, 1), (1, 2), (2, 0)]).devices
    messages = DenseMessages(np.arange(12.0).reshape(3, 2, 2), np.array([3, 1, 2]))
    ((rows, owners),) = sent_rows(messages, devices)
    assert_array_equal(rows, [[0, 1], [2, 3], [4, 5], [8, 9], [10, 11]])
    assert_array_equal(owners(), [0, 0, 1, 2, 2])


def test_forwarded_tables_reach_as_far_as_their_hops():
    near = build_method(message_content=MessageContent.CENTROIDS)
    far = build_method(message_content=MessageContent.SUMMARIES, hops=4)
    assert reach([near]) == 1 and reach([near, far]) == 4
    assert reach([build_method(message_content=MessageContent.SUMMARIES, hops=None)]) is None
    assert reach([build_method(message_content=MessageContent.CENTROIDS, hops=3, floods=True)]) == 3
