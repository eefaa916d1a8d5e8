"""OpenAI's Decisions API, as its Python library and reference describe it: predicates, choices and scores."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from penstock.ai.conversation import Request, Text
from penstock.ai.decisions.decision_wire import DecisionWire, parts_of
from penstock.ai.decisions.questions import Probabilities, Question, QuestionLimits, Questions
from penstock.ai.lenient_json import field_of
from penstock.ai.providers.wire import data_url
from penstock.errors import InvalidAnswerError

MODELS = ("gpt-6-luna",)
"""OpenAI's models that answer decisions."""

PAIRS = {"choice": itemgetter("value", "probability"), "score": itemgetter("label", "probability")}
"""The option and its probability in an answer to a question of a kind."""


class OpenAIDecisionWire(DecisionWire):
    """``POST /decisions`` of OpenAI."""

    path = "/decisions"
    service = "OpenAI's Decisions API"
    limits = QuestionLimits(options=255, levels=10, questions=400)
    options = (*DecisionWire.options, "safety_identifier")

    @staticmethod
    def described(questions: Questions) -> list[dict[str, Any]]:
        return [{"name": name, "instructions": question.text, **_kind(question)} for name, question in questions]

    def add(self, body: dict[str, Any], request: Request) -> None:
        if (text := request.text) is not None and not request.system:
            body["input"] = text
            return
        content = [
            {"type": "input_text", "text": part.text}
            if isinstance(part, Text)
            else {"type": "input_image", "image_url": data_url(part)}
            for part in parts_of(request)
        ]
        body["input"] = [{"type": "message", "role": "user", "content": content}]

    def answers(self, body: Mapping[str, Any]) -> list[Probabilities]:
        given = {each.get("name"): each for each in field_of(body, "answers", list) if type(each) is dict}
        return [_read(name, question, given.get(name)) for name, question in self.questions]


def _kind(question: Question) -> dict[str, Any]:
    if question.kind == "yes_no":
        return {"type": "predicate"}
    field, name = ("choices", "value") if question.kind == "choice" else ("levels", "label")
    pairs = zip(question.options, question.descriptions, strict=True)
    return {
        "type": question.kind,
        field: [{name: option, **({"description": text} if text else {})} for option, text in pairs],
    }


def _read(name: str, question: Question, given: Any) -> Probabilities:
    try:
        if given["type"] == "refusal":
            return None
        if question.kind == "yes_no":
            return [given["probability"], 1 - given["probability"]]
        by_option = dict(map(PAIRS[question.kind], given["probabilities"]))
        return list(map(by_option.__getitem__, question.options))  # without a comprehension: this runs for every call
    except (KeyError, TypeError):
        raise InvalidAnswerError(
            f"the answer to question {name!r} is not one to a question of kind {question.kind}"
        ) from None
