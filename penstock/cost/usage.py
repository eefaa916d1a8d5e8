"""Tokens of model calls: what an answer says it used, what a request may use, and an estimate for the next one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

UNLIMITED_OUTPUT = 16_384
"""Output limits this high are placeholders, as Anthropic's API requires one in every request: treat them as none."""

NUM_ACTUALS = 256


class Usage(NamedTuple):
    """Tokens of one call.

    Of the ``input`` tokens, the provider's cache held ``cached``, and keeps ``written`` for five minutes and
    ``written_1h`` for an hour.
    """

    input: int
    output: int
    cached: int = 0
    written: int = 0
    written_1h: int = 0


def usage_in(body: Any) -> Usage | None:
    """Return the tokens that the body of an answer reports, or None if it reports none.

    >>> usage_in({"usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}})
    Usage(input=9, output=2, cached=0, written=0, written_1h=0)
    >>> usage_in({"usage": {"input_tokens": 9, "cache_read_input_tokens": 90, "output_tokens": 2}})
    Usage(input=99, output=2, cached=90, written=0, written_1h=0)
    >>> usage_in({"usageMetadata": {"promptTokenCount": 9, "thoughtsTokenCount": 5, "candidatesTokenCount": 2}})
    Usage(input=9, output=7, cached=0, written=0, written_1h=0)
    """
    if type(body) is not dict:
        return None
    usage = body.get("usage")
    if type(usage) is dict:
        if "prompt_tokens" in usage and (given := _count(usage, "prompt_tokens")) is not None:
            return Usage(given, _count(usage, "completion_tokens") or 0, _cached(usage, "prompt_tokens_details"))
        given = _count(usage, "input_tokens")
        return None if given is None else _of_input_tokens(usage, given)
    usage = body.get("usageMetadata")
    if type(usage) is not dict or (given := _count(usage, "promptTokenCount")) is None:
        return None
    output = (_count(usage, "candidatesTokenCount") or 0) + (_count(usage, "thoughtsTokenCount") or 0)
    given += _count(usage, "toolUsePromptTokenCount") or 0
    return Usage(given, output, _count(usage, "cachedContentTokenCount") or 0)


def _of_input_tokens(usage: dict[str, Any], given: int) -> Usage:
    """Return the usage in an answer. The input tokens of OpenAI's Responses include cached tokens; Anthropic lists
    cached tokens separately.
    """
    output = _count(usage, "output_tokens") or 0
    if "input_tokens_details" in usage:
        return Usage(given, output, _cached(usage, "input_tokens_details"))
    cached = _count(usage, "cache_read_input_tokens") or 0
    written = _count(usage, "cache_creation_input_tokens") or 0
    by_time = usage.get("cache_creation")
    for_1h = _count(by_time, "ephemeral_1h_input_tokens") or 0 if type(by_time) is dict else 0
    return Usage(given + cached + written, output, cached, max(written - for_1h, 0), min(for_1h, written))


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    """Return a number of tokens. This runs for every call, on the output of a JSON parser: types are exact."""
    count = usage.get(name)
    return count if type(count) is int and count >= 0 else None


def _cached(usage: dict[str, Any], details: str) -> int:
    found = usage.get(details)
    return _count(found, "cached_tokens") or 0 if type(found) is dict else 0


def max_output(body: Mapping[str, Any]) -> int | None:
    """Return the most tokens that the answers to a request may have, or None if the request sets no limit.

    >>> max_output({"max_output_tokens": 100}), max_output({"max_tokens": 100, "n": 3}), max_output({})
    (100, 300, None)
    """
    options = body.get("generationConfig")
    options = options if isinstance(options, dict) else {}
    limits = [_count(body, name) for name in ("max_output_tokens", "max_completion_tokens", "max_tokens")]
    limit = next((each for each in (*limits, _count(options, "maxOutputTokens")) if each is not None), None)
    if limit is None or limit >= UNLIMITED_OUTPUT:
        return None
    return limit * (_count(body, "n") or _count(options, "candidateCount") or 1)


class UsageEstimate:
    """An estimate of what a call will use: its input, and an output that 95 % of the last answers did not exceed."""

    def __init__(self) -> None:
        self._extras: deque[int] = deque()
        self._sorted: list[int] = []

    def estimate(self, given: int) -> int:
        """Return the estimate for a call whose input takes ``given``."""
        if not self._sorted:
            return given
        return max(0, given + self._sorted[min(len(self._sorted) - 1, int(0.95 * len(self._sorted)))])

    def learn(self, given: int, used: int) -> None:
        """Record that a call whose input took ``given`` used ``used`` in the end."""
        extra = used - given
        self._extras.append(extra)
        insort(self._sorted, extra)
        if len(self._extras) > NUM_ACTUALS:
            del self._sorted[bisect_left(self._sorted, self._extras.popleft())]


def estimated_tokens(text: str) -> int:
    """Estimate the number of tokens of a text: one for about four bytes of UTF-8.

    >>> estimated_tokens("How many tokens might this be?")
    8
    """
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) // 4 + 1
