"""Errors of servers by HTTP status, or by the error in a body with status 200."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from penstock.ai.client.limits.rate_headers import read_hints
from penstock.ai.wire import field_or_none
from penstock.errors import (
    AuthenticationError,
    ContentFilteredError,
    ProviderError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitedError,
    RequestRefusedError,
)
from penstock.storage.secret import hidden

MAX_MESSAGE = 500  # characters of a server's message in an error

STATUSES = {
    **dict.fromkeys(("invalid_request_error", "invalid_argument", "badrequesterror", "bad_request_error"), 400),
    **dict.fromkeys(("invalid_prompt", "context_length_exceeded", "content_policy_violation"), 400),
    **dict.fromkeys(("failed_precondition", "unsupported_parameter", "unsupported_value"), 400),
    **dict.fromkeys(("content_filter", "responsibleaipolicyviolation"), 400),
    **dict.fromkeys(("authentication_error", "invalid_api_key", "unauthenticated", "api_key_invalid"), 401),
    "billing_error": 402,
    **dict.fromkeys(("permission_error", "permission_denied"), 403),
    **dict.fromkeys(("not_found_error", "notfounderror", "not_found", "model_not_found"), 404),
    "request_too_large": 413,
    **dict.fromkeys(("rate_limit_error", "rate_limit_exceeded", "resource_exhausted"), 429),
    **dict.fromkeys(("insufficient_quota", "billing_hard_limit_reached", "billing_not_active"), 429),
}
"""HTTP statuses of error codes and types, for errors without a status."""

OVERLOADED = (503, 529)
"""Statuses that refuse a request because of the server's load, as 429 does."""

NO_CREDIT = (
    "insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error", "billing_disabled",
    "insufficient_balance", "exceeded_current_quota_error", "arrearage",
)  # fmt: skip
NO_CREDIT_WORDS = ("credit balance is too low", "insufficient balance", "insufficient credits")
"""Anthropic says this with status 400 and the code of any invalid request."""
BAD_KEY = ("api_key_invalid", "invalid_api_key")
FILTERED = ("content_filter", "responsibleaipolicyviolation", "content_policy_violation", "moderation")
"""Codes of a content filter, Azure's among them. A 403 with one is about the request and not about the key."""
FILTERED_WORDS = ("moderation", "was flagged", "content policy", "usage guidelines")
"""Gateways and xAI say this with status 403 and no code."""


def error_for_status(status: int, raw: bytes, headers: Mapping[str, str], name: str, base_url: str) -> ProviderError:
    text, codes = _message_and_codes(raw)
    message = f"{name}, {status}: {text}"
    if status < 500 and (not codes.isdisjoint(FILTERED) or (status == 403 and _has_any(text, FILTERED_WORDS))):
        return ContentFilteredError(message)
    if status == 402 or not codes.isdisjoint(NO_CREDIT) or (status < 500 and _has_any(text, NO_CREDIT_WORDS)):
        return QuotaExceededError(f"{message}\nAdd credit and run again; finished calls are not lost.")
    if status in (401, 403) or not codes.isdisjoint(BAD_KEY):
        return AuthenticationError(
            f"{message}\n{base_url} does not accept the API key. Set another in api_key= or its environment variable."
        )
    if status in (408, 409, 429) or status >= 500:
        hints = read_hints(headers, time.time())
        error: RateLimitedError | ProviderUnavailableError
        if status == 429:
            error = RateLimitedError(message)
        else:
            error = ProviderUnavailableError(message)
            error.is_overload = status in OVERLOADED
        error.retry_after_s = hints.wait_s("refused" if status == 429 else "unavailable")
        return error
    refused = RequestRefusedError(message)
    refused.status = status
    return refused


def status_meant(error: Any) -> int:
    """Return the status for an error in a body with status 200, by its code or type.

    Errors with neither count as temporary, such as a model that is still loading.

    >>> status_meant({"code": "400"}), status_meant({"type": "authentication_error"}), status_meant("loading")
    (400, 401, 502)
    """
    words = [field_or_none(error, name) for name in ("code", "status", "type")]
    for word in words:
        if str(word).isdecimal() and 400 <= int(word) < 600:
            return int(word)
    return next((STATUSES[word.lower()] for word in words if str(word).lower() in STATUSES), 502)


def _has_any(text: str, phrases: Sequence[str]) -> bool:
    return any(phrase in text.lower() for phrase in phrases)


def _message_and_codes(raw: bytes) -> tuple[str, set[str]]:
    """Return the message of an error in any of the usual formats, and its codes, types and reasons in lower case."""
    try:
        error: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return beginning_of(raw) or "(no reason given)", set()
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, dict):
        error = error.get("error", error)
    if not isinstance(error, dict):
        return beginning_of(str(error)), set()
    details = error.get("details")
    words = [field_or_none(each, "reason") for each in (details if isinstance(details, list) else ())]
    words += [error.get("code"), error.get("type"), field_or_none(error.get("innererror"), "code")]
    metadata = error.get("metadata")  # of OpenRouter: a moderated request has the reasons and the flagged text
    if field_or_none(metadata, "reasons") or field_or_none(metadata, "flagged_input"):
        words.append("moderation")
    codes = {word.lower() for word in words if isinstance(word, str)}
    return beginning_of(str(error.get("message") or error)), codes


def beginning_of(words: bytes | str) -> str:
    """Return the beginning of a message, with keys hidden first: a part of a key is not recognised."""
    text = words if isinstance(words, str) else words.decode("utf-8", "replace")
    return hidden(text.strip())[:MAX_MESSAGE]
