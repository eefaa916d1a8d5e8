"""Load the optional libraries of tables, and translate their errors."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from penstock.errors import MissingExtraError, PathNotFoundError, PenstockError, ReadError, WriteError
from penstock.storage.options import scrubbed


def load_extra(module: str, extra: str, feature: str) -> Any:
    """Import a module of an optional package, or say how to install it.

    >>> load_extra("no_such_package.part", "lance", "read_lance")
    Traceback (most recent call last):
    ...
    penstock.errors.MissingExtraError: read_lance needs 'no_such_package', which is not installed.
    Run: pip install "penstock[lance]"
    """
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise MissingExtraError(module.partition(".")[0], extra, feature) from exc


@contextmanager
def store_errors(
    table: str,
    kind: type[ReadError] | type[WriteError] = ReadError,
    *,
    missing: type[Exception] = FileNotFoundError,
    also: tuple[type[Exception], ...] = (),
    secrets: tuple[str, ...] = (),
) -> Iterator[None]:
    """Raise ``kind`` with the library's message, without ``secrets``; ``table`` is such as "Delta table 'words'".

    ``missing`` is the error for a table that does not exist, ``also`` are further errors of the library.
    """
    try:
        yield
    except PenstockError:
        raise
    except (OSError, ValueError, RuntimeError, pa.ArrowException, missing, *also) as exc:
        message = scrubbed(str(exc), secrets)
        if kind is WriteError:
            raise WriteError(f"Cannot write the {table}: {message}") from exc
        if isinstance(exc, missing):
            raise PathNotFoundError(f"There is no {table}: {message}") from exc
        raise ReadError(f"Cannot read the {table}: {message}") from exc
