"""Servers that answer as no specification says, send requests elsewhere, or stand behind a proxy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import (
    AuthenticationError,
    InvalidAnswerError,
    QuotaExceededError,
    RequestRefusedError,
    UdfError,
    UnreachableError,
)
from penstock.functions import embed_text, prompt
from tests.ai.conftest import RawServer


def asked(questions: list[str], **options: Any) -> ps.DataFrame:
    answer = prompt(ps.col("q"), model="gpt-5", **options)
    return ps.from_pydict({"q": questions}).with_column("a", answer)


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
def test_vectors_with_wrong_numbers(raw_server: RawServer, indices: list[Any]) -> None:
    raw_server.say({"data": [{"index": i, "embedding": [1, 0]} for i in indices]})
    with pytest.raises(UdfError, match="does not identify their texts"):
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
    with pytest.raises(UdfError, match=f"redirects requests to http://127.0.0.1:{other.port}/v1/steal") as raised:
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


@pytest.mark.parametrize(("path", "has_advice"), [("", True), ("/api", True), ("/v1", False), ("/openai/v1/", False)])
def test_a_404_says_that_the_address_may_lack_v1(raw_server: RawServer, path: str, has_advice: bool) -> None:
    ps.set_provider("openai", base_url=raw_server.url.removesuffix("/v1") + path, api_key="none")
    raw_server.say(b"404 page not found", status=404)
    with pytest.raises(UdfError, match="404 page not found") as raised:
        asked(["a"]).collect()
    assert (f"{path}' may lack /v1" in str(raised.value)) == has_advice


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
