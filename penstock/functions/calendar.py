"""Dates and durations: their parts, and the time now.

The parts are int32, and durations int64. The parts of a timestamp with a timezone are local to it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.column import Expression, lit
from penstock.expr.kinds import (
    CLOCK,
    DATE_OR_TIMESTAMP,
    DURATION,
    INT32,
    INT64,
    Kind,
)
from penstock.expr.operators import UNITS_PER_SECOND, checked
from penstock.expr.public_functions import function
from penstock.expr.registry import Value
from penstock.functions.table import Builder, FunctionTable
from penstock.types.plain import arrow_scalar

_table = FunctionTable(__name__)

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


# --- now --------------------------------------------------------------------------------------------------------------


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
