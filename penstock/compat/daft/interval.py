"""``daft.interval``: durations, and calendar intervals of months, which have no fixed length."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from penstock.compat.translation import refusal
from penstock.expr.column import Expression, lit
from penstock.functions import add_months, date


class CalendarInterval(Expression):
    """Months and a duration. A date or timestamp first moves by the months, at most to the last day of the month."""

    __slots__ = ("_duration", "_months")

    def __init__(self, months: int, duration: dt.timedelta) -> None:
        within_day = dt.timedelta(seconds=duration.seconds, microseconds=duration.microseconds)
        parts = (months, duration.days, within_day // dt.timedelta(microseconds=1) * 1000)
        super().__init__(lit(pa.scalar(parts, pa.month_day_nano_interval()))._node)
        self._months, self._duration = months, duration

    def __add__(self, moment: Any) -> Expression:
        return self._moved(lit(moment), 1)

    def __radd__(self, moment: Any) -> Expression:
        return self._moved(lit(moment), 1)

    def __rsub__(self, moment: Any) -> Expression:
        return self._moved(lit(moment), -1)

    def _moved(self, moment: Expression, sign: int) -> Expression:
        day = date(moment)
        return moment + (add_months(day, sign * self._months) - day) + sign * self._duration


def interval(*, years: int | None = None, months: int | None = None, days: int = 0, hours: int = 0, minutes: int = 0,
             seconds: int = 0, millis: int = 0, nanos: int = 0) -> Expression:  # fmt: skip
    """Return a duration, or a calendar interval to add to dates and timestamps if there are months or years."""
    microseconds, rest = divmod(nanos, 1000)
    if rest:
        raise refusal("interval(nanos=...) below a microsecond")
    duration = dt.timedelta(days, seconds, microseconds, millis, minutes, hours)
    num_months = 12 * (years or 0) + (months or 0)
    return CalendarInterval(num_months, duration) if num_months else lit(duration)
