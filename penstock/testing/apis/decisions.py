"""Decisions in two formats: OpenAI's at one path, System One's at the same or another.

The answer of a script is a dict with a value for each question: the probability of yes, a dict of options and
probabilities, or None to decline. Without one, an option that the input names is nine times as likely as another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.testing.apis.model_api import (
    BadRequestError,
    ModelAnswer,
    ModelRequest,
    as_text,
    count_tokens,
    field,
    json_or,
    text_of,
)

YES_NO = ("yes", "no")


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question in a request: its type in that format, and the names of its options."""

    type: str
    options: tuple[str, ...]

    def probabilities(self, given: Any, text: str) -> list[float]:
        """Return the probabilities of the options, given the script's answer, or by default by the input."""
        if isinstance(given, int | float):
            return [given, 1 - given]
        if isinstance(given, Mapping):
            return [float(given.get(option, 0.0)) for option in self.options]
        weights = [9.0 if option.casefold() in text.casefold() else 1.0 for option in self.options]
        return [weight / sum(weights) for weight in weights]


class Decisions:
    """POST /decisions and POST /systemone."""

    def read(self, path: str, body: dict[str, Any]) -> ModelRequest:
        model = field(body, "model", str)
        asked = questions_of(body)
        if not asked:
            raise BadRequestError("'questions' must not be empty.")
        for name, question in asked.items():
            if len(question.options) < 2:
                raise BadRequestError(f"Question {name!r} needs two options or more.")
        given = field(body, "state" if is_system_one(body) else "input", (str, list, dict))
        return ModelRequest(path, model, _text(given), body)

    def write(self, request: ModelRequest, answers: list[ModelAnswer]) -> dict[str, Any]:
        body, (answer,) = request.body, answers
        asked = questions_of(body)
        given = json_or(answer.text, None)
        given = given if isinstance(given, dict) else {}
        found = {
            name: None
            if answer.refusal or (name in given and given[name] is None)
            else question.probabilities(given.get(name), request.text)
            for name, question in asked.items()
        }
        num_tokens = count_tokens(request.text) + count_tokens(as_text(body["questions"]))
        write = _system_one if is_system_one(body) else _openai
        return {"model": request.model, **write(asked, found, num_tokens)}


def is_system_one(body: Mapping[str, Any]) -> bool:
    return isinstance(body.get("questions"), dict)


def questions_of(body: dict[str, Any]) -> dict[str, AskedQuestion]:
    """Return the questions of a request by name."""
    asked = field(body, "questions", (dict, list))
    if isinstance(asked, dict):
        return {name: AskedQuestion(each["type"], _criteria(each)) for name, each in asked.items()}
    return {each.get("name"): AskedQuestion(each["type"], _options(each)) for each in asked}


def _criteria(question: Mapping[str, Any]) -> tuple[str, ...]:
    return YES_NO if question["type"] == "noul" else tuple(question["criteria"])


def _options(question: Mapping[str, Any]) -> tuple[str, ...]:
    listed = question.get("choices") or question.get("levels")
    return YES_NO if listed is None else tuple(each.get("value") or each.get("label") for each in listed)


def _text(given: Any) -> str:
    """Return the texts of an input: a text, a list of texts and parts, or messages."""
    if isinstance(given, list):
        return "\n".join(each if isinstance(each, str) else text_of(each.get("content")) for each in given)
    return as_text(given)


Answers = dict[str, list[float] | None]


def _openai(asked: dict[str, AskedQuestion], answers: Answers, num_tokens: int) -> dict[str, Any]:
    return {
        "answers": [_openai_answer(name, asked[name], found) for name, found in answers.items()],
        "usage": {
            "input_tokens": num_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": num_tokens,
        },
    }


def _openai_answer(name: str, question: AskedQuestion, found: list[float] | None) -> dict[str, Any]:
    if found is None:
        return {"type": "refusal", "name": name}
    if question.type == "predicate":
        return {"type": "predicate", "name": name, "probability": found[0]}
    pairs = list(zip(question.options, found, strict=True))
    if question.type == "choice":
        listed: list[dict[str, Any]] = [{"value": option, "probability": each} for option, each in pairs]
        own: dict[str, Any] = {"choice": max(pairs, key=lambda pair: pair[1])[0]}
    else:
        listed = [{"label": label, "value": level, "probability": p} for level, (label, p) in enumerate(pairs)]
        own = {"score": _mean(found)}
    return {"type": question.type, "name": name, **own, "probabilities": listed, "confidence": max(found)}


def _system_one(asked: dict[str, AskedQuestion], answers: Answers, num_tokens: int) -> dict[str, Any]:
    """A question that the model declines is missing from the answers."""
    return {
        "answers": {
            name: _system_one_answer(asked[name], found) for name, found in answers.items() if found is not None
        },
        "usage": {"input_tokens": num_tokens, "output_tokens": 0},
    }


def _system_one_answer(question: AskedQuestion, found: list[float]) -> dict[str, Any]:
    if question.type == "noul":
        return {"type": "noul", "noul": found[0]}
    if question.type == "choice":
        by_option = dict(zip(question.options, found, strict=True))
        return {
            "type": "choice",
            "choice": max(by_option, key=by_option.__getitem__),
            "confidence": max(found),
            "probabilities": by_option,
        }
    return {
        "type": "score",
        "score": _mean(found),
        "confidence": max(found),
        "legend": {str(level): text for level, text in enumerate(question.options)},
        "probabilities": {str(level): each for level, each in enumerate(found)},
    }


def _mean(found: list[float]) -> float:
    return sum(level * each for level, each in enumerate(found))
