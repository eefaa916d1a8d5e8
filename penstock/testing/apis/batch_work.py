"""The requests of a batch, answered a part at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.testing.faults import Fault
from penstock.testing.script import BatchTiming

NUM_STEPS = 4


class BatchHost(Protocol):
    """What batches need of the service."""

    def later(self, seconds: float, function: Callable[[], None]) -> Any: ...

    def answer_line(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the answer to one request."""
        ...

    def batch_fault(self, path: str) -> Fault | None: ...

    @property
    def timing(self) -> BatchTiming: ...


@dataclass(frozen=True, slots=True)
class Line:
    custom_id: str
    path: str
    body: dict[str, Any]


class BatchWork:
    """Answers lines over some seconds, up to ``num_most`` of them; ``results`` has what is done."""

    def __init__(self, lines: list[Line], host: BatchHost, num_most: int | None = None) -> None:
        self.lines = lines
        self.results: dict[str, tuple[int, dict[str, Any]]] = {}
        self.is_stopped = False
        self._host = host
        self._num_most = len(lines) if num_most is None else num_most

    def start(self, on_end: Callable[[], None]) -> None:
        self._host.later(self._host.timing.processing_s / NUM_STEPS, lambda: self._step(1, on_end))

    def stop(self) -> None:
        """Answer no more lines, and do not tell of an end."""
        self.is_stopped = True

    @property
    def undone(self) -> list[Line]:
        return [line for line in self.lines if line.custom_id not in self.results]

    @property
    def num_failed(self) -> int:
        return sum(status >= 400 for status, _ in self.results.values())

    def _step(self, number: int, on_end: Callable[[], None]) -> None:
        if self.is_stopped:
            return
        for line in self.lines[len(self.results) : self._num_most * number // NUM_STEPS]:
            self.results[line.custom_id] = self._host.answer_line(line.path, line.body)
        if number == NUM_STEPS:
            on_end()
        else:
            self._host.later(self._host.timing.processing_s / NUM_STEPS, lambda: self._step(number + 1, on_end))
