"""The failed rows of a query: in memory while they are few, then in temporary files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.config import get_config
from penstock.events.events import Event, QueryStarted, RowError, RowsFailed
from penstock.types.ipc import from_ipc, to_ipc
from penstock.types.plain import arrow_array

# A narrow screen leaves out columns in the middle: which row failed stands first, and why stands last.
TEXTS = ("operator", "input", "traceback", "error_type", "message")
SCHEMA = pa.schema([("row", pa.int64()), ("source", pa.string()), *((name, pa.string()) for name in TEXTS)])

MAX_HELD_CHARS = 16 << 20  # characters in memory; a traceback has about a thousand


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
        self._spilled: list[pa.RecordBatch] = []

    @property
    def num_rows(self) -> int:
        return len(self._held) + int(sum(batch.num_rows for batch in self._spilled))

    def on_event(self, event: Event) -> None:
        match event:
            case RowsFailed(errors=errors):
                for error in errors:
                    self._held.append(error)
                    self._num_held_chars += sum(len(getattr(error, name)) for name in TEXTS)
                    if self._num_held_chars > self._max_held_chars:
                        self._spill()
            case QueryStarted():
                self._clear_held()
                self._spilled = []

    def batches(self) -> list[pa.RecordBatch]:
        """Return one row for each error, in order. Spilled batches are read from their file as needed."""
        return [*self._spilled, batch_of(self._held)] if self._held else list(self._spilled)

    def _spill(self) -> None:
        try:
            self._spilled.append(spilled(batch_of(self._held), self._folder))
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


def spilled(batch: pa.RecordBatch, folder: str | None) -> pa.RecordBatch:
    """Return an equal batch whose memory is mapped from a nameless file, which disappears with the batch."""
    import tempfile

    with tempfile.TemporaryFile(prefix="penstock-errors-", dir=folder) as file:
        file.write(to_ipc(batch))
        file.flush()
        with pa.memory_map(f"/dev/fd/{file.fileno()}") as mapped:
            return from_ipc(mapped.read_buffer())


def batch_of(errors: Sequence[RowError]) -> pa.RecordBatch:
    """Return errors as rows of a table."""
    columns = [arrow_array([getattr(error, field.name) for error in errors], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
