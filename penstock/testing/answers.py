"""The text that the model answers: from the user's function, from a fault, or by default."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import orjson

from penstock.testing.apis.model_api import ModelAnswer, ModelRequest, as_text, count_tokens
from penstock.testing.faults import (
    MODEL_FAULTS,
    CallTools,
    ContentFilter,
    CutShort,
    Fault,
    HttpError,
    InvalidAnswer,
    Refusal,
)
from penstock.testing.schema_samples import sample
from penstock.testing.script import AnswerFunction


class FaultInsteadError(Exception):
    """The user's function returned a fault instead of an answer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def answer(request: ModelRequest, function: AnswerFunction | None, fault: Fault | None) -> ModelAnswer:
    """Return the answer; raises FaultInsteadError."""
    match fault:
        case Refusal(text=text):
            return ModelAnswer("", "refusal", refusal=text)
        case InvalidAnswer(text=text):
            return ModelAnswer(text)
        case CallTools(calls=calls):
            return ModelAnswer("", "tools", tuple((name, as_text(arguments)) for name, arguments in calls))
    result: Any = default_answer(request) if function is None else _call(function, request)
    if isinstance(result, MODEL_FAULTS):
        is_last_round = isinstance(result, CallTools) and request.num_rounds >= result.rounds
        return answer(request, None, None if is_last_round else result)
    if isinstance(result, Fault):
        raise FaultInsteadError(result)
    text = as_text(result)
    if isinstance(fault, CutShort):
        return ModelAnswer(text[: int(len(text) * fault.keep)], "length")
    if isinstance(fault, ContentFilter):
        return ModelAnswer(text[: len(text) // 2], "filter")
    if request.max_tokens is not None and count_tokens(text) > request.max_tokens:
        return ModelAnswer(text[: request.max_tokens * 4], "length")
    if request.forced_tool:
        return ModelAnswer("", "tools", ((request.forced_tool, text),))
    return ModelAnswer(text)


def _call(function: AnswerFunction, request: ModelRequest) -> Any:
    """Call the user's function. Its exception is printed here and reported to the client."""
    try:
        return function(request)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return HttpError(500, f"The answer function of the test raised {error!r}.", "answer_failed")


def default_answer(request: ModelRequest) -> str:
    """Return an instance of the schema, else the results of tools, else the prompt."""
    if request.schema is not None:
        return orjson.dumps(sample(request.schema, f"{request.text}#{request.index}")).decode()
    text = "\n".join(request.tool_results) if request.tool_results else request.text
    return text if not request.index else f"{text} ({request.index + 1})"
