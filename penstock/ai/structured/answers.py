"""Parse the answer of a model: find the JSON, validate it, convert it to plain values."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from penstock.ai.lenient_json import parse_json
from penstock.ai.structured.plain_values import plain, shown
from penstock.errors import InvalidAnswerError

_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)\n?\s*```", re.DOTALL)
_OBJECT = re.compile(r'\{\s*["}]')
_DECODER = json.JSONDecoder()
_MAX_PROBLEMS = 5


class AnswerReader:
    """Converts the text of an answer to a plain value.

    ``validator`` is a pydantic validator. ``optional`` names the optional properties. ``wrap`` puts a bare value into
    the missing object, or returns None.
    """

    def __init__(
        self, validator: Any, optional: frozenset[str], wrap: Callable[[str], str | None] | None = None
    ) -> None:
        from pydantic_core import ValidationError

        self._validate = validator.validate_json
        self._optional = optional
        self._wrap = wrap
        self._invalid = ValidationError

    def __call__(self, text: str) -> Any:
        """Return the plain value of an answer, or raise InvalidAnswerError."""
        try:
            return plain(self._validate(text))
        except self._invalid as exc:
            return self._repaired(text, exc)

    def _repaired(self, text: str, error: Any) -> Any:
        """Repair an answer whose text is not valid, and return its value; otherwise raise InvalidAnswerError."""
        found = json_within(text)
        if found is not None and "\\ud" in found.lower():  # perhaps half of a surrogate pair
            with contextlib.suppress(ValueError):
                found = json.dumps(parse_json(found.encode()))
        if found is not None and found != text:
            value, error = self._try(found)
            if error is None:
                return value
        if self._wrap is not None and (found := self._wrap(text) or found) is not None:
            value, error = self._try(found)
            if error is None:
                return value
        if (found := without_nulls(found or text, error, self._optional)) is not None:
            value, still_wrong = self._try(found)
            if still_wrong is None:
                return value
        raise InvalidAnswerError(_message(error)) from None

    def _try(self, text: str) -> tuple[Any, Any]:
        """Return the plain value of a JSON text and None, or None and the validation error."""
        try:
            return plain(self._validate(text)), None
        except self._invalid as exc:
            return None, exc


def json_within(text: str) -> str | None:
    """Return the only JSON object in a code fence or in prose; None for no object or several.

    >>> json_within('Sure! {"a": 1} Anything else?')
    '{"a": 1}'
    """
    text = text.rpartition("</think>")[2].strip()
    if len(fenced := _FENCE.findall(text)) == 1:
        return str(fenced[0])
    if text[:1] in ("{", "["):
        # The text is one JSON value, complete or truncated: an object inside it is not the answer.
        return text[: _end_of_json(text, 0)] or None
    found: set[str] = set()
    at = 0
    while match := _OBJECT.search(text, at):
        if not (at := _end_of_json(text, match.start())):
            return None
        found.add(text[match.start() : at])
    return found.pop() if len(found) == 1 else None


def _end_of_json(text: str, start: int) -> int:
    """Return the end of the JSON value at ``start``; 0 if it is malformed or truncated."""
    try:
        return _DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return 0


def without_nulls(text: str, error: Any, optional: frozenset[str]) -> str | None:
    """Remove the nulls that ``error`` reports from a JSON text. Return None if it reports anything else.

    Strict mode requires every field, so a model sends null for a field that has a default.
    """
    problems = error.errors(include_url=False, include_context=False)
    if not all(problem["input"] is None and problem["loc"] and problem["loc"][-1] in optional for problem in problems):
        return None
    try:
        value = orjson.loads(text)
        for place in {problem["loc"] for problem in problems}:
            parent = value
            for step in place[:-1]:
                parent = parent[step]
            del parent[place[-1]]
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return None
    return orjson.dumps(value).decode()


def _message(error: Any) -> str:
    problems = error.errors(include_url=False, include_context=False)
    if problems[0]["type"] == "json_invalid":
        found = f" (got {shown(problems[0]['input'])})" if problems[0]["input"] else ""
        return f"The answer is not one JSON object: {problems[0]['msg'].removeprefix('Invalid JSON: ')}{found}."
    return f"The answer does not match the schema: {describe_problems(problems)}."


def describe_problems(problems: list[Any]) -> str:
    """Return the errors of pydantic as one line: for each the place, the rule and the value found."""
    shown = [_problem(problem) for problem in problems[:_MAX_PROBLEMS]]
    more = len(problems) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def _problem(problem: Mapping[str, Any]) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"]).lstrip(".")
    message = problem["msg"][:1].lower() + problem["msg"][1:]
    found = "" if problem["type"] in ("missing", "missing_argument") else f" (got {shown(problem['input'])})"
    return f"{place}: {message}{found}" if place else f"{message}{found}"
