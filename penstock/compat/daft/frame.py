"""``DataFrame`` with the parameters of Daft's verbs. The verbs themselves are those of ``penstock.DataFrame``."""

# mypy: disable-error-code="override"
# Daft gives some verbs other parameters; users of one class never hold the other.

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self, TextIO

import pyarrow as pa

from penstock.compat.daft.io import storage_options
from penstock.compat.daft.schema import DaftSchema
from penstock.compat.translation import refusal, translated
from penstock.errors import load_extra
from penstock.expr.column import col
from penstock.frame.dataframe import DataFrame
from penstock.functions import seq, strftime
from penstock.storage.options import library_options

_REMEDIES = {
    "skip_existing": "use write_parquet(..., resume=True)",
    "skipped_corrupt_files": "use errors()",
    "to_torch_dataloader": "use torch.utils.data.DataLoader(df.to_torch_iterable())",
    "write_clickhouse": "use write_sql() or write_sink()",
}


def _verb(name: str, **translation: Any) -> Callable[..., Any]:
    return translated(getattr(DataFrame, name), f"DataFrame.{name}", **translation)


def _writer(name: str) -> Callable[..., Any]:
    """Daft adds to what is in the folder unless the mode says otherwise."""
    return _verb(
        name,
        renamed={"root_dir": "path", "write_mode": "mode", "io_config": "storage_options"},
        values={"io_config": storage_options},
        defaults={"mode": "append"},
    )


_write_csv, _write_json = _writer("write_csv"), _writer("write_json")


class DaftDataFrame(DataFrame):
    """A DataFrame that takes Daft's parameters; ``penstock.compat.daft.DataFrame``."""

    collect = _verb("collect", ignored=("num_preview_rows",))
    iter_partitions = _verb("iter_partitions", ignored=("results_buffer_size",))
    join = _verb("join", ignored=("strategy",))
    with_column = _verb("with_column", renamed={"column_name": "name"})
    with_columns_renamed = _verb("with_columns_renamed", renamed={"cols_map": "names"})
    write_parquet = _writer("write_parquet")
    write_sql = _verb("write_sql", renamed={"write_mode": "mode"}, defaults={"mode": "append"})
    write_lance = _verb("write_lance", renamed={"io_config": "storage_options"}, values={"io_config": storage_options})

    def explain(
        self, show_all: bool = False, format: str = "ascii", simple: bool = False, file: TextIO | None = None
    ) -> None:
        """Print all plans, whatever ``show_all`` and ``simple`` ask for; never run the query."""
        if format not in ("ascii", "mermaid"):
            raise refusal(f"explain(format={format!r})", "use 'ascii' or 'mermaid'")
        super().explain(format="mermaid" if format == "mermaid" else "text", file=file)

    def show(
        self, n: int = 8, *, columns: Any = None, verbose: bool = False, align: str = "left", **options: Any
    ) -> None:
        """Print the first rows; ``verbose`` and ``align`` change nothing."""
        shown = self if columns is None else self.select(*columns)
        DataFrame.show(shown, n, **options)

    def iter_rows(self, results_buffer_size: Any = None, column_format: str = "python") -> Iterator[dict[str, Any]]:
        if column_format != "python":
            raise refusal(f"iter_rows(column_format={column_format!r})", "use to_arrow_iter()")
        return super().iter_rows()

    def explode(self, *columns: Any, index_column: str | None = None, ignore_empty_and_null: bool = False) -> Self:
        lists = [col(column) if isinstance(column, str) else column for column in columns]
        kept = self
        for each in lists if ignore_empty_and_null else ():
            kept = kept.where(each.list_length() > 0)
        if index_column is not None:
            kept = kept.with_column(index_column, seq(lists[0].list_length()))
            lists.append(col(index_column))
        return DataFrame.explode(kept, *lists)

    def write_csv(
        self, root_dir: str, *, date_format: str | None = None, timestamp_format: str | None = None, **options: Any
    ) -> Any:
        return _write_csv(self._with_times_as_text(date_format, timestamp_format), root_dir, **options)

    def write_json(
        self, root_dir: str, *, date_format: str | None = None, timestamp_format: str | None = None, **options: Any
    ) -> Any:
        return _write_json(self._with_times_as_text(date_format, timestamp_format), root_dir, **options)

    def _with_times_as_text(self, date_format: str | None, timestamp_format: str | None) -> Self:
        texts = {}
        for field in self.schema if date_format or timestamp_format else ():
            text = date_format if field.dtype.is_date() else timestamp_format if field.dtype.is_timestamp() else None
            if text is not None:
                texts[field.name] = strftime(col(field.name), text)
        return self.with_columns(texts) if texts else self

    def write_deltalake(
        self, table: Any, *, mode: str = "append", partition_cols: list[str] | None = None, io_config: Any = None,
        schema_mode: str | None = None,
    ) -> None:  # fmt: skip
        """Stream the rows into a Delta table by its own library, which commits them at once."""
        library = load_extra("deltalake", "deltalake", "Writing Delta tables")
        options = {} if io_config is None else storage_options(io_config)
        rows = pa.RecordBatchReader.from_batches(self.schema.to_arrow(), self.to_arrow_iter())
        library.write_deltalake(table, rows, mode=mode, partition_by=partition_cols, schema_mode=schema_mode,
                                storage_options=library_options(str(table), options))  # fmt: skip

    def write_iceberg(self, table: Any, mode: str = "append", io_config: Any = None) -> None:
        """Write the rows, which must fit in memory, into a table of pyiceberg."""
        if io_config is not None or mode not in ("append", "overwrite"):
            raise refusal("write_iceberg(io_config=...) or another mode", "set it in the catalog of the table")
        getattr(table, mode)(self.to_arrow())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        remedy = _REMEDIES.get(name, "docs/MIGRATING_FROM_DAFT.md lists all names")
        raise AttributeError(f"Penstock cannot honour DataFrame.{name}; {remedy}.")

    @property
    def schema(self) -> DaftSchema:
        return DaftSchema(super().schema)

    @property
    def metrics(self) -> Any:
        """The statistics of the last run."""
        return self.stats()

    def to_arrow_iter(self, results_buffer_size: Any = None) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches while the query runs."""
        return DataFrame.iter_partitions(self)

    def to_pandas(self, coerce_temporal_nanoseconds: bool = False) -> Any:
        if coerce_temporal_nanoseconds:
            raise refusal("to_pandas(coerce_temporal_nanoseconds=True)", "cast the columns to timestamp[ns]")
        return super().to_pandas()

    def to_torch_map_dataset(self, shard_strategy: Any = None) -> Any:
        if shard_strategy is not None:
            raise refusal("to_torch_map_dataset(shard_strategy=...)")
        return self.to_torch_map()

    def to_torch_iter_dataset(self, shard_strategy: Any = None) -> Any:
        if shard_strategy is not None:
            raise refusal("to_torch_iter_dataset(shard_strategy=...)")
        return self.to_torch_iterable()

    def to_ray_dataset(self) -> Any:
        """Run the query and return a dataset of the real Ray Data."""
        import ray.data

        return ray.data.from_arrow(self.to_arrow())

    def num_partitions(self) -> int:
        """Return 1: a query has no partitions before it runs."""
        return 1
