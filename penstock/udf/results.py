"""Convert the results of user functions to Arrow columns."""

from __future__ import annotations

import contextlib
import inspect
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
    """Return the columns that the call keeps and the computed column, which replaces one with the same name.

    ``parents`` has, for each value of a generator, the number of its row.
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
    """Return the values of all generators as one list, and for each value its row.

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
    """Wrap an async function or async generator function so that a call runs a generator to its end."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if inspect.isasyncgen(result):
            return iter([owned(item) async for item in result])
        result = await result
        return iter(list(owned(result))) if isinstance(result, Iterator) else result

    return call


def opened_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an async function or async generator function so that an awaited call returns its result or generator."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result if inspect.isasyncgen(result) else await result

    return call


def drawn(items: AsyncGenerator[Any, Any], run: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield the items of an async generator; ``run`` waits for each."""

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


# --- memory -----------------------------------------------------------------------------------------------------------


def owned(result: Any) -> Any:
    """Return a result with copies of the arrays and lists that the function may still change, such as a reused buffer.

    It copies neither read-only arrays nor Arrow data, which must not change.

    >>> buffer = np.zeros(2)
    >>> result = owned({"x": buffer})
    >>> buffer[0] = 1
    >>> result["x"].tolist()
    [0.0, 0.0]
    """
    if isinstance(result, Iterator):
        return map(owned, result)
    if isinstance(result, Mapping):
        return {name: _owned(column) for name, column in result.items()}
    return _owned(result)


def _owned(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column.copy() if column.flags.writeable else column
    if isinstance(column, list):
        return list(column)
    if is_pandas(column):
        return column.copy(deep=True) if hasattr(column, "copy") else column
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(column, torch.Tensor) and column.device.type == "cpu"
    return column.detach().clone() if is_tensor else column
