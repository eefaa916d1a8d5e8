"""A handler that does as it is told and keeps a diary, and a reader of reports: for tests of pools of any kind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import cloudpickle
import pyarrow as pa

from penstock.contracts import Bundle, Emit, Report, Task, WorkerContext
from penstock.engine.pools.handler_slot import OpenHandler
from penstock.engine.pools.process_group import ProcessGroup
from penstock.engine.pools.processes import process_opener
from penstock.engine.pools.threads import ThreadPool, Threads
from penstock.errors import QueryCancelledError
from penstock.events.events import RowError

REPORT_TIMEOUT_S = 30.0


class Reports:
    """What a pool emits, in order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Report] = SimpleQueue()
        self.emit = self._queue.put

    def next(self) -> Report:
        return self._queue.get(timeout=REPORT_TIMEOUT_S)

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()

    def drain(self) -> list[Report]:
        drained = []
        while True:
            try:
                drained.append(self._queue.get_nowait())
            except Empty:
                return drained


@dataclass(frozen=True)
class Diary:
    """Lines that workers, wherever they are, append to one file."""

    path: Path

    def note(self, line: str) -> None:
        with open(self.path, "a") as file:
            file.write(line + "\n")

    def lines(self, prefix: str = "") -> list[str]:
        written = self.path.read_text().splitlines() if self.path.exists() else []
        return [line for line in written if line.startswith(prefix)]


class Gates:
    """Pipes with names, at which a worker waits until the test opens them; no polling on either side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def make(self) -> str:
        self._made += 1
        path = str(self._folder / f"gate-{self._made}")
        os.mkfifo(path)
        return path

    @staticmethod
    def open(path: str) -> None:
        """Let through the one that waits; returns once it is there."""
        os.close(os.open(path, os.O_WRONLY))


def pass_gate(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


class ObedientHandler:
    """Does what the first row of column ``do`` says, and writes down what happens to it."""

    def __init__(self, diary: Diary, context: WorkerContext) -> None:
        self._diary = diary
        self._is_cancelled = context.is_cancelled
        self._record = context.record
        self._num_seen = 0
        diary.note(f"open {os.getpid()}")

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        self._num_seen += item.num_rows
        what, *args = item.column("do")[0].as_py().split()
        self._diary.note(f"process {what}")
        given: Any = getattr(self, what)(item, *args)
        return given

    def finish(self) -> Iterator[pa.RecordBatch]:
        self._diary.note("finish")
        yield pa.record_batch({"num_seen": [self._num_seen]})

    def close(self) -> None:
        self._diary.note("close")

    # --- what it can be told to do ---

    def echo(self, item: pa.RecordBatch) -> pa.RecordBatch:
        return item

    def record(self, item: pa.RecordBatch, message: str) -> pa.RecordBatch:
        self._record(RowError("record", "{}", "ValueError", message, ""))
        return item

    def parts(self, item: pa.RecordBatch, num_parts: str) -> Iterator[pa.RecordBatch]:
        try:
            for part in range(int(num_parts)):
                self._diary.note(f"part {part}")
                yield pa.record_batch({"part": [part]})
        finally:
            self._diary.note("parts ended")

    def parts_then_fail(self, item: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield item
        self.fail(item)

    def give_something_else(self, item: pa.RecordBatch) -> Iterator[Any]:
        yield "no batch"

    def fail(self, item: pa.RecordBatch) -> pa.RecordBatch:
        try:
            raise KeyError("the cause")
        except KeyError as exc:
            raise ValueError("this row is bad") from exc

    def fail_strangely(self, item: pa.RecordBatch) -> pa.RecordBatch:
        raise UnpicklableError(1, 2)

    def say_cancelled(self, item: pa.RecordBatch) -> pa.RecordBatch:
        raise QueryCancelledError("a query within the function was stopped")

    def wait(self, item: pa.RecordBatch, gate: str) -> pa.RecordBatch:
        pass_gate(gate)
        return item

    def wait_until_cancelled(self, item: pa.RecordBatch, gate: str) -> pa.RecordBatch:
        pass_gate(gate)
        while not self._is_cancelled():
            pass
        return item

    def exit(self, item: pa.RecordBatch, code: str) -> pa.RecordBatch:
        os._exit(int(code))

    def be_killed(self, item: pa.RecordBatch, number: str) -> pa.RecordBatch:
        os.kill(os.getpid(), int(number))
        signal.pause()
        return item

    def fork_and_die(self, item: pa.RecordBatch) -> pa.RecordBatch:
        """Leave a child behind that has inherited everything."""
        pid = os.fork()
        if pid == 0:
            signal.pause()
        self._diary.note(f"child {pid}")
        os._exit(9)

    def start_child_and_wait(self, item: pa.RecordBatch, gate: str) -> pa.RecordBatch:
        child = subprocess.Popen(["sleep", "600"], close_fds=False)
        self._diary.note(f"child {child.pid}")
        pass_gate(gate)
        signal.pause()
        return item

    def flood(self, item: pa.RecordBatch, num_bytes: str) -> pa.RecordBatch:
        sys.stdout.write("o" * int(num_bytes))
        sys.stderr.write("e" * int(num_bytes))
        sys.stdout.flush()
        return item

    def grow(self, item: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"payload": pa.concat_arrays([item.column("payload")] * 2)})


class UnpicklableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")  # so that pickle cannot call it again


def opener(diary: Diary) -> OpenHandler:
    return partial(ObedientHandler, diary)


def process_pool(
    open_handler: OpenHandler, capacity: int, threads: Threads, emit: Emit, num_channels: int = 1
) -> ThreadPool:
    """Return a pool whose handlers are in worker processes."""
    group = ProcessGroup([{}] * (capacity // num_channels), num_channels)
    return ThreadPool(process_opener(cloudpickle.dumps(open_handler), group), capacity, threads, emit)


def failing_opener(context: WorkerContext) -> ObedientHandler:
    raise ValueError("no model there")


def blocked_opener(gate: str, context: WorkerContext) -> ObedientHandler:
    pass_gate(gate)
    signal.pause()
    raise AssertionError


class StubbornHandler(ObedientHandler):
    """Fails to close."""

    def close(self) -> None:
        super().close()
        raise OSError("cannot close")


def stubborn_opener(diary: Diary) -> OpenHandler:
    return partial(StubbornHandler, diary)


def order(do: str, **columns: Any) -> Task:
    """Return a task that tells the handler what to do."""
    batch = pa.record_batch({"do": [do], **columns})
    return Task((Bundle(batch, batch.num_rows, batch.nbytes),), 0, batch.nbytes, batch.num_rows)
