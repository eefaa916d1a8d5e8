"""JSON of servers and models, which is not always valid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from penstock.errors import InvalidAnswerError


def parse_json(raw: bytes) -> Any:
    r"""Return the value of a JSON text, or raise ValueError.

    Half a surrogate pair, and bytes that are not UTF-8, become U+FFFD: you have paid for the answer, and another would
    be no better. NaN and Infinity, which Python servers send, are numbers.

    >>> parse_json(rb'{"text": "half an emoji: \ud83d", "score": NaN}')
    {'text': 'half an emoji: �', 'score': nan}
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        text = json.dumps(json.loads(raw.decode("utf-8-sig", "replace")), ensure_ascii=False)
        return json.loads(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def field_of(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...], what: str = "the answer") -> Any:
    """Return a required field, or raise InvalidAnswerError that names it.

    >>> field_of({"id": 1}, "choices", list)
    Traceback (most recent call last):
        ...
    penstock.errors.InvalidAnswerError: the answer has no 'choices' of type list; it has: id
    """
    fields: Any = body  # a server may send anything
    value = fields.get(name) if type(fields) is dict else field_or_none(fields, name)
    if type(value) is kind or isinstance(value, kind):
        return value
    kinds = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
    found = ", ".join(map(str, fields)) if isinstance(fields, Mapping) else type(fields).__name__
    raise InvalidAnswerError(f"{what} has no {name!r} of type {kinds}; it has: {found or 'nothing'}")


def count_of(usage: Any, name: str) -> int | None:
    """Return a number of tokens; None if the server sends something else, because an answer is valid without it.

    >>> count_of({"input_tokens": 5}, "input_tokens"), count_of({"input_tokens": "5"}, "input_tokens")
    (5, None)
    """
    count = field_or_none(usage, name)
    return count if type(count) is int else None


def field_or_none(body: Any, name: str) -> Any:
    # JSON objects are dicts; the check for other mappings is slow.
    return body.get(name) if type(body) is dict or isinstance(body, Mapping) else None
