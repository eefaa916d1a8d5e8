"""What calls took, as any of the usual bodies tells, and what they may take at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.ai.conversation import Generation
from penstock.ai.remote.wires.wire import count_of, field_or_none

NO_LIMIT = 16_384
"""A limit on output from here on is none that anybody means: Anthropic's API wants one in every request."""


class Usage(NamedTuple):
    """Tokens of a call; ``cached`` are those of the input that a cache of the provider held."""

    input: int
    output: int
    cached: int = 0


def usage_in(body: Any) -> Usage | None:
    """Return the tokens of a call, None where its answer does not say them.

    >>> usage_in({"usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}})
    Usage(input=9, output=2, cached=0)
    >>> usage_in({"usage": {"input_tokens": 9, "cache_read_input_tokens": 90, "output_tokens": 2}})
    Usage(input=99, output=2, cached=90)
    >>> usage_in({"usageMetadata": {"promptTokenCount": 9, "thoughtsTokenCount": 5, "candidatesTokenCount": 2}})
    Usage(input=9, output=7, cached=0)
    """
    if type(body) is not dict:
        return None
    usage = body.get("usage")
    if type(usage) is dict:
        if (given := _count(usage, "prompt_tokens")) is not None:
            return Usage(given, _count(usage, "completion_tokens") or 0, _cached(usage, "prompt_tokens_details"))
        given = _count(usage, "input_tokens")
        return None if given is None else _of_input_tokens(usage, given)
    usage = body.get("usageMetadata")
    if type(usage) is not dict or (given := _count(usage, "promptTokenCount")) is None:
        return None
    made = (_count(usage, "candidatesTokenCount") or 0) + (_count(usage, "thoughtsTokenCount") or 0)
    given += _count(usage, "toolUsePromptTokenCount") or 0
    return Usage(given, made, _count(usage, "cachedContentTokenCount") or 0)


def usage_of(answer: Generation) -> Usage | None:
    """Return the tokens that an answer says it took."""
    given = answer.input_tokens
    return None if given is None else Usage(given, answer.output_tokens or 0, answer.cached_tokens or 0)


def _of_input_tokens(usage: dict[str, Any], given: int) -> Usage:
    """Return the usage of OpenAI's Responses, which count cached tokens in, or of Anthropic, which count them apart."""
    made = _count(usage, "output_tokens") or 0
    if "input_tokens_details" in usage:
        return Usage(given, made, _cached(usage, "input_tokens_details"))
    cached = _count(usage, "cache_read_input_tokens") or 0
    return Usage(given + cached + (_count(usage, "cache_creation_input_tokens") or 0), made, cached)


def _count(usage: dict[str, Any], name: str) -> int | None:
    """Return a number of tokens. This runs for every call, on what a JSON parser gave: types are exact."""
    count = usage.get(name)
    return count if type(count) is int and count >= 0 else None


def _cached(usage: dict[str, Any], details: str) -> int:
    found = usage.get(details)
    return _count(found, "cached_tokens") or 0 if type(found) is dict else 0


def most_output(body: Mapping[str, Any]) -> int | None:
    """Return how many tokens the answers to a request have at most, None where the request leaves that open.

    >>> most_output({"max_output_tokens": 100}), most_output({"max_tokens": 100, "n": 3}), most_output({})
    (100, 300, None)
    """
    options = field_or_none(body, "generationConfig") or {}
    limits = [count_of(body, name) for name in ("max_output_tokens", "max_completion_tokens", "max_tokens")]
    limit = next((each for each in (*limits, count_of(options, "maxOutputTokens")) if each is not None), None)
    if limit is None or limit >= NO_LIMIT:
        return None
    return limit * (count_of(body, "n") or count_of(options, "candidateCount") or 1)
