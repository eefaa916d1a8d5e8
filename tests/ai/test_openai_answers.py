"""Answers of OpenAI's APIs, and bodies that only look like answers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.ai.conversation import Generation, Request, Text, UserTurn
from penstock.ai.dialogue import Exchange, PromptSettings
from penstock.ai.providers.chat_completions import ChatWire
from penstock.ai.providers.responses import ResponsesWire
from penstock.errors import InvalidAnswerError, ProviderUnavailableError

THOUGHT = {"type": "reasoning", "summary": []}
SAID = {"type": "message", "content": [{"type": "output_text", "text": "Yes."}]}
EMPTY = {"type": "message", "content": [{"type": "output_text", "text": ""}]}
SPENT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def response(*output: dict[str, Any], **fields: Any) -> Generation:
    (answer,) = ResponsesWire("m", {}, {}).read({"status": "completed", "output": list(output), **fields})
    return answer


def chat(message: Any, reason: str = "stop", **fields: Any) -> Generation:
    (answer,) = ChatWire("m", {}, {}).read({"choices": [{"message": message, "finish_reason": reason, **fields}]})
    return answer


@pytest.mark.parametrize(
    ("output", "fields", "error", "words"),
    [
        ([], {"status": "queued"}, InvalidAnswerError, "'queued'"),
        ([], {"status": "in_progress"}, InvalidAnswerError, "'in_progress'"),
        ([SAID], {"status": "cancelled"}, InvalidAnswerError, "'cancelled'"),
        ([], {"status": "failed", "error": {"code": "server_error"}}, ProviderUnavailableError, "server_error"),
        ([], {}, InvalidAnswerError, "its items are: none"),
        ([THOUGHT], {}, InvalidAnswerError, "its items are: reasoning"),
        ([{"type": "message", "content": [{"type": "output_text"}]}], {}, InvalidAnswerError, "'text'"),
        ([THOUGHT], {"status": "incomplete"}, InvalidAnswerError, "no text"),
    ],
)
def test_responses_without_an_answer(output: Any, fields: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        response(*output, **fields)


@pytest.mark.parametrize(
    ("message", "reason", "fields", "error", "words"),
    [
        ({"role": "assistant"}, "stop", {}, InvalidAnswerError, "no content"),
        ({"content": None}, "stop", {}, InvalidAnswerError, "no content"),
        ({"content": [{"type": "image"}]}, "stop", {}, InvalidAnswerError, "no content"),
        ({"content": "par"}, "error", {}, ProviderUnavailableError, "no reason given"),
        (
            {"content": "par"},
            "stop",
            {"error": {"message": "upstream died"}},
            ProviderUnavailableError,
            "upstream died",
        ),
    ],
)
def test_messages_without_an_answer(message: Any, reason: str, fields: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        chat(message, reason, **fields)


def test_an_empty_text_is_an_answer() -> None:
    assert (response(EMPTY).text, response(THOUGHT, SAID).text, chat({"content": ""}).text) == ("", "Yes.", "")


@pytest.mark.parametrize(
    "answer", [response(THOUGHT, **SPENT), chat({"content": None}, "length"), chat({"content": ""}, "length")]
)
def test_tokens_that_are_spent_on_thoughts_are_not_spent_again(answer: Generation) -> None:
    exchange = Exchange(PromptSettings(), Request((UserTurn((Text("?"),)),)))
    with pytest.raises(InvalidAnswerError, match=r"max_output_tokens="):
        exchange.take(answer)
    assert exchange.take(response(SAID, **SPENT)) is None  # a part of an answer is one
    assert exchange.value == "Yes."
