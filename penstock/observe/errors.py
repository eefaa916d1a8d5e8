"""The failed rows of a query: in memory while they are few, then in a temporary file."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import pyarrow as pa

from penstock.config import get_config
from penstock.observe.events import Event, QueryStarted, RowError, RowsFailed
from penstock.types.ipc import from_ipc, to_ipc

NAMES = [field.name for field in fields(RowError) if field.name != "row"]
SCHEMA = pa.schema([(name, pa.string()) for name in NAMES])

MAX_HELD_CHARS = 16 << 20  # of text in memory; a traceback has about a thousand


class ErrorLog:
    """A Subscriber with the failed rows of the last query, for ``df.errors()``.

    >>> log = ErrorLog()
    >>> log.on_event(RowsFailed(1, (RowError("parse", '{"text": "x"}', "ValueError", "not a number", ""),)))
    >>> log.num_rows, [batch.column("message").to_pylist() for batch in log.batches()]
    (1, [['not a number']])
    """

    def __init__(self, max_held_chars: int = MAX_HELD_CHARS) -> None:
        self._max_held_chars = max_held_chars
        self._folder = get_config().temp_dir or None
        self._held: list[RowError] = []
        self._num_held_chars = 0
        self._spilled: list[Spilled] = []
        self._file: SpillFile | None = None

    @property
    def num_rows(self) -> int:
        return sum(part.num_rows for part in self._spilled) + len(self._held)

    def on_event(self, event: Event) -> None:
        match event:
            case RowsFailed(errors=errors):
                for error in errors:
                    self._held.append(error)
                    self._num_held_chars += sum(len(getattr(error, name)) for name in NAMES)
                    if self._num_held_chars > self._max_held_chars:
                        self._spill()
            case QueryStarted():
                self._clear_held()
                self._spilled, self._file = [], None

    def parts(self) -> Sequence[Spilled | pa.RecordBatch]:
        """Return the rows in order: the spilled batches, which are read on demand, then those in memory."""
        return [*self._spilled, _batch_of(self._held)] if self._held else list(self._spilled)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield one row of text for each error, with at most one spilled batch in memory."""
        for part in self.parts():
            yield part.read() if isinstance(part, Spilled) else part

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = SpillFile(self._folder)
            self._spilled.append(self._file.add(_batch_of(self._held)))
        except OSError as exc:
            exc.add_note(
                f"{self.num_rows:,} rows failed, and errors() keeps them in a temporary file. Set temp_dir to a "
                "folder with more room, or max_errors so that the query ends sooner."
            )
            raise
        self._clear_held()

    def _clear_held(self) -> None:
        self._held.clear()
        self._num_held_chars = 0


class SpillFile:
    """A file without a name that holds batches. It disappears with its last reference or with the process."""

    def __init__(self, folder: str | None) -> None:
        import tempfile

        with tempfile.TemporaryFile(prefix="penstock-errors-", dir=folder) as file:
            self._fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._fd)
        self._nbytes = 0

    def add(self, batch: pa.RecordBatch) -> Spilled:
        data = memoryview(to_ipc(batch, "zstd"))
        written = Spilled(self, self._nbytes, len(data), batch.num_rows)
        while data:
            count = os.write(self._fd, data)
            self._nbytes += count
            data = data[count:]
        return written

    def read(self, offset: int, nbytes: int) -> pa.RecordBatch:
        return from_ipc(pa.py_buffer(os.pread(self._fd, nbytes, offset)))


@dataclass(frozen=True, slots=True)
class Spilled:
    """A batch in a file, which it keeps open."""

    file: SpillFile
    offset: int
    nbytes: int
    num_rows: int

    def read(self) -> pa.RecordBatch:
        return self.file.read(self.offset, self.nbytes)


def _batch_of(errors: Sequence[RowError]) -> pa.RecordBatch:
    columns = [pa.array([getattr(error, name) for error in errors], pa.string()) for name in NAMES]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
