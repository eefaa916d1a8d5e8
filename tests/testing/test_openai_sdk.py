"""OpenAI's own client is content with the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from pydantic import BaseModel

from penstock.testing import EmbeddingLimits, ModelServer, faults

if TYPE_CHECKING:
    import openai


class Review(BaseModel):
    """What is asked for."""

    label: Literal["good", "bad"]
    stars: int
    words: list[str]
    author: str | None


TOOL = {
    "type": "function",
    "name": "weather",
    "description": "",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def test_responses(client: openai.OpenAI) -> None:
    response = client.responses.create(model="gpt-5-mini", instructions="Be brief.", input="Hello there")
    assert response.output_text == "Hello there"
    assert (response.status, response.model, response.output[0].type) == ("completed", "gpt-5-mini", "message")
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0


def test_responses_take_messages_with_parts(client: openai.OpenAI) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
    content = [{"type": "input_text", "text": "What is this?"}, image]
    response = client.responses.create(model="m", input=[{"role": "user", "content": content}])
    assert response.output_text == "What is this?"


def test_chat_gives_several_answers(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}], n=2)
    assert [choice.message.content for choice in completion.choices] == ["Hi", "Hi (2)"]
    assert [choice.finish_reason for choice in completion.choices] == ["stop", "stop"]
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 3


def test_structured_answers_follow_the_schema(client: openai.OpenAI) -> None:
    prompts = [f"Review number {number}" for number in range(20)]
    parsed = [client.responses.parse(model="m", input=prompt, text_format=Review).output_parsed for prompt in prompts]
    assert {review.label for review in parsed if review} == {"good", "bad"}
    assert client.responses.parse(model="m", input=prompts[0], text_format=Review).output_parsed == parsed[0]
    messages = [{"role": "user", "content": "x"}]
    completion = client.chat.completions.parse(model="m", messages=messages, response_format=Review)
    assert isinstance(completion.choices[0].message.parsed, Review)


def test_a_tool_is_called_and_its_result_said(server: ModelServer, client: openai.OpenAI) -> None:
    server.change(faults=[faults.CallTools([("weather", {"city": "Oslo"})])])
    asked = [{"role": "user", "content": "Weather?"}]
    first = client.responses.create(model="m", input=asked, tools=[TOOL])
    call = first.output[0]
    assert (call.type, call.name, call.arguments) == ("function_call", "weather", '{"city":"Oslo"}')
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    more = [*asked, *[item.model_dump() for item in first.output], result]
    assert client.responses.create(model="m", input=more, tools=[TOOL]).output_text == "rain"


def test_a_tool_is_called_in_a_chat(server: ModelServer, client: openai.OpenAI) -> None:
    server.change(faults=[faults.CallTools([("a", {"x": 1}), ("b", {})])])
    messages = [{"role": "user", "content": "Do it"}]
    choice = client.chat.completions.create(model="m", messages=messages).choices[0]
    assert choice.finish_reason == "tool_calls"
    calls = choice.message.tool_calls or []
    assert [call.function.name for call in calls] == ["a", "b"]
    results = [{"role": "tool", "tool_call_id": call.id, "content": f"did {call.id[-1]}"} for call in calls]
    more = [*messages, choice.message.model_dump(), *results]
    again = client.chat.completions.create(model="m", messages=more).choices[0]
    assert again.message.content == "\n".join(result["content"] for result in results)


def test_results_that_answer_no_call_are_refused(client: openai.OpenAI) -> None:
    import openai

    asked, stray = {"role": "user", "content": "?"}, {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
    with pytest.raises(openai.BadRequestError, match="No tool call found for the result with call id call_1"):
        client.chat.completions.create(model="m", messages=[asked, {"role": "assistant", "content": ""}, stray])
    output = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
    with pytest.raises(openai.BadRequestError, match="No tool call found for the result"):
        client.responses.create(model="m", input=[asked, output])


def test_a_tool_can_be_required(client: openai.OpenAI) -> None:
    response = client.responses.create(model="m", input="x", tools=[TOOL], tool_choice="required")
    assert response.output[0].name == "weather"
    assert "city" in response.output[0].arguments


def test_embeddings(client: openai.OpenAI) -> None:
    as_base64 = client.embeddings.create(model="text-embedding-3-small", input=["a", "b", "a"])
    vectors = np.array([item.embedding for item in as_base64.data])
    assert vectors.shape == (3, 1536)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert np.array_equal(vectors[0], vectors[2])
    assert not np.array_equal(vectors[0], vectors[1])
    as_floats = client.embeddings.create(model="text-embedding-3-small", input="a", encoding_format="float")
    assert np.allclose(as_floats.data[0].embedding, vectors[0], atol=1e-6)
    assert len(client.embeddings.create(model="m", input="a", dimensions=64).data[0].embedding) == 64


@pytest.mark.parametrize("given", [["x"] * 5, ["x" * 41], [""], []])
def test_embeddings_have_limits(server: ModelServer, client: openai.OpenAI, given: list[str]) -> None:
    import openai

    server.change(embedding_limits=EmbeddingLimits(max_items=4, max_input_tokens=10))
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="m", input=given)


def test_models(server: ModelServer, client: openai.OpenAI) -> None:
    import openai

    server.change(models=["a", "b"])
    assert [model.id for model in client.models.list()] == ["a", "b"]
    with pytest.raises(openai.NotFoundError, match="`c` does not exist"):
        client.responses.create(model="c", input="x")


def test_a_wrong_key(server: ModelServer, client: openai.OpenAI) -> None:
    import openai

    server.change(api_key="another")
    with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
        client.responses.create(model="m", input="x")


def test_refusals(server: ModelServer, client: openai.OpenAI) -> None:
    server.change(faults=[faults.Refusal("No.", first=2), faults.ContentFilter()])
    part = client.responses.create(model="m", input="x").output[0].content[0]
    assert (part.type, part.refusal) == ("refusal", "No.")
    messages = [{"role": "user", "content": "x"}]
    choice = client.chat.completions.create(model="m", messages=messages).choices[0]
    assert (choice.message.refusal, choice.message.content) == ("No.", None)
    choice = client.chat.completions.create(model="m", messages=messages).choices[0]
    assert choice.finish_reason == "content_filter"


def test_answers_are_cut_short(server: ModelServer, client: openai.OpenAI) -> None:
    import openai

    response = client.responses.create(model="m", input="x" * 100, max_output_tokens=16)
    assert (response.status, len(response.output_text)) == ("incomplete", 64)
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    server.change(faults=[faults.CutShort()])
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="m", messages=messages, response_format=Review)


def test_the_client_tries_again(server: ModelServer) -> None:
    import openai

    server.change(faults=[faults.RateLimited(retry_after_ms=1, first=1), faults.Reset(at=2)])
    with openai.OpenAI(base_url=server.openai_url, api_key="test", max_retries=3) as client:
        assert client.responses.create(model="m", input="again").output_text == "again"
    assert [seen.status for seen in server.requests] == [429, 0, 200]


def test_bad_requests_are_explained(client: openai.OpenAI) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match="Missing required parameter: 'input'"):
        client.responses.create(model="m")
    with pytest.raises(openai.BadRequestError, match="does not stream"):
        client.responses.create(model="m", input="x", stream=True)
