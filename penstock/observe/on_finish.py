"""Tell a function or a webhook how a write ended."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.observe.closing_line import QueryTotals, closing_line, query_totals
from penstock.observe.stats import Stats, ended_by
from penstock.protocols import Subscriber
from penstock.types.frozen import frozen

log = logging.getLogger("penstock")

MAX_WAIT_S = 10.0
MAX_ERROR_CHARS = 2_000


@frozen
class WriteOutcome(QueryTotals):
    """The end of a write: ``state`` is "finished", "failed" or "stopped". The figures are about this run.

    ``text`` sums it up in one line; chat services show this field of a webhook's JSON.
    """

    output: str
    state: str
    error: str | None
    text: str


OnFinish = Callable[[WriteOutcome], object] | str


@contextmanager
def telling(on_finish: OnFinish | None, output: str, subscribers: list[Subscriber]) -> Iterator[None]:
    """Call ``on_finish`` when the block ends, also by an error. ``subscribers`` must listen to the block's query. A
    subscriber that counts rows and calls joins them if they have none.
    """
    if on_finish is None:
        yield
        return
    if not callable(on_finish) and not str(on_finish).startswith(("http://", "https://")):
        raise InvalidArgumentError(f"on_finish= takes a function or the http(s) URL of a webhook; got {on_finish!r}")
    stats = next((each for each in subscribers if isinstance(each, Stats)), None)
    if stats is None:
        subscribers.append(stats := Stats())
    began_s, error = time.monotonic(), None
    try:
        yield
    except BaseException as exc:
        error = exc
        raise
    finally:
        _tell(on_finish, write_outcome(stats, error, time.monotonic() - began_s, output))


def write_outcome(stats: Stats, error: BaseException | None, elapsed_s: float, output: str) -> WriteOutcome:
    """Return how a write ended, from the statistics of its query."""
    return WriteOutcome(
        **asdict(query_totals(stats, elapsed_s)),
        output=output,
        state="finished" if error is None else ended_by(error),
        error=None if error is None else f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS],
        text=f"{output}: {closing_line(stats, error, elapsed_s)}",
    )


def _tell(on_finish: OnFinish, outcome: WriteOutcome) -> None:
    """Call a function or a webhook, for a bounded time. A failure is one line in the log: the write has ended."""

    def call() -> None:
        try:
            if callable(on_finish):
                on_finish(outcome)
            else:
                _post(on_finish, asdict(outcome))
        except Exception as exc:
            log.warning("on_finish failed: %s: %s", type(exc).__name__, " ".join(str(exc).split()))

    thread = threading.Thread(target=copy_context().run, args=(call,), name="penstock-on-finish", daemon=True)
    thread.start()
    thread.join(MAX_WAIT_S)
    if thread.is_alive():
        log.warning("on_finish has not returned after %g s; Penstock waits no longer", MAX_WAIT_S)


def _post(url: str, content: dict[str, Any]) -> None:
    import urllib.request

    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(content).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=MAX_WAIT_S):
        pass
