"""Why devices have no centroid: the note names the limit that was met, not another one."""

from p2pkm.core.termination import WITHOUT_CENTROIDS
from tests.support.run_cli import SMALL, here

PRIVATE = (*SMALL, "--out", "none", "--algorithm", "private:epsilon=1,radius=30")


def read_note(*words):
    found = here(*words)
    assert found.code == WITHOUT_CENTROIDS, found.err
    return " ".join(found.out.split())


def test_a_run_that_ends_before_any_centroid_arrives_blames_its_rounds():
    note = read_note(*PRIVATE, "--rounds", 1)
    assert "the run ended after 1 round, before any reached them. Use more --rounds" in note
    assert "min-cluster-size" not in note


def test_rows_of_too_few_points_are_blamed_where_there_is_a_minimum():
    note = read_note(
        "--data", "grid16:points=2", "--devices", 8, "--out", "none", "--min-cluster-size", 99, "--rounds", 2
    )
    assert "clusters of fewer than 99 points were suppressed" in note and "Use a lower --min-cluster-size" in note
