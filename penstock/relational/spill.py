"""Temporary files for what does not fit in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.config import get_config
from penstock.errors import WriteError

Place: TypeAlias = pa.RecordBatch | tuple[int, int, pa.Schema]
"""The place of a batch that was set aside: the batch itself in memory, or its start, bytes and columns in a file."""


def spill_folder() -> str:
    """Return the folder of temporary files."""
    return get_config().temp_dir or tempfile.gettempdir()


def spill_file() -> Any:
    """Open a file without a name in ``temp_dir``. The system frees it when it is closed or the process is killed."""
    with _naming_temp_dir():
        return tempfile.TemporaryFile(prefix="penstock-", dir=spill_folder())


def new_spill_folder() -> str:
    """Make an empty folder in ``temp_dir``."""
    with _naming_temp_dir():
        return tempfile.mkdtemp(prefix="penstock-", dir=spill_folder())


@contextmanager
def _naming_temp_dir() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise WriteError(f"temp_dir {spill_folder()!r} cannot be used: {exc.strerror}") from exc


def spill_error(relation: str, reason: str) -> WriteError:
    """Return the error of a relation whose rows cannot be written to ``temp_dir``."""
    return WriteError(
        f"{relation}: rows that do not fit in memory cannot be written to temp_dir ({spill_folder()}): {reason}. Free "
        "space there, or set another temp_dir or a larger memory_limit."
    )


class SpilledBatches:
    """Sets batches aside: the first ``most_nbytes`` in memory, the others in a nameless file. ``relation`` is its name
    in errors.
    """

    def __init__(self, relation: str, most_nbytes: int = 0) -> None:
        self._relation = relation
        self._room_nbytes = most_nbytes
        self._file: Any = None
        self._end = 0  # of the file

    def put(self, batch: pa.RecordBatch) -> Place:
        if batch.nbytes <= self._room_nbytes:
            self._room_nbytes -= batch.nbytes
            return batch
        if self._file is None:
            self._file = spill_file()
        start = self._end
        with self._naming_errors():
            self._end += self._file.write(batch.serialize())
        return start, self._end - start, batch.schema

    def get(self, place: Place) -> pa.RecordBatch:
        if isinstance(place, pa.RecordBatch):
            return place
        start, nbytes, schema = place
        with self._naming_errors():
            self._file.seek(start)
            return pa.ipc.read_record_batch(pa.py_buffer(self._file.read(nbytes)), schema)

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # writing the rest fails again if the disk is full
                self._file.close()

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise spill_error(self._relation, exc.strerror or str(exc)) from exc
