"""Totals of each stage of a query, added up from its events."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import QueryCancelledError
from penstock.events.events import (
    BundleProduced,
    Event,
    GpuUse,
    ModelSample,
    QueryFinished,
    QuerySampled,
    QueryStarted,
    RowsFailed,
    StageFinished,
)
from penstock.observe.bottleneck import bottleneck_text
from penstock.observe.forecast import Forecast
from penstock.observe.printable import (
    aligned_lines,
    format_bytes,
    format_count,
    format_dollars,
    format_number,
    format_seconds,
    terminal_width,
    visible_text,
    wrapped_text,
)
from penstock.observe.stage_stats import StageStats, stage_stats
from penstock.observe.stats_table import fitted_table, short_name, stage_columns

NOTHING_YET = "No query has run."
MAX_SAMPLES = 512  # points of the timeline; with more, every second one is dropped

SCHEMA = pa.schema(
    {
        "stage": pa.string(),
        **dict.fromkeys(("num_rows", "nbytes", "num_bundles", "num_failed"), pa.int64()),
        **dict.fromkeys(("busy_s", "wall_s"), pa.float64()),
        "batch_rows": pa.int64(),
        **dict.fromkeys(("waited_input_s", "waited_output_s", "waited_workers_s"), pa.float64()),
        **dict.fromkeys(("peak_nbytes", "num_workers"), pa.int64()),
    }
)


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """A sample, with the rows that each stage had given by then. ``elapsed_s`` is the time since the start."""

    elapsed_s: float
    num_rows: tuple[int, ...]
    sample: QuerySampled


class Stats:
    """The totals of a query, and how it went: ``print(df.stats())`` shows them as a table.

    ``stages`` has the figures of each stage, ``table()`` the same as an Arrow table, ``models`` the calls to models,
    ``counters`` and ``gauges`` the user's ``ps.metrics``, ``skipped_files`` the corrupt files that were skipped: the
    path, the reason, and whether rows before the damage remain. It subscribes to one query after another.

    >>> from penstock.events.events import StageInfo
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
        self._clear()

    def _clear(self) -> None:
        self.stages: list[StageStats] = []
        self.forecast = Forecast(self.stages)
        self.gpus: tuple[GpuUse, ...] = ()
        self.models: tuple[ModelSample, ...] = ()
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.skipped_files: tuple[tuple[str, str, bool], ...] = ()
        self.timeline: list[TimelinePoint] = []
        self.elapsed_s: float | None = None
        self.error: BaseException | None = None
        self.has_closing_line = False  # the progress has printed how the query ended
        self.is_paused = False
        self.reader_s = 0.0  # seconds that the query waited for the reader of its rows
        self.peak_nbytes = 0  # data held by all stages
        self.peak_rss_bytes = 0
        self._started_s = self._sampled_s = 0.0
        self._interval_s = 0.0  # between the points of the timeline

    def on_event(self, event: Event) -> None:
        match event:
            case BundleProduced(stage, num_rows, nbytes, busy_s):
                stats = self.stages[stage]
                stats.num_rows += num_rows
                stats.nbytes += nbytes
                stats.num_bundles += num_rows > 0
                stats.busy_s += busy_s
            case QuerySampled():
                self._add_sample(event)
            case RowsFailed(stage, errors):
                self.stages[stage].num_failed += len(errors)
            case StageFinished(stage, time_s, batch_rows):
                self.stages[stage].wall_s = time_s - self._started_s
                self.stages[stage].batch_rows = batch_rows
            case QueryStarted(stages, time_s):
                self._clear()
                self.stages = stage_stats(stages)
                self.forecast = Forecast(self.stages, time_s)
                self._started_s = self._sampled_s = time_s
            case QueryFinished(error, time_s):
                self.error = error
                self.elapsed_s = time_s - self._started_s
                for stats in self.stages:
                    stats.wall_s = self.elapsed_s if stats.wall_s is None else stats.wall_s

    def _add_sample(self, event: QuerySampled) -> None:
        seconds = event.time_s - self._sampled_s - (event.reader_s - self.reader_s)
        for stats, sample in zip(self.stages, event.stages, strict=False):
            stats.add_sample(sample, max(seconds, 0.0))
            if stats.writes is not None:
                stats.num_written = self.stages[stats.writes].num_rows - sample.num_rows_queued
        self._sampled_s, self.reader_s = event.time_s, event.reader_s
        self.peak_nbytes = max(self.peak_nbytes, event.nbytes_held)
        self.peak_rss_bytes = max(self.peak_rss_bytes, event.measures.rss_bytes)
        self.models, self.gpus = event.measures.models, event.measures.gpus
        self.is_paused = event.is_paused
        self.forecast.update(event.time_s, self.models, event.is_paused)
        self.skipped_files = event.measures.skipped_files
        self.counters, self.gauges = dict(event.measures.counters), dict(event.measures.gauges)
        elapsed_s = event.time_s - self._started_s
        if self.timeline and elapsed_s < self.timeline[-1].elapsed_s + self._interval_s:
            return
        self.timeline.append(TimelinePoint(elapsed_s, tuple(stats.num_rows for stats in self.stages), event))
        if len(self.timeline) > MAX_SAMPLES:
            del self.timeline[1::2]
            self._interval_s = 2 * elapsed_s / MAX_SAMPLES

    def table(self) -> pa.Table:
        """Return one row per stage, with the columns of ``StageStats`` that are numbers."""
        rows = [{name: getattr(stats, name) for name in SCHEMA.names} for stats in self.stages]
        return pa.Table.from_pylist(rows, SCHEMA)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        from penstock.observe.screens import NOTEBOOK_WIDTH, is_notebook

        return self.text(NOTEBOOK_WIDTH if is_notebook() else terminal_width(sys.stdout))

    def text(self, width: int | None) -> str:
        """Return the table and the lines below it, ``width`` cells wide; None allows any width.

        On a narrow terminal the least useful columns are left out; no number is cut.
        """
        if not self.stages:
            return NOTHING_YET
        header, *rows = fitted_table(stage_columns(self.stages), width)
        lines = [line for note in self._notes() for line in wrapped_text(note, width)]
        return "\n".join([*aligned_lines(header, rows), *lines])

    def _notes(self) -> list[str]:
        """Return the lines about the query: the summary, the bottleneck, batches, models, GPUs and metrics."""
        found = [f"{short_name(s)}: found batches of {s.batch_rows:,} rows" for s in self.stages if s.batch_rows]
        lines = [self._summary(), self.bottleneck_text(), *found, *map(model_text, self.models)]
        return [line for line in [*lines, *map(_gpu_line, self.gpus), *self.metric_lines()] if line]

    def _summary(self) -> str:
        if self.elapsed_s is None:
            return "still running"
        total_busy_s = sum(stats.busy_s for stats in self.stages)
        busiest = max(self.stages, key=lambda stats: stats.busy_s)
        ending = "finished in" if self.error is None else f"{ended_by(self.error)} ({type(self.error).__name__}) after"
        share = f"; most work in {short_name(busiest)} ({busiest.busy_s / total_busy_s:.0%})" if total_busy_s else ""
        held = f"; held up to {format_bytes(self.peak_nbytes)} of data" if self.peak_nbytes else ""
        rss = f" in a process of {format_bytes(self.peak_rss_bytes)}" if held and self.peak_rss_bytes else ""
        num_failed = sum(stats.num_failed for stats in self.stages)
        failed = f"; {format_count(num_failed, 'row')} failed, see errors()" if num_failed else ""
        return f"{ending} {format_seconds(self.elapsed_s)}{share}{held}{rss}{failed}"

    def bottleneck_text(self) -> str:
        """Return sentences that name the bottleneck and what would help, or nothing."""
        return bottleneck_text(self.stages, self.elapsed_s or 0.0, self.reader_s, self.models, self.gpus)

    def metric_lines(self) -> list[str]:
        """Return a line for each counter and gauge."""
        return [
            f"{visible_text(name)}: {format_number(value)}"
            for name, value in [*self.counters.items(), *self.gauges.items()]
        ]

    def result_size(self) -> tuple[int, int]:
        """Return the rows and bytes of the result, or of the written files."""
        if not self.stages:
            return 0, 0
        last = self.stages[-1]
        result = last if last.writes is None else self.stages[last.writes]
        return result.num_rows, result.nbytes


def ended_by(error: BaseException) -> str:
    """Return how a query with an error ended."""
    return "stopped" if isinstance(error, KeyboardInterrupt | QueryCancelledError) else "failed"


def model_text(use: ModelSample) -> str:
    """Return the calls to a model as one line."""
    parts = [
        format_count(use.num_calls, "call"),
        f"{use.num_cached:,} cached" if use.num_cached else "",
        f"{use.num_retried:,} retried" if use.num_retried else "",
        f"{use.num_refused:,} refused" if use.num_refused else "",
        f"{use.input_tokens:,} + {use.output_tokens:,} tokens",
        "price not known" if use.dollars is None else format_dollars(use.dollars),
    ]
    return f"{use.provider} {visible_text(use.model)}: " + ", ".join(part for part in parts if part)


def _gpu_line(use: GpuUse) -> str:
    power = "" if use.power_w is None else f", {use.power_w:.0f} W"
    memory = f"{format_bytes(use.memory_bytes)} of {format_bytes(use.total_bytes)}"
    return f"GPU {use.gpu}: {use.busy:.0%} busy, at most {memory}{power}"
