"""Convert the results of user functions to Arrow columns."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import QueryCancelledError, TypeMismatchError
from penstock.expr.arrays import repeat
from penstock.plan.stages import CallUdf
from penstock.types import DataType, to_arrow_array
from penstock.types.convert import is_pandas
from penstock.udf.failures import Failures

# --- columns ----------------------------------------------------------------------------------------------------------


def with_column(
    batch: pa.RecordBatch, work: CallUdf, column: pa.Array, parents: pa.Array | None = None
) -> pa.RecordBatch:
    """Return the columns that the call keeps and the computed one, which replaces a column of its name.

    ``parents`` are the numbers of the rows that the values of a generator came from.
    """
    columns = {name: batch.column(name) for name in (batch.schema.names if work.keep is None else work.keep)}
    if parents is not None:
        columns = {name: array.take(parents) for name, array in columns.items()}
    columns[work.column] = column
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def column_of_rows(
    results: Sequence[Any],
    dtype: DataType,
    failures: Failures,
    batch: pa.RecordBatch,
    first_row: int,
    parents: pa.Array | None = None,
) -> pa.Array:
    """Return the results of rows as a column. A row with a result of another type is a failed row."""
    try:
        return to_arrow_array(results, dtype, what=failures.what)
    except TypeMismatchError:
        if not failures.is_tolerant:
            raise
    columns = []
    for number, value in enumerate(results):
        try:
            columns.append(to_arrow_array([value], dtype, what=failures.what))
        except TypeMismatchError as exc:
            row = number if parents is None else parents[number].as_py()
            failures.record(batch, row, first_row + row, exc)
            columns.append(pa.nulls(1, dtype.arrow))
    return pa.concat_arrays(columns)


def column_of_batch(result: Any, dtype: DataType, num_rows: int, what: str) -> pa.Array:
    """Return the result of a batch function as a column; a single value is repeated."""
    if isinstance(result, (str, bytes, dict)) or not hasattr(result, "__len__"):
        raise TypeMismatchError(
            f"{what} returned {type(result).__name__}; "
            "return a Series, list, ndarray, torch tensor or pyarrow Array with one value for each row"
        )
    column = to_arrow_array(result, dtype, what=what)
    if len(column) == num_rows:
        return column
    if len(column) == 1:
        return repeat(column[0], num_rows)
    raise TypeMismatchError(f"{what} returned {len(column)} values for a batch of {num_rows} rows")


def flattened(results: Sequence[Iterable[Any] | None]) -> tuple[list[Any], list[int]]:
    """Return the values of all generators in one list, and the row of each value.

    A failed row, and a generator that yields nothing, gives one null.
    """
    lists = [[None] if values is None else list(values) or [None] for values in results]
    parents = np.repeat(np.arange(len(lists)), [len(values) for values in lists])
    return [value for values in lists for value in values], parents.tolist()


_END = object()

# --- generators -------------------------------------------------------------------------------------------------------


def drained(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a generator function so that a call runs it to its end and raises its errors."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return iter(list(owned(result))) if isinstance(result, Iterator) else result

    return call


def drained_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Do the same for an async function or an async generator."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if inspect.isasyncgen(result):
            return iter([owned(item) async for item in result])
        result = await result
        return iter(list(owned(result))) if isinstance(result, Iterator) else result

    return call


def started(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a generator function so that a call runs it to its first item and raises the errors before it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not isinstance(result, Iterator):
            return result
        return _resumed(list(itertools.islice(result, 1)), result)

    return call


def started_async(function: Callable[..., Any], run: Callable[[Any], Any]) -> Callable[..., Any]:
    """Wrap an async generator function so that a call returns an iterator, which gets each item by ``run``."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not inspect.isasyncgen(result):
            result = await result
            return _resumed(list(itertools.islice(result, 1)), result) if isinstance(result, Iterator) else result
        first = await anext(result, _END)
        return _resumed([] if first is _END else [first], drawn(result, run))

    return call


def drawn(items: AsyncGenerator[Any, Any], run: Callable[[Any], Any]) -> Iterator[Any]:
    async def draw() -> Any:
        return await anext(items, _END)

    async def close() -> None:
        await items.aclose()

    try:
        while (item := run(draw())) is not _END:
            yield item
    finally:
        with contextlib.suppress(QueryCancelledError):
            run(close())


def _resumed(first: list[Any], rest: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from first
        yield from rest
    finally:
        close = getattr(rest, "close", None)  # it may be a plain iterator
        if callable(close):
            close()


# --- memory -----------------------------------------------------------------------------------------------------------


def owned(result: Any, given: pa.RecordBatch | None = None) -> Any:
    """Return a result with copies of all memory that the function may still change, such as a reused buffer.

    Not copied: arrays without another reference, read-only arrays, and columns of the ``given`` batch.

    >>> buffer = np.zeros(2)
    >>> result = owned({"x": buffer})
    >>> buffer[0] = 1
    >>> result["x"].tolist()
    [0.0, 0.0]
    """
    if isinstance(result, Iterator):
        return map(owned, result, itertools.repeat(given))
    is_shared = sys.getrefcount(result) > _SOLE
    if not isinstance(result, Mapping):
        return _owned(result, is_shared, given)
    counts = [sys.getrefcount(value) for value in result.values()]
    shared = [is_shared or type(result) is not dict or count > _SOLE_IN_DICT for count in counts]
    return {name: _owned(value, each, given) for (name, value), each in zip(result.items(), shared, strict=True)}


def _owned(value: Any, is_shared: bool, given: pa.RecordBatch | None) -> Any:
    match value:
        case np.ndarray():
            return value.copy() if value.flags.writeable and (is_shared or not value.flags.owndata) else value
        case list():
            return list(value) if is_shared else value
        case pa.Table() | pa.RecordBatch():
            columns = [_owned(column, True, given) for column in value.columns]
            return type(value).from_arrays(columns, schema=value.schema)
        case pa.Array() | pa.ChunkedArray():  # it may wrap an array of the function
            return value if _addresses(value) <= _addresses(given) else _copied(value)
    if is_pandas(value):
        return value.copy(deep=True) if hasattr(value, "copy") else value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.device.type == "cpu":
        is_borrowed = is_shared or value._is_view() or not value.untyped_storage().resizable()
        return value.detach().clone() if is_borrowed else value
    return value


def _count(result: Any) -> int:
    return sys.getrefcount(result)


def _count_values(result: dict[str, Any]) -> list[int]:
    return [sys.getrefcount(value) for value in result.values()]


# The counts that the expressions in ``owned`` return for objects without another reference.
_SOLE = _count(np.empty(0))
_SOLE_IN_DICT = _count_values({"x": np.empty(0)})[0]


def _copied(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a copy. ``concat_arrays`` of a single array does not copy, so an empty one is added."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.concat_arrays([*chunks, chunks[0][:0]]) if chunks else pa.array([], column.type)


def _addresses(data: Any) -> set[int]:
    if data is None:
        return set()
    if isinstance(data, pa.RecordBatch):
        return set().union(*map(_addresses, data.columns))
    chunks = data.chunks if isinstance(data, pa.ChunkedArray) else [data]
    return {buffer.address for chunk in chunks for buffer in chunk.buffers() if buffer is not None}
