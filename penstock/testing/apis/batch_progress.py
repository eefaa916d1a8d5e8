"""Answer the requests of a batch in steps over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.testing.faults import BatchExpires, BatchLoses, Fault
from penstock.testing.script import BatchTiming

NUM_STEPS = 4


class BatchHost(Protocol):
    """The service that answers the requests of batches."""

    def later(self, seconds: float, function: Callable[[], None]) -> Any: ...

    def answer_line(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the answer to one request."""
        ...

    def batch_fault(self, path: str) -> Fault | None: ...

    @property
    def timing(self) -> BatchTiming: ...


@dataclass(frozen=True, slots=True)
class BatchLine:
    custom_id: str
    path: str
    body: dict[str, Any]


class BatchProgress:
    """Answer lines in steps; ``results`` has the answers so far. A fault may leave a share without answers."""

    def __init__(self, lines: list[BatchLine], host: BatchHost, fault: Fault | None = None) -> None:
        self.lines = lines
        self.results: dict[str, tuple[int, dict[str, Any]]] = {}
        self.is_stopped = False
        self._host = host
        done = fault.done if isinstance(fault, BatchExpires | BatchLoses) else 1.0
        self._num_answered = int(len(lines) * done)

    def start(self, on_end: Callable[[], None], step: int = 1) -> None:
        self._host.later(self._host.timing.processing_s / NUM_STEPS, lambda: self._run(step, on_end))

    def stop(self) -> None:
        """Answer no more lines, and do not call ``on_end``."""
        self.is_stopped = True

    @property
    def unanswered(self) -> list[BatchLine]:
        return [line for line in self.lines if line.custom_id not in self.results]

    @property
    def num_failed(self) -> int:
        return sum(status >= 400 for status, _ in self.results.values())

    def _run(self, step: int, on_end: Callable[[], None]) -> None:
        if self.is_stopped:
            return
        for line in self.lines[len(self.results) : self._num_answered * step // NUM_STEPS]:
            self.results[line.custom_id] = self._host.answer_line(line.path, line.body)
        if step == NUM_STEPS:
            on_end()
        else:
            self.start(on_end, step + 1)
