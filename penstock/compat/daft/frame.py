"""``DataFrame`` with the parameters of Daft's verbs. ``penstock.DataFrame`` does the work."""

# mypy: disable-error-code="override"
# Daft gives some verbs other parameters; users of one class never hold the other.

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TextIO

import pyarrow as pa

from penstock.compat.daft.daft_types import DaftSchema
from penstock.compat.daft.io import storage_options
from penstock.compat.daft.run_reports import changed_files, delta_files, iceberg_files, metrics_table, written_files
from penstock.compat.daft.star_aggregates import DaftGroups, of_each_column
from penstock.compat.remedies import refused_name
from penstock.compat.translation import refusal, translated
from penstock.errors import InvalidArgumentError, WriteError, load_extra
from penstock.expr.column import col
from penstock.frame.dataframe import DataFrame
from penstock.frame.read.memory import from_arrow
from penstock.frame.results import SHOWN_ROWS
from penstock.io.tables.deltalake import delta_errors, write_delta
from penstock.storage.storage_options import library_options, secrets_of
from penstock.types import Series


def _verb(name: str, **translation: Any) -> Callable[..., Any]:
    return translated(getattr(DataFrame, name), f"DataFrame.{name}", **translation)


def _writer(name: str) -> Callable[..., Any]:
    """Return a writer like Daft's: it appends unless the mode says otherwise, and returns the paths and their
    partitions."""
    write = _verb(
        name,
        renamed={"root_dir": "path", "write_mode": "mode", "io_config": "storage_options"},
        values={"io_config": storage_options},
        defaults={"mode": "append"},
    )

    @functools.wraps(write)
    def call(rows: DaftDataFrame, root_dir: Any, **options: Any) -> DaftDataFrame:
        written = write(rows, root_dir, **options)
        files = written_files(written.to_pydict()["path"], rows, options.get("partition_cols"))
        return _made(files, written)

    return call


def _made(table: pa.Table, written: DataFrame) -> DaftDataFrame:
    """Return a DataFrame of these rows with the statistics and errors of a write."""
    made = DaftDataFrame(from_arrow(table)._plan)
    made._stats, made._errors, made._preview = written._stats, written._errors, table.slice(0, SHOWN_ROWS)
    return made


_write_csv, _write_parquet = _writer("write_csv"), _writer("write_parquet")
_write_sql = _verb("write_sql", renamed={"write_mode": "mode"}, defaults={"mode": "append"})


def _with_maps(table: pa.Table, maps_as_pydicts: str | None) -> dict[str, list[Any]]:
    """Return columns; maps are pairs of keys and values, or dicts if the option says so."""
    if maps_as_pydicts not in (None, "lossy", "strict"):
        raise refusal(f"maps_as_pydicts={maps_as_pydicts!r}", "use 'lossy' or 'strict'")
    return {
        name: column.to_pylist(maps_as_pydicts=maps_as_pydicts)
        if pa.types.is_map(column.type)
        else Series(column).to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


class DaftDataFrame(DataFrame):
    """A DataFrame that takes Daft's parameters; ``penstock.compat.daft.DataFrame``."""

    explode, to_pandas, write_json = _verb("explode"), _verb("to_pandas"), _writer("write_json")
    iter_rows = _verb("iter_rows", ignored=("results_buffer_size",))
    iter_partitions = _verb("iter_partitions", ignored=("results_buffer_size",))
    join = _verb("join", ignored=("strategy",))
    with_column = _verb("with_column", renamed={"column_name": "name"})
    with_columns_renamed = _verb("rename_columns", renamed={"cols_map": "names"})
    agg_list, agg_set, agg_concat = DataFrame.list_agg, DataFrame.list_agg_distinct, DataFrame.string_agg
    column_names = DataFrame.columns
    write_lance = _verb("write_lance", renamed={"io_config": "storage_options"}, values={"io_config": storage_options})

    def collect(self, num_preview_rows: int | None = None) -> Self:
        return super().collect()

    def explain(
        self, show_all: bool = False, format: str = "ascii", simple: bool = False, file: TextIO | None = None
    ) -> None:
        """Print all plans, whatever ``show_all`` and ``simple`` ask for; never run the query."""
        if format != "ascii":
            raise refusal(f"explain(format={format!r})", "use 'ascii'")
        super().explain(file=file)

    def show(
        self, n: int = 8, *, columns: Any = None, verbose: bool = False, align: str = "left", **options: Any
    ) -> None:
        """Print the first rows; ``verbose`` and ``align`` change nothing."""
        shown = self if columns is None else self.select(*columns)
        DataFrame.show(shown, n, **options)

    def repartition(self, num: int | None, *partition_by: Any) -> Self:
        return DataFrame.repartition(self, num or 1, *partition_by)

    def to_pydict(self, maps_as_pydicts: str | None = None) -> dict[str, list[Any]]:
        return _with_maps(self.to_arrow(), maps_as_pydicts)

    def to_pylist(self, maps_as_pydicts: str | None = None) -> list[dict[str, Any]]:
        table = self.to_arrow()
        columns = _with_maps(table, maps_as_pydicts).values()
        return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]

    def write_csv(self, root_dir: str, *, escape: str | None = None, **options: Any) -> Any:
        """Write files; a quote within a text is doubled whatever ``escape`` says, as in Daft itself."""
        options = {name: value for name, value in options.items() if value is not None}  # Daft's defaults are None
        return _write_csv(self, root_dir, **options)

    def write_parquet(self, root_dir: str, *args: Any, **options: Any) -> Any:
        if args:  # Daft has the compression second, then the mode
            options |= dict(zip(("compression", "write_mode"), args, strict=False))
        return _write_parquet(self, root_dir, **options)

    def write_sql(self, table_name: str, conn: Any, write_mode: str = "append", **options: Any) -> Any:
        return _write_sql(self, table_name, conn, write_mode={"fail": "create"}.get(write_mode, write_mode), **options)

    def write_deltalake(
        self, table: Any, *, mode: str = "append", partition_cols: list[str] | None = None, io_config: Any = None,
        schema_mode: str | None = None, storage_options: Mapping[str, Any] | None = None,
    ) -> DaftDataFrame:  # fmt: skip
        """Stream the rows into a Delta table by its own library, which commits them at once; return its new files."""
        library = load_extra("deltalake", "deltalake", "Writing Delta tables")
        options = dict(storage_options or {}) if io_config is None else io_config.storage_options()
        access = library_options(str(table), options)
        with delta_errors(str(table), secrets_of(options), WriteError):
            before = delta_files(library, table, access)
        write_delta(table, self.schema.to_arrow(), self.to_arrow_iter(), mode=mode, partition_cols=partition_cols,
                    schema_mode=schema_mode, storage_options=options)  # fmt: skip
        return _made(changed_files(before, delta_files(library, table, access)), self)

    def write_iceberg(self, table: Any, mode: str = "append", io_config: Any = None) -> DaftDataFrame:
        """Write the rows, which must fit in memory, into a table of pyiceberg; return its new files."""
        if io_config is not None or mode not in ("append", "overwrite"):
            raise refusal("write_iceberg(io_config=...) or another mode", "set it in the catalog of the table")
        before = iceberg_files(table)
        getattr(table, mode)(self.to_arrow())
        return _made(changed_files(before, iceberg_files(table)), self)

    def __getitem__(self, key: Any) -> Any:
        """Return columns, which Daft also finds by their number."""
        if isinstance(key, int) and not isinstance(key, bool) and -len(self.columns) <= key < len(self.columns):
            return col(self.columns[key])
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        raise refused_name("daft.DataFrame", name)

    @property
    def schema(self) -> DaftSchema:
        return DaftSchema(super().schema)

    @property
    def metrics(self) -> DaftDataFrame | None:
        """The stages of the last run with their figures; None for rows that no query made."""
        if self._stats is None and not self._is_in_memory:
            raise InvalidArgumentError("metrics are known after collect()")
        return None if self._stats is None else DaftDataFrame(from_arrow(metrics_table(self._stats))._plan)

    def agg(self, *aggregates: Any) -> Self:
        return super().agg(*of_each_column(aggregates, self.columns))

    def groupby(self, *keys: Any) -> DaftGroups:
        found = super().groupby(*keys)
        return DaftGroups(found._frame, found._keys)

    def to_arrow_iter(self, results_buffer_size: Any = None) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches while the query runs."""
        return DataFrame.iter_partitions(self)

    def to_torch_map_dataset(self, shard_strategy: Any = None) -> Any:
        if shard_strategy is not None:
            raise refusal("to_torch_map_dataset(shard_strategy=...)")
        return self.to_torch_map()

    def to_torch_iter_dataset(self, shard_strategy: Any = None) -> Any:
        if shard_strategy is not None:
            raise refusal("to_torch_iter_dataset(shard_strategy=...)")
        return self.to_torch_iterable()

    def num_partitions(self) -> int:
        """Return 1: a query has no partitions before it runs."""
        return 1
