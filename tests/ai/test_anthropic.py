"""Anthropic's Messages API: bodies as its reference documents them, answers as it gives them."""

from __future__ import annotations

import base64
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.ai.conversation import (
    Audio,
    Document,
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
from penstock.ai.provider import Prompting, TextEmbedding
from penstock.ai.providers.anthropic import AnthropicProvider, MessagesWire, with_version
from penstock.ai.structured.return_formats import OutputFormat
from penstock.ai.structured.tools import ToolFunction
from penstock.cost.usage import usage_in
from penstock.errors import AuthenticationError, InvalidAnswerError, InvalidArgumentError, RequestRefusedError
from penstock.storage.secret import Secret
from penstock.types import DataType

HAIKU = "claude-haiku-5-5"
PNG = b"\x89PNG..."


@dataclass(frozen=True)
class StrictFormat(OutputFormat):
    """A format whose strict schema is given, as how it is made is another's concern."""

    __hash__ = OutputFormat.__hash__

    strict: dict[str, Any] | None = None

    def strict_schema(self) -> dict[str, Any] | None:
        return self.strict


def wire_of(model: str = HAIKU, **options: Any) -> MessagesWire:
    return MessagesWire.of(Prompting(model, options), "anthropic", model)


def body(*parts: Part, options: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    turns = request.pop("turns", (UserTurn(parts or (Text("Hi"),)),))
    call = wire_of(**options or {}).call(Request(turns, **request))
    assert call.path == "/v1/messages"
    return call.body


def add(a: int, b: int) -> int:
    return a + b


ADD_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ADD = ToolFunction("add", "Add two numbers.", ADD_SCHEMA, add)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_plain_request() -> None:
    assert body(Text("Hello"), system="Be short.") == {
        "model": HAIKU,
        "max_tokens": 16_384,
        "system": "Be short.",
        "messages": [{"role": "user", "content": "Hello"}],
    }


def test_images_and_documents() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    paper = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(b"%PDF").decode()}
    parts = (Text("Compare"), Text(""), Image(PNG, "image/png"), Document(b"%PDF", "application/pdf", "a.pdf"))
    assert body(*parts)["messages"][0]["content"] == [
        {"type": "text", "text": "Compare"},
        {"type": "image", "source": source},
        {"type": "document", "source": paper, "title": "a.pdf"},
    ]


@pytest.mark.parametrize("part", [Audio(b"RIFF", "audio/wav"), Document(b"...", "video/mp4", "a.mp4")])
def test_what_claude_does_not_read_is_refused(part: Part) -> None:
    with pytest.raises(RequestRefusedError, match=r"'anthropic' does not read (audio/wav|video/mp4); it reads text"):
        body(Text("Listen"), part)


def test_options_by_their_names() -> None:
    sent = body(options={"max_output_tokens": 50, "stop": "END", "extra_body": {"service_tier": "auto"}})
    assert (sent["max_tokens"], sent["stop_sequences"], sent["service_tier"]) == (50, ["END"], "auto")
    assert body(options={"max_tokens": 7, "stop": ["a", "b"]})["stop_sequences"] == ["a", "b"]


def test_extra_body_is_merged_last_and_field_by_field() -> None:
    extra = {"output_config": {"task_budget": 5}, "max_tokens": 9}
    sent = body(options={"reasoning": {"effort": "low"}, "extra_body": extra})
    assert sent["output_config"] == {"effort": "low", "task_budget": 5}
    assert sent["max_tokens"] == 9


def test_sampling_needs_the_version_of_the_api_that_has_it() -> None:
    wire = wire_of("claude-sonnet-4-6", temperature=0, top_p=0.9)
    sent = wire.call(Request((UserTurn((Text("Hi"),)),))).body
    assert (sent["temperature"], sent["top_p"], wire.api_version) == (0, 0.9, "2023-06-01")
    assert wire_of("claude-sonnet-4-6").api_version == "2026-10-21"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"temprature": 0}, "does not take 'temprature'.*Did you mean 'temperature'"),
        ({"seed": 1}, "does not take 'seed'"),
        ({"max_tokens": 0}, "1 or more; got 0"),
        ({"reasoning": {"depth": 3}}, "a dict with effort, max_tokens, summary"),
        ({"reasoning": {"effort": "huge"}}, "'huge' is not known; use one of none, minimal, low"),
        ({"reasoning": {"max_tokens": "many"}}, "max_tokens must be a whole number"),
        ({"tools": [add]}, "Pass Python functions as tool_functions="),
    ],
)
def test_options_are_checked_when_the_wire_is_built(options: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidArgumentError, match=error):
        wire_of(**options)


@pytest.mark.parametrize(
    ("reasoning", "thinking", "effort"),
    [
        ("medium", {"type": "adaptive"}, "medium"),
        ({"effort": "minimal"}, {"type": "adaptive"}, "low"),
        ({"effort": "none"}, {"type": "disabled"}, None),
        ({"summary": "auto"}, {"type": "adaptive", "display": "summarized"}, None),
        ({"max_tokens": 3000}, {"type": "enabled", "budget_tokens": 3000}, None),
    ],
)
def test_reasoning(reasoning: Any, thinking: Any, effort: str | None) -> None:
    sent = body(options={"reasoning": reasoning})
    assert sent.get("thinking") == thinking
    assert sent.get("output_config") == (None if effort is None else {"effort": effort})


def test_thoughts_do_not_take_the_room_of_the_answer() -> None:
    assert body(options={"reasoning": {"max_tokens": 16_384}})["max_tokens"] == 2 * 16_384


def test_structured_output() -> None:
    strict = {
        "type": "object",
        "properties": {
            "stars": {"type": "integer", "minimum": 1, "maximum": 5, "description": "How good"},
            "note": {"type": ["string", "null"], "pattern": "^a", "default": None},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}, "maxItems": 3},
        },
        "required": ["stars", "note", "kind", "tags"],
        "additionalProperties": False,
        "$defs": {"Tag": {"type": "string", "format": "date"}},
    }
    output = StrictFormat("Review", DataType.struct({"stars": int}), {}, strict=strict)
    sent = body(output=output, options={"reasoning": {"effort": "low"}})["output_config"]
    assert sent["effort"] == "low"
    assert sent["format"] == {
        "type": "json_schema",
        "schema": {
            "type": "object",
            "properties": {
                "stars": {"type": "integer", "description": "How good (minimum: 1, maximum: 5)"},
                "note": {
                    "anyOf": [{"type": "string", "description": '(pattern: "^a", default: null)'}, {"type": "null"}]
                },
                "kind": {"enum": ["a", "b"]},
                "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}, "description": "(maxItems: 3)"},
            },
            "required": ["stars", "note", "kind", "tags"],
            "additionalProperties": False,
            "$defs": {"Tag": {"type": "string", "description": '(format: "date")'}},
        },
    }


def test_a_form_that_no_strict_schema_can_say_is_asked_for_in_words() -> None:
    output = StrictFormat("Any", DataType.python(), {"type": "object", "additionalProperties": True}, None)
    sent = body(output=output, system="Be kind.")
    assert "output_config" not in sent
    assert sent["system"].startswith("Be kind.\n\nAnswer with JSON only")
    assert '{"type": "object", "additionalProperties": true}' in sent["system"]


def test_tools_and_their_turns() -> None:
    call = ToolCall("toolu_1", "add", '{"a": 1, "b": 2}')
    turns = (
        UserTurn((Text("1 + 2?"),)),
        ModelTurn("Let me see.", (call,)),
        ToolTurn((ToolResult(call, "3"), ToolResult(call, "boom", is_error=True))),
    )
    web = {"type": "web_search_20250305", "name": "web_search"}
    sent = body(turns=turns, tools=(ADD,), options={"tools": [web]})
    assert sent["tools"] == [web, {"name": "add", "description": "Add two numbers.", "input_schema": ADD_SCHEMA}]
    assert sent["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"},
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "boom", "is_error": True},
            ],
        },
    ]


# --- answers ----------------------------------------------------------------------------------------------------------

ANSWER: dict[str, Any] = {
    "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
    "type": "message",
    "role": "assistant",
    "model": HAIKU,
    "content": [{"type": "text", "text": "Hello", "citations": None}, {"type": "text", "text": " there."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "stop_details": None,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 100,
        "output_tokens": 7,
        "service_tier": "standard",
    },
    "something_new": {"a": 1},
}


EPHEMERAL = {"type": "ephemeral", "ttl": "1h"}


def test_cache_control_stays_with_its_part() -> None:
    manual = Text("The manual.", EPHEMERAL)
    sent = body(
        Text("Page 1", EPHEMERAL), Text("Why?"), system="Be kind.\nThe manual.", system_parts=(Text(""), manual)
    )
    assert sent["system"] == [{"type": "text", "text": "The manual.", "cache_control": EPHEMERAL}]
    page, question = sent["messages"][0]["content"]
    assert page == {"type": "text", "text": "Page 1", "cache_control": EPHEMERAL}
    assert question == {"type": "text", "text": "Why?"}
    (only,) = body(manual)["messages"][0]["content"]
    assert only["cache_control"] == EPHEMERAL


def test_a_schema_in_words_follows_the_parts_of_the_system_message() -> None:
    output = StrictFormat("Any", DataType.python(), {"type": "object"}, None)
    manual, words = body(output=output, system="The manual.", system_parts=(Text("The manual.", EPHEMERAL),))["system"]
    assert manual["cache_control"] == EPHEMERAL
    assert words["text"].startswith("Answer with JSON only")


def read(**changes: Any) -> Any:
    body = {**ANSWER, **changes}
    (generation,) = wire_of().generations(body, usage_in(body))
    return generation


def test_an_answer() -> None:
    given = read()
    assert given.text == "Hello there."
    assert (given.model, given.finish_reason, given.refusal, given.tool_calls) == (HAIKU, "stop", None, ())
    assert (given.input_tokens, given.cached_tokens, given.output_tokens) == (115, 100, 7)
    assert (given.written_tokens, given.written_1h_tokens) == (5, 0)


def test_an_answer_with_little_in_it() -> None:
    (given,) = wire_of().read({"content": []})
    assert (given.text, given.model, given.input_tokens, given.finish_reason) == ("", HAIKU, None, None)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "pause_turn"),
        ("some_day", "some_day"),
    ],
)
def test_finish_reasons(reason: str, told: str) -> None:
    assert read(stop_reason=reason).finish_reason == told


def test_tool_calls_and_thoughts_go_back_unchanged() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Add them.", "signature": "EqQBCgIYAhIM"},
        {"type": "redacted_thinking", "data": "EmwKAhgB"},
        {"type": "text", "text": "I add."},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}, "caller": {"type": "direct"}},
        {"type": "of_the_future", "x": 1},
    ]
    given = read(content=blocks, stop_reason="tool_use")
    assert (given.text, given.reasoning, given.finish_reason) == ("I add.", "Add them.", "tool_calls")
    assert given.tool_calls == (ToolCall("toolu_1", "add", '{"a": 1}'),)
    turn = ModelTurn(given.text, given.tool_calls, given.raw)
    assert body(turns=(UserTurn((Text("?"),)), turn))["messages"][1] == {"role": "assistant", "content": blocks}


def test_a_refusal() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "This looks like malware."}
    given = read(content=[], stop_reason="refusal", stop_details=details)
    assert given.refusal == "Claude declined to answer: This looks like malware."
    assert given.finish_reason == "content_filter"
    assert read(content=[], stop_reason="refusal").refusal == "Claude declined to answer."


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ({"type": "message"}, "has no 'content'"),
        ({"content": "text"}, "has no 'content' of type list"),
        ({"content": [{"type": "tool_use", "name": "add"}]}, "has no 'id'"),
    ],
)
def test_a_missing_field_is_named(broken: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidAnswerError, match=named):
        wire_of().read(broken)


# --- the provider -----------------------------------------------------------------------------------------------------


def test_where_calls_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-from-env")
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    endpoint = with_version(AnthropicProvider().endpoint(), wire_of())
    assert (endpoint.base_url, endpoint.key_header) == ("https://api.anthropic.com", ("x-api-key", "{}"))
    assert endpoint.key == Secret("sk-ant-from-env")
    assert endpoint.headers == (("anthropic-version", "2026-10-21"),)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:8080/v1/")
    provider = AnthropicProvider(api_key="sk-ant-given", headers={"anthropic-beta": "x"})
    endpoint = with_version(
        pickle.loads(pickle.dumps(provider)).endpoint(), wire_of("claude-sonnet-4-6", temperature=1)
    )
    assert (endpoint.base_url, endpoint.key) == ("http://127.0.0.1:8080", Secret("sk-ant-given"))
    assert endpoint.headers == (("anthropic-version", "2023-06-01"), ("anthropic-beta", "x"))


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(AuthenticationError, match="set ANTHROPIC_API_KEY"):
        with_version(AnthropicProvider().endpoint(), wire_of())


def test_what_there_is_not() -> None:
    with pytest.raises(InvalidArgumentError, match="'anthropic' has no embed_text; it offers prompt"):
        AnthropicProvider(api_key="sk-ant-given").model(TextEmbedding())


def test_a_wire_travels_and_calls_leave_no_trace_in_it() -> None:
    wire = wire_of(reasoning={"effort": "low"}, extra_body={"output_config": {"x": 1}})
    request = Request((UserTurn((Text("Hi"),)),), output=StrictFormat("A", DataType.string(), {}, {"type": "string"}))
    first = wire.call(request)
    again = pickle.loads(pickle.dumps(wire_of(reasoning="low", extra_body={"output_config": {"x": 1}})))
    assert again == wire
    assert again.call(request) == wire.call(request) == first
    plain = Request((UserTurn((Text("Hi"),)),))
    assert wire.call(plain).body["output_config"] == {"effort": "low", "x": 1}
