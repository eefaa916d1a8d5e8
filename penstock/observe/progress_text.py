"""The text of progress: a line for each stage, one for each model, and the time that is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.events.events import GpuUse, ModelSample
from penstock.observe.bottleneck import bottleneck
from penstock.observe.printable import (
    cell_width,
    fit,
    format_about,
    format_bytes,
    format_count,
    format_dollars,
    format_number,
    format_rate,
    format_seconds,
    visible_text,
)
from penstock.observe.stage_stats import StageStats
from penstock.observe.stats import Stats

if TYPE_CHECKING:
    from rich.text import Text

MAX_NAME_WIDTH = 40
DROPPED_FIRST = ("", "bytes", "queued", "busy", "rate", "bottleneck")  # on a narrow screen

Part = tuple[str, str]  # text and its style


def progress_text(stats: Stats, elapsed_s: float, width: int, height: int) -> Text:
    """Return the drawing of a running query, in ``width`` cells and if possible ``height`` lines."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    for use in stats.models:
        text.append("".join(f"  {line}\n" for line in _wrapped(model_parts(stats, use), width - 2)), "dim")
    for line in [*map(gpu_line, stats.gpus), *stats.metric_lines()]:
        text.append(f"  {fit(line, width - 2)}\n", "dim")
    time = _time_text(stats, elapsed_s)
    text.append(time, "dim")
    if (slowest := bottleneck(stats.stages, elapsed_s)) is not None:
        named = f"◀ bottleneck: {fit(visible_text(slowest.stage), MAX_NAME_WIDTH)}"
        text.append("; " if cell_width(f"{time}; {named}") <= width else "\n", "yellow")
        text.append(named, "yellow")
    num_lines = height - text.plain.count("\n") - 1
    return stage_lines(stats, elapsed_s, width, num_lines) + text


def _wrapped(parts: Sequence[str], width: int) -> list[str]:
    """Return parts as lines that do not break a part.

    >>> _wrapped(["openai gpt-5-mini", "12 calls/s", "$0.04 of ~$0.11"], 30)
    ['openai gpt-5-mini  12 calls/s', '  $0.04 of ~$0.11']
    """
    lines = [fit(parts[0], width)]
    for part in parts[1:]:
        if cell_width(f"{lines[-1]}  {part}") <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(fit(f"  {part}", width))
    return lines


def stage_lines(stats: Stats, elapsed_s: float, width: int, num_lines: int) -> Text:
    """Return one line per stage in ``width`` cells.

    A narrow screen drops columns; numbers are never cut. With more stages than lines, finished stages are left out
    first.
    """
    from rich.text import Text

    stages = stats.stages
    names = [visible_text(stage.stage) for stage in stages]
    slowest = bottleneck(stages, elapsed_s)
    columns = {
        "rows": [_count(stages, stage) for stage in stages],
        "failed": [
            [(f"{stage.num_failed_so_far:,} failed", "red")] if stage.num_failed_so_far else [] for stage in stages
        ],
        "rate": [[(_rate(stats, index, elapsed_s), "cyan")] for index in range(len(stages))],
        "busy": [[(_busy(stage), "dim")] for stage in stages],
        "queued": [[(_queued(stage), "dim")] for stage in stages],
        "bytes": [[(format_bytes(stage.nbytes), "dim")] for stage in stages],
        "bottleneck": [[("◀" if stage is slowest else "", "yellow")] for stage in stages],
    }
    widths = {kind: max(map(_length, cells), default=0) for kind, cells in columns.items()}
    longest = min(max(map(cell_width, names), default=0), MAX_NAME_WIDTH)
    room, kinds = width, list(columns)
    for dropped in DROPPED_FIRST:
        kinds = [kind for kind in kinds if kind != dropped]
        room = width - 3 - sum(widths[kind] + 2 for kind in kinds if widths[kind])
        if room >= min(longest, 20):
            break
    name_width = max(min(longest, room), 4)
    text = Text(no_wrap=True, overflow="ellipsis")
    shown: Sequence[int] = range(len(stages))
    if len(stages) > num_lines:
        first = sorted(shown, key=lambda row: stages[row].wall_s is not None)
        shown = sorted(first[: max(num_lines - 1, 1)])
        text.append(f"  … {len(stages) - len(shown):,} more stages\n", "dim")
    for row in shown:
        stage, name = stages[row], fit(names[row], name_width)
        text.append(
            *(("✓ ", "green") if stage.wall_s is not None else ("● ", "cyan") if stage.has_done_some else ("○ ", "dim"))
        )
        text.append(name + " " * (name_width - cell_width(name)))
        for kind in kinds:
            if widths[kind]:
                text.append(" " * (2 + widths[kind] - _length(columns[kind][row])))
                for part, style in columns[kind][row]:
                    text.append(part, style)
        text.append("\n")
    return text


def model_parts(stats: Stats, use: ModelSample) -> list[str]:
    """Return the name of a model, and the figures of its calls."""
    calls_per_s, tokens_per_s = (0.0, 0.0) if stats.is_paused else stats.forecast.call_rates(use)
    money = "" if use.dollars is None else format_dollars(use.dollars)
    if money and (projected := stats.forecast.dollars(use)) is not None:
        money += f" of ~{format_dollars(projected)}"
    parts = [
        f"{use.provider} {visible_text(use.model)}",
        f"{calls_per_s:,.0f} calls/s" if calls_per_s >= 1 else format_count(use.num_calls, "call"),
        f"{tokens_per_s:,.0f} tokens/s" if tokens_per_s else "",
        money,
        f"{use.num_cached:,} cached" if use.num_cached else "",
        _limit_text(use),
        f"{use.num_refused:,} refused" if use.num_refused else "",
    ]
    return [part for part in parts if part]


def _limit_text(use: ModelSample) -> str:
    if use.rate_limit:
        return f"limited by {use.rate_limit}"
    return "" if use.num_allowed is None else f"up to {use.num_allowed:,} at once"


def gpu_line(use: GpuUse) -> str:
    """Return the use of a GPU as one line.

    >>> gpu_line(GpuUse("0", 0.8, 1 << 30, 8 << 30, None, 0.93))
    'GPU 0  93% busy  80% on average  at most 1.1 GB of 8.6 GB'
    """
    memory = f"at most {format_bytes(use.memory_bytes)} of {format_bytes(use.total_bytes)}"
    return f"GPU {use.gpu}  {use.busy_now:.0%} busy  {use.busy:.0%} on average  {memory}"


def progress_line(stats: Stats, elapsed_s: float) -> str:
    """Return the state of a query as one line for a log: the state of its slowest stage.

    >>> from penstock.events.events import BundleProduced, QueryStarted, StageInfo
    >>> stats = Stats()
    >>> for event in (QueryStarted((StageInfo(0, "udf parse"),), 0.0), BundleProduced(0, 600, 10, 1.0)):
    ...     stats.on_event(event)
    >>> progress_line(stats, 30.0)
    'penstock: udf parse: 600 rows, 20 rows/s; 30.0 s'
    """
    index = stats.forecast.slowest_stage()
    stage = stats.stages[index]
    progress = stage.progress(stats.stages)
    count = "".join(text for text, _ in _count(stats.stages, stage))
    unit = " done" if stage.calls is not None and stage.calls.num_failed else ""  # failed calls are done, not answered
    share = f" ({progress.num_done / progress.total:.0%}{unit})" if progress.total else ""
    in_flight = _busy(stage) if stage.calls is not None else ""
    facts = [f"{visible_text(stage.stage)}: {count}{share}", in_flight, _rate(stats, index, elapsed_s)]
    if num_failed := sum(each.num_failed_so_far for each in stats.stages):
        facts.append(f"{num_failed:,} failed")
    parts = [", ".join(filter(None, facts)), _time_text(stats, elapsed_s)]
    parts += [", ".join(model_parts(stats, use)) for use in stats.models]
    parts += [f"{visible_text(name)} {format_number(value)}" for name, value in stats.counters.items()]
    return f"penstock: {'; '.join(parts)}"


def _time_text(stats: Stats, elapsed_s: float) -> str:
    if stats.is_paused:
        return f"{format_seconds(elapsed_s)}, paused"
    left_s = stats.forecast.seconds_left()
    return format_seconds(elapsed_s) + ("" if left_s is None else f", about {format_about(left_s)} left")


def _count(stages: Sequence[StageStats], stage: StageStats) -> list[Part]:
    progress, calls = stage.progress(stages), stage.calls
    done, unit = (progress.num_done, "rows") if calls is None else (calls.num_answered, "answered")
    total = (
        ""
        if stage.wall_s is not None or progress.total is None
        else f" of {'' if progress.is_exact else '~'}{progress.total:,}"
    )
    return [(f"{done:,}", ""), (f"{total} {unit}", "dim")]


def _rate(stats: Stats, index: int, elapsed_s: float) -> str:
    stage = stats.stages[index]
    if stage.wall_s is not None or stats.is_paused:
        return ""
    rate = stats.forecast.rate(index)
    if rate is None:
        rate = stage.progress(stats.stages).num_done / max(elapsed_s, 1e-9)
    return format_rate(rate) if rate else ""


def _busy(stage: StageStats) -> str:
    if stage.wall_s is not None or (sample := stage.sample) is None or not sample.num_workers:
        return ""
    if stage.calls is not None:
        return f"{stage.calls.num_in_flight:,} in flight"
    return f"{sample.num_running}/{sample.num_workers} busy"


def _queued(stage: StageStats) -> str:
    return f"{format_bytes(stage.sample.nbytes_queued)} queued" if stage.sample and stage.sample.nbytes_queued else ""


def _length(parts: list[Part]) -> int:
    return sum(len(text) for text, _ in parts)
