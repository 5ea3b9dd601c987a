"""Points far from the origin or in a tiny range: refused wherever digits would be lost, and right everywhere else."""

import json

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import DataError
from p2pkm.core.validation import FARTHEST, SMALLEST, check_limits, find_limits, merge_limits
from p2pkm.data.stream_tape import Limits, parse_data_trace
from tests.support.each import each
from tests.support.run_cli import here, ranks, there

FAR = "loses the digits of their differences; expected at most 1e[+]10 times the range"
TINY = "whose square underflows; expected at least 1e-100"
CHANGES = [
    *((lambda x, by=by: x + by, FAR) for by in (1e14, -1e14, 1e15, 1e16)),
    (lambda x: np.column_stack((x[:, 0], np.full(len(x), 1e15))), FAR),  # a constant that drowns the others
    (lambda x: x * 1e-170, TINY),
    (lambda x: x * 1e-120, TINY),
    (lambda x: x * 5e-324, TINY),
]
X, Y = p2pkm.blobs(clusters=3, points=40, box=20, seed=0)


def deal(points, **options):
    owner = p2pkm.partition.iid(len(points), 4, seed=1)
    return p2pkm.Shards.deal(points, owner, devices=4, labels=Y, **options)


@pytest.fixture(scope="module")
def fitted():
    return p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), deal(X), rounds=5)


@pytest.mark.parametrize("algorithm", [p2pkm.GTVMin(3), p2pkm.TreeLloyd(3), p2pkm.FKM(3)], ids=lambda one: one.name)
@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_no_method_takes_them(algorithm, change, said):
    graph = None if algorithm.name == "fkm" else topologies.ring(4)
    with pytest.raises(DataError, match=said):
        p2pkm.simulate(algorithm, graph, deal(change(X)), rounds=2)


@each(("change", "said"), CHANGES)
def test_no_estimator_takes_them(change, said):
    with pytest.raises(ValueError, match=said):
        p2pkm.P2PKMeans(3, n_devices=4).fit(change(X))


@pytest.mark.parametrize("stored", ["points.csv", "points.npy", "part-*.npy"])
@pytest.mark.parametrize("scale", ["none", "standard", "minmax"])
@pytest.mark.parametrize(("change", "said"), [CHANGES[2], CHANGES[5]])
def test_no_file_has_them(tmp_path, stored, scale, change, said):
    points = change(X)
    if stored == "points.csv":
        np.savetxt(tmp_path / stored, points, delimiter=",", header="x,y", comments="", fmt="%.17g")
    elif stored == "points.npy":
        np.save(tmp_path / stored, points)
    else:
        for number, part in enumerate(np.split(points, 4)):
            np.save(tmp_path / f"part-{number}.npy", part)
    partition = "column" if "*" in stored else "iid"
    ending = here("--data", tmp_path / stored, "-k", 3, "--devices", 4, "--partition", partition, "--scale", scale,
                  "--out", tmp_path / "run")  # fmt: skip
    assert ending.code == 3 and "Traceback" not in ending.err
    assert said.split(";")[0].replace("[+]", "+") in " ".join(ending.err.split())
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").glob("rounds*"))


@pytest.mark.mpi
def test_ranks_that_read_their_own_files_refuse_together(tmp_path):
    for number, part in enumerate(np.split(X + 1e15, 4)):
        np.save(tmp_path / f"part-{number}.npy", part)
    words = ("--data", "part-*.npy", "-k", "3", "--devices", "4", "--partition", "column", "--out", "none")
    ending = there(*ranks(3), "-m", "p2pkm", *words, cwd=tmp_path)
    assert ending.code == 3 and "Traceback" not in ending.err
    assert ending.err.count("loses the digits") == 1


def test_the_range_is_that_of_all_ranks_together(tmp_path):
    """Each device is far from the origin next to its own range, but not next to that of all devices."""
    rng = np.random.default_rng(0)
    for number in range(4):
        np.save(tmp_path / f"part-{number}.npy", rng.normal(size=(30, 2)) + 1e12 * number)
    words = ("--data", tmp_path / "part-*.npy", "-k", 3, "--devices", 4, "--partition", "column", "--rounds", 2)
    assert here(*words, "--out", "none", "-q").code == 0


@pytest.mark.parametrize("feature", [1e14 + X[:, :1], 1e-170 * X[:, :1]])
def test_scaling_counts_every_feature(feature):
    points = np.hstack((1e6 * X, feature))
    p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), deal(points), rounds=2)
    with pytest.raises(DataError, match="in a feature that is scaled"):
        p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), deal(points), rounds=2, scale="standard")
    with pytest.raises(ValueError, match="in a feature that is scaled"):
        p2pkm.P2PStandardScaler(n_devices=4).fit(points)


def test_float32_keeps_fewer_digits():
    p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), deal(X + 1e8), rounds=2)
    with pytest.raises(DataError, match=r"float32 loses the digits.*at most 100000 times"):
        p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), deal(X + 1e8, dtype="float32"), rounds=2)


@pytest.mark.parametrize(
    ("shift", "factor"), [(0.0, 1.0), (1e5, 1.0), (-1e9, 1.0), (1e10, 1.0), (0.0, 2.0**-315), (0.0, 2.0**315)]
)
@pytest.mark.parametrize("algorithm", [p2pkm.GTVMin(3), p2pkm.TreeLloyd(3), p2pkm.FKM(3)], ids=lambda one: one.name)
@pytest.mark.sample(5)
def test_what_is_taken_is_right(algorithm, shift, factor):
    graph = None if algorithm.name == "fkm" else topologies.ring(4)
    given = {"rounds": 20, "seed": 3}
    near = p2pkm.simulate(algorithm, graph, deal(X), **given).summary
    far = p2pkm.simulate(algorithm, graph, deal(X * factor + shift), **given).summary
    for name in ("ratio_mean", "ratio_worst", "ratio_local_only"):
        assert far[name] == pytest.approx(near[name], rel=1e-5)
    assert far["ari"] == pytest.approx(near["ari"], abs=0.02)


@pytest.mark.parametrize("points", [np.full((120, 2), 1e15), np.full((120, 2), 1e-170), np.zeros((120, 2))])
def test_points_that_are_all_alike_have_no_range_to_lose(points):
    result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), deal(points), rounds=2)
    assert (result.centroids[:, 0] == points[0]).all()


@pytest.mark.parametrize(("change", "said"), [CHANGES[2], CHANGES[5]])
def test_predict_refuses_them_where_the_centroids_are_there_too(change, said, fitted):
    alike = p2pkm.simulate(p2pkm.GTVMin(1), topologies.ring(4), deal(change(0 * X)), rounds=2)
    with pytest.raises(DataError, match=f"X and the centroids .*{said}"):
        alike.predict(change(X))
    model = p2pkm.P2PKMeans(1, n_devices=4).fit(change(0 * X))
    for name in ("predict", "transform", "score"):
        with pytest.raises(ValueError, match=f"X and the centroids .*{said}"):
            getattr(model, name)(change(X))
    assert set(fitted.predict(change(X)).tolist()) <= {0, 1, 2}  # one far or tiny cloud next to centroids of usual size


@pytest.mark.parametrize("value", [1e101, 1e155, -1e200, 1e308])
def test_no_coordinate_may_overflow(value, fitted):
    points = np.where(np.arange(240).reshape(120, 2) == 7, value, X)
    start = np.tile(np.array([[value, 0.0], [1.0, 1.0], [2.0, 5.0]]), (4, 1, 1))
    with pytest.raises(DataError, match="squares overflow"):
        p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), deal(points), rounds=2)
    with pytest.raises(DataError, match=r"start reach .*squares overflow"):
        p2pkm.simulate(p2pkm.GTVMin(3, coupling=10.0), topologies.ring(4), deal(X), start=start, rounds=2)
    with pytest.raises(DataError, match="squares overflow"):
        fitted.predict(points)
    with pytest.raises(ValueError, match="squares overflow"):
        p2pkm.P2PKMeans(3, n_devices=4).fit(X).predict(points)


@pytest.mark.parametrize(("at", "apart", "said"), [(1e15, 1.0, FAR), (0.0, 1e-170, TINY)])
def test_a_start_counts_where_points_are_all_alike(at, apart, said):
    start = np.tile(np.array([[at, at], [at + apart, at], [at, at + apart]]), (4, 1, 1))
    with pytest.raises(DataError, match=f"the points and start .*{said}"):
        p2pkm.simulate(p2pkm.GTVMin(3, coupling=10.0), topologies.ring(4), deal(np.full((120, 2), at)), start=start)


def test_a_start_of_words_is_named():
    with pytest.raises(DataError, match=r"start is .*; expected an array of numbers"):
        p2pkm.simulate(p2pkm.GTVMin(3, coupling=10.0), topologies.ring(4), deal(X), start=[["a"], [1, 2]])


@pytest.mark.parametrize("value", [1e15, -1e60])
def test_a_tape_may_not_carry_points_far_away(value):
    line = json.dumps({"kind": "arrive", "round": 1, "device": 0, "point": [value, 0.0]})
    with pytest.raises(DataError, match=r"tape, line 1: a coordinate of point has the magnitude .* times the range"):
        parse_data_trace([line], deal(X), Limits(4, 9, 3), "tape")
    near = json.dumps({"kind": "arrive", "round": 1, "device": 0, "point": [1e9, 0.0]})
    assert parse_data_trace([near], deal(X), Limits(4, 9, 3), "tape").points.tolist() == [[1e9, 0.0]]


@pytest.mark.parametrize(("at", "apart", "said"), [(1e15, 1.0, FAR), (0.0, 1e-170, TINY)])
def test_a_tape_tells_the_range_where_points_are_all_alike(at, apart, said):
    lines = [json.dumps({"kind": "arrive", "round": 1, "device": 0, "point": [at + apart, at]})]
    with pytest.raises(DataError, match=f"the points with those of the data trace .*{said}"):
        parse_data_trace(lines, deal(np.full((120, 2), at)), Limits(4, 9, 3), "tape")


@each("shape", [(0, 2), (1, 1), (127, 2), (128, 2), (300, 3), (5, 300), (7, 0)])
def test_limits_are_those_of_each_column(shape):
    points = np.random.default_rng(0).normal(size=shape)
    points[::3, :1] = np.nan
    expected = [[np.nanmin(c, initial=np.inf), np.nanmax(c, initial=-np.inf)] for c in points.T]
    for array in (points, np.asfortranarray(points), np.repeat(points, 2, axis=0)[::2]):
        assert find_limits(array).T.tolist() == expected
    single = points.astype(np.float32)
    assert np.array_equal(find_limits(single), find_limits(single.astype(np.float64)))


def test_limits_leave_out_what_is_missing_and_join():
    one, none = find_limits(np.array([[1.0, np.nan], [3.0, np.nan]])), find_limits(np.zeros((0, 2)))
    assert one.tolist() == [[1.0, np.inf], [3.0, -np.inf]]
    joined = merge_limits([one, none, find_limits(np.array([[2.0, 5.0]]))])
    assert joined.tolist() == [[1.0, 5.0], [3.0, 5.0]]
    check_limits(none, "the points", "float64")
    check_limits(np.zeros((2, 0)), "the points", "float64", each=True)


@pytest.mark.parametrize("dtype", FARTHEST)
def test_the_limits_themselves_are_taken(dtype):
    most = FARTHEST[dtype]
    check_limits(np.array([[most - 1.0], [most]]), "the points", dtype)
    check_limits(np.array([[0.0], [SMALLEST]]), "the points", dtype)
    with pytest.raises(DataError, match="loses the digits"):
        check_limits(np.array([[1.01 * most - 1.0], [1.01 * most]]), "the points", dtype)
    with pytest.raises(DataError, match="underflows"):
        check_limits(np.array([[0.0], [0.99 * SMALLEST]]), "the points", dtype)
