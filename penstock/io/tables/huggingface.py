"""Hugging Face: dataset repositories, their local cache, ``datasets.Dataset`` objects, and uploads as one commit."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.config import get_config
from penstock.errors import InvalidArgumentError, PathNotFoundError, PenstockError, WriteError, check_choice, load_extra
from penstock.io.batch_sizes import rows_per_batch
from penstock.io.commit.output import new_run_id
from penstock.io.data_file import UNKNOWN
from penstock.io.file_format import FileFormat
from penstock.io.file_source import FileSource
from penstock.io.files import find_files
from penstock.io.formats.csv import CsvFormat
from penstock.io.formats.json import JsonFormat
from penstock.io.formats.parquet import ParquetEncoding, ParquetFormat
from penstock.io.formats.text import TextFormat
from penstock.io.formats.webdataset import webdataset_format
from penstock.io.selection import Selection
from penstock.io.tables.libraries import TableTask, store_errors
from penstock.io.writer import FileSink, FileWriter, file_sink
from penstock.protocols import ReadRequest
from penstock.storage.storage_options import StorageOptions
from penstock.storage.urls import short_path
from penstock.types import Schema

FORMATS: dict[str, Callable[[], FileFormat]] = {
    "parquet": ParquetFormat,
    "json": JsonFormat,
    "csv": CsvFormat,
    "text": TextFormat,
    "webdataset": webdataset_format,
}
"""The formats of a dataset's files, in order of preference."""

CONVERTED = "refs%2Fconvert%2Fparquet"  # the hub's branch with a Parquet copy of the dataset
_SAMPLE_ROWS = 100


def huggingface_source(
    repo: str | os.PathLike[str],
    *,
    split: str | None = None,
    format: str | None = None,
    revision: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> FileSource:
    """Return the source for a repository, an ``hf://`` path or a local folder."""
    if format is not None:
        check_choice("format", format, FORMATS)
    errors: list[PenstockError] = []
    for path in _candidates(os.fspath(repo), revision):
        try:
            chosen, files = _data_files(path, split, format, storage_options)
        except PathNotFoundError as exc:
            errors.append(exc)
            continue
        source = FileSource(chosen, files, storage_options=storage_options)
        source.short_name = short_path(os.fspath(repo))
        return source
    raise errors[0]


def _candidates(repo: str, revision: str | None) -> Iterator[str]:
    """Yield the places that may have the files, in order of preference."""
    if "://" in repo or os.path.exists(os.path.expanduser(repo)):
        yield repo
        return
    hub = load_extra("huggingface_hub", "huggingface", "read_huggingface")
    if load_extra("huggingface_hub.constants", "huggingface", "read_huggingface").HF_HUB_OFFLINE:
        with store_errors(f"dataset {repo!r} in the local cache"):
            yield hub.snapshot_download(repo, repo_type="dataset", revision=revision, local_files_only=True)
        return
    yield f"hf://datasets/{repo}" + (f"@{revision.replace('/', '%2F')}" if revision else "")
    if revision is None:
        yield f"hf://datasets/{repo}@{CONVERTED}"


def _data_files(
    path: str, split: str | None, format: str | None, options: Mapping[str, Any] | None
) -> tuple[FileFormat, list[str]]:
    with store_errors(f"dataset {path!r}"):
        names = [str(file) for file in find_files(path, storage_options=options)]
    names = [name for name in names if split is None or _is_of_split(_inside(name, path), split)]
    for each in FORMATS if format is None else (format,):
        chosen = FORMATS[each]()
        files = [name for name in names if name.lower().endswith(chosen.suffixes) and "readme." not in name.lower()]
        if files:
            return chosen, files
    kind = f"of format {format!r}" if format else f"of a known format ({', '.join(FORMATS)})"
    raise PathNotFoundError(f"{path!r} has no data files {kind}" + (f" for the split {split!r}." if split else "."))


def _inside(name: str, path: str) -> str:
    """Return the part of a file's name within the dataset, since the name of the dataset does not state a split.

    >>> _inside("hf://datasets/me/train-data@main/test.csv", "hf://datasets/me/train-data")
    '/test.csv'
    """
    if "://" in name:
        return re.sub(r"^\w+://(datasets/)?[^/]+/[^/@]+(@[^/]*)?", "", name)
    return name.removeprefix(os.path.abspath(os.path.expanduser(path))) or os.path.basename(name)


def _is_of_split(path: str, split: str) -> bool:
    """Return whether a file belongs to a split by the hub's naming: ``train/0.csv``, ``data/train-0.parquet``.

    >>> [_is_of_split(path, "train") for path in ("data/train-0.csv", "train/x.csv", "data/training.csv", "test.csv")]
    [True, True, False, False]
    """
    return re.search(rf"(^|[/._-]){re.escape(split)}([/._-]|$)", path) is not None


class DatasetSource:
    """A ``Source`` over a ``datasets.Dataset``, or one that streams. It does not copy the rows."""

    can_filter = True
    name = "from_huggingface"

    def __init__(self, dataset: Any) -> None:
        if isinstance(dataset, Mapping):
            raise InvalidArgumentError(
                "from_huggingface takes one dataset; choose a split, such as "
                f"from_huggingface(dataset[{next(iter(dataset))!r}])."
            )
        if not hasattr(dataset, "with_format"):
            raise InvalidArgumentError(f"from_huggingface takes a datasets.Dataset; got {type(dataset).__name__}.")
        self._dataset = dataset.with_format("arrow")
        self._num_rows = len(dataset) if hasattr(dataset, "__len__") else None
        self._sample = self._first_rows()
        self._schema = Schema.from_arrow(self._sample.schema)

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        fingerprint = getattr(self._dataset, "_fingerprint", None)  # changes with each operation on a dataset
        if fingerprint is None or self._num_rows is None:
            return {self.name: UNKNOWN}
        return {self.name: f"{self._num_rows} rows, fingerprint {fingerprint}"}

    def read_tasks(self, request: ReadRequest) -> Iterator[TableTask]:
        selection = Selection.of(request, self._schema)
        batch_rows = rows_per_batch(max(self._sample.num_rows, 1), self._sample.nbytes)
        if self._num_rows is None:
            batches = partial(_streamed_batches, self._dataset, batch_rows)
            yield TableTask((self.name, "all"), self.name, batches, selection, None)
            return
        stop = self._num_rows if request.limit is None else min(request.limit, self._num_rows)
        for start in range(0, stop, batch_rows):
            end = min(start + batch_rows, stop)
            batches = partial(_batches, self._dataset, start, end)
            yield TableTask((self.name, f"rows {start} to {end}"), self.name, batches, selection, end - start)

    def _first_rows(self) -> pa.Table:
        if self._num_rows is not None:
            return self._dataset[:_SAMPLE_ROWS]
        first: pa.Table | None = next(iter(self._dataset.iter(batch_size=_SAMPLE_ROWS)), None)
        if first is None:
            raise InvalidArgumentError("from_huggingface: the dataset streams no rows, so its columns are unknown.")
        return first


def _streamed_batches(dataset: Any, batch_rows: int) -> Iterator[pa.RecordBatch]:
    for table in dataset.iter(batch_size=batch_rows):
        yield from table.to_batches()


def _batches(dataset: Any, start: int, end: int) -> Iterator[pa.RecordBatch]:
    yield from dataset[start:end].to_batches()


@dataclass(frozen=True)
class HubSink:
    """A ``Sink`` into a dataset repository: Parquet files in a temporary folder, uploaded as one commit."""

    repo: str
    files: FileSink
    split: str = "train"
    data_dir: str = "data"
    revision: str = "main"
    mode: str = "append"
    commit_message: str = "Upload dataset with Penstock"
    commit_description: str | None = None
    storage_options: StorageOptions = field(default_factory=StorageOptions)
    run_id: str = field(default_factory=new_run_id)

    @property
    def name(self) -> str:
        return f"parquet files to hf://datasets/{self.repo}"

    @property
    def short_name(self) -> str:
        return short_path(self.repo)

    def start(self) -> None:
        load_extra("huggingface_hub", "huggingface", "write_huggingface")
        self.files.start()

    def open(self) -> FileWriter:
        return self.files.open()

    def open_part(self, first_row: int) -> FileWriter:
        return self.files.open_part(first_row)

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table:
        hub = load_extra("huggingface_hub", "huggingface", "write_huggingface")
        staged = self.files.commit(records)
        paths = staged.column("path").to_pylist()
        prefix = f"{self.data_dir}/{self.split}-"
        names = [f"{prefix}{self.run_id}-{number:05d}-of-{len(paths):05d}.parquet" for number in range(len(paths))]
        with store_errors(f"dataset {self.repo!r}", WriteError):
            api = hub.HfApi(endpoint=self.storage_options.get("endpoint"), token=self.storage_options.get("token"))
            api.create_repo(self.repo, repo_type="dataset", exist_ok=True)
            operations: list[Any] = [hub.CommitOperationAdd(*pair) for pair in zip(names, paths, strict=True)]
            if self.mode == "overwrite":
                present = api.list_repo_files(self.repo, repo_type="dataset", revision=self.revision)
                operations += [hub.CommitOperationDelete(old) for old in present if old.startswith(prefix)]
            info = api.create_commit(
                self.repo, operations, commit_message=self.commit_message, repo_type="dataset",
                commit_description=self.commit_description, revision=self.revision,
            )  # fmt: skip
        self._remove_files()
        shown = [f"hf://datasets/{self.repo}/{name}" for name in names]
        columns = {"path": shown, "rows": staged.column("rows"), "nbytes": staged.column("nbytes")}
        return pa.table(columns | {"commit": [str(info.oid)] * len(names)})

    def discard(self, run_id: str) -> None:
        replace(self, run_id=run_id).abort()

    def abort(self) -> None:
        self.files.abort()
        self._remove_files()

    def _remove_files(self) -> None:
        shutil.rmtree(self.files.root, ignore_errors=True)


def hub_sink(
    repo: Any, *, schema: Schema | None = None, storage_options: Mapping[str, Any] | None = None, **options: Any
) -> HubSink:
    """Return the sink for the user's arguments."""
    if not isinstance(repo, str) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", repo):
        raise InvalidArgumentError(f"repo={repo!r} must name a dataset repository, as in 'user/name'.")
    check_choice("mode", options.get("mode", "append"), ("append", "overwrite"))
    folder = Path(get_config().temp_dir or tempfile.gettempdir()) / f"penstock-hub-{new_run_id()}"
    files = file_sink(folder, ParquetEncoding(), schema=schema)
    return HubSink(repo, files, storage_options=StorageOptions.of(storage_options), **options)
