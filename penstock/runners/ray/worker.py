"""Classes of the Ray actors: they feed handlers from the object store and report to the driver."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import ray

from penstock.engine.handlers import PartHandler, WritingHandler
from penstock.engine.pools.handler_slot import HandlerSlot, Output
from penstock.engine.pools.worker import packed_error, unpacked_error
from penstock.errors import UdfError
from penstock.events.events import RowError
from penstock.events.metrics import MetricValues, taken_metrics
from penstock.types import joined
from penstock.types.ipc import from_ipc, to_ipc

GATHERED_S = 0.05  # for how long outputs are joined
MAX_EXCESS = 1.1  # a batch is stored as it is if its buffers have at most so many times the bytes of its rows
MIN_COLUMN_NBYTES = 2**16  # of such a batch, for each column
NUM_SHOWN = 10  # rows of an output that the worker writes
SHOWN_NBYTES = 2**20
Slices = tuple[tuple[int, int], ...]  # for each object of a task: its offset and number of rows


class ActorPlace(NamedTuple):
    """The node, process and address of an actor, for messages; and the reason if it has not opened a handler."""

    node_id: str
    name: str
    failure: bytes | None = None


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """The handle of a bundle that the worker has written, with the records of its files."""

    records: pa.RecordBatch
    write_s: float
    first_rows: pa.RecordBatch

    def fetch(self) -> pa.RecordBatch:
        """Implements ``RemoteBatch`` for the output of the write."""
        return self.records


@dataclass(frozen=True, slots=True)
class ActorReport:
    """The outcome of a call. It also carries errors, so that Ray does not wrap them."""

    has_output: bool = False
    num_rows: int = 0
    nbytes: int = 0
    is_done: bool = True
    busy_s: float = 0.0
    error: bytes | None = None
    errors: tuple[RowError, ...] = ()
    metrics: MetricValues | None = None  # errors of the functions since the last report
    written: WrittenBatch | None = None  # the output, if the worker has written it

    @property
    def exception(self) -> BaseException | None:
        return None if self.error is None else unpacked_error(self.error)


class References(NamedTuple):
    """Objects that a worker fetches one by one, since all of them together may exceed the memory of its node."""

    refs: list[Any]


PackedBatch: TypeAlias = pa.RecordBatch | pa.Buffer  # the buffer is an IPC stream
Reply: TypeAlias = tuple[PackedBatch | None, ActorReport]  # two objects, so that the first may stay in the object store


class Worker:
    """An actor with a handler for each stage that uses it. It does one call at a time, in the order of the calls."""

    def __init__(self) -> None:
        self._stages: dict[int, OpenedStage] = {}

    def open(self, stage: int, packed_open: bytes, gathered_nbytes: int) -> ActorPlace:
        """Open the handler of a stage and return the place of this actor. An error is reported here and by the tasks.

        Outputs are joined while they are smaller than ``gathered_nbytes``. A stage that is open stays so.
        """
        if stage in self._stages:
            return this_place()
        opened = OpenedStage(packed_open, gathered_nbytes)
        try:
            opened.slot.open()
        except BaseException as exc:
            opened.failure = exc
        self._stages[stage] = opened
        return this_place()._replace(failure=None if opened.failure is None else packed_error(opened.failure))

    def start(self, stage: int, first_row: int, num_skipped: int, slices: Slices | None, *items: Any) -> Reply:
        """Start a task and return its first output after ``num_skipped`` rows, which another actor returned before it
        died.
        """
        return self._reply(stage, lambda opened: opened.start(slices, items, first_row, num_skipped))

    def write(self, stage: int, first_row: int, num_skipped: int, slices: Slices | None, *items: Any) -> Reply:
        """Start a task. If its first output is the last, and large, write it and return the records in the report."""
        return self._reply(stage, lambda opened: opened.start(slices, items, first_row, num_skipped), first_row)

    def resume(self, stage: int, first_row: int) -> Reply:
        """Return the next output of the task, whose input starts at ``first_row``."""
        return self._reply(stage, lambda opened: opened.gathered(opened.slot.next()))

    def remake(
        self, stage: int, first_row: int, start: int, num_rows: int, slices: Slices | None, *items: Any
    ) -> Reply:
        """Compute ``num_rows`` rows of a task's output again, starting at ``start``. A task that rests here stays as it
        is.
        """

        def rows(opened: OpenedStage) -> Output:
            given = opened.slot.open().process(input_from(slices, items), first_row)
            return rows_of([given] if isinstance(given, pa.RecordBatch) else given, start, num_rows), True

        return self._reply(stage, rows)

    def apply(self, stage: int, function: Callable[..., Any], *args: Any) -> Any:
        """Return the results of a function, which needs no handler."""
        return function(*args)

    def close(self, *stages: int) -> None:
        """Close the handlers of some stages."""
        for stage in stages:
            opened = self._stages.pop(stage, None)
            if opened is not None:
                opened.slot.close()

    def _reply(self, stage: int, advance: Callable[[OpenedStage], Output], written_at: int | None = None) -> Reply:
        started = time.perf_counter()
        try:
            with self._handler(stage) as opened:
                if opened.failure is not None:
                    raise opened.failure
                batch, is_done = advance(opened)
                written = opened.write(batch, written_at) if is_done and written_at is not None else None
                packed = None if batch is None or written is not None else packed_batch(batch)
                busy_s = time.perf_counter() - started - (0.0 if written is None else written.write_s)
                num_rows, nbytes = (0, 0) if batch is None else (batch.num_rows, batch.nbytes)
                errors, metrics = opened.slot.take_errors(), taken_metrics()
                has_output = batch is not None
                report = ActorReport(
                    has_output, num_rows, nbytes, is_done, busy_s, errors=errors, metrics=metrics, written=written
                )
                return packed, report
        except ray.exceptions.RayError:
            raise  # an object is lost: the driver makes it again
        except BaseException as exc:
            return None, ActorReport(error=packed_error(exc), metrics=taken_metrics())

    def _handler(self, stage: int) -> AbstractContextManager[OpenedStage]:
        return nullcontext(self._stages[stage])


class ThreadedWorker(Worker):
    """An actor that does several calls at once. The threads of a stage have a handler each, which share one instance.

    Only models of Penstock's functions run here. They give one batch for a batch, so no task rests between two calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self._free: dict[int, list[OpenedStage]] = {}

    def open(self, stage: int, packed_open: bytes, gathered_nbytes: int) -> ActorPlace:
        place = super().open(stage, packed_open, gathered_nbytes)
        self._free.setdefault(stage, [self._stages[stage]])
        return place

    def close(self, *stages: int) -> None:
        super().close(*stages)
        for stage in stages:
            for opened in self._free.pop(stage, ()):
                opened.slot.close()

    @contextmanager
    def _handler(self, stage: int) -> Iterator[OpenedStage]:
        try:
            opened = self._free[stage].pop()
        except IndexError:
            first = self._stages[stage]
            opened = OpenedStage(first.packed_open, first.gathered_nbytes)
        try:
            yield opened
        finally:
            self._free[stage].append(opened)


@dataclass(slots=True)
class OpenedStage:
    """The handler of a stage in a worker, and why it did not open."""

    packed_open: bytes
    gathered_nbytes: int
    failure: BaseException | None = None
    slot: HandlerSlot = field(init=False)

    def __post_init__(self) -> None:
        packed_open = self.packed_open
        self.slot = HandlerSlot(lambda context: pickle.loads(packed_open)(context))

    def start(self, slices: Slices | None, items: Sequence[Any], first_row: int, num_skipped: int) -> Output:
        is_written = slices is not None and isinstance(self.slot.open(), PartHandler)
        item = slices_from(slices or (), items) if is_written else input_from(slices, items)
        batch, is_done = self.slot.start(item, first_row)
        while num_skipped and batch is not None:
            if num_skipped < batch.num_rows:
                return batch.slice(num_skipped), is_done
            num_skipped -= batch.num_rows
            self.slot.take_errors()  # reported before
            batch, is_done = (None, True) if is_done else self.slot.next()
        return self.gathered((batch, is_done))

    def write(self, output: pa.RecordBatch | None, first_row: int) -> WrittenBatch | None:
        """Write the output of a task, if the handler does that."""
        handler, started = self.slot.open(), time.perf_counter()
        if output is None or not isinstance(handler, WritingHandler):
            return None
        records = handler.write(output, first_row)
        write_s = time.perf_counter() - started
        return None if records is None else WrittenBatch(records, write_s, first_rows(output))

    def gathered(self, first: Output) -> Output:
        """Join an output with the next outputs while they are small and come quickly, because each call has a cost."""
        started, (batch, is_done) = time.perf_counter(), first
        found, nbytes = list[pa.RecordBatch](), 0
        while batch is not None:
            found.append(batch)
            nbytes += batch.nbytes
            if is_done or nbytes >= self.gathered_nbytes or time.perf_counter() - started > GATHERED_S:
                break
            batch, is_done = self.slot.next()
        return (joined(found) if found else None), is_done


def packed_batch(batch: pa.RecordBatch) -> PackedBatch:
    """Return a batch as an object of the store: as it is, which Ray copies once, or as an IPC stream.

    Pickle stores all of the array that a slice belongs to, and is slow with many small columns.

    >>> batch = pa.record_batch({"x": list(range(20_000))})
    >>> [type(packed_batch(rows)).__name__ for rows in (batch, batch.slice(10_000))]
    ['RecordBatch', 'Buffer']
    """
    nbytes = batch.nbytes
    is_whole = batch.get_total_buffer_size() <= MAX_EXCESS * nbytes
    return batch if is_whole and nbytes > MIN_COLUMN_NBYTES * batch.num_columns else to_ipc(batch)


def unpacked_batch(packed: PackedBatch) -> pa.RecordBatch:
    """Return the batch, which reads the object in place."""
    return packed if isinstance(packed, pa.RecordBatch) else from_ipc(packed)


def slices_from(slices: Slices, items: Sequence[PackedBatch]) -> list[pa.RecordBatch]:
    return [unpacked_batch(item).slice(*part) for item, part in zip(items, slices, strict=True)]


def fetched_slices(slices: Slices, refs: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    for ref, part in zip(refs, slices, strict=True):
        yield unpacked_batch(ray.get(ref)).slice(*part)


def input_from(slices: Slices | None, items: Sequence[Any]) -> Any:
    """Return the input of a handler: the read task, or the slices of several objects as one batch, or one by one."""
    if slices is None:
        return items[0]
    if items and isinstance(items[0], References):
        return fetched_slices(slices, items[0].refs)
    return joined(slices_from(slices, items))


def rows_of(batches: Iterable[pa.RecordBatch], start: int, num_rows: int) -> pa.RecordBatch:
    """Return ``num_rows`` rows of several batches, starting at ``start``, as one batch."""
    found, num_missing = list[pa.RecordBatch](), num_rows
    for batch in batches:
        if start < batch.num_rows or not num_rows:
            found.append(batch.slice(start, num_missing))
            num_missing -= found[-1].num_rows
        start = max(start - batch.num_rows, 0)
        if not num_missing and found:
            return joined(found) if len(found) > 1 else found[0]
    raise UdfError(
        "A batch was lost with its node, and the function that made it gave fewer rows when it was called again. "
        "On Ray, a function must give the same rows each time."
    )


def first_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return copies of a few rows to show, if they are not too large.

    >>> [first_rows(pa.record_batch({"x": [b"x" * size] * 20})).num_rows for size in (1000, 200_000, 2_000_000)]
    [10, 5, 0]
    """
    rows = batch.slice(0, NUM_SHOWN)
    while rows.num_rows and rows.nbytes > SHOWN_NBYTES:
        rows = rows.slice(0, rows.num_rows // 2)
    return rows.take(pa.array(range(rows.num_rows), pa.int64()))


def this_place() -> ActorPlace:
    context = ray.get_runtime_context()
    return ActorPlace(context.get_node_id(), f"pid {os.getpid()} on {ray.util.get_node_ip_address()}")
