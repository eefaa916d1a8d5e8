"""System One: a state and typed questions about it. TypeSafe made the format; others serve it under several paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.ai.conversation import Image, Request
from penstock.ai.decisions.decision_wire import DecisionWire, described_option, parts_of, probabilities_of
from penstock.ai.decisions.questions import Probabilities, Question, QuestionLimits, Questions
from penstock.ai.lenient_json import field_of
from penstock.ai.providers.wire import base64_of, data_url
from penstock.errors import InvalidAnswerError

KINDS = {"yes_no": "noul", "choice": "choice", "score": "score"}


class SystemOneWire(DecisionWire):
    """``POST /systemone``."""

    path = "/systemone"
    service = "a System One service"
    limits = QuestionLimits(options=255, levels=10, questions=128)

    @staticmethod
    def described(questions: Questions) -> dict[str, Any]:
        return {
            name: {"type": KINDS[question.kind], "instructions": question.text, **_criteria(question)}
            for name, question in questions
        }

    def add(self, body: dict[str, Any], request: Request) -> None:
        if (text := request.text) is not None and not request.system:
            body["state"] = text
        else:
            images: list[Image] = []
            body["state"] = [
                self.image(part, images) if isinstance(part, Image) else part.text for part in parts_of(request)
            ]
            self.attach(body, images)

    def image(self, image: Image, images: list[Image]) -> Any:
        """Return an image as an item of the state, as OpenRouter describes it."""
        return {"type": "image_url", "image_url": {"url": data_url(image)}}

    def attach(self, body: dict[str, Any], images: list[Image]) -> None:
        """Add the images that are not in the state itself."""

    def answers(self, body: Mapping[str, Any]) -> list[Probabilities]:
        given = field_of(body, "answers", dict)
        return [_read(name, question, given.get(name)) for name, question in self.questions]


class TypeSafeWire(SystemOneWire):
    """TypeSafe's own service, which takes images as assets that the state names."""

    def image(self, image: Image, images: list[Image]) -> Any:
        images.append(image)
        return f"image-{len(images)}"

    def attach(self, body: dict[str, Any], images: list[Image]) -> None:
        if images:
            body["assets"] = {
                f"image-{number}": {
                    "type": "image",
                    "format": image.mime_type.partition("/")[2],
                    "data_base64": base64_of(image),
                }
                for number, image in enumerate(images, 1)
            }


class PerplexityWire(SystemOneWire):
    """Perplexity's service, at the path of OpenAI's."""

    path = "/decisions"
    service = "Perplexity"


def _criteria(question: Question) -> dict[str, Any]:
    match question.kind:
        case "choice":
            return {"criteria": dict(zip(question.options, question.descriptions, strict=True))}
        case "score":
            return {"criteria": [described_option(question, number) for number in range(len(question.options))]}
        case _:
            return {}


def _read(name: str, question: Question, given: Any) -> Probabilities:
    """Return the probabilities in an answer. A service leaves out questions that it cannot answer."""
    match given:
        case None:
            return None
        case {"noul": int() | float() as yes} if question.kind == "yes_no":
            return [yes, 1 - yes]
        case {"choice": _, "probabilities": dict(found)} if question.kind == "choice":
            return probabilities_of(name, found, question.options)
        case {"score": _, "probabilities": dict(found)} if question.kind == "score":
            return probabilities_of(name, found, tuple(map(str, range(len(question.options)))))
    raise InvalidAnswerError(f"the answer to question {name!r} is not one to a question of kind {question.kind}")
