"""Reading rate-limit headers, including those that make no sense."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from penstock.ai.client.limits.rate_headers import NO_HINTS, Hints, RateWindow, parse_duration, read_hints

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360),
        ("120ms", 0.12),
        ("1h2m3.5s", 3723.5),
        ("1s", 1),
        ("0s", 0),
        ("12", 12),
        ("1.5", 1.5),
        ("250us", 0.00025),
        ("2d", 172800),
        (" 3S ", 3),
        *((nonsense, None) for nonsense in ("", "soon", "-1s", "1x", "s", "nan", "inf", "-5", "1m oops", "٣s!")),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:00 GMT"}, 0),
        ({"retry-after": "Tue, 14 Nov 2023 23:00:10 GMT", "date": "Tue, 14 Nov 2023 23:00:00 GMT"}, 10),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "?", "retry-after": "9"}, 9),
        ({"retry-after": "999999999999"}, 366 * 86400),
        ({"retry-after": "later"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": ""}, None),
        ({"content-type": "text/plain"}, None),
        (None, None),
    ],
)
def test_retry_after(headers: dict[str, str] | None, seconds: float | None) -> None:
    assert read_hints(headers, NOW).retry_after_s == seconds


def test_openai() -> None:
    headers = {
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9999",
        "x-ratelimit-reset-requests": "6ms",
        "x-ratelimit-limit-tokens": "2000000",
        "x-ratelimit-remaining-tokens": "1500000",
        "x-ratelimit-reset-tokens": "15s",
    }
    assert read_hints(headers, NOW) == Hints(None, RateWindow(9999, 0.006, 10000), RateWindow(1500000, 15, 2000000))


def test_anthropic_takes_the_tightest_of_its_token_limits() -> None:
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:21Z",
        "anthropic-ratelimit-input-tokens-limit": "40000",
        "anthropic-ratelimit-input-tokens-remaining": "39000",
        "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:13:22Z",
        "anthropic-ratelimit-output-tokens-limit": "8000",
        "anthropic-ratelimit-output-tokens-remaining": "1000",
        "anthropic-ratelimit-output-tokens-reset": "2023-11-14T22:14:20+00:00",
    }
    assert read_hints(headers, NOW) == Hints(None, RateWindow(49, 1, 50), RateWindow(1000, 60, 8000))


def test_a_window_needs_what_is_left_and_when_it_is_full() -> None:
    assert read_hints({"x-ratelimit-remaining-requests": "5"}, NOW) == Hints()
    assert read_hints({"x-ratelimit-remaining-tokens": "?", "x-ratelimit-reset-tokens": "1s"}, NOW).tokens is None
    assert read_hints({"anthropic-ratelimit-tokens-remaining": "5", "anthropic-ratelimit-tokens-reset": "?"}, NOW) == (
        Hints()
    )


def test_ordinary_headers_make_no_object() -> None:
    assert read_hints({"content-type": "application/json"}, NOW) is NO_HINTS


NAMES = [
    *("retry-after", "retry-after-ms", "date"),
    *(f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset") for kind in ("requests", "tokens")),
    *(
        f"anthropic-ratelimit-{kind}-{what}"
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
        for what in ("limit", "remaining", "reset")
    ),
]
VALUES = st.one_of(
    st.text(max_size=20),
    st.floats().map(str),
    st.integers().map(str),
    st.from_regex(r"(\d{1,4}(\.\d)?(ms|s|m|h|d)){1,3}", fullmatch=True),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_nonsense_is_tolerated(headers: dict[str, str]) -> None:
    hints = read_hints(headers, NOW)

    waits = [hints.retry_after_s, *(window.reset_s for window in (hints.requests, hints.tokens) if window)]
    assert all(0 <= wait <= 366 * 86400 for wait in waits if wait is not None)
    amounts = [window.remaining for window in (hints.requests, hints.tokens) if window]
    assert all(math.isfinite(amount) and amount >= 0 for amount in amounts)
