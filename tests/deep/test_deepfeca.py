"""DeepFeCA: Algorithm 6 on the star, part by part and as a whole."""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.protocols import RunOutline, Work
from p2pkm.deep.pooled import deep_cluster
from p2pkm.deep.training import Trainer
from p2pkm.engine.build_run import build_run
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import parse_method
from p2pkm.experiments.plan.draft import build_plan
from p2pkm.methods.schedules import deep_star, jacobi
from p2pkm.storage.load import load
from tests.contract.test_determinism import start
from tests.experiments.plan.test_message_counts import check, compare
from tests.support.each import each
from tests.support.images import deal, digits
from tests.support.prepare import prepare
from tests.support.programs import deep as deep_program
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import here
from tests.support.server import clients_of

D, SMALL = 32, {"network": "mlp", "epochs": 1}


def run(shards, k=5, *, rounds=2, seed=0, **options):
    method = p2pkm.DeepFeCA(k, **SMALL | options)
    return p2pkm.simulate(method, None, shards, rounds=rounds, seed=seed)


@each(
    ("options", "words"),
    [
        ({"server": "fecca"}, "Did you mean 'feca'"),
        ({"server": p2pkm.GTVMin(3)}, "or a server method such as KFED"),
        ({"server": p2pkm.KFED}, "or a server method such as KFED"),
        ({"server": p2pkm.KFED(7)}, "expected 3 clusters"),
        ({"network": "cnn"}, "network is 'cnn'"),
        ({"shape": "8"}, "shape is '8'"),
        ({"epochs": -1}, "epochs is -1"),
        ({"batch": 0}, "batch is 0"),
        ({"rate": -0.1}, "rate is -0.1"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"classifier": "soft"}, "classifier is 'soft'"),
        ({"features": 0}, "features is 0"),
        ({"horizon": 0}, "horizon is 0"),
    ],
)
def test_parameters_out_of_range(options, words):
    for kind in (p2pkm.DeepFeCA, p2pkm.DeepGossip):
        with pytest.raises(ExperimentError, match=words):
            kind(3, **options)
    with pytest.raises(ExperimentError, match="gossips is 0"):
        p2pkm.DeepGossip(3, gossips=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_cluster_size": 3}, "sends the parameters of a network"),
        ({"quantize": "rice"}, "sends the parameters of a network"),
        ({"faults": "loss=0.1"}, "in which every message must arrive"),
        ({"byzantine": "1:kind=flip"}, "nothing that a Byzantine device could replace"),
        ({"noise": 0.1}, "does not send rows of centroids"),
        ({"scale": "minmax"}, "learns itself"),
        ({"clusters": "auto", "k_max": 5}, "learns itself"),
        ({"start": np.zeros((4, 3, 64))}, "start cannot be combined with deep(feca|gossip)"),
        ({"stream": "arrive"}, "deepfeca|deepgossip|stream"),
    ],
)
def test_what_it_cannot_be_run_with(options, words):
    ring = topologies.ring(4)
    for method, graph in (
        (p2pkm.DeepFeCA(3), None), (p2pkm.DeepGossip(3), ring), (p2pkm.DeepGossip(3, gossips=1), ring),
    ):  # fmt: skip
        with pytest.raises(ExperimentError, match=words):
            p2pkm.simulate(method, graph, deal([10] * 4), **options)


def test_without_jax_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ExperimentError, match=r'pip install "p2pkm\[deep\]"'):
        p2pkm.simulate(p2pkm.DeepFeCA(3), None, deal([10] * 4))
    ending = here("--algorithm", "deepfeca", "--data", "digits", "--out", "none")
    assert ending.code == 2 and "p2pkm[deep]" in ending.err and "Traceback" not in ending.err


@pytest.mark.slow
def test_points_that_are_no_images_are_refused(jax):
    points = np.random.default_rng(0).random((20, 10))
    shards = p2pkm.Shards.deal(points, np.arange(20) % 2, devices=2)
    with pytest.raises(DataError, match="not square images"):
        p2pkm.simulate(p2pkm.DeepFeCA(3), None, shards)
    with pytest.raises(DataError, match="784 numbers"):
        p2pkm.simulate(p2pkm.DeepFeCA(3, shape="28x28"), None, shards)
    with pytest.raises(DataError, match="30 clusters of 20 points"):
        p2pkm.simulate(p2pkm.DeepFeCA(30, shape="2x5"), None, shards)
    weighted = p2pkm.Shards.deal(points, np.arange(20) % 2, devices=2, weights=np.arange(1.0, 21.0))
    with pytest.raises(DataError, match="all count the same"):
        p2pkm.simulate(p2pkm.DeepFeCA(3, shape="2x5"), None, weighted)


def test_the_first_round_begins_with_a_clustering():
    devices, _ = clients_of([np.zeros((2, 3))] * 2)
    hubs = [[bool(awake[2]) for awake in deep_star(devices).turns(t)] for t in (1, 2)]
    assert hubs == [[True, False, False, True, False, True, False], [False, True, False, True, False]]
    assert [len(list(jacobi(devices, 3, 2).turns(t))) for t in (1, 2, 3)] == [5, 3, 3]


def test_the_rate_falls_along_a_cosine():
    run = RunOutline(None, rounds=4)
    method = p2pkm.DeepFeCA(3, rate=0.2).configure(run)
    assert_allclose([method.rate_in(t) for t in (1, 3, 5, 9)], [0.2, 0.1, 0.0, 0.0], atol=1e-15)
    assert method.configure(run._replace(rounds=9)) == method
    assert p2pkm.DeepFeCA(3, rate=0.2, horizon=2).configure(run).rate_in(2) == pytest.approx(0.1)


def test_one_client_with_all_features_at_the_server_is_deepcluster(n_parameters):
    points, classes = digits(200)
    result = run(p2pkm.Shards.deal(points, np.zeros(200, int), devices=1, labels=classes), server="central")
    theta, centroids, labels = deep_cluster(p2pkm.DeepFeCA(5, **SMALL), points, rounds=2, seed=0)
    assert_array_equal(result.learned.theta[0], theta)
    assert_array_equal(result.centroids[0], centroids)
    assert_array_equal(result.learned.labels, labels)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["feca", "mavg"])
def test_without_training_the_identity_gives_what_the_server_method_gives(jax, server):
    shards = deal([40, 30, 20])
    result = run(shards, server=server, network="linear", epochs=0, rounds=1)
    alone = p2pkm.simulate(_METHODS[server](5), None, shards, seed=0)
    assert_array_equal(result.server_centroids, alone.server_centroids)
    assert_array_equal(result.centroids, alone.centroids)
    assert_array_equal(result.learned.labels[-1], alone.census.labels)
    model = 3 * 8 * 64 * (-(-4097 // 64) + 64)  # theta with |D| up, theta down, in tables of 64 columns
    assert result.summary["messages"] == 2 * alone.summary["messages"] + 6
    assert result.summary["bytes"] == 2 * alone.summary["bytes"] + model


@pytest.mark.slow
def test_a_method_that_follows_its_points_goes_on_from_its_last_centroids(jax):
    shards = deal([40, 30, 0, 20])
    for rounds in (1, 3):
        result = run(shards, server="fkm", network="linear", epochs=0, rounds=rounds)
        alone = p2pkm.simulate(p2pkm.FKM(5), None, shards, rounds=rounds + 1, seed=0)
        assert_array_equal(result.server_centroids, alone.server_centroids)


_METHODS = {"feca": p2pkm.FeCA, "mavg": p2pkm.MAvg}


def test_messages_and_bytes_by_hand(n_parameters):
    n, k, rounds = 4, 5, 3
    result = run(deal([30] * n), k, server="mavg", rounds=rounds)  # always k rows of D up, k rows down
    assert result.summary["messages"] == 4 * n * rounds + 2 * n
    up, down = 8 * D * -(-(n_parameters + 1) // D), 8 * D * -(-n_parameters // D)
    assert result.summary["bytes"] == n * (rounds * (up + down) + (rounds + 1) * 2 * 8 * k * D)
    ends = np.bincount(result.ledger.src, result.ledger.bytes)
    assert ends[n] == n * (rounds * down + (rounds + 1) * 8 * k * D)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"epochs": 0}, {"rate": 0.0}])
def test_without_training_the_parameters_stay(jax, options):
    one = run(deal([30] * 3), **options)
    none = run(deal([30] * 3), rounds=0)
    assert_array_equal(one.learned.theta, none.learned.theta)
    assert_array_equal(one.learned.features, none.learned.features)
    assert none.learned.labels.shape == (0, 90) and (one.learned.labels == one.learned.labels[0]).all()


@pytest.mark.slow
def test_no_round_leaves_the_untrained_network(jax):
    shards, method = deal([30] * 3), p2pkm.DeepFeCA(5, **SMALL)
    result, learner = run(shards, rounds=0), method.learner(64)
    theta = result.learned.theta
    assert (theta == theta[0]).all()
    assert_allclose(result.learned.features, learner.embed(theta[0], shards.points)[1], atol=1e-6)


def test_the_average_weighs_clients_by_their_images(n_parameters):
    """In one batch, without views, a step on all images is the weighted mean of steps on parts of them."""
    rng = np.random.default_rng(0)
    images = np.clip(np.repeat(rng.random((2, 64)), 30, axis=0) + rng.normal(size=(60, 64)) * 0.02, 0, 1)
    images = images[rng.permutation(60)]  # two clusters, which every k-means finds

    def trained(device, devices, copies=1):
        shards = p2pkm.Shards.deal(np.tile(images, (copies, 1)), device, devices=devices)
        return run(shards, 2, views=False, batch=120, server="central", rounds=1).learned.theta[-1]

    one = trained(np.zeros(60, int), 1)
    assert_allclose(trained(np.repeat([0, 1], 60), 2, copies=2), one, atol=3e-6)
    assert_allclose(trained(np.repeat([0, 1], [20, 40]), 2), one, atol=3e-6)
    assert_allclose(trained(np.repeat([1, 0], [20, 40]), 2), one, atol=3e-6)
    assert_allclose(trained(np.repeat([0, 2], [20, 40]), 3), one, atol=3e-6)  # a client without images


def test_labels_are_nearest_rows_and_clients_may_have_few_images(n_parameters):
    result = run(deal([40, 3, 1, 0, 16]), 5)
    learned = result.learned
    for i in (0, 1, 2, 4):
        own = result.census.device == i
        rows = result.centroids[i]
        apart = ((learned.features[own][:, None] - rows) ** 2).sum(axis=2)
        assert_array_equal(learned.labels[-1, own], np.argmin(apart, axis=1))
        assert (rows[learned.labels[-1, own], 0] < np.inf).all()
    assert_array_equal(learned.labels[-1], result.census.labels)
    assert (result.learned.theta == result.learned.theta[-1]).all()


@pytest.mark.slow
def test_one_class_and_one_cluster(jax):
    points, classes = digits(200)
    zeros = points[classes == 0]
    result = run(p2pkm.Shards.deal(zeros, np.arange(len(zeros)) % 2, devices=2, labels=np.zeros(len(zeros), int)), 1)
    assert (result.learned.labels == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("server", ["ffcm1", "ffcm2", "kfed", "fkmeanscb", "fkm", "mufc", "central", "none", "own"])
def test_every_server_method_takes_the_part(jax, server):
    result = run(deal([40] * 3), server=p2pkm.KFED(5, local_k=8) if server == "own" else server, rounds=1)
    assert result.summary["messages"] == 6 * 3
    assert (result.learned.labels >= 0).all()
    if server == "none":
        assert result.server_centroids is None and result.summary["centroid_sets"] == 3
    else:
        assert result.summary["ratio_mean"] >= 1.0 - 1e-9


@pytest.mark.slow
def test_the_linear_classifier_trains_too(jax):
    one, other = run(deal([40] * 3)), run(deal([40] * 3), classifier="linear")
    assert (one.learned.theta != other.learned.theta).any() and np.isfinite(other.learned.theta).all()


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_run_and_leaves_a_checkpoint(jax, tmp_path, monkeypatch):
    folder, train = tmp_path / "run", Trainer.train

    def diverge(self, theta, images, labels, prototypes, session):
        theta, loss = train(self, theta, images, labels, prototypes, session)
        return theta, np.nan if session.round == 3 else loss

    words = ("--algorithm", "deepfeca:network=mlp,epochs=1", "--data", "digits", "--devices", 3, "--rounds", 4,
             "--checkpoint-every", 1, "--no-plot", "--quiet", "--out", folder, "--partition", "iid")  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train", diverge)
        ending = here(*words)
    assert ending.code == 4 and "Traceback" not in ending.err
    assert "training diverged in round 3 at device 0: the loss is nan. Use a rate below 0.02" in ending.err
    assert here("resume", folder, "-q").code == 0
    assert load(folder).summary["rounds"] == 4


@pytest.mark.slow
def test_a_saved_result_keeps_what_was_learned(jax, tmp_path):
    points, classes = digits(90)
    shards = p2pkm.Shards.deal(points, np.arange(90) % 3, devices=3, labels=classes)
    result = run(shards)
    again = load(result.save(tmp_path / "kept"))
    for mine, theirs in zip(result.learned, again.learned, strict=True):
        assert_array_equal(mine, theirs)
    learner = p2pkm.DeepFeCA(5, **SMALL).learner(64)  # which image is which: rows of the user's array
    _, features = learner.embed(again.learned.theta[-1], points[again.census.row])
    assert_allclose(features, again.learned.features, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["deepfeca:", "deepgossip:", "deepgossip:gossips=2,"])
def test_a_run_goes_on_from_any_checkpoint(jax, tmp_path, monkeypatch, algorithm):
    folder = tmp_path / "whole"
    keep_all(monkeypatch, folder, tmp_path / "kept")
    ending = here(
        "--algorithm", f"{algorithm}network=mlp,epochs=1", "--data", "digits", "--devices", 4, "--rounds", 3,
        "--checkpoint-every", 1, "--no-plot", "--quiet", "--out", folder, "--partition", "iid",
    )  # fmt: skip
    assert ending.code == 0, ending.err
    copies = sorted((tmp_path / "kept").iterdir())
    assert len(copies) >= 3
    for copy in copies:
        assert difference(folder, resume(copy)) == ""


@pytest.mark.parametrize("algorithm", ["deepfeca:", "deepgossip:", "deepgossip:gossips=2,"])
@pytest.mark.parametrize("server", ["mavg", "central", "none"])
def test_a_plan_knows_the_messages(n_parameters, algorithm, server):
    rows = compare(
        algorithm=f"{algorithm}network=mlp,epochs=1,shape=1x2,server={server}", data="blobs:points=20,clusters=4",
        devices=5, rounds=2, partition="iid", seed=0,
    )  # fmt: skip
    check(rows)
    assert all(volume.exact_messages for _, volume, _ in rows) and len(rows) == 3
    for _, volume, (_, sent) in rows:
        assert sent == volume.bytes or (algorithm != "deepfeca:" and server == "central")


def test_a_turn_is_a_third_of_the_training_and_the_hub_adds_up_what_it_receives(n_parameters):
    method = p2pkm.DeepFeCA(5, network="mlp", epochs=2)
    found = method.flops(Work(np.array([10, 0]), np.array([1, 3]), np.array([0, 30]), 64))
    assert_array_equal(found, [10 * method.learner(64).flops * (6 * 2 + 1) // 3, 2 * 30 * D])


def test_virtual_time_counts_training(n_parameters):
    shards = deal([40] * 3)
    times = [
        p2pkm.simulate(p2pkm.DeepFeCA(5, network="mlp", epochs=e), None, shards, rounds=1, link_model="edge").summary[
            "virtual_seconds"
        ]
        for e in (1, 9)
    ]
    assert times[1] > times[0] > 0.0


@cache
def in_process():
    return list(deep_program.runs())


@pytest.mark.mpi
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [2, 3])
def test_any_number_of_ranks_gives_the_same_bits(jax, ranks):
    assert start(ranks, "", Path(deep_program.__file__)) == in_process()


def test_a_file_says_the_shape_of_its_images(jax, tmp_path):
    pixels = np.random.default_rng(0).random((40, 8, 6))
    np.savez(tmp_path / "images.npz", images=pixels)
    np.savez(tmp_path / "points.npz", X=pixels.reshape(40, 48))
    few = {"clusters": 2, "devices": 2, "rounds": 1, "partition": "iid"}
    for text, shape in {"": "8x6", ",shape=6x8": "6x8"}.items():
        asked = RunOptions(data=str(tmp_path / "images.npz"), algorithm=f"deepfeca:network=mlp{text}", **few)
        assert prepare(asked, None).algorithm.shape == build_plan(asked, None).algorithm.shape == shape
    real = prepare(asked, None)
    there = build_run(parse_method(asked).build(2), asked, real.topology, None, arrays=real.to_arrays())
    assert there.digests() == real.digests()  # on another rank
    flat = replace(asked, data=str(tmp_path / "points.npz"), algorithm="deepfeca:network=mlp")
    for use in (prepare, build_plan):
        with pytest.raises(DataError, match="shape=6x8 or shape=4x4x3"):
            use(flat, None)
