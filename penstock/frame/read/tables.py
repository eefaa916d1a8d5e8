"""Make a DataFrame from tables: databases, Lance, Delta Lake, Iceberg, Hugging Face, WebDataset, NumPy, torch, Ray.

A store is imported when it is first read, which keeps ``import penstock`` fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from penstock.frame.dataframe import DataFrame
from penstock.frame.option_lines import READING, FileReading
from penstock.frame.read.files import read_file_format
from penstock.plan.nodes import Scan
from penstock.udf.options import options_of, refusing_unknown

if TYPE_CHECKING:
    import os

    from penstock.io.files import Paths


@refusing_unknown("read_sql", READING)
def read_sql(
    sql: str,
    conn: Any,
    *,
    partition_col: str | None = None,
    num_partitions: int | None = None,
    schema: Mapping[str, Any] | None = None,
    infer_schema: bool = True,
    disable_pushdowns_to_sql: bool = False,
) -> DataFrame:
    """Read the result of a SQL query, streamed.

    ``conn`` is a URL, such as ``postgresql://user@host/database`` or ``sqlite:///file.db``, or a function that returns
    a connection of SQLAlchemy, of ADBC or of any DB-API driver, such as ``lambda: sqlite3.connect("file.db")``.
    Credentials are never shown. PostgreSQL is read through ADBC, other URLs through SQLAlchemy. Columns,
    filters and limits become part of the query, unless ``disable_pushdowns_to_sql``. With ``partition_col``, a column
    of numbers, dates or timestamps, ``num_partitions`` ranges of it are read at once, each with its own query.
    ``schema`` overrides the types found.

    >>> path = "words.db"
    >>> url = f"sqlite:///{path}"
    >>> _ = ps.from_pydict({"id": [1, 2], "word": ["to", "be"]}).write_sql("words", url)
    >>> ps.read_sql("SELECT * FROM words WHERE id > 1", url).to_pydict()
    {'id': [2], 'word': ['be']}
    """
    options = options_of(locals(), "sql", "conn")
    from penstock.io.tables.sql.source import sql_source

    return DataFrame(Scan(sql_source(sql, conn, **options)))


@refusing_unknown("read_lance", READING)
def read_lance(
    uri: str | os.PathLike[str],
    *,
    version: int | str | None = None,
    asof: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read a Lance dataset: the latest version, a version by number or tag, or the version at a time (``asof``).

    Lance applies columns, filters and limits, and a task reads one fragment.

    >>> path = "words.lance"
    >>> _ = ps.from_pydict({"id": [1, 2], "word": ["to", "be"]}).write_lance(path)
    >>> ps.read_lance(path).where(ps.col("id") > 1).to_pydict()
    {'id': [2], 'word': ['be']}
    """
    options = options_of(locals(), "uri")
    from penstock.io.tables.lance import lance_source

    return DataFrame(Scan(lance_source(uri, **options)))


@refusing_unknown("read_deltalake", READING)
def read_deltalake(table: Any, *, version: Any = None, storage_options: Mapping[str, Any] | None = None) -> DataFrame:
    """Read a Delta Lake table: a path, or a ``deltalake.DeltaTable``; ``version`` is a number or a time.

    Files are skipped if their partition or statistics exclude the filter.

    >>> import deltalake, pyarrow as pa
    >>> path = "words"
    >>> deltalake.write_deltalake(path, pa.table({"id": [1, 2], "word": ["to", "be"]}))
    >>> ps.read_deltalake(path).select("word").to_pydict()
    {'word': ['to', 'be']}
    """
    from penstock.io.tables.deltalake import delta_source

    return DataFrame(Scan(delta_source(table, version=version, storage_options=storage_options)))


@refusing_unknown("read_iceberg", READING)
def read_iceberg(
    table: Any,
    *,
    snapshot_id: int | None = None,
    branch: str | None = None,
    tag: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read an Iceberg table: a PyIceberg table, or the path of a metadata file; the current state, or a snapshot.

    Files are skipped if their partition or statistics exclude the filter. ``storage_options`` are PyIceberg's
    properties of the file system, for a path.
    """
    options = options_of(locals(), "table")
    from penstock.io.tables.iceberg import iceberg_source

    return DataFrame(Scan(iceberg_source(table, **options)))


@refusing_unknown("read_webdataset", READING, FileReading)
def read_webdataset(
    paths: Paths,
    *,
    decoder: Any = True,
    suffixes: Sequence[str] | None = None,
    schema: Mapping[str, Any] | None = None,
    max_sample_bytes: int = 2**30,
    **options: Unpack[FileReading],
) -> DataFrame:
    """Read WebDataset tar files: one row a sample, its key in ``__key__`` and its parts in columns named by extension.

    ``decoder=True`` decodes ``txt`` to text, ``cls`` and the like to integers, and ``json``; other parts, such
    as images, stay bytes. ``False`` decodes nothing; a function of a sample (a dict), or a list of them, is applied.
    ``suffixes`` picks extensions. The first samples decide the columns; ``schema`` adds others and overrides types.
    Nothing is extracted; a sample above ``max_sample_bytes`` is an error.
    ``train-{000..146}.tar`` names 147 shards, ``{train,val}.tar`` two.

    >>> import io, tarfile
    >>> path = "shard.tar"
    >>> with tarfile.open(path, "w") as tar:
    ...     for name, content in {"1.txt": b"one", "1.cls": b"7"}.items():
    ...         member = tarfile.TarInfo(name)
    ...         member.size = len(content)
    ...         tar.addfile(member, io.BytesIO(content))
    >>> ps.read_webdataset(path).to_pydict()
    {'__key__': ['1'], 'txt': ['one'], 'cls': [7]}
    """
    from penstock.io.formats.webdataset import shard_paths, webdataset_format

    format = webdataset_format(decoder=decoder, suffixes=suffixes, max_sample_bytes=max_sample_bytes)
    return read_file_format(format, shard_paths(paths), schema=schema, **options)


@refusing_unknown("read_numpy", READING, FileReading)
def read_numpy(paths: Paths, **options: Unpack[FileReading]) -> DataFrame:
    """Read .npy files: the first dimension of each array is the rows of the column ``data``.

    ``path_column`` adds the path of each row's file. Files with Python objects are an error, since they may run code.

    >>> import numpy as np
    >>> path = "a.npy"
    >>> np.save(path, np.arange(3))
    >>> ps.read_numpy(path).to_pydict()
    {'data': [0, 1, 2]}
    """
    from penstock.io.formats.numpy import NumpyFormat

    return read_file_format(NumpyFormat(), paths, **options)


@refusing_unknown("read_huggingface", READING)
def read_huggingface(
    repo: str | os.PathLike[str],
    *,
    split: str | None = None,
    format: str | None = None,
    revision: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    r"""Read a Hugging Face dataset: ``user/name``, an ``hf://`` path, or a local folder with the same layout.

    The files are Parquet, or else JSON, CSV, text or WebDataset tar files, unless ``format`` says which; ``split``
    picks the files of a split by their names. A repository without such files is read from the Parquet copy that the
    hub makes. With ``HF_HUB_OFFLINE=1`` the local cache is read. The token comes from ``HF_TOKEN`` or from logging in
    with ``hf auth login``; ``storage_options`` may hold ``token`` and ``endpoint``.

    >>> from pathlib import Path
    >>> folder = Path("folder")
    >>> folder.mkdir()
    >>> _ = (folder / "test.csv").write_text("a,b\n1,x\n")
    >>> _ = (folder / "train.csv").write_text("a,b\n2,y\n")
    >>> ps.read_huggingface(folder, split="train").to_pydict()
    {'a': [2], 'b': ['y']}
    """
    options = options_of(locals(), "repo")
    from penstock.io.tables.huggingface import huggingface_source

    return DataFrame(Scan(huggingface_source(repo, **options)))


def from_huggingface(dataset: Any) -> DataFrame:
    """Make a DataFrame from a ``datasets.Dataset``, streamed or not, without a copy of its rows.

    >>> import datasets
    >>> ps.from_huggingface(datasets.Dataset.from_dict({"a": [1, 2]})).to_pydict()
    {'a': [1, 2]}
    """
    from penstock.io.tables.huggingface import DatasetSource

    return DataFrame(Scan(DatasetSource(dataset)))


def from_torch(dataset: Any) -> DataFrame:
    """Make a DataFrame from a torch ``Dataset``, map-style or iterable: the column ``item`` holds its items.

    A tuple becomes a struct with the fields ``_0``, ``_1`` and so on, a dict one with its keys. Items are made while
    they are read; the first one determines the type.

    >>> import torch
    >>> ps.from_torch(torch.utils.data.TensorDataset(torch.arange(2), torch.arange(2) * 10)).to_pylist()
    [{'item': {'_0': 0, '_1': 0}}, {'item': {'_0': 1, '_1': 10}}]
    """
    from penstock.frame.read.torch_items import torch_rows

    return torch_rows(dataset)


def from_ray_dataset(dataset: Any) -> DataFrame:
    """Make a DataFrame from a ``ray.data.Dataset``, which is executed; its blocks stay in Ray's object store.

    Rows are fetched as the query needs them, so that the driver never holds them all.
    """
    from penstock.io.tables.ray_dataset import RayDatasetSource

    return DataFrame(Scan(RayDatasetSource(dataset)))
