"""What each stage did, from the events alone."""

from __future__ import annotations

import pyarrow as pa

from penstock.observe.events import (
    BundleProduced,
    Event,
    QueryFinished,
    QueryStarted,
    RowError,
    RowsFailed,
    StageFinished,
    StageInfo,
)
from penstock.observe.stats import Stats

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
