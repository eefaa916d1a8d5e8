"""Errors of servers: by HTTP status, by the error in a body with status 200, and by a broken connection."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from penstock.ai.client.addresses import shown
from penstock.ai.client.api_call import Endpoint
from penstock.ai.client.failed_attempts import ConnectionLostError
from penstock.ai.client.limits.rate_headers import read_hints
from penstock.ai.lenient_json import field_or_none
from penstock.errors import (
    AnswerTooLargeError,
    AuthenticationError,
    ContentFilteredError,
    ModelNotFoundError,
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
NO_MODEL = ("model_not_found", "modelnotfound", "invalid_model")
"""Some servers say this with status 400."""
BAD_KEY = ("api_key_invalid", "invalid_api_key")
FILTERED = ("content_filter", "responsibleaipolicyviolation", "content_policy_violation", "moderation")
"""Codes of a content filter, Azure's among them. A 403 with one is about the request and not about the key."""
FILTERED_WORDS = ("moderation", "was flagged", "content policy", "usage guidelines")
"""Gateways and xAI say this with status 403 and no code."""

reached_addresses: set[tuple[str, str | None]] = set()  # base URLs that have answered this process, with their proxies


class NeverReachedError(ProviderUnavailableError):
    """An address that never answered does not accept connections."""


class ServerErrors:
    """Makes the errors of one server, named by provider and model."""

    def __init__(self, name: str, endpoint: Endpoint, timeout_s: float) -> None:
        self._name, self._endpoint, self._timeout_s = name, endpoint, timeout_s
        self.proxy: str | None = None
        self.has_answered = False

    def note_answer(self) -> None:
        """Record that the server answered. From now on a failed connection may be temporary."""
        reached_addresses.add((self._endpoint.base_url, self.proxy))
        self.has_answered = True

    def too_large(self, max_nbytes: int) -> AnswerTooLargeError:
        return AnswerTooLargeError(
            f"{self._name} answered with more than max_response_bytes={max_nbytes:,} bytes. If the "
            "answer is what you asked for, raise the limit: ps.set_config(max_response_bytes='1GB')."
        )

    def refusal(self, status: int, raw: bytes, headers: Mapping[str, str]) -> ProviderError:
        base_url = self._endpoint.base_url
        if 300 <= status < 400:
            return ModelNotFoundError(
                f"{self._name}, {status}: {shown(base_url)} redirects requests to "
                f"{shown(headers.get('Location', ''), base_url)}. Redirects are not followed, to keep the key from "
                "other servers. If you trust that server, give its address as base_url=."
            )
        error = error_for_status(status, raw, headers, self._name, shown(base_url))
        if status == 404 and self._endpoint.if_not_found:
            error.args = (f"{error}\n{self._endpoint.if_not_found}",)
        return error

    def lost(self, exc: BaseException) -> ProviderUnavailableError:
        import aiohttp

        if isinstance(exc, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            if (self._endpoint.base_url, self.proxy) in reached_addresses:
                return ConnectionLostError(f"{self._name} cannot be reached any more: {_reason(exc)}")
            address = shown(self._endpoint.base_url)
            return NeverReachedError(f"{self._name} cannot be reached at {address}: {_reason(exc)}")
        if is_time_out(exc):
            late = ProviderUnavailableError(f"{self._name} gave no answer within {self._timeout_s:g} s")
            late.is_overload = late.is_time_out = True
            return late
        return ProviderUnavailableError(f"{self._name} closed the connection: {type(exc).__name__}: {exc}")


def _reason(error: Exception) -> str:
    """Return the system's words for an error of the network, or else the library's, which name the address again."""
    import aiohttp

    number = error.errno or 0 if type(error) is aiohttp.ClientConnectorError else 0  # a certificate's is no errno
    return os.strerror(number) if number > 0 else str(error)


def is_time_out(error: BaseException) -> bool:
    """Return whether a request was sent, and not answered in time."""
    import aiohttp

    return isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)


def connection_errors() -> tuple[type[BaseException], ...]:
    import aiohttp

    return aiohttp.ClientError, TimeoutError, OSError


def error_for_status(status: int, raw: bytes, headers: Mapping[str, str], name: str, base_url: str) -> ProviderError:
    text, codes = _message_and_codes(raw)
    message = f"{name}, {status}: {text}"
    if status < 500 and (not codes.isdisjoint(FILTERED) or (status == 403 and _has_any(text, FILTERED_WORDS))):
        return ContentFilteredError(message)
    if status == 402 or not codes.isdisjoint(NO_CREDIT) or (status < 500 and _has_any(text, NO_CREDIT_WORDS)):
        return QuotaExceededError(f"{message}\nAdd credit and run again; finished calls are not lost.")
    if status in (401, 403) or not codes.isdisjoint(BAD_KEY):
        advice = (
            ". Set another in" if codes.isdisjoint(NO_MODEL) else " for this model. Check model=, or set another in"
        )
        return AuthenticationError(
            f"{message}\n{base_url} does not accept the API key{advice} api_key= or its environment variable."
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
    if status in (404, 405) or not codes.isdisjoint(NO_MODEL):
        refused = ModelNotFoundError(f"{message}\nCheck model=, and that {base_url} is the address of its API.")
    refused.status = status
    return refused


def status_meant(error: Any) -> int:
    """Return the status for an error in a body with status 200, by its code or type.

    Errors without both, such as "model is still loading", count as temporary.

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
    metadata = error.get("metadata")  # OpenRouter: a moderated request has the reasons and the flagged text
    if field_or_none(metadata, "reasons") or field_or_none(metadata, "flagged_input"):
        words.append("moderation")
    codes = {word.lower() for word in words if isinstance(word, str)}
    return beginning_of(str(error.get("message") or error)), codes


def beginning_of(words: bytes | str) -> str:
    """Hide keys in a message and return its beginning; after cutting, part of a key would not be recognised."""
    text = words if isinstance(words, str) else words.decode("utf-8", "replace")
    return hidden(text.strip())[:MAX_MESSAGE]
