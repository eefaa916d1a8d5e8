"""Rows of a Parquet file by their numbers, without the rows between them: DuckDB skips pages, which Arrow cannot."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.io.formats.parquet_sql import PATTERN
from penstock.plan.duckdb_text import quoted
from penstock.relational.arrow import from_duckdb

NUMBER = "file_row_number"  # DuckDB's name for the number of a row
EXACT = (
    *(pt.is_integer, pt.is_float32, pt.is_float64, pt.is_boolean, pt.is_date32),
    *(pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary),
)


def parquet_rows(path: str, numbers: Sequence[int], schema: pa.Schema) -> pa.RecordBatch | None:
    """Return rows in the order of the file; None if the file is not here, or DuckDB might read other values."""
    names = {name.casefold() for name in schema.names}
    is_plain = len(names) == len(schema.names) and "" not in names and NUMBER not in names
    if "://" in path or PATTERN & set(path) or not path.endswith((".parquet", ".pq")) or not is_plain:
        return None
    if not all(_is_exact(field.type) for field in schema):
        return None
    import duckdb

    listed, file = ", ".join(map(quoted, schema.names)), "'" + path.replace("'", "''") + "'"
    source = f"read_parquet({file}, {NUMBER} = true, hive_partitioning = false, filename = false)"
    wanted = ", ".join(map(str, numbers))
    try:
        found = (
            _database().cursor().sql(f"select {listed} from {source} where {NUMBER} in ({wanted}) order by {NUMBER}")
        )
        (batch,) = found.to_arrow_table().combine_chunks().to_batches()
        return from_duckdb(batch, schema) if batch.num_rows == len(numbers) else None
    except (duckdb.Error, pa.ArrowException, ValueError):  # it has other columns, or partitions of a folder
        return None


@functools.cache
def _database() -> Any:
    import duckdb

    return duckdb.connect(":memory:", config={"autoinstall_known_extensions": False})


def _is_exact(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _is_exact(kind.storage_type)
    if pt.is_struct(kind):
        return kind.num_fields > 0 and all(_is_exact(field.type) for field in kind)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return _is_exact(kind.value_type)
    return any(check(kind) for check in EXACT)
