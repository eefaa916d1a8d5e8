"""Rows on their way into a SQLite database: in a file of their own beside it until they are committed.

To commit, or to write more than its cache holds, a writer of SQLite waits for all readers of the file to end. In a
query that reads the database it writes, a reader may be waiting for room that only the writer can make. So writers
leave the database alone until the query has read everything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.io.tables.databases import TableName, added, moved_within


class SqliteSession(Protocol):
    """What is needed of a session whose database is SQLite's, whichever driver it has."""

    def quoted(self, name: str) -> str: ...

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return what a statement gives."""
        ...

    def run(self, statements: Sequence[str]) -> None: ...


def attach(session: SqliteSession, name: str) -> TableName | None:
    """Make a file beside the database part of this connection and return the table in it; None if it is in memory."""
    path = _path(session, "main")
    if not path:
        return None
    place = f"{path}-{name}".replace("'", "''")
    session.run([f"ATTACH '{place}' AS {session.quoted(name)}"])
    return TableName(name, name)


def copied(session: Any, staging: TableName, table: TableName, columns: Sequence[str], is_new: bool) -> list[str]:
    """Return the statements that bring the rows of the file into the database."""
    copy = added(session, staging, table, columns)
    if not is_new:
        return [copy]
    found = session.rows(f"PRAGMA {session.quoted(staging.name)}.table_info({session.quoted(staging.name)})")
    defined = ", ".join(f"{session.quoted(column['name'])} {column['type']}".strip() for column in found)
    return [f"CREATE TABLE {table.quoted(session)} ({defined})", copy]


def detach(session: SqliteSession, staging: TableName) -> None:
    """Remove the file."""
    path = _path(session, staging.name)
    session.run([])  # ends the transaction, within which it could not be let go
    session.run([f"DETACH {session.quoted(staging.name)}"])
    for end in ("", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path + end)


def is_attached(staging: TableName) -> bool:
    return staging.schema == staging.name


def _path(session: SqliteSession, schema: str) -> str:
    found = session.rows("PRAGMA database_list")
    return next((str(row["file"] or "") for row in found if row["name"] == schema), "")


class StagesTables:
    """Where a session puts rows until they are committed: a table beside the target's, in SQLite a file."""

    def staging(self: Any, table: TableName, name: str) -> TableName:
        attached = attach(self, name) if self.is_sqlite else None
        return attached or table.beside(name)

    def moved(self: Any, staging: TableName, table: TableName, columns: Sequence[str], is_new: bool) -> list[str]:
        if is_attached(staging):
            return copied(self, staging, table, columns, is_new)
        return moved_within(self, staging, table, columns, is_new)

    def discard(self: Any, staging: TableName) -> None:
        if is_attached(staging):
            detach(self, staging)
        else:
            self.run([f"DROP TABLE IF EXISTS {staging.quoted(self)}"])
