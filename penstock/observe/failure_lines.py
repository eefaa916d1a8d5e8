"""Log lines about failed rows: the first failures of a kind in full, then one line a minute with their number."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from penstock.events.events import Event, QueryFinished, QuerySampled, QueryStarted, RowError, RowsFailed
from penstock.observe.printable import fit, format_count, visible_text
from penstock.storage.urls import redacted

NUM_FULL = 5  # full lines for each kind of failure
INTERVAL_S = 60.0  # seconds between the lines that count the rest
MAX_INPUT_CHARS = 200
MAX_MESSAGE_CHARS = 400

log = logging.getLogger("penstock.udf")


@dataclass(slots=True)
class _Kind:
    """Failures of one stage with one error class."""

    num_full: int = 0
    num_more: int = 0  # since the last line
    counted_since_s: float = 0.0
    last: str = ""  # the message of the last failure


class FailureLines:
    """Decide which lines to log. The caller passes the time.

    >>> lines = FailureLines()
    >>> error = RowError("parse", '{"text": "x"}', "ValueError", "not a number", "")
    >>> [len(lines.add("parse", [error] * 3, now_s=0.0)) for _ in range(4)]
    [3, 2, 0, 0]
    >>> lines.due(59.0), lines.due(60.0)
    ([], ['parse: 7 more rows failed with ValueError in the last minute, the last with: not a number; see errors()'])
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def add(self, stage: str, errors: Iterable[RowError], now_s: float) -> list[str]:
        """Take failed rows of a stage, and return the lines to log in full."""
        lines = []
        for error in errors:
            kind = self._kinds.setdefault((stage, error.error_type), _Kind())
            if kind.num_full < NUM_FULL:
                kind.num_full += 1
                kind.counted_since_s = now_s
                lines.append(failure_line(stage, error))
            else:
                kind.num_more += 1
                kind.last = error.message
        return lines

    def due(self, now_s: float) -> list[str]:
        """Return a line for each kind with more failures, at most one a minute."""
        return self._counts(" in the last minute", lambda kind: now_s >= kind.counted_since_s + INTERVAL_S, now_s)

    def rest(self) -> list[str]:
        """Return the lines of the failures that no line has counted."""
        return self._counts("", lambda kind: True, 0.0)

    def _counts(self, when: str, is_due: Callable[[_Kind], bool], now_s: float) -> list[str]:
        lines = []
        for (stage, error_type), kind in self._kinds.items():
            if kind.num_full == NUM_FULL and is_due(kind):
                kind.counted_since_s = now_s
                if kind.num_more:
                    more = format_count(kind.num_more, "more row")
                    text = _short(kind.last, MAX_MESSAGE_CHARS)
                    lines.append(f"{stage}: {more} failed with {error_type}{when}, the last with: {text}; see errors()")
                    kind.num_more = 0
        return lines


class FailureLog:
    """A Subscriber that logs the failed rows of the stages with ``on_error="log"``."""

    def __init__(self, stages: Collection[int], clock: Callable[[], float] = time.monotonic) -> None:
        self._stages = stages
        self._clock = clock
        self._names: Sequence[str] = ()
        self._lines = FailureLines()

    def on_event(self, event: Event) -> None:
        match event:
            case RowsFailed(stage, errors) if stage in self._stages:
                self._log(self._lines.add(self._names[stage], errors, self._clock()))
            case QuerySampled():
                self._log(self._lines.due(self._clock()))
            case QueryStarted(stages):
                self._names = [stage.name for stage in stages]
            case QueryFinished():
                self._log(self._lines.rest())

    def _log(self, lines: Iterable[str]) -> None:
        for line in lines:
            log.warning("%s", line)


def failure_line(stage: str, error: RowError) -> str:
    """Return one line about a failed row: its place, the error and the values of the row."""
    message, given = _short(error.message, MAX_MESSAGE_CHARS), _short(error.input, MAX_INPUT_CHARS)
    return f"{stage}: {error.place} failed with {error.error_type}: {message.removesuffix('.')}; its values: {given}"


def _short(text: str, max_chars: int) -> str:
    return fit(visible_text(redacted(text[: 4 * max_chars])), max_chars)
