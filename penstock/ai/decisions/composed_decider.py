"""Several calls for the questions about one row: one for each question to a judge, or as many as a service requires."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import replace

import orjson

from penstock.ai.conversation import Generation, Request
from penstock.ai.decisions.labels import judged, label_probabilities
from penstock.ai.decisions.questions import Question, Questions
from penstock.ai.dialogue import total
from penstock.ai.provider import Prompter
from penstock.ai.providers.remote_prompter import ApiPrompter


class ComposedDecider(Prompter):
    """Asks several models at once and joins their answers.

    ``questions`` has a question for each call of a judge, None for a model that answers its own questions.
    """

    def __init__(self, models: Sequence[Prompter], questions: Sequence[Question | None]) -> None:
        self._models, self._questions = tuple(models), tuple(questions)
        first = models[0]
        self.model_name, self.base_url, self.cache = first.model_name, first.base_url, first.cache
        self.resources, self.event_loop, self.num_waiting = first.resources, first.event_loop, first.num_waiting

    @classmethod
    def by_labels(cls, judge: Prompter, questions: Questions) -> ComposedDecider:
        """Return a decider that asks a judge each question."""
        return cls([judge] * len(questions), [question for _, question in questions])

    def load(self) -> None:
        for model in {id(model): model for model in self._models}.values():
            model.load()

    async def close(self) -> None:
        for model in {id(model): model for model in self._models}.values():
            if inspect.isawaitable(closing := model.close()):
                await closing

    async def generate(self, request: Request) -> list[Generation]:
        pairs = zip(self._models, self._questions, strict=True)
        answers = await asyncio.gather(*(self._ask(model, question, request) for model, question in pairs))
        found = [share for pair in zip(answers, self._questions, strict=True) for share in _read(*pair)]
        return [_joined(answers, orjson.dumps(found).decode())]

    async def _ask(self, model: Prompter, question: Question | None, request: Request) -> Generation:
        asked = replace(request, key=None) if question is None else judged(request, question)
        answers: list[Generation] = await model.generate(asked)
        return answers[0]


class RemoteDecider(ComposedDecider):
    """The calls of one remote model, billed at the price of that model."""

    def __init__(self, models: Sequence[ApiPrompter], questions: Sequence[Question | None]) -> None:
        super().__init__(models, questions)
        self._first = models[0]
        self.is_service = None in self._questions

    @property
    def billed_as(self) -> tuple[str, str]:
        return self._first.billed_as

    def check_price(self) -> None:
        self._first.check_price()


def _read(answer: Generation, question: Question | None) -> list[float | None]:
    """Return the probabilities in an answer: for one question if a judge answered, else for all questions."""
    if question is None:
        found: list[float | None] = orjson.loads(answer.text)
        return found
    shares = label_probabilities(question, answer)
    return [None] * len(question.options) if shares is None else list(shares)


def _joined(answers: Sequence[Generation], text: str) -> Generation:
    """Return one answer with the tokens of all."""
    return Generation(
        text,
        answers[0].model,
        total(answers, "input_tokens"),
        total(answers, "output_tokens"),
        total(answers, "cached_tokens"),
        latency_s=max((answer.latency_s or 0.0 for answer in answers), default=None),
    )
