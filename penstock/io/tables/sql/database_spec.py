"""Databases as specs: a URL or a function that connects, opened where it is used, with its credentials hidden."""

from __future__ import annotations

import contextlib
import os
import re
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError, PathNotFoundError, PenstockError, ReadError, WriteError, load_extra
from penstock.io.tables.sql.adbc import AdbcSession
from penstock.io.tables.sql.alchemy import AlchemySession
from penstock.io.tables.sql.dbapi import DbapiSession, OneThreadConnection, is_dbapi
from penstock.io.tables.sql.driver import Session
from penstock.storage.urls import redacted

Connect = str | Callable[[], Any]

LOCK_TIMEOUT_S = 60.0  # time that a writer waits for another, since SQLite admits one at a time
SECRET_OPTIONS = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)


@dataclass(frozen=True)
class Database:
    """A database, by its URL or by a function that connects to it. Messages show ``label``."""

    connect: Connect = field(repr=False)
    label: str

    @classmethod
    def of(cls, conn: Any) -> Database:
        if is_dbapi(conn):
            raise InvalidArgumentError(
                "conn is an open connection, which workers and partitions cannot share: give a function that connects, "
                "such as lambda: sqlite3.connect('file.db'), or a URL."
            )
        if callable(conn):
            return cls(conn, f"{getattr(conn, '__name__', type(conn).__name__)}()")
        if not isinstance(conn, str) or "://" not in conn:
            raise InvalidArgumentError(
                "conn must be a URL such as 'postgresql://user@host/database' or 'sqlite:///file.db', "
                f"or a function that returns a connection; got {'text' if isinstance(conn, str) else repr(type(conn))}."
            )
        if conn.removesuffix(":memory:") in ("sqlite://", "sqlite:///"):
            raise InvalidArgumentError(
                "A SQLite database in memory is visible only to the connection that made it; name a file: "
                "'sqlite:///file.db'."
            )
        return cls(conn, label_of(conn))

    @contextlib.contextmanager
    def session(self, kind: type[ReadError] | type[WriteError], action: str) -> Iterator[Session]:
        """Connect for the duration of the context; errors name the action and the database."""
        with self.errors(kind, action):
            connection, session = self._opened(must_exist=issubclass(kind, ReadError))
            try:
                yield session
            finally:
                with contextlib.suppress(Exception):  # after a failure the user must see the first error
                    connection.rollback()
                connection.close()

    @contextlib.contextmanager
    def errors(self, kind: type[ReadError] | type[WriteError], action: str) -> Iterator[None]:
        """Translate errors of the driver, and hide passwords in their messages."""
        try:
            yield
        except PenstockError:
            raise
        except Exception as exc:
            if not _is_from_driver(exc):
                raise
            original, text = str(exc).strip(), self._reason(exc)
            for secret in self._secrets():
                text = text.replace(secret, "***")
            raise kind(f"{action} in {self.label} failed: {text}") from (exc if text == original else None)

    def _reason(self, exc: Exception) -> str:
        """Return the part of a driver's message that helps the user."""
        return str(exc).strip()

    def _secrets(self) -> list[str]:
        return [] if callable(self.connect) else secrets_of(self.connect)

    def _opened(self, *, must_exist: bool) -> tuple[Any, Session]:
        connection = self._connected(must_exist=must_exist)
        return connection, _session_of(connection)

    def _connected(self, *, must_exist: bool) -> Any:
        """Connect. SQLite creates a missing file, unless it ``must_exist``."""
        if callable(self.connect):
            connection = self.connect()
            if not is_dbapi(connection) or hasattr(connection, "adbc_get_info"):
                return connection
            connection.close()
            return OneThreadConnection(self.connect)
        scheme = self.connect.partition("://")[0].partition("+")[0]
        if scheme in ("postgresql", "postgres"):
            adbc = load_extra("adbc_driver_postgresql.dbapi", "sql", "PostgreSQL")
            return adbc.connect(f"postgresql://{self.connect.partition('://')[2]}")
        alchemy = load_extra("sqlalchemy", "sql", "A database other than PostgreSQL")
        options = {}
        if scheme == "sqlite":
            path = alchemy.make_url(self.connect).database or ""
            if must_exist and not path.startswith("file:") and not os.path.exists(path):
                raise PathNotFoundError(f"There is no SQLite database {path!r}.")
            options["timeout"] = LOCK_TIMEOUT_S
        return alchemy.create_engine(self.connect, poolclass=alchemy.pool.NullPool, connect_args=options).connect()


def _session_of(connection: Any) -> Session:
    """Return the session for a connection, which the user's function may have made."""
    if hasattr(connection, "adbc_get_info"):
        vendor = str(connection.adbc_get_info().get("vendor_name", "")).lower()
        return AdbcSession(connection, "postgresql" if vendor == "postgresql" else "other")
    if hasattr(connection, "exec_driver_sql"):
        return AlchemySession(connection)
    if isinstance(connection, OneThreadConnection):
        return DbapiSession(connection)
    raise InvalidArgumentError(
        "The function given as conn must return a connection of SQLAlchemy, of an ADBC driver or of a DB-API driver; "
        f"got {type(connection).__module__}.{type(connection).__name__}."
    )


def secrets_of(url: str) -> list[str]:
    """Return the secrets in a URL, both as written and decoded, the longest first.

    >>> secrets_of("postgresql://me:p%40ss@host/db?sslpassword=other")
    ['p%40ss', 'other', 'p@ss']
    """
    rest, _, query = url.partition("://")[2].partition("?")
    pairs = [pair.partition("=") for pair in query.split("&")]
    found = [value for key, _, value in pairs if SECRET_OPTIONS.search(key)]
    found.append(rest.rpartition("@")[0].partition(":")[2])
    variants = {text for secret in found for text in (secret, urllib.parse.unquote(secret)) if text}
    return sorted(variants, key=lambda text: (-len(text), text))


def label_of(url: str) -> str:
    """Return a URL for messages, without its credentials; SQLAlchemy allows a slash in them.

    >>> label_of("mysql://me:pa/ss@host/db?ssl=true"), label_of("sqlite:////data/a@b.db")
    ('mysql://***@host/db?ssl=true', 'sqlite:////data/a@b.db')
    """
    scheme, _, rest = url.partition("://")
    place, mark, query = rest.partition("?")
    if "@" in place and not place.startswith("/"):
        place = f"***@{place.rpartition('@')[2]}"
    return redacted(f"{scheme}://{place}{mark}{query}")


def _is_from_driver(exc: Exception) -> bool:
    modules = {cls.__module__.partition(".")[0] for cls in type(exc).__mro__}
    names = {cls.__name__ for cls in type(exc).__mro__}
    is_of_driver = names & {"DatabaseError", "InterfaceError"}  # as PEP 249 names them
    return bool(is_of_driver or modules & {"adbc_driver_manager", "sqlalchemy"}) or isinstance(
        exc, OSError | pa.ArrowException
    )
