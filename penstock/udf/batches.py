"""The handler of ``map_batches``, ``map``, ``flat_map`` and ``filter`` with a Python function."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.errors import QueryCancelledError, TypeMismatchError, UdfError
from penstock.expr.udf import BatchFormat
from penstock.plan.stages import CallBatch
from penstock.types import Series, default_numpy, to_batch
from penstock.udf.call import ApplySteps, IsCancelled
from penstock.udf.retry import retrying
from penstock.udf.target import built_target, close_instance


class BatchHandler:
    """One Python function over batches or rows, then the stage's steps."""

    def __init__(self, work: CallBatch, steps: ApplySteps, is_cancelled: IsCancelled) -> None:
        self._spec = work.spec
        self._steps = steps
        self._is_cancelled = is_cancelled
        target, self._instance = built_target(self._spec)
        self._function = retrying(target, self._spec.policy)

    def process(self, item: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        for batch in self._outputs(item):
            yield self._steps(batch, first_row)

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def close(self) -> None:
        close_instance(self._instance)

    def _outputs(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._spec.verb == "map_batches":
            yield from self._map_batches(batch)
            return
        rows = batch_in_format(batch, "pylist")
        if self._spec.verb == "filter":
            kept = [bool(result) for result in self._call_rows(rows)]
            yield batch.filter(pa.array(kept, pa.bool_()))
        elif self._spec.verb == "map":
            yield rows_to_batch(list(self._call_rows(rows)), self._what)
        else:
            yield rows_to_batch([row for result in self._call_rows(rows) for row in self._several(result)], self._what)

    def _map_batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        given = batch_in_format(batch, self._spec.batch_format)
        with self._translated_errors(batch.num_rows):
            result = self._function(given, *self._spec.args, **dict(self._spec.kwargs))
        if not isinstance(result, Iterator):
            yield to_batch(result, self._what)
            return
        while True:
            with self._translated_errors(batch.num_rows):
                part = next(result, None)
            if part is None:
                return
            yield to_batch(part, self._what)

    def _call_rows(self, rows: list[dict[str, Any]]) -> Iterator[Any]:
        for row in rows:
            if self._is_cancelled():
                raise QueryCancelledError("the query was stopped")
            with self._translated_errors(1, row):
                result = self._function(row, *self._spec.args, **dict(self._spec.kwargs))
            yield result

    def _several(self, result: Any) -> Iterator[dict[str, Any]]:
        if isinstance(result, (dict, str, bytes)) or not hasattr(result, "__iter__"):
            raise TypeMismatchError(f"{self._what} returned {type(result).__name__}; return a list of dicts, one a row")
        with self._translated_errors(1):
            yield from result

    @property
    def _what(self) -> str:
        return f"{self._spec.verb}({self._spec.name})"

    def _translated_errors(self, num_rows: int, row: dict[str, Any] | None = None) -> Translated:
        return Translated(self._what, num_rows, row)


class Translated:
    """Turns an exception of user code into a UdfError that says where it came from."""

    __slots__ = ("_num_rows", "_row", "_what")

    def __init__(self, what: str, num_rows: int, row: dict[str, Any] | None) -> None:
        self._what = what
        self._num_rows = num_rows
        self._row = row

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: object) -> None:
        if isinstance(exc, Exception):
            where = f"the row {self._row!r:.500}" if self._row is not None else f"a batch of {self._num_rows} rows"
            raise UdfError(f"{self._what} failed on {where}: {type(exc).__name__}: {exc}") from exc


def batch_in_format(batch: pa.RecordBatch, batch_format: BatchFormat) -> Any:
    """Return a batch as user code wants it, sharing memory where Arrow allows."""
    match batch_format:
        case "pyarrow":
            return pa.Table.from_batches([batch])
        case "pandas":
            return batch.to_pandas()
        case "pylist":
            columns = [Series(column).to_pylist() for column in batch.columns]
            names = batch.schema.names
            if not names:
                return [{} for _ in range(batch.num_rows)]
            return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        case "torch":
            return {name: Series(batch.column(name)).to_torch() for name in batch.schema.names}
        case "numpy":
            return {name: default_numpy(batch.column(name)) for name in batch.schema.names}


def rows_to_batch(rows: list[Any], what: str) -> pa.RecordBatch:
    """Return rows given as dicts as one batch; a key that a row lacks is null there."""
    for row in rows:
        if not isinstance(row, dict):
            raise TypeMismatchError(f"{what} returned {type(row).__name__}; return a dict, one key a column")
    names = dict.fromkeys(itertools.chain.from_iterable(rows))
    return to_batch({name: [row.get(name) for row in rows] for name in names}, what)


