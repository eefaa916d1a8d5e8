"""Make a DataFrame from data in memory, a range of numbers, or a custom source."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.frame.dataframe import DataFrame
from penstock.plan.nodes import Scan
from penstock.protocols import Source
from penstock.types import Schema, to_arrow_array
from penstock.udf.options import refusing_unknown

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from penstock.io.data_file import DataFile


def read_source(source: Source) -> DataFrame:
    """Read from a custom source: any object with the methods of ``ps.Source``.

    >>> import pyarrow as pa
    >>> from penstock.io.memory_source import MemorySource
    >>> ps.read_source(MemorySource.from_table(pa.table({"a": [1]}))).to_pydict()
    {'a': [1]}
    """
    if not isinstance(source, Source):
        raise InvalidArgumentError(
            f"read_source takes a Source (name, can_filter, schema, read_tasks); got {type(source).__name__}."
        )
    return DataFrame(Scan(source))


# --- data in memory ---------------------------------------------------------------------------------------------------


def from_pydict(data: Mapping[str, Any]) -> DataFrame:
    """Make a DataFrame from columns of equal length: lists, ndarrays, Arrow arrays, tensors or Series.

    >>> ps.from_pydict({"a": [1]}).to_pydict()
    {'a': [1]}
    """
    if not isinstance(data, Mapping):
        raise InvalidArgumentError(f"from_pydict takes a dict of columns; got {type(data).__name__}.")
    columns = {str(name): to_arrow_array(values, None, what=f"column {name!r}") for name, values in data.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listing = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise InvalidArgumentError(f"from_pydict: the columns must have one length, but {listing}.")
    return from_table(pa.table(columns), "from_pydict")


def from_pylist(data: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Make a DataFrame from rows; a key that a row lacks is null there.

    >>> ps.from_pylist([{"a": 1}, {"a": 2, "b": "x"}]).to_pydict()
    {'a': [1, 2], 'b': [None, 'x']}
    """
    rows = list(data)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidArgumentError(
                f"from_pylist takes a list of dicts, but row {number} is {row!r} of type {type(row).__name__}; "
                "from_items takes any values."
            )
    names = dict.fromkeys(name for row in rows for name in row)
    return from_pydict({name: [row.get(name) for row in rows] for name in names})


@refusing_unknown("from_items")
def from_items(items: Sequence[Any]) -> DataFrame:
    """Make a DataFrame from values: the keys of dicts become columns, other values the column ``item``.

    >>> ps.from_items([1, 2]).to_pydict()
    {'item': [1, 2]}
    """
    values = list(items)
    if values and all(isinstance(value, Mapping) for value in values):
        return from_pylist(values)
    return from_pydict({"item": values})


def from_arrow(data: Any) -> DataFrame:
    """Make a DataFrame from a pyarrow Table, RecordBatch or RecordBatchReader, or a list of them.

    A reader is read into memory. Other objects that export an Arrow stream (``__arrow_c_stream__``) work too.

    >>> import pyarrow as pa
    >>> ps.from_arrow(pa.table({"a": [1]})).to_pydict()
    {'a': [1]}
    """
    parts = list(data) if isinstance(data, list | tuple) else [data]
    tables = [_to_table(part) for part in parts]
    if not tables:
        raise InvalidArgumentError("from_arrow: the list is empty, so the columns are not known; give an empty Table.")
    try:
        return from_table(pa.concat_tables(tables), "from_arrow")
    except pa.ArrowInvalid as exc:
        raise InvalidArgumentError(f"from_arrow: the tables have different columns: {exc}") from exc


def from_pandas(data: pd.DataFrame | list[pd.DataFrame]) -> DataFrame:
    """Make a DataFrame from a pandas DataFrame, or a list of them; the index is ignored.

    >>> import pandas as pd
    >>> ps.from_pandas(pd.DataFrame({"a": [1]})).to_pydict()
    {'a': [1]}
    """
    frames: list[Any] = data if isinstance(data, list) else [data]
    if not frames or not all(hasattr(frame, "columns") and hasattr(frame, "items") for frame in frames):
        raise InvalidArgumentError(f"from_pandas takes a pandas DataFrame or a list; got {type(data).__name__}.")
    tables = []
    for frame in frames:
        columns = [to_arrow_array(column, None, what=f"column {name!r}") for name, column in frame.items()]
        tables.append(pa.Table.from_arrays(columns, list(map(str, frame.columns))))
        Schema.from_arrow(tables[-1].schema)  # raises if two columns have the same name
    return from_table(pa.concat_tables(tables, promote_options="permissive"), "from_pandas")


def from_polars(data: pl.DataFrame | pl.LazyFrame) -> DataFrame:
    """Make a DataFrame from a Polars DataFrame; a LazyFrame is collected.

    >>> import polars as pl
    >>> ps.from_polars(pl.DataFrame({"a": ["x"]})).to_pydict()
    {'a': ['x']}
    """
    frame: Any = data.collect() if hasattr(data, "collect") else data
    if not hasattr(frame, "to_arrow"):
        raise InvalidArgumentError(f"from_polars takes a Polars DataFrame; got {type(data).__name__}.")
    return from_table(frame.to_arrow(), "from_polars")


def from_numpy(data: np.ndarray[Any, Any] | Sequence[np.ndarray[Any, Any]] | Mapping[str, Any]) -> DataFrame:
    """Make a DataFrame from an ndarray, whose first dimension is the rows of the column ``data``.

    A list of arrays is concatenated; the keys of a dict of arrays become columns. Arrays with more than one dimension
    become a column of tensors.

    >>> import numpy as np
    >>> ps.from_numpy(np.arange(3)).to_pydict()
    {'data': [0, 1, 2]}
    """
    if isinstance(data, Mapping):
        return from_pydict(data)
    arrays = [data] if isinstance(data, np.ndarray) else list(data)
    if not arrays or not all(isinstance(array, np.ndarray) for array in arrays):
        raise InvalidArgumentError(f"from_numpy takes an ndarray or a list of them; got {type(data).__name__}.")
    tables = [pa.table({"data": to_arrow_array(array, None, what="column 'data'")}) for array in arrays]
    try:
        return from_table(pa.concat_tables(tables), "from_numpy")
    except pa.ArrowInvalid as exc:
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)
        raise InvalidArgumentError(f"from_numpy: the arrays differ in type or shape of rows: {shapes}.") from exc


@refusing_unknown("range")
def range(start: int, end: int | None = None, step: int = 1) -> DataFrame:
    """Make a DataFrame of the whole numbers from ``start`` to below ``end``, in the column ``id``.

    With one argument they start at 0. The numbers are made while they are read, so a range takes no memory.

    >>> ps.range(3).to_pydict(), ps.range(2, 10, 4).to_pydict()
    ({'id': [0, 1, 2]}, {'id': [2, 6]})
    """
    from penstock.io.memory_source import RangeSource

    for name, value in {"start": start, "end": 0 if end is None else end, "step": step}.items():
        if not hasattr(value, "__index__"):
            raise InvalidArgumentError(f"range: {name}={value!r} must be a whole number; got {type(value).__name__}.")
    if step == 0:
        raise InvalidArgumentError("range: step=0 never ends; give a step other than 0.")
    numbers = builtins.range(0, start, step) if end is None else builtins.range(start, end, step)
    return DataFrame(Scan(RangeSource(numbers)))


# --- inside -----------------------------------------------------------------------------------------------------------


def from_table(table: pa.Table, name: str, files: Sequence[DataFile] = ()) -> DataFrame:
    from penstock.io.memory_source import MemorySource

    return DataFrame(Scan(MemorySource.from_table(table, name, files)))


def _to_table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise InvalidArgumentError(
        f"from_arrow takes a pyarrow Table, RecordBatch, RecordBatchReader or a list; got {type(data).__name__}."
    )
