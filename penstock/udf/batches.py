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

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if self._spec.verb != "map_batches":
            return self._steps(self._over_rows(item), first_row)
        given = batch_in_format(item, self._spec.batch_format)
        with self._translated_errors(item.num_rows):
            result = self._function(given, *self._spec.args, **dict(self._spec.kwargs))
        if isinstance(result, Iterator):
            return self._drawn(result, item.num_rows, first_row)
        return self._steps(to_batch(result, self._what), first_row)

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def close(self) -> None:
        close_instance(self._instance)

    def _drawn(self, parts: Iterator[Any], num_rows: int, first_row: int) -> Iterator[pa.RecordBatch]:
        """Yield what a generator gives, one part at a time."""
        while True:
            with self._translated_errors(num_rows):
                part = next(parts, None)
            if part is None:
                return
            yield self._steps(to_batch(part, self._what), first_row)

    def _over_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        results = self._call_rows(batch_in_format(batch, "pylist"))
        match self._spec.verb:
            case "filter":
                return batch.filter(pa.array([bool(result) for result in results], pa.bool_()))
            case "map":
                return rows_to_batch(list(results), self._what)
            case _:
                return rows_to_batch([row for result in results for row in self._several(result)], self._what)

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


