"""DataFrames about a run, with the columns that Daft gives them: the files of a write, and ``df.metrics``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.expr.column import Expression
from penstock.frame.dataframe import DataFrame
from penstock.io.hive import partition_type, partition_values
from penstock.observe.stats import Stats

_FIGURE = pa.struct([("value", pa.float64()), ("unit", pa.string())])
_METRICS = pa.schema(
    [
        ("id", pa.uint64()), ("name", pa.string()), ("type", pa.string()), ("category", pa.string()),
        ("duration", pa.duration("ms")), ("stats", pa.map_(pa.string(), _FIGURE)),
    ]
)  # fmt: skip


def written_files(paths: Sequence[str], rows: DataFrame, partition_cols: Any) -> pa.Table:
    """Return the path of each file, and the values of ``partition_cols`` in it.

    They have the types of the columns; if only the query could tell these, the types that fit the values.
    """
    given = [partition_cols] if isinstance(partition_cols, str | Expression) else list(partition_cols or ())
    schema = rows.select(*given)._plan.schema if given else None
    folders = [partition_values(path) for path in paths]
    columns = {"path": pa.array(paths, pa.string())}
    for name in (each.name() if isinstance(each, Expression) else each for each in given):
        texts = [found[name] for found in folders]
        dtype = partition_type(texts) if schema is None else schema[name].dtype.arrow
        columns[name] = pa.array(texts, pa.string()).cast(dtype)
    return pa.table(columns)


Files = dict[str, tuple[int, int]]
"""The rows and bytes of the files of a table, by path."""


def delta_files(library: Any, table: Any, storage_options: Any) -> Files:
    """Return the files of a Delta table, none if it does not exist yet."""
    if not isinstance(table, library.DeltaTable):
        if not library.DeltaTable.is_deltatable(str(table), storage_options):
            return {}
        table = library.DeltaTable(str(table), storage_options=storage_options)
    return _by_path(pa.table(table.get_add_actions(flatten=True)), "path", "num_records", "size_bytes")


def iceberg_files(table: Any) -> Files:
    return _by_path(table.inspect.files(), "file_path", "record_count", "file_size_in_bytes")


def _by_path(files: pa.Table, *columns: str) -> Files:
    paths, rows, sizes = (files.column(name).to_pylist() for name in columns)
    return {path: (num_rows, size) for path, num_rows, size in zip(paths, rows, sizes, strict=True)}


def changed_files(before: Files, after: Files) -> pa.Table:
    """Return the files that a write added to a table, then the files that it removed.

    >>> changed_files({"old": (2, 80)}, {"new": (3, 90)}).to_pylist()[1]
    {'operation': 'DELETE', 'rows': 2, 'file_size': 80, 'file_name': 'old'}
    """
    added = [("ADD", *after[path], path) for path in after if path not in before]
    removed = [("DELETE", *before[path], path) for path in before if path not in after]
    return pa.Table.from_pylist(
        [
            {"operation": operation, "rows": rows, "file_size": size, "file_name": os.path.basename(path)}
            for operation, rows, size, path in added + removed
        ],
        pa.schema({"operation": pa.string(), "rows": pa.int64(), "file_size": pa.int64(), "file_name": pa.string()}),
    )


def metrics_table(stats: Stats) -> pa.Table:
    """Return a row for each stage of a run; the last one has the counters and gauges of functions too."""
    rows = []
    of_functions = {name: {"value": value, "unit": None} for name, value in {**stats.counters, **stats.gauges}.items()}
    for number, stage in enumerate(stats.stages):
        figures = {
            "duration": {"value": stage.busy_s * 1e6, "unit": "µs"},
            "rows.out": {"value": float(stage.num_rows), "unit": None},
            "bytes.out": {"value": float(stage.nbytes), "unit": "bytes"},
        }
        rows.append(
            {
                "id": number,
                "name": stage.stage,
                "type": stage.kind,
                "category": "Intermediate" if stage.inputs else "Source",
                "duration": round(stage.busy_s * 1e3),
                "stats": list({**figures, **(of_functions if stage is stats.stages[-1] else {})}.items()),
            }
        )
    return pa.Table.from_pylist(rows, _METRICS)
