"""Missing values that the devices fill in with means or medians which they find by messages."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.init.imputation import Imputation
from p2pkm.methods.init.median_imputation import HALVINGS, MedianImputation, order_keys, values_of_keys
from tests.experiments.plan.test_message_counts import compare
from tests.support.play_rounds import arrange, play
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import here, on_ranks
from tests.support.sampling import thin

NAN = np.nan
DEVICE = np.repeat(np.arange(6), 20)


def spoil(seed=0):
    """Return points of 6 devices of which a fifth of the values is missing; device 4 knows nothing of a feature."""
    rng = np.random.default_rng(seed)
    points = p2pkm.blobs(clusters=4, points=30, sd=0.5, seed=3)[0] + 50.0
    points[rng.random(points.shape) < 0.2] = NAN
    points[DEVICE == 4, 1] = NAN
    return points


def run(points, *, missing="mean", weights=None, graph=None, **options):
    shards = p2pkm.Shards.deal(points, DEVICE, devices=6, weights=weights, missing=True)
    given = {"seed": 1, "rounds": 20} | options
    return p2pkm.simulate(p2pkm.TreeLloyd(4), graph or topologies.ring(6), shards, missing=missing, **given)


@pytest.mark.parametrize(
    ("options", "weighted"),
    thin(product([{}, {"scale": "standard"}, {"clusters": "auto", "k_max": 5}], [False, True]), 3),
)
def test_it_is_the_run_on_points_with_the_means_filled_in(weighted, options):
    points, weights = spoil(), np.random.default_rng(1).uniform(0.5, 2.0, 120) if weighted else None
    mass = np.where(np.isnan(points), 0.0, (np.ones(120) if weights is None else weights)[:, None])
    means = (mass * np.nan_to_num(points)).sum(axis=0) / mass.sum(axis=0)
    found = run(points, weights=weights, **options)
    whole = run(np.where(np.isnan(points), means, points), missing="refuse", weights=weights, **options)
    assert_allclose(found.centroids, whole.centroids, atol=1e-9)
    rows = [record for record in found.rounds if record["stage"] == "imputation"]
    assert rows[-1]["messages"] == found.summary["messages"] - whole.summary["messages"] > 0
    assert rows[-1]["bytes"] == found.summary["bytes"] - whole.summary["bytes"] > 0
    assert (rows[-1]["messages"], rows[-1]["bytes"]) == (2 * 5, 5 * 8 * (4 + 2))  # weights and means up, means down
    assert found.rounds[0]["stage"] == "imputation"


def weighted_median(values, weights):
    """The naive twin: every known value as often as its weight says."""
    known = ~np.isnan(values)
    return np.median(np.repeat(values[known], weights[known]))


@pytest.mark.parametrize(
    ("weighted", "graph"), thin(product([False, True], [topologies.path(6), topologies.star(6), topologies.ring(6)]), 4)
)
def test_it_is_the_run_on_points_with_the_medians_filled_in(weighted, graph):
    points, weights = spoil(2), np.random.default_rng(1).integers(1, 4, 120) if weighted else np.ones(120, np.int64)
    points[points > 55] = 55.25  # many values are equal
    medians = [weighted_median(column, weights) for column in points.T]
    given = {"weights": weights.astype(np.float64) if weighted else None, "scale": "minmax", "graph": graph}
    found = run(points, missing="median", **given)
    whole = run(np.where(np.isnan(points), medians, points), missing="refuse", **given)
    assert_array_equal(found.centroids, whole.centroids)
    rows = [record for record in found.rounds if record["stage"] == "imputation"]
    assert rows[-1]["messages"] == found.summary["messages"] - whole.summary["messages"] == 2 * (HALVINGS + 1) * 5
    assert rows[-1]["bytes"] == rows[-1]["messages"] * 2 * 2 * 8  # two features, the two middle values of each


@pytest.mark.parametrize(
    "values", [[3.0], [-1.0, 2.5], [-0.0, 0.0, 5e-324], [1e150, -1e150, -1e-300, 7.0], []], ids=str
)
def test_the_median_of_few_values_is_exact(values):
    own = [np.array([[x], [NAN]]) for x in values] + [np.zeros((0, 1)), np.array([[NAN]])]
    system = arrange(own, [(i, i + 1) for i in range(len(own) - 1)])
    devices, method = system.devices, MedianImputation(1, build_spanning_tree(system.topology))
    _, state = play(method, system, np.zeros((len(devices), 1, 1)), 1)
    expected = np.median(values) if values else 0.0
    assert state.converged.all() and state.filling.tobytes() == np.full((len(devices), 1), expected).tobytes()


def test_keys_are_in_the_order_of_the_doubles():
    values = np.array([-np.finfo(np.float64).max, -1.5, -5e-324, 0.0, 5e-324, 1.0, np.nextafter(1.0, 2.0), 1e308])
    keys = order_keys(values)
    assert (np.diff(keys) > 0).all() and keys[6] == keys[5] + 1 and order_keys(np.array([-0.0])) == -1
    assert values_of_keys(keys).tobytes() == values.tobytes()


@pytest.mark.parametrize("least", [0, 2, 4])
def test_nothing_is_counted_of_features_of_which_few_values_are_known(least):
    own = [np.array([[1.0, NAN], [3.0, NAN], [5.0, 2.0]]), np.array([[9.0, 8.0]] * 4), np.array([[NAN, 4.0]])]
    system = arrange(own, [(0, 1), (1, 2)])
    system = system._replace(devices=replace(system.devices, min_count=least))
    told = {0: [[1, 3, 5, 9, 9, 9, 9], [2, 8, 8, 8, 8, 4]], 2: [[1, 3, 5, 9, 9, 9, 9], [8] * 4], 4: [[], []]}[least]
    _, state = play(MedianImputation(1, build_spanning_tree(system.topology)), system, np.zeros((3, 1, 2)), 1)
    assert state.filling.tolist() == [[np.median(column) if column else 0.0 for column in told]] * 3


def test_three_devices_worked_out_by_hand():
    own = [[[1.0, NAN], [3.0, NAN]], [[NAN, 4.0]], [[8.0, 6.0], [NAN, 2.0]]]
    points = np.concatenate([np.array(part) for part in own])
    shards = p2pkm.Shards.deal(points, [0, 0, 1, 2, 2], devices=3, missing=True)
    result = p2pkm.simulate(p2pkm.LocalOnly(1), None, shards, missing="mean")
    assert_allclose(result.centroids[:, 0], [[2.0, 4.0], [4.0, 4.0], [6.0, 4.0]])  # the means are 4 and 4


def test_nothing_is_sent_of_features_of_which_few_values_are_known():
    own = [np.array([[1.0, NAN], [3.0, NAN], [5.0, 2.0]]), np.zeros((0, 2)), np.array([[NAN, NAN]])]
    table = arrange(own, [(0, 1), (1, 2)])
    method = Imputation(1, build_spanning_tree(table.topology))
    for least, told in ((0, [3.0, 1.0, 3.0, 2.0]), (2, [3.0, 0.0, 3.0, 0.0]), (4, [0.0] * 4)):
        rows = method.measure(replace(table.devices, min_count=least))
        assert rows.tolist() == [told, [0.0] * 4, [0.0] * 4]


def test_what_cannot_be_filled_in_is_refused():
    points = spoil()
    with pytest.raises(DataError, match="expected finite numbers"):
        p2pkm.Shards.deal(points, DEVICE)
    with pytest.raises(DataError, match="the points have missing values"):
        run(points, missing="refuse")
    with pytest.raises(ExperimentError, match=r"missing is 'medien'\. Did you mean 'median'"):
        run(points, missing="medien")
    with pytest.raises(ExperimentError, match="missing 'mean' cannot be combined with a stream"):
        run(points, stream="drawn:kind=slow,share=0.1")
    shards = p2pkm.Shards.deal(points, DEVICE, missing=True)
    with pytest.raises(ExperimentError, match="missing 'mean' cannot be combined with private"):
        p2pkm.simulate(p2pkm.Private(4, epsilon=1.0, radius=9.0), topologies.ring(6), shards, missing="mean")


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{device},{','.join('' if np.isnan(x) else f'{x:.3f}' for x in point)},{'fm'[i % 2] if i % 7 else ''}"
            for i, (device, point) in enumerate(zip(DEVICE, spoil(), strict=True))]  # fmt: skip
    Path("t.csv").write_text("\n".join(("device,x,y,sex", *rows)) + "\n")
    return (
        "--data",
        "t.csv",
        "--encode",
        "sex",
        "-k",
        "3",
        "--rounds",
        "6",
        "--no-plot",
        "--quiet",
    )


def test_a_file_is_read_with_its_gaps(table):
    found = p2pkm.read_table("t.csv", encode=["sex"], missing="mean")
    assert_array_equal(np.isnan(found.points[:, :2]), np.isnan(spoil()))
    assert np.isnan(found.points[::7, 2:]).all() and np.isin(found.points[1:7, 2:], (0.0, 1.0)).all()
    assert found.features == ("x", "y", "sex=m")
    Path("n.csv").write_text("x,y\n1,\n2,\n")
    with pytest.raises(DataError, match=r"column 'y' is empty, in 2 of 2 rows; expected a value\. Use drop='y'"):
        p2pkm.read_table("n.csv", missing="mean")
    Path("d.csv").write_text("x,device\n1,a\n2,\n")
    with pytest.raises(DataError, match="column 'device' is empty"):
        p2pkm.read_table("d.csv", missing="mean")


@pytest.mark.slow
@pytest.mark.parametrize("more", [("mean",), ("mean", "--scale", "standard"), ("median",)], ids=str)
def test_a_killed_run_goes_on_with_the_same_means(table, tmp_path, monkeypatch, more):
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        done = here(
            *table, "--missing", *more, "--checkpoint-every", "1", "--record-every", "1", "--out", tmp_path / "run"
        )
    assert done.code == 0, done.err
    copies = sorted((tmp_path / "copies").iterdir())
    stages = [json.loads(line)["stage"] for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert stages[0] == "imputation" and len(copies) > 4
    for number in (0, 2, len(copies) // 2, len(copies) - 1):
        assert difference(tmp_path / "run", resume(copies[number])) == ""


@pytest.mark.parametrize("missing", ["mean", "median"])
def test_the_plan_knows_what_it_sends(table, missing):
    rows = compare(data="t.csv", encode="sex", missing=missing, scale="standard", clusters=3, rounds=2, devices=6)
    sent = [(volume, real) for course, volume, real in rows if course.name == "imputation"]
    assert sent
    for volume, real in sent:
        assert volume.messages >= real[0] and volume.bytes >= real[1]
        assert not volume.exact_messages or volume[:2] == real


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, 8])  # two of 8 ranks have no devices
def test_the_same_bits_on_every_number_of_ranks(table, count):
    words = [(*table, "--missing", missing, "--scale", "standard", "--out", "none", "--format", "json")
             for missing in ("mean", "median")]  # fmt: skip
    for command, ending in zip(words, on_ranks(count, words), strict=True):
        one, many = json.loads(here(*command).out), json.loads(ending.out)
        assert many["ranks"] == count
        for key in ("chain_sha256", "centroids_sha256", "messages", "bytes"):
            assert one[key] == many[key], (key, command)
