"""The options that readers and writers share, and for ``help`` one line about each option of a verb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from penstock.udf.options import OPTION_HELP

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.expr.column import Expression
    from penstock.jobs.job_run import Resume
    from penstock.observe.on_finish import OnFinish

WriteMode = Literal["create", "append", "overwrite"]


class FileReading(TypedDict, total=False):
    """The options of every reader of files."""

    path_column: str | None
    ignore_corrupt_files: bool
    storage_options: Mapping[str, Any] | None


class FolderReading(FileReading, total=False):
    """The options of readers that take columns from the names of folders."""

    hive_partitioning: bool | None


class TableReading(FolderReading, total=False):
    """The options of readers of files with columns."""

    columns: Sequence[str] | None
    schema: Mapping[str, Any] | None
    infer_schema: bool


class JobOptions(TypedDict, total=False):
    """The options of every write that can be a job."""

    resume: Resume
    budget: float | None
    on_finish: OnFinish | None


class StagedJobOptions(JobOptions, total=False):
    """The options of jobs whose output is no folder of files."""

    job_dir: str | os.PathLike[str] | None


class FileWriting(JobOptions, total=False):
    """The options of every write of files into a folder."""

    mode: WriteMode
    rows_per_file: int | None
    storage_options: Mapping[str, Any] | None


class TableWriting(FileWriting, total=False):
    """The options of writes of files with columns."""

    partition_cols: Iterable[str | Expression] | None


READING = {
    "columns": "the columns to read; the default is all",
    "schema": "types by column, in place of the types in the files; a column that no file has is added, with nulls",
    "infer_schema": "False: the schema is the whole schema",
    "path_column": "the name of a new column with the path of each row's file",
    "hive_partitioning": "key=value folders as columns: True for the whole path, False for none",
    "ignore_corrupt_files": "True skips files that cannot be parsed, with a warning; rows before the damage remain",
    "on_error": "'raise' ends the query at an unreadable file; 'null' records it and gives null; 'log' logs it too",
    "max_connections": "the most files that are read at once",
    "storage_options": "options of the store: key, secret, token, endpoint_url, region, anon (docs/guides/files.md)",
}

WRITING = {
    "mode": "if there is data: 'create' raises an error, 'append' adds to it, 'overwrite' replaces it at the end",
    "partition_cols": "columns, or expressions, that become key=value folders",
    "compression": "the compression of the files, such as 'zstd'",
    "rows_per_file": "the most rows of a file",
    "storage_options": "options of the store: key, secret, token, endpoint_url, region, anon (docs/guides/files.md)",
    "resume": "True makes the write a job, which continues after an interruption (docs/guides/jobs.md)",
    "budget": "the most dollars that the model calls of one run may cost; such a write is a job too",
    "on_finish": "a function or the URL of a webhook: Penstock tells it how the write ended (docs/guides/jobs.md)",
    "job_dir": "the folder of the job, if the output is not one",
}

BATCHES = OPTION_HELP | {
    "batch_format": "what the function gets: 'numpy', 'pandas', 'pyarrow', 'pylist' or 'torch'",
    "zero_copy_batch": "False: the function may change its arrays; True: torch tensors share memory too",
    "compute": "an ActorPoolStrategy or TaskPoolStrategy in place of concurrency",
    "concurrency": "the workers: a number, or a pair of the least and the most",
    "fn_args": "further positional arguments of the function",
    "fn_kwargs": "further named arguments of the function",
    "fn_constructor_args": "positional arguments of the class, which each worker builds once",
    "fn_constructor_kwargs": "named arguments of the class",
    "on_error": "'raise' ends the query; 'null' drops the row and records it in df.errors(); 'log' logs it too",
}
