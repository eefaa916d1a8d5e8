"""SGLang's ``/v1/decisions``: it scores the options with any chat model. Its fields differ from OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.ai.conversation import Image, Request, Text
from penstock.ai.decisions.decision_wire import DecisionWire, described_option, parts_of, probabilities_of
from penstock.ai.decisions.questions import Probabilities, Question, QuestionLimits, Questions
from penstock.ai.lenient_json import field_of
from penstock.ai.providers.wire import data_url


class SglangDecisionWire(DecisionWire):
    """``POST /decisions`` of SGLang. A chat model never declines."""

    path = "/decisions"
    service = "SGLang"
    limits = QuestionLimits(options=26, levels=10, questions=None)

    @staticmethod
    def described(questions: Questions) -> list[dict[str, Any]]:
        return [{"id": name, "type": each.kind, "question": each.text, **_options(each)} for name, each in questions]

    def add(self, body: dict[str, Any], request: Request) -> None:
        parts = parts_of(request)
        body["input"] = "\n".join(part.text for part in parts if isinstance(part, Text))
        if images := [{"url": data_url(part)} for part in parts if isinstance(part, Image)]:
            body["images"] = images

    def answers(self, body: Mapping[str, Any]) -> list[Probabilities]:
        given = field_of(body, "answers", dict)
        return [_read(name, question, field_of(given, name, dict)) for name, question in self.questions]


def _options(question: Question) -> dict[str, Any]:
    match question.kind:
        case "choice":
            pairs = zip(question.options, question.descriptions, strict=True)
            return {"options": [{"name": name, **({"description": text} if text else {})} for name, text in pairs]}
        case "score":
            return {"levels": [described_option(question, number) for number in range(len(question.options))]}
        case _:
            return {}


def _read(name: str, question: Question, given: Mapping[str, Any]) -> Probabilities:
    is_score = question.kind == "score"
    keys = tuple(map(str, range(len(question.options)))) if is_score else question.options
    return probabilities_of(name, given.get("probabilities"), keys)
