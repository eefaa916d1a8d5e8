"""The verbs of ``Dataset`` that write it."""

# mypy: disable-error-code="override"
# Ray Data gives some verbs of DataFrame other parameters; users of one class never hold the other.

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from penstock.compat.ray.data.resource_options import PLACEMENT, RESOURCES, check_filesystem, check_placement, refuse_if
from penstock.compat.ray.data.result_verbs import DatasetResults
from penstock.compat.translation import translated
from penstock.errors import load_extra
from penstock.expr.column import col
from penstock.frame.dataframe import DataFrame

Target = str | os.PathLike[str]


def _writer(verb: str, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
    write = translated(
        function or getattr(DataFrame, verb),
        verb,
        renamed={"max_rows_per_file": "rows_per_file", "min_rows_per_file": "rows_per_file"},
        values={"mode": lambda mode: getattr(mode, "value", mode)},
        ignored=PLACEMENT | RESOURCES,
        defaults={"mode": "append"},
        returns=lambda _: None,
    )

    @functools.wraps(write)
    def write_local(
        self: DatasetWrites, path: Target, *args: Any, arrow_parquet_args_fn: Any = None, **options: Any
    ) -> None:  # fmt: skip
        check_filesystem(verb, options.pop("filesystem", None))
        least, most = (options.get(f"{bound}_rows_per_file") for bound in ("min", "max"))
        refuse_if(
            least and most and least > most, f"{verb}: min_rows_per_file={least} is above max_rows_per_file={most}"
        )
        options |= {} if arrow_parquet_args_fn is None else arrow_parquet_args_fn()
        write(self, os.fspath(path).removeprefix("local://"), *args, **options)

    return write_local


class DatasetWrites(DatasetResults):
    write_parquet = _writer("write_parquet")
    write_csv = _writer("write_csv")
    write_json = _writer("write_json")
    write_numpy = _writer("write_numpy")
    _write_images = _writer("write_images")

    def write_images(self, path: Target, column: str, file_format: str = "png", **options: Any) -> None:
        """Write the images of a column, or arrays of their pixels, one file each."""
        is_image = self.schema[column].dtype.is_image()
        images = self if is_image else self.with_column(column, col(column).cast("image"))
        images._write_images(path, column, file_format, **options)

    def write_lance(self, path: Target, *, mode: Any = "create", **options: Any) -> None:
        """Write a Lance dataset; other options, except those about placement, go to Lance's writer."""
        given = {name: value for name, value in options.items() if name not in PLACEMENT | RESOURCES}
        super().write_lance(os.fspath(path), mode=getattr(mode, "value", mode), **given)

    def write_delta(
        self, path: Target, *, mode: Any = "append", partition_by: list[str] | None = None, schema_mode: str = "merge",
        storage_options: Mapping[str, Any] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        check_placement("write_delta", options)
        ours = {"create": "error"}.get(name := getattr(mode, "value", mode), name)
        self.to_daft().write_deltalake(os.fspath(path), mode=ours, partition_cols=partition_by, schema_mode=schema_mode,
                                       storage_options=storage_options)  # fmt: skip

    def write_iceberg(
        self, table_identifier: str, catalog_kwargs: Mapping[str, Any] | None = None, *, mode: Any = "append",
        **options: Any,
    ) -> None:  # fmt: skip
        """Write the rows, which must fit in memory, into a table of the catalog that ``catalog_kwargs`` describe."""
        check_placement("write_iceberg", options)
        catalog = load_extra("pyiceberg.catalog", "iceberg", "write_iceberg").load_catalog(**(catalog_kwargs or {}))
        self.to_daft().write_iceberg(catalog.load_table(table_identifier), getattr(mode, "value", mode))

    def write_sql(self, sql: str, connection_factory: Callable[[], Any], **options: Any) -> None:
        """Run an insert statement with a placeholder for each column, in one transaction."""
        check_placement("write_sql", options)
        connection = connection_factory()
        try:
            for rows in DataFrame.iter_batches(self, 1024, "pylist"):
                connection.cursor().executemany(sql, [tuple(row.values()) for row in rows])
            connection.commit()
        finally:
            connection.close()
