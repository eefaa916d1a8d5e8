"""A query that is stopped, however it is stopped, leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import penstock as ps
from penstock.engine.pools.threads import ThreadPool
from penstock.engine.task_sizes import FIRST_PACED_ROWS
from penstock.errors import UdfError, WorkerDiedError

ROWS_PER_BATCH = 100


def belongings() -> dict[str, set[str]]:
    """Return what this process holds: threads, child processes, descriptors, shared memory."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "threads": {str(thread.ident) for thread in threading.enumerate()},
        "children": {str(child.pid) for child in psutil.Process().children(recursive=True)},
        "descriptors": {f"{fd}->{_target(fd)}" for fd in os.listdir("/proc/self/fd") if _target(fd)},
        "shared memory": {line.split()[-1] for line in maps if "memfd:penstock" in line or "/dev/shm" in line},
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
    if x >= ROWS_PER_BATCH:
        await asyncio.Event().wait()
    return x


@ps.func
async def interrupting_then_never(x: int) -> int:
    if x == 9:  # a reader of few rows starts with 16; on another thread, the signal does not wake the one that waits
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    await asyncio.Event().wait()
    return x


@ps.func
async def on_a_thread(x: int) -> int:
    return await asyncio.to_thread(abs, x)


@ps.func(use_process=True)
def elsewhere(x: int) -> int:
    return x + 1


@ps.func(use_process=True)
def dying_elsewhere(x: int) -> int:
    if x == 1:
        os._exit(7)
    return x


@ps.cls(use_process=True)
class Unloadable:
    def __init__(self) -> None:
        raise ValueError("no weights")

    def __call__(self, x: int) -> int:
        return x


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
    return ps.range(20_000).into_batches(ROWS_PER_BATCH)


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


def stop_by_interrupt_of_the_reader() -> None:
    """Ctrl-C while the loop waits for a batch that never comes."""
    batches = rows().with_column("y", interrupting_then_never(ps.col("id"))).iter_batches(batch_size=5)
    with pytest.raises(KeyboardInterrupt):
        list(batches)


def stop_by_leaving_the_loop() -> None:
    """The query is stuck, and a thread of ours waits for it: leaving must not."""
    for _ in rows().with_column("y", never(ps.col("id"))).iter_batches(batch_size=5):
        break


def stop_by_an_error_in_a_write() -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.raises(UdfError):
        rows().with_column("y", failing(ps.col("id"))).write_parquet(f"{folder}/out")


def stop_by_an_error_of_the_reader() -> None:
    df = rows().with_column("y", on_a_thread(ps.col("id")))
    with pytest.raises(ZeroDivisionError):
        sum(1 // (row["id"] - 5) for row in df.iter_rows())


def stop_processes_by_limit() -> None:
    assert rows().with_column("y", elsewhere(ps.col("id"))).limit(3).count_rows() == 3


def stop_processes_by_closing() -> None:
    iterator = rows().with_column("y", elsewhere(ps.col("id"))).iter_rows()
    assert next(iterator)["y"] == 1
    iterator.close()  # type: ignore[attr-defined]


def stop_processes_by_death() -> None:
    with pytest.raises(WorkerDiedError, match="exit code 7"):
        ps.range(2).with_column("y", dying_elsewhere(ps.col("id"))).collect()  # few rows are soon halved


def stop_processes_that_do_not_open() -> None:
    with pytest.raises(UdfError, match="no weights"):
        rows().with_column("y", Unloadable()(ps.col("id"))).collect()


def stop_processes_by_interrupt() -> None:
    df = rows().with_column("y", elsewhere(ps.col("id")))
    with pytest.raises(KeyboardInterrupt):
        any(signal.raise_signal(signal.SIGINT) for _ in df.iter_rows())  # type: ignore[func-returns-value]


IN_THIS_PROCESS: list[tuple[Callable[[], None], int]] = [
    (stop_by_limit, 12),
    (stop_by_limit_async, 12),
    (stop_by_closing_the_iterator, 12),
    (stop_by_forgetting_the_iterator, 12),
    (stop_by_leaving_the_loop, 8),
    (stop_by_an_error, 8),
    (stop_by_an_error_in_a_write, 8),
    (stop_by_an_error_of_the_reader, 8),
    (stop_by_interrupt, 8),
    (stop_by_interrupt_of_the_reader, 5),
]
IN_OTHERS: list[tuple[Callable[[], None], int]] = [
    (stop_processes_by_limit, 2),
    (stop_processes_by_closing, 1),
    (stop_processes_by_death, 2),
    (stop_processes_that_do_not_open, 1),
    (stop_processes_by_interrupt, 1),
]
WAYS = IN_THIS_PROCESS + IN_OTHERS


def test_a_hundred_cancelled_queries_leave_nothing_behind() -> None:
    for way, _ in IN_THIS_PROCESS:  # what is loaded once and stays is not a leak
        way()
    before = belongings()
    for way, times in WAYS:
        for _ in range(times):
            way()
    after = belongings()
    assert sum(times for _, times in WAYS) == 100
    for kind, held in before.items():
        assert after[kind] - held == set(), f"{kind} left behind"


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("penstock-0", lambda df: df.count_rows()),
        ("penstock-asyncio", lambda df: df.select(later(ps.col("id"))).collect()),
        ("penstock-prefetch", lambda df: list(df.iter_batches())),
    ],
    ids=["threads", "asyncio", "prefetch"],
)
def test_an_interrupt_while_a_thread_starts(
    name: str, query: Callable[[ps.DataFrame], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``Thread.start`` waits for the new thread. An interrupt there leaves a thread that begins later, and must end."""
    start = threading.Thread.start
    interrupted: list[threading.Thread] = []

    def interrupt(thread: threading.Thread) -> None:
        if thread.name != name:
            return start(thread)
        interrupted.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        query(rows())
    (thread,) = interrupted
    start(thread)
    thread.join(60)
    assert not thread.is_alive()


def test_a_cancelled_query_stops_after_the_row_it_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are under way when the query is stopped come to their end; not one more begins."""
    is_stopped = threading.Event()
    begun: list[int] = []

    @ps.func
    def held_up(x: int) -> int:
        if x >= FIRST_PACED_ROWS:
            begun.append(x)
            assert is_stopped.wait(60)
        return x

    monkeypatch.setattr(ThreadPool, "_interrupt", lambda pool: is_stopped.set())  # called once the flag is up
    with ps.config(num_threads=2):
        iterator = ps.range(100_000).with_column("y", held_up(ps.col("id"))).iter_rows()
        next(iterator)
        iterator.close()  # type: ignore[attr-defined]
    assert len(begun) <= 2
    left = {thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")}
    assert left <= {"penstock-storage"}  # which serves all stores for as long as the process lives


def test_a_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(UdfError):
        rows().with_column("y", failing(ps.col("id"))).write_parquet(str(tmp_path / "out"))
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
