"""Temporary files for what does not fit in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.config import get_config
from penstock.errors import WriteError


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
