"""Google's generateContent and batchEmbedContents: bodies as documented, answers as they come."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import numpy as np
import pytest

from penstock.ai.conversation import (
    Audio,
    Document,
    Generation,
    Image,
    ModelTurn,
    Part,
    Request,
    Text,
    ToolCall,
    ToolResult,
    ToolTurn,
    UserTurn,
)
from penstock.ai.provider import ImageEmbedding, Prompting
from penstock.ai.providers.google import (
    GenerateWire,
    GoogleEmbeddings,
    GoogleProvider,
)
from penstock.ai.structured.return_formats import OutputFormat
from penstock.ai.structured.tools import ToolFunction
from penstock.cost.usage import usage_in
from penstock.errors import AuthenticationError, InvalidAnswerError, InvalidArgumentError
from penstock.storage.secret import Secret
from penstock.types import DataType

FLASH = "gemini-3.8-flash"
SCHEMA = {"type": "object", "properties": {"stars": {"type": "integer", "minimum": 1}}, "required": ["stars"]}
REVIEW = OutputFormat("Review", DataType.struct({"stars": int}), SCHEMA)


def wire_of(model: str = FLASH, **options: Any) -> GenerateWire:
    return GenerateWire.of(Prompting(model, options), "google", model)


def body(*parts: Part, options: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    turns = request.pop("turns", (UserTurn(parts or (Text("Hi"),)),))
    call = wire_of(**options or {}).call(Request(turns, **request))
    assert call.path == f"/v1beta/models/{FLASH}:generateContent"
    return call.body


def add(a: int, b: int) -> int:
    return a + b


ADD_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ADD = ToolFunction("add", "Add two numbers.", ADD_SCHEMA, add)
DECLARED = {"name": "add", "description": "Add two numbers.", "parametersJsonSchema": ADD_SCHEMA}


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_plain_request() -> None:
    assert body(Text("Hello"), system="Be short.") == {
        "systemInstruction": {"parts": [{"text": "Be short."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
    }


def test_attachments_are_inline() -> None:
    parts = (
        Text("Compare"),
        Image(b"png", "image/png"),
        Audio(b"wav", "audio/wav"),
        Document(b"%PDF", "application/pdf", "a.pdf"),
        Document(b"mp4", "video/mp4", "a.mp4"),
    )
    first, *sent = body(*parts)["contents"][0]["parts"]
    assert first == {"text": "Compare"}
    assert sent == [
        {"inlineData": {"mimeType": part.mime_type, "data": base64.b64encode(part.data).decode()}}
        for part in parts
        if not isinstance(part, Text)
    ]


def test_options_by_their_names() -> None:
    options = {
        "temperature": 0,
        "top_p": 0.9,
        "top_k": 40,
        "seed": 7,
        "max_tokens": 50,
        "stop": "END",
        "presence_penalty": 0.5,
        "extra_body": {"safetySettings": [], "generationConfig": {"seed": 8, "mediaResolution": "LOW"}},
    }
    sent = body(options=options)
    assert sent["safetySettings"] == []
    assert sent["generationConfig"] == {
        "temperature": 0,
        "topP": 0.9,
        "topK": 40,
        "seed": 8,
        "presencePenalty": 0.5,
        "maxOutputTokens": 50,
        "stopSequences": ["END"],
        "mediaResolution": "LOW",
    }


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"temprature": 0}, "'google' does not take 'temprature'.*Did you mean 'temperature'"),
        ({"use_chat_completions": True}, "does not take 'use_chat_completions'"),
        ({"reasoning": {"depth": 3}}, "a dict with effort"),
        ({"tools": "google_search"}, "takes the provider's own tools as dicts"),
    ],
)
def test_options_are_checked_when_the_wire_is_built(options: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidArgumentError, match=error):
        wire_of(**options)


@pytest.mark.parametrize(
    ("reasoning", "sent"),
    [
        ({"effort": "low"}, {"thinkingLevel": "LOW"}),
        ({"effort": "max", "summary": "auto"}, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ({"effort": "none"}, {"thinkingLevel": "MINIMAL"}),
        ({"max_tokens": 100}, {"thinkingBudget": 100}),
    ],
)
def test_reasoning(reasoning: Any, sent: dict[str, Any]) -> None:
    assert body(options={"reasoning": reasoning})["generationConfig"] == {"thinkingConfig": sent}


def test_structured_output() -> None:
    sent = {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}
    assert body(output=REVIEW)["generationConfig"] == sent
    assert body(output=REVIEW, tools=(ADD,))["generationConfig"] == sent


def test_tools_and_their_turns() -> None:
    given, made_up = ToolCall("call-7", "add", '{"a": 1}'), ToolCall("penstock-call-1", "add", "nonsense")
    turns = (
        UserTurn((Text("1 + 2?"),)),
        ModelTurn("", (given, made_up)),
        ToolTurn((ToolResult(given, "3"), ToolResult(made_up, "boom", is_error=True))),
    )
    sent = body(turns=turns, tools=(ADD,), options={"tools": [{"googleSearch": {}}]})
    assert sent["tools"] == [{"googleSearch": {}}, {"functionDeclarations": [DECLARED]}]
    assert sent["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {
                    "functionCall": {"id": "call-7", "name": "add", "args": {"a": 1}},
                    "thoughtSignature": "skip_thought_signature_validator",
                },
                {"functionCall": {"name": "add", "args": {"arguments": "nonsense"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "call-7", "name": "add", "response": {"output": "3"}}},
                {"functionResponse": {"name": "add", "response": {"error": "boom"}}},
            ],
        },
    ]


# --- answers ----------------------------------------------------------------------------------------------------------

USAGE = {
    "promptTokenCount": 10,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 20,
    "cachedContentTokenCount": 4,
    "toolUsePromptTokenCount": 2,
    "totalTokenCount": 37,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
}


def candidate(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", "index": 0, **fields}


def answers(*candidates: dict[str, Any], **fields: Any) -> list[Generation]:
    found = {"candidates": list(candidates), "usageMetadata": USAGE, "modelVersion": FLASH, "responseId": "x", **fields}
    return wire_of().generations(found, usage_in(found))


def test_an_answer() -> None:
    (given,) = answers(candidate({"text": "Think.", "thought": True}, {"text": "Hel"}, {"text": "lo", "new": 1}))
    assert (given.text, given.reasoning, given.finish_reason, given.refusal) == ("Hello", "Think.", "stop", None)
    assert (given.input_tokens, given.output_tokens, given.cached_tokens, given.model) == (12, 25, 4, FLASH)


def test_an_answer_with_little_in_it() -> None:
    (given,) = wire_of().read({"candidates": [{"finishReason": "MAX_TOKENS"}]})
    assert (given.text, given.model, given.finish_reason, given.input_tokens) == ("", FLASH, "length", None)


def test_the_tokens_of_several_answers_are_counted_once() -> None:
    first, second = answers(candidate({"text": "a"}), candidate({"text": "b"}, index=1))
    assert (first.text, second.text) == ("a", "b")
    assert (first.input_tokens, first.output_tokens) == (12, 25)
    assert (second.input_tokens, second.output_tokens, second.cached_tokens) == (None, None, None)


def test_function_calls_go_back_unchanged() -> None:
    parts = [
        {"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": "CiQB"},
        {"functionCall": {"id": "call-2", "name": "now"}},
    ]
    (given,) = answers(candidate(*parts))
    assert given.finish_reason == "tool_calls"
    assert given.tool_calls == (ToolCall("penstock-call-0", "add", '{"a": 1}'), ToolCall("call-2", "now", "{}"))
    turn = ModelTurn(given.text, given.tool_calls, given.raw)
    assert body(turns=(UserTurn((Text("?"),)), turn))["contents"][1] == {"role": "model", "parts": parts}


def test_a_blocked_prompt_is_a_refusal() -> None:
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 3}}
    (given,) = wire_of().generations(blocked, usage_in(blocked))
    assert (given.text, given.refusal) == ("", "Google blocked the prompt: PROHIBITED_CONTENT")
    assert (given.finish_reason, given.input_tokens) == ("content_filter", 3)


@pytest.mark.parametrize("reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "SPII", "BLOCKLIST"])
def test_a_stopped_answer_is_a_refusal(reason: str) -> None:
    (given,) = answers({"finishReason": reason, "finishMessage": "No."})
    assert (given.refusal, given.finish_reason) == (f"Google stopped the answer: {reason}, No.", "content_filter")


def test_other_reasons_keep_their_words() -> None:
    (given,) = answers({"finishReason": "MALFORMED_FUNCTION_CALL"})
    assert (given.finish_reason, given.refusal) == ("malformed_function_call", None)


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ({}, "has no 'candidates'"),
        ({"candidates": []}, "empty list of 'candidates'"),
        ({"candidates": {}}, "has no 'candidates' of type list"),
        ({"candidates": [{"content": {"parts": [{"functionCall": {}}]}}]}, "has no 'name'"),
    ],
)
def test_a_missing_field_is_named(broken: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidAnswerError, match=named):
        wire_of().read(broken)


# --- embeddings -------------------------------------------------------------------------------------------------------


def test_embeddings() -> None:
    call = GoogleEmbeddings("gemini-embedding-2", 2, 100).call(["a", "b"])
    assert call.path == "/v1beta/models/gemini-embedding-2:batchEmbedContents"
    assert call.body == {
        "requests": [
            {
                "model": "models/gemini-embedding-2",
                "content": {"parts": [{"text": text}]},
                "outputDimensionality": 2,
            }
            for text in "ab"
        ]
    }
    assert (
        "outputDimensionality" not in GoogleEmbeddings("gemini-embedding-2", None, 100).call(["a"]).body["requests"][0]
    )
    vectors = GoogleEmbeddings("gemini-embedding-2", None, 100).read(
        {"embeddings": [{"values": [0.5, 1]}, {"values": [2, 3], "shape": [2]}]}
    )
    assert [vector.dtype for vector in vectors] == [np.float32, np.float32]
    assert [vector.tolist() for vector in vectors] == [[0.5, 1], [2, 3]]


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ({}, "has no 'embeddings'"),
        ({"embeddings": [{}]}, "has no 'values'"),
    ],
)
def test_a_broken_embedding_is_named(broken: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidAnswerError, match=named):
        GoogleEmbeddings("gemini-embedding-2", None, 100).read(broken)


# --- the provider -----------------------------------------------------------------------------------------------------


def test_where_calls_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_GEMINI_BASE_URL", raising=False)
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-gemini")
    endpoint = GoogleProvider().endpoint()
    assert endpoint.base_url == "https://generativelanguage.googleapis.com"
    assert (endpoint.key, endpoint.key_header) == (Secret("AIza-gemini"), ("x-goog-api-key", "{}"))
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-google")
    assert GoogleProvider().endpoint().key == Secret("AIza-google")
    provider = GoogleProvider(api_key="AIza-given", base_url="http://127.0.0.1:8080/v1beta")
    endpoint = pickle.loads(pickle.dumps(provider)).endpoint()
    assert (endpoint.base_url, endpoint.key) == ("http://127.0.0.1:8080", Secret("AIza-given"))


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with pytest.raises(AuthenticationError, match="set GOOGLE_API_KEY or GEMINI_API_KEY"):
        GoogleProvider().endpoint()


def test_what_there_is_not() -> None:
    with pytest.raises(InvalidArgumentError, match="'google' has no embed_image; it offers prompt, embed_text"):
        GoogleProvider(api_key="AIza-given").model(ImageEmbedding())


def test_models_by_their_full_names() -> None:
    call = wire_of("tunedModels/mine").call(Request((UserTurn((Text("Hi"),)),)))
    assert call.path == "/v1beta/tunedModels/mine:generateContent"


def test_a_wire_travels_and_calls_leave_no_trace_in_it() -> None:
    wire = wire_of(temperature=0)
    again = pickle.loads(pickle.dumps(wire))
    asked = Request((UserTurn((Text("Hi"),)),), output=REVIEW, num_answers=2)
    assert again == wire
    assert again.call(asked) == wire.call(asked) == wire.call(asked)
    assert wire.call(Request((UserTurn((Text("Hi"),)),))).body["generationConfig"] == {"temperature": 0}
