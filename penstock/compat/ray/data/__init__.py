"""``ray.data``: readers, ``Dataset``, aggregations and expressions under the names and parameters of Ray Data.

dataset           ``Dataset``: a DataFrame with Ray Data's verbs
result_verbs, write_verbs    its verbs that run the query, and that write
grouped           ``GroupedData``
iterator          ``DataIterator``; ``torch_pairs`` has its ``to_torch``
aggregate         ``ray.data.aggregate``
expressions       ``ray.data.expressions``
llm               ``ray.data.llm``
arrow_options, json_files, bound_sql    options of the readers of CSV, JSON and SQL
partitions        ``Partitioning`` and its parser
resource_options  parameters about resources and placement

It may import everything.
"""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.compat.ray.data import aggregate, expressions, llm
from penstock.compat.ray.data.arrow_options import arrow_options
from penstock.compat.ray.data.bound_sql import connected
from penstock.compat.ray.data.dataset import Dataset, RaySchema as Schema
from penstock.compat.ray.data.grouped import GroupedData
from penstock.compat.ray.data.iterator import DataIterator
from penstock.compat.ray.data.json_files import json_options, timestamp_columns
from penstock.compat.ray.data.partitions import (
    Partitioning,
    PartitionStyle,
    PathPartitionParser,
    is_hive,
    partition_types,
)
from penstock.compat.ray.data.resource_options import PLACEMENT, RESOURCES, check_filesystem, check_placement
from penstock.compat.remedies import refused_name
from penstock.compat.translation import refusal, translated
from penstock.errors import CorruptFileError, PathNotFoundError, load_extra
from penstock.frame.sql_expression import sql_expr
from penstock.io.files import find_files
from penstock.types import DataType
from penstock.udf.specs import TaskPoolStrategy

__all__ = ["ActorPoolStrategy", "DataContext", "DataIterator", "DataType", "Dataset", "ExecutionOptions",
    "ExecutionResources", "FileShuffleConfig", "GroupedData", "PartitionStyle", "Partitioning", "PathPartitionParser",
    "RandomSeedConfig", "SaveMode", "Schema", "TaskPoolStrategy", "aggregate", "expressions", "from_daft", "llm",
    "range_tensor", "read_iceberg", "read_lance"]  # fmt: skip

# Ray keeps some of these names in modules of their own: ``from ray.data.context import DataContext``.
for _module in ("block", "collate_fn", "context", "datasource", "datasource.partitioning", "datatype", "grouped_data",
                "iterator"):  # fmt: skip
    sys.modules[f"{__name__}.{_module}"] = sys.modules[__name__]
    globals().setdefault(_module, sys.modules[__name__])


def _dataset(frame: ps.DataFrame) -> Dataset:
    return Dataset(frame._plan)


def _reader(name: str, original: str, defaults: dict[str, Any]) -> Callable[..., Dataset]:
    renamed = {"paths": "path", "include_paths": "path_column"} if name not in _OWN_PATHS else {}
    read: Callable[..., Dataset] = translated(
        getattr(ps, original),
        f"ray.data.{name}",
        renamed={
            **renamed,
            "partitioning": "hive_partitioning",
            "connection_factory": "conn",
            "drop_empty_lines": "skip_blank_lines",
        },
        values={
            "partitioning": is_hive,
            **({"include_paths": lambda wanted: "path" if wanted else None} if name not in _OWN_PATHS else {}),
        },
        ignored=PLACEMENT | RESOURCES,
        defaults=defaults,
        returns=_dataset,
    )
    scheme = Partitioning(PartitionStyle.HIVE) if "hive_partitioning" in defaults else None

    @functools.wraps(read)
    def of_chosen(
        *args: Any, file_extensions: list[str] | None = None, shuffle: Any = None, ignore_missing_paths: bool = False,
        filesystem: Any = None, **options: Any,
    ) -> Dataset:  # fmt: skip
        check_filesystem(f"ray.data.{name}", filesystem)
        if isinstance(schema := options.get("schema"), pa.Schema):  # the whole schema but for partitions
            options |= {"schema": dict(zip(schema.names, schema.types, strict=True)), "infer_schema": False}
        if options.get("partitioning", scheme) and "schema" in inspect.signature(read).parameters:
            given, partitioning = options.get("schema") or {}, options.get("partitioning", scheme)
            own = _own_types if name == "read_parquet" else lambda path: {}
            options["schema"] = lambda files: partition_types([file.url for file in files], partitioning, own) | given
        if not (file_extensions or shuffle or ignore_missing_paths):
            return read(*args, **options)
        paths = args[0] if args else options.pop("paths")
        found = _files(paths, file_extensions, ignore_missing_paths, options.get("storage_options"))
        if shuffle is not None:
            random.Random(getattr(shuffle, "seed", None)).shuffle(found)
        return read(found, **options)

    return of_chosen if name in _OF_FILES else read


def _own_types(path: str) -> dict[str, Any]:
    return {field.name: field.dtype for field in ps.read_parquet(path).schema}


def _files(paths: Any, extensions: list[str] | None, ignores_missing: bool, storage_options: Any = None) -> list[str]:
    found: list[str] = []
    for path in paths if isinstance(paths, list | tuple) else [paths]:
        try:
            found += [file.url for file in find_files(path, storage_options=storage_options)]
        except PathNotFoundError:
            if not ignores_missing:
                raise
    endings = tuple(f".{each}" for each in extensions or ())
    return [path for path in found if not endings or path.endswith(endings)]


_OF_FILES = (
    "read_parquet",
    "read_csv",
    "read_json",
    "read_text",
    "read_binary_files",
    "read_images",
)
_OWN_PATHS = ("read_images", "read_webdataset")
_NULLS = ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA",
          "NULL", "NaN", "n/a", "nan", "null")  # fmt: skip
"""The fields that Arrow, and so Ray Data, reads as null in a column of numbers."""
_READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "read_parquet": ("read_parquet", {"hive_partitioning": True}),
    "read_csv": ("read_csv", {"null_values": _NULLS, "strings_can_be_null": False}),
    **{f"read_{kind}": (f"read_{kind}", {}) for kind in ("json", "text", "binary_files", "numpy", "images")},
    **{f"read_{kind}": (f"read_{kind}", {}) for kind in ("sql", "webdataset", "audio")},
    "read_delta": ("read_deltalake", {}),
    "read_videos": ("read_video_frames", {}),
    **{f"from_{kind}": (f"from_{kind}", {}) for kind in ("items", "numpy", "pandas", "arrow", "huggingface", "torch")},
    "from_blocks": ("from_arrow", {}),
    "range": ("range", {}),
}
for _name, (_original, _defaults) in _READERS.items():
    globals()[_name] = _reader(_name, _original, _defaults)
__all__ += list(_READERS)  # made from the table above


_read_json = globals()["read_json"]


def read_json(
    *args: Any, lines: bool = False, read_options: Any = None, parse_options: Any = None, **options: Any
) -> Dataset:
    """Read JSON. Text that looks like timestamps to Arrow becomes timestamps, as in Ray Data, but not with ``lines``.

    It takes the options of ``pyarrow.json``, and recognizes files of JSON lines by their content.
    """
    given = json_options(parse_options, read_options)
    dataset: Dataset = _read_json(*args, **given, **options)
    typed = {**(given.get("schema") or {}), **(options.get("schema") or {})}
    texts = [] if lines else [field.name for field in dataset.schema if field.dtype.is_string()]
    texts = [name for name in texts if name not in typed]
    files = dataset.input_files() if texts else []
    times = timestamp_columns(files[0], texts) if files else []
    return dataset.with_columns({name: ps.col(name).cast("timestamp[s]") for name in times}) if times else dataset


_read_sql = globals()["read_sql"]


def read_sql(
    sql: str, connection_factory: Any, *, sql_params: Any = None, shard_keys: Any = None, shard_hash_fn: str = "MD5",
    **options: Any,
) -> Dataset:  # fmt: skip
    """Read the result of a query; ``sql_params`` are the values of its placeholders. Shards change no result."""
    if sql_params is not None:
        connection_factory = functools.partial(connected, connection_factory, sql_params)
        options["disable_pushdowns_to_sql"] = True  # what is added to the query could look like a placeholder
    dataset: Dataset = _read_sql(sql, connection_factory, **options)
    return dataset


_read_csv = globals()["read_csv"]


@functools.wraps(_read_csv)
def read_csv(
    *args: Any, parse_options: Any = None, read_options: Any = None, convert_options: Any = None, **options: Any
) -> Dataset:
    """Read CSV files, with the options of ``pyarrow.csv`` or the parameters of ``penstock.read_csv``."""
    given = arrow_options(parse_options, read_options, convert_options)
    names = given.pop("column_names", None)
    if names:
        types = given.pop("schema", {})  # by the names that the columns get below
        given["has_headers"] = False
        given["schema"] = {f"column_{i}": types[name] for i, name in enumerate(names, 1) if name in types} or None
    dataset: Dataset = _read_csv(*args, **given, **options)
    return dataset.rename_columns(names) if names else dataset


_read_images = globals()["read_images"]


def read_images(*args: Any, mode: str | None = None, **options: Any) -> Dataset:
    """Read images; images of mode ``L`` have no axis of channels, as in Ray Data."""
    dataset: Dataset = _read_images(*args, **({} if mode is None else {"mode": mode}), **options)
    return dataset.map_batches(_without_channels) if mode == "L" else dataset


def _without_channels(batch: dict[str, Any]) -> dict[str, Any]:
    images = batch["image"]
    flat = [image[..., 0] for image in images] if images.dtype == object else images[..., 0]
    return {**batch, "image": flat}


ActorPoolStrategy = translated(
    ps.ActorPoolStrategy,
    "ray.data.ActorPoolStrategy",
    ignored=("initial_size", "max_tasks_in_flight_per_actor", "enable_true_multi_threading"),
)


def range_tensor(n: int, *, shape: tuple[int, ...] = (1,), **options: Any) -> Dataset:
    """Return ``n`` rows with a tensor of this shape each, filled with the number of the row."""
    import numpy as np

    return _dataset(ps.from_numpy(np.broadcast_to(np.arange(n).reshape(n, *[1] * len(shape)), (n, *shape)).copy()))


def read_lance(
    uri: str, *, columns: list[str] | None = None, filter: str | None = None, version: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None, **options: Any,
) -> Dataset:  # fmt: skip
    """Read a Lance dataset; ``filter`` is a condition in SQL."""
    check_placement("ray.data.read_lance", options)
    return _selected(ps.read_lance(uri, version=version, storage_options=storage_options), filter, columns)


def read_iceberg(
    *, table_identifier: str, row_filter: str | None = None, selected_fields: tuple[str, ...] = ("*",),
    snapshot_id: int | None = None, catalog_kwargs: Mapping[str, Any] | None = None, catalog: Any = None,
    **options: Any,
) -> Dataset:  # fmt: skip
    """Read a table of the default catalog, or of the catalog that ``catalog_kwargs`` describe; ``row_filter`` is
    SQL."""
    check_placement("ray.data.read_iceberg", options)
    if catalog is None:
        library = load_extra("pyiceberg.catalog", "iceberg", "read_iceberg")
        catalog = library.load_catalog(**(catalog_kwargs or {}))
    frame = ps.read_iceberg(catalog.load_table(table_identifier), snapshot_id=snapshot_id)
    return _selected(frame, row_filter, None if "*" in selected_fields else selected_fields)


def _selected(frame: ps.DataFrame, condition: Any, columns: Sequence[str] | None) -> Dataset:
    if condition is not None and not isinstance(condition, str):
        raise refusal(f"a filter of type {type(condition).__name__}", "write the condition as text, in SQL")
    frame = frame if condition is None else frame.where(sql_expr(condition))
    return _dataset(frame if columns is None else frame.select(*columns))


def _record_reader(name: str, records: Callable[[ps.File], Iterator[dict[str, Any]]], kind: str) -> Any:
    """Return a reader of files of records, whose values are the columns; the first rows determine the types."""

    def read(
        paths: Any, *, file_extensions: list[str] | None = None, ignore_missing_paths: bool = False,
        filesystem: Any = None, include_paths: bool = False, **options: Any,
    ) -> Dataset:  # fmt: skip
        check_filesystem(f"ray.data.{name}", filesystem)
        check_placement(f"ray.data.{name}", options)
        files = _files(paths, file_extensions, ignore_missing_paths)

        def rows(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
            for record in records(ps.File(row["path"])):
                yield {**record, "path": row["path"]} if include_paths else record

        return _dataset(ps.from_pydict({"path": files}).flat_map(rows))

    read.__name__, read.__doc__ = name, f"Read {kind}. Columns have the types of the first rows."
    return read


def _avro_records(file: ps.File) -> Iterator[dict[str, Any]]:
    fastavro = load_extra("fastavro", "avro", "read_avro")
    with file.open() as stream:
        try:
            yield from fastavro.reader(stream)
        except (ValueError, EOFError) as exc:
            raise CorruptFileError(f"{file} is not a whole Avro file: {str(exc) or type(exc).__name__}") from exc


read_avro = _record_reader("read_avro", _avro_records, "the records of Avro files")


def from_daft(df: Any) -> Dataset:
    """Run a query of the real Daft, or of the adapter, and return its rows."""
    return _dataset(ps.from_arrow(df.to_arrow()))


class SaveMode(Enum):
    """The modes of writes; a new file or more files are the default."""

    CREATE = "create"
    APPEND = "append"
    OVERWRITE = "overwrite"


class FileShuffleConfig(SimpleNamespace):
    """The order of files. Penstock does not promise to keep it."""


class ExecutionOptions(SimpleNamespace):
    """Limits of Ray's scheduler. Penstock schedules by ``ps.set_config(memory_limit=..., num_threads=...)``."""


class ExecutionResources(SimpleNamespace):
    """Resources of Ray's scheduler, which change nothing here."""


class RandomSeedConfig(SimpleNamespace):
    """A seed; every run of a query uses it again."""

    def __init__(self, seed: int | None = None, **options: Any) -> None:
        super().__init__(seed=seed, **options)


class DataContext(SimpleNamespace):
    """Settings of Ray's scheduler: they can be set and read, and change nothing."""

    _current: DataContext | None = None

    @classmethod
    def get_current(cls) -> DataContext:
        if cls._current is None:
            cls._current = cls(execution_options=ExecutionOptions())
        return cls._current


def __getattr__(name: str) -> Any:
    raise refused_name("ray.data", name)
