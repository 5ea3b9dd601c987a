"""Test points: how many, which, and that they stay with their devices, weights and classes."""

import numpy as np
import pytest

import p2pkm
from p2pkm.data.held_out import hold_out
from p2pkm.data.shards import Shards
from tests.support.run_cli import here


def deal(sizes, seed=0):
    """Return points that contain their row, with weights and classes, of devices of these sizes."""
    rows = np.arange(sum(sizes))
    device = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    points = np.column_stack((rows, device)).astype(float)
    return p2pkm.Shards.deal(points, device, devices=len(sizes), labels=rows % 3, weights=rows + 1.0)


@pytest.mark.parametrize(
    ("share", "sizes", "expected"),
    [
        (0.2, (10, 4, 5, 1, 0, 14), (2, 0, 1, 0, 0, 2)),
        (0.29, (100,), (29,)),  # in float64 the product is 28.999999999999996
        (0.999, (1, 2, 1000, 0), (0, 1, 999, 0)),  # at least one point stays
        (1e-9, (1000,), (0,)),
    ],
)
def test_each_device_gives_its_share_rounded_down(share, sizes, expected):
    held = hold_out(deal(sizes), share, 7)[0]
    assert held.tests.sizes.tolist() == list(expected)
    assert (held.sizes + held.tests.sizes).tolist() == list(sizes)


def test_points_keep_their_device_weight_class_and_row():
    shards = deal((30, 7, 0, 1))
    held, notes = hold_out(shards, 0.4, 3)
    assert notes == ()
    for part in (held, held.tests):
        np.testing.assert_array_equal(part.points[:, 0], part.rows)
        np.testing.assert_array_equal(part.points[:, 1], part.devices)
        np.testing.assert_array_equal(part.weights, part.rows + 1.0)
        np.testing.assert_array_equal(part.labels, part.rows % 3)
        assert all((np.diff(part.take([i]).rows) > 0).all() for i in range(part.n))  # in their order
    assert sorted([*held.rows, *held.tests.rows]) == list(range(shards.m))


def test_the_seed_draws_them_and_every_point_may_be_one():
    shards = deal((40, 40))
    drawn = [hold_out(shards, 0.5, seed)[0].tests.rows.tolist() for seed in (0, 0, *range(1, 20))]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {row for rows in drawn for row in rows} == set(range(80))
    # A stream of its own: not the one that assigns points to devices.
    assert drawn[0] != np.flatnonzero(p2pkm.partition.iid(80, 2, seed=0)).tolist()


def test_they_travel_with_the_points():
    held = hold_out(deal((9, 5, 1)), 0.5, 0)[0].with_hub()
    assert (held.n, held.tests.n, held.tests.sizes.tolist()) == (4, 4, [4, 2, 0, 0])
    again = Shards.from_arrays(held.take([1, 3]).to_arrays())
    assert again.tests.sizes.tolist() == [2, 0]
    np.testing.assert_array_equal(again.tests.points, held.tests.points[4:])
    np.testing.assert_array_equal(again.tests.weights, held.tests.weights[4:])
    np.testing.assert_array_equal(again.tests.labels, held.tests.labels[4:])


def test_points_that_have_test_points_keep_these():
    shards = deal((9, 5)).with_tests(deal((2, 0)))
    held, notes = hold_out(shards, 0.5, 0)
    assert held is shards and "holds out nothing" in notes[0]
    result = p2pkm.simulate("gtvmin", "path", shards, clusters=2, rounds=2, test_share=0.5)
    assert result.summary["test_points"] == 2 and "holds out nothing" in result.notes[-1]


def test_test_points_of_other_devices_or_features_are_rejected():
    with pytest.raises(p2pkm.DataError, match=r"have 3 devices; expected 2"):
        deal((9, 5)).with_tests(deal((2, 0, 1)))
    with pytest.raises(p2pkm.DataError, match=r"have 1 features; expected 2"):
        deal((9, 5)).with_tests(p2pkm.Shards.from_list([[[1.0]], [[2.0]]]))


def test_points_on_disk_are_rejected(tmp_path):
    for i in range(2):
        np.save(tmp_path / f"{i}.npy", np.arange(20.0).reshape(10, 2))
    done = here("--data", f"{tmp_path}/", "-k", 2, "--test-share", "0.2", "--out", "none")
    assert done.code == 3 and "test_share 0.2 cannot be combined with points on disk" in done.err
