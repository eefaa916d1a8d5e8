"""A query that is stopped, however it is stopped, leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import penstock as ps
from penstock.errors import UdfError


def belongings() -> dict[str, set[str]]:
    """Return what this process holds: threads, child processes, descriptors, shared memory."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "threads": {str(thread.ident) for thread in threading.enumerate()},
        "children": {str(child.pid) for child in psutil.Process().children(recursive=True)},
        "descriptors": {f"{fd}->{_target(fd)}" for fd in os.listdir("/proc/self/fd") if _target(fd)},
        "shared memory": {*os.listdir("/dev/shm"), *(line.split()[-1] for line in maps if "memfd:penstock" in line)},
    }


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # the one that listed the folder
        return ""


@ps.func
def plus_one(x: int) -> int:
    return x + 1


@ps.func
async def later(x: int) -> int:
    await asyncio.sleep(0)
    return x + 1


@ps.func
async def never(x: int) -> int:
    if x > 10:
        await asyncio.Event().wait()
    return x


@ps.func(use_process=True)
def elsewhere(x: int) -> int:
    return x + 1


@ps.func
def failing(x: int) -> int:
    if x == 1_000:
        raise ValueError("no")
    return x


@ps.func
def interrupting(x: int) -> int:
    if x == 1_000:
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.01)
    return x


def rows() -> ps.DataFrame:
    return ps.range(20_000).into_batches(100)


def stop_by_limit() -> None:
    assert rows().with_column("y", plus_one(ps.col("id"))).limit(3).count_rows() == 3


def stop_by_limit_async() -> None:
    assert len(rows().with_column("y", never(ps.col("id"))).take(5)) == 5


def stop_by_closing_the_iterator() -> None:
    iterator = rows().with_column("y", later(ps.col("id"))).iter_rows()
    assert next(iterator)["id"] == 0
    iterator.close()  # type: ignore[attr-defined]


def stop_by_forgetting_the_iterator() -> None:
    next(iter(rows().map_batches(lambda batch: batch).iter_batches(batch_size=7)))


def stop_by_an_error() -> None:
    with pytest.raises(UdfError):
        rows().with_column("y", failing(ps.col("id"))).collect()


def stop_by_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        rows().with_column("y", interrupting(ps.col("id"))).collect()


def stop_processes_by_limit() -> None:
    assert rows().with_column("y", elsewhere(ps.col("id"))).limit(3).count_rows() == 3


def stop_processes_by_closing() -> None:
    iterator = rows().with_column("y", elsewhere(ps.col("id"))).iter_rows()
    assert next(iterator)["y"] == 1
    iterator.close()  # type: ignore[attr-defined]


WAYS: list[tuple[Callable[[], None], int]] = [
    (stop_by_limit, 20),
    (stop_by_limit_async, 20),
    (stop_by_closing_the_iterator, 20),
    (stop_by_forgetting_the_iterator, 15),
    (stop_by_an_error, 15),
    (stop_by_interrupt, 8),
    (stop_processes_by_limit, 1),
    (stop_processes_by_closing, 1),
]


@pytest.mark.timeout(180)
def test_a_hundred_cancelled_queries_leave_nothing_behind() -> None:
    for way, _ in WAYS[:6]:  # what is loaded once and stays is not a leak
        way()
    before = belongings()
    for way, times in WAYS:
        for _ in range(times):
            way()
    after = belongings()
    assert sum(times for _, times in WAYS) == 100
    for kind, held in before.items():
        assert after[kind] - held == set(), f"{kind} left behind"


def test_a_cancelled_query_stops_after_the_row_it_is_at() -> None:
    release = threading.Event()
    calls: list[int] = []

    @ps.func
    def held_up(x: int) -> int:
        calls.append(x)
        if x >= 64:
            release.wait()
        return x

    iterator = ps.range(100_000).with_column("y", held_up(ps.col("id"))).iter_rows()
    next(iterator)
    threading.Timer(0.1, release.set).start()  # the rows in hand may end; none that waits may begin
    iterator.close()  # type: ignore[attr-defined]
    assert len(calls) < 2_000
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock")]


def test_a_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(UdfError):
        rows().with_column("y", failing(ps.col("id"))).write_parquet(str(tmp_path / "out"))
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
