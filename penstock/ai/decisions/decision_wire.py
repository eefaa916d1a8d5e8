"""The interface of a service that answers typed questions: one request for all questions about a row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from penstock.ai.conversation import Generation, Image, Request, Text, UserTurn
from penstock.ai.decisions.decision_format import answer_text
from penstock.ai.decisions.questions import Probabilities, Question, QuestionLimits, Questions
from penstock.ai.provider import ModelTask, check_options
from penstock.ai.providers.wire import PromptWire, extra_body_of
from penstock.errors import InvalidAnswerError, RequestRefusedError


@dataclass(frozen=True)
class DecisionWire(PromptWire):
    """One API for decisions. The body of all rows holds the questions; ``add`` adds the input."""

    questions: Questions = ()
    service: ClassVar[str]  # in messages
    limits: ClassVar[QuestionLimits]
    options: ClassVar[tuple[str, ...]] = ("wire", "extra_body")

    @classmethod
    def about(cls, task: ModelTask, provider: str, model: str, questions: Questions) -> Self:
        """Return the wire for some questions of a task. Refuse unknown options, and questions with too many options."""
        check_options(task, provider, cls.options)
        cls.limits.check(questions, cls.service)
        body = {"model": model, "questions": cls.described(questions)}
        return cls(model, body, extra_body_of(task.options), questions=questions)

    @classmethod
    def fields(cls, what: str, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    @staticmethod
    @abstractmethod
    def described(questions: Questions) -> Any:
        """Return the questions as the service takes them."""

    @abstractmethod
    def answers(self, body: Mapping[str, Any]) -> list[Probabilities]:
        """Return the probabilities of the options of each question; None if the model declined to answer it."""

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        found = self.answers(body)
        try:
            for given in found:
                sum(given or ())
        except TypeError:
            raise InvalidAnswerError("the answer has a probability that is not a number") from None
        return [Generation(answer_text(self.questions, found), body.get("model"), finish_reason="stop")]


def parts_of(request: Request) -> list[Text | Image]:
    """Return the input of a row as texts and images. Raise RequestRefusedError for any other part."""
    parts: list[Text | Image] = [Text(request.system)] if request.system else []
    for turn in request.turns:
        for part in turn.parts if isinstance(turn, UserTurn) else (turn,):
            if not isinstance(part, Text | Image):
                raise RequestRefusedError(
                    f"decide: the model takes texts and images; the input has a part of kind {type(part).__name__}."
                )
            parts.append(part)
    return parts


def described_option(question: Question, number: int) -> str:
    """Return an option with its description."""
    option, description = question.options[number], question.descriptions[number]
    return option if description is None else f"{option}: {description}"


def probabilities_of(name: str, given: Any, keys: tuple[str, ...]) -> list[float]:
    """Return the values of a mapping in the order of ``keys``, the options of question ``name``."""
    if not isinstance(given, Mapping) or not all(key in given for key in keys):
        raise InvalidAnswerError(f"the answer to question {name!r} lacks the probabilities of: {', '.join(keys)}")
    return [given[key] for key in keys]
