"""``prompt`` as users call it, over the wire."""

from __future__ import annotations

import enum
import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel, Field

import penstock as ps
from penstock.ai.conversation import Generation, Request
from penstock.ai.provider import ModelTask, Prompter, Prompting, Provider
from penstock.errors import (
    AuthenticationError,
    ContentFilteredError,
    InvalidAnswerError,
    InvalidArgumentError,
    TypeMismatchError,
    UdfError,
)
from penstock.functions import file, format, prompt
from penstock.testing import ModelRequest, ModelServer, faults

APIS = pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
REMOTE_TOOLS = pytest.mark.parametrize(("chat", "form"), [(False, None), (True, None), (True, list[str])])


@pytest.fixture
def server(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="sk-test-1234")
    return model_server


def ask(values: list[Any], **options: Any) -> list[Any]:
    df = ps.from_pydict({"q": values})
    found: list[Any] = df.select(prompt(ps.col("q"), model="gpt-5", **options).alias("a")).to_pydict()["a"]
    return found


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(BaseModel):
    name: str
    weight: float | None = None


class Machine(BaseModel):
    """A machine."""

    title: str = Field(description="What it is called")
    colour: Colour
    kind: Literal["big", "small"]
    parts: list[Part]
    note: str | None = None


@APIS
def test_answers_come_in_order(server: ModelServer, chat: bool) -> None:
    questions = [f"number {i}" for i in range(300)]
    assert ask(questions, use_chat_completions=chat) == questions


@APIS
def test_null_asks_nothing(server: ModelServer, chat: bool) -> None:
    assert ask(["a", None, "b"], use_chat_completions=chat) == ["a", None, "b"]
    assert server.num_requests == 2


def test_responses_body(server: ModelServer) -> None:
    ask(
        ["hello"],
        system_message="Be brief.",
        max_output_tokens=200,
        reasoning={"effort": "high"},
        tools=[{"type": "web_search"}],
        extra_body={"structured_outputs": {"choice": ["a", "b"]}},
    )
    (seen,) = server.requests
    assert seen.path.endswith("/responses")
    assert seen.headers["authorization"] == "Bearer sk-test-1234"
    assert seen.body == {
        "model": "gpt-5",
        "input": "hello",
        "instructions": "Be brief.",
        "max_output_tokens": 200,
        "reasoning": {"effort": "high"},
        "tools": [{"type": "web_search"}],
        "structured_outputs": {"choice": ["a", "b"]},
    }


def test_chat_body(server: ModelServer) -> None:
    ask(["hello"], system_message="Be brief.", max_tokens=200, temperature=0.7, seed=1, use_chat_completions=True)
    (seen,) = server.requests
    assert seen.path.endswith("/chat/completions")
    assert seen.body == {
        "model": "gpt-5",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
        "max_tokens": 200,
        "temperature": 0.7,
        "seed": 1,
    }


@APIS
def test_parts_of_all_kinds(server: ModelServer, chat: bool, tmp_path: Path) -> None:
    from tests.media_files import write_pdf, write_tone

    write_pdf(tmp_path / "a.pdf", ["A page."])
    write_tone(tmp_path / "a.wav")
    (tmp_path / "a.md").write_text("# Title")
    df = ps.from_pydict({"image": [np.zeros((4, 6, 3), np.uint8)], "folder": [str(tmp_path)]})
    paths = [file(format(f"{{}}/a.{kind}", ps.col("folder"))) for kind in ("pdf", "wav", "md")]
    answer = prompt([ps.lit("Describe these:"), ps.col("image"), *paths], model="gpt-5", use_chat_completions=chat)
    df.select(answer.alias("a")).collect()
    (seen,) = server.requests
    content = (seen.body["messages"] if chat else seen.body["input"])[0]["content"]
    kinds = [part["type"] for part in content]
    if chat:
        assert kinds == ["text", "image_url", "file", "input_audio", "text"]
        assert content[1]["image_url"]["url"].startswith("data:image/png;base64,")
        assert content[2]["file"]["file_data"].startswith("data:application/pdf;base64,")
    else:
        assert kinds == ["input_text", "input_image", "input_file", "input_audio", "input_text"]
        assert content[1]["image_url"].startswith("data:image/png;base64,")
        assert content[2]["filename"] == "a.pdf"
    assert "# Title" in content[4]["text"]


@APIS
def test_structured_answers_are_structs(server: ModelServer, chat: bool) -> None:
    df = ps.from_pydict({"q": ["a", None, "b"]})
    answer = prompt(ps.col("q"), Machine, model="gpt-5", use_chat_completions=chat)
    df = df.select("q", answer.alias("m"))
    assert df.schema["m"].dtype.is_struct()
    rows = df.collect().to_pydict()["m"]
    assert rows[1] is None
    for row in (rows[0], rows[2]):
        Machine.model_validate(row)
    flat = df.select("q", ps.unnest(ps.col("m"))).to_pydict()
    assert list(flat) == ["q", "title", "colour", "kind", "parts", "note"]
    body = server.requests[0].body
    schema = body["response_format"]["json_schema"] if chat else body["text"]["format"]
    assert schema["name"] == "Machine"
    assert schema["strict"] is True


def test_extra_fields_are_merged_into_objects(server: ModelServer) -> None:
    ask(["a"], return_format=Part, extra_body={"text": {"verbosity": "low"}, "reasoning": {"summary": "auto"}},
        reasoning={"effort": "low"})  # fmt: skip
    ask(["a"], return_format=Part, extra_body={"response_format": {"json_schema": {"strict": False}}},
        use_chat_completions=True)  # fmt: skip
    responses, chat = (seen.body for seen in server.requests)
    assert responses["text"]["verbosity"] == "low"
    assert responses["text"]["format"]["name"] == "Part"
    assert responses["reasoning"] == {"effort": "low", "summary": "auto"}
    form = chat["response_format"]["json_schema"]
    assert (form["name"], form["strict"]) == ("Part", False)


@APIS
def test_an_invalid_answer_is_asked_for_again(server: ModelServer, chat: bool) -> None:
    server.change(faults=[faults.InvalidAnswer('{"name": 1}', first=1)])
    assert ask(["a"], return_format=Part, use_chat_completions=chat)[0]["name"]
    first, second = server.requests
    again = second.body["messages"] if chat else second.body["input"]
    assert "name" in str(again[-1]["content"])
    assert len(again) > len(first.body["messages"] if chat else [first.body["input"]])


def test_invalid_answers_end_in_an_error(server: ModelServer) -> None:
    server.change(faults=[faults.InvalidAnswer("no JSON")])
    with pytest.raises(UdfError) as raised:
        ask(["a"], return_format=Part, max_reasks=2)
    assert isinstance(raised.value.__cause__, InvalidAnswerError)
    assert server.num_requests == 3


def test_an_answer_that_was_cut_names_the_remedy(server: ModelServer) -> None:
    server.change(faults=[faults.CutShort()])
    with pytest.raises(UdfError, match="max_output_tokens"):
        ask(["a"], return_format=Machine)
    assert server.num_requests == 1


@APIS
def test_tool_functions_run_until_there_is_an_answer(server: ModelServer, chat: bool) -> None:
    def weather(city: str) -> str:
        """Return the weather of a city."""
        return f"sunny in {city}"

    server.change(faults=[faults.CallTools([("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})], rounds=2)])
    (found,) = ask(["How is it?"], tool_functions=[weather], usage=True, use_chat_completions=chat)
    assert "sunny in Paris" in found["value"]
    assert [call["result"] for call in found["tool_calls"]] == ["sunny in Paris", "sunny in Rome"] * 2
    assert server.num_requests == 3


@REMOTE_TOOLS
def test_calls_that_nobody_runs_are_an_error_or_shown(server: ModelServer, chat: bool, form: Any) -> None:
    server.change(faults=[faults.CallTools([("weather", {"city": "Paris"})])])
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": "weather", "parameters": parameters}
    tool = {"type": "function", "function": function} if chat else {"type": "function", **function}
    options: dict[str, Any] = {"tools": [tool], "use_chat_completions": chat, "return_format": form}
    with pytest.raises(UdfError, match=r"called weather.*tool_functions=.*usage=True"):
        ask(["?"], **options)
    (found,) = ask(["?"], usage=True, **options)
    assert found["value"] is None
    assert found["tool_calls"] == [{"name": "weather", "arguments": '{"city":"Paris"}', "result": None}]
    assert server.num_requests == 2


def test_tools_that_fail_are_told_to_the_model(server: ModelServer) -> None:
    def broken(city: str) -> str:
        raise KeyError(city)

    server.change(faults=[faults.CallTools([("broken", {"city": "Paris"}), ("missing", {})])])
    (answer,) = ask(["?"], tool_functions=[broken])
    assert "KeyError" in answer
    assert "there is no tool 'missing'" in answer


def test_tool_rounds_are_bounded(server: ModelServer) -> None:
    def again() -> str:
        return "again"

    server.change(faults=[faults.CallTools([("again", {})], rounds=100)])
    with pytest.raises(UdfError, match="max_tool_rounds"):
        ask(["?"], tool_functions=[again], max_tool_rounds=3)
    assert server.num_requests == 4


@APIS
def test_usage(server: ModelServer, chat: bool) -> None:
    (found,) = ask(["one two three"], usage=True, use_chat_completions=chat)
    assert found["value"] == "one two three"
    assert found["model"].startswith("gpt-5")
    assert found["input_tokens"] > 0
    assert found["output_tokens"] > 0
    assert found["cost"] == pytest.approx((found["input_tokens"] * 1.25 + found["output_tokens"] * 10) / 1e6)
    assert 0 < found["latency_s"] < 60
    assert found["finish_reason"] == "stop"
    assert found["tool_calls"] == []


@APIS
def test_several_answers_are_a_list(server: ModelServer, chat: bool) -> None:
    answers = ask(["a", None, "b"], n=3, use_chat_completions=chat)
    assert answers[1] is None
    assert [len(answers[0]), len(answers[2])] == [3, 3]
    assert answers[0] == (["a", "a (2)", "a (3)"] if chat else ["a"] * 3)
    assert server.num_requests == (2 if chat else 6)


def test_refusals_are_row_errors_with_their_reason(server: ModelServer) -> None:
    server.change(faults=[faults.Refusal("Not that.", containing="bomb")])
    df = ps.from_pydict({"q": ["bomb", "cake"]})
    df = df.select(prompt(ps.col("q"), model="gpt-5", on_error="null").alias("a")).collect()
    assert df.to_pydict()["a"] == [None, "cake"]
    (error,) = df.errors().to_pylist()
    assert error["error_type"] == ContentFilteredError.__name__
    assert "Not that." in error["message"]


def test_the_record_of_a_failed_template_has_its_text_under_no_column_s_name(server: ModelServer) -> None:
    server.change(faults=[faults.Refusal("Not that.")])
    asked = prompt("About {p}: {q}", model="gpt-5", on_error="null").alias("a")
    failed = ps.from_pydict({"p": ["tea"], "q": ["hot?"]}).select(asked).collect().errors().to_pylist()
    assert [each["input"] for each in failed] == ['{"template": "About tea: hot?"}']


def test_a_conversation_is_sent_as_one(server: ModelServer) -> None:
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]
    ask([talk], use_chat_completions=True)
    (seen,) = server.requests
    assert [(m["role"], m["content"] if isinstance(m["content"], str) else m["content"][0]["text"])
            for m in seen.body["messages"]] == [(m["role"], m["content"]) for m in talk]  # fmt: skip


TALK_WITH_TOOLS = [
    {"role": "user", "content": "How is it?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": name, "type": "function", "function": {"name": "weather", "arguments": f'{{"city": "{city}"}}'}}
            for name, city in (("call_1", "Bergen"), ("call_2", "Rome"))
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "tool", "tool_call_id": "call_2", "content": "sun"},
    {"role": "user", "content": "Thanks."},
]


@APIS
def test_a_conversation_keeps_its_tool_calls(server: ModelServer, chat: bool) -> None:
    assert ask([TALK_WITH_TOOLS], use_chat_completions=chat) == ["Thanks."]
    (seen,) = server.requests
    if chat:
        called = seen.body["messages"][1]
        assert called == {key: TALK_WITH_TOOLS[1][key] for key in ("role", "content", "tool_calls")}
    else:
        called, other = seen.body["input"][1:3]
        assert called == {
            "type": "function_call",
            "call_id": "call_1",
            "name": "weather",
            "arguments": '{"city": "Bergen"}',
        }
        assert other["call_id"] == "call_2"


def test_templates_by_format_and_by_func(server: ModelServer) -> None:
    @ps.func
    def built(question: str, words: int) -> str:
        return f"{question} In {words} words."

    df = ps.from_pydict({"q": ["Why?"]})
    found = df.select(
        prompt(format("Q: {}", ps.col("q")), model="m").alias("a"), prompt(built(ps.col("q"), 5), model="m").alias("b")
    )
    assert found.to_pydict() == {"a": ["Q: Why?"], "b": ["Why? In 5 words."]}


def test_an_expression_is_computed_once_and_two_are_two_samples(server: ModelServer) -> None:
    df = ps.from_pydict({"q": ["a"]})
    one = prompt(ps.col("q"), model="m", temperature=1)
    df.select(one.alias("a"), one.alias("b")).collect()
    assert server.num_requests == 1
    df.select(*(prompt(ps.col("q"), model="m", temperature=1).alias(name) for name in "ab")).collect()
    assert server.num_requests == 3


def test_lists_that_ask_nothing_are_row_errors(server: ModelServer) -> None:
    talks = [[{"role": "system", "content": "Be brief."}], [], None]
    df = ps.from_pydict({"q": talks}).select(prompt(ps.col("q"), model="m", on_error="null")).collect()
    assert df.to_pydict()["q"] == [None] * 3
    assert df.errors().to_pydict()["error_type"] == ["RequestRefusedError"] * 2


def test_a_query_of_two_prompts_shares_a_loop(server: ModelServer) -> None:
    df = ps.from_pydict({"q": [f"{i}" for i in range(50)]})
    df = df.with_column("a", prompt(ps.col("q"), model="m"))
    df = df.with_column("b", prompt(ps.col("a"), model="m", use_chat_completions=True))
    assert df.to_pydict()["b"] == [f"{i}" for i in range(50)]
    assert df.to_pydict()["b"] == [f"{i}" for i in range(50)]


def test_a_write_leaves_failed_rows_beside_it(server: ModelServer, tmp_path: Path) -> None:
    server.change(faults=[faults.HttpError(400, "no", containing="7")])
    df = ps.from_pydict({"q": [f"{i}" for i in range(10)]})
    df.with_column("a", prompt(ps.col("q"), model="m", on_error="null")).write_parquet(str(tmp_path / "out"))
    assert sorted(ps.read_parquet(str(tmp_path / "out")).where(ps.col("a").is_null()).to_pydict()["q"]) == ["7"]
    assert (tmp_path / "out" / "_errors").is_dir()


# --- what is wrong is said when the plan is built ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temprature": 1}, r"Did you mean 'temperature'"),
        ({"batch_max_request": 3}, r"does not take 'batch_max_request'\. Did you mean 'batch_max_requests'\?"),
        ({"usge": True}, r"Did you mean 'usage'\? help\(ps.prompt\) lists the options"),
        ({"provider": "opnai"}, r"Did you mean 'openai'"),
        ({"on_error": "nul"}, r"Did you mean 'null'"),
        ({"stop": ["x"]}, r"use_chat_completions=True"),
        ({"n": 0}, r"n"),
        ({"timeout": -1}, r"timeout must be a number above 0; got -1"),
        ({"requests_per_minute": "many"}, r"requests_per_minute"),
        ({"system_message": 5}, r"system_message"),
        ({"return_format": 5}, r"return_format"),
        ({"max_errors": 5}, r"on_error"),
        ({"batch_api": "yes"}, r"must be True or False"),
        ({"batch_api": True, "max_concurrency": 5}, r"max_concurrency has no effect with batch_api"),
        ({"batch_poll_interval": 5}, r"batch_poll_interval has no effect without batch_api"),
        ({"batch_api": True, "batch_poll_interval": 0}, r"batch_poll_interval must be a number above 0; got 0"),
        ({"batch_api": True, "batch_max_requests": 0}, r"batch_max_requests"),
    ],
)
def test_invalid_options_are_refused_at_once(server: ModelServer, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        prompt(ps.col("q"), model="gpt-5", **options)


def test_columns_that_no_model_can_read(server: ModelServer) -> None:
    df = ps.from_pydict({"v": np.zeros((2, 8), np.float32)}).select(
        ps.col("v").cast(ps.DataType.embedding(ps.DataType.float32(), 8))
    )
    with pytest.raises(TypeMismatchError, match="a language model cannot read"):
        df.select(prompt(ps.col("v"), model="gpt-5"))


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY"), ("google", "GOOGLE_API_KEY")],
)
def test_a_missing_key_names_its_variable(model_server: ModelServer, provider: str, variable: str) -> None:
    with pytest.raises(AuthenticationError, match=variable):
        prompt(ps.col("q"), model="m", provider=provider)


# --- providers of one's own -------------------------------------------------------------------------------------------


class Shouting(Provider):
    name = "shouting"

    def __init__(self, is_batched: bool) -> None:
        self.is_batched = is_batched

    def model(self, task: ModelTask) -> Any:
        match task:
            case Prompting():
                return BatchShouter() if self.is_batched else Shouter()
            case _:
                return super().model(task)


class Shouter(Prompter):
    async def generate(self, request: Request) -> list[Generation]:
        return [Generation((request.text or "").upper())] * request.num_answers


class BatchShouter(Prompter):
    batch_size = 4

    def generate(self, request: list[Request]) -> list[Any]:
        assert len(request) <= 4
        return [
            ValueError("boom") if each.text == "boom" else [Generation((each.text or "").upper())] * each.num_answers
            for each in request
        ]


@pytest.mark.parametrize("is_batched", [False, True])
def test_a_provider_of_one_s_own(model_server: ModelServer, is_batched: bool) -> None:
    ps.attach_provider(Shouting(is_batched))
    assert ask(["a", None, *"bcdefg"], provider="shouting") == ["A", None, *"BCDEFG"]
    assert ask(["a"], provider="shouting", n=2) == [["A", "A"]]
    with pytest.raises(InvalidArgumentError, match="has no embed_text"):
        ps.embed_text(ps.col("q"), provider="shouting")


def test_a_row_of_a_batch_fails_alone(model_server: ModelServer) -> None:
    ps.attach_provider(Shouting(True))
    df = ps.from_pydict({"q": ["a", "boom", "b"]})
    df = df.select(prompt(ps.col("q"), provider="shouting", on_error="null").alias("a")).collect()
    assert df.to_pydict()["a"] == ["A", None, "B"]
    assert df.errors().count_rows() == 1


def test_images_in_bytes_are_sent_as_they_are(server: ModelServer) -> None:
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (3, 3)).save(data, "JPEG")
    ask([data.getvalue()])
    assert server.requests[0].body["input"][0]["content"][0]["image_url"].startswith("data:image/jpeg;base64,")


def test_an_answer_may_depend_on_the_request(server: ModelServer) -> None:
    def answer(request: ModelRequest) -> str:
        return f"{request.model}: {len(request.text)}"

    server.change(answer=answer)
    assert ask(["four"]) == ["gpt-5: 4"]
