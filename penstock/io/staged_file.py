"""Write one file: a ``StagedFile`` holds rows back until they make a block; a ``FileEncoding`` encodes them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.config import piece_nbytes
from penstock.io.commit.target import StagedFiles, StoredFile
from penstock.storage.durable import begin_sync
from penstock.types.plain import arrow_numbers

BLOCK_ROWS, BLOCK_NBYTES = 2**20, 32 * 2**20  # the data that a file writes at once, such as a row group
SMALL_NBYTES = 2**18  # smaller batches are joined: copying them is cheap, and one chunk encodes faster than several


class FileEncoder(Protocol):
    """One open file; ``close`` is always called, and called again if it fails."""

    def write(self, block: pa.Table) -> None: ...

    def close(self) -> None: ...


class FileEncoding(Protocol):
    """A file format for writing. Frozen and picklable."""

    @property
    def suffix(self) -> str:
        """The suffix of file names."""

    @property
    def replaces(self) -> tuple[str, ...]:
        """The suffixes of the old files that an overwrite deletes."""

    def check(self, schema: pa.Schema) -> None:
        """Raise an error that names the columns that the format cannot store."""

    def open(self, path: str, schema: pa.Schema) -> FileEncoder:
        """Create a file for rows of this schema."""


class StagedFile:
    """A file that is being written. It holds rows back until they make a block, and opens with the first block."""

    def __init__(self, name: str, schema: pa.Schema, encoding: FileEncoding, staging: StagedFiles) -> None:
        self.name = name
        self.num_rows = 0
        self.nbytes = 0
        self.nbytes_held = 0
        self._num_rows_held = 0
        self._held: list[pa.RecordBatch] = []
        self._schema = schema
        self._block_nbytes = piece_nbytes(BLOCK_NBYTES)
        self._encoding, self._staging = encoding, staging
        self._path: str | None = None
        self._encoder: FileEncoder | None = None

    @property
    def is_open(self) -> bool:
        return self._encoder is not None

    def write(self, batch: pa.RecordBatch) -> None:
        num_rows, nbytes = batch.num_rows, batch.nbytes
        if self._num_rows_held + num_rows > BLOCK_ROWS or self.nbytes_held + nbytes > self._block_nbytes:
            self.flush()
            if self._path is not None:
                begin_sync(self._path)
        self._held.append(batch)
        self._num_rows_held += num_rows
        self.nbytes_held += nbytes
        self.num_rows += num_rows
        self.nbytes += nbytes

    def flush(self) -> None:
        """Write the rows that are held back."""
        if self._held:
            is_small = self.nbytes_held < SMALL_NBYTES
            block = pa.Table.from_batches([pa.concat_batches(self._held)] if is_small else self._held)
            self._held, self._num_rows_held, self.nbytes_held = [], 0, 0
            self._open().write(block)

    def copy_held(self) -> None:
        """Copy the rows that are held back; as slices they would keep their whole batches in memory."""
        if self._held:
            self._held = [pa.concat_batches(self._held).take(arrow_numbers(np.arange(self._num_rows_held)))]

    def _open(self) -> FileEncoder:
        if self._encoder is None:
            self._path = self._staging.path_for(self.name)
            self._encoder = self._encoding.open(self._path, self._schema)
        return self._encoder

    def close(self) -> None:
        """Write all rows to the file and close it."""
        self.flush()
        self._open().close()

    def record(self, stored: StoredFile) -> dict[str, Any]:
        return file_record(self.name, self.num_rows, self._schema, stored)

    def discard(self) -> None:
        """Remove an unfinished file."""
        with contextlib.suppress(Exception):  # the query has already failed
            if self._encoder is not None:
                self._encoder.close()
        if self._path is not None:
            Path(self._path).unlink(missing_ok=True)


def file_record(name: str, num_rows: int, schema: pa.Schema, stored: StoredFile) -> dict[str, Any]:
    """Return the record of a stored file, for the commit and the journal of a job."""
    return {"path": name, "rows": num_rows, **stored._asdict(), "schema": schema.serialize().to_pybytes()}


def for_each_file(action: Callable[[StagedFile], None], files: Sequence[StagedFile]) -> None:
    """Apply ``action`` to all files, on as many threads as there are cores."""
    num_threads = max(1, min(os.cpu_count() or 1, len(files)))

    def act(number: int) -> None:
        for file in files[number::num_threads]:
            action(file)

    if num_threads < 2:
        act(0)
        return
    with ThreadPoolExecutor(num_threads) as threads:
        list(threads.map(act, range(num_threads)))
