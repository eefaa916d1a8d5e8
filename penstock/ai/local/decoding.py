"""Continue token sequences with a causal language model, a batch at a time, by ``generate`` of transformers.

``generate`` runs the model; the tokens are chosen here, because each row has its own sampling options, grammar and end.
A batch runs until its longest answer is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.ai.local.constraint import Constraints
from penstock.ai.local.sampling import Sampling, TokenChooser
from penstock.udf.retry import check_call_not_cancelled


@dataclass(eq=False)
class Continuation:
    """A prompt and the answer to it so far."""

    prompt: list[int]
    sampling: Sampling
    matcher: Any = None  # of the return format
    generator: Any = None  # of random numbers, if the user sets a seed
    num_logprobs: int | None = None  # most likely tokens to record at each position; None records nothing
    tokens: list[int] = field(default_factory=list)
    logprobs: list[tuple[float, list[tuple[int, float]]]] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def max_length(self) -> int:
        return len(self.prompt) + self.sampling.max_new


class Decoder:
    """Chooses the tokens of answers and says when an answer ends. ``defaults`` are the options of the model's files."""

    def __init__(self, model: Any, tokenizer: Any, defaults: Any, constraints: Constraints | None = None) -> None:
        self.model, self.tokenizer, self.constraints = model, tokenizer, constraints
        self.end_tokens = end_tokens(defaults)
        self.chooser = TokenChooser(defaults)

    def run(self, rows: Sequence[Continuation], inputs: Mapping[str, Any]) -> None:
        """Continue rows to their ends. ``inputs`` are what the model takes for them, padded on the left."""
        import torch

        def choose(ids: Any, logits: Any) -> Any:
            check_call_not_cancelled()
            running = [number for number, row in enumerate(rows) if row.finish_reason is None]
            tokens = torch.full((len(rows), 1), self.tokenizer.pad_token_id)
            tokens[running, 0] = torch.tensor(
                self.advance(
                    [rows[number] for number in running], logits if len(running) == len(rows) else logits[running]
                )
            )
            return torch.full_like(logits, -float("inf")).scatter_(1, tokens.to(logits.device), 0)

        def are_done(ids: Any, logits: Any, **_: Any) -> Any:
            return torch.tensor([row.finish_reason is not None for row in rows], device=ids.device)

        with torch.inference_mode():
            self.model.generate(
                **inputs,
                max_new_tokens=max(row.sampling.max_new for row in rows),
                logits_processor=[choose],
                stopping_criteria=[are_done],
            )

    def advance(self, rows: Sequence[Continuation], logits: Any) -> list[int]:
        """Add the next token to each row, given its logits, and return the tokens."""
        logits = logits.float()
        scores = logits
        if any(row.matcher is not None for row in rows):
            assert self.constraints is not None
            allowed = self.constraints.allowed([row.matcher for row in rows], logits.device)
            scores = logits.masked_fill(~allowed, -float("inf"))
        chosen = self.chooser.choose(
            scores,
            [row.sampling for row in rows],
            [row.generator for row in rows],
            lambda number: rows[number].prompt + rows[number].tokens,
        )
        self._note_logprobs(rows, logits, chosen)
        tokens: list[int] = chosen.tolist()
        for row, token in zip(rows, tokens, strict=True):
            row.tokens.append(token)
            row.finish_reason = self._finish_reason(row, token)
        return tokens

    def _finish_reason(self, row: Continuation, token: int) -> str | None:
        if token in self.end_tokens:
            return "stop"
        if row.matcher is not None and (not row.matcher.consume_token(token) or row.matcher.is_stopped()):
            return "stop"
        if row.sampling.stop:
            # A character has at most four tokens, so a stop text ends within the last few tokens.
            longest = max(map(len, row.sampling.stop))
            text = self.tokenizer.decode(row.tokens[-4 * longest - 4 :], skip_special_tokens=True)
            if any(stop in text for stop in row.sampling.stop):
                return "stop"
        return "length" if len(row.tokens) >= row.sampling.max_new else None

    def _note_logprobs(self, rows: Sequence[Continuation], logits: Any, chosen: Any) -> None:
        count = rows[0].num_logprobs
        if count is None:
            return
        logprobs = logits.log_softmax(-1)
        own = logprobs.gather(1, chosen[:, None])[:, 0].tolist()
        top = logprobs.topk(count, -1)
        for row, mine, values, ids in zip(rows, own, top.values.tolist(), top.indices.tolist(), strict=True):
            row.logprobs.append((mine, list(zip(ids, values, strict=True))))


def end_tokens(config: Any) -> frozenset[int]:
    """Return the tokens that end an answer, by a ``generation_config``."""
    ends = config.eos_token_id
    return frozenset([ends] if isinstance(ends, int) else ends or ())
