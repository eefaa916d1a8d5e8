"""The seam between a scan over files and a format: what a new file format has to say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CorruptFileError, PathNotFoundError, PenstockError, ReadError
from penstock.io.files import DataFile


@dataclass(frozen=True)
class FilePart:
    """A part of a file that one task reads; ``detail`` is what the format needs to find it again."""

    num_rows: int | None = None
    nbytes: int | None = None
    detail: Any = None

    @property
    def text(self) -> str:
        """What part it is, for those who look for it again."""
        return "all" if self.detail is None else repr(self.detail)


class FileFormat(Protocol):
    """How files of one kind are read. Frozen and picklable; errors go through ``reading``."""

    @property
    def name(self) -> str:
        """The format, as in ``read_<name>``."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The endings of file names that a folder scan takes."""
        ...

    @property
    def num_files_inferred(self) -> int:
        """How many files are asked for their columns when a plan is built: more than one only where that is cheap."""
        ...

    def parts(self, file: DataFile, schema: pa.Schema, predicate: pc.Expression | None) -> Iterator[FilePart]:
        """Yield the parts in row order; those where ``predicate`` cannot be true may be left out."""
        ...

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, with at least those columns of ``schema`` that the file has."""
        ...

    def infer_schema(self, file: DataFile) -> pa.Schema | None:
        """Return the columns of a file, or None where it is empty and says nothing."""
        ...


@contextmanager
def reading(file: DataFile, where: str = "") -> Iterator[None]:
    """Translate what Arrow and the operating system raise into one error that names the file and the place in it."""
    place = f"{str(file)!r}{where and ', ' + where}"
    try:
        yield
    except PenstockError:
        raise
    except FileNotFoundError as exc:
        raise PathNotFoundError(f"File {str(file)!r} is gone; it was there when the query was built.") from exc
    except OSError as exc:
        # An errno comes from the operating system; without one it is Arrow that cannot make sense of the content.
        if exc.errno is not None:
            raise ReadError(f"Cannot read {place}: {os.strerror(exc.errno)}") from exc
        raise CorruptFileError(f"Cannot read {place}: {exc}") from exc
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowSerializationError, UnicodeDecodeError) as exc:
        raise CorruptFileError(f"Cannot read {place}: {exc}") from exc
