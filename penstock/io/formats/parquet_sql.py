"""Decide whether DuckDB may read Parquet files by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import ReadError
from penstock.io.data_file import DataFile
from penstock.protocols import DuckdbTable

LEAST_NBYTES = 4 * 2**20  # in the files; below it there is nothing to gain
MOST_NBYTES = 2**30  # some seconds of work: DuckDB reports no progress
MOST_FILES = 32  # whose footers are read first
PATTERN = frozenset("*?[]{}")  # a path with one of these is a pattern to DuckDB


def sql_table(
    files: Sequence[DataFile], schema: pa.Schema, schema_of: Callable[[DataFile], pa.Schema]
) -> DuckdbTable | None:
    """Return local files as a table of DuckDB.

    None if the files are very small or very large, if DuckDB might read other values than Arrow, or if a footer is
    broken.
    """
    if len(files) > MOST_FILES or not LEAST_NBYTES <= sum(file.size or 0 for file in files) <= MOST_NBYTES:
        return None
    if not len(schema) or not all(_has_equal_values(field.type) for field in schema):
        return None
    if not all(
        file.storage.is_local and not PATTERN & set(file.path) and _has(schema_of, file, schema) for file in files
    ):
        return None
    paths = tuple(file.path for file in files)
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return DuckdbTable(f"read_parquet([{listed}], hive_partitioning = false, filename = false)", paths)


def _has_equal_values(dtype: pa.DataType) -> bool:
    checks = (pt.is_signed_integer, pt.is_float32, pt.is_float64, pt.is_boolean, pt.is_string, pt.is_date32)
    return any(check(dtype) for check in checks)


def _has(schema_of: Callable[[DataFile], pa.Schema], file: DataFile, schema: pa.Schema) -> bool:
    """Return True if a file has these columns with these types, under names that differ by more than case."""
    try:
        found = schema_of(file)
    except ReadError:
        return False  # the task that reads the rows reports it
    types = dict(zip(found.names, found.types, strict=True))
    is_plain = len({name.casefold() for name in types}) == len(found)
    return is_plain and all(types.get(field.name) == field.type for field in schema)
