"""Progress as a person at a terminal sees it: what the screen holds after every byte has been obeyed."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import penstock as ps
import penstock.observe.progress as progress_module
import penstock.observe.screens as screens_module
from penstock.config import config
from penstock.errors import QueryCancelledError
from penstock.events.events import (
    BundleProduced,
    CallCounts,
    Event,
    Measures,
    ModelSample,
    QueryFinished,
    QuerySampled,
    QueryStarted,
    RowError,
    RowsFailed,
    StageFinished,
    StageInfo,
    StageSample,
)
from penstock.observe.closing_line import Destination, closing_line
from penstock.observe.forecast import Forecast
from penstock.observe.progress import Progress, ProgressLog, is_watched, progress_subscriber
from penstock.observe.progress_text import progress_line, progress_text, stage_lines
from penstock.observe.stage_stats import StageStats
from penstock.observe.stats import Stats
from tests.terminals import FakeTerminal, obeyed, run_in_terminal

STAGES = (StageInfo(0, "Scan"), StageInfo(1, "Map(Predictor)"))
STARTED = QueryStarted(STAGES, time_s=0.0)
FINISHED = QueryFinished(None, time_s=1.0)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTerminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeTerminal(100)
    yield fake
    fake.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "penstock-progress"]
    assert not screens_module.Terminal._all


def test_the_life_of_a_display(terminal: FakeTerminal, clock: Clock) -> None:
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    progress.on_event(STARTED)
    progress.on_event(BundleProduced(0, 250, 4_000, 0.1))
    clock.now_s += 0.4
    progress.refresh()
    assert terminal.screen() == []

    clock.now_s += 0.6
    progress.refresh()
    assert terminal.screen() == [
        "● Scan            250 rows  250 rows/s  4.0 kB",
        "○ Map(Predictor)    0 rows                 0 B",
        "1.0 s",
    ]

    progress.on_event(BundleProduced(0, 750, 4_000, 0.1))
    progress.on_event(StageFinished(0, 2.0))
    progress.on_event(BundleProduced(1, 600, 1_200_000, 0.1))
    clock.now_s += 2
    progress.refresh()
    assert terminal.screen() == [
        "✓ Scan            1,000 rows              8.0 kB",
        "● Map(Predictor)    600 rows  200 rows/s  1.2 MB",
        "3.0 s",
    ]

    progress.on_event(BundleProduced(1, 400, 800_000, 0.1))
    clock.now_s += 1
    progress.on_event(FINISHED)
    assert terminal.screen() == ["✓ 1,000 rows in 4.0 s (250 rows/s)"]
    assert "\x1b[?25" not in terminal.received  # a process that is killed cannot show a hidden cursor again


def test_the_totals_of_the_query_are_not_counted_again(terminal: FakeTerminal, clock: Clock) -> None:
    stats = Stats()
    progress, log = Progress(terminal.stream, clock=clock, interval_s=None, stats=stats), ProgressLog(stats=stats)
    for event in (STARTED, BundleProduced(0, 250, 4_000, 0.1)):
        for subscriber in (stats, progress, log):
            subscriber.on_event(event)
    clock.now_s += 1
    progress.refresh()
    assert terminal.screen()[0] == "● Scan            250 rows  250 rows/s  4.0 kB"
    progress.on_event(FINISHED)


def test_a_write_counts_the_rows_that_it_wrote(
    terminal: FakeTerminal, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not its records of files."""
    events: list[Event] = []
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "on_event", lambda self, event: events.append(event))
        patch.setattr(sys, "stderr", terminal.stream)
        ps.range(1500).where(ps.col("id") >= 0).write_parquet(str(tmp_path / "out"))
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    for event in events:
        if isinstance(event, QueryFinished):
            clock.now_s += 3
            progress.refresh()
        progress.on_event(event)
    assert terminal.screen() == ["✓ 1,500 rows in 3.0 s (500 rows/s)"]


def test_rows_that_failed_are_counted(terminal: FakeTerminal, clock: Clock) -> None:
    error = RowError("parse", "{}", "ValueError", "bad", "")
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    progress.on_event(QueryStarted((StageInfo(0, "Scan"), StageInfo(1, "Map")), time_s=0.0))
    progress.on_event(BundleProduced(0, 500, 4_000, 0.1))
    progress.on_event(RowsFailed(1, (error,) * 3))
    progress.on_event(BundleProduced(1, 497, 4_000, 0.1))
    clock.now_s += 1
    progress.refresh()
    assert terminal.screen() == [
        "● Scan  500 rows            500 rows/s  4.0 kB",
        "● Map   497 rows  3 failed  497 rows/s  4.0 kB",
        "1.0 s",
    ]
    progress.on_event(FINISHED)
    assert terminal.screen() == ["✓ 497 rows in 1.0 s (497 rows/s), 3 failed (see errors())"]


def sampled(time_s: float, *stages: StageSample, **measures: Any) -> QuerySampled:
    return QuerySampled(time_s, stages, 5_000, 10**9, 0.0, Measures(**measures))


def sampled_prompts(time_s: float, num_answered: int, num_failed: int, num_in_flight: int) -> QuerySampled:
    """Return a sample of prompts that cost a fifth of a cent each, a tenth of them cached."""
    calls = CallCounts(num_answered, num_failed, num_in_flight, 20_000, True)
    num_calls = (num_answered + num_failed) * 9 // 10
    return sampled(
        time_s,
        StageSample(0, 0, 2, 0, 0, 0, "output", 20_000, True),
        StageSample(1, 3, 4, 6000, 3_000_000, 5_000_000, "workers", 20_000, False, calls),
        models=(
            ModelSample(
                "o", "gpt", num_calls, num_answered // 10, 7, 0, 60 * num_calls, num_calls / 500, 3, 64, 12, 128
            ),
        ),
        counters=(("pages", 1234.0),),
    )


PROMPTS = (
    QueryStarted((StageInfo(0, "read"), StageInfo(1, "prompt gpt", None, (0,), "async function", ("o", "gpt"))), 0.0),
    sampled_prompts(0.0, 0, 0, 1),
    BundleProduced(0, 8000, 4_000, 0.1),
    BundleProduced(1, 64, 1_000, 10.0),
    sampled_prompts(10.0, 990, 10, 37),
)


def test_a_sampled_query_shows_totals_queues_models_and_what_is_left(terminal: FakeTerminal, clock: Clock) -> None:
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    for event in PROMPTS:
        progress.on_event(event)
    clock.now_s += 10
    progress.refresh()
    assert terminal.screen() == [
        "● read          8,000 of 20,000 rows             800 rows/s      0/2 busy",
        "● prompt gpt  990 of 20,000 answered  10 failed  100 rows/s  37 in flight  ◀",
        "  o gpt  90 calls/s  5,400 tokens/s  $1.80 of ~$36.00  99 cached",
        "    up to 128 at once  3 refused",
        "  pages: 1,234",
        "10.0 s, about 3m 10s left; ◀ bottleneck: prompt gpt",
    ]
    progress.on_event(FINISHED)
    assert terminal.screen()[0].startswith("✓ 64 rows in 10.0 s")


def test_before_the_first_row_of_a_stage_nothing_is_said_of_the_end(terminal: FakeTerminal, clock: Clock) -> None:
    """A read that has given all its rows, and now waits for cores, is not the bottleneck."""
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    waiting = [StageSample(stage, 2 * stage, 2, 0, 0, 0, "workers", 300, True) for stage in (0, 1)]
    started = QueryStarted((StageInfo(0, "read"), StageInfo(1, "udf slow", None, (0,), "function")), 0.0)
    for event in (started, BundleProduced(0, 300, 2_400, 0.1), sampled(10.0, *waiting)):
        progress.on_event(event)
    clock.now_s += 10
    progress.refresh()
    assert terminal.screen()[-1] == "10.0 s; ◀ bottleneck: udf slow"
    progress.on_event(FINISHED)


def test_rows_that_a_write_collects_do_not_delay_the_end(terminal: FakeTerminal, clock: Clock) -> None:
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    samples = [StageSample(stage, 0, 2, 890 * stage, 0, 0, None, 1000, True) for stage in (0, 1)]
    started = QueryStarted((StageInfo(0, "udf"), StageInfo(1, "write", 0, (0,), "write")), 0.0)
    for event in (
        started,
        sampled(0.0, replace(samples[0], num_running=1)),
        BundleProduced(0, 900, 9_000, 0.1),
        sampled(9.0, *samples),
    ):
        progress.on_event(event)
    clock.now_s += 9
    progress.refresh()
    assert terminal.screen()[-1] == "9.0 s, about 1 s left"
    progress.on_event(FINISHED)


def test_without_a_terminal_there_is_a_line_every_half_minute() -> None:
    stream = io.StringIO()
    log = ProgressLog(stream)
    for event in PROMPTS:
        log.on_event(event)
    assert stream.getvalue() == ""
    for time_s in (29, 30, 59, 60):
        log.on_event(sampled_prompts(time_s, 99 * time_s, time_s, 37))
    log.on_event(QueryFinished(None, 61.0))
    first, second, last = stream.getvalue().splitlines()
    assert first == (
        "penstock: prompt gpt: 2,970 of 20,000 answered (15% done), 37 in flight, 100 rows/s, 30 failed; "
        "30.0 s, about 2m 50s left; "
        "o gpt, 90 calls/s, 5,400 tokens/s, $5.40 of ~$36.00, 297 cached, up to 128 at once, 3 refused; pages 1,234"
    )
    assert second.startswith(
        "penstock: prompt gpt: 5,940 of 20,000 answered (30% done), 37 in flight, 100 rows/s, 60 failed;"
    )
    assert "; 1m 00s, about 2m 20s left; " in second
    assert last.startswith("penstock: ✓ 64 rows in 1m 01s")


def test_a_short_query_prints_no_line() -> None:
    stream = io.StringIO()
    log = ProgressLog(stream)
    for event in (*PROMPTS, FINISHED):
        log.on_event(event)
    assert stream.getvalue() == ""


def test_a_short_query_that_is_interrupted_prints_its_line_into_a_file() -> None:
    stream = io.StringIO()
    log = ProgressLog(stream, destination=Destination("out/", is_job=True))
    for event in (*PROMPTS, QueryFinished(KeyboardInterrupt(), 12.0)):
        log.on_event(event)
    (line,) = stream.getvalue().splitlines()
    figures = "990 of 20,000 rows answered, 900 calls, 10 failed (see errors()), 54,000 tokens, 99 cached, $1.80"
    assert line == f"penstock: ✗ stopped after 12.0 s: {figures}; run it again to continue"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("x"), "✗ failed after 2.0 s: 0 rows"),
        (KeyboardInterrupt(), "✗ stopped after 2.0 s: 0 rows"),
        (QueryCancelledError(), "✗ stopped after 2.0 s: 0 rows"),
    ],
)
def test_the_last_line_says_how_it_ended(terminal: FakeTerminal, clock: Clock, error: BaseException, line: str) -> None:
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    progress.on_event(STARTED)
    clock.now_s += 2
    progress.refresh()
    progress.on_event(QueryFinished(error, 2.0))
    assert terminal.screen() == [line]


@pytest.mark.parametrize("display", [Progress, ProgressLog])
def test_a_narrow_terminal_breaks_the_last_line_between_words(
    terminal: FakeTerminal, clock: Clock, monkeypatch: pytest.MonkeyPatch, display: type[Progress | ProgressLog]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    destination = Destination("out/", is_job=True)
    if display is Progress:
        shown: Any = Progress(terminal.stream, clock=clock, interval_s=None, destination=destination)
    else:
        shown = ProgressLog(terminal.stream, destination=destination)
    for event in PROMPTS:
        shown.on_event(event)
    clock.now_s += 12
    if display is Progress:
        shown.refresh()
    shown.on_event(QueryFinished(KeyboardInterrupt(), 12.0))
    lines = terminal.screen()
    assert max(map(len, lines)) <= 40
    figures = "900 calls, 10 failed (see errors()), 54,000 tokens, 99 cached, $1.80; run it again to continue"
    assert figures in " ".join(line.strip() for line in lines)


def test_a_short_query_prints_nothing(terminal: FakeTerminal) -> None:
    progress = Progress(terminal.stream, delay_s=50)
    progress.on_event(STARTED)
    progress.on_event(BundleProduced(1, 10, 10, 0.1))
    progress.on_event(FINISHED)
    assert terminal.screen() == []
    assert terminal.received == ""


def test_a_short_query_does_not_load_rich() -> None:
    code = """
import io, sys
from penstock.events.events import *
from penstock.observe.forecast import Forecast
from penstock.observe.progress import Progress, ProgressLog
progress = Progress(io.StringIO())
progress.on_event(QueryStarted((StageInfo(0, "a"),), 0.0))
progress.on_event(BundleProduced(0, 1, 1, 0.1))
progress.on_event(QueryFinished(None, 0.1))
assert "rich" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_display_lives_while_no_event_comes(terminal: FakeTerminal) -> None:
    progress = Progress(terminal.stream, delay_s=0.01, interval_s=0.01)
    progress.on_event(STARTED)
    terminal.wait_for("Predictor", times=3)
    progress.on_event(FINISHED)
    assert not [thread for thread in threading.enumerate() if thread.name == "penstock-progress"]
    (line,) = terminal.screen()
    assert line.startswith("✓ 0 rows in ")


def test_two_queries_one_after_the_other(terminal: FakeTerminal, clock: Clock) -> None:
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    for _ in range(2):
        progress.on_event(STARTED)
        progress.on_event(BundleProduced(1, 7, 10, 0.1))
        clock.now_s += 7
        progress.refresh()
        progress.on_event(FINISHED)
    assert terminal.screen() == ["✓ 7 rows in 7.0 s (1.0 rows/s)"] * 2


def test_two_queries_share_the_screen_and_each_leaves_its_line(terminal: FakeTerminal, clock: Clock) -> None:
    first, second = (Progress(terminal.stream, clock=clock, interval_s=None) for _ in range(2))
    first.on_event(STARTED)
    second.on_event(QueryStarted((StageInfo(0, "other"),), 0.0))
    second.on_event(BundleProduced(0, 5, 10, 0.1))
    clock.now_s += 1
    first.refresh()
    second.refresh()
    other = ["● other  5 rows  5.0 rows/s  10 B", "1.0 s"]
    assert terminal.screen() == ["○ Scan            0 rows  0 B", "○ Map(Predictor)  0 rows  0 B", "1.0 s", *other]
    first.on_event(FINISHED)
    assert terminal.screen() == ["✓ 0 rows in 1.0 s (0.0 rows/s)", *other]
    second.on_event(FINISHED)
    assert terminal.screen() == ["✓ 0 rows in 1.0 s (0.0 rows/s)", "✓ 5 rows in 1.0 s (5.0 rows/s)"]


def test_queries_that_the_screen_has_no_room_for_are_counted(terminal: FakeTerminal, clock: Clock) -> None:
    shown = [Progress(terminal.stream, clock=clock, interval_s=None) for _ in range(12)]
    for progress in shown:
        progress.on_event(STARTED)
    clock.now_s += 1
    for progress in shown:
        progress.refresh()
    assert terminal.screen()[-1] == "… and 6 more"
    assert terminal.screen().count("1.0 s") == 6  # of 24 lines, each takes three and an empty one
    for progress in shown:
        progress.on_event(FINISHED)
    assert len(terminal.screen()) == 12


def test_queries_of_two_threads_are_shown_and_those_inside_them_stay_silent(
    terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    monkeypatch.setattr(progress_module, "Progress", partial(Progress, delay_s=0.0, interval_s=0.01))
    both = threading.Barrier(2, timeout=60)

    @ps.func(use_process=False)
    def nested(x: int) -> int:
        both.wait()
        terminal.wait_for("nested", times=4)
        inner = ps.range(x).with_column("within", ps.col("id") + 1).collect()
        terminal.wait_for("nested", times=terminal.received.count("nested") + 4)
        return inner.count_rows()

    queries = [ps.range(number, number + 1).select(nested(ps.col("id"))) for number in (10, 20)]
    threads = [threading.Thread(target=query.collect) for query in queries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    lines = terminal.screen()
    assert [line.partition(" in ")[0] for line in lines] == ["✓ 1 row"] * 2
    assert "within" not in terminal.received


def stats_of(stages: list[StageStats]) -> Stats:
    stats = Stats()
    stats.stages, stats.forecast = stages, Forecast(stages)
    return stats


@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_lines_fit_and_numbers_stay_whole(width: int) -> None:
    stages = [
        StageStats("read_parquet(s3://bucket/a/long/path/*.parquet)", 123_456, 10**9),
        StageStats("漢字" * 30, 99, 10),
        StageStats("Write", 0, 0),
    ]
    lines = stage_lines(stats_of(stages), 10.0, width, 3).plain.splitlines()
    assert len(lines) == 3
    assert len({cell_len(line) for line in lines}) == 1
    if width >= 40:
        assert max(map(cell_len, lines)) <= width
    assert "123,456 rows" in lines[0]
    assert ("GB" in lines[0]) == (width >= 60)


def test_a_low_screen_shows_the_stages_that_run() -> None:
    stages = [StageStats(f"stage {number}", 7, 1, wall_s=None if number in (3, 8) else 1.0) for number in range(10)]
    lines = stage_lines(stats_of(stages), 10.0, 80, 4).plain.splitlines()
    assert [line.split("  ")[0].strip() for line in lines[1:]] == ["✓ stage 0", "● stage 3", "● stage 8"]
    assert lines[0].strip() == "… 7 more stages"


def test_stage_names_cannot_command_the_terminal(terminal: FakeTerminal, clock: Clock) -> None:
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    progress.on_event(QueryStarted((StageInfo(0, "\x1b[2Jevil\n[bold]x[/bold]\x07"),), 0.0))
    clock.now_s += 1
    progress.refresh()
    assert terminal.screen()[0].startswith("○ \\x1b[2Jevil⏎[bold]x[/bold]\\x07")
    progress.on_event(FINISHED)


def test_silent_where_nobody_watches(monkeypatch: pytest.MonkeyPatch, terminal: FakeTerminal) -> None:
    assert is_watched(terminal.stream)
    assert not is_watched(io.StringIO())
    with config(progress=False):
        assert not is_watched(terminal.stream)
    monkeypatch.setenv("TERM", "dumb")
    assert not is_watched(terminal.stream)
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(progress_subscriber(None), ProgressLog)


class Terminal(io.StringIO):
    """A stream that rich takes for a terminal."""

    def isatty(self) -> bool:
        return True


class BrokenStream(Terminal):
    def write(self, text: str) -> int:
        raise OSError("the terminal is gone")


def test_a_broken_terminal_does_not_break_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    progress = Progress(BrokenStream(), delay_s=0, interval_s=0.001)
    for event in (STARTED, BundleProduced(0, 1, 1, 0.1), BundleProduced(9, 1, 1, 0.1), StageFinished(9, 1.0)):
        progress.on_event(event)
    progress.on_event(FINISHED)
    progress.on_event(FINISHED)


def test_events_in_a_strange_order_are_survived(terminal: FakeTerminal, clock: Clock) -> None:
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    for event in (FINISHED, BundleProduced(0, 1, 1, 0.1), QueryStarted((), 0.0), STARTED, STARTED, FINISHED):
        progress.on_event(event)
        clock.now_s += 1
        progress.refresh()


def test_an_event_costs_less_than_five_microseconds() -> None:
    progress = Progress(io.StringIO(), interval_s=None)
    progress.on_event(STARTED)
    event = BundleProduced(1, 10, 10, 0.1)
    costs = []
    for _ in range(5):
        before_s = time.process_time()
        for _ in range(20_000):
            progress.on_event(event)
        costs.append((time.process_time() - before_s) / 20_000)
    assert min(costs) < 5e-6


def test_a_terminal_that_takes_no_output_does_not_hold_up_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    is_writing, may_write = threading.Event(), threading.Event()

    class Stuck(Terminal):
        def write(self, text: str) -> int:
            is_writing.set()
            assert may_write.wait(60)
            return super().write(text)

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(progress_module, "MAX_JOIN_S", 0.01)
    stream = Stuck()
    progress = Progress(stream, delay_s=0, interval_s=0.001)
    progress.on_event(STARTED)
    assert is_writing.wait(60)
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "penstock-progress")
    progress.on_event(FINISHED)
    assert thread.is_alive()
    may_write.set()
    thread.join(60)
    assert "✓ 0 rows" in stream.getvalue()


PRINTS = """
import logging, sys
from penstock.events.events import *
from penstock.observe.progress import Progress
logging.basicConfig(format="%(message)s")
print("before", end="", flush=True)
now = 0.0
first, second = (Progress(clock=lambda: now, interval_s=None) for _ in range(2))
for progress in (first, second):
    progress.on_event(QueryStarted((StageInfo(0, "Stage"),), 0.0))
now = 2.0
first.refresh()
second.refresh()
print("printed")
print("long " * 50 + "漢字" * 30)
print("warned", file=sys.stderr)
logging.warning("logged")
sys.stdout.buffer.write("bytes é\\nand ".encode())
sys.stdout.buffer.flush()
first.refresh()
print("more")
print("unfinished", end="", flush=True)
first.on_event(QueryFinished(None, 2.0))
second.refresh()
print(", finished")
print("last", end=" ", flush=True)
second.on_event(QueryFinished(None, 2.0))
print("after")
"""


@pytest.mark.parametrize("width", [60, 120, 200])
def test_whatever_is_printed_stays_whole_above_the_display(width: int) -> None:
    screen, _, _ = run_in_terminal([sys.executable, "-c", PRINTS], width)
    closing = "✓ 0 rows in 2.0 s (0.0 rows/s)"
    printed = ["printed", "long " * 50 + "漢字" * 30, "warned", "logged", "bytes é", "and more"]
    assert screen == ["before", *printed, closing, "unfinished, finished", closing, "last after"]


def test_redirected_output_stays_clean(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as file:
        screen, _, _ = run_in_terminal([sys.executable, "-c", PRINTS], 100, stdout=file)
    printed = (tmp_path / "out").read_bytes()
    assert printed.startswith(b"beforeprinted\nlong long")
    assert b"\x1b" not in printed
    assert screen == ["warned", "logged", *["✓ 0 rows in 2.0 s (0.0 rows/s)"] * 2]


SLOW = """
import time
import penstock as ps
@ps.func
def slow(number: int) -> int:
    time.sleep(1.2)
    return number
print("before")
ps.range(1).with_column("b", slow(ps.col("id"))).collect()
print("after")
"""
CLOSING = re.compile(r"(penstock: )?✓ 1 row in [\d.]+ s \([\d.]+ rows/s\)")


def test_no_drawing_erases_what_another_process_prints_from_a_pipe() -> None:
    """As ``| head`` or ``| tee``, whose output may go to the same terminal. The closing line comes all the same."""
    received: list[str] = []
    screen, printed, _ = run_in_terminal(
        [sys.executable, "-c", SLOW], 100, {"\x1b": lambda _: received.append("a drawing")}, stdout=subprocess.PIPE
    )
    assert (printed, received) == (b"before\nafter\n", [])
    assert CLOSING.fullmatch("\n".join(screen))


ON_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
IN_BACKGROUND = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], process_group=0))"


@pytest.mark.parametrize("is_background", [False, True])
def test_a_process_in_the_background_draws_nothing(is_background: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal then belongs to a shell, and a drawing would erase what is typed there."""
    monkeypatch.setenv("TERM", "xterm-256color")
    background = ["-c", IN_BACKGROUND, sys.executable] if is_background else []
    command = [sys.executable, "-c", ON_A_TERMINAL, sys.executable, *background, "-c", SLOW]
    received = subprocess.check_output(command, stdin=subprocess.DEVNULL, timeout=60).decode()
    assert ("\x1b[2K" in received) is not is_background
    before, *_, closing, after = obeyed(received)
    assert (before, after) == ("before", "after")
    assert CLOSING.fullmatch(closing)


def test_a_narrower_terminal_keeps_no_part_of_an_old_drawing(
    terminal: FakeTerminal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terminals wrap lines that no longer fit, so that the old drawing takes more lines."""
    progress = Progress(terminal.stream, clock=clock, interval_s=None)
    progress.on_event(STARTED)
    clock.now_s += 1
    progress.refresh()
    before = [len(line) for line in terminal.screen()]
    assert max(before) > 20
    monkeypatch.setenv("COLUMNS", "20")
    terminal.received = ""
    progress.refresh()
    terminal.screen()
    assert terminal.received.count("\x1b[1A") == sum(-(-width // 20) for width in before) - 1
    progress.on_event(FINISHED)


def test_a_paused_query_says_so_and_projects_no_end() -> None:
    stats = Stats()
    calls = CallCounts(500, 0, 0, 3000, True, 500, 400.0, 320.0)
    model = ModelSample("openai", "gpt-5-mini", 500, 0, 0, 50_000, 25_000, 0.06, num_allowed=40, max_allowed=1024)
    stats.on_event(QueryStarted((StageInfo(0, "prompt", kind="async function", model=("openai", "gpt-5-mini")),), 0.0))
    for time_s, is_paused in ((10.0, False), (11.0, True)):
        sample = StageSample(0, 0, 64, 0, 0, 0, None, 3000, True, calls)
        stats.on_event(QuerySampled(time_s, (sample,), 0, 0, 0.0, Measures(models=(model,)), is_paused))
        shown = progress_text(stats, time_s, 100, 20).plain, progress_line(stats, time_s)
        for text in shown:
            assert ("paused" in text, " left" in text, "rows/s" in text) == (is_paused, not is_paused, not is_paused)


def test_a_stopped_query_does_not_take_the_rows_that_it_has_read_for_all(tmp_path: Path) -> None:
    """How many rows a text file has is known at its end."""
    (tmp_path / "in.csv").write_text(
        "text\n" + "".join(f"review {n} of some length{'.' * 80}\n" for n in range(200_000))
    )

    @ps.func(use_process=False)
    def check(text: str) -> str:
        if text.startswith("review 2000 "):
            raise ValueError(text)
        return text

    query = ps.read_csv(str(tmp_path / "in.csv")).with_column("checked", check(ps.col("text")))
    with pytest.raises(ps.errors.UdfError) as raised:
        query.collect()
    line = closing_line(query.stats(), raised.value, 1.0)
    assert re.fullmatch(r"✗ failed after 1.0 s: [\d,]+ rows?", line), line


def test_the_line_of_a_log_is_about_a_stage_that_works() -> None:
    stats = Stats()
    stages = (StageInfo(0, "embed MiniLM"), StageInfo(1, "ask big", 0, (0,), "async function"))
    stats.on_event(QueryStarted(stages, 0.0))
    stats.on_event(BundleProduced(0, 300, 10, 10.0))
    samples = (
        StageSample(0, 2, 2, 0, 0, 0, None, None, False),
        StageSample(1, 0, 64, 0, 0, 0, "input", None, False, calls=CallCounts(0, 0, 0, None, False)),
    )
    stats.on_event(QuerySampled(30.0, samples, 0, 0, 0.0))
    assert progress_line(stats, 30.0).startswith("penstock: embed MiniLM: 300 rows")
