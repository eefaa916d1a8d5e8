"""The arguments and results of the calls of Ray actors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import ray

from penstock.engine.pools.worker import packed_error, unpacked_error
from penstock.engine.protocols import Ahead
from penstock.errors import UdfError
from penstock.observe.events import RowError
from penstock.observe.metrics import MetricValues, taken_metrics
from penstock.types import joined
from penstock.types.ipc import from_ipc, to_ipc

MAX_EXCESS = 1.1  # bytes of the buffers of a batch that is stored as it is, relative to those of its rows
MIN_COLUMN_NBYTES = 2**16  # of such a batch, for each column
MIN_CALL_NBYTES = 2**20  # of the rows of a call for the next stage, which are joined otherwise
Slices = tuple[tuple[int, int], ...]  # offset and number of rows of each object of a task


class ActorPlace(NamedTuple):
    """The node of an actor, and its process and address for messages."""

    node_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ActorReport:
    """The outcome of a call. Errors are part of it, so that Ray does not wrap them."""

    has_output: bool = False
    num_rows: int = 0
    nbytes: int = 0
    is_done: bool = True
    busy_s: float = 0.0
    error: bytes | BaseException | None = None
    errors: tuple[RowError, ...] = ()
    metrics: MetricValues | None = None  # of the functions since the last report
    rows_of_calls: tuple[int, ...] = ()  # if the task was cut
    ahead: ActorReport | None = None  # of the next stage, whose output is given instead
    has_failed_ahead: bool = False

    @property
    def exception(self) -> BaseException | None:
        return unpacked_error(self.error) if isinstance(self.error, bytes) else self.error


class StageAhead(NamedTuple):
    """The next stage in the same actor, which may work on an output at once, and the stage after it."""

    stage: int
    limits: Ahead
    after: StageAhead | None

    def takes(self, report: ActorReport) -> bool:
        return bool(report.num_rows) and self.limits.min_nbytes <= report.nbytes <= self.limits.max_nbytes


class References(NamedTuple):
    """Objects that a worker fetches one by one, since all of them together may exceed the memory of its node."""

    refs: list[Any]


class RemadePart(NamedTuple):
    """``num_rows`` rows from ``start`` on of the output of a task, which was cut into calls if ``rows_of_calls``."""

    start: int
    num_rows: int
    rows_of_calls: tuple[int, ...] = ()


Outputs: TypeAlias = tuple[list[pa.RecordBatch], bool]  # outputs of a task, and whether they are its last
PackedBatch: TypeAlias = pa.RecordBatch | pa.Buffer  # the buffer is an IPC stream
Reply: TypeAlias = tuple[PackedBatch | None, ActorReport]  # two objects, so that the first may stay in the object store


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
    """Return ``num_rows`` rows from ``start`` on of some batches as one batch."""
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


def this_place() -> ActorPlace:
    context = ray.get_runtime_context()
    return ActorPlace(context.get_node_id(), f"pid {os.getpid()} on {ray.util.get_node_ip_address()}")


def reply(outputs: list[pa.RecordBatch], report: ActorReport, started: float) -> Reply:
    packed = packed_batch(joined(outputs)) if outputs else None
    busy_s = report.busy_s if report.ahead is not None else time.perf_counter() - started
    return packed, replace(report, busy_s=busy_s, metrics=taken_metrics())


def report_of(
    outputs: Sequence[pa.RecordBatch], started: float, errors: tuple[RowError, ...], *, is_done: bool
) -> ActorReport:
    num_rows, nbytes = sum(batch.num_rows for batch in outputs), sum(batch.nbytes for batch in outputs)
    is_last = is_done or not outputs
    return ActorReport(bool(outputs), num_rows, nbytes, is_last, time.perf_counter() - started, errors=errors)


def in_calls(batches: Sequence[pa.RecordBatch], max_rows: int) -> list[pa.RecordBatch]:
    """Cut batches to at most ``max_rows`` rows; join them first if they are small.

    >>> batch = pa.record_batch({"x": list(range(5))})
    >>> [call.num_rows for call in in_calls([batch] * 3, 7)]
    [7, 7, 1]
    """
    is_small = sum(batch.nbytes for batch in batches) < MIN_CALL_NBYTES * len(batches)
    parts = [joined(batches)] if is_small else batches
    return [part.slice(start, max_rows) for part in parts for start in range(0, part.num_rows, max_rows)]


def failed(exc: BaseException) -> Reply:
    return None, ActorReport(error=packed_error(exc), metrics=taken_metrics())
