"""Measured values in pages: each equals its row in docs/results."""

import importlib.util

import pytest

from tests.docs.check_blocks import DOCS
from tests.docs.check_commands import find_problem, read_rows, run


@pytest.fixture(scope="module")
def measured():
    spec = importlib.util.spec_from_file_location("measured", DOCS / "measured.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_value_that_is_not_in_its_row_is_replaced(measured):
    row, page = measured.read_results()["methods"][0], DOCS / "howto" / "bench.md"
    good = f'[{row.value}](../results/methods.csv "{row.id}")'
    assert measured.write_values(good, page) == measured.write_values(f'[9.87](# "{row.id}")', page) == good
    assert measured.write_values(good, DOCS / "results" / "index.md") == f'[{row.value}](methods.csv "{row.id}")'
    with pytest.raises(KeyError, match=r"unknown\.1"):
        measured.write_values('[1](# "unknown.1")', page)


def test_a_page_may_show_a_part_of_a_value(measured):
    part = '[12](../results/personal.csv "choice-findings.1")'
    assert measured.write_values(part, DOCS / "howto" / "bench.md") == part


def test_rows_have_a_unique_id_a_value_and_an_origin(measured):
    rows = [row for table in measured.read_results().values() for row in table]
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert row.value and row.statistic and row.command and row.date and row.machine, row.id


@pytest.mark.slow
def test_every_command_can_be_executed_as_written():
    problems = {row.command: find_problem(row.command) for row in read_rows()}
    assert {command: problem for command, problem in problems.items() if problem} == {}


@pytest.mark.parametrize(
    "command",
    [
        "p2pkm --algorithm METHOD",
        "p2pkm --devices N --data blobs:clusters=4,points=P",
        "p2pkm compare --algorithm ...",
        "p2pkm --faults FAULT,stages=all",
        "as memory-peaks",
        "python -m tests.benchmarks.privacy rule (first edition)",
        "python -m tests.benchmarks.nothing",
        "python examples/nothing.py",
        "p2pkm compare --no-such-option",
        "p2pkm sweep study.toml with partition = 'iid'",
        "sed s/a/b/ a.toml > b.toml && p2pkm sweep b.toml --job 2 --no-such-option",
        "p2pkm --data 'open",
        "python -m p2pkm --no-such-option",
        "mpirun -n 2 python -m p2pkm --no-such-option",
        "mpirun -n RANKS p2pkm",
        "mpirun",
        "p2pkm sweep examples/topologies.toml --out topologies",
        "",
    ],
)
def test_a_command_that_cannot_be_executed_is_found(command):
    assert find_problem(command)


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("false", 1), ("exit 3", 3), ("sleep 60", None)])
def test_a_command_ends_or_is_stopped(command, code):
    assert run(command, 1.0)[0] == code


def test_no_two_tables_have_values_of_one_setting_and_statistic():
    """Claims that share command, row and statistic would be two values of one thing."""
    claims = {}
    for row in read_rows():
        claims.setdefault((row.command, row.setting, row.row, row.statistic), set()).add(row.id)
    assert {key: ids for key, ids in claims.items() if len(ids) > 1} == {}


def test_the_table_of_a_claim_shows_its_values(measured):
    made = measured.make_tables()
    for table in measured.read_results().values():
        for row in table:
            cells = {cell.strip() for line in made[f"table-{row.claim}"].splitlines() for cell in line.split(" |")}
            assert row.value in {cell.removeprefix("| ") for cell in cells}, row.id
            assert f"`{row.claim}`" in made["claims"]
