"""Over the wire: what a server does wrong, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.ai.remote.http import delay_before, error_for_status, estimated_tokens, tokens_used
from penstock.errors import (
    AuthenticationError,
    ContentFilteredError,
    InvalidAnswerError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitedError,
    RequestRefusedError,
    UdfError,
    UnreachableError,
)
from penstock.functions import embed_text, prompt
from penstock.testing import Limits, ModelServer, faults
from tests.ai.conftest import RawServer

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
        faults.ServerError(503, first_tries=2, headers={"Retry-After": "0.01"}),
        faults.HttpError(408, first_tries=1),
        faults.HttpError(409, first_tries=1),
        faults.RateLimited(first_tries=1, retry_after_ms=20),
        faults.RateLimited(first=30),
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
        (faults.HttpError(404, "no such model"), RequestRefusedError, "no such model"),
        (faults.HttpError(422, "not so"), RequestRefusedError, "not so"),
        (faults.Refusal("I may not."), ContentFilteredError, "I may not."),
        (faults.ContentFilter(), ContentFilteredError, "filter"),
        (faults.ServerError(500, "burning"), ProviderUnavailableError, "burning"),
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
    asked(["x"], on_error="null", max_retries=3).collect()
    assert server.num_requests == 4


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_ends_the_query(server: ModelServer, status: int) -> None:
    server.change(faults=[faults.HttpError(status, "Incorrect API key provided: sk-test-1234.")])
    with pytest.raises(AuthenticationError, match=r"api_key=") as raised:
        asked(QUESTIONS * 50, on_error="null").collect()
    assert "sk-test-1234" not in str(raised.value)
    assert server.num_requests < 1000


def test_an_empty_account_ends_the_query(server: ModelServer) -> None:
    server.change(faults=[faults.RateLimited(code="insufficient_quota", message="You exceeded your quota")])
    with pytest.raises(QuotaExceededError, match="add credit"):
        asked(on_error="null").collect()


def test_nobody_at_the_address(monkeypatch: pytest.MonkeyPatch, unused_port: int) -> None:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    ps.set_provider("ollama", base_url=f"http://127.0.0.1:{unused_port}/v1")
    with pytest.raises(UnreachableError, match=r"ollama serve"):
        asked(on_error="null").collect()


def test_a_request_that_hangs_is_given_up(server: ModelServer) -> None:
    server.change(faults=[faults.Hang(first_tries=1)])
    started = time.monotonic()
    assert asked(timeout=0.3).to_pydict()["a"] == QUESTIONS
    assert time.monotonic() - started < 20


def test_limits_are_kept(server: ModelServer) -> None:
    server.change(latency=0.01)
    asked(QUESTIONS * 10, max_concurrency=3).collect()
    assert server.max_in_flight <= 3


def test_a_server_s_own_limit_loses_nothing(server: ModelServer) -> None:
    server.change(limits=Limits(requests_per_second=200, has_headers=False))
    many = [f"{number}" for number in range(600)]
    assert asked(many).to_pydict()["a"] == many
    assert server.counts.refused > 0


def test_a_query_that_is_stopped_leaves_no_request(server: ModelServer) -> None:
    server.change(latency=0.05)
    assert len(asked(QUESTIONS * 100).limit(5).to_pydict()["a"]) == 5
    assert server.num_requests < 4000


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


def test_tokens_of_all_forms_are_read() -> None:
    assert tokens_used({"usage": {"total_tokens": 5}}) == 5
    assert tokens_used({"usage": {"input_tokens": 2, "output_tokens": 3}}) == 5
    assert tokens_used({"usageMetadata": {"totalTokenCount": 5}}) == 5
    assert tokens_used({}) is None


def test_tokens_are_estimated() -> None:
    assert estimated_tokens("") == 1
    assert estimated_tokens("日本語の文章") >= 4


# --- bodies that only some servers send -------------------------------------------------------------------------------


def embedded(texts: list[str], **options: Any) -> list[list[float]]:
    df = ps.from_pydict({"t": texts}).select(embed_text(ps.col("t"), model="m", dimensions=2, **options))
    return [list(vector) for vector in df.to_pydict()["t"]]


@pytest.mark.parametrize("indices", [[0, 0, 0], [None] * 3, [7, 7, 7], [0, 1, 2], [2, 0, 1]], ids=str)
def test_vectors_go_to_their_texts(raw_server: RawServer, indices: list[Any]) -> None:
    is_order = indices != [2, 0, 1]
    data = [{"index": i, "embedding": [at if is_order else i, 0]} for at, i in enumerate(indices)]
    raw_server.say({"data": data})
    assert embedded(["a", "b", "c"]) == [[0, 0], [1, 0], [2, 0]]
    raw_server.say({"data": [{"embedding": each["embedding"]} for each in data]})
    assert embedded(["a", "b", "c"])[0] == data[0]["embedding"]


@pytest.mark.parametrize("indices", [[0, 0, 1], [1, 2, 3], [0, None, 2], ["0", "2", "1"], [-1, 0, 1]], ids=str)
def test_vectors_of_nobody_knows_whom(raw_server: RawServer, indices: list[Any]) -> None:
    raw_server.say({"data": [{"index": i, "embedding": [1, 0]} for i in indices]})
    with pytest.raises(UdfError, match="whose is whose"):
        embedded(["a", "b", "c"], max_retries=1)
    assert len(raw_server.requests) == 2


VECTOR = {"index": 0, "embedding": [1.0, 2.0]}
GOOD = {"choices": [{"message": {"content": "fine"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}


@pytest.mark.parametrize(
    "data",
    [
        [],
        [VECTOR],
        [VECTOR] * 3,
        [{"embedding": [1.0]}] * 2,
        [{"embedding": [1.0]}, {"embedding": [1.0, 2.0]}],
        [{"embedding": [None, None]}] * 2,
        [{"embedding": ["a", "b"]}] * 2,
        [{"embedding": [[1.0], [1.0, 2.0]]}] * 2,
        [{"embedding": "!!!!"}] * 2,
        [{"embedding": "AAA="}] * 2,
        ["x", "y"],
        5,
    ],
    ids=str,
)
def test_bad_vectors_are_asked_for_again(raw_server: RawServer, data: Any) -> None:
    raw_server.say({"data": data}, {"data": [VECTOR, VECTOR]})
    assert embedded(["a", "b"]) == [[1, 2], [1, 2]]
    raw_server.say({"data": data})
    with pytest.raises(UdfError) as raised:
        embedded(["a", "b"], max_retries=1)
    assert isinstance(raised.value.__cause__, InvalidAnswerError)
    assert len(raw_server.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"choices": []},
        {"choices": ["x"]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {"tool_calls": ["x"]}}]},
        {"choices": None},
        {},
        [],
        "x",
    ],
    ids=str,
)
def test_bad_answers_are_asked_for_again(raw_server: RawServer, body: Any) -> None:
    raw_server.say(body, GOOD)
    assert asked(["a"], use_chat_completions=True).to_pydict()["a"] == ["fine"]
    assert len(raw_server.requests) == 2


@pytest.mark.parametrize("output", [["x"], [{"type": "message", "content": ["x"]}], [{"type": "message"}], {}], ids=str)
def test_bad_responses_are_asked_for_again(raw_server: RawServer, output: Any) -> None:
    raw_server.say({"status": "completed", "output": output})
    with pytest.raises(UdfError) as raised:
        asked(["a"], max_retries=1).collect()
    assert isinstance(raised.value.__cause__, InvalidAnswerError)
    assert len(raw_server.requests) == 2


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": "5", "input_tokens": "5", "output_tokens": 3},
        {"prompt_tokens": 1.5, "total_tokens": [], "prompt_tokens_details": []},
        {"prompt_tokens": None, "prompt_tokens_details": {"cached_tokens": {}}},
        [1],
        "many",
        7,
    ],
    ids=str,
)
def test_odd_counts_of_tokens_do_not_matter(raw_server: RawServer, usage: Any) -> None:
    raw_server.say({**GOOD, "usage": usage})
    (found,) = asked(["a"], use_chat_completions=True, usage=True).to_pydict()["a"]
    assert found["value"] == "fine"
    assert found["input_tokens"] is None
    ps.set_provider("anthropic", base_url=raw_server.url, api_key="sk-test-1234")
    raw_server.say({"content": [{"type": "text", "text": "fine"}], "usage": usage})
    assert asked(["a"], provider="anthropic").to_pydict()["a"] == ["fine"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "so not", "code": 400}, RequestRefusedError),
        ({"message": "so not", "code": "400"}, RequestRefusedError),
        ({"message": "so not", "code": None, "type": "invalid_request_error"}, RequestRefusedError),
        ({"message": "so not", "code": "model_not_found"}, RequestRefusedError),
        ({"message": "so not", "code": 0, "status": "INVALID_ARGUMENT"}, RequestRefusedError),
        ({"message": "so not", "type": "authentication_error"}, AuthenticationError),
        ({"message": "so not", "type": "insufficient_quota", "code": "insufficient_quota"}, QuotaExceededError),
    ],
    ids=str,
)
def test_an_error_that_calls_itself_200_is_final(raw_server: RawServer, error: Any, kind: type[Exception]) -> None:
    raw_server.say({"error": error})
    with pytest.raises((UdfError, kind), match="so not") as raised:
        asked(["a"]).collect()
    assert isinstance(raised.value.__cause__ or raised.value, kind)
    assert len(raw_server.requests) == 1


@pytest.mark.parametrize("error", ["model is loading", {"message": "model is loading"}, {"code": 503}, 5], ids=str)
def test_an_error_that_calls_itself_200_may_pass(raw_server: RawServer, error: Any) -> None:
    raw_server.say({"error": error}, GOOD)
    assert asked(["a"], use_chat_completions=True).to_pydict()["a"] == ["fine"]
    raw_server.say({"error": error})
    with pytest.raises(UdfError, match="model is loading" if "loading" in str(error) else "50[23]"):
        asked(["a"], max_retries=0).collect()


# --- redirects, keys in errors, proxies -------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_keys_do_not_follow_a_redirect(
    raw_server: RawServer, start_server: Callable[[], RawServer], status: int
) -> None:
    other = start_server()
    other.say(GOOD)
    target = f"http://joe:hunter2@127.0.0.1:{other.port}/v1/steal?code=abc"
    raw_server.say(b"", status=status, headers={"Location": target})
    with pytest.raises(UdfError, match=f"sends requests on to http://127.0.0.1:{other.port}/v1/steal") as raised:
        asked(["a"]).collect()
    assert isinstance(raised.value.__cause__, RequestRefusedError)
    assert "hunter2" not in str(raised.value)
    assert not other.requests
    assert len(raw_server.requests) == 1


@pytest.mark.parametrize("form", ['{{"error": {{"message": "{}"}}}}', "<html>{}</html>", '"{}"'])
def test_a_key_is_hidden_before_words_are_cut(raw_server: RawServer, form: str) -> None:
    for before in range(480, 500, 3):
        raw_server.say(form.format("." * before + "sk-test-1234").encode(), status=400)
        with pytest.raises(UdfError) as raised:
            asked(["a"]).collect()
        assert "sk-t" not in str(raised.value)


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_proxies_of_the_environment(
    raw_server: RawServer, start_server: Callable[[], RawServer], no_proxy: pytest.MonkeyPatch, variable: str
) -> None:
    proxy = start_server()
    raw_server.say(GOOD)
    proxy.say(GOOD)
    no_proxy.setenv(variable, f"http://joe:hunter%32@127.0.0.1:{proxy.port}")
    asked(["a"], use_chat_completions=True).collect()
    (request,) = proxy.requests
    assert request.path == f"{raw_server.url}/chat/completions"
    assert request.headers["Authorization"] == "Bearer sk-test-1234"
    assert request.headers["Proxy-Authorization"] == "Basic am9lOmh1bnRlcjI="
    no_proxy.setenv("NO_PROXY", "127.0.0.1")
    asked(["a"], use_chat_completions=True).collect()
    assert (len(proxy.requests), len(raw_server.requests)) == (1, 1)


def test_a_netrc_file_leaves_the_key_alone(
    raw_server: RawServer, start_server: Callable[[], RawServer], no_proxy: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login joe password hunter2\n")
    netrc.chmod(0o600)
    proxy = start_server()
    proxy.say(GOOD)
    no_proxy.setenv("NETRC", str(netrc))
    no_proxy.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
    asked(["a"], use_chat_completions=True).collect()
    assert proxy.requests[0].headers["Authorization"] == "Bearer sk-test-1234"


def test_a_proxy_that_is_not_there(raw_server: RawServer, no_proxy: pytest.MonkeyPatch, unused_port: int) -> None:
    raw_server.say(GOOD)
    asked(["a"], use_chat_completions=True).collect()
    no_proxy.setenv("http_proxy", f"http://joe:hunter2@127.0.0.1:{unused_port}")
    with pytest.raises(UnreachableError, match=str(unused_port)) as raised:
        asked(["a"], max_retries=0).collect()
    assert "hunter2" not in str(raised.value)


def test_a_proxy_of_another_kind(raw_server: RawServer, no_proxy: pytest.MonkeyPatch) -> None:
    no_proxy.setenv("all_proxy", "socks5://joe:hunter2@127.0.0.1:9")
    with pytest.raises(UnreachableError, match=r"NO_PROXY=127\.0\.0\.1") as raised:
        asked(["a"]).collect()
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("provider", "end", "path"),
    [
        ("openai", "/v1", "/v1/responses"),
        ("openai", "/v1/", "/v1/responses"),
        ("anthropic", "", "/v1/messages"),
        ("anthropic", "/v1/", "/v1/messages"),
        ("google", "/v1beta", "/v1beta/models/gpt-5:generateContent"),
    ],
)
def test_the_query_of_an_address_goes_with_every_request(
    raw_server: RawServer, provider: str, end: str, path: str
) -> None:
    raw_server.say({"error": "no"}, status=400)
    url = raw_server.url.removesuffix("/v1")
    ps.set_provider(provider, base_url=f" {url}{end}?api-version=2024-06", api_key="k")
    asked(["a"], on_error="null").collect()
    assert [request.path for request in raw_server.requests] == [f"{path}?api-version=2024-06"]
