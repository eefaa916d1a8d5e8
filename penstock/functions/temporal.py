"""Dates, times, timestamps and time zones. Parts of them are in ``calendar``."""

from __future__ import annotations

import datetime
import re

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, InvalidArgumentError, check_choice, did_you_mean
from penstock.expr.column import Expression, call
from penstock.expr.kinds import CLOCK, DATE, DATE_OR_TIMESTAMP, INT64, INTEGER, STRING, TEXT, TIMESTAMP
from penstock.expr.public_functions import METHODS, function, method
from penstock.expr.registry import Value
from penstock.expr.signatures import same_type, strict, takes
from penstock.functions.table import FunctionTable
from penstock.types import DataType
from penstock.types.names import checked_timezone
from penstock.types.plain import arrow_array

_table = FunctionTable(__name__)
UNITS = ("s", "ms", "us", "ns")
_MOMENT = datetime.datetime(2024, 7, 3, 10)

# --- truncation -------------------------------------------------------------------------------------------------------


date = _table.strict(
    "date", {"expr": DATE_OR_TIMESTAMP}, DATE, lambda value: pc.cast(_local(value), pa.date32()),
    "Return the date of a timestamp.", (_MOMENT,), _MOMENT.date(),
)  # fmt: skip


def _time_type(dtype: DataType) -> DataType:
    return dtype if not dtype.is_timestamp() else DataType.time(dtype.unit)


def _time(value: Value) -> Value:
    return pc.cast(_local(value), _time_type(DataType(value.type)).arrow)


time = _table.strict(
    "time", {"expr": CLOCK}, _time_type, _time, "Return the time of day of a timestamp.", (_MOMENT,), _MOMENT.time()
)


def _local(value: Value) -> Value:
    has_timezone = pa.types.is_timestamp(value.type) and value.type.tz is not None
    return pc.local_timestamp(value) if has_timezone else value


_INTERVALS = (
    "nanosecond", "microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year",
)  # fmt: skip

_CALENDAR_UNITS = ("day", "week", "month", "quarter", "year")  # a day starts once, also if clocks repeat its first hour


@function
def date_trunc(interval: str, expr: Expression) -> Expression:
    """Round down to an interval such as ``"hour"``, ``"15 minutes"`` or ``"1 month"``; weeks start on Monday.

    Intervals follow the clocks in the time zone. The two hours that clocks repeat are two intervals.
    As a method the expression comes first: ``col("t").date_trunc("1 day")``.

    >>> import datetime
    >>> df = ps.from_pydict({"t": [datetime.datetime(2024, 7, 3, 10, 40)]})
    >>> df.select(date_trunc("15 minutes", ps.col("t"))).to_pydict()
    {'t': [datetime.datetime(2024, 7, 3, 10, 30)]}
    """
    match = re.fullmatch(r"\s*(\d+)?\s*([a-z]+?)s?\s*", str(interval).lower())
    if match is None or match[2] not in _INTERVALS or match[1] == "0":
        hint = did_you_mean(match[2], _INTERVALS) if match is not None else ""
        raise InvalidArgumentError(
            f"date_trunc: {interval!r} is not an interval such as '1 day'; the units are {', '.join(_INTERVALS)}.{hint}"
        )
    return call("date_trunc", expr, multiple=int(match[1] or 1), unit=match[2])


@method
def trunc(expr: Expression, interval: str) -> Expression:
    """Round down to an interval such as ``"hour"``, ``"15 minutes"`` or ``"1 month"``; see ``date_trunc``.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.datetime(2024, 7, 3, 10)]}).select(trunc(ps.col("t"), "month")).to_pydict()
    {'t': [datetime.datetime(2024, 7, 1, 0, 0)]}
    """
    return date_trunc(interval, expr)


METHODS["date_trunc"] = trunc  # a method has the expression first


@strict("date_trunc", takes(DATE_OR_TIMESTAMP, returns=same_type))
def _date_trunc(value: Value, *, multiple: int, unit: str) -> Value:
    try:
        return pc.cast(pc.floor_temporal(value, multiple, unit), value.type)
    except pa.ArrowInvalid:  # an interval starts at a local time that clocks skip or repeat
        if not pa.types.is_timestamp(value.type) or value.type.tz is None:
            raise
    floored = pc.floor_temporal(pc.local_timestamp(value), multiple, unit)
    first = _moment(floored, value.type, "earliest")
    if unit in _CALENDAR_UNITS:
        return first
    last = _moment(floored, value.type, "latest")
    return pc.if_else(pc.less_equal(last, value), last, first)


def _moment(local: Value, dtype: pa.DataType, ambiguous: str) -> Value:
    """Return the first or the last moment with a local time; for a time that clocks skip, the moment of the skip."""
    return pc.cast(pc.assume_timezone(local, dtype.tz, ambiguous=ambiguous, nonexistent="latest"), dtype)


# --- text -------------------------------------------------------------------------------------------------------------


@method
def to_date(expr: Expression, format: str) -> Expression:
    """Parse text as a date; text that does not fit the format is an error.

    >>> ps.from_pydict({"t": ["03.07.2024"]}).select(to_date(ps.col("t"), "%d.%m.%Y")).to_pydict()
    {'t': [datetime.date(2024, 7, 3)]}
    """
    return call("to_date", expr, format=_checked_format("to_date", format))


@method
def to_datetime(expr: Expression, format: str, timezone: str | None = None) -> Expression:
    """Parse text as a timestamp in microseconds; text that does not fit the format is an error.

    ``%f`` reads a fraction of a second of any length. With a timezone, text without an offset is local to it; a local
    time that clocks skip is an error, and a local time that comes twice means the earlier one. Without a timezone, a
    format with the offset ``%z`` gives UTC.

    >>> df = ps.from_pydict({"t": ["2024-07-03 10:30:00.5"]})
    >>> df.select(to_datetime(ps.col("t"), "%Y-%m-%d %H:%M:%S.%f")).to_pydict()
    {'t': [datetime.datetime(2024, 7, 3, 10, 30, 0, 500000)]}
    """
    return call("to_datetime", expr, format=_checked_format("to_datetime", format), timezone=checked_timezone(timezone))


def _checked_format(function: str, format: str) -> str:
    if "%" not in format:  # Arrow crashes on an empty one
        raise InvalidArgumentError(f"{function}: {format!r} is not a format such as '%Y-%m-%d'")
    return format


def _has_offset(format: str) -> bool:
    return "%z" in format.replace("%%", "")


def _parsed(text: Value, format: str, function: str) -> Value:
    """Return timestamps in microseconds, in UTC if the format has an offset."""
    if "%f" not in format and "%z" not in format and "%." not in format:
        try:
            return pc.strptime(text, format=format, unit="us")
        except pa.ArrowInvalid:
            pass  # Python finds the bad value, and parses formats that Arrow does not
    python_format = re.sub(r"%\.\d?f", ".%f", format)
    rows = text.to_pylist() if isinstance(text, pa.Array) else [text.as_py()]
    moments: list[datetime.datetime | None] = []
    for row in rows:
        try:
            moments.append(None if row is None else datetime.datetime.strptime(row, python_format))
        except (ValueError, re.error) as exc:
            raise ComputeError(f"{function}: {exc}. Use try_cast or filter such rows out first.") from exc
    if function == "to_date":  # as written, whatever the offset
        moments = [None if moment is None else moment.replace(tzinfo=None) for moment in moments]
    has_offset = function != "to_date" and _has_offset(format)
    parsed = arrow_array(moments, pa.timestamp("us", "UTC" if has_offset else None))
    return parsed if isinstance(text, pa.Array) else parsed[0]


@strict("to_date", takes(TEXT, returns=DATE))
def _to_date(text: Value, *, format: str) -> Value:
    return pc.cast(_parsed(text, format, "to_date"), pa.date32())


def _to_datetime_type(dtype: DataType, *, format: str, timezone: str | None) -> DataType:
    return DataType.timestamp("us", timezone or ("UTC" if _has_offset(format) else None))


@strict("to_datetime", takes(TEXT, returns=_to_datetime_type))
def _to_datetime(text: Value, *, format: str, timezone: str | None) -> Value:
    parsed = _parsed(text, format, "to_datetime")
    if timezone is None:
        return parsed
    return _placed(parsed, timezone) if parsed.type.tz is None else pc.cast(parsed, pa.timestamp("us", timezone))


def _placed(local: Value, timezone: str | None) -> Value:
    """Return local times as points in time; the first of two with the same local time."""
    try:
        return pc.assume_timezone(local, timezone, ambiguous="earliest", nonexistent="raise")
    except pa.ArrowInvalid as exc:
        raise ComputeError(f"A local time does not exist in {timezone}, where clocks skip it: {exc}") from exc


@method
def strftime(expr: Expression, format: str | None = None) -> Expression:
    """Format dates and timestamps as text, by default in ISO 8601.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.date(2024, 7, 3)]}).select(strftime(ps.col("t"), "%d.%m.%Y")).to_pydict()
    {'t': ['03.07.2024']}
    """
    return call("strftime", expr, format=None if format is None else _checked_format("strftime", format))


@strict("strftime", takes(DATE_OR_TIMESTAMP, returns=STRING))
def _strftime(value: Value, *, format: str | None) -> Value:
    if format is None and pa.types.is_date(value.type):
        return pc.cast(value, pa.string())
    if format is None and value.type.tz is None:
        text = pc.replace_substring(pc.cast(value, pa.string()), " ", "T", max_replacements=1)
        zeros = {"s": "", "ms": ".000", "us": ".000000", "ns": ".000000000"}[value.type.unit]
        is_whole = pc.ends_with(text, zeros)
        return pc.if_else(is_whole, pc.utf8_slice_codeunits(text, 0, -len(zeros) or None), text)
    if format is None:
        text = pc.strftime(value, format="%Y-%m-%dT%H:%M:%S%z" if value.type.tz else "%Y-%m-%dT%H:%M:%S")
        return pc.replace_substring_regex(text, pattern=r"\.0+($|[+-])", replacement=r"\1")
    if "%f" in format:  # Arrow writes the fraction as part of %S
        python_rows = value.to_pylist() if isinstance(value, pa.Array) else [value.as_py()]
        texts = arrow_array([None if row is None else row.strftime(format) for row in python_rows], pa.string())
        return texts if isinstance(value, pa.Array) else texts[0]
    return pc.strftime(_whole_seconds(value) if pa.types.is_timestamp(value.type) else value, format=format)


def _whole_seconds(value: Value) -> Value:
    """Round timestamps down to seconds; a cast would round those before 1970 up."""
    moments = pc.cast(pc.cast(value, pa.int64()), pa.timestamp(value.type.unit))
    return pc.cast(pc.floor_temporal(moments, unit="second"), pa.timestamp("s", value.type.tz), safe=False)


# --- epochs and durations ---------------------------------------------------------------------------------------------


@method
def to_unix_epoch(expr: Expression, time_unit: str | None = None) -> Expression:
    """Count the seconds, or another ``time_unit`` (``s ms us ns``), since 1970-01-01 UTC.

    >>> import datetime
    >>> ps.from_pydict({"t": [datetime.date(1970, 1, 2)]}).select(to_unix_epoch(ps.col("t"))).to_pydict()
    {'t': [86400]}
    """
    return call("to_unix_epoch", expr, unit=_unit("to_unix_epoch", time_unit or "s"))


@method
def from_unix_epoch(expr: Expression, time_unit: str | None = None) -> Expression:
    """Convert seconds, or another ``time_unit`` (``s ms us ns``), since 1970-01-01 UTC to timestamps.

    >>> ps.from_pydict({"t": [86400]}).select(from_unix_epoch(ps.col("t"))).to_pydict()
    {'t': [datetime.datetime(1970, 1, 2, 0, 0)]}
    """
    return call("from_unix_epoch", expr, unit=_unit("from_unix_epoch", time_unit or "s"))


def _unit(function: str, unit: str) -> str:
    check_choice(f"{function}: time_unit", unit, UNITS)
    return unit


@strict("to_unix_epoch", takes(DATE_OR_TIMESTAMP, returns=INT64))
def _to_unix_epoch(value: Value, *, unit: str) -> Value:
    return pc.cast(pc.cast(value, pa.timestamp(unit, getattr(value.type, "tz", None)), safe=False), pa.int64())


@strict("from_unix_epoch", takes(INTEGER, returns=lambda dtype, unit: DataType.timestamp(unit)))
def _from_unix_epoch(value: Value, *, unit: str) -> Value:
    return pc.cast(pc.cast(value, pa.int64()), pa.timestamp(unit))


@method
def convert_time_zone(expr: Expression, to_timezone: str, from_timezone: str | None = None) -> Expression:
    """Convert to another timezone; a timestamp without a timezone is local to ``from_timezone``.

    >>> import datetime
    >>> df = ps.from_pydict({"t": [datetime.datetime(2024, 7, 3, 10)]})
    >>> df.select(strftime(convert_time_zone(ps.col("t"), "Asia/Tokyo", "UTC"))).to_pydict()
    {'t': ['2024-07-03T19:00:00+0900']}
    """
    zones = {"to_timezone": checked_timezone(to_timezone), "from_timezone": checked_timezone(from_timezone)}
    return call("convert_time_zone", expr, **zones)


def _converted_type(dtype: DataType, *, to_timezone: str, from_timezone: str | None) -> DataType:
    if dtype.is_timestamp() and dtype.timezone is None and from_timezone is None:
        raise InvalidArgumentError("convert_time_zone: the timestamp has no timezone; set from_timezone=")
    return dtype if dtype.is_null() else DataType.timestamp(dtype.unit, to_timezone)


@strict("convert_time_zone", takes(TIMESTAMP, returns=_converted_type))
def _convert_time_zone(value: Value, *, to_timezone: str, from_timezone: str | None) -> Value:
    if value.type.tz is None:
        value = _placed(value, from_timezone)
    return pc.cast(value, pa.timestamp(value.type.unit, to_timezone))


@method
def replace_time_zone(expr: Expression, timezone: str | None = None) -> Expression:
    """Replace or remove the timezone and keep the local time.

    >>> import datetime
    >>> df = ps.from_pydict({"t": [datetime.datetime(2024, 7, 3, 10)]})
    >>> df.select(strftime(replace_time_zone(ps.col("t"), "Asia/Tokyo"))).to_pydict()
    {'t': ['2024-07-03T10:00:00+0900']}
    """
    return call("replace_time_zone", expr, timezone=checked_timezone(timezone))


def _replaced_type(dtype: DataType, *, timezone: str | None) -> DataType:
    return dtype if dtype.is_null() else DataType.timestamp(dtype.unit, timezone)


@strict("replace_time_zone", takes(TIMESTAMP, returns=_replaced_type))
def _replace_time_zone(value: Value, *, timezone: str | None) -> Value:
    local = _local(value)
    return local if timezone is None else _placed(local, timezone)
