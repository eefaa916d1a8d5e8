"""The verbs of a DataFrame that write its rows somewhere; each runs the query."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col
from penstock.plan.nodes import check_columns
from penstock.protocols import Sink
from penstock.udf.options import refusing_unknown

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame
    from penstock.jobs.job import Resume

WriteMode = Literal["create", "append", "overwrite"]


class WriteVerbs:
    """What a DataFrame can be written to.

    All take ``resume=True``, which makes the write a job: killed at any instant and run again, it goes on from where
    it was, and every row is written exactly once. See docs/DURABLE.md, also for ``"force"`` and ``"errors"``.
    ``budget`` is what the calls of one run may cost, in dollars; such a write is a job, too.
    """

    @refusing_unknown("write_parquet")
    def write_parquet(
        self,
        path: str,
        *,
        mode: WriteMode = "create",
        partition_cols: Iterable[str] | None = None,
        compression: str = "snappy",
        rows_per_file: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        resume: Resume = False,
        budget: float | None = None,
    ) -> DataFrame:
        """Run the query and write its rows as Parquet files into a folder; returns the list of files.

        Nothing is visible in the folder before all is written. ``mode`` says what to do with a folder that holds data:
        refuse (``create``), add to it (``append``), or replace it once the new data is complete (``overwrite``).
        """
        from penstock.io.formats.parquet import parquet_sink

        return self._write_files(
            parquet_sink, path, mode, partition_cols, compression, rows_per_file, storage_options, resume, budget
        )

    @refusing_unknown("write_csv")
    def write_csv(
        self,
        path: str,
        *,
        mode: WriteMode = "create",
        partition_cols: Iterable[str] | None = None,
        compression: str | None = None,
        rows_per_file: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        resume: Resume = False,
        budget: float | None = None,
    ) -> DataFrame:
        """Run the query and write its rows as CSV files into a folder; the options are those of ``write_parquet``."""
        from penstock.io.formats.csv import csv_sink

        return self._write_files(
            csv_sink, path, mode, partition_cols, compression, rows_per_file, storage_options, resume, budget
        )

    @refusing_unknown("write_json")
    def write_json(
        self,
        path: str,
        *,
        mode: WriteMode = "create",
        partition_cols: Iterable[str] | None = None,
        compression: str | None = None,
        rows_per_file: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        resume: Resume = False,
        budget: float | None = None,
    ) -> DataFrame:
        """Run the query and write its rows as JSON lines into a folder; the options are those of ``write_parquet``."""
        from penstock.io.formats.json import json_sink

        return self._write_files(
            json_sink, path, mode, partition_cols, compression, rows_per_file, storage_options, resume, budget
        )

    @refusing_unknown("write_numpy")
    def write_numpy(
        self,
        path: str,
        *,
        column: str,
        mode: WriteMode = "create",
        rows_per_file: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        resume: Resume = False,
        budget: float | None = None,
    ) -> DataFrame:
        """Run the query and write a column as .npy files into a folder: numbers, or arrays that all have one shape.

        The other options are those of ``write_parquet``.
        """
        from penstock.io.formats.numpy import COLUMN, numpy_sink

        chosen = _frame(self).select(col(column).alias(COLUMN))
        sink = functools.partial(numpy_sink, column=column)
        return chosen._write_files(sink, path, mode, None, None, rows_per_file, storage_options, resume, budget)

    @refusing_unknown("write_sql")
    def write_sql(
        self,
        table_name: str,
        conn: str | Callable[[], Any],
        *,
        mode: WriteMode = "create",
        resume: Resume = False,
        budget: float | None = None,
        job_dir: str | os.PathLike[str] | None = None,
    ) -> DataFrame:
        """Run the query and write its rows as a table of a database; ``conn`` is as in ``read_sql``.

        All rows become visible in one transaction, at the end. ``mode`` says what to do with a table that exists:
        refuse (``create``), add to it (``append``), or replace it with its indexes and grants (``overwrite``).
        """
        from penstock.io.tables.sql.sink import sql_sink

        sink = sql_sink(table_name, conn, mode=mode, schema=_frame(self).schema)
        return self.write_sink(sink, resume=resume, budget=budget, job_dir=job_dir)

    def write_lance(
        self,
        uri: str | os.PathLike[str],
        *,
        mode: WriteMode = "create",
        storage_options: Mapping[str, Any] | None = None,
        resume: Resume = False,
        budget: float | None = None,
        job_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> DataFrame:
        """Run the query and write its rows as a Lance dataset, in one commit; returns what the dataset then holds.

        ``mode`` is as in ``write_parquet``; what was there stays as an earlier version. Other options, such as
        ``max_rows_per_file`` and ``data_storage_version``, go to Lance's writer.
        """
        from penstock.io.tables.lance import lance_sink

        sink = lance_sink(uri, mode=mode, schema=_frame(self).schema, storage_options=storage_options, **options)
        return self.write_sink(sink, resume=resume, budget=budget, job_dir=job_dir)

    @refusing_unknown("write_huggingface")
    def write_huggingface(
        self,
        repo: str,
        *,
        split: str = "train",
        data_dir: str = "data",
        revision: str = "main",
        overwrite: bool = False,
        commit_message: str = "Upload dataset with Penstock",
        commit_description: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        resume: Resume = False,
        budget: float | None = None,
        job_dir: str | os.PathLike[str] | None = None,
    ) -> DataFrame:
        """Run the query and write its rows as Parquet files into a Hugging Face dataset, in one commit.

        They are added to the split's files, or with ``overwrite`` take their place. The repository is made if there is
        none. Until the upload the files are in a temporary folder. The token is as in ``read_huggingface``.
        """
        from penstock.io.tables.huggingface import hub_sink

        sink = hub_sink(
            repo, split=split, data_dir=data_dir, revision=revision, overwrite=overwrite,
            commit_message=commit_message, commit_description=commit_description, storage_options=storage_options,
            schema=_frame(self)._plan.schema,
        )  # fmt: skip
        return self.write_sink(sink, resume=resume, budget=budget, job_dir=job_dir)

    @refusing_unknown("write_turbopuffer")
    def write_turbopuffer(
        self,
        namespace: str | Expression,
        *,
        api_key: str | None = None,
        region: str | None = None,
        distance_metric: Literal["cosine_distance", "euclidean_squared"] | None = None,
        schema: Mapping[str, Any] | None = None,
        id_column: str | None = None,
        vector_column: str | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
        write_kwargs: Mapping[str, Any] | None = None,
        resume: Resume = False,
        budget: float | None = None,
        job_dir: str | os.PathLike[str] | None = None,
    ) -> DataFrame:
        """Run the query and write each row as a document of a turbopuffer namespace; returns how many went to each.

        ``id_column`` and ``vector_column`` name the columns that become ``id`` and ``vector``; all others are
        attributes. An expression as ``namespace`` names that of each row. ``schema`` is turbopuffer's, of attributes.
        Documents are visible as they are written; they are written by id, so a failed write can be run again.
        """
        from penstock.io.tables.turbopuffer import NAMESPACE, turbopuffer_sink

        name = None if isinstance(namespace, Expression) else namespace
        sink = turbopuffer_sink(
            name, schema=_frame(self).schema, api_key=api_key, region=region,
            distance_metric=distance_metric, attributes=schema, id_column=id_column, vector_column=vector_column,
            client_kwargs=client_kwargs, write_kwargs=write_kwargs,
        )  # fmt: skip
        rows = _frame(self).with_column(NAMESPACE, namespace) if name is None else _frame(self)
        return rows.write_sink(sink, resume=resume, budget=budget, job_dir=job_dir)

    @refusing_unknown("write_images")
    def write_images(
        self,
        path: str,
        column: str,
        file_format: str = "png",
        *,
        quality: int = 90,
        mode: WriteMode = "create",
        storage_options: Mapping[str, Any] | None = None,
        resume: Resume = False,
        budget: float | None = None,
    ) -> DataFrame:
        """Run the query and write the images of a column into a folder, a file each; null has none.

        ``file_format`` and ``quality`` are those of ``encode_image``, ``mode`` that of ``write_parquet``.
        """
        from penstock.functions.image import encode_image
        from penstock.io.formats.images import image_sink

        encoded = encode_image(col(column), file_format, quality=quality).alias(column)
        rows = _frame(self).select(encoded).where(col(column).not_null())
        sink = image_sink(path, file_format, mode=mode, storage_options=storage_options)
        return rows.write_sink(sink, resume=resume, budget=budget)

    @refusing_unknown("write_sink")
    def write_sink(
        self,
        sink: Sink,
        *,
        resume: Resume = False,
        budget: float | None = None,
        job_dir: str | os.PathLike[str] | None = None,
    ) -> DataFrame:
        """Run the query and put its rows into a sink of your own; returns what its ``commit`` says.

        With ``resume`` the rows are first made into files in ``job_dir``, which then go into the sink together.
        """
        if not isinstance(sink, Sink):
            raise InvalidArgumentError(f"write_sink takes a Sink (see protocols.py); got {type(sink).__name__}")
        return _frame(self)._write(sink, resume, budget, job_dir)

    def _write_files(
        self,
        make_sink: Callable[..., Sink],
        path: str,
        mode: WriteMode,
        partition_cols: Iterable[str] | None,
        compression: str | None,
        rows_per_file: int | None,
        storage_options: Mapping[str, Any] | None,
        resume: Resume,
        budget: float | None,
    ) -> DataFrame:
        columns = (partition_cols,) if isinstance(partition_cols, str) else tuple(partition_cols or ())
        check_columns(_frame(self)._plan.schema, columns, "partition_cols")
        sink = make_sink(
            path, mode=mode, partition_cols=columns, compression=compression, rows_per_file=rows_per_file,
            storage_options=storage_options, schema=_frame(self)._plan.schema,
        )  # fmt: skip
        return self.write_sink(sink, resume=resume, budget=budget)


def _frame(verbs: WriteVerbs) -> DataFrame:
    """Return what has the verbs."""
    return cast("DataFrame", verbs)
