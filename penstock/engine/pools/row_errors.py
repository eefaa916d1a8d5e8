"""Where rows that failed are put by async tasks that share one handler: each task's context has a list of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.observe.events import RowError

_recorded: ContextVar[list[RowError]] = ContextVar("recorded")


def record(error: RowError) -> None:
    """Note a row that failed, from within ``recording`` or a task started there."""
    _recorded.get().append(error)


@contextmanager
def recording() -> Iterator[list[RowError]]:
    """Give the list of what is recorded meanwhile."""
    token = _recorded.set([])
    try:
        yield _recorded.get()
    finally:
        _recorded.reset(token)
