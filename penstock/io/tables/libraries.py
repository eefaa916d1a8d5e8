"""Read parts of tables by their libraries, and translate the errors of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import PathNotFoundError, PenstockError, ReadError, WriteError
from penstock.io.selection import Selection
from penstock.storage.object_stores import NO_BUCKET
from penstock.storage.storage_options import scrubbed

_NO_BUCKET_CODES = ("NoSuchBucket", "ContainerNotFound")  # of S3 and Google, and of Azure


@dataclass(eq=False)
class TableTask:
    """One part of a table. Its repr hides ``batches``, a picklable function that may hold credentials."""

    origin: tuple[str, str]
    source: str  # the reader and the table, in errors
    batches: Callable[[], Iterator[pa.RecordBatch]] = field(repr=False)
    selection: Selection
    num_rows: int | None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        return self.selection.apply(self.batches(), self.source)


@contextmanager
def store_errors(
    table: str,
    kind: type[ReadError] | type[WriteError] = ReadError,
    *,
    missing: type[Exception] = FileNotFoundError,
    also: tuple[type[Exception], ...] = (),
    secrets: tuple[str, ...] = (),
) -> Iterator[None]:
    """Raise ``kind`` with the library's message, without ``secrets``; ``table`` is text like "Delta table 'words'".

    ``missing`` is the error for a table that does not exist, ``also`` are further errors of the library.
    """
    try:
        yield
    except PenstockError:
        raise
    except (OSError, ValueError, RuntimeError, pa.ArrowException, missing, *also) as exc:
        message = scrubbed(str(exc), secrets)
        if any(code in message for code in _NO_BUCKET_CODES):
            message = f"its bucket {NO_BUCKET}"
        cause = exc if message == str(exc) else None  # a traceback would show what is hidden here
        if kind is WriteError:
            raise WriteError(f"Cannot write the {table}: {message}") from cause
        if isinstance(exc, missing):
            raise PathNotFoundError(f"There is no {table}: {message}") from cause
        raise ReadError(f"Cannot read the {table}: {message}") from cause
