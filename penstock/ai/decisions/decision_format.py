"""The answer of one call: a short JSON text in the ledger, a list of probabilities in the column of the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from penstock.ai.decisions.answer_columns import PROBABILITIES
from penstock.ai.decisions.questions import Probabilities, Questions
from penstock.ai.structured.return_formats import OutputFormat


@dataclass(frozen=True)
class DecisionFormat(OutputFormat):
    """The probability of each option, question after question; null for all options of a refused question."""

    __hash__ = OutputFormat.__hash__

    def parse(self, text: str) -> list[float | None]:
        found: list[float | None] = orjson.loads(text)
        return found


DECISIONS = DecisionFormat("decisions", PROBABILITIES, {})


def answer_text(questions: Questions, answers: Sequence[Probabilities]) -> str:
    """Return the text of an answer, given the probabilities for each question.

    >>> from penstock.ai.decisions.questions import yes_no
    >>> answer_text((("a", yes_no("Old?")), ("b", yes_no("New?"))), [[0.25, 0.75], None])
    '[0.25,0.75,null,null]'
    """
    found: list[float | None] = []
    for (_, question), given in zip(questions, answers, strict=True):
        found += [None] * len(question.options) if given is None else given
    return orjson.dumps(found).decode()
