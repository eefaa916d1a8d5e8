"""Selected rows as a file, and their distributions."""

from __future__ import annotations

import io
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from penstock.config import config
from penstock.dashboard.row_pages.facets import Facet, facets_of, shape_of
from penstock.errors import InvalidArgumentError
from penstock.frame.read.memory import from_arrow

MAX_ROWS = 100_000  # of a file
MAX_SHAPE_ROWS = 200_000
MAX_SHAPES = 40
FORMATS = ("csv", "jsonl", "parquet")


def exported(rows: pa.Table, format: str) -> bytes:
    """Return rows as a file of a format. In CSV structs and lists are JSON; files of text have no images and bytes."""
    if format not in FORMATS:
        raise InvalidArgumentError(f"The dashboard exports to {', '.join(FORMATS)}.")
    if format == "parquet":
        file = io.BytesIO()
        pq.write_table(rows, file, compression="zstd")
        return file.getvalue()
    rows = rows.select([field.name for field in rows.schema if not _is_binary(field.type)])
    if format == "jsonl":
        return b"".join(_json(row) + b"\n" for row in rows.to_pylist())
    columns = {
        name: pa.array([None if value is None else _json(value).decode() for value in column.to_pylist()], pa.string())
        if pa.types.is_nested(column.type)
        else column
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    file = io.BytesIO()
    pa_csv.write_csv(pa.table(columns), file)
    return file.getvalue()


def _is_binary(kind: pa.DataType) -> bool:
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(is_bytes or isinstance(kind, pa.BaseExtensionType))


def _json(value: object) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)


def shapes(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the distribution of each column and field that has something to count."""
    names = list(facets_of(rows.schema))
    facets = [Facet.of(rows.schema, name) for name in names]
    values = [each.value.alias(f"value {number}") for number, each in enumerate(facets)]
    sizes = [each.size.alias(f"size {number}") for number, each in enumerate(facets)]
    with config(progress=False, dashboard=False):
        columns = from_arrow(rows).select(*values, *sizes).to_arrow().columns
    found = map(shape_of, names, columns, columns[len(names) :])
    return [shape for shape in found if shape is not None][:MAX_SHAPES]
