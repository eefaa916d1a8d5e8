"""The text that the model answers: from the user's function, from a fault, or by default."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import orjson

from penstock.testing.apis.model_api import ModelAnswer, ModelRequest, as_text, count_tokens
from penstock.testing.faults import (
    MODEL_FAULTS,
    CallTools,
    ContentFilter,
    CutShort,
    Fault,
    HttpError,
    InvalidAnswer,
    Refusal,
)
from penstock.testing.script import AnswerFunction

FORMATS = {
    "date": "2024-03-01",
    "date-time": "2024-03-01T12:00:00Z",
    "time": "12:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
}
MAX_DEPTH = 6  # below it, lists are empty and objects have their required properties only


class FaultInsteadError(Exception):
    """The user's function returned a fault instead of an answer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def answer(request: ModelRequest, function: AnswerFunction | None, fault: Fault | None) -> ModelAnswer:
    """Return the answer; raises FaultInsteadError."""
    match fault:
        case Refusal(text=text):
            return ModelAnswer("", "refusal", refusal=text)
        case InvalidAnswer(text=text):
            return ModelAnswer(text)
        case CallTools(calls=calls):
            return ModelAnswer("", "tools", tuple((name, as_text(arguments)) for name, arguments in calls))
    result: Any = default_answer(request) if function is None else _call(function, request)
    if isinstance(result, MODEL_FAULTS):
        is_last_round = isinstance(result, CallTools) and request.num_rounds >= result.rounds
        return answer(request, None, None if is_last_round else result)
    if isinstance(result, Fault):
        raise FaultInsteadError(result)
    text = as_text(result)
    if isinstance(fault, CutShort):
        return ModelAnswer(text[: int(len(text) * fault.keep)], "length")
    if isinstance(fault, ContentFilter):
        return ModelAnswer(text[: len(text) // 2], "filter")
    if request.max_tokens is not None and count_tokens(text) > request.max_tokens:
        return ModelAnswer(text[: request.max_tokens * 4], "length")
    if request.forced_tool:
        return ModelAnswer("", "tools", ((request.forced_tool, text),))
    return ModelAnswer(text)


def _call(function: AnswerFunction, request: ModelRequest) -> Any:
    """Call the user's function. Its exception is printed here and reported to the client."""
    try:
        return function(request)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return HttpError(500, f"The answer function of the test raised {error!r}.", "answer_failed")


def default_answer(request: ModelRequest) -> str:
    """Return an instance of the schema, else the results of tools, else the prompt."""
    if request.schema is not None:
        return orjson.dumps(sample(request.schema, f"{request.text}#{request.index}")).decode()
    text = "\n".join(request.tool_results) if request.tool_results else request.text
    return text if not request.index else f"{text} ({request.index + 1})"


def sample(schema: Mapping[str, Any], seed: str) -> Any:
    """Return an instance. The seed picks among the values of an ``enum``; other values are fixed.

    >>> sample({"type": "object", "properties": {"label": {"enum": ["good", "bad"]}, "n": {"type": "integer"}}}, "a")
    {'label': 'good', 'n': 1}
    """
    return _Sampler(schema, seed).value(schema, "text", 0)


class _Sampler:
    def __init__(self, root: Mapping[str, Any], seed: str) -> None:
        self._root, self._seed = root, seed

    def value(self, schema: Any, name: str, depth: int) -> Any:
        """Return an instance of a part of the schema, for the property ``name``."""
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if options := schema.get("enum"):
            return options[crc32(f"{self._seed}\0{name}".encode()) % len(options)]
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self.value(options[-1 if depth >= MAX_DEPTH else 0], name, depth + 1)
        match self._kind(schema):
            case "object":
                properties = schema.get("properties", {})
                names = properties if depth < MAX_DEPTH else schema.get("required", ())
                return {key: self.value(properties.get(key), key, depth + 1) for key in names}
            case "array":
                fixed = schema.get("prefixItems", [])
                size = int(schema.get("minItems", depth < MAX_DEPTH))
                items = [*fixed, *[schema.get("items")] * (size - len(fixed))]
                return [self.value(item, name, depth + 1) for item in items]
            case "integer":
                return int(_number(schema))
            case "number":
                return float(_number(schema))
            case "boolean":
                return True
            case "null":
                return None
        text = FORMATS.get(schema.get("format", ""), name)
        return text.ljust(int(schema.get("minLength", 0)), "x")[: schema.get("maxLength")]

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Return a schema with its reference and ``allOf`` merged into it."""
        if not isinstance(schema, Mapping):
            return {}
        merged = dict(schema)
        if reference := merged.pop("$ref", None):
            target: Any = self._root
            for step in str(reference).strip("#/").split("/"):
                target = target[step] if step else target
            merged = {**self._resolved(target), **merged}
        for part in map(self._resolved, merged.pop("allOf", ())):
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            merged = {**merged, **part, "properties": properties}
        return merged

    def _kind(self, schema: dict[str, Any]) -> str:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = kind[0]
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        return str(kind).lower()  # Google writes them in capitals


def _number(schema: dict[str, Any]) -> Any:
    """Return a number within the bounds."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        return 1 if high is None else high - 1
    return low + 1 if high is None else (low + high) / 2
