"""Dates and times in columns of text: recognition, and conversion to days since 1970-01-01.

A text is a time if it has the form of a date, even of one that does not exist, such as 0000-00-00, or of a time of day,
a duration, or a period. A column with times never becomes categories, except with the order "none": each of its texts
is a date that can be read, or an error names it.

Codes can have the form of a date: telephone numbers, sort codes, registry numbers of chemicals such as 7732-18-5. So
these texts of a column are dates only if half of them have months and days up to 12 and 31, in one order.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta

# Orders of year, month and day. "iso": only dates that begin with a year of four digits; "none": no text is a date.
ORDERS = ("iso", "ymd", "dmy", "mdy", "none")
# Expected content in messages.
EXAMPLES = {
    order: f"dates such as {day}, or times such as {day} 18:00:00"
    for order, day in (("iso", "2026-01-31"), ("ymd", "2026-01-31"), ("dmy", "31.01.2026"), ("mdy", "01/31/2026"))
}
_TIME = r"(?:(?:T|,?\s+)(\d.*))?"
_YEAR_FIRST = re.compile(rf"(\d{{4}})([-./])(\d{{1,2}})\2(\d{{1,2}}){_TIME}")
_YEAR_LAST = re.compile(rf"(\d{{1,2}})([-./]) ?(\d{{1,2}})\2 ?(\d{{4}}|\d{{2}}){_TIME}")
# Eight digits, such as 20260131. Codes of eight digits look the same, so a column has dates only if all its texts do.
_COMPACT = re.compile(r"((?:19|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_CLOCK = re.compile(
    r"(\d{1,2})(:\d\d(?::\d\d(?:[.,]\d+)?)?)(?:\s*([ap])\.?m\.?)?(\s*(?:[+-].*|Z|UTC|GMT))?", re.IGNORECASE
)
# Also matches -31 at the end of the date 2026-01-31, which the substitution leaves unchanged.
_ZONE = re.compile(r"\s*(?:(?:UTC|GMT|Z)|([+-]\d\d(?::?\d\d)?))$")
_MONTH = (
    "(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz?|mrz|apr(?:il)?|may|mai|june?|juni|july?|juli|aug(?:ust)?|"
    r"sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\.?"
)
# Four digits in other texts than full dates are a year only in this range: 1234-05 is a code.
_YEAR = r"(?:1[6-9]|2[01])\d\d"
_MINUTES = "[0-5]\\d"
_WEEKDAY = "(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,? )?"
_SPELLED = re.compile(
    rf"{_WEEKDAY}\d{{1,2}}[-. ]*{_MONTH}[-, ]*(?:\d\d|{_YEAR}){_TIME}|"
    rf"{_WEEKDAY}{_MONTH}[- ]*\d{{1,2}},? {_YEAR}{_TIME}",
    re.IGNORECASE,
)
# Other texts that are times, and how to write them.
_OTHER = (
    (_SPELLED, "a date with the name of a month", "Write dates as 2026-01-31"),
    (
        re.compile(rf"\d{{1,3}}:{_MINUTES}(?::{_MINUTES}(?:[.,]\d+)?)?(?:\s*[ap]\.?m\.?)?", re.IGNORECASE),
        "a time of day or a duration without a date",
        "Write it as a number, such as hours",
    ),
    (
        re.compile(
            r"-?\d+ days?(?:,? [+-]?\d+:.*)?|"
            # ISO 8601: each number has its unit, in this order, so that identifiers such as P000656 are none.
            r"-?P(?=\d|T\d)(?:[\d.,]+Y)?(?:[\d.,]+M)?(?:[\d.,]+W)?(?:[\d.,]+D)?"
            r"(?:T(?=\d)(?:[\d.,]+H)?(?:[\d.,]+M)?(?:[\d.,]+S)?)?"
        ),
        "a duration",
        "Write it as a number, such as days",
    ),
    (
        re.compile(
            rf"{_YEAR}[- ]?Q[1-4]|Q[1-4][-/ ]?{_YEAR}|{_YEAR}-?W(?:0[1-9]|[1-4]\d|5[0-3])(?:-?[1-7])?|"
            rf"{_YEAR}[-/](?:0[1-9]|1[0-2])|(?:0[1-9]|1[0-2])[-/]{_YEAR}|{_MONTH}[- ](?:\d\d|{_YEAR})|"
            r"\d{4}-\d\d-\d\d/\d{4}-\d\d-\d\d",
            re.IGNORECASE,
        ),
        "a period, such as a week, month or quarter",
        "Write its first day as 2026-01-31",
    ),
)
_EPOCH = datetime(1970, 1, 1)
_DAY = timedelta(days=1)
_HALF_DAY = 12
# Years of two digits are 1969 to 2068, as in POSIX.
_PIVOT = 69


def are_times(fields: Iterable[str]) -> bool:
    """Return whether a column has a full date, times in half of its distinct texts, or only dates of eight digits."""
    texts = set(fields)
    if not texts:
        return False
    if all(map(_COMPACT.fullmatch, texts)):
        return True
    dates = [text for text in texts if _YEAR_FIRST.fullmatch(text) or _YEAR_LAST.fullmatch(text)]
    if not _are_dates(dates):
        dates = []
    others = sum(any(form.fullmatch(text) for form, *_ in _OTHER) for text in texts)
    return any(map(_has_long_year, dates)) or 2 * (len(dates) + others) >= len(texts)


def _are_dates(texts: Sequence[str]) -> bool:
    """Return whether half of the texts in the form of a date have a month and a day, all in one order."""
    return any(2 * sum(_has_month_and_day(text, order) for text in texts) >= len(texts) for order in ORDERS[1:-1])


def _has_month_and_day(field: str, order: str) -> bool:
    """Return whether month and day are in their range; February 30 is, although it does not exist."""
    parts = _split(field, order)
    return parts is not None and 1 <= parts[1] <= 12 and 1 <= parts[2] <= 31


def _has_long_year(field: str) -> bool:
    """Return whether the year of a date has four digits."""
    match = _YEAR_LAST.fullmatch(field)
    return match is None or len(match[4]) > 2


def explain_time(field: str, order: str) -> tuple[str, str]:
    """Describe a text that is not a date that can be read: what it is, and how to write it (may be empty)."""
    for form, what, remedy in _OTHER:
        if form.fullmatch(field):
            return what, remedy
    parts = _split(field, order)
    if parts is None:
        return "not a date", ""
    try:
        date(*parts[:3])
    except ValueError:
        return "a date that does not exist", ""
    return "a time that cannot be read", ""


def read_moment(field: str, order: str) -> tuple[float, bool] | None:
    """Convert a date or time to days since 1970-01-01, in UTC if it has a zone.

    Returns
    -------
    days : float
    zoned : bool
        Whether the text has a time zone.
    None
        The text is not a date in this order, or does not exist.
    """
    parts = _split(field, order)
    if parts is None:
        return None
    year, month, day, clock = parts
    try:
        moment = datetime.fromisoformat(
            _ZONE.sub(lambda zone: zone[1] or "+00:00", f"{date(year, month, day).isoformat()}{_write_clock(clock)}")
        )
    except ValueError:
        return None
    zoned = moment.tzinfo is not None
    return (moment - (_EPOCH.replace(tzinfo=UTC) if zoned else _EPOCH)) / _DAY, zoned


def _split(field: str, order: str) -> tuple[int, int, int, str] | None:
    """Split a date into year, month and day, and the text of its time."""
    if match := _YEAR_FIRST.fullmatch(field):
        return int(match[1]), int(match[3]), int(match[4]), match[5] or ""
    if match := _COMPACT.fullmatch(field):
        return int(match[1]), int(match[2]), int(match[3]), ""
    match = _YEAR_LAST.fullmatch(field)
    if match is None or order == "iso" or (order == "ymd" and len(match[4]) > 2):
        return None
    numbers = dict(zip(order, (match[1], match[3], match[4]), strict=True))
    year = int(numbers["y"])
    if len(numbers["y"]) <= 2:
        year += 1900 if year >= _PIVOT else 2000
    return year, int(numbers["m"]), int(numbers["d"]), match[5] or ""


def _write_clock(clock: str) -> str:
    """Write a time of day as in ISO 8601; other texts are returned unchanged, and not read.

    Raises
    ------
    ValueError
        If the hour does not exist.
    """
    match = _CLOCK.fullmatch(clock)
    if match is None:
        return f" {clock}" if clock else ""
    hour = int(match[1])
    if match[3]:
        if not 1 <= hour <= _HALF_DAY:
            raise ValueError(clock)
        hour = hour % _HALF_DAY + (_HALF_DAY if match[3].lower() == "p" else 0)
    # Some versions of Python read 24:00.
    if hour >= 2 * _HALF_DAY:
        raise ValueError(clock)
    return f" {hour:02}{match[2]}{(match[4] or '').strip()}"


def find_orders(fields: Iterable[str]) -> list[str]:
    """List the orders with which most of the texts are dates; empty if none is.

    Texts such as 01.02.26 begin with the day, as no usual format with points begins with the month or the last two
    digits of a year. With other signs, two digits of a year are first only if no other order agrees.
    """
    texts = list(fields)
    dotted = any(match[2] == "." for match in map(_YEAR_LAST.fullmatch, texts) if match)
    orders = ("iso", "dmy") if dotted else ORDERS[:-1]
    counts = {order: sum(read_moment(text, order) is not None for text in texts) for order in orders}
    most = max(counts.values())
    best = [order for order, count in counts.items() if count == most and most]
    return [order for order in best if order != "ymd" or len(best) == 1]


def write_orders(orders: Sequence[str]) -> str:
    """Write the option for the order of dates, for a message."""
    return " or ".join(f"--dates {order}" for order in orders)
