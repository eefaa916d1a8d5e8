"""Which fault befalls a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from penstock.testing.apis.exchange import ModelRequest
from penstock.testing.faults import (
    BATCH_FAULTS,
    CallTools,
    ContentFilter,
    CutShort,
    Delay,
    Fault,
    InvalidAnswer,
    Refusal,
)
from penstock.testing.latency import as_latency

# What a model does, rather than a server; only prompts meet with it.
OF_THE_MODEL = (CallTools, ContentFilter, CutShort, InvalidAnswer, Refusal)


class FaultPicker:
    """Knows how often the conditions of each fault held."""

    def __init__(self, faults: Sequence[Fault], seed: int) -> None:
        self._faults = tuple(faults)
        self._random = Random(seed)
        self._num_held: Counter[int] = Counter()
        self._num_tries: Counter[tuple[int, str]] = Counter()

    def pick(self, path: str, text: str, request: ModelRequest | None = None) -> tuple[Fault | None, float]:
        """Return the fault of a request that decides, if any, and the seconds of all delays."""
        chosen, delay = None, 0.0
        for number, fault in enumerate(self._faults):
            if (
                isinstance(fault, BATCH_FAULTS)
                or not self._is_for(fault, path, text, request)
                or not self._is_due(number, fault, text)
            ):
                continue
            if isinstance(fault, Delay):
                delay += as_latency(fault.latency).draw(self._random)
            else:
                chosen = chosen or fault  # the others count the request all the same
        return chosen, delay

    def pick_for_batch(self, path: str) -> Fault | None:
        """Return what becomes of a batch as a whole."""
        for number, fault in enumerate(self._faults):
            is_for = isinstance(fault, BATCH_FAULTS) and self._is_for(fault, path, "", None)
            if is_for and self._is_due(number, fault, ""):
                return fault
        return None

    def _is_for(self, fault: Fault, path: str, text: str, request: ModelRequest | None) -> bool:
        if isinstance(fault, OF_THE_MODEL) and request is None:
            return False
        if isinstance(fault, CallTools) and request is not None and request.num_rounds >= fault.rounds:
            return False
        if fault.path is not None and fault.path not in path:
            return False
        return fault.containing is None or fault.containing in text

    def _is_due(self, number: int, fault: Fault, text: str) -> bool:
        """Whether it is the turn of this request, among those that a fault is for."""
        self._num_held[number] += 1
        held = self._num_held[number]
        if fault.at is not None and held not in ((fault.at,) if isinstance(fault.at, int) else fault.at):
            return False
        if fault.first is not None and held > fault.first:
            return False
        if fault.first_tries is not None:
            self._num_tries[number, text] += 1
            if self._num_tries[number, text] > fault.first_tries:
                return False
        return fault.share >= 1.0 or self._random.random() < fault.share
