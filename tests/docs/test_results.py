"""Measured values in pages: each equals its row in docs/results."""

import importlib.util

import pytest

from tests.docs.check_blocks import DOCS, PAGES


@pytest.fixture(scope="module")
def measured():
    spec = importlib.util.spec_from_file_location("measured", DOCS / "measured.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_values_are_those_of_their_rows(measured, page):
    assert measured.check_values(page.read_text("utf-8")) == []


def test_a_value_that_differs_is_found(measured):
    row = measured.read_results()["methods"][0]
    assert measured.check_values(f"{{result}}`{row.value} <{row.id}>`") == []
    assert measured.check_values(f"{{result}}`9.87 <{row.id}>`") == [f"{row.id} is {row.value}, not 9.87"]
    assert measured.check_values("{result}`1 <unknown.1>`") == ["no row unknown.1 in docs/results"]


def test_rows_have_a_unique_id_a_value_and_an_origin(measured):
    rows = [row for table in measured.read_results().values() for row in table]
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert row.value and row.statistic and row.command and row.date and row.machine, row.id


def test_pages_show_every_value(measured, tmp_path):
    measured.write_pages(tmp_path)
    for name, rows in measured.read_results().items():
        page = (tmp_path / f"results-{name}.md").read_text("utf-8")
        cells = {cell.strip() for line in page.splitlines() if line.startswith("| ") for cell in line.split(" |")}
        assert {row.value for row in rows} <= {cell.removeprefix("| ") for cell in cells}
