"""Verbs that run the query and write its rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, get_args

import pyarrow as pa

from penstock.errors import InvalidArgumentError, check_choice
from penstock.events.tracebacks import TrimmedErrors
from penstock.expr.column import Expression, col
from penstock.frame.lazy_table import LazyTable, query_subscribers
from penstock.frame.option_lines import (
    WRITING,
    FileWriting,
    JobOptions,
    StagedJobOptions,
    TableWriting,
    WriteMode,
)
from penstock.frame.projection import projected, with_added
from penstock.frame.results import SHOWN_ROWS
from penstock.plan import nodes
from penstock.plan.nodes import check_columns
from penstock.protocols import Sink
from penstock.runners import write
from penstock.types import unified
from penstock.udf.options import options_of, refusing_unknown

if TYPE_CHECKING:
    from penstock.io.staged_file import FileEncoding
    from penstock.jobs.job_run import Resume
    from penstock.observe.closing_line import Destination
    from penstock.observe.on_finish import OnFinish


class LanceOptions(TypedDict, total=False):
    """Options of Lance's writer."""

    max_rows_per_file: int
    max_rows_per_group: int
    max_bytes_per_file: int
    data_storage_version: str
    enable_stable_row_ids: bool


class WriteVerbs(LazyTable):
    """Verbs that write the rows.

    ``resume=True`` makes a write a job: killed at any instant and run again, it continues, and writes every row exactly
    once. See docs/guides/jobs.md, also for ``"force"`` and ``"errors"``. ``budget`` is the maximum cost of one run in
    dollars; such a write is a job too. ``on_finish`` is a function or the URL of a webhook: Penstock tells it how the
    write ended.
    """

    @refusing_unknown("write_parquet", WRITING, TableWriting)
    def write_parquet(self, path: str, *, compression: str = "snappy", **options: Unpack[TableWriting]) -> Self:
        """Run the query and write its rows as Parquet files into a folder; returns the list of files.

        Nothing is visible in the folder before all is written.
        """
        from penstock.io.formats.parquet import ParquetEncoding

        return self._write_files(ParquetEncoding(compression), path, **options)

    @refusing_unknown("write_csv", WRITING, TableWriting)
    def write_csv(
        self,
        path: str,
        *,
        compression: str | None = None,
        delimiter: str = ",",
        header: bool = True,
        **options: Unpack[TableWriting],
    ) -> Self:
        """Run the query and write its rows as CSV files into a folder, with the options of ``write_parquet``.

        ``header`` writes the names of the columns as the first line of each file.
        """
        from penstock.io.formats.csv import CsvEncoding

        return self._write_files(CsvEncoding(compression, delimiter, header), path, **options)

    @refusing_unknown("write_json", WRITING, TableWriting)
    def write_json(self, path: str, *, compression: str | None = None, **options: Unpack[TableWriting]) -> Self:
        """Run the query and write its rows as JSON lines into a folder, with the options of ``write_parquet``."""
        from penstock.io.formats.json import JsonEncoding

        return self._write_files(JsonEncoding(compression), path, **options)

    @refusing_unknown("write_numpy", WRITING, FileWriting)
    def write_numpy(self, path: str, *, column: str, **options: Unpack[FileWriting]) -> Self:
        """Run the query and write a column as .npy files into a folder: numbers, or arrays with equal shapes.

        The other options are the same as in ``write_parquet``.
        """
        from penstock.io.formats.numpy import COLUMN, NumpyEncoding

        chosen = self._with(projected(self._plan, [col(column).alias(COLUMN)._node]))
        return chosen._write_files(NumpyEncoding(column), path, **options)

    @refusing_unknown("write_sql", WRITING, StagedJobOptions)
    def write_sql(
        self,
        table_name: str,
        conn: str | Callable[[], Any],
        *,
        mode: WriteMode = "create",
        **job: Unpack[StagedJobOptions],
    ) -> Self:
        """Run the query and write its rows as a table of a database; ``conn`` is as in ``read_sql``.

        All rows become visible in one transaction, at the end. If the table exists, ``mode`` decides: raise an error
        (``create``), add to it (``append``), or replace it with its indexes and grants (``overwrite``).
        """
        from penstock.io.tables.sql.sink import sql_sink

        sink = sql_sink(table_name, conn, mode=mode, schema=self._schema_of_values())
        return self.write_sink(sink, **job)

    def write_lance(
        self,
        uri: str | os.PathLike[str],
        *,
        mode: WriteMode = "create",
        storage_options: Mapping[str, Any] | None = None,
        resume: Resume = False,
        budget: float | None = None,
        job_dir: str | os.PathLike[str] | None = None,
        on_finish: OnFinish | None = None,
        **options: Unpack[LanceOptions],
    ) -> Self:
        """Run the query and write its rows as a Lance dataset, in one commit; returns the new content.

        ``mode`` is as in ``write_parquet``; the previous content stays as an earlier version. Other options, such as
        ``max_rows_per_file`` and ``data_storage_version``, go to Lance's writer.
        """
        from penstock.io.tables.lance import lance_sink

        sink = lance_sink(uri, mode=mode, schema=self._schema_of_values(), storage_options=storage_options, **options)
        return self.write_sink(sink, resume=resume, budget=budget, job_dir=job_dir, on_finish=on_finish)

    @refusing_unknown("write_deltalake", WRITING)
    def write_deltalake(
        self,
        table: Any,
        *,
        mode: WriteMode = "create",
        partition_cols: Sequence[str] | None = None,
        schema_mode: Literal["merge", "overwrite"] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Run the query and write its rows into a Delta table, in one commit; returns the list of its new files.

        ``table`` is a path or a ``deltalake.DeltaTable``. ``mode`` is as in ``write_parquet``; ``schema_mode`` lets the
        rows add columns (``merge``) or replace them.
        """
        from penstock.io.tables.deltalake import write_delta

        check_choice("mode", mode, get_args(WriteMode))
        paths = write_delta(
            table,
            self._schema_of_values().to_arrow(),
            self._batches(),
            mode="error" if mode == "create" else mode,
            partition_cols=partition_cols,
            schema_mode=schema_mode,
            storage_options=storage_options,
        )
        return self._written(_files(paths))

    @refusing_unknown("write_iceberg", WRITING)
    def write_iceberg(self, table: Any, *, mode: WriteMode = "create") -> Self:
        """Run the query and write its rows into a table of PyIceberg, in one commit; returns the list of its new files.

        ``table`` comes from a catalog: ``load_catalog(...).load_table("db.reviews")``. ``mode="create"`` needs a table
        without rows. The rows must fit in memory.
        """
        from penstock.io.tables.iceberg import write_iceberg_table

        check_choice("mode", mode, get_args(WriteMode))
        batches = list(self._batches())
        rows = pa.Table.from_batches(unified(batches)) if batches else self.schema.to_arrow().empty_table()
        return self._written(_files(write_iceberg_table(table, rows, mode)))

    @refusing_unknown(
        "write_huggingface",
        WRITING | {"mode": "'append' adds to the files of the split, 'overwrite' replaces them"},
        StagedJobOptions,
    )
    def write_huggingface(
        self,
        repo: str,
        *,
        split: str = "train",
        data_dir: str = "data",
        revision: str = "main",
        mode: Literal["append", "overwrite"] = "append",
        commit_message: str = "Upload dataset with Penstock",
        commit_description: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **job: Unpack[StagedJobOptions],
    ) -> Self:
        """Run the query and write its rows as Parquet files into a Hugging Face dataset, in one commit.

        The repository is created if it does not exist. Until the upload the files are in a temporary folder. The token
        is as in ``read_huggingface``.
        """
        options = options_of(locals(), "repo", "job")
        from penstock.io.tables.huggingface import hub_sink

        sink = hub_sink(repo, schema=self._plan.schema, **options)
        return self.write_sink(sink, **job)

    @refusing_unknown("write_turbopuffer", WRITING, StagedJobOptions)
    def write_turbopuffer(
        self,
        namespace: str,
        *,
        api_key: str | None = None,
        region: str | None = None,
        distance_metric: Literal["cosine_distance", "euclidean_squared"] | None = None,
        schema: Mapping[str, Any] | None = None,
        id_column: str | None = None,
        vector_column: str | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
        write_kwargs: Mapping[str, Any] | None = None,
        **job: Unpack[StagedJobOptions],
    ) -> Self:
        """Run the query and write each row as a document of a turbopuffer namespace; returns their number.

        ``id_column`` and ``vector_column`` name the columns that become ``id`` and ``vector``; all others are
        attributes, with the types in ``schema``, in the forms of ``write_json``. Documents are visible as they are
        written, by id, so a failed write can be run again.
        """
        options = options_of(locals(), "namespace", "schema", "job")
        from penstock.io.tables.turbopuffer import turbopuffer_sink

        sink = turbopuffer_sink(namespace, schema=self._schema_of_values(), attributes=schema, **options)
        return self.write_sink(sink, **job)

    @refusing_unknown("write_images", WRITING, JobOptions)
    def write_images(
        self,
        path: str,
        column: str,
        file_format: str = "png",
        *,
        quality: int = 90,
        mode: WriteMode = "create",
        storage_options: Mapping[str, Any] | None = None,
        **job: Unpack[JobOptions],
    ) -> Self:
        """Run the query and write the images of a column into a folder, one file each, none for null.

        ``file_format`` and ``quality`` are as in ``encode_image``, ``mode`` as in ``write_parquet``.
        """
        from penstock.functions.image import encode_image
        from penstock.io.formats.images import EncodedFiles
        from penstock.io.writer import file_sink

        encoded = encode_image(col(column), file_format, quality=quality).alias(column)
        images = nodes.Filter(projected(self._plan, [encoded._node]), col(column).not_null()._node)
        encoding = EncodedFiles(f".{file_format.lower().lstrip('.')}")
        sink = file_sink(path, encoding, mode=mode, rows_per_file=1, storage_options=storage_options)
        return self._with(images).write_sink(sink, **job)

    @refusing_unknown("write_sink", WRITING)
    def write_sink(
        self,
        sink: Sink,
        *,
        resume: Resume = False,
        budget: float | None = None,
        job_dir: str | os.PathLike[str] | None = None,
        on_finish: OnFinish | None = None,
    ) -> Self:
        """Run the query and write its rows into a custom sink; returns the result of its ``commit``.

        With ``resume`` the rows are first written to files in ``job_dir``, then to the sink at once.
        """
        from penstock.observe.on_finish import telling

        if not isinstance(sink, Sink):
            raise InvalidArgumentError(f"write_sink takes a Sink (see protocols.py); got {type(sink).__name__}")

        if resume is False and budget is None and job_dir is not None:
            raise InvalidArgumentError("job_dir= is the folder of a job; set resume=True too.")
        plan, log, is_job = nodes.Write(self._plan, sink), self._new_log(), resume is not False or budget is not None
        destination = _destination(sink, is_job=is_job)
        with TrimmedErrors(), telling(on_finish, destination.name, log):
            if not is_job:
                table = write(plan, subscribers=query_subscribers(log, destination))
            else:
                from penstock.cost.budget import spending
                from penstock.jobs.write_job import write_job

                with nullcontext() if budget is None else spending(budget):  # the subscribers show the budget
                    table = write_job(plan, resume, job_dir, subscribers=query_subscribers(log, destination))
        return self._written(table)

    def _written(self, table: pa.Table) -> Self:
        """Return the result of a write, with its statistics and errors."""
        from penstock.io.memory_source import MemorySource

        written = self._with(nodes.Scan(MemorySource.from_table(table)))
        written._errors, written._stats = self._errors, self._stats
        written._preview, written._num_rows = table.slice(0, SHOWN_ROWS), table.num_rows
        return written

    def _write_files(
        self,
        encoding: FileEncoding,
        path: str,
        *,
        partition_cols: Iterable[str | Expression] | None = None,
        resume: Resume = False,
        budget: float | None = None,
        on_finish: OnFinish | None = None,
        **options: Any,
    ) -> Self:
        from penstock.io.writer import file_sink

        given = [partition_cols] if isinstance(partition_cols, str | Expression) else list(partition_cols or ())
        columns = tuple(each.name() if isinstance(each, Expression) else each for each in given)
        schema = self._plan.schema
        if computed := {name: each for name, each in zip(columns, given, strict=True) if isinstance(each, Expression)}:
            if taken := [name for name, each in computed.items() if name in self.columns and not each.is_column()]:
                raise InvalidArgumentError(
                    f"partition_cols: {computed[taken[0]]!r} would replace column {taken[0]!r}; name it with alias()."
                )
            added = [each.alias(name)._node for name, each in computed.items()]
            return self._with(with_added(self._plan, added))._write_files(
                encoding, path, partition_cols=columns, resume=resume, budget=budget, on_finish=on_finish, **options
            )
        check_columns(schema, columns, "partition_cols")
        sink = file_sink(path, encoding, partition_cols=columns, schema=schema, **options)
        return self.write_sink(sink, resume=resume, budget=budget, on_finish=on_finish)


def _destination(sink: Sink, *, is_job: bool = False) -> Destination:
    from penstock.io.writer import FileSink
    from penstock.observe.closing_line import Destination, shown_path

    if isinstance(sink, FileSink):
        return Destination(shown_path(sink.root), is_job)
    name = nodes.sink_name(sink)
    return Destination(name.rpartition(" to ")[2], is_job)


def _files(paths: Sequence[str]) -> pa.Table:
    return pa.table({"path": pa.array(paths, pa.string())})
