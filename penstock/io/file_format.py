"""The interface between a scan over files and a file format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.errors import CorruptFileError, PathNotFoundError, PenstockError, ReadError
from penstock.io.data_file import DataFile
from penstock.protocols import DuckdbTable, ReadRequest
from penstock.types.row_ranges import RowRange


@dataclass(frozen=True)
class FilePart:
    """A part of a file that one task reads; ``detail`` locates it for the format.

    ``rows`` are the ranges of the rows of the file that it has, in order.
    """

    num_rows: int | None = None
    nbytes: int | None = None
    detail: Any = None
    rows: tuple[RowRange, ...] = (RowRange(0, None),)

    @property
    def label(self) -> str:
        """The part as text, by which a job recognises it."""
        return "all" if self.detail is None else repr(self.detail)


class FileFormat(Protocol):
    """A reader for files of one kind. Frozen and picklable; ``reading`` translates its errors."""

    name: ClassVar[str]
    """The format, as in ``read_<name>``."""

    suffixes: ClassVar[tuple[str, ...]]
    """The file name suffixes that a folder scan includes."""

    num_files_inferred: ClassVar[int] = 1
    """The number of files whose columns determine the schema; more than one only if reading their columns is cheap."""

    """Each part knows which rows of the file it has."""

    def parts(self, file: DataFile, schema: pa.Schema, request: ReadRequest) -> Iterator[FilePart]:
        """Yield the parts in row order; may omit parts where the predicate cannot be true."""
        yield FilePart(nbytes=file.size)

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, with at least the columns of ``schema`` that the file has."""

    def infer_schema(self, file: DataFile) -> pa.Schema | None:
        """Return the columns of a file, or None for an empty file without columns."""

    def sql_table(self, files: Sequence[DataFile], schema: pa.Schema) -> DuckdbTable | None:
        """Return the columns of ``schema`` in these files as a table of DuckDB; see ``DuckdbSource``."""
        return None


@contextmanager
def reading(file: DataFile) -> Iterator[None]:
    """Translate errors of Arrow and the operating system into one that names the file."""
    try:
        yield
    except PenstockError:
        raise
    except FileNotFoundError as exc:
        raise PathNotFoundError(f"File {str(file)!r} no longer exists; it did when the query was built.") from exc
    except OSError as exc:
        # An errno comes from the operating system; without one Arrow cannot parse the content.
        if exc.errno is not None:
            raise ReadError(f"Cannot read {str(file)!r}: {os.strerror(exc.errno)}") from exc
        raise CorruptFileError(f"Cannot read {str(file)!r}: {exc}") from exc
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowSerializationError, UnicodeDecodeError) as exc:
        raise CorruptFileError(f"Cannot read {str(file)!r}: {exc}") from exc
