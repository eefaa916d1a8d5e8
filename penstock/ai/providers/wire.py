"""Wires: convert requests to bodies of a provider's API, and bodies to answers. Nothing here sends anything."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Self

from penstock.ai.client.api_call import ApiCall
from penstock.ai.conversation import Audio, Document, Generation, Image, Request, Tool
from penstock.ai.lenient_json import field_of
from penstock.ai.option_types import NUMBERS
from penstock.ai.provider import ModelTask, NDArray, check_options
from penstock.cost.usage import Usage
from penstock.errors import InvalidAnswerError, InvalidArgumentError, check_choice, did_you_mean
from penstock.udf.options import check_whole

LOGPROBS = ("logprobs", "top_logprobs")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Levels of reasoning. Each provider supports some of them; the nearest is used."""

FILTERED = "the provider's content filter stopped the answer"


@dataclass(frozen=True)
class PromptWire(ABC):
    """One prompt API of a model. Picklable, and created once for all rows.

    ``body`` holds the fields that all rows share; ``extra_body`` is merged into it. ``row_names`` are the options that
    single rows may set.
    """

    model: str
    body: Mapping[str, Any]
    extra_body: Mapping[str, Any]
    row_names: tuple[str, ...] = ()
    options: ClassVar[tuple[str, ...]]  # options of the AI function
    logprob_options: ClassVar[tuple[str, ...]] = ()  # options of ``prompt`` only
    row_options: ClassVar[tuple[str, ...]] = ()  # options of single requests
    takes_cache_control: ClassVar[bool] = False  # in the parts of messages

    @classmethod
    def of(cls, task: ModelTask, provider: str, model: str) -> Self:
        """Return the wire for a task. Refuse unknown options."""
        body = cls.fields(task.function, model, task.options)
        cls.fields(task.function, model, dict.fromkeys(task.row_options))  # may refuse names
        of_prompts = cls.logprob_options if task.function == "prompt" else ()
        check_options(task, provider, (*cls.options, *of_prompts), cls.row_options)
        for name, value in task.options.items():
            if name in NUMBERS and (isinstance(value, bool) or not isinstance(value, Real)):
                raise InvalidArgumentError(f"{task.function}: {name} must be a number; got {value!r}")
        return cls(model, body, extra_body_of(task.options), task.row_options)

    @classmethod
    @abstractmethod
    def fields(cls, what: str, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that options become, without the fields of ``extra_body``. Errors name ``what``."""

    @property
    @abstractmethod
    def path(self) -> str: ...

    @abstractmethod
    def add(self, body: dict[str, Any], request: Request) -> None:
        """Add the fields of a request to its body. Fields that all rows share must not be changed in place."""

    @abstractmethod
    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        """Return the answers in a body, without their tokens; ignore unknown fields.

        Raises InvalidAnswerError that names a missing field. A refusal is a Generation with ``refusal``.
        """

    def generations(self, body: Mapping[str, Any], usage: Usage | None) -> list[Generation]:
        """Return the answers in a body, at least one. The first has the tokens of all."""
        answers = self.read(body)
        if not answers:
            raise InvalidAnswerError("the answer holds no text and no reason why")
        if usage is not None:
            answers[0].count(usage)
        return answers

    def body_of_row(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a request, including its own options, which take precedence."""
        return {**self.body, **self.fields("a request", self.model, options)}

    def call(self, request: Request) -> ApiCall:
        """Return the call for a request."""
        body, extra_body = dict(self.body), self.extra_body
        if request.options:
            body = self.body_of_row(request.options)
            check_row_options(request.options, self.row_options)
            extra_body = merged(extra_body, extra_body_of(request.options))
        self.add(body, request)
        return ApiCall(self.path, merged(body, extra_body) if extra_body else body)


@dataclass(frozen=True)
class EmbeddingWire(ABC):
    """One embeddings API of a model. Picklable, and created once for all rows."""

    model: str
    dimensions: int | None
    max_items: int  # texts of a call
    max_tokens: ClassVar[int | None] = None  # of all texts of a call
    max_input_tokens: ClassVar[int | None] = None  # of one text

    @abstractmethod
    def call(self, texts: Sequence[str]) -> ApiCall: ...

    @abstractmethod
    def read(self, body: Mapping[str, Any]) -> list[NDArray]:
        """Return the vectors of a body in the order of the texts. The caller checks their number and lengths."""


# --- options ----------------------------------------------------------------------------------------------------------


def check_row_options(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse unknown options of a single request, and suggest the nearest name."""
    for name in options:
        if name not in known:
            raise InvalidArgumentError(
                f"A request does not take {name!r}; it takes: {', '.join(sorted(known))}.{did_you_mean(name, known)} "
                "Pass other fields of the server as extra_body."
            )


def stops_of(options: Mapping[str, Any]) -> list[str] | None:
    """Return the texts that end an answer; a single one may be given without a list."""
    stop = options.get("stop")
    return [stop] if isinstance(stop, str) else list(stop) if stop else None


def tools_of(options: Mapping[str, Any]) -> list[Any]:
    """Return the tools that the provider itself runs, as the user wrote them."""
    tools = options.get("tools")
    if tools is not None and (
        not isinstance(tools, (list, tuple)) or not all(isinstance(tool, Mapping) for tool in tools)
    ):
        raise InvalidArgumentError(
            f"tools= takes the provider's own tools as dicts; got {tools!r}. Pass Python functions as tool_functions=."
        )
    return list(tools or ())


def reasoning_of(options: Mapping[str, Any], known: Sequence[str]) -> Mapping[str, Any]:
    """Return the fields of ``reasoning`` or ``reasoning_effort``. An API takes the ``known`` ones.

    >>> reasoning_of({"reasoning": "low"}, ("effort",))
    {'effort': 'low'}
    """
    given: Any = options.get("reasoning")
    given = options.get("reasoning_effort") if given is None else given
    if given is None:
        return {}
    fields = {"effort": given} if isinstance(given, str) else given
    if not isinstance(fields, Mapping) or not fields or not set(fields) <= set(known):
        raise InvalidArgumentError(
            f"reasoning= takes an effort, or a dict with {', '.join(known)}, with this API; got {given!r}. "
            "Pass other fields of the server as extra_body=."
        )
    if (effort := fields.get("effort")) is not None:
        check_choice("reasoning: effort", effort, EFFORTS)
    if "max_tokens" in fields:
        check_whole("reasoning", "max_tokens", fields["max_tokens"], 1)
    return fields


def max_tokens_of(options: Mapping[str, Any]) -> int | None:
    """Return the maximum length of an answer, by either name of that option."""
    limit: int | None = options.get("max_output_tokens", options.get("max_tokens"))
    if limit is not None:
        check_whole("prompt", "max_output_tokens", limit, 1)
    return limit


def extra_body_of(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields that the user adds to every body."""
    extra = options.get("extra_body")
    if extra is not None and (not isinstance(extra, Mapping) or not all(isinstance(name, str) for name in extra)):
        raise InvalidArgumentError(f"extra_body= takes a dict of fields that are added to the body; got {extra!r}.")
    return extra or {}


def batch_size_of(task: ModelTask, default: int, limit: int) -> int:
    """Return the number of texts in one call."""
    size = task.options.get("batch_size", default)
    check_whole(task.function, "batch_size", size, 1)
    return min(int(size), limit)


# --- requests ---------------------------------------------------------------------------------------------------------


def merged(body: Mapping[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a body with the fields of ``extra_body``, which take precedence; objects are merged field by field.

    >>> merged({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 9}})
    {'a': {'x': 9, 'y': 2}, 'b': 3}
    """
    result = dict(body)
    for name, value in (extra or {}).items():
        if isinstance(value, Mapping) and isinstance(result.get(name), Mapping):
            value = merged(result[name], value)
        result[name] = value
    return result


def declaration(tool: Tool, schema_field: str) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, schema_field: tool.schema}


def base64_of(part: Image | Audio | Document) -> str:
    return base64.b64encode(part.data).decode()


def data_url(part: Image | Document) -> str:
    return f"data:{part.mime_type};base64,{base64_of(part)}"


def audio_of(part: Audio) -> dict[str, str]:
    """Return a sound as OpenAI's APIs take it.

    >>> audio_of(Audio(b"", "audio/mpeg"))["format"], audio_of(Audio(b"", "audio/x-wav"))["format"]
    ('mp3', 'wav')
    """
    kind = part.mime_type.partition("/")[2].removeprefix("x-")
    return {"data": base64_of(part), "format": {"mpeg": "mp3", "mp4": "m4a"}.get(kind, kind)}


def object_of(arguments: str) -> dict[str, Any]:
    """Return the arguments of a tool call as an object; other values become the field ``arguments``."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = arguments
    return value if isinstance(value, dict) else {"arguments": value}


# --- answers ----------------------------------------------------------------------------------------------------------


def logprobs_in(entries: Any) -> list[dict[str, Any]] | None:
    """Return the log-probabilities of an answer's tokens as OpenAI's APIs send them; None if it has none.

    >>> logprobs_in([{"token": "a", "logprob": -1, "bytes": [97]}])
    [{'token': 'a', 'logprob': -1.0, 'top_logprobs': []}]
    """
    if not isinstance(entries, list):
        return None

    def plain(entry: Any) -> dict[str, Any]:
        return {"token": field_of(entry, "token", str), "logprob": float(field_of(entry, "logprob", (int, float)))}

    return [{**plain(each), "top_logprobs": list(map(plain, each.get("top_logprobs") or ()))} for each in entries]
