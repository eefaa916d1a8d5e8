"""Questions with a fixed set of answers, and the value that an answer has in a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.errors import InvalidArgumentError
from penstock.types import DataType

Kind = Literal["yes_no", "choice", "score"]
Probabilities = Sequence[float] | None
"""The probability of each option, None if the model declined to answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question for ``decide``. ``yes_no``, ``choice`` and ``score`` make one. ``dtype`` is the type of its answer."""

    kind: Kind
    text: str
    options: tuple[str, ...]
    descriptions: tuple[str | None, ...]

    @property
    def dtype(self) -> DataType:
        number = DataType.float64()
        return DataType.struct(
            {
                "value": DataType.bool() if self.kind == "yes_no" else DataType.string(),
                "probability": number,
                "probabilities": DataType.struct(dict.fromkeys(self.options, number)),
                "refused": DataType.bool(),
                **({"score": number} if self.kind == "score" else {}),
            }
        )


Questions = tuple[tuple[str, Question], ...]
"""Questions by name, in order."""


def yes_no(question: str) -> Question:
    """Ask ``decide`` a question that has the answer yes or no.

    The answer has ``value`` (a boolean), ``probability`` (of yes), ``probabilities`` and ``refused``.

    >>> yes_no("Does the customer ask for a refund?").options
    ('yes', 'no')
    """
    return Question("yes_no", _checked_text("yes_no", question), ("yes", "no"), (None, None))


def choice(question: str, options: Sequence[str] | Mapping[str, str | None]) -> Question:
    """Ask ``decide`` which of some options fits best. A dict has a description of each option.

    The answer has ``value`` (the most likely option), its ``probability``, ``probabilities`` of all, and ``refused``.

    >>> choice("What is it about?", {"billing": "payments and invoices", "bug": None}).options
    ('billing', 'bug')
    """
    return Question("choice", _checked_text("choice", question), *_checked_options("choice", options))


def score(question: str, levels: Sequence[str] | Mapping[str, str | None]) -> Question:
    """Ask ``decide`` for a level of a scale, from the lowest to the highest. A dict has a description of each level.

    The answer is like the answer to a ``choice``, and has the mean level as ``score``: 0 is the lowest level.

    >>> score("How angry is the customer?", ["calm", "cross", "furious"]).kind
    'score'
    """
    return Question("score", _checked_text("score", question), *_checked_options("score", levels))


MAKERS: Mapping[str, Callable[..., Question]] = {"yes_no": yes_no, "choice": choice, "score": score}
"""Functions that make questions, by name. Their results are constants, not columns."""


@dataclass(frozen=True, slots=True)
class QuestionLimits:
    """The most options of a choice, levels of a score, and questions in a request. None: unlimited."""

    options: int
    levels: int
    questions: int | None

    def check(self, questions: Questions, service: str) -> None:
        """Refuse questions with more options than the service takes."""
        for name, question in questions:
            limit = self.levels if question.kind == "score" else self.options
            if len(question.options) > limit:
                what = "levels" if question.kind == "score" else "options"
                raise InvalidArgumentError(
                    f"decide: question {name!r} has {len(question.options)} {what}; {service} takes {limit}. "
                    "Ask for a group first, then for the options in it."
                )


def checked_questions(given: Any) -> Questions:
    if isinstance(given, Question):
        raise InvalidArgumentError("decide: give the question a name: {'refund': yes_no('...')}.")
    if not isinstance(given, Mapping) or not given:
        raise InvalidArgumentError(
            f"decide: questions is a dict of names and questions, such as {{'refund': yes_no('...')}}; got {given!r}."
        )
    for name, question in given.items():
        if not isinstance(name, str) or not name.strip():
            raise InvalidArgumentError(f"decide: the name of a question is a text; got {name!r}.")
        if not isinstance(question, Question):
            raise InvalidArgumentError(
                f"decide: question {name!r} is {type(question).__name__}; make it with yes_no(), choice() or score()."
            )
    return tuple(given.items())


def _checked_text(function: str, text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgumentError(f"{function}: the question is a text; got {text!r}.")
    return text


def _checked_options(function: str, given: Any) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    descriptions = given if isinstance(given, Mapping) else dict.fromkeys(given, None) if _is_list(given) else None
    if descriptions is None or not all(isinstance(each, str) and each.strip() for each in descriptions):
        raise InvalidArgumentError(f"{function}: takes a list of texts, or a dict with descriptions; got {given!r}.")
    if len(given) < 2:
        raise InvalidArgumentError(f"{function}: give two or more; got {list(given)!r}.")
    if len({each.strip().casefold() for each in given}) < len(given):
        raise InvalidArgumentError(
            f"{function}: {list(given)!r} holds a text twice, apart from capitals and spaces; no answer could tell "
            "them apart."
        )
    if not all(each is None or isinstance(each, str) for each in descriptions.values()):
        raise InvalidArgumentError(f"{function}: a description is a text or None; got {dict(descriptions)!r}.")
    return tuple(descriptions), tuple(descriptions.values())


def _is_list(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(each, str) for each in given)
