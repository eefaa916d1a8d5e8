"""The handler of ``map_batches``, ``map``, ``flat_map`` and ``filter`` with a Python function."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import QueryCancelledError, TypeMismatchError, UdfError
from penstock.plan.stages import CallBatch
from penstock.types import to_batch
from penstock.udf.call import ApplySteps, IsCancelled
from penstock.udf.formats import batch_in_format
from penstock.udf.retry import retrying, retrying_async
from penstock.udf.target import built_target, close_instance, drained, drained_async

if TYPE_CHECKING:
    from penstock.udf.loop import WorkerLoop

log = logging.getLogger("penstock.udf")

_FAILED = object()  # what a call gives that failed, where that is tolerated
_END = object()


class BatchHandler:
    """One Python function over batches or rows, then the stage's steps. What fails and is tolerated gives no rows."""

    def __init__(self, work: CallBatch, steps: ApplySteps, is_cancelled: IsCancelled) -> None:
        self._spec = work.spec
        self._steps = steps
        self._is_cancelled = is_cancelled
        self._what = f"{self._spec.verb}({self._spec.name})"
        self._loop = self._opened_loop() if self._spec.is_async else None
        self._instance: Any = None
        try:
            target, self._instance = self._loop.wait(self._built_on_loop()) if self._loop else built_target(self._spec)
        except BaseException:
            self.close()
            raise
        self._function = self._with_policy(target)

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if self._spec.verb != "map_batches":
            rows = self._over_rows(item)
        else:
            result = self._call_batch(item)
            if isinstance(result, Iterator):
                return self._drawn(result, item.num_rows, first_row)
            rows = None if result is _FAILED else to_batch(result, self._what)
        if rows is None or not rows.num_rows:  # without a row, columns may be missing, and the steps not fit
            return iter(())
        return self._steps(rows, first_row)

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def close(self) -> None:
        close = functools.partial(close_instance, self._instance)
        if self._loop is None:
            close()
        else:
            self._loop.close(close)

    # --- calls ---

    def _opened_loop(self) -> WorkerLoop:
        from penstock.udf.loop import WorkerLoop  # asyncio is a fifth of what importing penstock takes

        return WorkerLoop(self._is_cancelled)

    async def _built_on_loop(self) -> tuple[Callable[..., Any], Any]:
        return built_target(self._spec)  # a client may ask for the running loop when it is made

    def _with_policy(self, target: Callable[..., Any]) -> Callable[[Any], Any]:
        """Return the function of a row or a batch alone, with the retries it is given."""
        policy = self._spec.policy
        if self._loop is not None:
            function = retrying_async(drained_async(target), policy)
        else:
            # What is given bit by bit can only be tried again if none of it has gone on.
            is_whole = self._spec.verb != "map_batches" or policy.max_retries
            function = retrying(drained(target) if is_whole else target, policy, self._is_cancelled)
        args, kwargs = self._spec.args, dict(self._spec.kwargs)
        return lambda given: function(given, *args, **kwargs)

    def _call_batch(self, batch: pa.RecordBatch) -> Any:
        given = batch_in_format(batch, self._spec.batch_format)
        if self._loop is not None:
            return self._loop.wait(self._attempt_async(given, batch.num_rows))
        return self._attempt(given, batch.num_rows)

    def _call_rows(self, rows: list[dict[str, Any]]) -> list[Any]:
        if self._loop is not None:
            return self._loop.wait_for_all(functools.partial(self._attempt_async, row) for row in rows)
        return [self._attempt(row) for row in rows]

    def _attempt(self, given: Any, num_rows: int | None = None) -> Any:
        if self._is_cancelled():
            raise QueryCancelledError("the query was stopped")
        try:
            return self._function(given)
        except QueryCancelledError:
            raise
        except Exception as exc:
            return self._failure(exc, given, num_rows)

    async def _attempt_async(self, given: Any, num_rows: int | None = None) -> Any:
        try:
            return await self._function(given)
        except Exception as exc:
            return self._failure(exc, given, num_rows)

    def _failure(self, exc: Exception, given: Any, num_rows: int | None) -> Any:
        """Raise what is to be raised, or say that the call failed."""
        where = f"the row {given!r:.500}" if num_rows is None else f"a batch of {num_rows} rows"
        text = f"{self._what} failed on {where}: {type(exc).__name__}: {exc}"
        if self._spec.policy.on_error == "raise":
            raise UdfError(f'{text}\nTo go on without such rows, set on_error="log" or "ignore".') from exc
        if self._spec.policy.on_error == "log":
            log.warning("%s", text)
        return _FAILED

    # --- results ---

    def _drawn(self, parts: Iterator[Any], num_rows: int, first_row: int) -> Iterator[pa.RecordBatch]:
        """Yield what a generator gives, one part at a time."""
        while True:
            try:
                part = next(parts, _END)
            except Exception as exc:
                part = self._failure(exc, None, num_rows)
            if part is _END or part is _FAILED:
                return
            rows = to_batch(part, self._what)
            if rows.num_rows:
                yield self._steps(rows, first_row)

    def _over_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        results = self._call_rows(batch_in_format(batch, "pylist"))
        if self._spec.verb == "filter":
            return batch.filter(pa.array([result is not _FAILED and bool(result) for result in results], pa.bool_()))
        rows = [result for result in results if result is not _FAILED]
        if self._spec.verb == "flat_map":
            rows = [row for result in rows for row in self._several(result)]
        return rows_to_batch(rows, self._what)

    def _several(self, result: Any) -> Iterator[dict[str, Any]]:
        if isinstance(result, (dict, str, bytes)) or not hasattr(result, "__iter__"):
            raise TypeMismatchError(f"{self._what} returned {type(result).__name__}; return a list of dicts, one a row")
        return iter(result)


def rows_to_batch(rows: list[Any], what: str) -> pa.RecordBatch:
    """Return rows given as dicts as one batch; a key that a row lacks is null there."""
    for row in rows:
        if not isinstance(row, dict):
            raise TypeMismatchError(f"{what} gave a row of type {type(row).__name__}; give a dict, one key a column")
    names = dict.fromkeys(itertools.chain.from_iterable(rows))
    return to_batch({name: [row.get(name) for row in rows] for name in names}, what)
