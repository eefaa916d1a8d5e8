"""Failed rows of async tasks that share one handler: the context of each task has its own list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.observe.events import RowError

_recorded: ContextVar[list[RowError]] = ContextVar("recorded")


def record(error: RowError) -> None:
    """Record a failed row, within ``recording`` or a task started there."""
    _recorded.get().append(error)


@contextmanager
def recording() -> Iterator[list[RowError]]:
    """Provide the list of rows that are recorded meanwhile."""
    token = _recorded.set([])
    try:
        yield _recorded.get()
    finally:
        _recorded.reset(token)
