"""A request to a model and its answer, in words that no provider owns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.ai.structured.formats import OutputFormat
    from penstock.ai.structured.tools import ToolFunction


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An encoded image: PNG, JPEG, WebP or GIF, which is what providers take."""

    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class Audio:
    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class Document:
    """A file that the model reads by itself, such as a PDF."""

    data: bytes
    mime_type: str
    name: str


Part = Text | Image | Audio | Document


@dataclass(frozen=True, slots=True)
class UserTurn:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """What the model said before; ``raw`` is its answer as the provider gave it, to be sent back unchanged."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    raw: Any = None


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """What tools gave for the calls of the model turn before."""

    results: tuple[ToolResult, ...]


Turn = UserTurn | ModelTurn | ToolTurn


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str  # JSON, as the model wrote it


@dataclass(frozen=True, slots=True)
class ToolResult:
    call: ToolCall
    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked. ``output`` is the form its answer must have, None for free text.

    ``options`` are those of this request alone, such as ``temperature``; they go before those of all requests.
    """

    turns: tuple[Turn, ...]
    system: str | None = None
    output: OutputFormat | None = None
    tools: tuple[ToolFunction, ...] = ()
    num_answers: int = 1
    options: Mapping[str, Any] | None = None

    @property
    def text(self) -> str | None:
        """The prompt, where it is one text and nothing else, as most are."""
        turn = self.turns[0] if len(self.turns) == 1 else None
        part = turn.parts[0] if isinstance(turn, UserTurn) and len(turn.parts) == 1 else None
        return part.text if isinstance(part, Text) else None


@dataclass(slots=True)
class Generation:
    """One answer. ``raw`` is what ``ModelTurn.raw`` needs; ``refusal`` says why there is no answer."""

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
