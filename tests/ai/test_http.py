"""Over the wire: what a server does wrong, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.ai.client.retried_calls import delay_before
from penstock.ai.client.server_errors import error_for_status
from penstock.cost.usage import estimated_tokens
from penstock.errors import (
    AuthenticationError,
    ContentFilteredError,
    InvalidAnswerError,
    ModelNotFoundError,
    OutageError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitedError,
    RequestRefusedError,
    UdfError,
    UnreachableError,
    WaitTooLongError,
)
from penstock.functions import embed_text, prompt
from penstock.testing import Limits, ModelServer, faults

QUESTIONS = [f"What is {number}?" for number in range(40)]
APIS = pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])


@pytest.fixture
def server(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="sk-test-1234")
    return model_server


def asked(questions: list[Any] = QUESTIONS, **options: Any) -> ps.DataFrame:
    answer = prompt(ps.col("q"), model="gpt-5", **options)
    return ps.from_pydict({"q": questions}).with_column("a", answer)


@APIS
@pytest.mark.parametrize(
    "fault",
    [
        faults.ServerError(500, first_tries=1),
        faults.ServerError(503, first_tries=2, containing=" 3", headers={"Retry-After": "0.01"}),
        faults.HttpError(408, first_tries=1),
        faults.HttpError(409, first_tries=1),
        faults.RateLimited(first_tries=1, containing=" 3", retry_after_ms=20),
        faults.RateLimited(first=4),
        faults.Reset(first_tries=1),
        faults.Reset(mid_body=True, first_tries=1),
        faults.Truncated(first_tries=1),
        faults.Malformed(first_tries=1),
        faults.Outage(0.3, at=10),
    ],
    ids=lambda fault: f"{type(fault).__name__}-{getattr(fault, 'status', '')}",
)
def test_what_passes_is_asked_again(server: ModelServer, fault: faults.Fault, chat: bool) -> None:
    server.change(faults=[fault])
    assert asked(use_chat_completions=chat).to_pydict()["a"] == QUESTIONS


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (faults.HttpError(400, "too long"), RequestRefusedError, "openai (gpt-5), 400: too long"),
        (faults.HttpError(404, "no such model"), ModelNotFoundError, "no such model"),
        (faults.HttpError(422, "not so"), RequestRefusedError, "not so"),
        (faults.Refusal("I may not."), ContentFilteredError, "I may not."),
        (faults.ContentFilter(), ContentFilteredError, "filter"),
        (faults.ServerError(500, "burning", containing="What is 7?"), ProviderUnavailableError, "burning"),
        (faults.Malformed(), InvalidAnswerError, "malformed JSON"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or (type(value).__name__ if not isinstance(value, str) else ""),
)
@APIS
def test_what_does_not_pass_is_the_row_s_error(
    server: ModelServer, fault: faults.Fault, error: type[Exception], words: str, chat: bool
) -> None:
    server.change(faults=[fault])
    with pytest.raises(UdfError, match="prompt") as raised:
        asked(max_retries=2, use_chat_completions=chat).collect()
    assert isinstance(raised.value.__cause__, error)
    assert words in str(raised.value)


@pytest.mark.parametrize("status", [404, 405])
@pytest.mark.parametrize("verb", ["prompt", "embed_text"])
def test_a_wrong_model_is_not_the_row_s_fault(server: ModelServer, verb: str, status: int) -> None:
    """The message names the model and the server, and no option that would only give nulls. It takes one request."""
    server.change(faults=[faults.HttpError(status, "The model `gpt-55` does not exist.")])
    rows = ps.from_pydict({"q": ["a", "b", "c", "d"]})
    call = prompt("{q}", model="gpt-55") if verb == "prompt" else embed_text("{q}", model="gpt-55", dimensions=8)
    with pytest.raises(UdfError, match="failed on row") as raised:
        rows.with_column("a", call).collect()
    assert isinstance(raised.value.__cause__, ModelNotFoundError)
    message = str(raised.value)
    assert f"openai (gpt-55), {status}: The model `gpt-55` does not exist." in message
    assert f"\nCheck model=, and that {server.openai_url} is the address of its API." in message
    assert verb == "prompt" or server.num_requests == 1


def test_a_key_without_the_model_says_so(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(403, "no access to model gpt-5", code="model_not_found")])
    with pytest.raises(
        AuthenticationError, match=r"the API key for this model\. Check model=, or set another in api_key="
    ):
        asked(["x"]).collect()


def test_a_bad_row_leaves_the_others(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, "not this one", containing="What is 7?")])
    df = asked(on_error="null").collect()
    answers = df.to_pydict()["a"]
    assert answers == [None if question == "What is 7?" else question for question in QUESTIONS]
    (error,) = df.errors().to_pylist()
    assert error["error_type"] == "RequestRefusedError"
    assert "not this one" in error["message"]


def test_a_fatal_answer_is_asked_for_once(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, "never")])
    asked(["x"], on_error="null").collect()
    assert server.num_requests == 1


def test_retries_are_counted(server: ModelServer) -> None:
    server.change(faults=[faults.ServerError(500)])
    with pytest.raises(OutageError):
        asked(["x"], on_error="null", max_retries=3).collect()
    assert server.num_requests == 4 + 4  # with those of the probe


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_ends_the_query(server: ModelServer, status: int) -> None:
    server.change(faults=[faults.HttpError(status, "Incorrect API key provided: sk-test-1234.")])
    with pytest.raises(AuthenticationError, match=r"api_key=") as raised:
        asked(QUESTIONS * 50, on_error="null").collect()
    assert "sk-test-1234" not in str(raised.value)
    assert server.num_requests < 1000


def test_an_empty_account_ends_the_query(server: ModelServer) -> None:
    server.change(faults=[faults.RateLimited(code="insufficient_quota", message="You exceeded your quota")])
    with pytest.raises(QuotaExceededError, match="Add credit"):
        asked(on_error="null").collect()


def test_nobody_at_the_address(monkeypatch: pytest.MonkeyPatch, unused_port: int) -> None:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    ps.set_provider("ollama", base_url=f"http://127.0.0.1:{unused_port}/v1")
    with pytest.raises(UnreachableError, match=r"ollama serve"):
        asked(on_error="null").collect()


def test_a_request_that_hangs_is_given_up(server: ModelServer) -> None:
    server.change(faults=[faults.Hang(first_tries=1, containing="7?")])
    assert asked(timeout=1.0).to_pydict()["a"] == QUESTIONS


def test_limits_are_kept(server: ModelServer) -> None:
    server.change(latency=0.01)
    asked(QUESTIONS * 10, max_concurrency=3).collect()
    assert server.max_in_flight <= 3


def test_a_server_s_own_limit_loses_nothing(server: ModelServer) -> None:
    server.change(limits=Limits(requests_per_second=50, has_headers=False))
    many = [f"{number}" for number in range(150)]
    assert asked(many).to_pydict()["a"] == many
    assert server.counts.refused > 0


def test_a_query_that_is_stopped_leaves_no_request(server: ModelServer) -> None:
    server.change(latency=0.05)
    assert len(asked(QUESTIONS * 100).limit(5).to_pydict()["a"]) == 5
    assert server.num_requests < 4000


@pytest.mark.parametrize(
    "fault",
    [
        faults.RateLimited(first=1, retry_after=86400),
        faults.RateLimited(first=1, retry_after="Fri, 01 Jan 2099 00:00:00 GMT"),
        faults.ServerError(503, first=1, headers={"Retry-After": "7200"}),
        faults.RateLimited(
            first=1, headers={"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h"}
        ),
    ],
)
def test_far_waits_fail_the_query_and_the_next_one_asks_again(server: ModelServer, fault: faults.Fault) -> None:
    server.change(faults=[fault])
    with pytest.raises(WaitTooLongError, match=r"openai \(gpt-5\) asks to come back in .*, at 20\d\d-"):
        asked(QUESTIONS[:1]).to_pydict()
    assert len(asked(QUESTIONS[1:]).to_pydict()["a"]) == 39


def test_delays_grow_and_are_bounded() -> None:
    error = ProviderUnavailableError()
    delays = [delay_before(attempt, error, 0.999) for attempt in range(1, 12)]
    assert delays == sorted(delays)
    assert delays[-1] <= 30
    assert delay_before(3, RateLimitedError(), 0.5) == 0


def test_retry_after_is_honoured() -> None:
    error = error_for_status(503, b"{}", {"retry-after": "7"}, "x", "http://x")
    assert delay_before(1, error, 0.0) == 7


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'{"error": {"message": "a"}}', "a"),
        (b'{"error": "b"}', "b"),
        (b'[{"error": {"message": "c"}}]', "c"),
        (b"<html>d</html>", "d"),
        (b"", "no reason given"),
        (b'{"detail": "e"}', "e"),
    ],
)
def test_errors_of_all_forms_are_told(raw: bytes, words: str) -> None:
    assert words in str(error_for_status(400, raw, {}, "name", "http://x"))


def test_google_s_word_for_a_bad_key() -> None:
    raw = b'{"error": {"code": 400, "message": "API key not valid", "details": [{"reason": "API_KEY_INVALID"}]}}'
    assert isinstance(error_for_status(400, raw, {}, "google", "http://x"), AuthenticationError)


def test_tokens_are_estimated() -> None:
    assert estimated_tokens("") == 1
    assert estimated_tokens("日本語の文章") >= 4
