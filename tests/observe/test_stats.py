"""What each stage did, from the events alone."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from typing import Any

import pyarrow as pa
import pytest

from penstock.events.events import (
    BundleProduced,
    Event,
    GpuUse,
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
from penstock.observe.bottleneck import bottleneck, bottleneck_text
from penstock.observe.printable import cell_width
from penstock.observe.stage_stats import StageStats
from penstock.observe.stats import MAX_SAMPLES, Stats

STARTED = QueryStarted((StageInfo(0, "Scan"), StageInfo(1, "Map")), time_s=100.0)


def stats_of(*events: Event) -> Stats:
    stats = Stats()
    for event in events:
        stats.on_event(event)
    return stats


def test_bundles_add_up_by_stage() -> None:
    stats = stats_of(
        STARTED,
        BundleProduced(0, 10, 1000, 0.25),
        BundleProduced(1, 5, 50, 1.5),
        BundleProduced(0, 20, 2000, 0.25),
        StageFinished(0, 101.0),
        QueryFinished(None, 104.0),
    )
    scan = {"stage": "Scan", "num_rows": 30, "nbytes": 3000, "num_bundles": 2, "busy_s": 0.5, "wall_s": 1.0}
    mapped = {"stage": "Map", "num_rows": 5, "nbytes": 50, "num_bundles": 1, "busy_s": 1.5, "wall_s": 4.0}
    waits = {"waited_input_s": 0.0, "waited_output_s": 0.0, "waited_workers_s": 0.0, "peak_nbytes": 0, "num_workers": 0}
    nothing = {"num_failed": 0, "batch_rows": None, **waits}
    assert stats.table().to_pylist() == [{**scan, **nothing}, {**mapped, **nothing}]
    assert stats.elapsed_s == 4.0
    assert str(stats) == (
        "stage  rows   bytes  bundles    busy   wall        rate\n"
        "-----  ----  ------  -------  ------  -----  ----------\n"
        "Scan     30  3.0 kB        2  500 ms  1.0 s   30 rows/s\n"
        "Map       5    50 B        1   1.5 s  4.0 s  1.2 rows/s\n"
        "finished in 4.0 s; most work in Map (75%)"
    )


def test_a_batch_size_that_was_found_is_told() -> None:
    stats = stats_of(STARTED, StageFinished(0, 101.0), StageFinished(1, 102.0, 4096), QueryFinished(None, 102.0))
    assert stats.table()["batch_rows"].to_pylist() == [None, 4096]
    assert str(stats).endswith("Map: found batches of 4,096 rows")


def test_a_query_that_still_runs_has_no_wall_time() -> None:
    stats = stats_of(STARTED, BundleProduced(0, 10, 1000, 0.25))
    assert stats.table()["wall_s"].to_pylist() == [None, None]
    assert str(stats).endswith("still running")


def test_a_failure_is_told() -> None:
    assert "failed (KeyError) after 1.0 s" in str(stats_of(STARTED, QueryFinished(KeyError("x"), 101.0)))


def test_the_last_query_counts() -> None:
    stats = stats_of(STARTED, BundleProduced(0, 10, 1, 0.1), QueryFinished(OSError(), 101.0), STARTED)
    assert stats.table()["num_rows"].to_pylist() == [0, 0]
    assert stats.error is None
    assert stats.elapsed_s is None


def test_before_any_query() -> None:
    assert str(Stats()) == "No query has run."
    assert Stats().table().schema.field("busy_s").type == pa.float64()


def test_stage_names_cannot_command_the_terminal() -> None:
    stats = stats_of(QueryStarted((StageInfo(0, "\x1b[2J漢字" + "x" * 200),), 0.0), QueryFinished(None, 1.0))
    assert "\x1b" not in str(stats)
    assert max(map(len, str(stats).splitlines())) < 120


def test_rows_that_failed_are_counted() -> None:
    error = RowError("parse", "{}", "ValueError", "bad", "")
    stats = stats_of(
        STARTED,
        BundleProduced(0, 1200, 1000, 0.25),
        RowsFailed(1, (error,) * 1150),
        RowsFailed(1, (error,)),
        BundleProduced(1, 49, 50, 0.75),
        QueryFinished(None, 104.0),
    )
    assert stats.table()["num_failed"].to_pylist() == [0, 1151]
    assert str(stats) == (
        "stage   rows  failed   bytes  bundles    busy   wall        rate\n"
        "-----  -----  ------  ------  -------  ------  -----  ----------\n"
        "Scan   1,200       0  1.0 kB        1  250 ms  4.0 s  300 rows/s\n"
        "Map       49   1,151    50 B        1  750 ms  4.0 s   12 rows/s\n"
        "finished in 4.0 s; most work in Map (75%); 1,151 rows failed, see errors()"
    )


def sampled(time_s: float, waiting_for: Any, reader_s: float = 0.0, **measures: Any) -> QuerySampled:
    stages = (
        StageSample(0, 0, 2, 0, 0, 100, "output", 10, True),
        StageSample(1, 2, 2, 5, 50, 900, waiting_for, 10, True),
    )
    return QuerySampled(time_s, stages, 1000, 10**9, reader_s, Measures(rss_bytes=10**8, **measures))


def test_samples_add_up_to_waits_and_name_the_bottleneck() -> None:
    model = ModelSample("openai", "gpt", 12, 3, 2, 1000, 100, 0.25, 1)
    stats = stats_of(
        STARTED,
        BundleProduced(0, 10, 1000, 0.25),
        sampled(101.0, "input"),
        BundleProduced(1, 10, 1000, 7.5),
        sampled(104.0, "workers", models=(model,), counters=(("pages", 7),)),
        QueryFinished(None, 104.0),
    )
    assert [(s.waited_input_s, s.waited_output_s, s.waited_workers_s) for s in stats.stages] == [(0, 4, 0), (1, 0, 3)]
    assert str(stats) == (
        "stage  rows   bytes  bundles    busy  no input  no room  no worker   held   wall        rate\n"
        "-----  ----  ------  -------  ------  --------  -------  ---------  -----  -----  ----------\n"
        "Scan     10  1.0 kB        1  250 ms      0 ms    4.0 s       0 ms  100 B  4.0 s  2.5 rows/s\n"
        "Map      10  1.0 kB        1   7.5 s     1.0 s     0 ms      3.0 s  900 B  4.0 s  2.5 rows/s\n"
        "finished in 4.0 s; most work in Map (97%); held up to 1.0 kB of data in a process of 100.0 MB\n"
        "Bottleneck: Map. Its 2 workers, or all cores, were busy 75% of the time. More cores would help.\n"
        "openai gpt: 12 calls, 3 cached, 2 retried, 1 refused, 1,000 + 100 tokens, $0.25\n"
        "pages: 7"
    )


def test_a_slow_reader_is_the_bottleneck() -> None:
    stats = stats_of(STARTED, sampled(104.0, "workers", reader_s=3.0), QueryFinished(None, 104.0))
    assert stats.stages[1].waited_workers_s == 1.0
    assert str(stats).endswith("Bottleneck: the code that reads the rows. The query waited for it 75% of the time.")


@pytest.mark.parametrize(
    ("kind", "model", "refused", "gpus", "remedy"),
    [
        ("read", None, 0, (), "Faster storage"),
        ("async function", ("openai", "gpt"), 5, (), "openai refused 5 requests: a higher rate limit"),
        ("async function", ("openai", "gpt"), 0, (), "A faster model or a higher concurrency="),
        ("function", None, 0, (GpuUse("0", 0.95, 1, 1, None),), "More GPUs"),
        ("function", None, 0, (GpuUse("0", 0.25, 1, 1, None),), "Larger batches would help: GPUs were 25% busy"),
    ],
)
def test_the_bottleneck_comes_with_a_remedy(kind: Any, model: Any, refused: int, gpus: Any, remedy: str) -> None:
    stages = [StageStats("Map", kind=kind, model=model, waited_workers_s=9.0, num_workers=1)]
    uses = [ModelSample("openai", "gpt", 12, 0, 0, 1000, 100, 0.25, refused)]
    assert remedy in bottleneck_text(stages, 10.0, 0.0, uses, gpus)
    assert bottleneck_text(stages, 100.0, 0.0, uses, gpus) == ""


def test_a_stage_that_is_done_is_no_bottleneck_while_others_run() -> None:
    done, last = StageStats("done", waited_workers_s=9.0, wall_s=9.0), StageStats("last", waited_workers_s=3.0)
    assert bottleneck([done, last], 10.0) is last
    last.wall_s = 12.0
    assert bottleneck([done, last], 12.0) is done


def test_a_read_that_waits_for_the_cores_of_a_function_is_no_bottleneck() -> None:
    """Such as a function whose first bundle is not done, or has failed."""
    read = StageStats("read", kind="read", waited_workers_s=3.0, busy_s=0.001)
    function = StageStats("udf", kind="function", waited_workers_s=3.0)
    assert bottleneck([read, function], 4.0) is function
    read.wall_s = function.wall_s = 4.0
    assert bottleneck([read, function], 4.0) is function
    read.busy_s = 6.0
    assert bottleneck([read, function], 4.0) is read


def test_a_long_query_keeps_a_short_timeline() -> None:
    stats = stats_of(STARTED, *(sampled(100.0 + second, "input") for second in range(5000)))
    assert MAX_SAMPLES / 4 < len(stats.timeline) <= MAX_SAMPLES
    times = [point.elapsed_s for point in stats.timeline]
    assert times == sorted(times)
    assert times[-1] > 4900


def finished_run() -> Stats:
    """Return the statistics of a long run, with large numbers in every column."""
    names = [
        "read 20261118T152250-ed8…0000.parquet",
        "prompt gpt-5-mini as summary",
        "prompt gpt-5-mini as title",
        "write out/",
    ]
    waits: list[Any] = ["input", "workers", "output", "input"]
    samples = tuple(
        StageSample(number, 2, 2, 0, 0, 5 * 10**9, waiting_for, None, False) for number, waiting_for in enumerate(waits)
    )
    model = ModelSample("openai", "gpt-5-mini", 1_234_567, 890, 12, 345_678_901, 23_456_789, 1234.56)
    return stats_of(
        QueryStarted(tuple(StageInfo(number, name) for number, name in enumerate(names)), 0.0),
        *(BundleProduced(number, 1_234_567, 987_654_321, 4000.0) for number in range(4)),
        RowsFailed(1, (RowError("prompt", "{}", "ValueError", "bad", ""),) * 1000),
        QuerySampled(3600.0, samples, 0, 0, 0.0, Measures(models=(model,))),
        QueryFinished(None, 7200.0),
    )


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_table_fits_the_terminal_and_cuts_no_number(width: int) -> None:
    stats = finished_run()
    lines = stats.text(width).splitlines()
    assert max(map(cell_width, lines)) <= width
    header, rows = lines[0].split("  "), lines[2:6]
    whole = stats.text(None).splitlines()
    for row, complete in zip(rows, whole[2:6], strict=True):
        assert all(cell in complete for cell in re.split(r"\s{2,}", row)[1:]), row
    assert len({re.split(r"\s{2,}", row)[0] for row in rows}) == 4, "names are told apart"
    assert {"stage", "rows"} <= {each.strip() for each in header}
    assert " ".join(" ".join(lines[6:]).split()) == " ".join(" ".join(whole[6:]).split())


def test_a_wide_terminal_shows_every_column() -> None:
    stats = finished_run()
    assert stats.text(200) == stats.text(None)
    shown = {width: len(re.split(r"\s{2,}", stats.text(width).splitlines()[0])) for width in (60, 80, 120, 200)}
    assert shown[60] < shown[80] < shown[120] < shown[200] == 12


def test_print_uses_the_terminal_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    with os.fdopen(terminal, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert str(finished_run()) == finished_run().text(72)
    os.close(main)
