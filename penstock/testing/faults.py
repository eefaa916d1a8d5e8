"""What can go wrong with a request, as data. A script is a list of faults; each says what it does and when.

    faults.ServerError(503, share=0.1)             a tenth of all requests
    faults.Reset(at=3)                             the third request
    faults.RateLimited(retry_after=1, first=20)    the first twenty
    faults.Hang(containing="boom")                 prompts with this word
    faults.ServerError(first_tries=1)              every prompt once; it gets an answer when it is sent again
    faults.Refusal(path="/chat/completions")       one API only

A prompt is what the user said last. A client that complains of an invalid answer says something new, so ``first_tries``
counts that anew: ``InvalidAnswer(first_tries=1)`` befalls the complaint too. ``first=1`` or ``containing=`` spare it.

Conditions can be joined; counts are of the requests for which the other conditions hold. Of several faults that hold,
delays add up and the first of another kind decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.testing.latency import Latency


@dataclass(frozen=True, kw_only=True)
class Fault:
    """When something happens; the subclasses say what."""

    share: float = 1.0  # of requests, picked by the seed of the server
    at: int | Sequence[int] | None = None  # the k-th request, or several; from 1
    first: int | None = None
    first_tries: int | None = None  # of each prompt: what the user said last
    containing: str | None = None  # in the prompt
    path: str | None = None  # a part of it


@dataclass(frozen=True)
class HttpError(Fault):
    """Any status, with the body in which the API reports errors."""

    status: int
    message: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ServerError(Fault):
    """500, 502, 503 or 529."""

    status: int = 500
    message: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RateLimited(Fault):
    """429. ``retry_after`` is in seconds; both hints are left out unless given. ``headers`` are sent as they are."""

    retry_after: float | str | None = None
    retry_after_ms: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None  # "insufficient_quota" is OpenAI's for an account without money
    message: str | None = None


@dataclass(frozen=True)
class Delay(Fault):
    """Takes longer, by seconds or a distribution."""

    latency: Latency | float


@dataclass(frozen=True)
class Hang(Fault):
    """Never answers."""


@dataclass(frozen=True)
class Reset(Fault):
    """The connection is reset: before the answer, or in the middle of its body."""

    mid_body: bool = False


@dataclass(frozen=True)
class Truncated(Fault):
    """The connection is closed in the middle of the body, as a proxy does that gives up."""


@dataclass(frozen=True)
class Malformed(Fault):
    """Status 200 with a body that is no JSON."""

    body: str = '{"id": "broken", "choices": [{"message": '


@dataclass(frozen=True)
class CutShort(Fault):
    """The answer ends for its length after a share of its text, so that a structured one is no JSON."""

    keep: float = 0.5


@dataclass(frozen=True)
class Refusal(Fault):
    """The model declines: a refusal of OpenAI, stop reason ``refusal`` of Anthropic, a blocked prompt of Google."""

    text: str = "I'm sorry, I can't help with that."


@dataclass(frozen=True)
class ContentFilter(Fault):
    """A filter stops the answer: ``content_filter`` of OpenAI, ``refusal`` of Anthropic, ``SAFETY`` of Google."""


@dataclass(frozen=True)
class InvalidAnswer(Fault):
    """The model answers this text, whatever form it was asked for."""

    text: str = "Sure! Here is what you asked for."


@dataclass(frozen=True)
class CallTools(Fault):
    """The model asks for tools; when it is told what they gave, it answers with that.

    ``calls`` are pairs of a tool's name and its arguments, a dict, or a text to be sent as it is. With ``rounds`` it
    asks so often before it answers.
    """

    calls: Sequence[tuple[str, dict[str, Any] | str]]
    rounds: int = 1


@dataclass(frozen=True)
class Outage(Fault):
    """The server dies: every connection is reset and no new one taken; it is back on its port after some seconds."""

    seconds: float = 0.5


@dataclass(frozen=True)
class BatchFails(Fault):
    """A batch is refused when it is validated."""

    message: str = "The input file is not valid."
    code: str = "invalid_json_line"


@dataclass(frozen=True)
class BatchExpires(Fault):
    """A batch expires when a share of its requests is done."""

    done: float = 0.5


@dataclass(frozen=True)
class BatchLoses(Fault):
    """A batch is said to be complete, and has results for a share of its requests."""

    done: float = 0.5


BATCH_FAULTS = (BatchFails, BatchExpires, BatchLoses)
