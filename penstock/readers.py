"""Make a DataFrame: from files, from data in memory, or from a source of your own.

Each format is loaded when it is first read, which keeps ``import penstock`` quick.
"""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pyarrow as pa

from penstock.dataframe import DataFrame
from penstock.errors import InvalidArgumentError
from penstock.expr.column import col
from penstock.plan.nodes import Scan
from penstock.protocols import Source
from penstock.types import DataType, to_arrow_array
from penstock.udf.options import check_known

if TYPE_CHECKING:
    import pandas as pd

    from penstock.io.file_format import FileFormat
    from penstock.io.files import Paths

StorageOptions = Mapping[str, Any] | None
Reader = TypeVar("Reader", bound=Callable[..., Any])


def _refusing_unknown(reader: Reader) -> Reader:
    """Make a reader say which options it has when it is given one that it has not."""
    known = list(inspect.signature(reader).parameters)

    @functools.wraps(reader)
    def read(*args: Any, **options: Any) -> Any:
        check_known(reader.__name__, options, known)
        return reader(*args, **options)

    return cast(Reader, read)


# --- files ------------------------------------------------------------------------------------------------------------


@_refusing_unknown
def read_parquet(
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: Mapping[str, Any] | None = None,
    infer_schema: bool = True,
    file_path_column: str | None = None,
    hive_partitioning: bool = False,
    ignore_corrupt_files: bool = False,
    storage_options: StorageOptions = None,
) -> DataFrame:
    """Read Parquet files: one path, a list, a pattern such as ``data/**/*.parquet``, or a folder with all below it.

    The first file's columns rule: one that a later file lacks is null there. A column has the type that holds its
    values in the first 32 files; those of later ones are cast. ``schema`` overrides types and adds columns; with
    ``infer_schema=False`` it rules alone. ``columns`` reads only those named.
    ``file_path_column`` adds the path of each row's file, ``hive_partitioning`` the values in ``key=value`` folders.
    ``ignore_corrupt_files`` skips files that cannot be parsed, with a warning. ``storage_options`` say how to reach
    object stores: ``key``, ``secret``, ``token``, ``endpoint_url``, ``region``, ``anon`` (docs/FILES.md).

    >>> path = getfixture("tmp_path") / "numbers"
    >>> _ = ps.from_pydict({"a": [1, 2]}).write_parquet(str(path))
    >>> ps.read_parquet(path).to_pydict()
    {'a': [1, 2]}
    """
    from penstock.io.parquet import ParquetFormat

    return _read_files(
        ParquetFormat(),
        path,
        columns=columns,
        schema=schema,
        infer_schema=infer_schema,
        file_path_column=file_path_column,
        hive_partitioning=hive_partitioning,
        ignore_corrupt_files=ignore_corrupt_files,
        storage_options=storage_options,
    )


@_refusing_unknown
def read_csv(
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: Mapping[str, Any] | None = None,
    infer_schema: bool = True,
    has_headers: bool = True,
    delimiter: str | None = None,
    double_quote: bool = True,
    quote: str | None = None,
    escape_char: str | None = None,
    comment: str | None = None,
    null_values: Sequence[str] = ("",),
    allow_variable_columns: bool = False,
    file_path_column: str | None = None,
    hive_partitioning: bool = False,
    ignore_corrupt_files: bool = False,
    storage_options: StorageOptions = None,
) -> DataFrame:
    r"""Read CSV files, plain or compressed (``.gz``, ``.bz2``, ``.zst``, ``.lz4``). Paths are as in ``read_parquet``.

    Types are inferred from the beginning of the first file and then hold for all. Without headers the columns are
    ``column_1``, ``column_2`` and so on, or with ``infer_schema=False`` the names in ``schema``, in order. Fields that
    equal one of ``null_values`` and are not quoted are null. ``allow_variable_columns`` fills up short rows with nulls
    and cuts long ones; without it they are an error. The other options are as in ``read_parquet``.

    >>> path = getfixture("tmp_path") / "numbers.csv"
    >>> _ = path.write_text("a,b\n1,x\n2,\n")
    >>> ps.read_csv(path).to_pydict()
    {'a': [1, 2], 'b': ['x', None]}
    """
    from penstock.io.csv import CsvFormat

    format = CsvFormat(
        delimiter=delimiter or ",",
        has_headers=has_headers,
        quote=quote or '"',
        double_quote=double_quote,
        escape_char=escape_char,
        comment=comment,
        null_values=tuple(null_values),
        allow_variable_columns=allow_variable_columns,
        column_names=None if has_headers or infer_schema else tuple(schema or ()),
    )
    return _read_files(
        format,
        path,
        columns=columns,
        schema=schema,
        infer_schema=infer_schema,
        file_path_column=file_path_column,
        hive_partitioning=hive_partitioning,
        ignore_corrupt_files=ignore_corrupt_files,
        storage_options=storage_options,
    )


@_refusing_unknown
def read_json(
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: Mapping[str, Any] | None = None,
    infer_schema: bool = True,
    file_path_column: str | None = None,
    hive_partitioning: bool = False,
    ignore_corrupt_files: bool = False,
    storage_options: StorageOptions = None,
) -> DataFrame:
    r"""Read JSON files: one object a line, or one array of objects; which of them, the first character tells.

    Types are inferred from the beginning of the first file; text stays text even where it looks like a date. Compressed
    files are unpacked. The options are as in ``read_parquet``.

    >>> path = getfixture("tmp_path") / "numbers.jsonl"
    >>> _ = path.write_text('{"a": 1}\n{"a": 2, "b": [3]}\n')
    >>> ps.read_json(path).to_pydict()
    {'a': [1, 2], 'b': [None, [3]]}
    """
    from penstock.io.json import JsonFormat

    return _read_files(
        JsonFormat(),
        path,
        columns=columns,
        schema=schema,
        infer_schema=infer_schema,
        file_path_column=file_path_column,
        hive_partitioning=hive_partitioning,
        ignore_corrupt_files=ignore_corrupt_files,
        storage_options=storage_options,
    )


@_refusing_unknown
def read_text(
    path: Paths,
    *,
    encoding: str = "utf-8",
    skip_blank_lines: bool = True,
    whole_text: bool = False,
    file_path_column: str | None = None,
    hive_partitioning: bool = False,
    ignore_corrupt_files: bool = False,
    storage_options: StorageOptions = None,
) -> DataFrame:
    r"""Read text files into the column ``text``: one row a line, or one row a file with ``whole_text``.

    >>> path = getfixture("tmp_path") / "poem.txt"
    >>> _ = path.write_text("Roses are red,\n\nviolets are blue.\n")
    >>> ps.read_text(path).to_pydict()
    {'text': ['Roses are red,', 'violets are blue.']}
    """
    from penstock.io.text import TextFormat

    return _read_files(
        TextFormat(encoding, skip_blank_lines, whole_text),
        path,
        file_path_column=file_path_column,
        hive_partitioning=hive_partitioning,
        ignore_corrupt_files=ignore_corrupt_files,
        storage_options=storage_options,
    )


@_refusing_unknown
def from_glob_path(path: Paths, *, storage_options: StorageOptions = None) -> DataFrame:
    """List files: the columns are ``path``, ``size`` in bytes, and ``num_rows``, which is null.

    >>> folder = getfixture("tmp_path")
    >>> _ = (folder / "a.txt").write_text("hello")
    >>> ps.from_glob_path(folder / "*.txt").select("size", "num_rows").to_pydict()
    {'size': [5], 'num_rows': [None]}
    """
    from penstock.io.files import find_files

    files = find_files(path, storage_options=storage_options, descend=False)
    columns = [
        pa.array([file.url for file in files], pa.string()),
        pa.array([file.size for file in files], pa.int64()),
        pa.nulls(len(files), pa.int64()),
    ]
    return _from_table(pa.table(columns, names=["path", "size", "num_rows"]), "from_glob_path")


@_refusing_unknown
def from_files(path: Paths, *, storage_options: StorageOptions = None) -> DataFrame:
    """List files as ``ps.File`` values in the column ``file``: one path, a list, a pattern or a folder. None is read.

    ``storage_options`` are remembered for the buckets of these files, so that functions can read them.

    >>> folder = getfixture("tmp_path")
    >>> _ = (folder / "a.txt").write_text("hello")
    >>> ps.from_files(folder / "*.txt").select(ps.col("file").file_size()).to_pydict()
    {'file': [5]}
    """
    from penstock.io.files import find_files
    from penstock.storage.remembered import remember

    urls = [file.url for file in find_files(path, storage_options=storage_options, descend=False)]
    remember(urls, storage_options)
    files = to_arrow_array(urls, DataType.file(), what="column 'file'")
    return _from_table(pa.table([files], names=["file"]), "from_files")


@_refusing_unknown
def read_binary_files(
    path: Paths,
    *,
    include_paths: bool = False,
    file_path_column: str | None = None,
    max_connections: int = 32,
    on_error: str = "raise",
    storage_options: StorageOptions = None,
) -> DataFrame:
    """Read whole files into the column ``bytes``, a row a file; paths are as in ``read_parquet``.

    ``include_paths`` adds the column ``path``, ``file_path_column`` one of another name. Files are read as ``download``
    reads them: ``max_connections`` at once, and with ``on_error="null"`` one that cannot be read is null.

    >>> folder = getfixture("tmp_path")
    >>> _ = (folder / "a.bin").write_bytes(b"hello")
    >>> ps.read_binary_files(folder).to_pydict()
    {'bytes': [b'hello']}
    """
    from penstock.functions.url import download
    from penstock.io.files import find_files

    name = file_path_column or "path"
    if name == "bytes":
        raise InvalidArgumentError("file_path_column='bytes' is the column of contents; choose another name.")
    urls = [file.url for file in find_files(path, storage_options=storage_options)]
    listing = _from_table(pa.table([pa.array(urls, pa.string())], names=[name]), "read_binary_files")
    content = download(col(name), max_connections, on_error, allow="any", storage_options=storage_options)
    columns = [content.alias("bytes"), *([col(name)] if include_paths or file_path_column else [])]
    return listing.select(*columns)


def read_source(source: Source) -> DataFrame:
    """Read from a source of your own: any object with the methods of ``ps.Source``.

    >>> import pyarrow as pa
    >>> from penstock.io.memory import MemorySource
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
    """Make a DataFrame from columns: lists, ndarrays, Arrow arrays, tensors or Series, all of one length.

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
    return _from_table(pa.table(columns), "from_pydict")


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


def from_items(items: Sequence[Any]) -> DataFrame:
    """Make a DataFrame from values: dicts give their keys as columns, anything else the column ``item``.

    >>> ps.from_items([1, 2]).to_pydict()
    {'item': [1, 2]}
    """
    values = list(items)
    if values and all(isinstance(value, Mapping) for value in values):
        return from_pylist(values)
    return from_pydict({"item": values})


def from_arrow(data: Any) -> DataFrame:
    """Make a DataFrame from a pyarrow Table, RecordBatch or RecordBatchReader, or a list of them.

    A reader is read into memory. Anything else that exports an Arrow stream (``__arrow_c_stream__``) works as well.

    >>> import pyarrow as pa
    >>> ps.from_arrow(pa.table({"a": [1]})).to_pydict()
    {'a': [1]}
    """
    parts = list(data) if isinstance(data, list | tuple) else [data]
    tables = [_to_table(part) for part in parts]
    if not tables:
        raise InvalidArgumentError("from_arrow: the list is empty, so the columns are not known; give an empty Table.")
    try:
        return _from_table(pa.concat_tables(tables), "from_arrow")
    except pa.ArrowInvalid as exc:
        raise InvalidArgumentError(f"from_arrow: the tables have different columns: {exc}") from exc


def from_pandas(data: pd.DataFrame | list[pd.DataFrame]) -> DataFrame:
    """Make a DataFrame from one of pandas, or a list of them; the index is left out.

    >>> import pandas as pd
    >>> ps.from_pandas(pd.DataFrame({"a": [1]})).to_pydict()
    {'a': [1]}
    """
    frames: list[Any] = data if isinstance(data, list) else [data]
    if not frames or not all(hasattr(frame, "columns") and hasattr(frame, "items") for frame in frames):
        raise InvalidArgumentError(f"from_pandas takes a pandas DataFrame or a list; got {type(data).__name__}.")
    tables = [
        pa.table({str(name): to_arrow_array(column, None, what=f"column {name!r}") for name, column in frame.items()})
        for frame in frames
    ]
    return _from_table(pa.concat_tables(tables, promote_options="permissive"), "from_pandas")


def from_numpy(data: np.ndarray[Any, Any] | Sequence[np.ndarray[Any, Any]] | Mapping[str, Any]) -> DataFrame:
    """Make a DataFrame from an ndarray, whose first dimension is the rows of the column ``data``.

    A list of arrays is laid end to end; a dict of arrays gives its keys as columns. More than one dimension makes a
    column of tensors.

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
        return _from_table(pa.concat_tables(tables), "from_numpy")
    except pa.ArrowInvalid as exc:
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)
        raise InvalidArgumentError(f"from_numpy: the arrays differ in type or shape of rows: {shapes}.") from exc


def range(start: int, end: int | None = None, step: int = 1) -> DataFrame:
    """Make a DataFrame of the whole numbers from ``start`` to below ``end``, in the column ``id``.

    With one argument they begin at 0. The numbers are made as they are read, so a range of any length takes no memory.

    >>> ps.range(3).to_pydict(), ps.range(2, 10, 4).to_pydict()
    ({'id': [0, 1, 2]}, {'id': [2, 6]})
    """
    from penstock.io.ranges import RangeSource

    for name, value in {"start": start, "end": 0 if end is None else end, "step": step}.items():
        if not hasattr(value, "__index__"):
            raise InvalidArgumentError(f"range: {name}={value!r} must be a whole number; got {type(value).__name__}.")
    if step == 0:
        raise InvalidArgumentError("range: step=0 never ends; give a step other than 0.")
    numbers = builtins.range(0, start, step) if end is None else builtins.range(start, end, step)
    return DataFrame(Scan(RangeSource(numbers)))


# --- inside -----------------------------------------------------------------------------------------------------------


def _read_files(format: FileFormat, path: Paths, **options: Any) -> DataFrame:
    from penstock.io.file_source import FileSource

    return DataFrame(Scan(FileSource(format, path, **options)))


def _from_table(table: pa.Table, name: str) -> DataFrame:
    from penstock.io.memory import MemorySource

    return DataFrame(Scan(MemorySource.from_table(table, name)))


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
