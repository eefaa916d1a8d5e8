"""A judge on this machine: the scores of the next token after each question, without generating."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from penstock.ai.conversation import Generation, Request
from penstock.ai.decisions.labels import LETTER_LIMITS, judged, labels_of, spellings
from penstock.ai.decisions.questions import Question
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.decoding import Continuation
from penstock.ai.local.generation import TransformersPrompter
from penstock.ai.local.sampling import Sampling
from penstock.ai.provider import Deciding, Prompting
from penstock.errors import InvalidArgumentError, PenstockError
from penstock.udf.retry import check_call_not_cancelled

ONE_TOKEN = Sampling(1, (), ())
Encode = Callable[[str], Sequence[int]]


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

    def identity(self) -> dict[str, Any]:
        asked = [(each.kind, each.text, each.options, each.descriptions) for each in self._questions]
        return {**super().identity(), "questions": asked}

    def is_certain(self, request: Request) -> bool:
        return True

    def generate(self, request: Sequence[Request]) -> list[list[Generation] | Exception]:
        """Return the answer to each request, or its error. All questions of all requests run together."""
        rows: list[list[_Asked] | Exception] = []
        for one in request:
            try:
                rows.append([self._asked(one, question) for question in self._questions])
            except PenstockError as exc:
                rows.append(exc)
        together = {id(each.row): each for row in rows if isinstance(row, list) for each in row if each.inputs is None}
        for batch in self.runtime.batches([each.row for each in together.values()]):
            self._score([together[id(row)] for row in batch], self.runtime.inputs(batch))
        for row in rows:
            for each in row if isinstance(row, list) else ():
                if each.inputs is not None:
                    self._score([each], each.inputs)
        return [row if isinstance(row, Exception) else [self._answer(row)] for row in rows]

    def _asked(self, request: Request, question: Question) -> _Asked:
        own = judged(request, question)
        row = Continuation(self._tokens(own, 1), ONE_TOKEN)
        return _Asked(question, row, self._inputs_with_images(own, row) if self._has_images(own) else None)

    def _score(self, asked: Sequence[_Asked], inputs: Any) -> None:
        """Set the probabilities of the options of each question, from the scores of the next token."""
        import torch

        check_call_not_cancelled()
        with torch.inference_mode():
            found = self.runtime.model.generate(
                **inputs, max_new_tokens=1, output_logits=True, return_dict_in_generate=True
            )
            logprobs = found.logits[0].float().log_softmax(-1)
        for each, row in zip(asked, logprobs, strict=True):
            tokens = self._label_tokens(each.question)
            shares = torch.stack([row[list(own)].logsumexp(0) for own in tokens]).double().softmax(0)
            each.probabilities = shares.tolist()

    def _answer(self, row: Sequence[_Asked]) -> Generation:
        return Generation(
            orjson.dumps([share for each in row for share in each.probabilities]).decode(),
            model=self._checkpoint.name,
            input_tokens=sum(len(each.row.prompt) for each in row),
            output_tokens=0,
        )

    def _label_tokens(self, question: Question) -> tuple[tuple[int, ...], ...]:
        tokenizer = self.runtime.tokenizer
        return label_tokens(question, functools.partial(tokenizer.encode, add_special_tokens=False))


class _Asked:
    """A question about a row, with its prompt, and the inputs of the model if it has images."""

    __slots__ = ("inputs", "probabilities", "question", "row")

    def __init__(self, question: Question, row: Continuation, inputs: Any) -> None:
        self.question, self.row, self.inputs = question, row, inputs
        self.probabilities: list[float] = []


def label_tokens(question: Question, encode: Encode) -> tuple[tuple[int, ...], ...]:
    """Return the first tokens that each label of a question may have. Raise an error if labels share all of theirs."""
    labels = labels_of(question)
    firsts = [{ids[0] for text in spellings(question, label) if (ids := encode(text))} for label in labels]
    owners = {token: sum(token in each for each in firsts) for token in set[int]().union(*firsts)}
    own = tuple(tuple(sorted(token for token in each if owners[token] == 1)) for each in firsts)
    for label, tokens in zip(labels, own, strict=True):
        if not tokens:
            raise InvalidArgumentError(
                f"decide: this model's tokenizer cannot tell answer {label!r} to {question.text!r} from the others by "
                "its first token; use another model."
            )
    return own


def quick_encode(checkpoint: Checkpoint) -> Encode | None:
    """Load a model's tokenizer without the package transformers; return None if it has no ``tokenizer.json``."""
    if (content := checkpoint.read_json("tokenizer.json")) is None:
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(json.dumps(content))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
