"""Faults that a server can produce, as data. Each says what happens; its conditions say to which requests.

    faults.ServerError(503, share=0.1)             a tenth of all requests
    faults.Reset(at=3)                             the third request
    faults.RateLimited(retry_after=1, first=20)    the first twenty
    faults.Hang(containing="boom")                 prompts with this word
    faults.ServerError(first_tries=1)              the first try of each prompt
    faults.Refusal(path="/chat/completions")       one API only

A request must meet all conditions of a fault; counts are over the requests that meet the other conditions. If several
faults apply, delays add up and the first other fault is used.

A prompt is the last message of the user. A client that reports an invalid answer to the model sends a new message, so
``InvalidAnswer(first_tries=1)`` applies to that message too; ``first=1`` and ``containing=`` do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.testing.answer_times import Latency, as_latency
from penstock.testing.apis.model_api import ModelRequest


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The conditions of a fault."""

    share: float = 1.0  # of requests, picked by the seed of the server
    at: int | Sequence[int] | None = None  # the k-th request, or several; from 1
    first: int | None = None
    first_tries: int | None = None  # tries of each prompt
    containing: str | None = None  # in the prompt
    path: str | None = None  # a part of it


@dataclass(frozen=True)
class HttpError(Fault):
    """Answer with a status and the error body of the API."""

    status: int
    message: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ServerError(HttpError):
    """Answer with 500, 502, 503 or 529."""

    status: int = 500


@dataclass(frozen=True)
class RateLimited(Fault):
    """Answer with 429. ``retry_after`` is in seconds; None sends no hint. ``headers`` are sent as given."""

    retry_after: float | str | None = None
    retry_after_ms: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None  # OpenAI's "insufficient_quota" means an account without money
    message: str | None = None


@dataclass(frozen=True)
class Delay(Fault):
    """Answer later, by seconds or a distribution."""

    latency: Latency | float


@dataclass(frozen=True)
class Hang(Fault):
    """Never answer."""


@dataclass(frozen=True)
class Reset(Fault):
    """Reset the connection before the answer, or in the middle of its body."""

    mid_body: bool = False


@dataclass(frozen=True)
class Truncated(Fault):
    """Close the connection in the middle of the body, like a proxy that gives up."""


@dataclass(frozen=True)
class Malformed(Fault):
    """Answer with status 200 and a body that is not JSON."""

    body: str = '{"id": "broken", "choices": [{"message": '


@dataclass(frozen=True)
class CutShort(Fault):
    """End the answer, with the finish reason for length, after a share of its text."""

    keep: float = 0.5


@dataclass(frozen=True)
class Refusal(Fault):
    """Decline as the model: OpenAI's refusal, Anthropic's stop reason ``refusal``, Google's blocked prompt."""

    text: str = "I'm sorry, I can't help with that."


@dataclass(frozen=True)
class ContentFilter(Fault):
    """Stop the answer by a filter: OpenAI's ``content_filter``, Anthropic's ``refusal``, Google's ``SAFETY``."""


@dataclass(frozen=True)
class InvalidAnswer(Fault):
    """Answer with this text instead of structured output."""

    text: str = "Sure! Here is what you asked for."


@dataclass(frozen=True)
class CallTools(Fault):
    """Call tools, and answer with their results after ``rounds`` rounds.

    ``calls`` are pairs of a tool's name and its arguments: a dict, or a text that is sent as it is.
    """

    calls: Sequence[tuple[str, dict[str, Any] | str]]
    rounds: int = 1


@dataclass(frozen=True)
class Outage(Fault):
    """Reset every connection and accept none for some seconds; then listen on the same port."""

    seconds: float = 0.5


@dataclass(frozen=True)
class BatchFails(Fault):
    """Refuse a batch at its validation."""

    message: str = "The input file is not valid."
    code: str = "invalid_json_line"


@dataclass(frozen=True)
class BatchExpires(Fault):
    """Expire a batch after a share of its requests."""

    done: float = 0.5


@dataclass(frozen=True)
class BatchLoses(Fault):
    """Report a batch as complete, with results for a share of its requests."""

    done: float = 0.5


@dataclass(frozen=True)
class BatchDamages(Fault):
    """Replace the first line of a batch's results by this text, in which ``$LINE`` stands for the line."""

    text: str = '{"custom_id": "'


BATCH_FAULTS = (BatchFails, BatchExpires, BatchLoses, BatchDamages)
MODEL_FAULTS = (CallTools, ContentFilter, CutShort, InvalidAnswer, Refusal)
"""Faults of the model instead of the server; they apply to prompts only."""


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
        """Count a matching request and return whether it is one that fails."""
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
