"""The handler of async UDFs: rows of all batches in flight share one bound on concurrency."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pyarrow as pa

from penstock.errors import UdfError
from penstock.plan.stages import CallUdf
from penstock.types import to_arrow_array
from penstock.udf.arguments import Arguments
from penstock.udf.call import ApplySteps, batch_error, batch_result, log_failure, row_error, with_column
from penstock.udf.retry import retrying_async
from penstock.udf.target import built_target

DEFAULT_CONCURRENCY = 256


class AsyncUdfHandler:
    """One async UDF call over batches. ``max_concurrency`` bounds the rows (or batches) that wait at once."""

    def __init__(self, work: CallUdf, steps: ApplySteps) -> None:
        self._work = work
        self._steps = steps
        self._spec = work.call.udf
        self._arguments = Arguments(work.call)
        target, self._instance = built_target(self._spec)
        self._function = retrying_async(target, self._spec.policy)
        self._turns = asyncio.Semaphore(self._spec.resources.max_workers or DEFAULT_CONCURRENCY)

    async def process(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        if self._spec.is_batch:
            column = await self._call_batch(batch)
        else:
            results = await self._call_rows(batch)
            column = to_arrow_array(results, self._spec.return_dtype, what=f"UDF {self._spec.name!r}")
        return self._steps(with_column(batch, self._work, column), first_row)

    async def close(self) -> None:
        close = getattr(self._instance, "close", None)
        if callable(close):
            closing = close()
            if inspect.isawaitable(closing):
                await closing

    async def _call_batch(self, batch: pa.RecordBatch) -> pa.Array:
        args, kwargs = self._arguments.series(batch)
        try:
            async with self._turns:
                result = await self._function(*args, **kwargs)
        except Exception as exc:
            if self._spec.policy.on_error == "raise":
                raise batch_error(self._spec, batch.num_rows, exc) from exc
            log_failure(self._spec, exc)
            return pa.nulls(batch.num_rows, self._spec.return_dtype.arrow)
        return batch_result(result, self._spec, batch.num_rows)

    async def _call_rows(self, batch: pa.RecordBatch) -> list[Any]:
        """Run all rows at once, within the bound; the first failure cancels the rest unless errors are tolerated."""
        calls = self._arguments.rows(batch, self._function)
        results: list[Any] = [None] * batch.num_rows
        try:
            async with asyncio.TaskGroup() as group:
                for row, call in enumerate(calls):
                    await self._turns.acquire()
                    group.create_task(self._call_row(batch, row, call, results))
        except* UdfError as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        return results

    async def _call_row(self, batch: pa.RecordBatch, row: int, call: Any, results: list[Any]) -> None:
        try:
            results[row] = await call
        except Exception as exc:
            if self._spec.policy.on_error == "raise":
                raise row_error(self._spec, self._arguments.at(batch, row), exc) from exc
            log_failure(self._spec, exc)
        finally:
            self._turns.release()
