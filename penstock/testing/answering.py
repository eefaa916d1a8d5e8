"""What the model says to a request: by the user's function, by a fault of the script, or by default."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import orjson

from penstock.testing.apis.exchange import Answer, ModelRequest, as_text, count_tokens
from penstock.testing.apis.schema_samples import sample
from penstock.testing.faults import CallTools, ContentFilter, CutShort, Fault, HttpError, InvalidAnswer, Refusal
from penstock.testing.script import AnswerFunction


def answer(request: ModelRequest, function: AnswerFunction | None, fault: Fault | None) -> Answer | Fault:
    """Return the answer, or the fault that the user's function chose to have instead."""
    if fault is not None and (scripted := _scripted(fault)) is not None:
        return scripted
    said: Any = default_answer(request) if function is None else _asked(function, request)
    if isinstance(said, Fault):
        if isinstance(said, (Refusal, InvalidAnswer, CallTools, CutShort, ContentFilter)):
            if isinstance(said, CallTools) and request.num_rounds >= said.rounds:
                return answer(request, None, None)
            return answer(request, None, said)
        return said
    text = as_text(said)
    if isinstance(fault, CutShort):
        return Answer(text[: int(len(text) * fault.keep)], "length")
    if isinstance(fault, ContentFilter):
        return Answer(text[: len(text) // 2], "filter")
    if request.max_tokens is not None and count_tokens(text) > request.max_tokens:
        return Answer(text[: request.max_tokens * 4], "length")
    if request.forced_tool:
        return Answer("", "tools", ((request.forced_tool, text),))
    return Answer(text)


def _asked(function: AnswerFunction, request: ModelRequest) -> Any:
    """Ask the user's function. What it raises is printed, and told to the client: nobody else would hear of it."""
    try:
        return function(request)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return HttpError(500, f"The answer function of the test raised {error!r}.", "answer_failed")


def _scripted(fault: Fault) -> Answer | None:
    """Return the answer of a fault that does not depend on what would have been said."""
    match fault:
        case Refusal(text=text):
            return Answer("", "refusal", refusal=text)
        case InvalidAnswer(text=text):
            return Answer(text)
        case CallTools(calls=calls):
            return Answer("", "tools", tuple((name, as_text(arguments)) for name, arguments in calls))
    return None


def default_answer(request: ModelRequest) -> str:
    """Say what the tools said; else an instance of the schema; else the prompt again."""
    if request.schema is not None:
        return orjson.dumps(sample(request.schema, f"{request.text}#{request.index}")).decode()
    text = "\n".join(request.tool_results) if request.tool_results else request.text
    return text if not request.index else f"{text} ({request.index + 1})"
