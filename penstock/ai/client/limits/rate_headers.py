"""Read ``Retry-After`` and the rate-limit headers of OpenAI and Anthropic.

Servers, proxies and gateways disagree on every detail, so nothing here raises: a header that makes no sense is ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

LONGEST_WAIT_S = 366 * 86400.0
"""A longer wait means forever."""

_UNIT_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|d|h|m|s)")
_ANTHROPIC_TOKENS = ("tokens", "input-tokens", "output-tokens")
_OPENAI_REMAINING = ("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens")
_ANTHROPIC_REMAINING = tuple(f"anthropic-ratelimit-{kind}-remaining" for kind in ("requests", *_ANTHROPIC_TOKENS))
_NAMES = ("retry-after-ms", "retry-after", *_OPENAI_REMAINING, *_ANTHROPIC_REMAINING)


@dataclass(frozen=True, slots=True)
class RateWindow:
    """``remaining`` of ``limit`` requests or tokens are left; after ``reset_s`` seconds there are ``limit`` again."""

    remaining: float
    reset_s: float
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Hints:
    retry_after_s: float | None = None
    requests: RateWindow | None = None
    tokens: RateWindow | None = None

    def wait_s(self, outcome: str) -> float | None:
        """Return the wait that the server asks for: ``Retry-After``, or after a refusal the reset of an empty quota."""
        if self.retry_after_s is not None or outcome != "refused":
            return self.retry_after_s
        return max((w.reset_s for w in (self.requests, self.tokens) if w and w.remaining < 1), default=None)


NO_HINTS = Hints()


def read_hints(headers: Mapping[str, str] | None, wall_time: float) -> Hints:
    """Read the headers of an answer; their names are in lower case. ``wall_time`` is now, in seconds since 1970."""
    if not headers or headers.keys().isdisjoint(_NAMES):
        return NO_HINTS
    retry_after_s = _retry_after(headers, wall_time)
    if any(map(headers.__contains__, _OPENAI_REMAINING)):
        return Hints(retry_after_s, _openai(headers, "requests"), _openai(headers, "tokens"))
    if any(map(headers.__contains__, _ANTHROPIC_REMAINING)):
        tokens = [w for kind in _ANTHROPIC_TOKENS if (w := _anthropic(headers, kind, wall_time))]
        return Hints(retry_after_s, _anthropic(headers, "requests", wall_time), min(tokens, key=_share, default=None))
    return NO_HINTS if retry_after_s is None else Hints(retry_after_s)


def parse_duration(text: str | None) -> float | None:
    """Read ``6m0s``, ``120ms``, ``1h2m3.5s`` or plain seconds.

    >>> parse_duration("6m0s"), parse_duration("120ms"), parse_duration("1.5"), parse_duration("soon")
    (360.0, 0.12, 1.5, None)
    """
    if not text:
        return None
    text = text.strip().lower()
    if (seconds := parse_number(text)) is not None:
        return seconds
    parts = list(_PART.finditer(text))
    if not parts or "".join(part.group() for part in parts) != text:
        return None
    return sum(float(part.group(1)) * _UNIT_S[part.group(2)] for part in parts)


def parse_number(text: str | None) -> float | None:
    """Read a finite number that is not negative."""
    try:
        number = float(text) if text else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) and number >= 0 else None


@lru_cache(maxsize=64)  # the answers of one second carry the same dates
def parse_moment(text: str | None) -> float | None:
    """Read an RFC 3339 time or an HTTP date, as seconds since 1970."""
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read((text or "").strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError, OSError):
            continue
    return None


def _until(text: str | None, headers: Mapping[str, str], wall_time: float) -> float | None:
    """Return the seconds until a moment, by the server's own clock if there is a ``Date`` header."""
    if (moment := parse_moment(text)) is None:
        return None
    server_time = parse_moment(headers.get("date"))
    return max(0.0, moment - (wall_time if server_time is None else server_time))


def _retry_after(headers: Mapping[str, str], wall_time: float) -> float | None:
    if "retry-after-ms" in headers and (ms := parse_number(headers["retry-after-ms"])) is not None:
        return min(ms / 1000, LONGEST_WAIT_S)
    if "retry-after" not in headers:
        return None
    text = headers["retry-after"]
    seconds = parse_duration(text)
    if seconds is None:
        seconds = _until(text, headers, wall_time)
    return None if seconds is None else min(seconds, LONGEST_WAIT_S)


def _openai(headers: Mapping[str, str], kind: str) -> RateWindow | None:
    reset = headers.get(f"x-ratelimit-reset-{kind}")
    return _window(headers, f"x-ratelimit-remaining-{kind}", f"x-ratelimit-limit-{kind}", parse_duration(reset))


def _anthropic(headers: Mapping[str, str], kind: str, wall_time: float) -> RateWindow | None:
    prefix = f"anthropic-ratelimit-{kind}"
    reset_s = _until(headers.get(f"{prefix}-reset"), headers, wall_time)
    return _window(headers, f"{prefix}-remaining", f"{prefix}-limit", reset_s)


def _window(headers: Mapping[str, str], remaining: str, limit: str, reset_s: float | None) -> RateWindow | None:
    left = parse_number(headers.get(remaining))
    if left is None or reset_s is None:
        return None
    return RateWindow(left, min(reset_s, LONGEST_WAIT_S), parse_number(headers.get(limit)) or None)


def _share(window: RateWindow) -> float:
    return window.remaining / window.limit if window.limit else window.remaining
