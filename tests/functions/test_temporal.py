"""Dates, times, timestamps and durations."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import penstock as ps
from penstock import functions as f
from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.expr.column import Expression, col
from penstock.types import DataType
from tests.expr.evaluating import evaluate, resolved

t = col("t")
MOMENTS = [dt.datetime(2024, 2, 29, 23, 5, 7, 123456), None, dt.datetime(1969, 12, 31, 1, 0)]
DAYS = [dt.date(2024, 12, 30), None]
TOKYO = pa.array([dt.datetime(2024, 12, 31, 20, tzinfo=dt.UTC), None], pa.timestamp("us", "Asia/Tokyo"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.year(t), [2024, None, 1969]),
        (f.quarter(t), [1, None, 4]),
        (f.month(t), [2, None, 12]),
        (f.day(t), [29, None, 31]),
        (f.week_of_year(t), [9, None, 1]),
        (f.day_of_week(t), [3, None, 2]),
        (f.day_of_year(t), [60, None, 365]),
        (f.hour(t), [23, None, 1]),
        (f.minute(t), [5, None, 0]),
        (f.second(t), [7, None, 0]),
        (f.millisecond(t), [123, None, 0]),
        (f.microsecond(t), [123456, None, 0]),
        (f.nanosecond(t), [123456000, None, 0]),
        (f.date(t), [dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)]),
        (f.time(t), [dt.time(23, 5, 7, 123456), None, dt.time(1, 0)]),
        (f.date_trunc("1 hour", t), [dt.datetime(2024, 2, 29, 23), None, dt.datetime(1969, 12, 31, 1)]),
        (t.date_trunc("week"), [dt.datetime(2024, 2, 26), None, dt.datetime(1969, 12, 29)]),
        (f.trunc(t, "1 month"), [dt.datetime(2024, 2, 1), None, dt.datetime(1969, 12, 1)]),
        (f.trunc(t, "15 minutes"), [dt.datetime(2024, 2, 29, 23), None, dt.datetime(1969, 12, 31, 1)]),
        (f.strftime(t), ["2024-02-29T23:05:07.123456", None, "1969-12-31T01:00:00"]),
        (f.strftime(t, "%d.%m.%y %H:%M:%S"), ["29.02.24 23:05:07", None, "31.12.69 01:00:00"]),
        (f.strftime(t, "%S.%f"), ["07.123456", None, "00.000000"]),
        (f.to_unix_epoch(t), [1709247907, None, -82800]),
        (f.to_unix_epoch(t, "us"), [1709247907123456, None, -82800000000]),
    ],
)
def test_timestamps(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, t=MOMENTS) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.year(t), [2024, None]),
        (f.week_of_year(t), [1, None]),
        (f.day_of_week(t), [0, None]),
        (f.date(t), DAYS),
        (f.trunc(t, "year"), [dt.date(2024, 1, 1), None]),
        (f.strftime(t), ["2024-12-30", None]),
        (f.strftime(t, "%d.%m."), ["30.12.", None]),
        (f.to_unix_epoch(t, "ms"), [1735516800000, None]),
    ],
)
def test_dates(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, t=DAYS) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f.year(t), [2025, None]),
        (f.hour(t), [5, None]),
        (f.date(t), [dt.date(2025, 1, 1), None]),
        (f.time(t), [dt.time(5, 0), None]),
        (f.strftime(t), ["2025-01-01T05:00:00+0900", None]),
        (f.strftime(t, "%H:%M"), ["05:00", None]),
        (f.to_unix_epoch(t), [1735675200, None]),
        (f.trunc(t, "day"), [dt.datetime(2025, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")), None]),
        (f.replace_time_zone(t), [dt.datetime(2025, 1, 1, 5), None]),
        (f.convert_time_zone(t, "UTC"), [dt.datetime(2024, 12, 31, 20, tzinfo=ZoneInfo("UTC")), None]),
    ],
)
def test_parts_are_local_to_the_timezone(expression: Expression, expected: list[Any]) -> None:
    assert evaluate(expression, t=TOKYO) == expected


def test_times() -> None:
    times = [dt.time(23, 5, 7, 5), None]
    assert evaluate(f.hour(t), t=times) == [23, None]
    assert evaluate(f.microsecond(t), t=times) == [5, None]
    assert evaluate(f.time(t), t=times) == times


def test_timezones_of_local_timestamps() -> None:
    moments = [dt.datetime(2024, 7, 3, 10), None]
    tokyo = ZoneInfo("Asia/Tokyo")
    assert evaluate(f.replace_time_zone(t, "Asia/Tokyo"), t=moments) == [moments[0].replace(tzinfo=tokyo), None]
    converted = evaluate(f.convert_time_zone(t, "Asia/Tokyo", "UTC"), t=moments)
    assert converted == [dt.datetime(2024, 7, 3, 19, tzinfo=tokyo), None]
    with pytest.raises(InvalidArgumentError, match="from_timezone="):
        resolved(f.convert_time_zone(t, "UTC"), t=moments)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations(unit: str) -> None:
    spans = pa.array([dt.timedelta(days=1.5), None, dt.timedelta(seconds=-90)], pa.duration(unit))
    for function, expected in {
        f.total_days: [1, None, 0],
        f.total_hours: [36, None, 0],
        f.total_minutes: [2160, None, -1],
        f.total_seconds: [129600, None, -90],
        f.total_milliseconds: [129600000, None, -90000],
        f.total_microseconds: [129600000000, None, -90000000],
        f.total_nanoseconds: [129600000000000, None, -90000000000],
    }.items():
        assert evaluate(function(t), t=spans) == expected


@pytest.mark.parametrize(
    ("expression", "texts", "expected"),
    [
        (f.to_date(t, "%d.%m.%Y"), ["03.07.2024", None], [dt.date(2024, 7, 3), None]),
        (
            f.to_datetime(t, "%Y-%m-%d %H:%M:%S"),
            ["2024-07-03 10:20:30", None],
            [dt.datetime(2024, 7, 3, 10, 20, 30), None],
        ),
        (
            f.to_datetime(t, "%Y-%m-%d %H:%M:%S.%f"),
            ["2024-07-03 10:20:30.5"],
            [dt.datetime(2024, 7, 3, 10, 20, 30, 500000)],
        ),
        (
            f.to_datetime(t, "%Y-%m-%d %H:%M:%S%.3f"),
            ["2024-07-03 10:20:30.123"],
            [dt.datetime(2024, 7, 3, 10, 20, 30, 123000)],
        ),
        (
            f.to_datetime(t, "%Y-%m-%d %H:%M %z"),
            ["2024-07-03 10:20 +0200", None],
            [dt.datetime(2024, 7, 3, 8, 20, tzinfo=ZoneInfo("UTC")), None],
        ),
        (f.to_date(t, "%Y-%m-%d %H:%M %z"), ["2024-07-03 00:20 +0200", None], [dt.date(2024, 7, 3), None]),
        (
            f.to_datetime(t, "%Y-%m-%d %H:%M", "Asia/Tokyo"),
            ["2024-07-03 10:20", None],
            [dt.datetime(2024, 7, 3, 10, 20, tzinfo=ZoneInfo("Asia/Tokyo")), None],
        ),
        (
            f.to_datetime(t, "%Y-%m-%d %H:%M %z", "Asia/Tokyo"),
            ["2024-07-03 10:20 +0000", None],
            [dt.datetime(2024, 7, 3, 19, 20, tzinfo=ZoneInfo("Asia/Tokyo")), None],
        ),
    ],
)
def test_parsing(expression: Expression, texts: list[Any], expected: list[Any]) -> None:
    assert evaluate(expression, t=texts) == expected


def test_text_that_does_not_parse() -> None:
    with pytest.raises(ComputeError, match="to_date: time data 'oops' does not match format"):
        evaluate(f.to_date(t, "%Y"), t=["2024", "oops"])


def test_from_unix_epoch() -> None:
    assert evaluate(f.from_unix_epoch(t), t=[86400, None]) == [dt.datetime(1970, 1, 2), None]
    assert resolved(f.from_unix_epoch(t, "ms"), t=[1]) == DataType.timestamp("ms")


def test_bad_arguments() -> None:
    with pytest.raises(InvalidArgumentError, match="Did you mean 'minute'"):
        f.date_trunc("5 minuts", t)
    with pytest.raises(InvalidArgumentError, match="one of s, ms, us, ns"):
        f.to_unix_epoch(t, "sec")
    with pytest.raises(TypeMismatchError, match="expected a date or timestamp, got string"):
        resolved(f.year(t), t=["2024"])
    with pytest.raises(TypeMismatchError, match="expected a timestamp or time, got date"):
        resolved(f.hour(t), t=DAYS)
    with pytest.raises(TypeMismatchError, match="expected a duration"):
        resolved(f.total_days(t), t=[1])


@pytest.mark.parametrize(
    "build",
    [
        lambda zone: f.to_datetime(t, "%Y", zone),
        lambda zone: f.convert_time_zone(t, zone),
        lambda zone: f.convert_time_zone(t, "UTC", zone),
        lambda zone: f.replace_time_zone(t, zone),
        lambda zone: t.cast(f"timestamp[us, {zone}]"),
        lambda zone: DataType.timestamp("us", zone),
    ],
)
def test_an_unknown_timezone_is_refused_when_built(build: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'Europe/Pariss' is not a timezone.* Did you mean 'Europe/Paris'"):
        build("Europe/Pariss")


def test_a_local_time_that_clocks_skip() -> None:
    skipped, twice = dt.datetime(2024, 3, 31, 2, 30), dt.datetime(2024, 10, 27, 2, 30)
    for expression in (f.replace_time_zone(t, "Europe/Paris"), f.convert_time_zone(t, "UTC", "Europe/Paris")):
        with pytest.raises(ComputeError, match="does not exist in Europe/Paris"):
            evaluate(expression, t=[skipped])
    with pytest.raises(ComputeError, match="does not exist in Europe/Paris"):
        evaluate(f.to_datetime(t, "%Y-%m-%d %H:%M", "Europe/Paris"), t=["2024-03-31 02:30"])
    assert evaluate(f.convert_time_zone(t, "UTC", "Europe/Paris"), t=[twice]) == [
        dt.datetime(2024, 10, 27, 0, 30, tzinfo=ZoneInfo("UTC"))
    ]


def moments(zone: str, *given: dt.datetime) -> pa.Array:
    return pa.array([each.replace(tzinfo=dt.UTC) for each in given], pa.timestamp("us", zone))


@pytest.mark.parametrize(
    ("zone", "interval", "given", "expected"),
    [
        ("America/New_York", "hour", (2025, 11, 2, 5, 40), (2025, 11, 2, 5)),  # the first 1:40
        ("America/New_York", "hour", (2025, 11, 2, 6, 40), (2025, 11, 2, 6)),  # the second
        ("America/New_York", "15 minutes", (2025, 11, 2, 6, 40), (2025, 11, 2, 6, 30)),
        ("America/New_York", "microsecond", (2025, 11, 2, 6, 40), (2025, 11, 2, 6, 40)),
        ("America/New_York", "2 hours", (2025, 3, 9, 7, 40), (2025, 3, 9, 7)),  # clocks skip 2:00
        ("America/New_York", "day", (2025, 11, 2, 6, 40), (2025, 11, 2, 4)),
        ("Europe/Berlin", "hour", (2025, 10, 26, 0, 40), (2025, 10, 26, 0)),
        ("Europe/Berlin", "hour", (2025, 10, 26, 1, 40), (2025, 10, 26, 1)),
        ("America/Havana", "day", (2025, 11, 2, 5, 30), (2025, 11, 2, 4)),  # midnight comes twice
        ("America/Havana", "day", (2025, 11, 2, 4, 30), (2025, 11, 2, 4)),
        ("America/Havana", "day", (2025, 3, 9, 15), (2025, 3, 9, 5)),  # there is no midnight
        ("+05:30", "hour", (2025, 11, 2, 5, 40), (2025, 11, 2, 5, 30)),
    ],
)
def test_intervals_where_clocks_change(
    zone: str, interval: str, given: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    table = pa.table({"t": moments(zone, dt.datetime(*given))})  # type: ignore[arg-type]
    found = ps.from_arrow(table).select(f.date_trunc(interval, t)).to_arrow()["t"]
    assert found.type == table["t"].type
    assert found.cast(pa.timestamp("us", "UTC")).to_pylist() == [dt.datetime(*expected, tzinfo=dt.UTC)]  # type: ignore[misc, arg-type]


@pytest.mark.parametrize("dtype", ["timestamp[us]", "timestamp[ms]", "timestamp[us, UTC]", "timestamp[ns]"])
@pytest.mark.parametrize("format", ["%d.%m.%y %H:%M:%S", "%Y-%m-%d %H:%M:%S", "%j %I %p"])
def test_text_of_times_before_1970_with_fractions(dtype: str, format: str) -> None:
    given = [dt.datetime(1969, 12, 31, 23, 59, 59, 500_000), dt.datetime(1912, 4, 14, 23, 40, 0, 1_000)]
    df = ps.from_pydict({"t": given}).select(t.cast(dtype))
    assert df.select(f.strftime(t, format)).to_pydict() == {"t": [each.strftime(format) for each in given]}
