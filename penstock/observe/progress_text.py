"""The text of progress: a line for each stage, one for each model, and the time that is left."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.observe.bottleneck import bottleneck
from penstock.observe.events import GpuUse, ModelSample
from penstock.observe.stage_stats import StageStats, rows_done
from penstock.observe.stats import Stats
from penstock.observe.text import (
    cell_width,
    fit,
    format_bytes,
    format_dollars,
    format_number,
    format_rate,
    format_seconds,
    visible_text,
)

if TYPE_CHECKING:
    from rich.text import Text

RATE_WINDOW = 32  # drawings, about ten seconds
MAX_NAME_WIDTH = 40
DROPPED_FIRST = ("", "bytes", "queued", "busy", "rate", "bottleneck")  # on a narrow screen

Part = tuple[str, str]  # text and its style


class RecentRate:
    """Rows, or something else that is counted, per second over the last drawings."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque(maxlen=RATE_WINDOW)

    def update(self, now_s: float, num_rows: int) -> float | None:
        """Record the rows so far; return None if none came during the last drawings."""
        self._recent.append((now_s, num_rows))
        then_s, then_rows = self._recent[0]
        return (num_rows - then_rows) / (now_s - then_s) if num_rows > then_rows and now_s > then_s else None


class Rates:
    """The recent rates of the stages and models of a query."""

    def __init__(self) -> None:
        self._rates: defaultdict[tuple[str, ...], RecentRate] = defaultdict(RecentRate)
        self.stages: list[float | None] = []
        self.models: list[tuple[ModelSample, float, float]] = []  # with calls and tokens per second

    def update(self, now_s: float, stats: Stats) -> None:
        self.stages = [
            0.0 if stage.wall_s is not None else self._rates[str(index),].update(now_s, rows_done(stats.stages, stage))
            for index, stage in enumerate(stats.stages)
        ]
        self.models = [
            (use, self._rate(now_s, use, "calls", use.num_calls), self._rate(now_s, use, "tokens", _tokens(use)))
            for use in stats.models
        ]

    def _rate(self, now_s: float, use: ModelSample, kind: str, count: int) -> float:
        return self._rates[kind, use.provider, use.model].update(now_s, count) or 0.0


def progress_text(stats: Stats, rates: Rates, elapsed_s: float, width: int, height: int) -> Text:
    """Return the drawing of a running query in ``width`` cells and ``height`` lines, if these are enough."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    for use, calls_per_s, tokens_per_s in rates.models:
        parts = model_parts(use, calls_per_s, tokens_per_s, projected_dollars(stats, use))
        text.append("".join(f"  {line}\n" for line in _wrapped(parts, width - 2)), "dim")
    for line in [*map(gpu_line, stats.gpus), *stats.metric_lines()]:
        text.append(f"  {fit(line, width - 2)}\n", "dim")
    left_s = seconds_left(stats.stages, rates.stages, elapsed_s)
    time = format_seconds(elapsed_s) + ("" if left_s is None else f", about {format_seconds(left_s)} left")
    text.append(time, "dim")
    if (slowest := bottleneck(stats.stages, elapsed_s)) is not None:
        named = f"◀ bottleneck: {fit(visible_text(slowest.stage), MAX_NAME_WIDTH)}"
        text.append("; " if cell_width(f"{time}; {named}") <= width else "\n", "yellow")
        text.append(named, "yellow")
    num_lines = height - text.plain.count("\n") - 1
    return stage_lines(stats.stages, rates.stages, elapsed_s, width, num_lines) + text


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


def stage_lines(
    stages: Sequence[StageStats], recent: Sequence[float | None], elapsed_s: float, width: int, num_lines: int
) -> Text:
    """Return one line per stage in ``width`` cells.

    ``recent`` are rows per second; None means the average since the start. A narrow screen drops columns; numbers are
    never cut. With more stages than lines, those that are done are left out first.
    """
    from rich.text import Text

    names = [visible_text(stage.stage) for stage in stages]
    done = [rows_done(stages, stage) for stage in stages]
    rates = [
        num_rows / max(elapsed_s, 1e-9) if rate is None else rate for num_rows, rate in zip(done, recent, strict=True)
    ]
    slowest = bottleneck(stages, elapsed_s)
    columns = {
        "rows": [
            [(f"{num_rows:,}", ""), (f"{_of_total(stage)} rows", "dim")]
            for num_rows, stage in zip(done, stages, strict=True)
        ],
        "failed": [[(f"{stage.num_failed:,} failed", "red")] if stage.num_failed else [] for stage in stages],
        "rate": [[(format_rate(rate) if rate else "", "cyan")] for rate in rates],
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
            *(("✓ ", "green") if stage.wall_s is not None else ("● ", "cyan") if stage.num_rows else ("○ ", "dim"))
        )
        text.append(name + " " * (name_width - cell_width(name)))
        for kind in kinds:
            if widths[kind]:
                text.append(" " * (2 + widths[kind] - _length(columns[kind][row])))
                for part, style in columns[kind][row]:
                    text.append(part, style)
        text.append("\n")
    return text


def model_parts(use: ModelSample, calls_per_s: float, tokens_per_s: float, projected: float | None) -> list[str]:
    """Return the name of a model, and the figures of its calls."""
    money = "" if use.dollars is None else format_dollars(use.dollars)
    if money and projected is not None:
        money += f" of ~{format_dollars(projected)}"
    parts = [
        f"{use.provider} {visible_text(use.model)}",
        f"{calls_per_s:,.0f} calls/s" if calls_per_s else f"{use.num_calls:,} calls",
        f"{tokens_per_s:,.0f} tokens/s" if tokens_per_s else "",
        money,
        f"{use.num_cached:,} cached" if use.num_cached else "",
        f"{use.num_in_flight:,}/{use.num_allowed:,} in flight" if use.num_allowed is not None else "",
        f"{use.num_waiting:,} waiting" if use.num_waiting else "",
        f"{use.num_refused:,} refused" if use.num_refused else "",
    ]
    return [part for part in parts if part]


def gpu_line(use: GpuUse) -> str:
    """Return the use of a GPU as one line.

    >>> gpu_line(GpuUse("0", 0.8, 1 << 30, 8 << 30, None, 0.93))
    'GPU 0  93% busy  80% on average  at most 1.1 GB of 8.6 GB'
    """
    memory = f"at most {format_bytes(use.memory_bytes)} of {format_bytes(use.total_bytes)}"
    return f"GPU {use.gpu}  {use.busy_now:.0%} busy  {use.busy:.0%} on average  {memory}"


def projected_dollars(stats: Stats, use: ModelSample) -> float | None:
    """Return what the calls to a model will cost in all, if the number of rows is known."""
    stage = next((each for each in stats.stages if each.model == (use.provider, use.model)), None)
    if use.dollars is None or stage is None or not (total := _total(stage)) or not stage.num_rows:
        return None
    return use.dollars * max(total / stage.num_rows, 1.0)


def seconds_left(stages: Sequence[StageStats], recent: Sequence[float | None], elapsed_s: float) -> float | None:
    """Return the time until the slowest stage is done; None before the first row of the result, or without a total.

    A write counts for nothing: it waits until its rows fill a file, and then is quick.
    """
    if not stages or _total(stages[-1]) is None:
        return None
    if not (stages[-1] if stages[-1].writes is None else stages[stages[-1].writes]).num_rows:
        return None
    left = []
    for stage, rate in zip(stages, recent, strict=True):
        num_rows, total = rows_done(stages, stage), _total(stage)
        if stage.wall_s is None and stage.writes is None and total is not None and num_rows:
            left.append((total - num_rows) / (rate or num_rows / max(elapsed_s, 1e-9)))
    return max(left, default=None)


def progress_line(stats: Stats, elapsed_s: float) -> str:
    """Return the state of a query as one line, for a log.

    >>> from penstock.observe.events import BundleProduced, QueryStarted, StageInfo
    >>> stats = Stats()
    >>> for event in (QueryStarted((StageInfo(0, "udf parse"),), 0.0), BundleProduced(0, 600, 10, 1.0)):
    ...     stats.on_event(event)
    >>> progress_line(stats, 30.0)
    'penstock: 600 rows in 30.0 s (20 rows/s)'
    """
    last = stats.stages[-1]
    num_rows, total = rows_done(stats.stages, last), _total(last)
    share = f" ({num_rows / total:.0%})" if total else ""
    parts = [f"{num_rows:,}{_of_total(last)} rows{share} in {format_seconds(elapsed_s)}"]
    parts[0] += f" ({format_rate(num_rows / elapsed_s)})" if elapsed_s else ""
    if (left_s := seconds_left(stats.stages, [None] * len(stats.stages), elapsed_s)) is not None:
        parts.append(f"about {format_seconds(left_s)} left")
    if num_failed := sum(stage.num_failed for stage in stats.stages):
        parts.append(f"{num_failed:,} failed")
    for use in stats.models:
        parts.append(", ".join(model_parts(use, 0.0, 0.0, projected_dollars(stats, use))))
    if (slowest := bottleneck(stats.stages, elapsed_s)) is not None:
        parts.append(f"bottleneck: {visible_text(slowest.stage)}")
    parts += [f"{visible_text(name)} {format_number(value)}" for name, value in stats.counters.items()]
    return f"penstock: {'; '.join(parts)}"


def _total(stage: StageStats) -> int | None:
    return None if stage.sample is None else stage.sample.total_rows


def _tokens(use: ModelSample) -> int:
    return use.input_tokens + use.output_tokens


def _of_total(stage: StageStats) -> str:
    if stage.wall_s is not None or (total := _total(stage)) is None:
        return ""
    is_exact = stage.sample is not None and stage.sample.is_total_exact
    return f" of {'' if is_exact else '~'}{total:,}"


def _busy(stage: StageStats) -> str:
    if (sample := stage.sample) is None or stage.wall_s is not None or not sample.num_workers:
        return ""
    return f"{sample.num_running}/{sample.num_workers} busy"


def _queued(stage: StageStats) -> str:
    return f"{format_bytes(stage.sample.nbytes_queued)} queued" if stage.sample and stage.sample.nbytes_queued else ""


def _length(parts: list[Part]) -> int:
    return sum(len(text) for text, _ in parts)
