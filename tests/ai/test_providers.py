"""Providers over the wire: one argument changes who is asked. Names, keys, and what is said of them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from pydantic import BaseModel

import penstock as ps
from penstock.ai.client.connections import SharedConnections
from penstock.ai.provider_registry import find_provider
from penstock.ai.providers.openai import OpenAIProvider
from penstock.errors import AuthenticationError, InvalidArgumentError, QuotaExceededError, UnreachableError
from penstock.functions import classify_image, classify_text, embed_text, prompt
from penstock.llm import HttpRequestProcessorConfig, OpenAIProcessorConfig, build_processor
from penstock.storage.secret import Secret, hidden, known_secrets, restore_secrets
from penstock.testing import EmbeddingLimits, ModelServer, faults
from penstock.testing.apis.embeddings import embedding
from tests.ai.conftest import RawServer
from tests.explained import explained

KEY = "sk-very-secret-5678"
QUESTIONS = [f"number {i}" for i in range(40)]


@pytest.fixture
def server(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    urls = {
        "openai": model_server.openai_url,
        "anthropic": model_server.anthropic_url,
        "google": model_server.google_url,
        "lm_studio": model_server.openai_url,
        "ollama": model_server.openai_url,
    }
    for name, url in urls.items():
        key = {} if name in ("lm_studio", "ollama") else {"api_key": KEY}
        ps.set_provider(name, base_url=url, **key)
    return model_server


REMOTE = pytest.mark.parametrize("provider", ["openai", "anthropic", "google", "lm_studio", "ollama"])


class Pet(BaseModel):
    name: str
    legs: int


@REMOTE
def test_prompts(server: ModelServer, provider: str) -> None:
    df = ps.from_pydict({"q": [*QUESTIONS, None]})
    answer = prompt(ps.col("q"), model="m", provider=provider, system_message="Repeat.")
    assert df.select(answer).to_pydict()["q"] == [*QUESTIONS, None]


@REMOTE
def test_structured_answers(server: ModelServer, provider: str) -> None:
    df = ps.from_pydict({"q": ["a", "b"]}).select(prompt(ps.col("q"), Pet, model="m", provider=provider))
    for row in df.to_pydict()["q"]:
        Pet.model_validate(row)


@REMOTE
def test_tools(server: ModelServer, provider: str) -> None:
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"rain in {city}"

    server.change(faults=[faults.CallTools([("weather", {"city": "Bergen"})])])
    df = ps.from_pydict({"q": ["How is it?"]})
    (answer,) = df.select(prompt(ps.col("q"), model="m", provider=provider, tool_functions=[weather])).to_pydict()["q"]
    assert "rain in Bergen" in answer


@REMOTE
@pytest.mark.parametrize("fault", [faults.ServerError(503, first_tries=1), faults.RateLimited(first_tries=1)])
def test_retries(server: ModelServer, provider: str, fault: faults.Fault) -> None:
    server.change(faults=[fault])
    df = ps.from_pydict({"q": QUESTIONS[:5]}).select(prompt(ps.col("q"), model="m", provider=provider))
    assert df.to_pydict()["q"] == QUESTIONS[:5]


@REMOTE
def test_refusals(server: ModelServer, provider: str) -> None:
    server.change(faults=[faults.Refusal("Not that.")])
    df = ps.from_pydict({"q": ["?"]})
    df = df.select(prompt(ps.col("q"), model="m", provider=provider, on_error="null")).collect()
    assert df.errors().to_pydict()["error_type"] == ["ContentFilteredError"]


@REMOTE
def test_usage(server: ModelServer, provider: str) -> None:
    df = ps.from_pydict({"q": ["one two three"]})
    (found,) = df.select(prompt(ps.col("q"), model="m", provider=provider, usage=True)).to_pydict()["q"]
    assert found["input_tokens"] > 0
    assert found["output_tokens"] > 0
    assert found["finish_reason"] == "stop"


@REMOTE
def test_classification_by_prompts(server: ModelServer, provider: str) -> None:
    df = ps.from_pydict({"t": ["a", None, "b"], "i": [np.zeros((4, 4, 3), np.uint8)] * 3})
    found = df.select(
        classify_text(ps.col("t"), ["good", "bad"], provider=provider, model="m"),
        classify_image(ps.col("i"), ["cat", "dog"], provider=provider, model="m"),
    ).to_pydict()
    assert found["t"][1] is None
    assert {found["t"][0], found["t"][2]} <= {"good", "bad"}
    assert set(found["i"]) <= {"cat", "dog"}


# --- embeddings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["openai", "google"])
def test_embeddings(server: ModelServer, provider: str) -> None:
    width = {"openai": 1536, "google": 3072}[provider]
    server.change(dimensions=width)
    texts = [f"text {i}" for i in range(600)]
    df = ps.from_pydict({"t": [*texts, None]}).with_column("v", embed_text(ps.col("t"), provider=provider))
    assert df.schema["v"].dtype == ps.DataType.embedding(ps.DataType.float32(), width)
    found = df.to_pydict()["v"]
    assert found[-1] is None
    assert all(len(vector) == width for vector in found[:-1])
    again = df.limit(3).to_pydict()["v"]
    np.testing.assert_array_equal(again[2], found[2])
    assert server.num_requests <= 10


def test_dimensions_are_asked_for(server: ModelServer) -> None:
    df = ps.from_pydict({"t": ["a"]}).select(embed_text(ps.col("t"), provider="openai", dimensions=64))
    assert df.schema["t"].dtype == ps.DataType.embedding(ps.DataType.float32(), 64)
    assert len(df.to_pydict()["t"][0]) == 64


def test_dimensions_of_an_unknown_model_are_found_out(server: ModelServer) -> None:
    server.change(dimensions=24)
    df = ps.from_pydict({"t": ["a", "b"]})
    for _ in range(2):
        found = df.select(embed_text(ps.col("t"), provider="lm_studio", model="some-embedder"))
        assert found.schema["t"].dtype == ps.DataType.embedding(ps.DataType.float32(), 24)
    assert server.num_requests == 1
    assert len(found.to_pydict()["t"][0]) == 24


def test_a_bad_text_fails_alone(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, "bad input", containing="text 17")])
    texts = [f"text {i}" for i in range(40)]
    df = ps.from_pydict({"t": texts})
    df = df.with_column("v", embed_text(ps.col("t"), provider="openai", dimensions=8, on_error="null")).collect()
    assert [row["t"] for row in df.to_pylist() if row["v"] is None] == ["text 17"]
    assert df.errors().count_rows() == 1


def test_a_refused_key_ends_embedding_too(server: ModelServer) -> None:
    df = ps.from_pydict({"t": [f"text {i}" for i in range(600)]})
    df = df.select(embed_text(ps.col("t"), provider="openai", dimensions=8, on_error="null"))
    server.change(faults=[faults.HttpError(401, f"Incorrect API key: {KEY}")])
    with pytest.raises(AuthenticationError, match=r"api_key="):
        df.collect()
    server.change(faults=[faults.RateLimited(code="insufficient_quota")])
    with pytest.raises(QuotaExceededError, match=r"Add credit"):
        df.collect()


def test_nobody_there_to_embed(monkeypatch: pytest.MonkeyPatch, unused_port: int) -> None:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    ps.set_provider("ollama", base_url=f"http://127.0.0.1:{unused_port}/v1")
    with pytest.raises(UnreachableError, match=r"ollama serve"):
        ps.from_pydict({"t": ["a"]}).select(embed_text(ps.col("t"), dimensions=8)).collect()


@pytest.mark.parametrize("long_input", ["truncate", "average"])
def test_long_texts(server: ModelServer, long_input: Any) -> None:
    words = "word " * 30_000
    df = ps.from_pydict({"t": ["short", words]})
    found = df.select(embed_text(ps.col("t"), provider="openai", dimensions=16, long_input=long_input)).to_pydict()["t"]
    assert np.linalg.norm(found[1]) == pytest.approx(1, abs=1e-3)
    sent = [text for request in server.requests for text in request.body["input"]]
    assert sum(map(len, sent)) >= (len(words) if long_input == "average" else 20_000)
    if long_input == "truncate":
        assert len(sent) <= 6


@pytest.mark.parametrize("keeps", [False, True], ids=["", "cache"])
def test_all_of_a_dense_text_counts(server: ModelServer, tmp_path: Path, keeps: bool) -> None:
    server.change(embedding_limits=EmbeddingLimits(max_input_tokens=100))
    text = "".join(chr(0x4E00 + i) for i in range(1000))
    df = ps.from_pydict({"t": [text, "short"]})
    with ps.config(cache_dir=str(tmp_path) if keeps else ""):
        cut, averaged = (
            df.select(embed_text(ps.col("t"), provider="openai", dimensions=16, long_input=each)).to_pydict()["t"]
            for each in ("truncate", "average")
        )
    parts = [text[at : at + 250] for at in range(0, 1000, 250)]
    expected = np.sum([embedding(part, 16) for part in parts], axis=0)
    np.testing.assert_allclose(averaged[0], expected / np.linalg.norm(expected), atol=1e-5)
    assert not np.allclose(cut[0], averaged[0])
    np.testing.assert_array_equal(cut[1], averaged[1])


@pytest.mark.parametrize("long_input", ["truncate", "average"])
def test_a_limit_on_texts_is_learned_once(server: ModelServer, long_input: Any) -> None:
    server.change(embedding_limits=EmbeddingLimits(max_input_tokens=100))
    df = ps.from_pydict({"t": [f"{i} " + "word " * 300 for i in range(400)]})
    df = df.select(embed_text(ps.col("t"), provider="openai", dimensions=8, batch_size=20, long_input=long_input))
    df.to_pydict()
    assert sum(request.status == 400 for request in server.requests) < 100
    server.clear()
    df.to_pydict()
    assert {request.status for request in server.requests} == {200}


def test_a_limit_on_the_number_of_texts_is_learned_once(server: ModelServer) -> None:
    server.change(embedding_limits=EmbeddingLimits(max_items=5))
    df = ps.from_pydict({"t": [f"text {i}" for i in range(100)]})
    df = df.select(embed_text(ps.col("t"), provider="openai", dimensions=8, batch_size=20))
    df.to_pydict()
    server.clear()
    df.to_pydict()
    assert ({request.status for request in server.requests}, len(server.requests)) == ({200}, 20)


def test_one_odd_text_does_not_shorten_the_others(server: ModelServer) -> None:
    server.change(embedding_limits=EmbeddingLimits(max_input_tokens=1000))
    dense, plain = "".join(chr(0x4E00 + i) for i in range(2000)), "word " * 700
    df = ps.from_pydict({"t": [dense]}).select(embed_text(ps.col("t"), provider="openai", dimensions=8))
    df.to_pydict()
    df = ps.from_pydict({"t": [plain]}).select(embed_text(ps.col("t"), provider="openai", dimensions=8))
    df.to_pydict()
    assert server.requests[-1].body["input"] == [plain]


def test_a_text_that_is_refused_for_good(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, "bad token", containing="zz")])
    df = ps.from_pydict({"t": ["z" * 8000, "fine"]})
    df = df.with_column(
        "v", embed_text(ps.col("t"), provider="openai", dimensions=8, on_error="null", long_input="average")
    )
    assert [row is None for row in df.to_pydict()["v"]] == [True, False]
    assert server.num_requests < 12


# --- names ------------------------------------------------------------------------------------------------------------


def test_set_provider_is_meant_where_nobody_says(server: ModelServer) -> None:
    ps.set_provider("anthropic", base_url=server.anthropic_url, api_key=KEY)
    ps.from_pydict({"q": ["a"]}).select(prompt(ps.col("q"))).collect()
    assert server.requests[-1].path == "/v1/messages"


def test_the_environment_names_one(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PROVIDER", "openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.openai_url)
    df = ps.from_pydict({"q": ["a"]}).select(prompt(ps.col("q"), model="m"))
    assert df.to_pydict() == {"q": ["a"]}
    assert find_provider(None, "embed_text").name == "openai"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("opena", {}, "Did you mean 'openai'"),
        ("openai", {"api_kee": "x"}, "Did you mean 'api_key'"),
        ("openai", {"api_key": None}, "api_key is None"),
        ("anthropic", {"base": "x"}, "it takes: base_url, api_key, headers"),
    ],
)
def test_mistaken_names(model_server: ModelServer, name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        ps.set_provider(name, **options)


def test_what_is_no_provider(model_server: ModelServer) -> None:
    with pytest.raises(InvalidArgumentError, match=r"ps\.Provider"):
        ps.attach_provider(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"neither the name"):
        prompt(ps.col("q"), provider=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reasoning": {"summary": "auto"}, "use_chat_completions": True}, "a dict with effort, with this API"),
        ({"reasoning": {"effrt": "low"}}, "a dict with effort, summary"),
        ({"reasoning": {"max_tokens": 500}}, "a dict with effort, summary"),
        ({"reasoning": {"effort": "lots"}}, "'lots' is not known"),
        ({"reasoning_effort": "lots"}, "'lots' is not known"),
        ({"reasoning": 5}, "takes an effort"),
        ({"tools": "web_search"}, "tools= takes the provider's own tools as dicts"),
        ({"tools": [len]}, "tool_functions="),
        ({"extra_body": "x"}, "extra_body= takes a dict"),
        ({"temperature": "hot"}, "prompt: temperature must be a number; got 'hot'"),
        ({"top_p": True}, "top_p must be a number; got True"),
    ],
    ids=str,
)
@pytest.mark.parametrize("chat", [False, True])
def test_options_are_checked_when_the_plan_is_built(
    server: ModelServer, options: dict[str, Any], words: str, chat: bool
) -> None:
    words = words.replace(", summary", "") if chat else words
    with pytest.raises(InvalidArgumentError, match=words):
        prompt(ps.col("q"), model="m", provider="openai", **{"use_chat_completions": chat, **options})


@pytest.mark.parametrize("provider", ["openai", "google"])
@pytest.mark.parametrize("size", [0, "x", 1.5, True])
def test_mistaken_batch_sizes(server: ModelServer, provider: str, size: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="batch_size must be a whole number"):
        embed_text(ps.col("t"), provider=provider, batch_size=size)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
def test_mistaken_extra_bodies(server: ModelServer, provider: str) -> None:
    with pytest.raises(InvalidArgumentError, match="extra_body= takes a dict"):
        prompt(ps.col("q"), model="m", provider=provider, extra_body="x")


# --- keys -------------------------------------------------------------------------------------------------------------


def test_keys_are_nowhere_to_be_seen(server: ModelServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    df = ps.from_pydict({"q": ["a"]}).with_column("a", prompt(ps.col("q"), model="m", provider="openai"))
    server.change(faults=[faults.HttpError(400, f"Your key {KEY} is odd")])
    with pytest.raises(Exception, match="is odd") as raised, caplog.at_level("DEBUG"):
        df.collect()
    shown = [
        *(str(raised.value), repr(raised.value), caplog.text, repr(df), explained(df)),
        *(repr(find_provider(name, "")) for name in ("openai", "anthropic", "google")),
    ]
    assert not any(KEY in text for text in shown)
    assert KEY.encode() not in cloudpickle.dumps(df)
    assert KEY.encode() not in cloudpickle.dumps(find_provider("anthropic", ""))


def test_a_key_is_known_again_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "abc-123-def")
    packed = pickle.dumps(Secret("abc-123-def", "SOME_KEY"))
    monkeypatch.setattr("penstock.storage.secret._revealed", {})
    assert pickle.loads(packed).reveal() == "abc-123-def"
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(AuthenticationError, match="set SOME_KEY"):
        pickle.loads(packed).reveal()


def test_workers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("ghi-456-jkl")
    told = known_secrets()
    packed = pickle.dumps(secret)
    monkeypatch.setattr("penstock.storage.secret._revealed", {})
    restore_secrets(told)
    assert pickle.loads(packed).reveal() == "ghi-456-jkl"
    assert hidden("key ghi-456-jkl!") == "key ***!"


def test_keys_in_headers_are_keys(model_server: ModelServer) -> None:
    names = ("api-key", "X-Auth", "X-Hub-Signature", "Session-Token", "Cookie")
    headers = {**dict.fromkeys(names, KEY), "Authorization": f"Bearer {KEY}", "X-Team": "blue"}
    provider = OpenAIProvider(base_url=model_server.openai_url, api_key="none", headers=headers)
    df = ps.from_pydict({"q": ["a"]}).with_column("a", prompt(ps.col("q"), model="m", provider=provider))
    assert df.to_pydict()["a"] == ["a"]
    sent = {name.lower(): value for name, value in model_server.requests[-1].headers.items()}
    assert (sent["api-key"], sent["x-team"]) == (KEY, "blue")
    config = OpenAIProcessorConfig(model="m", headers=headers, api_key=KEY)
    server = HttpRequestProcessorConfig(url="http://localhost", headers=headers)
    for thing in (provider, df, config, server):
        assert KEY not in f"{thing!r} {thing}"
        assert KEY.encode() not in cloudpickle.dumps(thing)
    model_server.change(faults=[faults.HttpError(400, f"what is {KEY}?")])
    with pytest.raises(Exception, match=r"what is \*\*\*") as raised:
        df.collect()
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("name", ["key", "code", "subscription"])
def test_a_key_in_the_query_of_an_address_is_a_key(raw_server: RawServer, name: str, caplog: Any) -> None:
    caplog.set_level("DEBUG")
    url = f"{raw_server.url}?api-version=1&{name}={KEY}"
    provider = OpenAIProvider(base_url=url, api_key="none", use_chat_completions=True)
    raw_server.say({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]})
    df = ps.from_pydict({"q": ["a"]}).with_column("a", prompt(ps.col("q"), model="m", provider=provider))
    assert df.to_pydict()["a"] == ["a"]
    assert raw_server.requests[-1].path == f"/v1/chat/completions?api-version=1&{name}={KEY}"
    config = OpenAIProcessorConfig(model="m", base_url=url)
    http = build_processor(HttpRequestProcessorConfig(url=url), lambda row: {"payload": row})(ps.range(1))
    for thing in (provider, df, config, http):
        assert KEY not in f"{thing!r} {thing}"
        assert KEY.encode() not in cloudpickle.dumps(thing)
    raw_server.say({"error": {"message": f"what is {KEY}?"}}, status=400)
    with pytest.raises(Exception, match=r"what is \*\*\*"):
        df.collect()
    assert KEY not in caplog.text


def test_a_provider_that_is_made_by_hand_hides_its_key() -> None:
    provider = OpenAIProvider(api_key=KEY)
    assert provider.api_key == Secret(KEY)
    assert KEY not in repr(provider)
    assert KEY.encode() not in pickle.dumps(provider)


def test_a_saved_plan_takes_its_key_from_the_environment(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    df = ps.from_pydict({"q": ["a"]}).with_column("a", prompt(ps.col("q"), model="m", provider="openai"))
    saved = cloudpickle.dumps(df)
    monkeypatch.setattr("penstock.storage.secret._revealed", {})
    again = pickle.loads(saved)
    with pytest.raises(AuthenticationError, match="set OPENAI_API_KEY"):
        again.collect()
    assert not SharedConnections._by_loop
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another-9012\n")
    assert again.to_pydict()["a"] == ["a"]
    assert "Bearer sk-another-9012" in server.requests[-1].headers.values()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"api_key": ""}, "api_key is empty"),
        ({"api_key": " \n"}, "api_key is empty"),
        ({"api_key": "sk-abc "}, "spaces at its ends"),
        ({"api_key": "sk-\nabc"}, "control characters"),
        ({"api_key": "ключ"}, "non-ASCII"),
        ({"api_key": 5}, "api_key must be a text or a Secret; got int"),
        ({"api_key": Secret("sk-\tabc")}, "control characters"),
        ({"base_url": 5}, "base_url must be a text such as 'https://host/v1'; got int"),
        ({"base_url": None}, "base_url is None; is its environment variable set"),
        ({"base_url": ""}, "base_url is empty. Leave it out"),
        ({"base_url": " "}, "base_url is empty"),
        ({"base_url": "localhost:8000/v1"}, "must start with http://"),
        ({"base_url": "htp://x/v1"}, "must start with http://"),
        ({"base_url": "http://"}, "must start with http://"),
        ({"base_url": "http://x:99999"}, "must start with http://"),
        ({"base_url": "http://joe:hunter2@host/v1"}, "api_key="),
        ({"base_url": "joe:hunter2@host/v1"}, "api_key="),
        ({"headers": ["a"]}, "headers must be a dict"),
        ({"headers": "a"}, "headers must be a dict"),
        ({"headers": {"X-A": "a\nb"}}, "control characters"),
    ],
    ids=str,
)
@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
def test_mistaken_keys_and_addresses(provider: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as raised:
        ps.set_provider(provider, **{"api_key": "k", **options})
    assert "hunter2" not in str(raised.value)


def test_what_the_environment_says_is_checked_too(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.openai_url)
    ps.from_pydict({"q": ["a"]}).select(prompt(ps.col("q"), model="m")).collect()
    assert f"Bearer {KEY}" in model_server.requests[-1].headers.values()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://joe:hunter2@host")
    with pytest.raises(InvalidArgumentError, match="before '@'"):
        prompt(ps.col("q"), model="m")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://host")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\x01")
    with pytest.raises(InvalidArgumentError, match="OPENAI_API_KEY is not a key"):
        prompt(ps.col("q"), model="m")
