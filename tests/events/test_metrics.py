"""Counters and gauges of functions, added up wherever the functions run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps


def count(batch: dict[str, Any]) -> dict[str, Any]:
    ps.metrics.increment_counter("rows", len(batch["id"]))
    ps.metrics.increment_counter("batches")
    ps.metrics.set_gauge("weight", 2.5)
    return batch


async def count_async(batch: dict[str, Any]) -> dict[str, Any]:
    return count(batch)


@pytest.mark.parametrize("function", [count, count_async])
def test_counters_add_up_over_workers(function: Any) -> None:
    df = ps.range(1000).map_batches(function, batch_size=100).collect()
    assert df.stats().counters == {"rows": 1000, "batches": 10}
    assert df.stats().gauges == {"weight": 2.5}
    assert str(df.stats()).splitlines()[-3:] == ["rows: 1,000", "batches: 10", "weight: 2.5"]


def test_counters_and_gauges_of_processes_add_up(tmp_path: Path) -> None:
    """Each of two processes waits for the other, so that both take part."""

    def meet(batch: dict[str, Any]) -> dict[str, Any]:
        import os
        import time

        (tmp_path / str(os.getpid())).touch()
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)
        return count(batch)

    df = ps.range(2).map_batches(meet, batch_size=1, use_process=True, concurrency=2).collect()
    assert (df.stats().counters, df.stats().gauges) == ({"rows": 2, "batches": 2}, {"weight": 5})


def test_each_query_counts_for_itself() -> None:
    df = ps.range(10).map_batches(count)
    assert [df.collect().stats().counters["rows"], df.map_batches(count).collect().stats().counters["rows"]] == [10, 10]
    ps.metrics.increment_counter("rows")  # outside of a query
    ps.metrics.set_gauge("rows", 1)


def test_the_context_of_the_reader_keeps_its_account() -> None:
    from penstock.cost.accounts import current_account

    rows = ps.range(5000).map_batches(count, batch_size=10).iter_rows()
    next(rows)
    assert current_account() is None


def test_retries_are_counted() -> None:
    failed: set[int] = set()

    @ps.func(max_retries=2, use_process=False)
    def flaky(number: int) -> int:
        if number not in failed:
            failed.add(number)
            raise OSError("try again")
        return number

    df = ps.range(3).select(flaky(ps.col("id"))).collect()
    assert df.stats().counters == {"retries of flaky": 3}


class Recorder:
    def __init__(self, fails_on: str = "") -> None:
        self.events: list[str] = []
        self._fails_on = fails_on

    def on_event(self, event: Any) -> None:
        self.events.append(type(event).__name__)
        if self.events[-1] == self._fails_on:
            raise ValueError("not today")


def test_attached_subscribers_see_every_query(caplog: pytest.LogCaptureFixture) -> None:
    recorder, broken = Recorder(), Recorder(fails_on="BundleProduced")
    for each in (broken, recorder):
        ps.attach_subscriber(each)
    try:
        ps.range(3).where(ps.col("id") > 0).collect()
    finally:
        for each in (broken, recorder):
            ps.detach_subscriber(each)
    assert recorder.events[-2] == "QuerySampled"  # others come while it runs
    others = dict.fromkeys(name for name in recorder.events if name != "QuerySampled")
    assert list(others) == ["QueryStarted", "BundleProduced", "StageFinished", "QueryFinished"]
    assert broken.events[-1] == "BundleProduced"
    assert "Recorder failed and gets no more events of this query" in caplog.text
    num_events = len(recorder.events)
    ps.range(3).collect()
    assert len(recorder.events) == num_events
    with pytest.raises(ps.errors.InvalidArgumentError, match="on_event"):
        ps.attach_subscriber(print)  # type: ignore[arg-type]
    with pytest.raises(ps.errors.InvalidArgumentError, match="not attached"):
        ps.detach_subscriber(recorder)
