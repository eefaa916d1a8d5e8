"""Dates and durations: their parts, calendar arithmetic, making them of parts and numbers, Iceberg's partitions.

The parts are int32, and durations int64. The parts of a timestamp with a timezone are local to it.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.arrays import empty_numbers, filled, masked, on_numbers, validity
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call, lit
from penstock.expr.kinds import (
    CLOCK,
    DATE,
    DATE_OR_TIMESTAMP,
    DURATION,
    FLOAT64,
    INT32,
    INT64,
    INTEGER,
    NUMBER,
    TIMESTAMP,
    Kind,
)
from penstock.expr.operators import UNITS_PER_SECOND, checked
from penstock.expr.public import FUNCTIONS, function
from penstock.expr.registry import Value
from penstock.expr.signatures import numeric, strict, takes
from penstock.functions import temporal
from penstock.functions.table import Builder, FunctionTable, Parameters
from penstock.types import DataType
from penstock.types.plain import arrow_scalar

_table = FunctionTable(__name__)
_define = _table.kernel
_build = _table.build
_DAY = dt.date(2024, 1, 31)
_MICROSECONDS = DataType.timestamp("us")
_DATE = {"expr": DATE_OR_TIMESTAMP}
_ENDS = {"end": DATE_OR_TIMESTAMP, "start": DATE_OR_TIMESTAMP}

# --- parts -----------------------------------------------------------------------------------------------------------


def _date_part(name: str, compute: Callable[..., Any], doc: str, result: int) -> Builder:
    return _part(name, DATE_OR_TIMESTAMP, compute, doc, dt.date(2024, 7, 3), result)


def _clock_part(name: str, compute: Callable[..., Any], doc: str, result: int) -> Builder:
    return _part(name, CLOCK, compute, doc, dt.time(10, 20, 30, 123456), result)


def _part(name: str, kind: Kind, compute: Callable[..., Any], doc: str, given: Any, result: int) -> Builder:
    def kernel(value: Value) -> Value:
        return pc.cast(compute(value), pa.int32())

    return _table.strict(name, {"expr": kind}, INT32, kernel, doc, (given,), result)


def _fraction(per_second: int) -> Callable[[Value], Value]:
    """Count the fraction of the second; Arrow counts each unit from the next larger one."""

    def compute(value: Value) -> Value:
        parts = (pc.multiply(pc.millisecond(value), 10**6), pc.multiply(pc.microsecond(value), 10**3))
        nanoseconds = pc.add(pc.add(*parts), pc.nanosecond(value))
        return pc.divide(nanoseconds, 10**9 // per_second)

    return compute


def _total(unit: str, nanoseconds: int, result: int) -> Builder:
    def kernel(value: Value) -> Value:
        own = 10**9 // UNITS_PER_SECOND[value.type.unit]
        count = pc.cast(value, pa.int64())
        if own >= nanoseconds:
            return checked(pc.multiply_checked, count, arrow_scalar(own // nanoseconds))
        return pc.divide(count, nanoseconds // own)

    doc = f"Return a duration in whole {unit}, rounded towards zero."
    given = (dt.timedelta(days=1.5),)
    return _table.strict(f"total_{unit}", {"expr": DURATION}, INT64, kernel, doc, given, result)


year = _date_part("year", pc.year, "Return the year.", 2024)
quarter = _date_part("quarter", pc.quarter, "Return the quarter of the year, from 1 to 4.", 3)
month = _date_part("month", pc.month, "Return the month, from 1 to 12.", 7)
day = _date_part("day", pc.day, "Return the day of the month, from 1 to 31.", 3)
week_of_year = _date_part("week_of_year", pc.iso_week, "Return the ISO 8601 week of the year, from 1 to 53.", 27)
day_of_week = _date_part("day_of_week", pc.day_of_week, "Return the weekday, from 0 for Monday to 6 for Sunday.", 2)
day_of_year = _date_part("day_of_year", pc.day_of_year, "Return the day of the year, from 1 to 366.", 185)

hour = _clock_part("hour", pc.hour, "Return the hour, from 0 to 23.", 10)
minute = _clock_part("minute", pc.minute, "Return the minute, from 0 to 59.", 20)
second = _clock_part("second", pc.second, "Return the second, from 0 to 59.", 30)
millisecond = _clock_part("millisecond", _fraction(10**3), "Return the fraction of the second in milliseconds.", 123)
microsecond = _clock_part("microsecond", _fraction(10**6), "Return the fraction of the second in microseconds.", 123456)
nanosecond = _clock_part("nanosecond", _fraction(10**9), "Return the fraction of the second in nanoseconds.", 123456000)

total_days = _total("days", 86_400 * 10**9, 1)
total_hours = _total("hours", 3_600 * 10**9, 36)
total_minutes = _total("minutes", 60 * 10**9, 2_160)
total_seconds = _total("seconds", 10**9, 129_600)
total_milliseconds = _total("milliseconds", 10**6, 129_600_000)
total_microseconds = _total("microseconds", 10**3, 129_600_000_000)
total_nanoseconds = _total("nanoseconds", 1, 129_600_000_000_000)

# --- arithmetic -------------------------------------------------------------------------------------------------------

_FIRST_DAYS = np.arange(np.datetime64("1800-01"), np.datetime64("2300-02")).astype("M8[D]").astype(np.int32)
_MONTHS = np.repeat(np.arange(len(_FIRST_DAYS) - 1, dtype=np.int32), np.diff(_FIRST_DAYS))  # of each day


def _add_months(dates: pa.Array, months: pa.Array) -> pa.Array:
    """Look up months from 1800 to 2300, which takes a fifth of the time of DuckDB's arithmetic."""
    days = filled(dates.cast(pa.date32()).view(pa.int32()))
    places = days - _FIRST_DAYS[0]
    if len(days) and places.min() >= 0 and places.max() < len(_MONTHS):
        old = _MONTHS[places]
        new = old + filled(months)
        if new.min() >= 0 and new.max() < len(_FIRST_DAYS) - 1:
            found = np.minimum(_FIRST_DAYS[new] + days - _FIRST_DAYS[old], _FIRST_DAYS[new + 1] - 1)
            return masked(found, validity(dates, months)).view(pa.date32())
    from penstock.relational.scalar import evaluate

    return evaluate("add_months", "(a::date + to_months(b::int))::date", [dates, months])


add_months = _define(
    "add_months", {**_DATE, "months": INTEGER}, DATE, _add_months,
    "Add months to a date; the day is at most the last one of that month.", (_DAY, 1), dt.date(2024, 2, 29),
)  # fmt: skip


def _moved(operation: str) -> Any:
    """Return the kernel that adds days to dates, or subtracts them."""

    def kernel(dates: pa.Array, days: pa.Array) -> pa.Array:
        return pc.call_function(operation, [_day_numbers(dates), days.cast(pa.int32())]).view(pa.date32())

    return kernel


def _day_numbers(dates: pa.Array) -> pa.Array:
    return cast(dates, dtype=DATE, is_strict=True).view(pa.int32())


_ADD = ({**_DATE, "days": INTEGER}, DATE, _moved("add_checked"), "Add days to a date.", (_DAY, 1), dt.date(2024, 2, 1))
date_add = _define("date_add", *_ADD)
dateadd = _define("dateadd", *_ADD)
date_sub = _define(
    "date_sub", {**_DATE, "days": INTEGER}, DATE, _moved("subtract_checked"), "Subtract days from a date.", (_DAY, 1),
    dt.date(2024, 1, 30),
)  # fmt: skip
_DAYS = "Count the days from ``start`` to ``end``."
_DIFF = (
    _ENDS, INT32, lambda end, start: pc.subtract(_day_numbers(end), _day_numbers(start)), _DAYS,
    (_DAY, dt.date(2024, 1, 1)), 30,
)  # fmt: skip
date_diff = _define("date_diff", *_DIFF)
datediff = _define("datediff", *_DIFF)
months_between = _define(
    "months_between", _ENDS, FLOAT64,
    "round(case when day(a) = day(b) or (last_day(a) = a::date and last_day(b) = b::date) then 0 else "
    "(day(a) - day(b) + (epoch(a::timestamp - a::date) - epoch(b::timestamp - b::date)) / 86400) / 31 end "
    "+ (year(a) - year(b)) * 12 + month(a) - month(b), 8)",
    "Count the months from ``start`` to ``end``; whole if the days agree or both are the last of their months.",
    (_DAY, dt.date(2023, 2, 28)), 11.0,
)  # fmt: skip
last_day = _define("last_day", _DATE, DATE, "last_day(a)", "Return the last day of the month.", (_DAY,), _DAY)

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _next_day(expr: Expression, *, day_of_week: str) -> Expression:
    wanted = day_of_week.lower()
    number = next((i for i, name in enumerate(_WEEKDAYS) if wanted in (name, name[:3], name[:2])), None)
    if number is None:
        hint = did_you_mean(wanted, _WEEKDAYS)
        raise InvalidArgumentError(f"next_day: {day_of_week!r} is not a weekday such as 'Monday' or 'Mon'.{hint}")
    day = temporal.date(expr)
    return date_add(day, (number + 6 - call("day_of_week", day)) % 7 + 1)


next_day = _build(
    "next_day", {**_DATE, "day_of_week": str}, _next_day,
    "Return the first date after this one that is a ``'Monday'``, ``'Tue'`` and so on.", (_DAY, "Mon"),
    dt.date(2024, 2, 5),
)  # fmt: skip

# --- from parts and numbers -------------------------------------------------------------------------------------------

_DATE_PARTS = dict.fromkeys(("year", "month", "day"), INTEGER)
_PARTS = {**_DATE_PARTS, "hour": INTEGER, "minute": INTEGER, "second": NUMBER}


@functools.cache
def _month_starts() -> Any:
    """Return the days from 1970 to the first day of each month from January of year 1 to January of year 10000."""
    return np.arange("0001-01", "10000-02", dtype="M8[M]").astype("M8[D]").astype(np.int32)


def _days(valid: Any, *parts: Any) -> Any:
    """Return the days from 1970 to each date of years 1 to 9999; clear the flag where there is no such date."""
    year, month, day = (part.astype(np.int64, copy=False) for part in parts)
    starts, number = _month_starts(), empty_numbers(len(valid), np.int64)
    np.multiply(year, 12, out=number)
    number += month - 13
    if not (_is_within(year, 1, 9999) and _is_within(month, 1, 12) and _is_within(day, 1, 28)):
        valid &= (year > 0) & (year < 10_000) & (month > 0) & (month < 13) & (day > 0) & (day < 32)
        number[~valid] = 0
        valid &= starts.take(number) + day <= starts.take(number + 1)
    return np.add(starts.take(number, mode="clip", out=empty_numbers(len(valid), np.int32)), day - 1, out=number)


def _is_within(numbers: Any, least: int, most: int) -> bool:
    return bool(numbers.min(initial=most) >= least and numbers.max(initial=least) <= most)


def _moments(valid: Any, *parts: Any) -> Any:
    """Return the microseconds from 1970; clear the flag where there is no such moment."""
    moments = _days(valid, *parts[:3])
    hour, minute = (part.astype(np.int64, copy=False) for part in parts[3:5])
    second = parts[5]
    if not (_is_within(hour, 0, 23) and _is_within(minute, 0, 59) and _is_within(second, 0, 60)):
        valid &= (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60) & (second >= 0) & (second <= 60)
    moments *= 86_400_000_000
    moments += (hour * 60 + minute) * 60_000_000
    micros = np.multiply(second, 1e6, out=empty_numbers(len(valid)))
    with np.errstate(invalid="ignore"):  # NaN, where the flag is cleared
        moments += np.rint(micros, out=empty_numbers(len(valid), np.int64), casting="unsafe")
    return moments


def _date(*parts: Value) -> Value:
    return pc.cast(pc.cast(on_numbers(_days)(*parts), pa.int32()), pa.date32())


def _timestamp(*parts: Value) -> Value:
    return pc.cast(on_numbers(_moments)(*parts[:5], numeric(parts[5], FLOAT64)), _MICROSECONDS.arrow)


make_date = _table.strict(
    "make_date", _DATE_PARTS, DATE, _date,
    "Return a date from year, month and day; null if there is no such date.", (2024, 2, 29), dt.date(2024, 2, 29),
)  # fmt: skip
strict("make_timestamp", takes(*_PARTS.values(), returns=_MICROSECONDS))(_timestamp)


def _moment(*parts: Expression) -> Expression:
    return call("make_timestamp", *parts)


def _make_timestamp(*parts: Expression, timezone: str | None) -> Expression:
    return _moment(*parts) if timezone is None else temporal.replace_time_zone(_moment(*parts), timezone)


def _make_timestamp_ltz(*parts: Expression, timezone: str | None) -> Expression:
    return temporal.convert_time_zone(temporal.replace_time_zone(_moment(*parts), timezone or "UTC"), "UTC")


make_timestamp = _build(
    "make_timestamp", {**_PARTS, "timezone": str | None}, _make_timestamp,
    "Return a timestamp from its parts, in ``timezone`` if given; null if there is no such moment.",
    (2024, 2, 29, 13, 5, 7.25), dt.datetime(2024, 2, 29, 13, 5, 7, 250000),
)  # fmt: skip
make_timestamp_ltz = _build(
    "make_timestamp_ltz", {**_PARTS, "timezone": str | None}, _make_timestamp_ltz,
    "Return a timestamp in UTC from its parts in ``timezone``, or in UTC; null if there is no such moment.",
    (2024, 2, 30, 13, 5, 7.25), None,
)  # fmt: skip


def _from_number(name: str, factor: int, unit: str) -> Builder:
    def build(expr: Expression) -> Expression:
        return temporal.from_unix_epoch((expr * factor if factor > 1 else expr).cast("int64"), "us")

    doc = f"Return the timestamp that is this many {unit} after 1970-01-01."
    return _build(name, {"expr": NUMBER}, build, doc, (0,), dt.datetime(1970, 1, 1))


timestamp_seconds = _from_number("timestamp_seconds", 10**6, "seconds")
timestamp_millis = _from_number("timestamp_millis", 10**3, "milliseconds")
timestamp_micros = _from_number("timestamp_micros", 1, "microseconds")
from_unixtime = _build(
    "from_unixtime", {"expr": NUMBER, "format": str | None},
    lambda expr, format: temporal.strftime(
        temporal.from_unix_epoch(expr.cast("int64"), "s"), format or "%Y-%m-%d %H:%M:%S"
    ),
    "Write seconds since 1970-01-01 as text, by default like ``2024-01-31 12:00:00``.", (0,), "1970-01-01 00:00:00",
)  # fmt: skip
date_from_unix_date = _build(
    "date_from_unix_date", {"expr": INTEGER}, lambda expr: expr.cast("int32").cast("date"),
    "Return the date that is this many days after 1970-01-01.", (1,), dt.date(1970, 1, 2),
)  # fmt: skip
unix_date = _build(
    "unix_date", _DATE, lambda expr: temporal.date(expr).cast("int32").cast("int64"),
    "Count the days since 1970-01-01.", (dt.date(1970, 1, 2),), 1,
)  # fmt: skip

# --- other names ------------------------------------------------------------------------------------------------------


def _same(name: str, original: Callable[..., Expression], result: int) -> Builder:
    doc = f"{(original.__doc__ or '').splitlines()[0].rstrip('.')}; the same as ``{original.__name__}``."
    return _build(name, _DATE, original, doc, (_DAY,), result)


day_of_month = _same("day_of_month", day, 31)
dayofmonth = _same("dayofmonth", day, 31)
dayofyear = _same("dayofyear", day_of_year, 31)
weekofyear = _same("weekofyear", week_of_year, 5)
date_format = _build(
    "date_format", {**_DATE, "format": str | None}, temporal.strftime,
    "Write a date or timestamp as text; the same as ``strftime``.", (_DAY, "%Y/%m"), "2024/01",
)  # fmt: skip
_DATE_PART_NAMES = {
    "dayofmonth": "day", "dayofweek": "day_of_week", "dayofyear": "day_of_year", "weekofyear": "week_of_year",
}  # fmt: skip


@function
def datepart(part: str, expr: Expression) -> Expression:
    """Return a part of a date by its name, such as ``"year"`` or ``"dayofmonth"``.

    >>> import datetime
    >>> ps.from_pydict({"x": [datetime.date(2024, 1, 31)]}).select(datepart("month", ps.col("x"))).to_pydict()
    {'x': [1]}
    """
    name = _DATE_PART_NAMES.get(str(part).lower(), str(part).lower())
    if name not in _CALENDAR_PARTS:
        raise InvalidArgumentError(f"datepart: {part!r} is not a part of a date.{did_you_mean(name, _CALENDAR_PARTS)}")
    return FUNCTIONS[name](lit(expr))  # type: ignore[no-any-return]


_CALENDAR_PARTS = (
    *("year", "quarter", "month", "day", "week_of_year", "day_of_week", "day_of_year"),
    *("hour", "minute", "second", "millisecond", "microsecond", "nanosecond"),
)


@function
def current_date() -> Expression:
    """Return today's date in UTC, taken when the expression is built.

    >>> ps.from_pydict({"x": [1]}).select(current_date().year().alias("x") > 2000).to_pydict()
    {'x': [True]}
    """
    return lit(dt.datetime.now(dt.UTC).date())


@function
def current_timestamp() -> Expression:
    """Return the current time in UTC, taken when the expression is built, without a timezone.

    >>> ps.from_pydict({"x": [1]}).select(current_timestamp().year().alias("x") > 2000).to_pydict()
    {'x': [True]}
    """
    return lit(dt.datetime.now(dt.UTC).replace(tzinfo=None))


@function
def current_timezone() -> Expression:
    """Return the timezone of ``current_timestamp``, which is UTC.

    >>> ps.from_pydict({"x": [1]}).select(current_timezone().alias("x")).to_pydict()
    {'x': ['UTC']}
    """
    return lit("UTC")


# --- timezones --------------------------------------------------------------------------------------------------------


def _from_utc(expr: Expression, *, timezone: str) -> Expression:
    return temporal.replace_time_zone(temporal.convert_time_zone(expr, timezone, "UTC"))


def _to_utc(expr: Expression, *, timezone: str) -> Expression:
    placed = temporal.replace_time_zone(temporal.replace_time_zone(expr), timezone)
    return temporal.replace_time_zone(temporal.convert_time_zone(placed, "UTC"))


_ZONED: Parameters = {"expr": TIMESTAMP, "timezone": str}
from_utc_timestamp = _build(
    "from_utc_timestamp", _ZONED, _from_utc, "Return the wall clock of ``timezone`` at a moment in UTC.",
    (dt.datetime(2024, 1, 1, 12), "Asia/Tokyo"), dt.datetime(2024, 1, 1, 21),
)  # fmt: skip
to_utc_timestamp = _build(
    "to_utc_timestamp", _ZONED, _to_utc, "Return the moment in UTC of a wall clock in ``timezone``.",
    (dt.datetime(2024, 1, 1, 21), "Asia/Tokyo"), dt.datetime(2024, 1, 1, 12),
)  # fmt: skip


@function
def convert_timezone(target_timezone: str, source_timestamp: Expression) -> Expression:
    """Show a timestamp with a timezone in another one; ``convert_time_zone`` with the timezone first.

    >>> zoned = ps.col("x").replace_time_zone("UTC")
    >>> df = ps.from_pydict({"x": ["2024-01-01T12:00:00"]}).select(ps.col("x").cast("timestamp[us]"))
    >>> df.select(convert_timezone("Asia/Tokyo", zoned).strftime("%H:%M").alias("x")).to_pydict()
    {'x': ['21:00']}
    """
    return temporal.convert_time_zone(source_timestamp, target_timezone)


# --- partition transforms ---------------------------------------------------------------------------------------------


def _partition(unit: str, compute: Callable[[pa.Array], Any], result: Any, dtype: DataType = INT32) -> Builder:
    def kernel(value: pa.Array) -> pa.Array:
        return pc.cast(pc.cast(compute(value), pa.int32()), dtype.arrow)

    doc = f"Return the partition of Iceberg: the {unit} since 1970-01-01{', as a date' if dtype == DATE else ''}."
    return _define(f"partition_{unit}", _DATE, dtype, kernel, doc, (_DAY,), result, suffix=unit)


def _utc(value: pa.Array) -> pa.Array:
    return value if pa.types.is_date(value.type) else pc.cast(value, pa.timestamp("us"), safe=False)


def _whole(value: pa.Array, microseconds: int) -> pa.Array:
    numbers = filled(pc.cast(pc.cast(_utc(value), pa.timestamp("us")), pa.int64()))
    return masked(np.floor_divide(numbers, microseconds, out=empty_numbers(len(value), np.int64)), validity(value))


def _years(value: pa.Array) -> pa.Array:
    return pc.subtract(pc.year(_utc(value)), 1970)


def _months(value: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(_years(value), 12), pc.subtract(pc.month(_utc(value)), 1))


partition_years = _partition("years", _years, 54)
partition_months = _partition("months", _months, 648)
partition_days = _partition("days", lambda v: _whole(v, 86_400_000_000), _DAY, DATE)
partition_hours = _partition("hours", lambda v: _whole(v, 3_600_000_000), 474_072)
