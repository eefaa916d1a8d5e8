"""A language model in memory that judges: the scores of the token after each question, without generating."""

from __future__ import annotations

import functools
import itertools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.ai.conversation import Request, Text, UserTurn
from penstock.ai.decisions.labels import judged, labels_of, spellings
from penstock.ai.decisions.questions import Question
from penstock.ai.decisions.shared_prompts import SharedPrompts
from penstock.ai.local.batch_runner import BatchRunner
from penstock.ai.local.checkpoint import Checkpoint, quiet
from penstock.ai.local.generation import Continuation, GenerationRuntime
from penstock.ai.local.packed import PackedDecoder, load_packed_decoder
from penstock.ai.local.text_classifier import softmax
from penstock.ai.provider import NDArray
from penstock.errors import InvalidArgumentError, PenstockError
from penstock.udf.retry import check_call_not_cancelled

ONE_TOKEN = {"max_new_tokens": 1}
Encode = Callable[[str], Sequence[int]]
CPU_TOKENS, GPU_TOKENS = 1_024, 65_536
"""Tokens of a batch: fewer than for an encoder, because scores for a whole vocabulary take more memory than a vector.
"""
SAMPLES = ("a", "a.", "a \n\n", "a!?)", "1", "\u00e9 ", "\u3002", "\U0001f642", '"', "<a>")
"""Texts that end differently. They show whether a tokenizer begins each question with the same tokens."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a row: a list of tokens for each question. The first prompt begins with the ``shared`` tokens; the
    others leave them out. With images, ``inputs`` has the model's inputs for each question.
    """

    tokens: Sequence[Sequence[int]]
    shared: int = 0
    inputs: Sequence[Any] = ()

    @property
    def lengths(self) -> list[int]:
        first, *others = map(len, self.tokens)
        return [first, *(self.shared + length for length in others)]


class Judge(GenerationRuntime):
    """A language model and the questions that it answers about each request."""

    def __init__(self, checkpoint: Checkpoint, questions: Sequence[Question]) -> None:
        self._packed = load_packed_decoder(checkpoint)
        super().__init__(checkpoint, None if self._packed is None else self._packed.model)
        self._questions = questions
        self._labels = LabelScores(questions, self.tokenizer, self.device)
        self._endings = self._find_endings() if self._packed is not None else None
        self._runner = BatchRunner(self.device, cpu_tokens=CPU_TOKENS, gpu_tokens=GPU_TOKENS)
        self._generating = threading.Lock()

    # --- prompts ---

    def prompts(self, requests: Sequence[Request]) -> list[Prompts | PenstockError]:
        """Return the prompts of each request, or its error."""
        found: list[Prompts | PenstockError | None] = [None] * len(requests)
        texts: dict[int, str] = {}  # of the first question
        for number, request in enumerate(requests):
            try:
                if self.has_images(request):
                    found[number] = self._prompts_with_images(request)
                else:
                    texts[number] = self.text(judged(request, self._questions[0]))
            except PenstockError as exc:
                found[number] = exc
        if self._endings is not None:
            first, *others = self._endings
            for number, tokens in zip(texts, self.tokens(list(texts.values())), strict=True):
                if tokens[-len(first) :] == first:
                    found[number] = Prompts([tokens, *others], len(tokens) - len(first))
        whole = [number for number in texts if found[number] is None]
        for number, prompts in zip(whole, self._whole([requests[number] for number in whole]), strict=True):
            found[number] = Prompts(prompts)
        return [each for each in found if each is not None]

    def _whole(self, requests: Sequence[Request]) -> list[list[list[int]]]:
        """Return the tokens of each question of each request."""
        texts = [self.text(judged(request, question)) for request in requests for question in self._questions]
        tokens = self.tokens(texts)
        width = len(self._questions)
        return [tokens[start : start + width] for start in range(0, len(tokens), width)]

    def _find_endings(self) -> list[list[int]] | None:
        """Return the tokens in which the prompts of a row differ, the same for all rows. Return None if a tokenizer
        joins characters of a text and of a question.
        """
        rows = self._whole([Request((UserTurn((Text(text),)),)) for text in SAMPLES])
        num_shared = min(len_of_common_prefix(rows[0]), min(map(len, rows[0])) - 1)
        endings = [tokens[num_shared:] for tokens in rows[0]]
        for row in rows:
            beginning = row[0][: len(row[0]) - len(endings[0])]
            if row != [beginning + ending for ending in endings]:
                return None
        return endings

    def _prompts_with_images(self, request: Request) -> Prompts:
        rows = [self.with_images(judged(request, question), ONE_TOKEN) for question in self._questions]
        return Prompts([row.prompt for row in rows], inputs=[row.inputs for row in rows])

    # --- answers ---

    def probabilities(self, rows: Sequence[Prompts]) -> NDArray:
        """Return the probabilities of the options of all questions, in order, for each row."""
        if not rows:
            return np.empty((0, 0))
        scores = self._padded_scores(rows) if self._packed is None else self._packed_scores(rows, self._packed)
        parts = [
            softmax(scores[:, number, : len(question.options)].astype(np.float64))
            for number, question in enumerate(self._questions)
        ]
        return np.concatenate(parts, axis=1)

    def _packed_scores(self, rows: Sequence[Prompts], packed: PackedDecoder) -> NDArray:
        import torch

        width = len(self._questions)
        texts = SharedPrompts([row.tokens for row in rows], [row.shared for row in rows])
        on_device = texts.on(self.device)

        def forward(numbers: NDArray) -> Any:
            logits = packed.next_logits(on_device.packed(numbers))
            asked = torch.arange(width, device=self.device).repeat_interleave(len(numbers))
            return self._labels.of(logits, asked).unflatten(0, (width, -1)).transpose(0, 1).flatten(1)

        return self._runner.run(texts.lengths, forward).reshape(len(rows), width, -1)

    def _padded_scores(self, rows: Sequence[Prompts]) -> NDArray:
        scores = np.empty((len(rows), len(self._questions), self._labels.num_labels), np.float32)
        places = {}
        for number, question in np.ndindex(scores.shape[:2]):
            row = rows[number]
            inputs = row.inputs[question] if row.inputs else None
            places[Continuation(list(row.tokens[question]), ONE_TOKEN, inputs=inputs)] = number, question
        for batch in self.batches(list(places)):
            numbers, questions = zip(*(places[row] for row in batch), strict=True)
            scores[numbers, questions] = self._generated_scores(self.inputs(batch), questions)
        return scores

    def _generated_scores(self, inputs: Any, questions: Sequence[int]) -> NDArray:
        import torch

        check_call_not_cancelled()
        with torch.inference_mode(), self._generating, quiet():
            found = self.model.generate(
                **inputs, max_new_tokens=1, do_sample=False, output_logits=True, return_dict_in_generate=True
            )
            asked = torch.tensor(questions, device=self.device)
            return self._labels.of(found.logits[0], asked).cpu().numpy()  # type: ignore[no-any-return]


def len_of_common_prefix(lists: Sequence[Sequence[int]]) -> int:
    """Return the length of the beginning that all lists share.

    >>> len_of_common_prefix([[1, 2, 3], [1, 2, 4, 5]])
    2
    """
    columns = (len(set(items)) == 1 for items in zip(*lists, strict=False))
    return sum(itertools.takewhile(bool, columns))


class LabelScores:
    """The labels of questions as tokens on a device."""

    def __init__(self, questions: Sequence[Question], tokenizer: Any, device: Any) -> None:
        import torch

        encode = functools.partial(tokenizer.encode, add_special_tokens=False)
        tokens = [label_tokens(question, encode) for question in questions]
        self.num_labels = max(map(len, tokens))
        num_tokens = max(len(own) for labels in tokens for own in labels)
        table = np.full((len(tokens), self.num_labels, num_tokens), -1)
        for number, labels in enumerate(tokens):
            for label, own in enumerate(labels):
                table[number, label, : len(own)] = own
        self._tokens = torch.from_numpy(table).to(device)

    def of(self, logits: Any, questions: Any) -> Any:
        """Return the score of each label, given the logits of the next token and the number of each question."""
        tokens = self._tokens[questions]
        found = logits.gather(1, tokens.clamp(min=0).flatten(1)).float().view(tokens.shape)
        return found.masked_fill(tokens < 0, -float("inf")).logsumexp(2)


def label_tokens(question: Question, encode: Encode) -> tuple[tuple[int, ...], ...]:
    """Return the tokens with which each label of a question may begin. Raise an error if two labels share all."""
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
