"""Pick the fault that applies to a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

from penstock.testing.apis.model_api import ModelRequest
from penstock.testing.faults import BATCH_FAULTS, MODEL_FAULTS, CallTools, Delay, Fault
from penstock.testing.latency import as_latency


class FaultPicker:
    """Evaluate the conditions of faults, and count how often each was met."""

    def __init__(self, faults: Sequence[Fault], seed: int) -> None:
        self._faults = tuple(faults)
        self._random = Random(seed)
        self._num_matches: Counter[int] = Counter()
        self._num_tries: Counter[tuple[int, str]] = Counter()

    def pick(self, path: str, text: str, request: ModelRequest | None = None) -> tuple[Fault | None, float]:
        """Return the first fault that is not a delay, and the sum of all delays in seconds."""
        chosen, delay_s = None, 0.0
        for fault in self._due(path, text, request, is_batch=False):
            if isinstance(fault, Delay):
                delay_s += as_latency(fault.latency).draw(self._random)
            else:
                chosen = chosen or fault  # later faults count the request too
        return chosen, delay_s

    def pick_for_batch(self, path: str) -> Fault | None:
        return next(self._due(path, "", None, is_batch=True), None)

    def _due(self, path: str, text: str, request: ModelRequest | None, is_batch: bool) -> Iterator[Fault]:
        for number, fault in enumerate(self._faults):
            if (
                isinstance(fault, BATCH_FAULTS) == is_batch
                and _matches(fault, path, text, request)
                and self._is_due(number, fault, text)
            ):
                yield fault

    def _is_due(self, number: int, fault: Fault, text: str) -> bool:
        """Count a request that matches and return whether it is one of those that fail."""
        self._num_matches[number] += 1
        count = self._num_matches[number]
        if fault.at is not None and count not in ((fault.at,) if isinstance(fault.at, int) else fault.at):
            return False
        if fault.first is not None and count > fault.first:
            return False
        if fault.first_tries is not None:
            self._num_tries[number, text] += 1
            if self._num_tries[number, text] > fault.first_tries:
                return False
        return fault.share >= 1.0 or self._random.random() < fault.share


def _matches(fault: Fault, path: str, text: str, request: ModelRequest | None) -> bool:
    if isinstance(fault, MODEL_FAULTS) and request is None:
        return False
    if isinstance(fault, CallTools) and request is not None and request.num_rounds >= fault.rounds:
        return False
    if fault.path is not None and fault.path not in path:
        return False
    return fault.containing is None or fault.containing in text
