"""The answers of one call: a short JSON text in the ledger, a struct in the column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from penstock.ai.decisions.questions import Probabilities, Questions
from penstock.ai.structured.return_formats import OutputFormat
from penstock.errors import InvalidAnswerError
from penstock.types import DataType

Groups = tuple[tuple[str, Questions], ...]
"""The questions of each call of ``decide`` that one request answers, by a name for the call; a single one has none."""


@dataclass(frozen=True)
class DecisionFormat(OutputFormat):
    """The format of the answers to ``asked``: the probabilities of the options of each question, null if refused."""

    groups: Groups = ()
    asked: Questions = ()

    __hash__ = OutputFormat.__hash__

    @staticmethod
    def of_groups(groups: Groups) -> DecisionFormat:
        structs = {name: DataType.struct({key: each.dtype for key, each in group}) for name, group in groups}
        dtype = DataType.struct(structs) if len(groups) > 1 else structs[groups[0][0]]
        return DecisionFormat("decisions", dtype, {}, groups=groups, asked=distinct(groups))

    def parse(self, text: str) -> dict[str, Any]:
        found = orjson.loads(text)
        if len(found) != len(self.asked):
            raise InvalidAnswerError(f"the model answered {len(found)} of {len(self.asked)} questions")
        if len(self.groups) == 1:
            return {name: each.answer(own) for (name, each), own in zip(self.asked, found, strict=True)}
        by_question = {each: own for (_, each), own in zip(self.asked, found, strict=True)}
        return {name: {key: each.answer(by_question[each]) for key, each in group} for name, group in self.groups}


def distinct(groups: Groups) -> Questions:
    """Return each question of several calls once, under a name that no other one has.

    >>> from penstock.ai.decisions.questions import yes_no
    >>> [name for name, _ in distinct((("a", (("q", yes_no("Old?")),)), ("b", (("q", yes_no("New?")),))))]
    ['q', 'q_2']
    """
    if len(groups) == 1:
        return groups[0][1]
    names = {question: name for _, group in reversed(groups) for name, question in reversed(group)}
    taken, found = set[str](), []
    for question in dict.fromkeys(question for _, group in groups for _, question in group):
        name, number = names[question], 1
        while name in taken:
            number += 1
            name = f"{names[question]}_{number}"
        taken.add(name)
        found.append((name, question))
    return tuple(found)


def answer_text(answers: Sequence[Probabilities]) -> str:
    """Return the text of an answer, given the probabilities for each question."""
    return orjson.dumps(answers).decode()
