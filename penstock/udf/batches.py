"""The handler of ``map_batches``, ``map_groups``, ``map``, ``flat_map`` and ``filter`` with a Python function."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.contracts import WorkerContext, check_not_cancelled
from penstock.errors import PenstockError, QueryCancelledError, TypeMismatchError
from penstock.expr.udf import MAX_ASYNC_ROWS, BatchSpec
from penstock.plan.stages import CallBatch
from penstock.types import Series, to_batch
from penstock.types.row_numbers import ROW_NUMBER, without_row_numbers
from penstock.udf.cached_functions import FunctionMemo
from penstock.udf.call import ApplySteps, Caller, SyncCaller, run_sync
from penstock.udf.failures import CALL_FAILURES, Failures
from penstock.udf.formats import batch_in_format, columns_of, restore_columns, restored
from penstock.udf.generators import ChunkSize, chunks
from penstock.udf.instances import build_instance, callable_of, close_instance, close_instance_sync
from penstock.udf.results import drained, drained_async, drawn, opened_async, owned
from penstock.udf.retry import never
from penstock.udf.sizing import BatchSizes

if TYPE_CHECKING:
    from penstock.udf.aio import WorkerLoop

READ_ONLY_REMEDY = (
    "The arrays of a batch share memory with other columns and are read-only. To change them in place, "
    "set zero_copy_batch=False in map_batches, which passes copies; or write array = array.copy() first."
)
FIRST_ROWS = 1024  # of the first chunk of flat_map: its columns and types are found from these
_FAILED = object()  # stands for the result of a tolerated failed call


class BatchHandler:
    """Call one function with batches, groups or rows, then apply the steps of the stage. Failed rows give no output."""

    def __init__(self, work: CallBatch, steps: ApplySteps, context: WorkerContext) -> None:
        self._spec = spec = work.spec
        self._steps = steps
        self._is_cancelled = context.is_cancelled
        self._failures = Failures(work, values_of(spec), context.record)
        self._what = self._failures.what
        self._sizes = BatchSizes(spec.limits, self._what, lambda batch: without_row_numbers(batch).columns)
        self._is_repeated = bool(spec.policy.may_repeat or spec.limits.split_on or spec.cache)
        self._is_streaming = False  # outputs of a generator are passed on before it ends
        self._chunk_size = ChunkSize(FIRST_ROWS)
        self._loop = self._open_loop() if spec.target.is_async else None
        self._run = run_sync if self._loop is None else self._loop.run
        self._instance: Any = None
        self._memo: FunctionMemo | None = None
        try:
            self._instance = self._run(self._build())
            self._caller = self._open_caller(callable_of(spec.target, self._instance))
            self._memo = FunctionMemo.open(spec)
        except BaseException:
            self.close()
            raise

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if self._spec.verb == "flat_map" and self._loop is None and not self._is_repeated:
            return self._stream_rows(item, first_row)
        if not self._spec.target.is_batch:
            return self._finished(self._rows(item, first_row), first_row)
        outputs = self._outputs(item) if self._memo is None else iter(self._cached_outputs(item))
        first = next(outputs, None)
        if first is not None and self._is_streaming:
            return self._stream(itertools.chain([first], outputs), first_row)
        rest = list(outputs)  # another worker can repeat the batch only before an output is passed on
        if first is None or rest:
            return self._stream(itertools.chain([] if first is None else [first], rest), first_row)
        return self._finished(first, first_row)

    def close(self) -> None:
        close = functools.partial(close_instance, self._instance)
        try:
            if self._loop is None:
                close_instance_sync(close())
            else:
                self._loop.close(close)
        finally:
            if self._memo is not None:
                self._memo.close()

    def _open_loop(self) -> WorkerLoop:
        from penstock.udf.aio import WorkerLoop

        return WorkerLoop(self._is_cancelled)

    async def _build(self) -> Any:
        return build_instance(self._spec.target)  # on the loop, as a client may ask for the running loop

    def _open_caller(self, target: Callable[..., Any]) -> Caller:
        spec = self._spec
        is_final = self._sizes.is_too_large if spec.target.is_batch else never
        function: Callable[..., Any]
        if self._loop is not None:
            from penstock.events.call_counter import CallCounter, count_calls_in
            from penstock.events.call_gate import current_gate
            from penstock.udf.aio import AsyncCaller

            is_whole = not spec.target.is_batch or self._is_repeated
            whole = drained_async(target) if is_whole else opened_async(target)
            function = functools.partial(_with_arguments, whole, spec.args, dict(spec.kwargs))
            context, counter = copy_context(), CallCounter()
            context.run(count_calls_in, counter)
            current_gate().count(counter)
            return context.run(AsyncCaller, function, spec.policy, MAX_ASYNC_ROWS, is_final)
        whole = drained(target) if self._is_repeated or spec.verb in ("map", "map_groups", "filter") else target
        function = functools.partial(_with_arguments, whole, spec.args, dict(spec.kwargs))
        return SyncCaller(function, spec.policy, self._is_cancelled, is_final)

    def _finished(self, rows: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        return self._steps(rows, first_row) if rows.num_rows else self._columns_alone(rows, first_row)

    def _columns_alone(self, rows: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        """Yield an output without rows, which only tells the columns. Yield nothing if there are no columns, or if the
        steps need types.
        """
        if rows.num_columns:
            with suppress(PenstockError):
                yield self._steps(rows, first_row)

    # --- batches ---

    def _outputs(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Call the function with the parts of a batch and yield the outputs of each call.

        An output is converted before the next call, which may reuse its memory.
        """
        parts = self._sizes.parts(batch)
        for part in parts:
            rows = without_row_numbers(part)
            given = batch_in_format(rows, self._spec.batch_format, zero_copy=self._spec.zero_copy)
            try:
                result = self._checked(owned(self._result(given, rows)))
                if isinstance(result, Iterator):  # it can be called again only before its first output is passed on
                    result = itertools.chain(list(itertools.islice(result, 1)), result)
            except QueryCancelledError:
                raise
            except CALL_FAILURES as exc:
                del given  # release memory before a smaller part is tried
                self._failures.part(part, None, parts, self._explained(exc))
                continue
            del given
            parts.worked()
            if isinstance(result, Iterator):
                self._is_streaming = not self._is_repeated
                yield from self._items(result, part)
            else:
                yield to_batch(result, self._what)

    def _result(self, given: Any, part: pa.RecordBatch) -> Any:
        result = self._run(self._caller.call(given))
        result = drawn(result, self._run) if inspect.isasyncgen(result) else result
        return restore_columns(result, given, part, self._spec.batch_format)

    def _items(self, results: Iterator[Any], part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the outputs of a generator while it runs."""
        try:
            for result in results:
                yield to_batch(result, self._what)
        except (QueryCancelledError, GeneratorExit, TypeMismatchError):
            raise
        except CALL_FAILURES as exc:
            self._failures.row(part, 0, None, self._explained(exc))

    def _checked(self, result: Any) -> Any:
        """Convert a result. If failures are tolerated, conversion errors count as failures."""
        if not self._failures.is_tolerant:
            return result
        if isinstance(result, Iterator):
            return iter([to_batch(each, self._what) for each in result])
        return to_batch(result, self._what)

    def _cached_outputs(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return the cached outputs of a batch, or compute them, and store them unless a row failed."""
        assert self._memo is not None
        rows = without_row_numbers(batch)
        key = self._memo.batch_key(rows.columns, rows.num_rows, rows.schema.names)
        if found := self._memo.batches.get([key]):
            cached: list[pa.RecordBatch] = found[key]
            return cached
        num_recorded = self._failures.num_recorded
        outputs = list(self._outputs(batch))
        if self._failures.num_recorded == num_recorded:
            self._memo.batches.put(key, outputs)
        return outputs

    def _stream(self, outputs: Iterator[pa.RecordBatch], first_row: int) -> Iterator[pa.RecordBatch]:
        for rows in outputs:
            if rows.num_rows:
                yield self._steps(rows, first_row)
            else:
                yield from self._columns_alone(rows, first_row)

    def _explained(self, exc: BaseException) -> BaseException:
        """Add a note to the error of a write to a read-only array, for which NumPy has no class."""
        has_views = self._spec.batch_format == "numpy" and self._spec.zero_copy is not False
        if has_views and isinstance(exc, ValueError) and "read-only" in str(exc):
            exc.add_note(READ_ONLY_REMEDY)
        return exc

    # --- rows ---

    def _rows(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        if self._memo is None:
            results = self._call_rows(batch, range(first_row, first_row + batch.num_rows), itertools.repeat(None))
        else:
            given = without_row_numbers(batch)
            keys = self._memo.row_keys(given.columns, given.num_rows, given.schema.names)
            lookup = self._memo.rows.look_up(keys, can_share=not self._failures.is_tolerant)
            part = batch.take(pa.array(lookup.missing, pa.int64()))
            positions = [first_row + row for row in lookup.missing]
            results = lookup.merged(self._call_rows(part, positions, iter([keys[row] for row in lookup.missing])))
        if self._spec.verb == "filter":
            return without_row_numbers(batch).filter(
                pa.array([result is not _FAILED and bool(result) for result in results], pa.bool_())
            )
        parents = [row for row, result in enumerate(results) if result is not _FAILED]
        rows = [results[row] for row in parents]
        if self._spec.verb == "map_groups":
            return _joined(list(itertools.chain.from_iterable(rows)), self._what)
        if self._spec.verb == "flat_map":
            parents = [parent for parent, several in zip(parents, rows, strict=True) for _ in several]
            rows = list(itertools.chain.from_iterable(rows))
        return self._batch_of(rows, parents, batch)

    def _stream_rows(self, batch: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``flat_map`` as its generators make them."""

        def fail(row: int, exc: BaseException) -> None:
            if isinstance(exc, TypeMismatchError):
                raise exc
            self._failures.row(batch, row, first_row + row, exc)

        results = map(self._checked_rows, map(self._caller.function, self._dicts(batch)))
        for chunk in drawn(chunks(results, batch.num_rows, self._chunk_size, fail), run_sync):
            check_not_cancelled(self._is_cancelled)
            output = self._batch_of(chunk.values, chunk.parents, batch)
            self._chunk_size.note(len(chunk.values), output.nbytes)
            yield self._steps(output, first_row)

    @staticmethod
    def _dicts(batch: pa.RecordBatch) -> Any:
        return batch_in_format(without_row_numbers(batch), "pylist")

    def _batch_of(
        self, rows: Sequence[dict[str, Any]], parents: Sequence[int], batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        return to_batch(restored(columns_of(rows), batch, "rows", parents), self._what)

    def _call_rows(self, batch: pa.RecordBatch, positions: Any, keys: Iterator[Any]) -> list[Any]:
        def fail(row: int, exc: BaseException) -> Any:
            if isinstance(exc, TypeMismatchError) and not self._failures.is_tolerant:
                raise exc
            self._failures.row(batch, row, positions[row], exc)
            return _FAILED

        if self._spec.verb == "map_groups":
            calls = map(self._call_group, keys, groups_of(batch))
        else:
            calls = map(self._caller.then(self._accepted), keys, self._dicts(batch))
        results: list[Any] = self._run(self._caller.call_rows(calls, batch.num_rows, fail, 0))
        return results

    def _call_group(self, key: bytes | None, group: pa.RecordBatch) -> Any:
        given = batch_in_format(group, self._spec.batch_format, zero_copy=self._spec.zero_copy)

        def accept(key: bytes | None, result: Any) -> Any:
            result = owned(restore_columns(result, given, group, self._spec.batch_format))
            several = result if isinstance(result, Iterator) else [result]
            return self._stored(key, [to_batch(each, self._what) for each in several])

        return self._caller.then(accept)(key, given)

    def _accepted(self, key: bytes | None, result: Any) -> Any:
        """Check the result of a row, and store it, if results are cached."""
        match self._spec.verb:
            case "map":
                self._check_row(result)
            case "flat_map":
                result = list(self._checked_rows(result))
            case _:
                self._check_kept(result)
        return self._stored(key, result)

    def _stored(self, key: bytes | None, result: Any) -> Any:
        return result if self._memo is None or key is None else self._memo.store(key, result)

    def _check_kept(self, result: Any) -> None:
        # A bool is an int; text and lists are a mistake.
        if not isinstance(result, (int, np.bool_, np.integer, type(None))):
            raise TypeMismatchError(
                f"{self._what} returned {result!r:.80}; return True to keep the row, False to drop it"
            )

    def _checked_rows(self, result: Any) -> Iterator[dict[str, Any]]:
        if isinstance(result, (dict, str, bytes)) or not hasattr(result, "__iter__"):
            raise TypeMismatchError(
                f"{self._what} returned {type(result).__name__}; return a list of dicts, one for each row"
            )
        for row in result:
            self._check_row(row)
            yield row

    def _check_row(self, row: Any) -> None:
        if not isinstance(row, dict):
            raise TypeMismatchError(
                f"{self._what} returned a row of type {type(row).__name__}; return a dict with a key for each column"
            )


def groups_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Return the rows of each group in a batch, where a group is a list of rows. Copy nothing."""
    lists = batch.column(0)
    rows = pa.RecordBatch.from_struct_array(lists.values)
    return map(rows.slice, lists.offsets[:-1].to_pylist(), pc.list_value_length(lists).to_pylist())


def _joined(batches: Sequence[pa.RecordBatch], what: str) -> pa.RecordBatch:
    """Return the outputs of groups as one batch. If some groups lack a column or have only nulls, the others give its
    type."""
    tables = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows]
    if not tables:
        return pa.RecordBatch.from_arrays([], names=[])
    try:
        return to_batch(pa.concat_tables(tables, promote_options="permissive"), what)
    except pa.ArrowTypeError as exc:
        raise TypeMismatchError(f"{what}: two groups gave different types for a column: {exc}") from exc


def values_of(spec: BatchSpec) -> Callable[[pa.RecordBatch, int], dict[str, Any]]:
    """Return a function that returns the values that identify one row of an input: all values, or the keys of a
    group."""
    if not spec.keys:
        return row_values

    def key_values(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
        return row_values(next(groups_of(batch.slice(row, 1))).select(spec.keys), 0)

    return key_values


def row_values(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    """Return one row of a batch as a dict. It is read from the batch, since the function may change its arguments."""
    part = batch.slice(row, 1)
    return {name: Series(part.column(name)).to_pylist()[0] for name in batch.schema.names if name != ROW_NUMBER}


def _with_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], given: Any) -> Any:
    return function(given, *args, **kwargs)
