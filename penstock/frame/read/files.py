"""Make a DataFrame from files. A format is imported when it is first read, which keeps ``import penstock`` fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.expr.column import col
from penstock.frame.dataframe import DataFrame
from penstock.frame.option_lines import READING, FolderReading, TableReading
from penstock.frame.read.memory import from_table
from penstock.plan.nodes import Scan
from penstock.types import DataType, to_arrow_array
from penstock.types.plain import arrow_array
from penstock.udf.options import error_policy, refusing_unknown

if TYPE_CHECKING:
    from penstock.functions.calls import MediaOnError
    from penstock.io.data_file import DataFile
    from penstock.io.file_format import FileFormat
    from penstock.io.files import Paths

StorageOptions = Mapping[str, Any] | None


def read_file_format(format: FileFormat, path: Paths, **options: Any) -> DataFrame:
    from penstock.io.file_source import FileSource

    return DataFrame(Scan(FileSource(format, path, **options)))


@refusing_unknown("read_parquet", READING, TableReading)
def read_parquet(path: Paths, **options: Unpack[TableReading]) -> DataFrame:
    """Read Parquet files: one path, a list, a pattern such as ``data/**/*.parquet``, or a folder with all below it.

    The first file decides the columns; a column that a later file lacks is null there. A column has a type that
    holds its values in the first 32 files; values of later files are cast. Values in ``key=value`` folders below
    ``path`` are columns if all files have them and their content has not; ``hive_partitioning=True`` takes columns from
    the whole path and prefers them to the content.

    >>> path = "numbers"
    >>> _ = ps.from_pydict({"a": [1, 2]}).write_parquet(path)
    >>> ps.read_parquet(path).to_pydict()
    {'a': [1, 2]}
    """
    from penstock.io.formats.parquet import ParquetFormat

    return read_file_format(ParquetFormat(), path, **options)


@refusing_unknown("read_csv", READING, TableReading)
def read_csv(
    path: Paths,
    *,
    encoding: str = "utf-8",
    has_headers: bool = True,
    delimiter: str | None = None,
    double_quote: bool = True,
    quote: str | None = None,
    escape_char: str | None = None,
    null_values: Sequence[str] = ("",),
    strings_can_be_null: bool = True,
    **options: Unpack[TableReading],
) -> DataFrame:
    r"""Read CSV files, plain or compressed (``.gz``, ``.bz2``, ``.zst``, ``.lz4``). Paths are as in ``read_parquet``.

    Types are inferred from the beginning of the first file and apply to all files. Without headers the columns are
    ``column_1``, ``column_2`` and so on, or with ``infer_schema=False`` the names in ``schema``, in order. Fields that
    equal one of ``null_values`` and are not quoted are null; ``strings_can_be_null=False`` leaves them in text columns.
    Rows of another length are an error. ``encoding`` is one of Python's, such as ``"latin-1"`` or ``"utf-16"``. The
    other options are as in ``read_parquet``.

    >>> from pathlib import Path
    >>> path = Path("numbers.csv")
    >>> _ = path.write_text("a,b\n1,x\n2,\n")
    >>> ps.read_csv(path).to_pydict()
    {'a': [1, 2], 'b': ['x', None]}
    """
    from penstock.io.formats.csv import CsvFormat

    format = CsvFormat(
        encoding=encoding,
        delimiter=delimiter or ",",
        has_headers=has_headers,
        quote=quote or '"',
        double_quote=double_quote,
        escape_char=escape_char,
        null_values=tuple(null_values),
        strings_can_be_null=strings_can_be_null,
        column_names=None if has_headers or options.get("infer_schema", True) else tuple(options.get("schema") or ()),
    )
    return read_file_format(format, path, **options)


@refusing_unknown("read_json", READING, TableReading)
def read_json(path: Paths, **options: Unpack[TableReading]) -> DataFrame:
    r"""Read JSON files: one object a line, one array of objects, or one object over several lines.

    Types are inferred from the beginning of the first file; text that looks like a date stays text. A column of mixed
    types becomes text, and so does a column that ``schema`` declares as text: other values appear as JSON. ``schema``
    also reads the forms that ``write_json`` gives to bytes (base64), times and durations (seconds). Compressed files
    are decompressed. The options are as in ``read_parquet``.

    >>> from pathlib import Path
    >>> path = Path("numbers.jsonl")
    >>> _ = path.write_text('{"a": 1}\n{"a": 2, "b": [3]}\n')
    >>> ps.read_json(path).to_pydict()
    {'a': [1, 2], 'b': [None, [3]]}
    """
    from penstock.io.formats.json import JsonFormat

    return read_file_format(JsonFormat(), path, **options)


@refusing_unknown("read_text", READING, FolderReading)
def read_text(
    path: Paths,
    *,
    encoding: str = "utf-8",
    skip_blank_lines: bool = True,
    whole_text: bool = False,
    **options: Unpack[FolderReading],
) -> DataFrame:
    r"""Read text files into the column ``text``: one row a line, or one row a file with ``whole_text``.

    >>> from pathlib import Path
    >>> path = Path("poem.txt")
    >>> _ = path.write_text("Roses are red,\n\nviolets are blue.\n")
    >>> ps.read_text(path).to_pydict()
    {'text': ['Roses are red,', 'violets are blue.']}
    """
    from penstock.io.formats.text import TextFormat

    return read_file_format(TextFormat(encoding, skip_blank_lines, whole_text), path, **options)


@refusing_unknown("read_images", READING)
def read_images(
    path: Paths,
    *,
    width: int | None = None,
    height: int | None = None,
    size: tuple[int, int] | None = None,
    mode: str | None = "RGB",
    path_column: str | None = None,
    scaled: bool = True,
    on_error: MediaOnError = "raise",
    ignore_corrupt_files: bool = False,
    storage_options: StorageOptions = None,
) -> DataFrame:
    """Read image files (JPEG, PNG, WebP, GIF, BMP, TIFF) into the column ``image``, upright as EXIF says.

    ``width`` and ``height``, given together, resize every image (``size`` takes them in Ray Data's order, height
    first); with a ``mode`` they make a batch of images one array. A ``mode`` of None keeps the mode of each image.
    ``path_column`` adds the path of each row's file. A file that cannot be read or decoded stops the query; with
    ``on_error="null"`` its image is null and ``errors()`` lists it. ``ignore_corrupt_files`` leaves out files that
    cannot be decoded; ``errors()`` and the log list them. ``scaled`` is as in ``decode_image``; paths and the other
    options are as in ``read_parquet``.

    >>> import numpy as np
    >>> folder = "images"
    >>> df = ps.from_pydict({"image": [np.zeros((20, 30, 3), np.uint8)]}).select(ps.col("image").cast("image"))
    >>> _ = df.write_images(folder, "image")
    >>> ps.read_images(folder, width=8, height=8).schema["image"].dtype
    image[RGB; 8x8]
    """
    size = size_of("read_images", width, height, size)
    from penstock.functions.calls import decode_call
    from penstock.io.formats.images import SUFFIXES
    from penstock.media.images.decoder import checked_decoder

    decoder = checked_decoder("read_images", mode, size, is_scaled=scaled)
    if error_policy("read_images", on_error) != "raise" and ignore_corrupt_files:
        raise InvalidArgumentError(f"read_images takes ignore_corrupt_files=True or on_error={on_error!r}, not both")
    if path_column == "image":
        raise InvalidArgumentError("path_column='image' is the column of the images; choose another name.")
    name = path_column or "path"
    contents = _contents("read_images", name, path, SUFFIXES, on_error=on_error, storage_options=storage_options)
    images = decode_call(col("bytes"), decoder, "log" if ignore_corrupt_files else on_error)
    rows = contents.select(images.alias("image"), col(name))
    rows = rows.where(col("image").not_null()) if ignore_corrupt_files else rows
    return rows if path_column else rows.select("image")


def size_of(reader: str, width: int | None, height: int | None, size: Any = None) -> Any:
    """Return the height and width to resize to, or None to keep each image's size."""
    if (width is None) != (height is None):
        raise InvalidArgumentError(f"{reader} takes width= and height= together.")
    if width is None:
        return size
    if size is not None:
        raise InvalidArgumentError(f"{reader}: give width= and height=, or size=(height, width).")
    return height, width


@refusing_unknown("from_glob_path")
def from_glob_path(path: Paths, *, storage_options: StorageOptions = None) -> DataFrame:
    """List files, with the columns ``path``, ``size`` in bytes and ``num_rows``, which is always null.

    A pattern matches hidden files too, and a folder stands for the files in it, not below it. ``storage_options`` then
    apply to the buckets of these files everywhere, so that ``download`` and functions can read them.

    >>> from pathlib import Path
    >>> folder = Path("folder")
    >>> folder.mkdir()
    >>> _ = (folder / "a.txt").write_text("hello")
    >>> ps.from_glob_path(folder / "*.txt").select("size", "num_rows").to_pydict()
    {'size': [5], 'num_rows': [None]}
    """
    files = _listed(path, storage_options, hidden=True)
    columns = [
        arrow_array([file.url for file in files], pa.string()),
        arrow_array([file.size for file in files], pa.int64()),
        pa.nulls(len(files), pa.int64()),
    ]
    return from_table(pa.table(columns, names=["path", "size", "num_rows"]), "from_glob_path", files)


@refusing_unknown("from_files")
def from_files(path: Paths, *, storage_options: StorageOptions = None) -> DataFrame:
    """List files as ``ps.File`` values in the column ``file``: one path, a list, a pattern or a folder. Reads no file.

    ``storage_options`` then apply to the buckets of these files everywhere, so that functions can read them.

    >>> from pathlib import Path
    >>> folder = Path("folder")
    >>> folder.mkdir()
    >>> _ = (folder / "a.txt").write_text("hello")
    >>> ps.from_files(folder / "*.txt").select(ps.col("file").file_size()).to_pydict()
    {'file': [5]}
    """
    files = _listed(path, storage_options)
    column = to_arrow_array([file.url for file in files], DataType.file(), what="column 'file'")
    return from_table(pa.table([column], names=["file"]), "from_files", files)


def _listed(path: Paths, storage_options: StorageOptions, hidden: bool = False) -> tuple[DataFile, ...]:
    """Return files, and make the options of their stores known to functions."""
    from penstock.io.files import find_files
    from penstock.storage.storage_options import share_options

    files = find_files(path, storage_options=storage_options, descend=False, hidden=hidden)
    share_options([file.url for file in files], storage_options)
    return files


@refusing_unknown("read_binary_files", READING)
def read_binary_files(
    path: Paths,
    *,
    path_column: str | None = None,
    max_connections: int = 32,
    on_error: str = "raise",
    storage_options: StorageOptions = None,
) -> DataFrame:
    """Read whole files into the column ``bytes``, a row a file; paths are as in ``read_parquet``.

    ``path_column`` adds the path of each file. Files are read as by
    ``download``: ``max_connections`` at once, and with ``on_error="null"`` an unreadable file is null.

    >>> from pathlib import Path
    >>> folder = Path("folder")
    >>> folder.mkdir()
    >>> _ = (folder / "a.bin").write_bytes(b"hello")
    >>> ps.read_binary_files(folder).to_pydict()
    {'bytes': [b'hello']}
    """
    if path_column == "bytes":
        raise InvalidArgumentError("path_column='bytes' is the column of the contents; choose another name.")
    contents = _contents(
        "read_binary_files",
        path_column or "path",
        path,
        max_connections=max_connections,
        on_error=on_error,
        storage_options=storage_options,
    )
    return contents if path_column else contents.select("bytes")


def _contents(
    reader: str,
    name: str,
    path: Paths,
    suffixes: Sequence[str] = (),
    *,
    max_connections: int = 32,
    on_error: str,
    storage_options: StorageOptions,
) -> DataFrame:
    """Return whole files: their ``bytes``, and their paths in the column ``name``."""
    from penstock.functions.files import download
    from penstock.io.files import find_files

    files = find_files(path, suffixes, storage_options)
    urls = arrow_array([file.url for file in files], pa.string())
    listing = from_table(pa.table([urls], names=[name]), reader, files)
    content = download(col(name), max_connections, on_error, allow="any", storage_options=storage_options)
    return listing.select(content.alias("bytes"), col(name))
