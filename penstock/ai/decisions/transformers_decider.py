"""A judge on this machine: the scores of the next token after each question, without generating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from penstock.ai.conversation import Generation, Request
from penstock.ai.decisions.labels import LETTER_LIMITS
from penstock.ai.decisions.transformers_judge import Judge, Prompts, label_tokens, quick_encode
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.generation import TransformersPrompter
from penstock.ai.provider import Deciding, Prompting
from penstock.errors import PenstockError


class TransformersDecider(TransformersPrompter):
    """Answers decisions with a causal language model, or one that takes images too."""

    def __init__(self, checkpoint: Checkpoint, task: Deciding) -> None:
        LETTER_LIMITS.check(task.questions, "a model on this machine")
        self._questions = tuple(question for _, question in task.questions)
        super().__init__(checkpoint, Prompting(task.model, task.options, task.settings))
        self._function = task.function
        if (encode := quick_encode(checkpoint)) is not None:
            for question in self._questions:  # an error now, instead of in the worker
                label_tokens(question, encode)

    def _build(self) -> Judge:
        return Judge(self._checkpoint, self._questions)

    def identity(self) -> dict[str, Any]:
        asked = [(each.kind, each.text, each.options, each.descriptions) for each in self._questions]
        return {**super().identity(), "questions": asked}

    def is_certain(self, request: Request) -> bool:
        return True

    def generate(self, request: Sequence[Request]) -> list[list[Generation] | Exception]:
        """Return the answer to each request, or its error. All questions of all requests run together."""
        judge = self.runtime
        assert isinstance(judge, Judge)
        rows = [self._checked(row) for row in judge.prompts(request)]
        asked = [row for row in rows if isinstance(row, Prompts)]
        answers = iter(judge.probabilities(asked).tolist())
        return [[self._answer(next(answers), row)] if isinstance(row, Prompts) else row for row in rows]

    def _checked(self, row: Prompts | PenstockError) -> Prompts | PenstockError:
        """Return the prompts of a row, or an error if the model has no room for one of them."""
        try:
            if isinstance(row, Prompts):
                self._check_length(max(row.lengths), 1)
            return row
        except PenstockError as exc:
            return exc

    def _answer(self, probabilities: list[float], row: Prompts) -> Generation:
        return Generation(
            orjson.dumps(probabilities).decode(),
            model=self._checkpoint.name,
            input_tokens=sum(row.lengths),
            output_tokens=0,
        )
