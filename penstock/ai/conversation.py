"""Requests and answers in a form that is independent of providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from penstock.cache.memo import Codec
from penstock.cost.usage import Usage

if TYPE_CHECKING:
    from penstock.ai.structured.return_formats import OutputFormat


CacheControl = Mapping[str, Any]
"""Marks the end of a part of the request that the provider shall cache for later requests, such as ``{"type":
"ephemeral"}``."""


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    cache_control: CacheControl | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """An encoded image in a format that providers accept: PNG, JPEG, WebP or GIF."""

    data: bytes
    mime_type: str
    cache_control: CacheControl | None = None


@dataclass(frozen=True, slots=True)
class Audio:
    data: bytes
    mime_type: str
    cache_control: CacheControl | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A file that the model reads by itself, such as a PDF."""

    data: bytes
    mime_type: str
    name: str
    cache_control: CacheControl | None = None


Part = Text | Image | Audio | Document


@dataclass(frozen=True, slots=True)
class UserTurn:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str  # JSON, as the model wrote it


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """An earlier answer of the model. ``raw`` is the answer as the provider sent it, to send back unchanged."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    raw: Any = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    call: ToolCall
    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """The results of the tool calls of the previous model turn."""

    results: tuple[ToolResult, ...]


Turn = UserTurn | ModelTurn | ToolTurn


class Tool(Protocol):
    """A tool that the model may call, with the description that the model reads."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a model. ``output`` is the return format, None for free text.

    ``options``, such as ``temperature``, apply to this request only and override the model's.
    """

    turns: tuple[Turn, ...]
    system: str | None = None
    output: OutputFormat | None = None
    tools: tuple[Tool, ...] = ()
    num_answers: int = 1
    options: Mapping[str, Any] | None = None
    row_id: bytes | None = None  # identifies the row in all runs of a job, if the engine knows it
    key: bytes | None = None  # of its answers in the ledger, if they were looked up and not found
    system_parts: tuple[Text, ...] = ()  # of ``system``, if one of them has a ``cache_control``

    @property
    def text(self) -> str | None:
        """The prompt, if it is a single text, which is the usual case."""
        turn = self.turns[0] if len(self.turns) == 1 else None
        part = turn.parts[0] if isinstance(turn, UserTurn) and len(turn.parts) == 1 else None
        return part.text if isinstance(part, Text) else None


@dataclass(slots=True)
class Generation:
    """One answer of a model. ``raw`` goes into ``ModelTurn.raw``; ``refusal`` is the reason if there is no answer.

    ``logprobs`` has a dict for each token, if the option ``logprobs`` asks for them: ``token``, ``logprob``, and
    ``top_logprobs``, a list of dicts with ``token`` and ``logprob``.
    """

    text: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    refusal: str | None = None
    latency_s: float | None = None
    raw: Any = None
    logprobs: list[dict[str, Any]] | None = None
    written_tokens: int = 0  # to the provider's cache, for five minutes
    written_1h_tokens: int = 0  # the same for an hour

    def count(self, usage: Usage) -> None:
        """Set the tokens of the call."""
        self.input_tokens, self.output_tokens, self.cached_tokens, self.written_tokens, self.written_1h_tokens = usage

    @property
    def usage(self) -> Usage | None:
        """The tokens of the call, None if they are not known."""
        if self.input_tokens is None:
            return None
        tokens = self.input_tokens, self.output_tokens or 0, self.cached_tokens or 0
        return Usage(*tokens, self.written_tokens, self.written_1h_tokens)


# --- in the ledger ----------------------------------------------------------------------------------------------------


def _encode(answers: Sequence[Generation] | Exception) -> bytes | None:
    """Return answers as a JSON array. Errors, and answers that JSON cannot hold, are not cached."""
    if isinstance(answers, Exception):
        return None
    try:
        return orjson.dumps([_fields(answer) for answer in answers])
    except TypeError:
        return None


def _fields(a: Generation) -> tuple[Any, ...]:
    calls = [(call.id, call.name, call.arguments) for call in a.tool_calls] if a.tool_calls else ()
    time_s = None if a.latency_s is None else round(a.latency_s, 3)
    written = (a.written_tokens, a.written_1h_tokens) if a.written_tokens or a.written_1h_tokens else ()
    return (
        a.text, a.model, a.input_tokens, a.output_tokens, a.cached_tokens, a.finish_reason, a.reasoning, a.refusal,
        calls, a.raw, a.logprobs, time_s, *written,
    )  # fmt: skip


def _generation(
    text: str, model: Any, given: Any, made: Any, cached: Any, reason: Any, reasoning: Any, refusal: Any,
    calls: Sequence[Any] = (), raw: Any = None, logprobs: Any = None, latency_s: Any = None,
    written: int = 0, written_1h: int = 0,
) -> Generation:  # fmt: skip
    tool_calls = tuple(ToolCall(*call) for call in calls) if calls else ()
    return Generation(
        text, model, given, made, cached, reason, tool_calls, reasoning, refusal, latency_s, raw, logprobs,
        written, written_1h,
    )  # fmt: skip


def recorded_answers(raw: bytes) -> list[Generation]:
    """Return answers in the ledger with the time that their calls took.

    >>> recorded_answers(GENERATIONS.encode([Generation("hi", latency_s=0.25)]))[0].latency_s
    0.25
    """
    return [_generation(*fields) for fields in orjson.loads(raw)]


def _decode(raw: bytes) -> list[Generation]:
    return [_generation(*[*fields[:11], None, *fields[12:]]) for fields in orjson.loads(raw)]


GENERATIONS = Codec(_encode, _decode)
"""The answers to a request, as the ledger holds them. Reading an answer sets its latency to None.

>>> GENERATIONS.decode(GENERATIONS.encode([Generation("hi", input_tokens=3, latency_s=0.25)]))[0]  # doctest: +ELLIPSIS
Generation(text='hi', model=None, input_tokens=3, ... latency_s=None, raw=None, ...)
"""
