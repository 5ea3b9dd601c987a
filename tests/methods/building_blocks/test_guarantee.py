"""Note on points outside of the ball of a private method."""

import numpy as np
import pytest

import p2pkm
from p2pkm.methods.building_blocks.guarantee import note_clipped
from tests.support.run_cli import here


@pytest.mark.parametrize("kind", [p2pkm.Private, p2pkm.FedDPKMeans])
def test_most_points_outside_of_the_ball_are_noted(kind):
    points = np.array([[3.0, 4.0], [30.0, 40.0], [31.0, 40.0], [np.nan, 1.0]])
    assert note_clipped(kind(2, epsilon=1.0, radius=50.0), points) == ()
    assert note_clipped(kind(2, epsilon=1.0, radius=49.9), points) == ()
    note = note_clipped(kind(2, epsilon=1.0, radius=4.9), points)
    assert note[0].startswith(f"3 of 4 points are outside of the ball of {kind.name} (radius 4.9, center 0 ")
    assert note_clipped(kind(2, epsilon=1.0, radius=40.0, center=30.0), points) == ()
    assert note_clipped(p2pkm.GTVMin(2), points) == ()
    # With this shift, the nearest point is at distance 10 from the center.
    shift, method = np.array([-3.0, -4.0]), kind(2, epsilon=1.0, radius=9.9)
    assert note_clipped(method, points, (shift, np.ones(2)))[0].startswith("3 of 4")
    assert note_clipped(method, points, (shift, np.full(2, 10.0))) == ()


def test_a_run_prints_the_note():
    words = ("--algorithm", "private:epsilon=1,radius=1", "--graph", "complete", "--devices", 4, "-k", 2, "--data",
             "grid16:points=40", "--no-plot", "--out", "none", "-q")  # fmt: skip
    assert "points are outside of the ball of private (radius 1, center 0" in " ".join(here(*words).out.split())
