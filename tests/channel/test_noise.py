"""Gaussian noise on every row of centroids that is sent: how much, on what, drawn when, and refused where."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import p2pkm
import topologies
from p2pkm.channel.noise import GaussianNoise
from p2pkm.channel.transform import Context
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, SparseMessages, Tables
from p2pkm.core.traits import MessageContent
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.registry import find
from p2pkm.methods.server.star import StarState
from tests.support.methods import METHODS, build
from tests.support.play_rounds import arrange
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import SMALL, here, on_ranks, solve
from tests.support.sampling import thin

POINTS = [np.array([[0.0, 0.0], [2.0, 4.0]]), np.array([[1.0, 1.0]]), np.array([[9.0, 3.0], [0.0, 7.0]])]
DEVICES = arrange(POINTS, [(0, 1), (1, 2)]).devices
TABLES = np.arange(18.0).reshape(3, 2, 3)  # two coordinates and a count
REFUSED = {
    "consensus",
    "pushsum",
    "tracking",
    "gossip-sum",
    "epidemic",
    "coreset",
    "mufc",
    "local",
    "private",
    "feddp",
    "treelloyd",
    "fedlloyd",
    "ditto",
}


class Content:
    """A stage of which nothing but its messages is known."""

    def __init__(self, content):
        self.traits = find("gtvmin")(3).traits.__class__(message_content=content)


def noise(sd=1.0, content=MessageContent.CENTROIDS):
    return GaussianNoise(sd=sd).begin(Stage("stage", Content(content), 1), closing=True)


def send(transform, messages, *, stage=0, step=0, turn=0, devices=DEVICES, state=None):
    return transform.outgoing(messages, Context(stage, devices.at_turn(step, turn, devices.active_devices), state))


def dense(values=TABLES, **more):
    return DenseMessages(values, np.full(len(values), values.shape[1]), **more)


def added(messages, **where):
    """Return the noise on a message of centroids, float64[n, r, 2]."""
    return send(noise(), messages, **where).values[:, :, :2] - messages.values[:, :, :2]


def test_coordinates_have_noise_and_counts_and_what_was_given_have_none():
    before = TABLES.copy()
    sent = send(noise(), dense())
    assert (sent.values[:, :, :2] != TABLES[:, :, :2]).all()
    assert_array_equal(sent.values[:, :, 2], TABLES[:, :, 2])
    assert_array_equal(TABLES, before)


def test_it_is_normal_of_the_standard_deviation_asked_for():
    drawn = send(noise(0.3), dense(np.zeros((3, 2000, 2)))).values.ravel()
    unit = np.sqrt(np.concatenate(POINTS).var(axis=0).mean())
    assert_allclose(unit, DEVICES.data_std / np.sqrt(2))
    assert stats.kstest(drawn / (0.3 * unit), "norm").pvalue > 0.01
    assert abs(np.corrcoef(drawn[::2], drawn[1::2])[0, 1]) < 0.05


def test_it_is_drawn_anew_in_every_stage_round_and_turn_for_every_device_row_and_coordinate():
    wheres = ({}, {"stage": 1}, {"stage": -1}, {"step": 1}, {"turn": 1})
    drawn = np.concatenate([added(dense(np.zeros((3, 2, 3))), **where).ravel() for where in wheres])
    assert len(np.unique(drawn)) == len(drawn)
    assert_array_equal(added(dense(), step=1), added(dense(), step=1))


def test_it_depends_neither_on_the_batch_nor_on_padding():
    whole = added(dense())
    padded = np.concatenate((TABLES, np.full((3, 4, 3), np.inf)), axis=1)
    wide = send(noise(), DenseMessages(padded, np.full(3, 2)))
    assert_array_equal(wide.values[:, :2, :2], TABLES[:, :, :2] + whole)
    assert_array_equal(wide.values[:, 2:], padded[:, 2:])
    lone = arrange([POINTS[2]], []).devices
    lone = lone.__class__(**{**vars(lone), "ids": np.array([2]), "shared_key": DEVICES.shared_key,
                             "data_std": DEVICES.data_std})  # fmt: skip
    assert_array_equal(added(dense(TABLES[2:]), devices=lone), whole[2:])


def test_silent_devices_and_empty_messages_stay_as_they_are():
    quiet = DenseMessages(TABLES, np.array([-1, 0, -1]))
    assert_array_equal(send(noise(), quiet).values, TABLES)


def test_what_is_flooded_or_sent_up_a_tree_is_perturbed_by_its_origin_alone():
    rows = np.array([[1.0, 5.0, 6.0, 2.0], [0.0, 7.0, 8.0, 3.0]])  # origin, coordinates, count
    sent = send(noise(content=MessageContent.SUMMARIES), dense(np.stack([rows] * 3), header=1, ragged=True))
    changed = (sent.values != rows).any(axis=2)
    assert changed.tolist() == [[False, True], [True, False], [False, False]]
    assert_array_equal(sent.values[:, :, [0, 3]], np.stack([rows] * 3)[:, :, [0, 3]])
    tables = Tables(np.concatenate((rows, rows)), np.array([0, 2]), np.array([2, 2]))
    sparse = SparseMessages(np.array([0, 2]), tables, np.array([0]), header=1)
    up = send(noise(content=MessageContent.FORWARDED_CENTROIDS), sparse).tables.flat()
    assert (up != tables.flat()).any(axis=1).tolist() == [False, True, False, False]
    assert up[1, 1] != sent.values[0, 1, 1] + 1.0 and up[1, 3] == 3.0
    down = sparse._replace(header=0)
    assert send(noise(content=MessageContent.FORWARDED_CENTROIDS), down) is down


@pytest.mark.parametrize("content", [MessageContent.OPENING_CENTROIDS, MessageContent.FORWARDED_CENTROIDS])
def test_after_the_opening_such_messages_are_something_else(content):
    assert (send(noise(content=content), dense()).values != TABLES).any()
    later = dense()
    assert send(noise(content=content), later, step=1) is later


@pytest.mark.parametrize("content", [MessageContent.OTHER, MessageContent.KEYED_POINTS, MessageContent.SUMS])
def test_stages_that_send_no_rows_of_centroids_are_left_alone(content):
    assert noise(content=content) is None


def test_in_scaled_units_it_is_scaled_alike():
    span = np.array([[2.0, 4.0], [1.0, 1.0], [0.5, 10.0]])
    state = StarState(*[None] * 6, np.zeros((3, 2)), span, None)
    scaled = send(noise(), dense(np.zeros((3, 2, 2))), state=state).values
    assert_allclose(scaled * span[:, None], added(dense(np.zeros((3, 2, 2)))))


def test_noise_on_the_centroids_of_a_server_is_in_the_units_of_the_data():
    X, _ = p2pkm.grid16(points=8, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 2, seed=0), devices=2)
    found = [
        p2pkm.simulate(p2pkm.FFCM(2), None, replace(shards, points=times * shards.points), rounds=2, noise=0.1)
        for times in (1.0, 4.0)
    ]
    assert_array_equal(4.0 * found[0].centroids, found[1].centroids)


def deal(n):
    rng = np.random.default_rng(0)
    return p2pkm.Shards.from_list([rng.normal(4.0 * rng.integers(0, 3, (9, 1)), 1.0, (9, 2)) for _ in range(n)])


@pytest.mark.parametrize("name", thin(METHODS, 3))
@pytest.mark.sample(3)
def test_every_method_is_run_or_refused(name):
    method = build(name, 3)
    if method.traits.init is not None and method.traits.init.name == "global":  # by default not the same under noise
        options = {"coupling": 10} if name == "gtvmin" else {}
        method = find(name)(3, init="flooded-summaries", **options)
    graph = None if method.traits.needs_hub else topologies.ring(6)
    runs = [dict(rounds=3, baselines=False, noise=size) for size in (0.0, 0.2)]
    if name in REFUSED:
        with pytest.raises(
            ExperimentError, match=rf"noise=0\.2 cannot be combined with {name}: the method does not send rows"
        ):
            p2pkm.simulate(method, graph, deal(6), **runs[1])
        return
    plain, noisy = (p2pkm.simulate(method, graph, deal(6), **options).summary for options in runs)
    assert plain["chain_sha256"] != noisy["chain_sha256"]
    assert noisy["noise"] == 0.2 and plain["noise"] is None
    if plain["rounds"] == noisy["rounds"] and name not in ("fkm", "feca"):  # these leave rows out by what they receive
        assert (plain["messages"], plain["bytes"]) == (noisy["messages"], noisy["bytes"])


def test_nothing_is_claimed_of_descent_where_messages_are_changed():
    method = p2pkm.GTVMin(3, init="local")
    found = [p2pkm.simulate(method, topologies.ring(6), deal(6), rounds=5, noise=size).summary for size in (0.0, 0.5)]
    assert [summary["descent"] for summary in found] == ["certified", "not claimed"]


@pytest.mark.slow
def test_more_noise_is_worse_and_none_is_none():
    ratios = [solve("--noise", size, "--devices", 8, "--rounds", 30)["ratio_mean"] for size in (0, 0.1, 1.0)]
    assert ratios == sorted(ratios) and ratios[0] == solve("--devices", 8, "--rounds", 30)["ratio_mean"] < ratios[2]


def test_a_note_lists_the_stages_that_have_none():
    result = p2pkm.simulate(p2pkm.GTVMin(3, init="d2-sampling"), topologies.ring(6), deal(6), rounds=2, noise=0.1)
    assert any(note.startswith("no noise in d2-sampling") for note in result.notes), result.notes


@pytest.mark.parametrize("size", ["-1", "nan", "inf", "much"])
def test_what_is_no_standard_deviation_is_refused(size):
    ending = here(*SMALL, "--out", "none", "--noise", size)
    assert ending.code == 2 and "noise" in ending.err and "Traceback" not in ending.err


NOISY = ("--noise", "0.1", "--devices", "7", "--rounds", "4")
RUNS = {
    "flooding": (),
    "tree": ("--init", "tree-summaries"),
    "leader": ("--init", "leader", "--algorithm", "admm"),
    "server": ("--algorithm", "ffcm1"),
    "groups": ("--groups", "--graph", "complete"),
    "with the others": (
        "--data",
        "grid16:points=10",
        "--byzantine",
        "1",
        "--min-cluster-size",
        "2",
        "--faults",
        "loss=0.2,stages=all",
        "--scale",
        "standard",
    ),
}


@pytest.mark.mpi
def test_the_same_bits_in_process_and_on_three_ranks():
    words = [(*SMALL, *NOISY, *run, "--out", "none", "--format", "json") for run in RUNS.values()]
    for name, ending in zip(RUNS, on_ranks(3, words), strict=True):
        expected = solve(*NOISY, *RUNS[name])
        for key in ("chain_sha256", "bytes"):
            assert ending.summary[key] == expected[key], name


@pytest.mark.slow
@pytest.mark.parametrize("every", thin([6, 2], 2))
@pytest.mark.parametrize("name", thin(["with the others", "flooding"], 2))
def test_a_run_goes_on_from_its_checkpoints(name, every, tmp_path, monkeypatch):
    words = (*SMALL, *NOISY, *RUNS[name], "-q", "--record-every", 1, "--checkpoint-every", 1, "--out", tmp_path / "run")
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert here(*words).code == 0
    for copy in sorted((tmp_path / "copies").iterdir())[::every]:
        assert difference(tmp_path / "run", resume(copy)) == ""
