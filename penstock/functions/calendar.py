"""Parts of dates, times and timestamps, as int32, and durations as numbers. Those of a timezone are local to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.column import Expression, call, method
from penstock.expr.operators import checked
from penstock.expr.registry import Value
from penstock.expr.signatures import CLOCK, DATE_OR_TIMESTAMP, DURATION, INT32, INT64, strict, takes

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

# --- parts ------------------------------------------------------------------------------------------------------------


@method
def year(expr: Expression) -> Expression:
    """Return the year.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.date(2024, 7, 3)]}).select(year(ps.col("t"))).to_pydict()
    {'t': [2024]}
    """
    return call("year", expr)


@method
def quarter(expr: Expression) -> Expression:
    """Return the quarter of the year, from 1 to 4.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.date(2024, 7, 3)]}).select(quarter(ps.col("t"))).to_pydict()
    {'t': [3]}
    """
    return call("quarter", expr)


@method
def month(expr: Expression) -> Expression:
    """Return the month, from 1 to 12.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.date(2024, 7, 3)]}).select(month(ps.col("t"))).to_pydict()
    {'t': [7]}
    """
    return call("month", expr)


@method
def day(expr: Expression) -> Expression:
    """Return the day of the month, from 1 to 31.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.date(2024, 7, 3)]}).select(day(ps.col("t"))).to_pydict()
    {'t': [3]}
    """
    return call("day", expr)


@method
def week_of_year(expr: Expression) -> Expression:
    """Return the week of the year as ISO 8601 has it, from 1 to 53.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.date(2024, 7, 3)]}).select(week_of_year(ps.col("t"))).to_pydict()
    {'t': [27]}
    """
    return call("week_of_year", expr)


@method
def day_of_week(expr: Expression) -> Expression:
    """Return the day of the week, from 0 for Monday to 6 for Sunday.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.date(2024, 7, 3)]}).select(day_of_week(ps.col("t"))).to_pydict()
    {'t': [2]}
    """
    return call("day_of_week", expr)


@method
def day_of_year(expr: Expression) -> Expression:
    """Return the day of the year, from 1 to 366.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.date(2024, 7, 3)]}).select(day_of_year(ps.col("t"))).to_pydict()
    {'t': [185]}
    """
    return call("day_of_year", expr)


@method
def hour(expr: Expression) -> Expression:
    """Return the hour, from 0 to 23.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.time(10, 20, 30, 123456)]}).select(hour(ps.col("t"))).to_pydict()
    {'t': [10]}
    """
    return call("hour", expr)


@method
def minute(expr: Expression) -> Expression:
    """Return the minute, from 0 to 59.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.time(10, 20, 30, 123456)]}).select(minute(ps.col("t"))).to_pydict()
    {'t': [20]}
    """
    return call("minute", expr)


@method
def second(expr: Expression) -> Expression:
    """Return the second, from 0 to 59.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.time(10, 20, 30, 123456)]}).select(second(ps.col("t"))).to_pydict()
    {'t': [30]}
    """
    return call("second", expr)


@method
def millisecond(expr: Expression) -> Expression:
    """Return the fraction of the second in milliseconds.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.time(10, 20, 30, 123456)]}).select(millisecond(ps.col("t"))).to_pydict()
    {'t': [123]}
    """
    return call("millisecond", expr)


@method
def microsecond(expr: Expression) -> Expression:
    """Return the fraction of the second in microseconds.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.time(10, 20, 30, 123456)]}).select(microsecond(ps.col("t"))).to_pydict()
    {'t': [123456]}
    """
    return call("microsecond", expr)


@method
def nanosecond(expr: Expression) -> Expression:
    """Return the fraction of the second in nanoseconds.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.time(10, 20, 30, 123456)]}).select(nanosecond(ps.col("t"))).to_pydict()
    {'t': [123456000]}
    """
    return call("nanosecond", expr)


def _within_second(name: str, per_second: int) -> Callable[[Value], Value]:
    """Return the kernel of a part of the second; Arrow gives each counted from the next larger one."""

    def compute(value: Value) -> Value:
        parts = [
            pc.multiply(pc.millisecond(value), 10**6),
            pc.multiply(pc.microsecond(value), 10**3),
            pc.nanosecond(value),
        ]
        nanoseconds = pc.add(pc.add(parts[0], parts[1]), parts[2])
        return pc.cast(pc.divide(nanoseconds, 10**9 // per_second), pa.int32())

    return compute


def _part(compute: Callable[..., Value], **options: Any) -> Callable[[Value], Value]:
    return lambda value: pc.cast(compute(value, **options), pa.int32())


for _name, _compute in {
    "year": _part(pc.year),
    "quarter": _part(pc.quarter),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "week_of_year": _part(pc.iso_week),
    "day_of_week": _part(pc.day_of_week),
    "day_of_year": _part(pc.day_of_year),
}.items():
    strict(_name, takes(DATE_OR_TIMESTAMP, returns=INT32))(_compute)
for _name, _compute in {
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
    "millisecond": _within_second("millisecond", 10**3),
    "microsecond": _within_second("microsecond", 10**6),
    "nanosecond": _within_second("nanosecond", 10**9),
}.items():
    strict(_name, takes(CLOCK, returns=INT32))(_compute)


# --- durations --------------------------------------------------------------------------------------------------------


@method
def total_days(expr: Expression) -> Expression:
    """Return a duration in whole days, cut towards zero.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.timedelta(days=1.5)]}).select(total_days(ps.col("t"))).to_pydict()
    {'t': [1]}
    """
    return call("total_days", expr)


@method
def total_hours(expr: Expression) -> Expression:
    """Return a duration in whole hours, cut towards zero.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.timedelta(days=1.5)]}).select(total_hours(ps.col("t"))).to_pydict()
    {'t': [36]}
    """
    return call("total_hours", expr)


@method
def total_minutes(expr: Expression) -> Expression:
    """Return a duration in whole minutes, cut towards zero.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.timedelta(days=1.5)]}).select(total_minutes(ps.col("t"))).to_pydict()
    {'t': [2160]}
    """
    return call("total_minutes", expr)


@method
def total_seconds(expr: Expression) -> Expression:
    """Return a duration in whole seconds, cut towards zero.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.timedelta(days=1.5)]}).select(total_seconds(ps.col("t"))).to_pydict()
    {'t': [129600]}
    """
    return call("total_seconds", expr)


@method
def total_milliseconds(expr: Expression) -> Expression:
    """Return a duration in whole milliseconds, cut towards zero.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.timedelta(days=1.5)]}).select(total_milliseconds(ps.col("t"))).to_pydict()
    {'t': [129600000]}
    """
    return call("total_milliseconds", expr)


@method
def total_microseconds(expr: Expression) -> Expression:
    """Return a duration in whole microseconds, cut towards zero.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.timedelta(days=1.5)]}).select(total_microseconds(ps.col("t"))).to_pydict()
    {'t': [129600000000]}
    """
    return call("total_microseconds", expr)


@method
def total_nanoseconds(expr: Expression) -> Expression:
    """Return a duration in whole nanoseconds, cut towards zero.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.timedelta(days=1.5)]}).select(total_nanoseconds(ps.col("t"))).to_pydict()
    {'t': [129600000000000]}
    """
    return call("total_nanoseconds", expr)


_NANOSECONDS = {
    "days": 86_400 * 10**9,
    "hours": 3_600 * 10**9,
    "minutes": 60 * 10**9,
    "seconds": 10**9,
    "milliseconds": 10**6,
    "microseconds": 10**3,
    "nanoseconds": 1,
}


def _total(nanoseconds: int) -> Callable[[Value], Value]:
    def compute(value: Value) -> Value:
        own = 10**9 // UNITS[value.type.unit]
        count = pc.cast(value, pa.int64())
        if own >= nanoseconds:
            return checked(pc.multiply_checked, count, pa.scalar(own // nanoseconds))
        return pc.divide(count, nanoseconds // own)

    return compute


for _name, _nanoseconds in _NANOSECONDS.items():
    strict(f"total_{_name}", takes(DURATION, returns=INT64))(_total(_nanoseconds))
