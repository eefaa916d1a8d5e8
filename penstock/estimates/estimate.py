"""The result of ``plan_cost``: figures for programs, and a table for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.estimates.extrapolation import NOTHING, Interval, ModelEstimate
from penstock.observe.printable import aligned_lines, format_count, format_dollars, format_seconds

HEADER = ("model", "calls", "tokens in", "tokens out", "dollars")
SUMMED = ("calls", "tokens_in", "tokens_out", "dollars")
PER_ROWS = 1_000
"""The figures are for this many rows if the number of all rows is not known."""


@dataclass(frozen=True, repr=False)
class CostEstimate:
    """The cost of a query, estimated from a sample. ``low`` and ``high`` are the ends of a 90 % interval.

    The figures are for all ``total_rows``, or for 1,000 rows if their number is not known (None). ``sample_dollars`` is
    what the sample itself cost. A figure is None if it is unknown: dollars if there is no price, or no row of the
    sample made a call; seconds if calls go through a batch API.
    """

    total_rows: int | None
    sampled_rows: int
    models: tuple[ModelEstimate, ...]
    sample_dollars: float | None
    notes: tuple[str, ...]
    calls: float
    calls_low: float
    calls_high: float
    tokens_in: float
    tokens_in_low: float
    tokens_in_high: float | None
    tokens_out: float
    tokens_out_low: float
    tokens_out_high: float | None
    dollars: float | None
    dollars_low: float | None
    dollars_high: float | None
    seconds: float | None  # roughly
    seconds_low: float | None
    seconds_high: float | None

    @staticmethod
    def of(
        total_rows: int | None,
        sampled_rows: int,
        models: Sequence[ModelEstimate],
        seconds: Interval | None,
        sample_dollars: float | None,
        notes: Sequence[str] = (),
        unseen_calls: float = 0.0,
    ) -> CostEstimate:
        """Return the estimate with the figures of all models added up.

        If no row of the sample made a call, ``unseen_calls`` is the most calls that other rows may make; their cost is
        unknown.
        """
        figures: dict[str, Any] = {}
        for name in ("calls", "tokens_in", "tokens_out", "dollars", "seconds"):
            whole = seconds if name == "seconds" else _sum(getattr(model, name) for model in models)
            for end in ("middle", "low", "high"):
                key = name if end == "middle" else f"{name}_{end}"
                figures[key] = None if whole is None else getattr(whole, end)
        if unseen_calls:
            figures |= {"calls_high": unseen_calls, "tokens_in_high": None, "tokens_out_high": None}
            figures |= {"dollars": None, "dollars_high": None}
        return CostEstimate(total_rows, sampled_rows, tuple(models), sample_dollars, tuple(notes), **figures)

    @property
    def num_rows(self) -> int:
        """The number of rows that the figures are for."""
        return PER_ROWS if self.total_rows is None else self.total_rows

    def __repr__(self) -> str:
        rows = self._rows()
        if not rows:
            return "\n".join(self._lines())
        first, *rest = self._lines()
        return "\n".join([first, "", *aligned_lines(HEADER, rows), "", *rest])

    __str__ = __repr__

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [_row(f"{m.provider} {m.model}", m.calls, m.tokens_in, m.tokens_out, m.dollars) for m in self.models]
        if len(rows) > 1:
            whole = {name: _sum(getattr(model, name) for model in self.models) for name in SUMMED}
            rows.append(_row("together", *whole.values()))
        return rows

    def _lines(self) -> list[str]:
        """Return the lines above and below the table."""
        if self.total_rows is None:
            whole = f"For each {PER_ROWS:,} rows (the number of all rows is not known)"
        else:
            whole = f"For {format_count(self.total_rows, 'row')}"
        lines = [f"{whole}, by a sample of {self.sampled_rows:,} (in brackets: the 90 % interval)"]
        if not self.models and self.dollars is None:
            lines = [f"{whole}, by a sample of {self.sampled_rows:,}: no row of it called a model: not known"]
        elif not self.models:
            lines = [f"{whole}, by a sample of {self.sampled_rows:,}: no calls to remote models, $0"]
        lines.append(self._time())
        if self.models:
            paid = (
                "at a price that is not known" if self.sample_dollars is None else format_dollars(self.sample_dollars)
            )
            lines.append(f"The sample itself: {paid}")
        return [*lines, *self.notes]

    def _time(self) -> str:
        if self.seconds is None or self.seconds_low is None or self.seconds_high is None:
            return "Time: not known; batches are answered within a day, most within the hour"
        middle, low, high = map(format_seconds, (self.seconds, self.seconds_low, self.seconds_high))
        return f"Time, roughly: {middle}" + ("" if low == high else f" ({low} to {high})")


def _sum(ranges: Iterable[Interval | None]) -> Interval | None:
    """Return the sum, or None if a part of it is not known."""
    whole = NOTHING
    for each in ranges:
        if each is None:
            return None
        whole += each
    return whole


def _row(name: str, *figures: Interval | None) -> tuple[str, ...]:
    *counts, dollars = figures
    shown = [_shown(each, compact) for each in counts]
    return name, *shown, _shown(dollars, format_dollars)


def _shown(figure: Interval | None, format_one: Callable[[float], str]) -> str:
    if figure is None:
        return "not known"
    middle, low, high = format_one(figure.middle), format_one(figure.low), format_one(figure.high)
    return middle if middle == low == high else f"{middle} ({low} to {high})"


def compact(number: float) -> str:
    """Format a number with about three digits.

    >>> compact(950), compact(12_345), compact(999_999), compact(52_100_000), compact(0.4)
    ('950', '12.3k', '1.00M', '52.1M', '0.4')
    """
    if 0 < number < 10 and number != int(number):
        return f"{number:.1f}"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size * 0.9995:
            scaled = number / (1e3 if unit == "k" else size)
            return f"{scaled:.{max(0, 3 - len(str(int(scaled + 0.5))))}f}{unit}"
    return f"{number:,.0f}"
