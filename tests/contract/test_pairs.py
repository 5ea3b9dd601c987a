"""Every pair of method, graph, channel, schedule, initialization and partition: it runs, or is refused with a reason.

A run has the same bits in one process and on three ranks.
"""

import json
from functools import cache
from pathlib import Path

import pytest

from tests.contract.test_determinism import start
from tests.support.pairs import all_pairs, alone, command_line, pairs_of, read, refusal
from tests.support.programs import pairs as program
from tests.support.resume import OWN
from tests.support.run_cli import here


@cache
def in_process(number):
    return json.loads(here(*command_line(read()[number])).out)


@pytest.mark.slow
def test_the_list_has_every_pair_that_is_not_refused():
    covered = set().union(*map(pairs_of, read()))
    missing = [pair for pair in all_pairs() if pair not in covered]
    wanted = [sorted(pair) for pair in missing if not refusal(alone(pair))]
    if wanted:
        text = "are in no run of tests/support/pairs.txt; python -m tests.support.pairs writes it anew"
        pytest.fail(f"{len(wanted)} pairs {text}; the first: {wanted[0]}", pytrace=False)
    for pair in missing:
        assert refusal(alone(pair)).startswith("p2pkm: error: ") and refusal(alone(pair)).count("\n") == 1


@pytest.mark.parametrize("step", [60, pytest.param(1, marks=pytest.mark.slow)])
def test_every_run_ends_with_finite_figures(step):
    for number, run in list(enumerate(read()))[::step]:
        summary = in_process(number)
        assert summary["rounds"] <= 2 and (summary["objective"] is None or summary["objective"] >= 0.0), run
        assert summary["messages"] > 0 or summary["algorithm"].startswith("local"), run


@pytest.mark.mpi
@pytest.mark.timeout(600)
def test_three_ranks_give_the_same_bits_as_one_process():
    """Every fourth run is played, of which each takes the processor as long as four runs in one process."""
    found = start(3, "4", Path(program.__file__))
    for number, other in zip(range(0, len(read()), 4), found, strict=True):
        run, one = read()[number], in_process(number)
        assert [key for key in other if key not in OWN and one[key] != other[key]] == [], run
