"""``DataFrame`` with the parameters of Daft's verbs. The verbs themselves are those of ``penstock.DataFrame``."""

# mypy: disable-error-code="override"
# Daft gives some verbs other parameters; users of one class never hold the other.

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self, TextIO

import pyarrow as pa

from penstock.compat.daft.io import storage_options
from penstock.compat.translation import refusal, translated
from penstock.expr.column import col
from penstock.frame.dataframe import DataFrame


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


class DaftDataFrame(DataFrame):
    """A DataFrame that takes Daft's parameters; ``penstock.compat.daft.DataFrame``."""

    collect = _verb("collect", ignored=("num_preview_rows",))
    iter_partitions = _verb("iter_partitions", ignored=("results_buffer_size",))
    join = _verb("join", ignored=("strategy",))
    with_column = _verb("with_column", renamed={"column_name": "name"})
    with_columns_renamed = _verb("with_columns_renamed", renamed={"cols_map": "names"})
    write_parquet = _writer("write_parquet")
    write_csv = _writer("write_csv")
    write_json = _writer("write_json")
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
        if index_column is not None:
            raise refusal("explode(index_column=...)", "explode the list and a list of numbers together")
        kept = self
        for column in columns if ignore_empty_and_null else ():
            kept = kept.where((col(column) if isinstance(column, str) else column).list_length() > 0)
        return DataFrame.explode(kept, *columns)

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
