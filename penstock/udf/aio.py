"""The handler of async UDFs: rows of all batches in flight share one bound on concurrency."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.plan.stages import CallUdf
from penstock.protocols import WorkerContext
from penstock.udf.arguments import Arguments
from penstock.udf.call import (
    ApplySteps,
    Failures,
    flattened,
    result_column,
    udf_batch_sizes,
    with_column,
)
from penstock.udf.callers import Callers, Calls, Unfinished
from penstock.udf.connections import close_connections
from penstock.udf.instances import Lease
from penstock.udf.memo import FunctionMemo, missing_rows
from penstock.udf.ownership import unshared
from penstock.udf.retry import never, retrying_async
from penstock.udf.target import drained_async


class AsyncUdfHandler:
    """One async UDF call over batches. ``max_concurrency`` bounds the rows (or batches) that wait at once."""

    def __init__(self, work: CallUdf, steps: ApplySteps, context: WorkerContext) -> None:
        self._work = work
        self._steps = steps
        self._spec = work.call.udf
        self._arguments = Arguments(work.call)
        self._failures = Failures(self._spec, self._arguments, context.record)
        self._lease = Lease(work)
        function = drained_async(self._lease.function) if self._spec.target.is_generator else self._lease.function
        self._sizes = udf_batch_sizes(self._spec, self._arguments)
        is_final = self._sizes.is_too_much if self._spec.target.is_batch else never
        self._function = retrying_async(function, self._spec.policy, is_final)
        self._prepare = self._lease.prepare
        self._finish = None if self._prepare is None else retrying_async(self._prepare.finish, self._spec.policy)
        self._turns = asyncio.Semaphore(self._spec.max_concurrent_calls)  # of batches
        self._callers = Callers(self._spec.max_concurrent_calls)  # of rows
        self._memo = FunctionMemo.open(self._spec)

    async def process(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        parents: pa.Array | None = None
        is_cached = self._memo is not None
        if self._spec.target.is_batch:
            column = await (self._cached_batch if is_cached else self._call_batch)(batch, first_row)
        else:
            results = await (self._cached_rows if is_cached else self._call_rows)(batch, first_row)
            if self._spec.target.is_generator:
                results, parents = flattened(results)
            column = result_column(results, self._failures, batch, first_row, parents)
        return self._steps(with_column(batch, self._work, column, parents), first_row)

    async def close(self) -> None:
        try:
            closing = self._lease.close()
            if inspect.isawaitable(closing):
                await closing
        finally:
            if self._memo is not None:
                await asyncio.to_thread(self._memo.close)
            if self._lease.was_last and self._spec.builtin.event_loop is None:  # clients of ours close what they opened
                await close_connections()

    async def _call_batch(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        parts, columns = self._sizes.parts(batch), list[pa.Array]()
        for part in parts:
            args, kwargs = self._arguments.series(part)
            try:
                async with self._turns:
                    result = unshared(await self._function(*args, **kwargs), part)
            except (Exception, SystemExit, asyncio.CancelledError) as exc:
                if _is_being_cancelled():
                    raise
                del args, kwargs  # as in UdfHandler
                if not parts.has_shrunk(exc):
                    columns += self._failures.part(part, first_row + sum(map(len, columns)), parts, exc)
            else:
                parts.worked()
                part_row = first_row + sum(map(len, columns))
                result = self._failures.values(result, part, part_row)
                columns += self._failures.taken(result, part, part_row, parts)
        return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)

    async def _cached_batch(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        """As in UdfHandler. A failure in another batch meanwhile may keep this one from being kept: it is no error."""
        assert self._memo is not None
        key = self._memo.batch_key(self._arguments.arrays(batch), batch.num_rows)
        if found := await asyncio.to_thread(self._memo.batches.get, [key]):
            column: pa.Array = found[key][0].column(0)
            return column
        num_noted = self._failures.num_noted
        column = await self._call_batch(batch, first_row)
        if self._failures.num_noted == num_noted:
            self._memo.batches.put(key, [pa.RecordBatch.from_arrays([column], names=[""])])
        return column

    async def _cached_rows(self, batch: pa.RecordBatch, first_row: int) -> list[Any]:
        """As in UdfHandler."""
        assert self._memo is not None
        keys = self._memo.row_keys(self._arguments.arrays(batch), batch.num_rows)
        can_share = self._spec.policy.on_error == "raise"
        lookup = await asyncio.to_thread(self._memo.rows.look_up, keys, can_share)
        function, rows = self._memo.storing_async(self._function, self._spec.target.is_generator), lookup.missing
        part = missing_rows(lookup, batch)
        return lookup.merged(await self._call_rows(part, first_row, function, [keys[row] for row in rows], rows))

    async def _call_rows(
        self,
        batch: pa.RecordBatch,
        first_row: int,
        function: Callable[..., Any] | None = None,
        keys: Sequence[bytes] | None = None,
        places: Sequence[int] | None = None,
    ) -> list[Any]:
        """Run all rows at once, within the bound; the first failure cancels the rest unless errors are tolerated.

        ``places`` says where the rows stand after ``first_row``, if not one after another.
        """
        # A caller that another batch started may make a call of this one, with which its failure is recorded.
        context = contextvars.copy_context()

        def fail(row: int, exc: BaseException) -> None:
            place = first_row + (row if places is None else places[row])
            context.run(self._failures.row, batch, row, place, exc)

        # The map makes a call when the row is drawn: a coroutine made before and then cancelled would never be awaited.
        if self._prepare is None or self._finish is None:
            calls = self._arguments.rows(batch, function or self._function, keys)
            return await self._callers.run(Calls(calls, batch.num_rows, fail, first_row))
        results: list[Any] = self._prepare.results(list(self._arguments.rows(batch, _as_tuple)))
        rest = [row for row, result in enumerate(results) if type(result) is Unfinished]
        if len(rest) == len(results):
            calls = self._arguments.rows(batch, self._finish, results)
            return await self._callers.run(Calls(calls, batch.num_rows, fail, first_row))
        if rest:
            part = batch.take(pa.array(rest, pa.int64()))
            calls = self._arguments.rows(part, self._finish, [results[row] for row in rest])
            found = await self._callers.run(Calls(calls, len(rest), lambda n, exc: fail(rest[n], exc), first_row))
            for row, result in zip(rest, found, strict=True):
                results[row] = result
        return results


def _as_tuple(*values: Any) -> tuple[Any, ...]:
    return values


def _is_being_cancelled() -> bool:
    """Say whether the task is stopped from outside, and not by an error of the same class in the function."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
