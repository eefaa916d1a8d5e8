"""The handler of ``map_batches``, ``map``, ``flat_map`` and ``filter`` with a Python function."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import QueryCancelledError, TypeMismatchError, UdfError
from penstock.expr.udf import BatchSpec
from penstock.plan.stages import CallBatch
from penstock.protocols import WorkerContext
from penstock.types import to_batch
from penstock.udf.call import ApplySteps, Record
from penstock.udf.failures import CALL_FAILURES, row_error_of
from penstock.udf.formats import batch_in_format, has_read_only
from penstock.udf.memo import FunctionMemo, missing_rows
from penstock.udf.ownership import unshared
from penstock.udf.passthrough import PassedColumns
from penstock.udf.retry import never, retrying, retrying_async
from penstock.udf.sizing import BatchSizes
from penstock.udf.target import begun, built_target, close_instance, drained, drained_async, finish_closing

if TYPE_CHECKING:
    from penstock.udf.loop import WorkerLoop

log = logging.getLogger("penstock.udf")

ZERO_COPY_REMEDY = (
    "The arrays of a batch share memory with other columns and are read-only. To change them in place, "
    "set zero_copy_batch=False in map_batches, which gives a copy; or write array = array.copy() first."
)
_FAILED = object()  # what a call gives that failed, where that is tolerated


@dataclass(frozen=True, slots=True)
class Last:
    """Rows after which a batch gives no others, so that nobody has to ask."""

    rows: pa.RecordBatch


class BatchHandler:
    """One Python function over batches or rows, then the stage's steps. What fails and is tolerated gives no rows."""

    def __init__(self, work: CallBatch, steps: ApplySteps, context: WorkerContext) -> None:
        self._spec = work.spec
        self._steps = steps
        self._is_cancelled = context.is_cancelled
        self._record = context.record
        self._what = f"{self._spec.verb}({self._spec.name})"
        self._loop = self._opened_loop() if self._spec.target.is_async else None
        self._instance: Any = None
        self._memo: FunctionMemo | None = None
        try:
            target, self._instance = self._loop.wait(self._built_on_loop()) if self._loop else built_target(self._spec)
        except BaseException:
            self.close()
            raise
        self._sizes = BatchSizes(self._spec.limits, self._what, lambda batch: batch.columns, self._weights)
        self._is_bit_by_bit = False  # whether results are given before the last is made
        self._num_failed = 0
        self._memo = FunctionMemo.open(self._spec)
        self._function = self._with_policy(target)

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if self._spec.verb != "map_batches":
            return self._finished(self._over_rows(item, first_row), first_row)
        outputs = self._outputs(item) if self._memo is None else self._cached_outputs(item)
        first = next(outputs, None)
        if isinstance(first, Last):
            return self._finished(first.rows, first_row)
        if not self._is_bit_by_bit:  # the whole batch can be tried again elsewhere only while nothing of it has gone on
            outputs = iter(list(outputs))
        return self._drawn(first, outputs, first_row)

    def _finished(self, rows: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if not rows.num_rows:  # without a row, columns may be missing, and the steps not fit
            return iter(())
        return self._steps(rows, first_row)

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def close(self) -> None:
        close = functools.partial(close_instance, self._instance)
        try:
            if self._loop is None:
                finish_closing(close())
            else:
                self._loop.close(close)
        finally:
            if self._memo is not None:
                self._memo.close()

    # --- calls ---

    def _opened_loop(self) -> WorkerLoop:
        from penstock.udf.loop import WorkerLoop  # asyncio is a fifth of what importing penstock takes

        return WorkerLoop(self._is_cancelled)

    async def _built_on_loop(self) -> tuple[Callable[..., Any], Any]:
        return built_target(self._spec)  # a client may ask for the running loop when it is made

    def _with_policy(self, target: Callable[..., Any]) -> Callable[[Any], Any]:
        """Return the function of a row or a batch alone, with the retries it is given."""
        policy = self._spec.policy
        is_over_rows = self._spec.verb != "map_batches"
        is_final = never if is_over_rows else self._sizes.is_too_much
        if self._loop is not None:
            function = retrying_async(drained_async(target), policy, is_final)
        else:
            # What is given bit by bit can only be tried again, whole or in parts, if none of it has gone on.
            whole = drained(target) if is_over_rows or self._is_repeated else begun(target)
            function = retrying(whole, policy, self._is_cancelled, is_final)
        args, kwargs = self._spec.args, dict(self._spec.kwargs)
        return lambda given: function(given, *args, **kwargs)

    @property
    def _is_repeated(self) -> bool:
        """Whether a call that fails is made again, or ended, or made on less."""
        policy, limits = self._spec.policy, self._spec.limits
        return bool(policy.max_retries or policy.on_error != "raise" or policy.timeout_s or limits.split_on)

    def _outputs(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Last]:
        """Call the function on the batch, in parts if it weighs too much, and yield what each call gives.

        Where it fails and that is tolerated, it is called on the halves, down to single rows. A result is converted
        before the next call, which may use the same memory for its own. One that is known to be the last says so.
        """
        parts = self._sizes.parts(batch)
        for part in parts:
            given = batch_in_format(part, self._spec.batch_format, zero_copy=self._spec.zero_copy)
            try:
                result = self._checked(unshared(PassedColumns(part, given).restored(self._called(given)), part))
            except QueryCancelledError:
                raise
            except CALL_FAILURES as exc:
                del given  # what is too much for memory must not be held while less of it is tried
                if parts.has_shrunk(exc):
                    continue
                if self._spec.policy.on_error == "raise" or not parts.split():
                    self._fail(part, exc)
                continue
            del given
            parts.worked()
            if isinstance(result, Iterator):
                self._is_bit_by_bit = not self._is_repeated
                yield from self._items(result, part)
            else:
                rows = to_batch(result, self._what)
                yield rows if parts.has_more else Last(rows)

    def _items(self, results: Iterator[Any], part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield what a generator gives, which is made meanwhile."""
        try:
            for result in results:
                yield to_batch(result, self._what)
        except (QueryCancelledError, GeneratorExit, TypeMismatchError):
            raise
        except CALL_FAILURES as exc:
            self._fail(part, exc)

    def _weights(self, batch: pa.RecordBatch) -> Any:
        assert self._spec.limits.batch_weight is not None
        return self._spec.limits.batch_weight(batch_in_format(batch, self._spec.batch_format))

    def _called(self, given: Any) -> Any:
        if self._is_cancelled():
            raise QueryCancelledError("the query was stopped")
        result = self._function(given)
        return result if self._loop is None else self._loop.wait(result)

    def _checked(self, result: Any) -> Any:
        """Return what a call gave, or raise now, while it is known what was given, if it is nothing to go on with.

        Where failures are not tolerated there is nothing to know: it is told what is wrong when the result is used.
        """
        if self._spec.policy.on_error == "raise":
            return result
        match self._spec.verb:
            case "map_batches" if isinstance(result, Iterator):
                return iter([to_batch(each, self._what) for each in result])
            case "map_batches":
                return to_batch(result, self._what)
            case "map":
                return checked_row(result, self._what)
            case "flat_map":
                return [checked_row(row, self._what) for row in self._several(result)]
            case "filter":
                return self._is_kept(result)

    def _cached_outputs(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Last]:
        """Yield what a batch gives, if that is kept; else compute it, and keep it unless a row of it failed."""
        assert self._memo is not None
        key = self._memo.batch_key(batch.columns, batch.num_rows, batch.schema.names)
        outputs = self._memo.batches.get([key]).get(key)
        if outputs is None:
            num_failed = self._num_failed
            outputs = [each.rows if isinstance(each, Last) else each for each in self._outputs(batch)]
            if self._num_failed == num_failed:
                self._memo.batches.put(key, outputs)
        yield from outputs

    def _cached_rows(self, batch: pa.RecordBatch, first_row: int) -> list[Any]:
        """Return the results that are kept, and those of the other rows, which are computed."""
        assert self._memo is not None
        keys = self._memo.row_keys(batch.columns, batch.num_rows, batch.schema.names)
        lookup = self._memo.rows.look_up(keys, can_share=self._spec.policy.on_error == "raise")
        if not lookup.missing:
            return lookup.merged(())
        places = [first_row + row for row in lookup.missing]
        part = missing_rows(lookup, batch)
        return lookup.merged(self._call_rows(part, places, [keys[row] for row in lookup.missing]))

    def _call_rows(
        self, batch: pa.RecordBatch, places: Sequence[int], keys: Sequence[bytes] | None = None
    ) -> list[Any]:
        """Call the function on every row; ``places`` are where the rows stand in the stage's input."""
        rows = enumerate(batch_in_format(batch, "pylist"))
        if self._loop is not None:
            attempt = functools.partial(self._attempt_async, batch, places, keys)
            return self._loop.wait_for_all(functools.partial(attempt, number, row) for number, row in rows)
        return [self._attempt(batch, places, keys, number, row) for number, row in rows]

    def _attempt(
        self,
        batch: pa.RecordBatch,
        places: Sequence[int],
        keys: Sequence[bytes] | None,
        number: int,
        row: dict[str, Any],
    ) -> Any:
        try:
            return self._put(keys, number, self._checked(self._called(row)))
        except QueryCancelledError:
            raise
        except CALL_FAILURES as exc:
            return self._fail(batch.slice(number, 1), exc, places[number])

    async def _attempt_async(
        self,
        batch: pa.RecordBatch,
        places: Sequence[int],
        keys: Sequence[bytes] | None,
        number: int,
        row: dict[str, Any],
    ) -> Any:
        try:
            return self._put(keys, number, self._checked(await self._function(row)))
        except CALL_FAILURES as exc:
            return self._fail(batch.slice(number, 1), exc, places[number])

    def _put(self, keys: Sequence[bytes] | None, number: int, result: Any) -> Any:
        """Keep the result of a row, where results are kept."""
        if self._memo is None or keys is None:
            return result
        result = list(result) if isinstance(result, Iterator) else result
        self._memo.rows.put(keys[number], result)
        return result

    def _fail(self, part: pa.RecordBatch, exc: BaseException, place: int | None = None) -> Any:
        """Raise what is to be raised, or record the rows and say that the call failed.

        They are taken from the batch anew, as the function may have changed what it was given.
        """
        if _is_write_refused(self._spec, part, exc):
            exc.add_note(ZERO_COPY_REMEDY)
        if self._spec.policy.on_error == "raise":
            raise UdfError(batch_failure(self._spec, part, exc)) from exc
        self._num_failed += 1
        note_failure(self._spec, part, place, exc, self._record)
        return _FAILED

    # --- results ---

    def _drawn(
        self, first: pa.RecordBatch | None, others: Iterator[pa.RecordBatch | Last], first_row: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield what calls gave, one result at a time."""
        for output in itertools.chain([] if first is None else [first], others):
            rows = output.rows if isinstance(output, Last) else output
            if rows.num_rows:
                yield self._steps(rows, first_row)

    def _over_rows(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        if self._memo is None:
            results = self._call_rows(batch, range(first_row, first_row + batch.num_rows))
        else:
            results = self._cached_rows(batch, first_row)
        if self._spec.verb == "filter":
            return batch.filter(pa.array([self._is_kept(result) for result in results], pa.bool_()))
        rows = [result for result in results if result is not _FAILED]
        if self._spec.verb == "flat_map":
            rows = [row for result in rows for row in self._several(result)]
        return rows_to_batch(rows, self._what)

    def _is_kept(self, result: Any) -> bool:
        if result is _FAILED or result is None:
            return False
        if not isinstance(result, (int, np.bool_, np.integer)):  # a bool is an int; text and lists are a mistake
            raise TypeMismatchError(
                f"{self._what} returned {result!r:.80}; return True to keep the row, False to drop it"
            )
        return bool(result)

    def _several(self, result: Any) -> Iterator[dict[str, Any]]:
        if isinstance(result, (dict, str, bytes)) or not hasattr(result, "__iter__"):
            raise TypeMismatchError(f"{self._what} returned {type(result).__name__}; return a list of dicts, one a row")
        return iter(result)


def _is_write_refused(spec: BatchSpec, part: pa.RecordBatch, exc: BaseException) -> bool:
    """Whether a function failed as it wrote to an array that it was given to read; NumPy has no class for that."""
    if not isinstance(exc, ValueError) or "read-only" not in str(exc) or spec.verb != "map_batches":
        return False
    return spec.zero_copy is not False and has_read_only(batch_in_format(part, spec.batch_format, zero_copy=True))


def batch_failure(spec: BatchSpec, batch: pa.RecordBatch, exc: BaseException) -> str:
    """Return what to tell of a batch on which a function failed; of a row that stands alone, its values too."""
    if batch.num_rows == 1:
        return row_failure(spec, batch_in_format(batch, "pylist")[0], exc)
    return _failure(spec, f"a batch of {batch.num_rows} rows", exc)


def row_failure(spec: BatchSpec, row: dict[str, Any], exc: BaseException) -> str:
    return _failure(spec, f"the row {row!r:.500}", exc)


def _failure(spec: BatchSpec, where: str, exc: BaseException) -> str:
    text = f"{spec.verb}({spec.name}) failed on {where}: {type(exc).__name__}: {exc}"
    return (
        text
        if spec.policy.on_error != "raise"
        else f'{text}\nTo go on without such rows, set on_error="log" or "ignore".'
    )


def note_failure(
    spec: BatchSpec, part: pa.RecordBatch, first_row: int | None, exc: BaseException, record: Record
) -> None:
    """Record rows that are left out; ``first_row`` is where they stand in the stage's input, if that is known."""
    if spec.policy.on_error == "log":
        log.warning("%s", batch_failure(spec, part, exc))
    for number, row in enumerate(batch_in_format(part, "pylist")):
        record(row_error_of(spec.name, row, exc, None if first_row is None else first_row + number))


def checked_row(row: Any, what: str) -> Any:
    """Return a row that a function gave, or raise what is wrong with it."""
    if not isinstance(row, dict):
        raise TypeMismatchError(f"{what} gave a row of type {type(row).__name__}; give a dict, one key a column")
    return row


def rows_to_batch(rows: list[Any], what: str) -> pa.RecordBatch:
    """Return rows given as dicts as one batch; a key that a row lacks is null there."""
    for row in rows:
        checked_row(row, what)
    names = dict.fromkeys(itertools.chain.from_iterable(rows))
    return to_batch({name: [row.get(name) for row in rows] for name in names}, what)
