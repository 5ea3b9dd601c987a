"""Columns of dates, times, durations and periods: days or an error, and never a feature per text."""

import json
from datetime import date, time, timedelta

import numpy as np
import pytest

import p2pkm
from p2pkm.core.errors import DataError
from p2pkm.data.readers.dates import are_times
from tests.support.each import each
from tests.support.run_cli import here

pandas = pytest.importorskip("pandas")
DAYS = [date(2020, 1, 1) + timedelta(i) for i in range(40)]
NUMBERS = [(day - date(1970, 1, 1)).days for day in DAYS]
ISO = [str(day) for day in DAYS]


def write(form):
    return [day.strftime(form) for day in DAYS]


def read(fields, **options):
    frame = pandas.DataFrame({"when": fields, "y": np.arange(len(fields)) % 7})
    return p2pkm.read_table(frame, encode=["when"], **options)


@each(
    ("form", "order"),
    [
        ("%Y-%m-%d", "iso"), ("%Y/%m/%d", "iso"), ("%Y.%m.%d", "dmy"), ("%d.%m.%Y", "dmy"), ("%d/%m/%Y", "dmy"),
        ("%d-%m-%y", "dmy"), ("%m/%d/%Y", "mdy"), ("%m/%d/%y", "mdy"), ("%y-%m-%d", "ymd"), ("%Y-%m-%d", "mdy"),
        ("%d. %m. %Y", "dmy"), ("%Y%m%d", "dmy"),
    ],
)  # fmt: skip
def test_dates_of_every_order_are_days(form, order):
    table = read(write(form), dates=order)
    assert table.features == ("when", "y") and table.points[:, 0].tolist() == NUMBERS
    said = [note for note in table.notes or () if "dates of column 'when' are from 2020-01-01 to 2020-02-09" in note]
    assert len(said) == (order != "iso")


def test_times_with_am_and_pm_are_read():
    days = read(["01/31/2026 2:30 PM", "01/31/2026 12:00 AM", "01/31/2026 12:15 p.m."], dates="mdy").points[:, 0]
    np.testing.assert_allclose(days, [20484 + 14.5 / 24, 20484, 20484 + 12.25 / 24], rtol=1e-15)


BAD = {  # texts, options, and what the error says
    "zero date": ([*ISO, "0000-00-00"], {}, "row 40.*'0000-00-00', a date that does not exist.*na='0000-00-00'"),
    "February 30 of eight digits": ([*write("%Y%m%d"), "20210230"], {}, "row 40.*a date that does not exist"),
    "February 30": ([*ISO, "2021-02-30"], {}, "row 40.*'2021-02-30', a date that does not exist"),
    "24:00": ([*ISO, "2021-02-03 24:00"], {}, "row 40.*a time that cannot be read"),
    "a word": ([*ISO, "still here"], {}, "row 40.*'still here', not a date.*na='still here'"),
    "mostly words": (["no", "yes"] * 9 + ["2021-02-03"], {}, "row 0.*'no', not a date.*na='no,yes'"),
    "D.M.Y": (write("%d.%m.%Y"), {}, "row 0.*'01.01.2020'.*Use dates='dmy', or"),
    "M/D/Y": (write("%m/%d/%Y"), {}, "row 0.*Use dates='mdy', or"),
    "M/D/Y read as D/M/Y": (write("%m/%d/%Y"), {"dates": "dmy"}, "row 12.*Use dates='mdy', or"),
    "of two orders": (write("%m/%d/%Y")[:9], {}, "row 0.*Use dates='dmy' or dates='mdy'"),
    "two digits": (write("%d/%m/%y"), {}, "row 0.*Use dates='dmy', or"),
    "bad day": ([*write("%d.%m.%Y"), "00.00.0000"], {"dates": "dmy"}, "row 40.*does not exist; expected .*31.01.2026"),
    "month names": (write("%d-%b-%Y"), {}, "row 0.*'01-Jan-2020', a date with the name of a month"),
    "US month names": (write("%B %d, %Y"), {}, "a date with the name of a month"),
    "times of day": ([f"{i % 24:02}:30" for i in range(40)], {}, "row 0.*'00:30', a time of day"),
    "time objects": ([time(i % 24) for i in range(40)], {}, "a time of day"),
    "durations": ([f"{i} days 01:00:00" for i in range(40)], {}, "a duration"),
    "ISO durations": ([f"P{i}DT3H" for i in range(40)], {}, "a duration"),
    "quarters": ([f"20{i}Q{1 + i % 4}" for i in range(10, 50)], {}, "a period"),
    "ISO weeks": ([f"2026-W{i}" for i in range(10, 50)], {}, "a period"),
    "periods": (pandas.period_range("2020-01", periods=40, freq="M"), {}, "'2020-01', a period"),
    "weeks of pandas": (pandas.period_range("2020-01", periods=40, freq="W"), {}, "a period"),
}


@each("name", BAD)
def test_times_that_cannot_be_read_are_named(name):
    fields, options, said = BAD[name]
    with pytest.raises(DataError, match=f"(?s)column 'when'.*{said}|{said}"):
        read(fields, **options)


def test_a_date_that_does_not_exist_is_missing_by_option():
    table = read([*ISO, "0000-00-00"], na="0000-00-00", missing="drop")
    assert table.points[:, 0].tolist() == NUMBERS


def test_durations_and_periods_of_days_are_days():
    assert read([timedelta(hours=36)] * 2 + [timedelta(0)]).points[:, 0].tolist() == [1.5, 1.5, 0]
    assert read(pandas.period_range("2020-01-01", periods=40, freq="D")).points[:, 0].tolist() == NUMBERS


def test_none_makes_categories_of_texts_like_dates():
    assert read(["2026Q1", "2026Q2", "2026Q3"] * 9, dates="none").features[1:] == tuple(
        f"when=2026Q{i}" for i in (1, 2, 3)
    )


@each(
    "fields",
    [
        ["1.2.3", "1.2.4"] * 9,
        ["120/80", "130/85"] * 9,
        ["C50.1", "May"] * 9,
        ["12.1234"] * 9,
        ["20260131", "00012345"] * 9,
        ["P000656", "P002683"] * 9,
        ["P12", "P1.5", "PT7", "P1D2"] * 9,
        ["P1D2Y", "P3S", "PT1M2H"] * 9,  # units of durations in another order
        ["7732-18-5", "1310-73-2", "64-17-5", "1305-62-0"] * 9,  # registry numbers of chemicals
        ["12-34-5678", "98-76-5432", "01-23-4567"] * 9,
        ["20-45-77", "30-94-66", "11-05-02"] * 9,  # sort codes of banks
        ["2345-67-89", "2345-67-90"] * 9,  # telephone numbers
        ["2.0.10", "13.14.66", "10.0.12"] * 9,  # versions
        ["99.99.9999", "88.88.8888"] * 9,
        ["1:10", "1:20", "1:40", "1:80", "1:160", "1:320", "1:640"] * 9,  # titers
        ["120:80", "130:85", "110:70"] * 9,
        ["1234-05", "5000-12", "0012-05", "11-1111", "05/1234"] * 9,
        ["Q21043", "Q42", "Q49999"] * 9,
        ["1234W56", "2024W77", "4711W01"] * 9,
        ["MAR-123", "DEC 4711", "SEP-07A", "MARCH1"] * 9,
        ["10MAR123", "3DEC4711"] * 9,
        [f"2024-{i:02}" for i in range(1, 27)],  # running numbers of a year
        ["I10-12", "E11.9", "DEC-1"] * 9,
    ],
)
def test_codes_are_no_dates(fields):
    assert not are_times(fields)
    assert all(feature.startswith("when=") for feature in read(fields).features[1:])


@each(
    "fields",
    [
        ["MAR-12", "DEC 99", "May 2012"], ["2024-01", "2024-12"], ["03/2024"], ["Q1-2024", "Q3 2024"], ["2024-W53-7"],
        ["3:15", "10:30"], ["125:10:59.5"], ["1-2-2003", "31-12-2003"], ["3 March 1899", "Mar 3, 2101"], ["21JUN22"],
        ["P1Y2M", "P2.5W", "PT1H30M", "-P1DT2S"], ["2021-02-03 99:00", "2021-02-04 25:00"], ["12/31/99", "99.99.99"],
        ["2021-02-30", "2021-04-31"], ["00.00.0000", "31.12.2020"],
    ],
)  # fmt: skip
def test_texts_in_the_form_of_times_are_times(fields):
    assert are_times(fields)


@pytest.mark.parametrize(
    "fields", [[f"name {i}" for i in range(60)], [f"text {i // 2 * 2}" if i < 20 else f"text {i}" for i in range(60)]]
)
def test_names_and_free_text_are_not_encoded(fields):
    with pytest.raises(DataError, match=r"column 'when' has .* different texts in 60 rows.*keep='when' .*drop='when'"):
        read(fields)
    assert len(read([f"c{i % 12}" for i in range(60)]).features) == 13


def test_few_rows_per_category_are_noted():
    assert any("'when' becomes 7 features of 8 rows" in note for note in read([*"abcdefg", "g"]).notes)


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%Y", "%d/%m/%y"])
@pytest.mark.sample(3)
def test_the_description_finds_the_order_and_predict_reads_new_rows_with_it(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    sites = ["Bonn", "Essen"] * 20
    frame = pandas.DataFrame({"hospital": sites, "when": write(form), "x": np.arange(40) % 5})
    frame.to_csv("t.csv", index=False)
    described = p2pkm.describe_table("t.csv")
    assert described.options["encode"] == "when" and described.columns[1].range == "2020-01-01 to 2020-02-09"
    words = json.loads(here("data", "t.csv", "--format", "json").out)["command"].split(" ")[1:]
    assert here(*words, "--out", "run", "--no-plot", "-q").code == 0
    assert json.loads((tmp_path / "run" / "schema.json").read_text())["options"]["dates"] == described.options["dates"]
    one = here("predict", "run", "t.csv")
    frame.assign(when=ISO).to_csv("iso.csv", index=False)
    frame.assign(when=write("%d %B")).to_csv("bad.csv", index=False)
    assert one.code == 0 and here("predict", "run", "iso.csv").out == one.out
    assert here("predict", "run", "bad.csv").code == 3


def test_the_description_leaves_out_dates_that_cannot_be_read():
    frame = {"when": [*ISO, "0000-00-00"], "at": [f"{i % 24:02}:30" for i in range(41)], "x": range(41)}
    described = p2pkm.describe_table(frame)
    uses = [column.use for column in described.columns[:2]]
    assert uses == ["left out: dates cannot be read"] * 2 and "encode" not in described.options
    assert "row 40" in described.columns[0].suspicions[0]
