"""Server methods as a star: turns, messages, units, scores, and what is refused."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score

import p2pkm
import topologies
from p2pkm.cli.algorithms import describe, explain
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.registry import METHODS, find
from p2pkm.methods.schedules import make
from p2pkm.methods.server.star import choose_tables
from p2pkm.metrics import clustering as scores
from p2pkm.metrics.optional import measure_server_costs
from tests.support.each import each
from tests.support.methods import METHODS as RUNNABLE
from tests.support.run_cli import solve
from tests.support.server import clients_of, serve

# These run on a star, too, but with their own turns: as tree Lloyd, and as noisy sums.
SERVED = [name for name in RUNNABLE if needs_hub(find(name)(2)) and name not in ("fedlloyd", "ditto", "feddp")]
ONE_SHOT = [name for name in SERVED if name == "alone" or find(name)(2).traits.one_shot]


def shards(n=4, k=3, m=30, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n * m)
    return p2pkm.Shards.deal(rng.normal(6.0 * y[:, None], 1.0, (n * m, 2)), np.repeat(np.arange(n), m), labels=y)


def test_the_hub_acts_first_and_the_clients_open():
    devices, _ = clients_of([[[0.0]], [[1.0]]])
    schedule = make("star", devices, np.zeros(3, int))
    assert_array_equal(schedule.opening, [True, True, False])
    assert_array_equal(list(schedule.turns(1)), [[False, False, True], [True, True, False]])


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.sample(5)
def test_messages_of_rounds_on_clients(name):
    """R rounds cost n (R + 1) messages up and n R down, a one-shot method n and n, alone none."""
    method, n = find(name)(3), 4
    result = p2pkm.simulate(method, None, shards(n), rounds=1 if name in ONE_SHOT else 3)
    before = [record["messages"] for record in result.rounds if record["stage"] == "bounding-box"]
    sent = result.summary["messages"] - (before[-1] if before else 0)
    rounds = result.summary["rounds"]
    assert sent == (0 if name == "local" else 2 * n if name in ONE_SHOT else n * (rounds + 1) + n * rounds)


@pytest.mark.parametrize("name", [name for name in ONE_SHOT if name != "local"])
@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.sample(5)
def test_one_shot_methods_end_by_silence_after_one_round(name, rounds):
    result = p2pkm.simulate(find(name)(3), None, shards(), rounds=rounds)
    assert (result.summary["termination"], result.summary["rounds"]) == ("silent", 1)
    model = result.server_centroids
    assert model is not None
    for i in range(4):
        assert_array_equal(result.centroids[i, : len(model)], model)
        assert np.isposinf(result.centroids[i, len(model) :]).all()


@pytest.mark.parametrize("name", SERVED)
def test_clients_without_points_with_few_and_with_duplicates(name):
    rng = np.random.default_rng(3)
    data = [rng.normal(size=(12, 2)), np.zeros((0, 2)), np.ones((1, 2)), np.repeat(rng.normal(size=(2, 2)), 5, axis=0)]
    result = p2pkm.simulate(find(name)(4), None, p2pkm.Shards.from_list(data), rounds=2)
    assert np.isfinite(result.centroids[np.isfinite(result.centroids[:, :, 0])]).all()
    if name != "local":
        assert 1 <= len(result.server_centroids) <= 4


@pytest.mark.parametrize("name", SERVED)
def test_one_client_with_one_point(name):
    shards_of_one = p2pkm.Shards.from_list([np.array([[2.0, 3.0]])])
    told = "fkm keeps no cluster of a single point"
    with pytest.warns(ConvergenceWarning, match=told) if name == "fkm" else nullcontext():
        result = p2pkm.simulate(find(name)(1), None, shards_of_one, rounds=1)
    if name not in ("fkm", "fkmeanscb", "mufc"):  # withholds single points; adds noise; draws in a bin
        assert_allclose(result.centroids[0, 0], [2.0, 3.0])


@pytest.mark.parametrize("name", SERVED)
def test_the_summary_of_a_star_says_what_applies(name):
    summary = p2pkm.simulate(find(name)(3), None, shards(), rounds=2).summary
    assert summary["algorithm"] == name
    assert (summary["devices"], summary["schedule"]) == (4, "star")
    assert [summary[key] for key in ("objective", "descent", "alpha", "coupling", "relaxation")] == [None] * 5
    assert summary["init"] == {"fkm": "plusplus", "kfed": "greedy", "feca": "plusplus"}.get(name)
    assert 0 < summary["purity_clients"] <= 1
    assert (summary["rows_at_server"] is None) == (name == "local")


def test_the_server_stands_beside_the_devices_in_the_result():
    result = p2pkm.simulate(p2pkm.FKM(3), None, shards(), rounds=2)
    assert result.centroids.shape == (4, 3, 2)
    assert len(result.losses) == len(result.census.sizes) == 4
    assert sorted(result.graph.edges) == [(i, 4) for i in range(4)]
    assert result.to_networkx().nodes[4]["server"]
    assert result.summary["rows_max_per_device"] == result.ledger.rows_per_device[4]


def test_a_star_comes_back_from_disk(tmp_path):
    result = p2pkm.simulate(p2pkm.FKM(3), None, shards(), rounds=2)
    again = p2pkm.load(result.save(tmp_path / "run"))
    assert_array_equal(again.server_centroids, result.server_centroids)
    assert again.topology.hub == 4
    assert again.summary == result.summary


def test_losses_through_the_clients_by_hand():
    """Client 0 has 0, 2 and 10; its only centroid is 1: the 10 pays the way to the server's centroid next to 1."""
    devices, network = clients_of([[[0.0], [2.0], [10.0]], [[9.0]]])

    class State:
        centroids = np.array([[[1.0], [9.0]]] * 3)
        local = np.array([[[1.0]], [[9.0]], [[np.inf]]])

    for central in (2.0, 0.5):  # what points cost has units
        found = measure_server_costs(devices, network, State, central)
        assert found == {"loss_local": (1 + 1 + 81 + 0) / central, "loss_global": (1 + 1 + 1 + 0) / central}
    assert measure_server_costs(devices, network, State, 0.0) == {}
    State.local = np.full((3, 1, 1), np.inf)
    assert measure_server_costs(devices, network, State, 2.0)["loss_local"] is None


def test_scores_of_shape_and_distance():
    rng = np.random.default_rng(1)
    points, centroids = rng.normal(size=(60, 2)), rng.normal(size=(4, 2))
    labels = ((points[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    assert scores.silhouettes(points, centroids)[0] == pytest.approx(silhouette_score(points, labels))
    for unit in (1.0, 0.01, 100.0):
        simple = scores.silhouettes(unit * np.array([[0.0], [1.0], [4.0]]), unit * np.array([[0.0], [4.0]]))[1]
        assert simple == pytest.approx((1 + (3 - 1) / 3 + 1) / 3)
    assert scores.silhouettes(points, centroids[:1]) == (None, None)
    rows, centers = np.array([[5.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 1.0], [5.0, 2.0]])
    assert scores.distance(rows, centers) == pytest.approx(5**0.5)
    assert scores.distance(np.array([[9.0]]), np.array([[0.0], [8.0]])) == 1.0  # rows left over do not count
    assert scores.mean_square_error(np.array([1.0, 5.0]), 3) == 3.0


@each(("after", "before", "settled"), [
    ([[3.0, 0.0], [np.inf, np.inf]], [[3.3, 0.4], [np.inf, np.inf]], True),  # by 0.5, in units of 2 by 0.25
    ([[3.0, 0.0], [np.inf, np.inf]], [[3.9, 1.2], [np.inf, np.inf]], False),
    ([[3.0, 0.0], [1.0, 1.0]], [[3.0, 0.0], [np.inf, np.inf]], False),  # a row appears
    ([[3.0, 0.0], [np.inf, np.inf]], [[3.0, 0.0], [1.0, 1.0]], False),
    ([[np.inf, np.inf]] * 2, [[np.inf, np.inf]] * 2, True),
])  # fmt: skip
def test_centroids_have_settled_that_moved_by_less_than_the_tolerance(after, before, settled):
    given = np.array([after]), np.array([before]), np.array([[[2.0, 2.0]]])
    assert ServerMethodBase.has_settled(SimpleNamespace(tol=0.5), *given, None).tolist() == [settled]


@pytest.mark.parametrize("frame", ["coordinate", "entries"])
def test_units_are_those_of_the_method_inside_and_of_the_data_outside(frame):
    data = [np.array([[0.0, -3.0], [4.0, 1.0]]), np.array([[2.0, 5.0]])]
    seen = []

    class Probe(ServerMethodBase):
        k, name, tol, default_rounds = 1, "probe", 0.0, 1
        traits = ServerTraits(message_content=MessageContent.CENTROIDS, one_shot=True, normalization=frame)

        def report(self, clients, model):
            seen.append(clients.points)
            values = np.zeros((len(clients), 1, 2))
            return Report(values, np.where(clients.sizes > 0, 1, 0), np.full((len(clients), 1, 2), 0.5))

        def aggregate(self, hub, tables, model):
            return np.array([[0.25, 1.0]])

    played = serve(Probe(), data)
    if frame == "coordinate":
        assert_allclose(seen[0], [[0, 0], [1, 0.5], [0.5, 1]])
        assert_allclose(played.model, [[1.0, 5.0]])
        assert_allclose(played.local[0], [[2.0, 1.0]])
    else:
        assert_allclose(seen[0], (np.concatenate(data) + 3) / 8)
        assert_allclose(played.model, [[-1.0, 5.0]])


@pytest.mark.parametrize(
    ("points", "span"),
    [([[3, 50], [7, 50]], [4, 2.0**-18]), ([[3, 50]], [50 * 2.0**-20] * 2), ([[0, 0]], [2.0**-20] * 2)],
)
def test_a_constant_coordinate_spans_a_millionth_of_the_largest_one(points, span):
    class Probe(ServerMethodBase):
        k, name, tol, default_rounds = 1, "probe", 0.0, 1
        traits = ServerTraits(message_content=MessageContent.CENTROIDS, one_shot=True, normalization="coordinate")

        def report(self, clients, model):
            return Report(np.zeros((len(clients), 1, 2)), np.ones(len(clients), int), np.zeros((len(clients), 1, 2)))

        def aggregate(self, hub, tables, model):
            return np.zeros((1, 2))

    assert_array_equal(serve(Probe(), [points]).state.span[0], span)


@pytest.mark.parametrize("turned", [False, True])
def test_who_repeats_the_first_report_may_have_more_or_fewer_rows_than_the_others(turned):
    few, many = np.full((3, 1, 2), 1.0), np.full((3, 4, 2), 2.0)
    chosen = choose_tables(np.array([True, False, True]) ^ turned, many, few)
    for i, table in enumerate([few, many, few] if turned else [many, few, many]):
        assert_array_equal(chosen[i, : table.shape[1]], table[0])
        assert np.isposinf(chosen[i, table.shape[1] :]).all() and chosen.shape == (3, 4, 2)


def test_a_graph_a_start_and_a_missing_graph_are_refused():
    with pytest.raises(TopologyError, match="fkm cannot be combined with graph of type Graph: it uses a server"):
        p2pkm.simulate(p2pkm.FKM(3), topologies.ring(4), shards())
    with pytest.raises(ExperimentError, match="start cannot be combined with"):
        p2pkm.simulate(p2pkm.FKM(3), None, shards(), start=np.zeros((4, 3, 2)))
    with pytest.raises(TopologyError, match=r"graph is None; expected a networkx\.Graph, because method gtvmin"):
        p2pkm.simulate(p2pkm.GTVMin(3), None, shards())
    with pytest.raises(DataError, match="500 clusters"):
        p2pkm.simulate(p2pkm.FKM(500), None, shards())


@pytest.mark.slow
def test_every_method_is_explained():
    assert set(METHODS) == {one["name"] for one in describe(None)}
    for name in METHODS:
        found = describe(name)
        assert found["message"], name
        assert found["privacy"], name
        assert found["source"], name
        assert name in explain(None)
        assert found["summary"] in explain(name)
    with pytest.raises(ExperimentError, match="Did you mean 'feca'"):
        describe("fecca")


def test_the_command_line_runs_a_star_and_scores_what_was_asked_for(tmp_path):
    rows = "\n".join(f"{x},{y}" for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5))
    centers = tmp_path / "centers.csv"
    centers.write_text("x0,x1\n" + rows + "\n")
    wanted = "--silhouette", "--true-centers", centers
    summary = solve("--algorithm", "fkm:server_n_init=3", "--devices", 5, "--data", "grid16:points=20", *wanted)
    assert 0 < summary["silhouette"] < summary["simplified_silhouette"] < 1
    assert 0 < summary["l2_centers"] < 30
    assert summary["graph"] == "star"
    unasked = solve("--algorithm", "fkm")
    assert [unasked[key] for key in ("silhouette", "simplified_silhouette", "l2_centers")] == [None] * 3
    assert solve(*wanted)["l2_centers"] > 0  # a peer-to-peer method: the mean over its devices
