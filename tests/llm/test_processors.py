"""Processors against a server on loopback: what is sent for a row, what comes back, what becomes of failed rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import penstock as ps
from penstock.ai.local.serving import provider
from penstock.ai.provider import Generation, ModelTask, Prompter, Request
from penstock.ai.provider_registry import detach_providers
from penstock.errors import AuthenticationError, InvalidArgumentError, UdfError
from penstock.llm import (
    HttpRequestProcessorConfig,
    OpenAIProcessorConfig,
    TransformersProcessorConfig,
    build_llm_processor,
    build_processor,
    vLLMEngineProcessorConfig,
)
from penstock.testing import ModelServer, faults
from tests.ai.scripted_engine import SCRIPTS, Script, ScriptedSpec


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(answer=lambda request: f"re: {request.text}", in_thread=True) as server:
        yield server
    detach_providers()


def vllm(server: ModelServer, **options: Any) -> vLLMEngineProcessorConfig:
    return vLLMEngineProcessorConfig(model="m", base_url=server.openai_url, **options)


def openai(server: ModelServer, **options: Any) -> OpenAIProcessorConfig:
    return OpenAIProcessorConfig(model="m", base_url=server.openai_url, api_key="k", **options)


def text_of(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "text": row["generated_text"]}


# --- what is sent and what comes back ---


def test_each_row_has_its_own_messages_and_sampling_parameters(server: ModelServer) -> None:
    def preprocess(row: dict[str, Any]) -> dict[str, Any]:
        content: Any = f"row {row['id']}" if row["id"] else [{"type": "text", "text": "row 0"}]
        params = {"temperature": row["id"] / 10, "top_k": 5} if row["id"] < 2 else None
        return {"messages": [{"role": "user", "content": content}], "sampling_params": params}

    processor = build_processor(vllm(server, sampling_params={"max_tokens": 7, "min_p": 0.1}), preprocess, text_of)
    assert processor(ps.range(3)).to_pylist() == [{"id": n, "text": f"re: row {n}"} for n in range(3)]
    sent = {each.body.get("temperature"): each.body for each in server.requests}
    shared = {"model": "m", "max_tokens": 7, "min_p": 0.1}
    user = {"role": "user"}
    assert sent == {
        0.0: {**shared, "temperature": 0.0, "top_k": 5, "messages": [{**user, "content": "row 0"}]},
        0.1: {**shared, "temperature": 0.1, "top_k": 5, "messages": [{**user, "content": "row 1"}]},
        None: {**shared, "messages": [{**user, "content": "row 2"}]},
    }


def test_postprocess_sees_columns_what_preprocess_added_and_what_the_answer_took(server: ModelServer) -> None:
    seen: list[dict[str, Any]] = []

    def postprocess(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row)
        return {"done": True}

    build_processor(openai(server), lambda row: {"prompt": "hi", "tag": "t"}, postprocess)(ps.range(1)).collect()
    (row,) = seen
    latency_s = row.pop("time_taken_llm")
    assert 0 < latency_s < 10
    assert row == {
        "id": 0, "prompt": "hi", "tag": "t", "generated_text": "re: hi", "finish_reason": "stop", "reasoning": None,
        "num_input_tokens": row["num_input_tokens"], "num_generated_tokens": row["num_generated_tokens"], "cost": None,
    }  # fmt: skip
    assert row["num_input_tokens"] > 0
    assert row["num_generated_tokens"] > 0


def test_without_functions_the_columns_are_the_request_and_all_is_kept(server: ModelServer) -> None:
    df = ps.from_pydict({"prompt": ["a", None], "id": [1, 2]})
    found = build_llm_processor(openai(server))(df).to_pydict()
    assert found["id"] == [1, 2]
    assert found["generated_text"] == ["re: a", None]
    assert server.num_requests == 1  # null asks nothing


def test_several_answers_are_lists_with_their_finish_reasons(server: ModelServer) -> None:
    server.change(answer=lambda request: f"answer {request.index} " + "word " * (50 * request.index))
    processor = build_processor(
        vllm(server, sampling_params={"max_tokens": 10}),
        lambda row: {"prompt": "q", "sampling_params": {"n": 2}},
        lambda row: {"texts": row["generated_text"], "reasons": row["finish_reason"]},
    )
    (row,) = processor(ps.range(1)).to_pylist()
    assert [text[:8] for text in row["texts"]] == ["answer 0", "answer 1"]
    assert row["reasons"] == ["stop", "length"]


def test_the_responses_api_has_its_own_names(server: ModelServer) -> None:
    def preprocess(row: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": "q", "sampling_params": {"max_tokens": 5, "temperature": 0.5}}

    build_processor(openai(server), preprocess)(ps.range(1)).collect()
    (request,) = server.requests
    assert request.path == "/v1/responses"
    assert request.body == {"model": "m", "input": "q", "max_output_tokens": 5, "temperature": 0.5}


def test_without_a_chat_template_vllm_continues_the_text(server: ModelServer) -> None:
    config = vllm(server, chat_template_stage=False)
    processor = build_processor(
        config, lambda row: {"prompt": "Once", "sampling_params": {"max_tokens": 9, "n": 2, "detokenize": False}}
    )
    assert processor(ps.range(1)).to_pydict()["generated_text"] == [["re: Once", "re: Once"]]
    (request,) = server.requests
    assert request.path == "/v1/completions"
    assert request.body == {"model": "m", "prompt": "Once", "max_tokens": 9, "n": 2}
    with pytest.raises(UdfError, match="preprocess must return 'prompt' for each row"):
        build_processor(config, lambda row: {"messages": []})(ps.range(1)).collect()


def test_processors_run_on_every_runner(server: ModelServer, runner: str) -> None:
    processor = build_processor(
        openai(server, on_error="null"),
        lambda row: {"prompt": str(10 // row["id"]), "sampling_params": {"temperature": 0.5}},
        lambda row: {"id": row["id"], "text": row["generated_text"]},
    )
    df = processor(ps.range(4)).collect()
    assert df.to_pylist() == [{"id": n, "text": f"re: {10 // n}"} for n in (1, 2, 3)]
    assert [error["error_type"] for error in df.errors().to_pylist()] == ["ZeroDivisionError"]


def test_rows_wait_side_by_side_and_not_for_batches(server: ModelServer) -> None:
    server.change(latency=0.3)
    config = vllm(server, batch_size=1, concurrency=1)
    build_processor(config, lambda row: {"prompt": str(row["id"])}, text_of)(ps.range(16)).collect()
    assert server.max_in_flight > 2


# --- rows that fail ---


def test_a_failed_row_ends_the_query_or_is_recorded_and_left_out(server: ModelServer, caplog: Any) -> None:
    def preprocess(row: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": str(row["id"]), "sampling_params": {"temprature": 1} if row["id"] == 2 else {}}

    with pytest.raises(UdfError, match=r"does not take 'temprature'.* Did you mean 'temperature'\?"):
        build_processor(openai(server), preprocess, text_of)(ps.range(4)).collect()
    assert "the rows that fail" not in caplog.text
    df = build_processor(openai(server, on_error="null"), preprocess, text_of)(ps.range(4)).collect()
    assert "on_error='null' the result lacks the rows that fail; df.errors() lists them" in caplog.text
    assert [row["id"] for row in df.to_pylist()] == [0, 1, 3]
    (error,) = df.errors().to_pylist()
    assert error["operator"] == "ask"
    assert error["error_type"] == "InvalidArgumentError"
    assert "'id': 2" in error["input"]


def test_functions_that_raise_are_recorded_too(server: ModelServer) -> None:
    def preprocess(row: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": str(10 // row["id"])}

    def postprocess(row: dict[str, Any]) -> dict[str, Any]:
        return {"text": row["generated_text"], "inverse": 1 / (row["id"] - 1)}

    df = build_processor(openai(server, on_error="log"), preprocess, postprocess)(ps.range(3)).collect()
    assert df.to_pylist() == [{"text": "re: 5", "inverse": 1.0}]
    assert sorted(error["operator"] for error in df.errors().to_pylist()) == ["postprocess", "preprocess"]


def test_a_failed_row_may_stay_with_its_error(server: ModelServer) -> None:
    config = openai(server, should_continue_on_error=True)
    processor = build_processor(
        config, lambda row: {"prompt": "q", "sampling_params": {"no": 1} if row["id"] else None}, text_of
    )
    good, bad = processor(ps.range(2)).to_pylist()
    assert (good["text"], good["__inference_error__"]) == ("re: q", "")
    assert (bad["id"], bad["text"]) == (1, None)
    assert bad["__inference_error__"].startswith("InvalidArgumentError: A request does not take 'no'")


def test_a_refused_key_ends_the_query_whatever_becomes_of_rows(server: ModelServer) -> None:
    server.change(api_key="another")
    for options in ({"should_continue_on_error": True}, {"on_error": "null"}):
        with pytest.raises(AuthenticationError, match="does not accept the API key"):
            build_processor(openai(server, **options), lambda row: {"prompt": "q"})(ps.range(2)).collect()


# --- any server ---


def test_http_rows_send_a_payload_and_get_the_response(server: ModelServer) -> None:
    server.change(api_key="sk-secret-http")
    config = HttpRequestProcessorConfig(
        url=f"{server.openai_url}/chat/completions", headers={"Authorization": "Bearer sk-secret-http", "X-Job": "7"}
    )
    processor = build_processor(
        config,
        lambda row: {"payload": {"model": "m", "messages": [{"role": "user", "content": f"{row['id']} ** 3 = ?"}]}},
        lambda row: {"id": row["id"], "resp": row["http_response"]["choices"][0]["message"]["content"]},
    )
    assert processor(ps.range(3)).to_pylist() == [{"id": n, "resp": f"re: {n} ** 3 = ?"} for n in range(3)]
    assert {each.headers["x-job"] for each in server.requests} == {"7"}
    assert "sk-secret-http" not in repr(processor)


def test_http_requests_are_tried_again_and_then_fail_as_rows(server: ModelServer) -> None:
    server.change(faults=(faults.ServerError(503, at=1),))
    config = HttpRequestProcessorConfig(url=f"{server.openai_url}/chat/completions", on_error="null")
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    df = build_processor(config, lambda row: {"payload": body if row["id"] else {"model": "m"}})(ps.range(2)).collect()
    assert [row["id"] for row in df.to_pylist()] == [1]
    (error,) = df.errors().to_pylist()
    assert error["error_type"] == "RequestRefusedError"
    assert server.num_requests == 3


def test_http_answers_may_be_any_json_and_urls_are_kept_as_they_are() -> None:
    paths: list[str] = []

    class Scores(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps([{"score": number / 2} for number in asked]).encode()
            self.send_response(201)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the test's output to itself."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Scores) as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        config = HttpRequestProcessorConfig(url=f"http://127.0.0.1:{service.server_port}/score/?model=a", qps=100)
        processor = build_processor(
            config, lambda row: {"payload": [row["id"], 3]}, lambda row: {"scores": row["http_response"]}
        )
        try:
            rows = processor(ps.range(2)).to_pylist()
        finally:
            service.shutdown()
            thread.join()
    assert rows == [{"scores": [{"score": n / 2}, {"score": 1.5}]} for n in range(2)]
    assert paths == ["/score/?model=a"] * 2


def test_http_payloads_that_are_no_json_are_explained(server: ModelServer) -> None:
    config = HttpRequestProcessorConfig(url=server.url)
    with pytest.raises(UdfError, match=r"payload cannot be sent as JSON: .*bytes.* base64"):
        build_processor(config, lambda row: {"payload": {"file": b"raw"}})(ps.range(1)).collect()


# --- models that take batches ---


class Echo(Prompter):
    takes_options = True

    def generate(self, request: Sequence[Request]) -> list[Any]:
        return [self._answers(each) for each in request]

    def _answers(self, request: Request) -> Any:
        if request.text == "bad":
            return ValueError("no answer")
        return [Generation(f"{request.text} {dict(request.options or {})}")] * request.num_answers


class EchoProvider(ps.Provider):
    name = "transformers"

    def __init__(self, model: Prompter) -> None:
        self._model = model
        self.tasks: list[ModelTask] = []

    def model(self, task: ModelTask) -> Prompter:
        self.tasks.append(task)
        return self._model


@pytest.fixture
def local() -> Iterator[EchoProvider]:
    """In the place of transformers, whose models take seconds to load."""
    provider = EchoProvider(Echo())
    ps.attach_provider(provider)
    yield provider
    detach_providers()


def test_local_models_get_options_of_rows_and_of_all(local: EchoProvider) -> None:
    config = TransformersProcessorConfig(
        model="tiny", batch_size=8, sampling_params={"max_tokens": 9}, options={"dtype": "auto"}, on_error="null"
    )

    def preprocess(row: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": "bad" if row["id"] == 1 else "q", "sampling_params": {"top_k": row["id"]}}

    df = build_processor(config, preprocess, text_of)(ps.range(3)).collect()
    assert df.to_pylist() == [{"id": 0, "text": "q {'top_k': 0}"}, {"id": 2, "text": "q {'top_k': 2}"}]
    assert [error["message"] for error in df.errors().to_pylist()] == ["no answer"]
    assert local.tasks[0].model == "tiny"
    assert dict(local.tasks[0].options) == {"batch_size": 8, "dtype": "auto", "max_tokens": 9}


def test_models_with_the_same_options_for_all_rows_say_so(local: EchoProvider) -> None:
    local._model.takes_options = False
    config = TransformersProcessorConfig(model="tiny", should_continue_on_error=True)
    processor = build_processor(config, lambda row: {"prompt": "q", "sampling_params": {"top_k": 1}})
    (row,) = processor(ps.range(1)).to_pylist()
    assert "pass sampling_params=... to the config" in row["__inference_error__"]


# --- what is refused when it is built ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: vLLMEngineProcessorConfig(model="m", batchsize=1),
            r"no option 'batchsize'.* Did you mean 'batch_size'",
        ),
        (lambda: vLLMEngineProcessorConfig(), "model is a text"),
        (lambda: vLLMEngineProcessorConfig(model="a", model_source="b"), "mean the same thing"),
        (
            lambda: vLLMEngineProcessorConfig(model="m", task_type="sing"),
            "for task_type='sing' use embed_text",
        ),
        (lambda: vLLMEngineProcessorConfig(model="m", engine_kwargs=[1]), "engine_kwargs is a dict; got list"),
        (lambda: vLLMEngineProcessorConfig(model="m", concurrency=(4, 2)), r"\(min, max\); got \(4, 2\)"),
        (lambda: vLLMEngineProcessorConfig(model="m", batch_size=0), "batch_size must be a whole number of 1 or more"),
        (lambda: OpenAIProcessorConfig(model="m", on_error="skip"), "on_error='skip' is not known"),
        (
            lambda: OpenAIProcessorConfig(model="m", on_error="log", should_continue_on_error=True),
            "either kept .* or omitted",
        ),
        (lambda: OpenAIProcessorConfig(model="m", sampling_params={"n": 0}), "n must be a whole number of 1 or more"),
        (lambda: HttpRequestProcessorConfig(url="ftp://x"), "must start with http://"),
        (lambda: HttpRequestProcessorConfig(url="http://x", qps=0), "qps must be a number above 0"),
        (lambda: HttpRequestProcessorConfig(url="http://x", session_factory=print), "session_factory"),
        (lambda: build_processor({"model": "m"}), "takes a config of penstock.llm; got dict"),
        (
            lambda: build_processor(HttpRequestProcessorConfig(url="http://x"), preprocess="x"),
            "preprocess is a function",
        ),
        (
            lambda: build_processor(
                OpenAIProcessorConfig(model="m", base_url="http://x", api_key="k", sampling_params={"temprature": 1})
            ),
            "does not take 'temprature'",
        ),
    ],
)
def test_mistakes_are_refused_when_it_is_built(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make()


def test_without_a_server_vllm_runs_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted engine stands for that of vLLM, which is not installed."""
    arguments = []

    def of(model: str, given: Any, num_replicas: int) -> ScriptedSpec:
        arguments.append(given)
        return ScriptedSpec(model, num_replicas)

    monkeypatch.delenv("PENSTOCK_VLLM_BASE_URL", raising=False)
    monkeypatch.setattr(provider, "require_extra", lambda *_: None)
    monkeypatch.setattr(provider.VllmSpec, "of", of)
    monkeypatch.setitem(SCRIPTS, "m", script := Script())
    config = vLLMEngineProcessorConfig(
        model="m", engine_kwargs={"max_model_len": 64, "enable_lora": True}, concurrency=2, accelerator_type="L4",
        max_pending_requests=100, sampling_params={"max_tokens": 9, "min_p": 0.1},
    )  # fmt: skip
    own: list[dict[str, str]] = [{}, {"lora": "/loras/pirate"}, {}]
    processor = build_processor(
        config, lambda row: {"prompt": f"row {row['id']}", "sampling_params": own[row["id"]]}, text_of
    )
    assert processor(ps.range(3)).to_pylist() == [{"id": n, "text": f"row {n}"} for n in range(3)]
    assert arguments == [{"max_model_len": 64, "enable_lora": True}]
    assert (script.num_starts, script.num_open) == (2, 0)
    given = {text: options for (_, text), options in zip(script.order, script.options, strict=True)}
    shared = {"max_tokens": 9, "extra_body": {"min_p": 0.1}}
    assert given == {"row 0": shared, "row 1": {**shared, "lora": "/loras/pirate"}, "row 2": shared}


def test_model_and_model_source_are_the_same() -> None:
    assert vLLMEngineProcessorConfig(model_source="m").model == "m"


def test_a_processor_wants_a_dataframe(server: ModelServer) -> None:
    with pytest.raises(InvalidArgumentError, match="takes a penstock DataFrame; got list"):
        build_processor(openai(server))([{"prompt": "q"}])  # type: ignore[arg-type]


def test_what_functions_give_is_checked(server: ModelServer) -> None:
    with pytest.raises(UdfError, match="preprocess must return a dict for each row; got str"):
        build_processor(openai(server), lambda row: "q")(ps.range(1)).collect()
    with pytest.raises(UdfError, match=r"preprocess must return 'messages' or 'prompt' .* has: id, question"):
        build_processor(openai(server), lambda row: {"question": "q"})(ps.range(1)).collect()
