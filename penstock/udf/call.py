"""Handlers that run ``func``, ``cls`` and their methods: over rows, batches, generators."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import ProviderUnusableError, QueryCancelledError, TypeMismatchError, UdfError
from penstock.expr.arrays import repeat
from penstock.expr.udf import UdfSpec
from penstock.observe.events import RowError
from penstock.plan.stages import CallUdf
from penstock.protocols import WorkerContext
from penstock.storage.urls import redacted
from penstock.types import PartialColumn, to_arrow_array
from penstock.udf.arguments import Arguments
from penstock.udf.failures import CALL_FAILURES, row_error_of
from penstock.udf.instances import Lease
from penstock.udf.memo import FunctionMemo, missing_rows
from penstock.udf.ownership import unshared
from penstock.udf.retry import never, retrying
from penstock.udf.sizing import BatchSizes, Parts
from penstock.udf.target import drained, finish_closing

log = logging.getLogger("penstock.udf")

Record = Callable[[RowError], None]
ApplySteps = Callable[[pa.RecordBatch, int], pa.RecordBatch]

CANCEL_CHECK_S = 0.02  # how long rows run between two looks at the cancel flag


class UdfHandler:
    """One UDF call over batches: appends (or replaces) one column, then applies the stage's steps."""

    def __init__(self, work: CallUdf, steps: ApplySteps, context: WorkerContext) -> None:
        self._work = work
        self._steps = steps
        self._is_cancelled = context.is_cancelled
        self._spec = work.call.udf
        self._arguments = Arguments(work.call)
        self._failures = Failures(self._spec, self._arguments, context.record)
        self._lease = Lease(work)
        function = drained(self._lease.function) if self._spec.target.is_generator else self._lease.function
        self._sizes = udf_batch_sizes(self._spec, self._arguments)
        is_final = self._sizes.is_too_much if self._spec.target.is_batch else never
        self._function = retrying(function, self._spec.policy, context.is_cancelled, is_final)
        self._memo = FunctionMemo.open(self._spec)

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if self._spec.builtin.has_cut:
            args, kwargs = self._arguments.series(item)
            lengths = self._spec.target.function.cut(*args, **kwargs)  # type: ignore[attr-defined]
            if len(lengths) > 1:
                starts = itertools.accumulate(lengths, initial=0)
                parts = ((item.slice(start, length), start) for start, length in zip(starts, lengths, strict=False))
                return (self._in_turn(part, first_row + start) for part, start in parts)
        return self._in_turn(item, first_row)

    def _in_turn(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return what a batch gives, once nobody else uses the instance."""
        with self._lease.lock:
            return self._processed(item, first_row)

    def _processed(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        parents: pa.Array | None = None
        if self._spec.target.is_batch:
            column = (self._call_batch if self._memo is None else self._cached_batch)(item, first_row)
        else:
            results = (self._call_rows if self._memo is None else self._cached_rows)(item, first_row)
            if self._spec.target.is_generator:
                results, parents = flattened(results)
            column = result_column(results, self._failures, item, first_row, parents)
        return self._steps(with_column(item, self._work, column, parents), first_row)

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def close(self) -> None:
        try:
            finish_closing(self._lease.close())
        finally:
            if self._memo is not None:
                self._memo.close()

    def _call_batch(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        parts, columns = self._sizes.parts(batch), list[pa.Array]()
        for part in parts:
            if self._is_cancelled():
                raise QueryCancelledError("the query was stopped")
            args, kwargs = self._arguments.series(part)
            try:
                result = unshared(self._function(*args, **kwargs), part)
            except QueryCancelledError:
                raise
            except CALL_FAILURES as exc:
                del args, kwargs  # what is too much for memory must not be held while less of it is tried
                if not parts.has_shrunk(exc):
                    columns += self._failures.part(part, first_row + sum(map(len, columns)), parts, exc)
            else:
                parts.worked()
                part_row = first_row + sum(map(len, columns))
                result = self._failures.values(result, part, part_row)
                columns += self._failures.taken(result, part, part_row, parts)
        return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)

    def _cached_batch(self, batch: pa.RecordBatch, first_row: int) -> pa.Array:
        """Return what a batch gives, if that is kept; else compute it, and keep it unless a row of it failed."""
        assert self._memo is not None
        key = self._memo.batch_key(self._arguments.arrays(batch), batch.num_rows)
        if found := self._memo.batches.get([key]):
            column: pa.Array = found[key][0].column(0)
            return column
        num_noted = self._failures.num_noted
        column = self._call_batch(batch, first_row)
        if self._failures.num_noted == num_noted:
            self._memo.batches.put(key, [pa.RecordBatch.from_arrays([column], names=[""])])
        return column

    def _cached_rows(self, batch: pa.RecordBatch, first_row: int) -> list[Any]:
        """Return the results that are kept, and those of the other rows, which are computed."""
        assert self._memo is not None
        keys = self._memo.row_keys(self._arguments.arrays(batch), batch.num_rows)
        lookup = self._memo.rows.look_up(keys, can_share=self._spec.policy.on_error == "raise")
        function, rows = self._memo.storing(self._function, self._spec.target.is_generator), lookup.missing
        part = missing_rows(lookup, batch)
        return lookup.merged(self._call_rows(part, first_row, function, [keys[row] for row in rows], rows))

    def _call_rows(
        self,
        batch: pa.RecordBatch,
        first_row: int,
        function: Callable[..., Any] | None = None,
        keys: Sequence[bytes] | None = None,
        places: Sequence[int] | None = None,
    ) -> list[Any]:
        """Call the function on every row; where one fails, raise, or record null and go on with the next.

        ``places`` says where the rows stand after ``first_row``, if not one after another.
        """
        results: list[Any] = []
        # A map, which goes on with the next row after an exception.
        calls = self._arguments.rows(batch, function or self._function, keys)
        while len(results) < batch.num_rows:
            try:
                self._run(calls, batch.num_rows, results)
            except QueryCancelledError:
                raise
            except CALL_FAILURES as exc:
                row = len(results)
                self._failures.row(batch, row, first_row + (row if places is None else places[row]), exc)
                results.append(None)
        return results

    def _run(self, calls: Iterator[Any], num_rows: int, results: list[Any]) -> None:
        """Draw ``calls`` into ``results``, in chunks that are timed so that a cancelled query stops soon.

        ``list.extend`` keeps what it drew before an exception, so ``len(results)`` is the row that failed.
        """
        size = 1
        while len(results) < num_rows:
            if self._is_cancelled():
                raise QueryCancelledError("the query was stopped")
            started, wanted = time.perf_counter(), min(size, num_rows - len(results)) + len(results)
            results.extend(itertools.islice(calls, size))
            if len(results) < wanted:  # to the map, that was the end
                raise RuntimeError("the function raised StopIteration, as next() does where nothing is left to give")
            if time.perf_counter() - started < CANCEL_CHECK_S / 2:
                size *= 2


class Failures:
    """What becomes of rows on which a function fails: an error, or, where that is tolerated, a record."""

    def __init__(self, spec: UdfSpec, arguments: Arguments, record: Record) -> None:
        self.spec = spec
        self._arguments = arguments
        self._record = record
        self.num_noted = 0

    def row(self, batch: pa.RecordBatch, row: int, place: int, exc: BaseException) -> None:
        """Raise an error that names the row, or record it."""
        if isinstance(exc, ProviderUnusableError):
            raise exc
        if self.spec.policy.on_error == "raise":
            raise row_error(self.spec, self._arguments.at(batch, row), exc) from exc
        self.note(batch, row, place, exc)

    def values(self, result: Any, part: pa.RecordBatch, first_row: int) -> Any:
        """Return what a batch function gave, once the rows that it says failed are raised or recorded."""
        if not isinstance(result, PartialColumn):
            return result
        self.rows(part, first_row, result.failures)
        return result.values

    def rows(self, part: pa.RecordBatch, first_row: int, failures: Mapping[int, Exception]) -> None:
        """Raise an error that names the first of the rows, or record them all; those of a batch function of ours."""
        for row, exc in sorted(failures.items()):
            if isinstance(exc, ProviderUnusableError):
                raise exc
            if self.spec.policy.on_error == "raise":
                raise UdfError(
                    f"{self.spec.name} failed on row {first_row + row} of its input: {str(exc) or type(exc).__name__}. "
                    'To go on with null for such rows, set on_error="null"; df.errors() then lists them.'
                ) from exc
            self.note(part, row, first_row + row, exc)

    def part(self, part: pa.RecordBatch, first_row: int, parts: Parts, exc: BaseException) -> list[pa.Array]:
        """Raise what a batch function raised, or split the part that it failed on; a row alone is null."""
        if isinstance(exc, ProviderUnusableError):
            raise exc
        if self.spec.policy.on_error == "raise":
            raise batch_error(self.spec, part.num_rows, exc) from exc
        if parts.split():
            return []
        for row in range(part.num_rows):
            self.note(part, row, first_row + row, exc)
        return [pa.nulls(part.num_rows, self.spec.return_dtype.arrow)]

    def taken(self, result: Any, part: pa.RecordBatch, first_row: int, parts: Parts) -> list[pa.Array]:
        """Return what a batch function gave for a part as a column; what is none, or too short, is a failure too."""
        try:
            return [batch_result(result, self.spec, part.num_rows)]
        except TypeMismatchError as exc:
            if self.spec.policy.on_error == "raise":
                raise
            return self.part(part, first_row, parts, exc)

    def note(self, batch: pa.RecordBatch, row: int, place: int, exc: BaseException) -> None:
        """Record a row whose result is null; ``place`` is where it stands in the stage's input."""
        self.num_noted += 1
        if self.spec.policy.on_error == "log":
            log.warning("UDF %r failed, its result is null: %s: %s", self.spec.name, type(exc).__name__, exc)
        self._record(row_error_of(self.spec.name, self._arguments.told(batch, row), exc, place))


def udf_batch_sizes(spec: UdfSpec, arguments: Arguments) -> BatchSizes:
    """Return what bounds the batches of a function over columns."""

    def weigh(batch: pa.RecordBatch) -> Any:
        assert spec.limits.batch_weight is not None
        args, kwargs = arguments.series(batch)
        return spec.limits.batch_weight(*args, **kwargs)

    return BatchSizes(spec.limits, f"batch UDF {spec.name!r}", arguments.arrays, weigh)


def with_column(
    batch: pa.RecordBatch, work: CallUdf, column: pa.Array, parents: pa.Array | None = None
) -> pa.RecordBatch:
    """Return the kept columns and the computed one, which comes last unless all are kept and it replaces one of them.

    With ``parents``, each kept row comes as often as it is named there.
    """
    columns = {name: batch.column(name) for name in (batch.schema.names if work.keep is None else work.keep)}
    if parents is not None:
        columns = {name: array.take(parents) for name, array in columns.items()}
    columns[work.column] = column
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def result_column(
    results: Sequence[Any],
    failures: Failures,
    batch: pa.RecordBatch,
    first_row: int,
    parents: pa.Array | None = None,
) -> pa.Array:
    """Return the results of a batch's rows as a column; one that does not fit its type is a row that failed.

    ``parents`` are the rows that the results came from, if not one from each.
    """
    spec = failures.spec
    try:
        return to_arrow_array(results, spec.return_dtype, what=f"UDF {spec.name!r}")
    except TypeMismatchError:
        if spec.policy.on_error == "raise":
            raise
    columns = []
    for number, value in enumerate(results):
        try:
            columns.append(to_arrow_array([value], spec.return_dtype, what=f"UDF {spec.name!r}"))
        except TypeMismatchError as exc:
            row = number if parents is None else parents[number].as_py()
            failures.note(batch, row, first_row + row, exc)
            columns.append(pa.nulls(1, spec.return_dtype.arrow))
    return pa.concat_arrays(columns)


def batch_result(result: Any, spec: UdfSpec, num_rows: int) -> pa.Array:
    """Return what a batch function gave as one column, or say what is wrong with it."""
    if isinstance(result, (str, bytes, dict)) or not hasattr(result, "__len__"):
        raise TypeMismatchError(
            f"Batch UDF {spec.name!r} returned {type(result).__name__}; "
            "return a Series, list, ndarray, torch tensor or pyarrow Array with one value a row"
        )
    column = to_arrow_array(result, spec.return_dtype, what=f"batch UDF {spec.name!r}")
    if len(column) == num_rows:
        return column
    if len(column) == 1:
        return repeat(column[0], num_rows)
    raise TypeMismatchError(f"Batch UDF {spec.name!r} returned {len(column)} values for a batch of {num_rows} rows")


def row_failure(spec: UdfSpec, values: dict[str, Any], exc: BaseException) -> str:
    """Return what to tell of a row on which a function failed."""
    shown = ", ".join(f"{name}={_shortened(value)}" for name, value in values.items())
    return (
        f"UDF {spec.name!r} failed on the row {shown or '(no columns)'}: {type(exc).__name__}: {exc}\n"
        'To go on with null for such rows, set on_error="log" or "ignore".'
    )


def row_error(spec: UdfSpec, values: dict[str, Any], exc: BaseException) -> UdfError:
    return UdfError(row_failure(spec, values, exc))


def batch_error(spec: UdfSpec, num_rows: int, exc: BaseException) -> UdfError:
    return UdfError(
        f"Batch UDF {spec.name!r} failed on a batch of {num_rows} rows: {type(exc).__name__}: {exc}\n"
        'To go on with null for such rows, set on_error="log" or "ignore".'
    )


def flattened(results: Sequence[Iterable[Any] | None]) -> tuple[list[Any], pa.Array]:
    """Return the values of all rows after one another, and the row each came from; a failed row stays one null."""
    lists = [[None] if values is None else list(values) for values in results]
    parents = np.repeat(np.arange(len(lists)), [len(values) for values in lists])
    return [value for values in lists for value in values], pa.array(parents)


def _shortened(value: Any, width: int = 200) -> str:
    text = redacted(repr(value))
    return text if len(text) <= width else text[: width - 3] + "..."
