"""Servers that answer as no specification says, send requests elsewhere, or stand behind a proxy."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
import threading
import traceback
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import (
    AuthenticationError,
    InvalidAnswerError,
    ModelNotFoundError,
    OutageError,
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


def test_a_vector_of_another_length_fails_one_text(raw_server: RawServer, tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(40)]
    data = [{"index": i, "embedding": [float(i), 0.0]} for i in range(40)]
    data[7]["embedding"] = [1.0, 2.0, 3.0]
    df = ps.from_pydict({"t": texts}).with_column(
        "v", embed_text(ps.col("t"), model="m", dimensions=2, max_retries=1, on_error="log")
    )
    with ps.config(cache_dir=str(tmp_path)):
        raw_server.say({"data": data}, {"data": [{"embedding": [1.0, 2.0, 3.0]}]})
        found = df.to_pydict()["v"]
        assert [None if vector is None else vector[0] for vector in found] == [None if i == 7 else i for i in range(40)]
        assert (
            "1 texts were sent; 1 vectors of 3 numbers came back instead of 1 of 2"
            in df.errors().to_pydict()["message"][0]
        )
        assert [len(request.body["input"]) for request in raw_server.requests] == [40, 1, 1]
        raw_server.say({"data": [{"embedding": [7.0, 0.0]}]})  # the others are cached
        assert [vector[0] for vector in df.to_pydict()["v"]] == list(range(40))
        assert [request.body["input"] for request in raw_server.requests] == [["text 7"]]


BAD_NUMBERS = {
    "NaN": [1.0, float("nan")],
    "infinity": [1.0, float("inf")],
    "too large for float32": [1.0, 1e300],
    "base64": base64.b64encode(np.array([1, np.nan], "<f4").tobytes()).decode(),
}


@pytest.mark.parametrize("numbers", BAD_NUMBERS.values(), ids=BAD_NUMBERS)
def test_a_vector_that_is_not_finite_is_the_error_of_its_row(
    raw_server: RawServer, tmp_path: Path, numbers: Any
) -> None:
    raw_server.say({"data": [VECTOR, {"index": 1, "embedding": numbers}]})
    vectors = embed_text(ps.col("t"), model="m", dimensions=2, on_error="log")
    with ps.config(cache_dir=str(tmp_path)):
        for num_requests in (1, 2):
            df = ps.from_pydict({"t": ["a", "b"]}).with_column("v", vectors)
            found = df.to_pydict()["v"]
            assert ([*found[0]], found[1], df.errors().count_rows()) == ([1, 2], None, 1)
            assert len(raw_server.requests) == num_requests
            raw_server.answers = [(200, {}, json.dumps({"data": [{"embedding": numbers}]}).encode())]
    with pytest.raises(UdfError, match="the vector that m returned has NaN or infinity"):
        embedded(["b"])


HALF = '{"a": "cut \\ud83d", "b": 1}'  # the escape of half an emoji
HALF_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("raw", "options", "expected"),
    [
        (rb"cut \ud83d", {}, "cut \ufffd"),
        (rb"\udd00 \ud83d\ude00", {}, "\ufffd \U0001f600"),
        (b"latin \xe9", {}, "latin \ufffd"),
        (json.dumps(HALF)[1:-1].encode(), {"return_format": HALF_SCHEMA}, {"a": "cut \ufffd"}),
    ],
    ids=str,
)
def test_text_that_is_not_unicode_is_replaced_and_paid_for_once(
    raw_server: RawServer, raw: bytes, options: dict[str, Any], expected: Any
) -> None:
    raw_server.say(b'{"choices": [{"message": {"content": "%s"}, "finish_reason": "stop"}]}' % raw)
    assert asked(["a"], use_chat_completions=True, **options).to_pydict()["a"] == [expected]
    assert len(raw_server.requests) == 1


@pytest.fixture
def endless() -> Iterator[tuple[str, list[int]]]:
    """The address of a server that sends a gigabyte, in gzip below ``/gzip``, and the bytes it sent each time."""
    deflate = zlib.compressobj(1, wbits=31)
    head = deflate.compress(b"[" + b" " * 2**23) + deflate.flush(zlib.Z_FULL_FLUSH)
    more = deflate.compress(b" " * 2**23) + deflate.flush(zlib.Z_FULL_FLUSH)  # may be repeated
    sent: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words: Any) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            is_gzip = self.path.startswith("/gzip")
            if is_gzip:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            sent.append(0)
            with contextlib.suppress(OSError):  # the client hangs up
                for part in [head, *[more] * 127] if is_gzip else [b" " * 2**20] * 1024:
                    self.wfile.write(part)
                    sent[-1] += len(part)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", sent
        server.shutdown()
        thread.join()


ASK = """
import resource, sys
import penstock as ps
ps.set_provider("openai", base_url=sys.argv[1], api_key="none")
ps.set_config(max_response_bytes="16MB", progress=False)
ps.from_pydict({"q": [None]}).select(ps.prompt(ps.col("q"), model="m")).collect()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
df = ps.from_pydict({"q": ["a"]}).with_column("a", ps.prompt(ps.col("q"), model="m", on_error="null"))
assert df.to_pydict()["a"] == [None]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print(df.errors().to_pydict()["message"][0])
"""


@pytest.mark.parametrize("path", ["/gzip/v1", "/plain/v1"])
def test_an_endless_answer_takes_little_memory_and_is_asked_for_once(endless: tuple[str, list[int]], path: str) -> None:
    url, sent = endless
    run = subprocess.run([sys.executable, "-c", ASK, url + path], capture_output=True, text=True, check=True)
    growth, error = run.stdout.split("\n")[:2]
    assert int(growth) < 100_000  # kilobytes; the answer has a million
    assert "answered with more than max_response_bytes=16,000,000 bytes" in error
    assert "ps.set_config(max_response_bytes='1GB')" in error
    assert len(sent) == 1
    assert sent[0] < 2**26


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
        ({"message": "so not", "code": "model_not_found"}, ModelNotFoundError),
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
    with pytest.raises(OutageError, match="model is loading" if "loading" in str(error) else "50[23]"):
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
    assert isinstance(raised.value.__cause__, ModelNotFoundError)
    assert "on_error" not in str(raised.value)
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


@pytest.mark.parametrize(("options", "has_advice"), [({}, True), ({"use_chat_completions": True}, False)])
def test_a_404_says_how_to_use_chat_completions(raw_server: RawServer, options: Any, has_advice: bool) -> None:
    ps.set_provider("openai", base_url=raw_server.url, api_key="none", **options)
    raw_server.say(b"404 page not found", status=404)
    with pytest.raises(UdfError, match="404 page not found") as raised:
        asked(["a"]).collect()
    assert ("set use_chat_completions=True" in str(raised.value)) == has_advice


def test_a_404_says_that_the_address_names_one_call(raw_server: RawServer) -> None:
    ps.set_provider("openai", base_url=f"{raw_server.url}/chat/completions", api_key="none")
    raw_server.say(b"404 page not found", status=404)
    with pytest.raises(UdfError, match="leave out '/chat/completions'"):
        asked(["a"]).collect()


def test_vectors_of_an_unexpected_length_name_the_option(raw_server: RawServer) -> None:
    raw_server.say({"data": [{"index": i, "embedding": [1.0, 2.0, 3.0]} for i in range(2)]})
    df = ps.from_pydict({"t": ["a", "b"]}).select(embed_text(ps.col("t"), model="text-embedding-3-small"))
    with pytest.raises(UdfError, match=r"instead of 2 of 1536; .* set dimensions=3"):
        df.collect()


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
    shown = "".join(traceback.format_exception(raised.value))
    assert "hunter2" not in shown
    assert "aiohttp" not in shown  # whose frames would stand before the line of the user


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
