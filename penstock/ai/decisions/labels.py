"""A language model as a judge: a prompt for each question, and answers that begin with one of a few labels."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.ai.conversation import Generation, Request, Text, Turn, UserTurn
from penstock.ai.decisions.decision_wire import described_option
from penstock.ai.decisions.questions import Probabilities, Question, QuestionLimits
from penstock.ai.provider import Deciding, Prompting
from penstock.errors import InvalidAnswerError

NUM_TOP = 20
"""The most tokens that the APIs list for one position; the labels must be among them."""
TOP_LIMITS = QuestionLimits(options=NUM_TOP, levels=NUM_TOP, questions=None)
LETTER_LIMITS = QuestionLimits(options=26, levels=26, questions=None)


def judge_prompt(task: Deciding, limit: str) -> Prompting:
    """Return the task of a judge that gives the log-probabilities of one token; ``limit`` names the option."""
    TOP_LIMITS.check(task.questions, "a language model that lists its most likely tokens")
    own = {name: value for name, value in task.options.items() if name != "wire"}
    options = {"temperature": 0, limit: 1, "logprobs": True, "top_logprobs": NUM_TOP, **own}
    return Prompting(task.model, options, task.settings)


def labels_of(question: Question) -> tuple[str, ...]:
    """Return the labels of the options: words for yes and no, else letters."""
    if question.kind == "yes_no":
        return ("Yes", "No")
    return tuple(string.ascii_uppercase[: len(question.options)])


def spellings(question: Question, label: str) -> tuple[str, ...]:
    """Return the texts that a token of a label may have. A small letter may begin any word."""
    words = (label, label.lower(), label.upper()) if question.kind == "yes_no" else (label,)
    return tuple(f"{space}{word}" for word in words for space in ("", " "))


def judged(request: Request, question: Question) -> Request:
    """Return the request that asks a judge one question about a row: the input first, then the question."""
    *before, last = request.turns
    asked = Text(f"\n\n{question_text(question)}")
    if (text := request.text) is not None:
        turns: tuple[Turn, ...] = (UserTurn((Text(text + asked.text),)),)
    elif isinstance(last, UserTurn):
        turns = (*before, UserTurn((*last.parts, asked)))
    else:
        turns = (*request.turns, UserTurn((asked,)))
    return replace(request, turns=turns, output=None, key=None)


def question_text(question: Question) -> str:
    """Return a question as a judge reads it.

    >>> from penstock.ai.decisions.questions import choice
    >>> print(question_text(choice("What is it about?", {"billing": "payments", "bug": None})))
    Question: What is it about?
    A: billing: payments
    B: bug
    Answer with the letter of one option only.
    """
    if question.kind == "yes_no":
        return f"Question: {question.text}\nAnswer with Yes or No only."
    what = "level" if question.kind == "score" else "option"
    lines = [f"{label}: {described_option(question, number)}" for number, label in enumerate(labels_of(question))]
    return "\n".join([f"Question: {question.text}", *lines, f"Answer with the letter of one {what} only."])


def label_probabilities(question: Question, answer: Generation) -> Probabilities:
    """Return the probabilities of the options, by the most likely first tokens of an answer.

    The probabilities of tokens that spell the same label are added up, and scaled so that all labels sum to 1.

    >>> from penstock.ai.decisions.questions import yes_no
    >>> top = [{"token": " Yes", "logprob": -1.0}, {"token": "yes", "logprob": -1.0}, {"token": "No", "logprob": -2.0}]
    >>> label_probabilities(yes_no("Good?"), Generation("Yes", logprobs=[{"top_logprobs": top}]))
    [0.844..., 0.155...]
    """
    if answer.refusal:
        return None
    if not answer.logprobs:
        raise InvalidAnswerError("the model gave no log-probabilities; use a model and a server that list them")
    first = answer.logprobs[0]
    listed: Sequence[Any] = first.get("top_logprobs") or [first]
    by_token: dict[str, float] = {}
    for each in listed:
        by_token[each["token"]] = by_token.get(each["token"], 0.0) + math.exp(each["logprob"])
    shares = [sum(by_token.get(one, 0.0) for one in spellings(question, label)) for label in labels_of(question)]
    if not (total := sum(shares)):
        found = ", ".join(repr(each["token"]) for each in listed[:5])
        raise InvalidAnswerError(
            f"none of the labels {', '.join(labels_of(question))} is among the most likely first tokens ({found}); a "
            "model that reasons first needs reasoning_effort='none'"
        )
    return [share / total for share in shares]
