"""Connections to databases: PostgreSQL and SQLite through ADBC, which speaks Arrow; all others through SQLAlchemy.

A ``Database`` is data that travels and shows no credentials; a ``Session`` is one open connection of it. Whatever a
driver raises is translated here, and scrubbed of what must not be printed.
"""

from __future__ import annotations

import contextlib
import os
import re
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pyarrow as pa

from penstock.errors import InvalidArgumentError, PathNotFoundError, PenstockError, ReadError, WriteError
from penstock.io.extras import load_extra

Connect = str | Callable[[], Any]
Dialect = Literal["postgresql", "sqlite", "other"]

HIDDEN = "***"
_SECRET_OPTIONS = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)


@dataclass(frozen=True)
class ResultColumn:
    """A column of a query's result; ``cast`` is the type that the database must turn it into for us to read it.

    ``is_numeric`` says that it is PostgreSQL's ``numeric``.
    """

    name: str
    dtype: pa.DataType
    cast: str | None = None
    is_numeric: bool = False


@dataclass(frozen=True)
class Described:
    """What is known of a query before it is run: its columns, and how many of its rows make a batch."""

    columns: tuple[ResultColumn, ...]
    batch_rows: int | None = None


class Session(Protocol):
    """One open connection. Used by one thread at a time; its owner closes it."""

    dialect: Dialect

    def describe(self, query: str) -> Described:
        """Return the columns of a query, having read its beginning at most."""
        ...

    def batches(
        self, query: str, batch_rows: int | None = None, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Run a query and yield its rows as they come; ``schema`` says what its columns were found to be."""
        ...

    def create(self, table: TableName, schema: pa.Schema) -> None:
        """Create a table for rows of ``schema``, which ``storable`` gave."""
        ...

    def insert(self, table: TableName, batch: pa.RecordBatch) -> None:
        """Add rows to a table and commit."""
        ...

    def run(self, statements: Sequence[str]) -> None:
        """Run statements in one transaction."""
        ...

    def staging(self, table: TableName, name: str) -> TableName:
        """Return the table in which rows for ``table`` are staged, from now on within reach of this connection."""
        ...

    def moved(self, staging: TableName, table: TableName, columns: Sequence[str], is_new: bool) -> list[str]:
        """Return the statements that make the staged rows those of a new table, or add them to the one there is."""
        ...

    def discard(self, staging: TableName) -> None:
        """Remove what was staged, or what is left of it."""
        ...

    def table_columns(self, table: TableName) -> list[str] | None:
        """Return the names of a table's columns, or None if there is no such table."""
        ...

    def storable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows in types that the database has; what it has no type for becomes JSON."""
        ...

    def quoted(self, name: str) -> str:
        """Return a name as it is written in a statement."""
        ...

    def close(self) -> None:
        """End the connection; what is not committed is undone."""
        ...


@dataclass(frozen=True)
class TableName:
    """A table, with the schema it lies in where that is named: ``"sales.orders"``."""

    name: str
    schema: str | None = None

    @classmethod
    def parsed(cls, text: Any) -> TableName:
        parts = text.split(".") if isinstance(text, str) else []
        if not (1 <= len(parts) <= 2 and all(parts)):
            raise InvalidArgumentError(f"table_name={text!r} must be 'table' or 'schema.table'.")
        return cls(parts[-1], parts[0] if len(parts) == 2 else None)

    def beside(self, name: str) -> TableName:
        """Return another table of the same schema."""
        return TableName(name, self.schema)

    def quoted(self, session: Session) -> str:
        return ".".join(session.quoted(part) for part in (self.schema, self.name) if part is not None)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True)
class Database:
    """A database, by its URL or by a function that connects to it."""

    connect: Connect = field(repr=False)
    shown: str

    @classmethod
    def of(cls, conn: Any) -> Database:
        if callable(conn):
            return cls(conn, f"{getattr(conn, '__name__', type(conn).__name__)}()")
        if not isinstance(conn, str) or "://" not in conn:
            raise InvalidArgumentError(
                "conn must be a URL such as 'postgresql://user@host/database' or 'sqlite:///file.db', "
                f"or a function that returns a connection; got {'text' if isinstance(conn, str) else repr(type(conn))}."
            )
        if conn.removesuffix(":memory:") in ("sqlite://", "sqlite:///"):
            raise InvalidArgumentError(
                "A SQLite database in memory is seen by the one connection that made it; name a file: "
                "'sqlite:///file.db'."
            )
        return cls(conn, shown_url(conn))

    def open(self, *, must_exist: bool = False) -> Session:
        """Connect. SQLite would make a file that is not there; not where it ``must_exist``."""
        if callable(self.connect):
            return _session_of(self.connect())
        scheme = self.connect.partition("://")[0].partition("+")[0]
        if scheme in ("postgresql", "postgres"):
            adbc = load_extra("adbc_driver_postgresql.dbapi", "sql", "PostgreSQL")
            return _adbc_session(adbc.connect(f"postgresql://{self.connect.partition('://')[2]}"), "postgresql")
        if scheme == "sqlite":
            adbc = load_extra("adbc_driver_sqlite.dbapi", "sql", "SQLite")
            path = _sqlite_path(self.connect)
            if must_exist and not path.startswith("file:") and not os.path.exists(path):
                raise PathNotFoundError(f"There is no SQLite database {path!r}.")
            return _adbc_session(adbc.connect(path), "sqlite")
        alchemy = load_extra("sqlalchemy", "sql", "A database other than PostgreSQL and SQLite")
        return _session_of(alchemy.create_engine(self.connect, poolclass=alchemy.pool.NullPool).connect())

    @contextlib.contextmanager
    def session(self, kind: type[ReadError] | type[WriteError], doing: str) -> Iterator[Session]:
        """Connect for as long as the context lasts; errors say what was being done, and where."""
        with self.errors(kind, doing):
            session = self.open(must_exist=issubclass(kind, ReadError))
            try:
                yield session
            finally:
                session.close()

    @contextlib.contextmanager
    def errors(self, kind: type[ReadError] | type[WriteError], doing: str) -> Iterator[None]:
        """Translate what a driver raises; a message with a password in it is not passed on."""
        try:
            yield
        except PenstockError:
            raise
        except Exception as exc:
            if not _is_from_driver(exc):
                raise
            text = str(exc).strip()
            secrets = [] if callable(self.connect) else secrets_of(self.connect)
            is_clean = not any(secret in text for secret in secrets)
            for secret in secrets:
                text = text.replace(secret, HIDDEN)
            raise kind(f"{doing} in {self.shown} failed: {text}") from (exc if is_clean else None)


def shown_url(url: str) -> str:
    """Return a URL without what must not be printed.

    >>> shown_url("postgresql://me:secret@host/db?sslpassword=secret&connect_timeout=3")
    'postgresql://me:***@host/db?sslpassword=***&connect_timeout=3'
    """
    scheme, _, rest = url.partition("://")
    rest, has_query, query = rest.partition("?")
    user, at, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    pairs = [pair.partition("=") for pair in query.split("&")]
    options = "&".join(f"{key}={HIDDEN if _SECRET_OPTIONS.search(key) else value}" for key, _, value in pairs)
    return f"{scheme}://{name}{colon and ':' + HIDDEN}{at}{place}{has_query and '?' + options}"


def secrets_of(url: str) -> list[str]:
    """Return what of a URL must not be printed, as it stands there and decoded, the longest first.

    >>> secrets_of("postgresql://me:p%40ss@host/db?sslpassword=other")
    ['p%40ss', 'other', 'p@ss']
    """
    rest, _, query = url.partition("://")[2].partition("?")
    found = [rest.rpartition("@")[0].partition(":")[2]]
    found += [value for key, _, value in (pair.partition("=") for pair in query.split("&"))
              if _SECRET_OPTIONS.search(key)]  # fmt: skip
    variants = {text for secret in found for text in (secret, urllib.parse.unquote(secret)) if text}
    return sorted(variants, key=lambda text: (-len(text), text))


def _sqlite_path(url: str) -> str:
    """Return the file of ``sqlite:///relative`` or ``sqlite:////absolute``, as SQLAlchemy writes them."""
    return urllib.parse.unquote(url.partition("://")[2].partition("?")[0].removeprefix("/"))


def _session_of(connection: Any) -> Session:
    if hasattr(connection, "adbc_get_info"):
        vendor = str(connection.adbc_get_info().get("vendor_name", "")).lower()
        return _adbc_session(connection, vendor if vendor in ("postgresql", "sqlite") else "other")
    if hasattr(connection, "exec_driver_sql"):
        from penstock.io.tables.alchemy import AlchemySession

        return AlchemySession(connection)
    raise InvalidArgumentError(
        "The function given as conn must return a connection of SQLAlchemy or of an ADBC driver; "
        f"got {type(connection).__module__}.{type(connection).__name__}."
    )


def moved_within(
    session: Session, staging: TableName, table: TableName, names: Sequence[str], is_new: bool
) -> list[str]:
    """Return the statements of ``Session.moved`` where both tables are in one database."""
    if is_new:
        return [f"ALTER TABLE {staging.quoted(session)} RENAME TO {session.quoted(table.name)}"]
    return [added(session, staging, table, names), f"DROP TABLE {staging.quoted(session)}"]


def added(session: Session, staging: TableName, table: TableName, names: Sequence[str]) -> str:
    """Return the statement that adds the staged rows to a table."""
    columns = ", ".join(map(session.quoted, names))
    return f"INSERT INTO {table.quoted(session)} ({columns}) SELECT {columns} FROM {staging.quoted(session)}"


def _adbc_session(connection: Any, dialect: Any) -> Session:
    from penstock.io.tables.adbc import AdbcSession

    return AdbcSession(connection, dialect)


def _is_from_driver(exc: Exception) -> bool:
    modules = {cls.__module__.partition(".")[0] for cls in type(exc).__mro__}
    return bool(modules & {"adbc_driver_manager", "sqlalchemy"}) or isinstance(exc, OSError | pa.ArrowException)


def nested(query: str) -> str:
    """Return a query to select from; on lines of its own, so that a comment at its end ends there.

    >>> nested("SELECT 1 AS a -- one")
    '(\\nSELECT 1 AS a -- one\\n)'
    """
    return f"(\n{query}\n)"
