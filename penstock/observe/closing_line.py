"""The line that a query leaves when it ends: rows, cost, time, and the place of the result."""

from __future__ import annotations

import os

from penstock.observe.printable import format_count, format_dollars, format_rate, format_seconds
from penstock.observe.stats import Stats, ended_by
from penstock.types.frozen import frozen


@frozen
class Destination:
    """The place that a query writes to. A job continues there when it is run again."""

    name: str
    is_job: bool = False


@frozen
class QueryTotals:
    """The figures of a query as people and programs get them; ``dollars`` is None if no price is known."""

    rows: int
    failed: int
    calls: int
    input_tokens: int
    output_tokens: int
    cached: int
    dollars: float | None
    seconds: float


def query_totals(stats: Stats, elapsed_s: float | None = None) -> QueryTotals:
    """Return the totals of a query that has ended; ``elapsed_s`` replaces its time."""
    models = stats.models
    priced = [use.dollars for use in models if use.dollars is not None]
    return QueryTotals(
        rows=stats.result_size()[0],
        failed=sum(stage.num_failed_so_far for stage in stats.stages),
        calls=sum(use.num_calls for use in models),
        input_tokens=sum(use.input_tokens for use in models),
        output_tokens=sum(use.output_tokens for use in models),
        cached=sum(use.num_cached for use in models),
        dollars=None if models and not priced else sum(priced),
        seconds=(stats.elapsed_s or 0.0) if elapsed_s is None else elapsed_s,
    )


def closing_line(
    stats: Stats, error: BaseException | None, elapsed_s: float, destination: Destination | None = None
) -> str:
    """Return how a query ended, as one line without figures that are zero.

    >>> from penstock.events.events import BundleProduced, ModelSample, Measures, QuerySampled, QueryStarted, StageInfo
    >>> stats, models = Stats(), (ModelSample("openai", "gpt-5-mini", 2880, 120, 0, 300_000, 150_000, 0.35),)
    >>> for event in (
    ...     QueryStarted((StageInfo(0, "prompt gpt-5-mini"),), 0.0),
    ...     BundleProduced(0, 3000, 10, 1.0),
    ...     QuerySampled(78.0, (), 0, 0, 0.0, Measures(models)),
    ... ):
    ...     stats.on_event(event)
    >>> closing_line(stats, None, 78.0, Destination("out/", is_job=True))
    '✓ 3,000 rows in 1m 18s, 450,000 tokens, 120 cached, $0.35 → out/'
    >>> closing_line(stats, KeyboardInterrupt(), 78.0, Destination("out/", is_job=True))
    '✗ stopped after 1m 18s: 3,000 rows, 2,880 calls, 450,000 tokens, 120 cached, $0.35; run it again to continue'
    """
    totals, time = query_totals(stats, elapsed_s), format_seconds(elapsed_s)
    if error is not None:
        calls = format_count(totals.calls, "call") if totals.calls else ""
        figures = ", ".join(filter(None, [_rows_so_far(stats), calls, *_figures(totals)]))
        is_stopped = ended_by(error) == "stopped"
        hint = "; run it again to continue" if destination is not None and destination.is_job and is_stopped else ""
        return f"✗ {ended_by(error)} after {time}: {figures}{hint}"
    rate = "" if totals.calls or totals.cached or not elapsed_s else f" ({format_rate(totals.rows / elapsed_s)})"
    figures = ", ".join(filter(None, [f"{format_count(totals.rows, 'row')} in {time}{rate}", *_figures(totals)]))
    return f"✓ {figures}" + ("" if destination is None else f" → {destination.name}")


def shown_path(path: str) -> str:
    """Return a folder as people write it: relative to the current one if it is below that.

    >>> shown_path("s3://bucket/out"), shown_path(os.path.join(os.getcwd(), "out"))
    ('s3://bucket/out/', 'out/')
    """
    here = os.path.join(os.getcwd(), "")
    return os.path.join(path.removeprefix(here), "")


def _figures(totals: QueryTotals) -> list[str]:
    num_tokens = totals.input_tokens + totals.output_tokens
    return [
        f"{totals.failed:,} failed (see errors())" if totals.failed else "",
        f"{num_tokens:,} tokens" if num_tokens else "",
        f"{totals.cached:,} cached" if totals.cached else "",
        format_dollars(totals.dollars) if totals.dollars else "",
    ]


def _rows_so_far(stats: Stats) -> str:
    """Say how far an unfinished query came: the rows of its result, or else the rows its last model answered."""
    num_rows, ending, index = stats.result_size()[0], "", -1
    for number, stage in enumerate(stats.stages):
        if stage.calls is not None:
            num_rows, ending, index = stage.calls.num_answered, " answered", number
    for sample in [stage.sample for stage in stats.stages[index:][:1] if stage.sample is not None]:
        planned = sample if sample.calls is None else sample.calls
        if planned.total_rows is not None and planned.total_rows > num_rows:
            return f"{num_rows:,} of {'' if planned.is_total_exact else '~'}{planned.total_rows:,} rows{ending}"
    return f"{format_count(num_rows, 'row')}{ending}"
