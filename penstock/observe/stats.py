"""Totals of each stage of a query, added up from its events."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pyarrow as pa

from penstock.observe.events import (
    BundleProduced,
    Event,
    GpusSampled,
    GpuUse,
    QueryFinished,
    QueryStarted,
    RowsFailed,
    StageFinished,
)
from penstock.observe.text import cell_width, fit, format_bytes, format_count, format_rate, format_seconds, visible_text

MAX_NAME_WIDTH = 48
HEADER = ("stage", "rows", "failed", "bytes", "bundles", "busy", "wall", "rate")  # "failed" only if any row did

SCHEMA = pa.schema(
    {
        "stage": pa.string(),
        **dict.fromkeys(("num_rows", "nbytes", "num_bundles", "num_failed"), pa.int64()),
        "busy_s": pa.float64(),
        "wall_s": pa.float64(),
        "batch_rows": pa.int64(),
    }
)


@dataclass(slots=True)
class StageStats:
    """Totals of one stage. ``num_failed`` counts rows that are null or missing because their function failed.

    ``busy_s`` adds up all workers, so it can exceed ``wall_s``, the time from the start of the query to the end of the
    stage (None while it runs). ``batch_rows`` is the batch size found by measurement.
    """

    stage: str
    num_rows: int = 0
    nbytes: int = 0
    num_bundles: int = 0
    num_failed: int = 0
    busy_s: float = 0.0
    wall_s: float | None = None
    batch_rows: int | None = None
    writes: int | None = None  # the stage whose rows a write counts


class Stats:
    """A Subscriber with the totals of the last query, for ``df.stats()`` and ``explain(analyze=True)``.

    >>> from penstock.observe.events import StageInfo
    >>> stats = Stats()
    >>> for event in (
    ...     QueryStarted((StageInfo(0, "Scan"), StageInfo(1, "Map")), time_s=10.0),
    ...     BundleProduced(0, 1000, 64_000, 0.5),
    ...     BundleProduced(1, 1000, 8_000, 3.5),
    ...     StageFinished(0, 11.0),
    ...     QueryFinished(None, 12.0),
    ... ):
    ...     stats.on_event(event)
    >>> print(stats)
    stage   rows    bytes  bundles    busy   wall          rate
    -----  -----  -------  -------  ------  -----  ------------
    Scan   1,000  64.0 kB        1  500 ms  1.0 s  1,000 rows/s
    Map    1,000   8.0 kB        1   3.5 s  2.0 s    500 rows/s
    finished in 2.0 s; most work in Map (88%)
    """

    def __init__(self) -> None:
        self.stages: list[StageStats] = []
        self.gpus: tuple[GpuUse, ...] = ()
        self.elapsed_s: float | None = None
        self.error: BaseException | None = None
        self._started_s = 0.0

    def on_event(self, event: Event) -> None:
        match event:
            case BundleProduced(stage, num_rows, nbytes, busy_s):
                stats = self.stages[stage]
                stats.num_rows += num_rows
                stats.nbytes += nbytes
                stats.num_bundles += 1
                stats.busy_s += busy_s
            case RowsFailed(stage, errors):
                self.stages[stage].num_failed += len(errors)
            case StageFinished(stage, time_s, batch_rows):
                self.stages[stage].wall_s = time_s - self._started_s
                self.stages[stage].batch_rows = batch_rows
            case QueryStarted(stages, time_s):
                self.stages = [StageStats(info.name, writes=info.writes) for info in stages]
                self.elapsed_s, self.error, self._started_s, self.gpus = None, None, time_s, ()
            case GpusSampled(gpus):
                self.gpus = gpus
            case QueryFinished(error, time_s):
                self.error = error
                self.elapsed_s = time_s - self._started_s
                for stats in self.stages:
                    stats.wall_s = self.elapsed_s if stats.wall_s is None else stats.wall_s

    def table(self) -> pa.Table:
        """Return one row per stage, with a column for each field of ``StageStats``."""
        return pa.Table.from_pylist([asdict(stats) for stats in self.stages], SCHEMA)

    def __str__(self) -> str:
        if not self.stages:
            return "No query has run."
        rows = [HEADER, *(_row(stats) for stats in self.stages)]
        if not self._num_failed:
            rows = [(*row[:2], *row[3:]) for row in rows]
        widths = [max(map(cell_width, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, tuple("-" * width for width in widths))
        found = [f"{_name(s)}: found batches of {s.batch_rows:,} rows" for s in self.stages if s.batch_rows]
        return "\n".join([*(_line(row, widths) for row in rows), self._summary(), *found, *map(_gpu_line, self.gpus)])

    def _summary(self) -> str:
        if self.elapsed_s is None:
            return "still running"
        total_busy_s = sum(stats.busy_s for stats in self.stages)
        busiest = max(self.stages, key=lambda stats: stats.busy_s)
        ending = f"failed ({type(self.error).__name__}) after" if self.error is not None else "finished in"
        share = f"; most work in {_name(busiest)} ({busiest.busy_s / total_busy_s:.0%})" if total_busy_s else ""
        return f"{ending} {format_seconds(self.elapsed_s)}{share}{self.failed_text()}"

    def result_size(self) -> tuple[int, int]:
        """Return the rows and bytes of the result, or those that were written."""
        if not self.stages:
            return 0, 0
        last = self.stages[-1]
        result = last if last.writes is None else self.stages[last.writes]
        return result.num_rows, result.nbytes

    def failed_text(self) -> str:
        """Return the number of failed rows as the end of a summary."""
        return f"; {format_count(self._num_failed, 'row')} failed, see errors()" if self._num_failed else ""

    @property
    def _num_failed(self) -> int:
        return sum(stats.num_failed for stats in self.stages)


def _gpu_line(use: GpuUse) -> str:
    power = "" if use.power_w is None else f", {use.power_w:.0f} W"
    memory = f"{format_bytes(use.memory_bytes)} of {format_bytes(use.total_bytes)}"
    return f"GPU {use.gpu}: {use.busy:.0%} busy, at most {memory}{power}"


def _name(stats: StageStats) -> str:
    return fit(visible_text(stats.stage), MAX_NAME_WIDTH)


def _row(stats: StageStats) -> tuple[str, ...]:
    return (
        _name(stats),
        f"{stats.num_rows:,}",
        f"{stats.num_failed:,}",
        format_bytes(stats.nbytes),
        f"{stats.num_bundles:,}",
        format_seconds(stats.busy_s),
        "-" if stats.wall_s is None else format_seconds(stats.wall_s),
        format_rate(stats.num_rows / stats.wall_s) if stats.wall_s else "-",
    )


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    """Return a line with the first value aligned left and the others right."""
    padded = [" " * (width - cell_width(value)) for value, width in zip(row, widths, strict=True)]
    return "  ".join([row[0] + padded[0], *(pad + value for pad, value in zip(padded[1:], row[1:], strict=True))])
