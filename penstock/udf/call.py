"""The calling core: run ``func``, ``cls`` and their methods over the rows or batches of a stage.

It is written once, as coroutines, for a ``Caller`` that calls functions on the current thread (``SyncCaller``) or on an
event loop (``aio.AsyncCaller``). Nothing waits on a thread, so ``run_sync`` runs a coroutine to its end in one step.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.contracts import WorkerContext, check_not_cancelled
from penstock.errors import QueryCancelledError, TypeMismatchError
from penstock.events.call_counter import current_call_counter
from penstock.expr.udf import Policy
from penstock.plan.stages import CallUdf
from penstock.types import PartialColumn
from penstock.types.plain import arrow_numbers, numpy_values
from penstock.types.row_numbers import POSITION
from penstock.udf.arguments import Arguments, Columns
from penstock.udf.cached_functions import FunctionMemo
from penstock.udf.failures import CALL_FAILURES, STOPPED, Failures, Record
from penstock.udf.generators import ChunkSize, OnRowError, chunks
from penstock.udf.instances import Lease, Unfinished, close_instance_sync
from penstock.udf.results import column_of_batch, column_of_rows, drained, drawn, flattened, owned, with_column
from penstock.udf.retry import IsCancelled, IsFinal, cancellable, never, with_policy
from penstock.udf.sizing import BatchSizes, Parts

ApplySteps = Callable[[pa.RecordBatch, int], pa.RecordBatch]

CANCEL_CHECK_S = 0.02  # how long rows run between two checks of the cancel flag


class Caller(Protocol):
    """Calls a user function, with the retries and the time limit of its policy."""

    function: Callable[..., Any]

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of one call with a batch."""

    async def call_rows(self, calls: Iterator[Any], num_rows: int, on_error: OnRowError, order: int) -> list[Any]:
        """Return the results of ``calls``, one for each row. Advancing the iterator makes a call.

        ``order`` is the priority among concurrent tasks; lower numbers go first.
        """

    def then(self, use: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        """Return a function that takes a key and arguments and passes the key and the result of a call to ``use``."""

    async def read(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function that reads files."""


class SyncCaller:
    """Calls a function on the current thread."""

    def __init__(
        self, function: Callable[..., Any], policy: Policy, is_cancelled: IsCancelled, is_final: IsFinal = never
    ) -> None:
        self.function = with_policy(function, policy, is_cancelled, is_final)
        self._is_cancelled = is_cancelled

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        check_not_cancelled(self._is_cancelled)
        with cancellable(self._is_cancelled):
            return self.function(*args, **kwargs)

    async def call_rows(self, calls: Iterator[Any], num_rows: int, on_error: OnRowError, order: int = 0) -> list[Any]:
        results: list[Any] = []
        while len(results) < num_rows:
            try:
                self._draw(calls, num_rows, results)
            except QueryCancelledError:
                raise
            except CALL_FAILURES as exc:
                results.append(on_error(len(results), exc))
        return results

    def then(self, use: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        function = self.function
        return lambda key, *args, **kwargs: use(key, function(*args, **kwargs))

    async def read(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def _draw(self, calls: Iterator[Any], num_rows: int, results: list[Any]) -> None:
        """Extend ``results`` from ``calls``, in chunks short enough that a cancelled query stops soon.

        ``list.extend`` keeps the items before an exception, so ``len(results)`` is the number of the failed row.
        """
        size = 1
        while len(results) < num_rows:
            check_not_cancelled(self._is_cancelled)
            started, wanted = time.perf_counter(), min(size, num_rows - len(results)) + len(results)
            results.extend(itertools.islice(calls, size))
            if len(results) < wanted:  # the exception ended the iteration
                raise RuntimeError(STOPPED)
            if time.perf_counter() - started < CANCEL_CHECK_S / 2:
                size *= 2


def run_sync(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a coroutine of a SyncCaller waited")


class UdfCalls:
    """The calls of one UDF: compute a column of results for each batch, then apply the steps of the stage."""

    def __init__(
        self,
        work: CallUdf,
        steps: ApplySteps,
        record: Record,
        open_caller: Callable[[Callable[..., Any], IsFinal], Caller],
    ) -> None:
        self._work = work
        self._steps = steps
        self._spec = spec = work.call.udf
        self.arguments = Arguments(work.call)
        self._failures = Failures(work, self.arguments.row_values, record)
        self._sizes = BatchSizes(spec.limits, self._failures.what, self.arguments.arrays)
        self.lease = Lease(work)
        self._caller = open_caller(self.lease.function, self._sizes.is_too_large if spec.target.is_batch else never)
        self._lookup, self._at_once = self.lease.lookup, self.lease.at_once
        self._finish = (
            self._caller.function if self._lookup is None else open_caller(self._lookup.finish, never).function
        )
        self._memo = FunctionMemo.open(spec)
        self._chunk_size = ChunkSize()
        self._counter = current_call_counter()
        self._condition = None if work.call.condition is None else Columns([work.call.condition])

    async def process(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        if self._spec.target.is_generator and self._condition is None:
            results, parents = flattened(await self._row_results(batch, first_row))
            return self._output(batch, first_row, results, parents)
        if self._condition is None:
            column = await self._column(batch, first_row)
        else:
            column = await self._conditional_column(batch, first_row, *self._condition.arrays(batch))
        return self._steps(with_column(batch, self._work, column), first_row)

    async def _column(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        if not self._spec.target.is_batch:
            results = await self._row_results(batch, first_row)
            return column_of_rows(results, self._spec.return_dtype, self._failures, batch, first_row)
        if batch.num_rows:
            return await self._batch_column(batch, first_row)
        return pa.nulls(0, self._spec.return_dtype.arrow)  # columns alone

    @property
    def can_leave_early(self) -> bool:
        """True if the results of the first rows may leave before all rows of a task are done."""
        target, has_result = self._spec.target, self._memo is None and self._condition is None
        return has_result and not (target.is_batch or target.is_generator)

    async def pieces(self, batch: pa.RecordBatch, first_row: int) -> AsyncGenerator[tuple[int, pa.RecordBatch], None]:
        """Yield the output in pieces, each with its end row; a single piece, unless results take too much memory."""
        if self._at_once is not None and (column := await self._at_once(*self.arguments.arrays(batch))) is not None:
            self._counter.num_answered += batch.num_rows
            yield batch.num_rows, self._steps(with_column(batch, self._work, column), first_row)
            return
        results, missing, calls = self._known_results(batch, first_row)
        start = num_done = 0
        async with aclosing(self._caller.leading_rows(*calls)) as given:  # type: ignore[attr-defined]
            async for num_leading, computed in given:
                end = missing[num_leading] if num_leading < len(missing) else batch.num_rows
                if results is None:
                    values = computed[start:end]
                else:
                    for number in range(num_done, num_leading):
                        results[missing[number]] = computed[number]
                    values = results[start:end]
                    results[start:end] = [None] * (end - start)
                computed[num_done:num_leading] = [None] * (num_leading - num_done)
                output = self._output(batch.slice(start, end - start), first_row + start, values, None)
                start, num_done = end, num_leading
                del values
                yield end, output
                del output

    def _known_results(
        self, batch: pa.RecordBatch, first_row: int
    ) -> tuple[list[Any] | None, Sequence[int], tuple[Any, ...]]:
        """Return the results that need no call, the rows of the others, and the arguments for their calls.

        The results are None if no lookup finds any.
        """
        if self._lookup is None:
            missing: Sequence[int] = range(batch.num_rows)
            return None, missing, self._row_calls(batch, first_row, self._caller.function)
        results = self._lookup.results(list(self.arguments.rows(batch, _as_tuple)))
        missing = [row for row, result in enumerate(results) if type(result) is Unfinished]
        unfinished = [results[row] for row in missing]
        self._counter.num_answered += len(results) - len(missing)
        return results, missing, self._row_calls(batch, first_row, self._finish, missing, unfinished)

    async def _conditional_column(self, batch: pa.RecordBatch, first_row: int, condition: pa.Array) -> pa.Array:
        """Return results for the rows that fulfil the condition, and null for the others."""
        needed = pc.fill_null(condition, False)
        positions = arrow_numbers(np.arange(first_row, first_row + batch.num_rows, dtype=np.int64))
        part = batch.append_column(POSITION, positions).filter(needed)
        self._counter.num_chosen += part.num_rows
        self._counter.num_left_out += batch.num_rows - part.num_rows
        if not part.num_rows:
            return pa.nulls(batch.num_rows, self._spec.return_dtype.arrow)
        column = await self._column(part, first_row)
        flags = numpy_values(needed)
        return column.take(arrow_numbers(np.cumsum(flags) - 1, ~flags))

    async def stream(self, batch: pa.RecordBatch, first_row: int) -> AsyncGenerator[pa.RecordBatch, None]:
        """Yield the values of generators as soon as they come."""
        results, fail = self.arguments.rows(batch, self._caller.function), self._failing(batch, first_row)
        async with aclosing(chunks(results, batch.num_rows, self._chunk_size, fail, is_outer=True)) as found:
            async for chunk in found:
                yield self._output(batch, first_row, *chunk)

    def _output(
        self, batch: pa.RecordBatch, first_row: int, results: list[Any], parents: Sequence[int] | None
    ) -> pa.RecordBatch:
        rows = None if parents is None else arrow_numbers(np.array(parents, np.int64))
        column = column_of_rows(results, self._spec.return_dtype, self._failures, batch, first_row, rows)
        output = with_column(batch, self._work, column, rows)
        if parents:
            self._chunk_size.note(len(parents), output.nbytes)
        return self._steps(output, first_row)

    def _failing(self, batch: pa.RecordBatch, first_row: int) -> OnRowError:
        return lambda row, exc: self._failures.row(batch, row, first_row + row, exc)

    async def close(self) -> None:
        if self._memo is not None:
            await self._caller.read(self._memo.close)

    # --- batches ---

    async def _batch_column(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        if self._memo is None:
            return await self._call_batches(batch, first_row)
        key = self._memo.batch_key(self.arguments.arrays(batch), batch.num_rows)
        if found := await self._caller.read(self._memo.batches.get, [key]):
            self._counter.num_answered += batch.num_rows
            return found[key][0].column(0)
        num_recorded = self._failures.num_recorded
        column = await self._call_batch(batch, first_row)
        # Not cached if a row failed; an async handler may count failures of other batches, which costs one repetition.
        if self._failures.num_recorded == num_recorded:
            self._memo.batches.put(key, [pa.RecordBatch.from_arrays([column], names=[""])])
        return column

    async def _call_batches(self, task: pa.RecordBatch, first_row: int) -> pa.Array:
        """Call the function with the batches of a task, which has several if the user's batch size is small."""
        size = self._spec.batch_size if isinstance(self._spec.batch_size, int) else task.num_rows
        starts = range(0, task.num_rows, size) if size < task.num_rows else (0,)
        columns = [await self._call_batch(task.slice(start, size), first_row + start) for start in starts]
        return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)

    async def _call_batch(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        parts, columns = self._sizes.parts(batch), list[pa.Array]()
        for part in parts:
            position = first_row + sum(map(len, columns))
            args, kwargs = self.arguments.series(part)
            try:
                result = owned(await self._caller.call(*args, **kwargs))
            except QueryCancelledError:
                raise
            except CALL_FAILURES as exc:
                del args, kwargs  # release memory before a smaller part is tried
                columns += self._failed(part, position, parts, exc)
                continue
            parts.worked()
            try:
                columns.append(self._part_column(result, part, position))
            except TypeMismatchError as exc:
                if not self._failures.is_tolerant:
                    raise
                columns += self._failed(part, position, parts, exc)
        return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)

    def _failed(self, part: pa.RecordBatch, position: int, parts: Parts, exc: BaseException) -> list[pa.Array]:
        has_failed = self._failures.part(part, position, parts, exc)
        self._counter.num_failed += part.num_rows if has_failed else 0
        return [pa.nulls(part.num_rows, self._spec.return_dtype.arrow)] if has_failed else []

    def _part_column(self, result: Any, part: pa.RecordBatch, position: int) -> pa.Array:
        failures: Mapping[int, Exception] = {}
        if isinstance(result, PartialColumn):
            result, failures = result.values, result.failures
            self._failures.partial(part, position, failures)
        column = column_of_batch(result, self._spec.return_dtype, part.num_rows, self._failures.what)
        self._counter.num_failed += len(failures)
        self._counter.num_answered += part.num_rows - len(failures)
        return column

    # --- rows ---

    async def _row_results(self, batch: pa.RecordBatch, first_row: int) -> list[Any]:
        if self._memo is None:
            known, missing, calls = self._known_results(batch, first_row)
            computed = await self._caller.call_rows(*calls)
            if known is None:
                return computed
            for row, result in zip(missing, computed, strict=True):
                known[row] = result
            return known
        keys = self._memo.row_keys(self.arguments.arrays(batch), batch.num_rows)
        lookup = await self._caller.read(self._memo.rows.look_up, keys, not self._failures.is_tolerant)
        storing, missing = self._caller.then(self._memo.store), lookup.missing
        self._counter.num_answered += batch.num_rows - len(missing)
        calls = self._row_calls(batch, first_row, storing, missing, [keys[row] for row in missing])
        return list(lookup.merged(await self._caller.call_rows(*calls)))

    def _row_calls(
        self,
        batch: pa.RecordBatch,
        first_row: int,
        function: Callable[..., Any],
        rows: Sequence[int] | None = None,
        keys: Sequence[Any] | None = None,
    ) -> tuple[Iterator[Any], int, OnRowError, int]:
        """Return the arguments of ``Caller.call_rows`` that call ``function`` with all ``rows`` of the batch, and with
        their ``keys`` as first arguments, if given.
        """
        if not batch.num_rows or (rows is not None and not len(rows)):
            return iter(()), 0, lambda row, exc: None, first_row
        is_part = rows is not None and len(rows) < batch.num_rows
        part = batch.take(arrow_numbers(np.array(rows, np.int64))) if is_part else batch

        def fail(row: int, exc: BaseException) -> None:
            self._failures.row(part, row, first_row + (row if rows is None else rows[row]), exc)

        return self.arguments.rows(part, function, keys), part.num_rows, fail, first_row


def _as_tuple(*values: Any) -> tuple[Any, ...]:
    return values


class UdfHandler:
    """The handler of UDFs that run in threads and processes."""

    def __init__(self, work: CallUdf, steps: ApplySteps, context: WorkerContext) -> None:
        self._spec = spec = work.call.udf
        self._is_cancelled = context.is_cancelled

        def open_caller(function: Callable[..., Any], is_final: IsFinal) -> SyncCaller:
            function = drained(function) if spec.target.is_generator and not spec.is_streaming else function
            return SyncCaller(function, spec.policy, context.is_cancelled, is_final)

        self._calls = UdfCalls(work, steps, context.record, open_caller)

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if self._spec.builtin.has_cut:
            args, kwargs = self._calls.arguments.series(item)
            lengths = self._spec.target.function.cut(*args, **kwargs)  # type: ignore[attr-defined]
            if len(lengths) > 1:
                starts = itertools.accumulate(lengths, initial=0)
                parts = ((item.slice(start, length), start) for start, length in zip(starts, lengths, strict=False))
                return (self._process(part, first_row + start) for part, start in parts)
        return self._stream(item, first_row) if self._spec.is_streaming else self._process(item, first_row)

    def close(self) -> None:
        try:
            close_instance_sync(self._calls.lease.close())
        finally:
            run_sync(self._calls.close())

    def _stream(self, item: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        outputs = drawn(self._calls.stream(item, first_row), run_sync)
        while True:
            check_not_cancelled(self._is_cancelled)
            with self._calls.lease.lock:
                output = next(outputs, None)
            if output is None:
                return
            yield output

    def _process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        with self._calls.lease.lock:
            result: pa.RecordBatch = run_sync(self._calls.process(item, first_row))
            return result
