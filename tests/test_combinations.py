"""Parts that were made one by one, together: liars, faults, withheld rows, checkpoints, studies and reports."""

import math

from tests.invoke import solve


def test_a_device_that_hears_only_nonsense_has_no_limits_and_the_objective_stays_a_number():
    summary = solve("--devices", 6, "-k", 4, "--rounds", 3, "--partition", "iid", "--robust", "saturate",
                    "--byzantine", "2:kind=nan")  # fmt: skip
    assert summary["quarantined"] > 0 and math.isfinite(summary["objective"])
