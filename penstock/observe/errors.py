"""The rows on which functions failed in a query, as a table."""

from __future__ import annotations

from dataclasses import fields

import pyarrow as pa

from penstock.events import Event, QueryStarted, RowError, RowsFailed

NAMES = [field.name for field in fields(RowError)]
SCHEMA = pa.schema([(name, pa.string()) for name in NAMES])


class ErrorLog:
    """A Subscriber that keeps what ``df.errors()`` shows, of the last query it saw.

    >>> log = ErrorLog()
    >>> log.on_event(RowsFailed(1, (RowError("parse", '{"text": "x"}', "ValueError", "not a number", ""),)))
    >>> log.table().column("message").to_pylist()
    ['not a number']
    """

    def __init__(self) -> None:
        self.errors: list[RowError] = []

    def on_event(self, event: Event) -> None:
        match event:
            case RowsFailed(errors=errors):
                self.errors += errors
            case QueryStarted():
                self.errors.clear()

    def table(self) -> pa.Table:
        """Return one row for each, with all that is known of it as text."""
        columns = [pa.array([getattr(error, name) for error in self.errors], pa.string()) for name in NAMES]
        return pa.Table.from_arrays(columns, schema=SCHEMA)
