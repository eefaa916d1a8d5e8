"""Continue many token sequences at once with a causal language model.

Each sequence of a batch has a slot. All slots write their next token into the same column of the cache, and the columns
before the beginning of a sequence are masked. A finished slot is refilled while the others go on: the new prompt is
computed on its own, and its keys and values are copied into the slot.

    columns      0 1 2 3 4 5 6 7
    slot 0       . a b c d e f g      starts at column 1
    slot 1       x x x x . p q r      the old answer x has ended; the new prompt starts at column 5
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.ai.local.batch_runner import batches_by_length
from penstock.ai.local.constraint import Constraints
from penstock.ai.local.sampling import Sampling, TokenChooser
from penstock.udf.retry import check_call_not_cancelled

if TYPE_CHECKING:
    from penstock.ai.local.slot_cache import SlotCache

ROWS_AT_ONCE = {"cpu": 32, "cuda": 256}
PREFILL_TOKENS = {"cpu": 2048, "cuda": 32768}
"""Tokens of prompts that are computed at once."""
FREE_SHARE = 1 / 8
"""Slots that wait to be refilled together: a prompt alone takes nearly as long as several."""


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

    def run_alone(self, row: Continuation, inputs: Mapping[str, Any]) -> None:
        """Continue one row by ``generate`` of transformers, which knows the caches and inputs of every model."""
        import torch

        def choose(ids: Any, logits: Any) -> Any:
            check_call_not_cancelled()
            (token,) = self.advance([row], logits)
            return torch.full_like(logits, -float("inf")).index_fill_(1, torch.tensor([token], device=ids.device), 0)

        def is_done(ids: Any, logits: Any, **_: Any) -> Any:
            return torch.full((1,), row.finish_reason is not None, device=ids.device)

        with torch.inference_mode():
            self.model.generate(
                **inputs, max_new_tokens=row.sampling.max_new, logits_processor=[choose], stopping_criteria=[is_done]
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
            # A character has at most four tokens, so a stop text ends within the last ones.
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


class SlotDecoder(Decoder):
    """Continues sequences in slots that are refilled."""

    def __init__(self, model: Any, tokenizer: Any, defaults: Any, max_cached_tokens: int) -> None:
        super().__init__(model, tokenizer, defaults)
        self.max_cached_tokens = max_cached_tokens
        self._max_slots = ROWS_AT_ONCE["cpu" if model.device.type == "cpu" else "cuda"]
        known = inspect.signature(model.forward).parameters
        self._takes_positions, self._takes_last_only = "position_ids" in known, "logits_to_keep" in known
        self._device = model.device
        self._prefill_tokens = PREFILL_TOKENS["cpu" if self._device.type == "cpu" else "cuda"]

    def run(self, rows: Iterable[Continuation]) -> None:
        """Continue all rows to their ends."""
        import torch

        from penstock.ai.local.slot_cache import SlotCache

        waiting = sorted(rows, key=lambda row: row.max_length)  # taken from the end: lack of memory shows at once
        cache, running = SlotCache(), dict[int, Continuation]()
        with torch.inference_mode():
            while waiting or running:
                check_call_not_cancelled()
                if waiting:
                    self._refill(cache, running, waiting)
                elif len(running) <= len(cache.starts) // 2:
                    cache.keep(list(running))
                    running = dict(enumerate(running.values()))
                if running:
                    self._step(cache, running)

    def _refill(self, cache: SlotCache, running: dict[int, Continuation], waiting: list[Continuation]) -> None:
        """Move rows from ``waiting`` to the free slots, if there are enough of these."""
        longest = max(row.max_length for row in (*running.values(), waiting[-1]))
        num_slots = max(1, min(self._max_slots, self.max_cached_tokens // longest))
        num_free = num_slots - len(running)
        if num_free < max(1, min(len(waiting), int(num_slots * FREE_SHARE))):
            return
        rows = [waiting.pop() for _ in range(min(num_free, len(waiting)))]
        lengths = np.array([len(row.prompt) for row in rows])
        for numbers in batches_by_length(lengths, self._prefill_tokens):
            self._prefill(cache, running, [rows[number] for number in numbers])

    def _prefill(self, cache: SlotCache, running: dict[int, Continuation], rows: list[Continuation]) -> None:
        """Compute prompts, and begin their answers."""
        import torch
        import transformers

        lengths = [len(row.prompt) for row in rows]
        width = max(lengths)
        ids = torch.tensor([[0] * (width - len(row.prompt)) + row.prompt for row in rows], device=self._device)
        starts = torch.tensor([width - length for length in lengths], device=self._device)
        computed = transformers.DynamicCache()
        self.advance(rows, self._forward(ids, starts, width, computed))
        running |= zip(cache.add(lengths, computed), rows, strict=True)
        self._free_finished(cache, running)

    def _step(self, cache: SlotCache, running: dict[int, Continuation]) -> None:
        """Add a token to each answer."""
        import torch

        num_slots, used = len(cache.starts), sorted(running)
        last = [[running[slot].tokens[-1] if slot in running else 0] for slot in range(num_slots)]
        starts, width = cache.begin_step()
        logits = self._forward(torch.tensor(last, device=self._device), starts, width, cache.cache)
        self.advance([running[slot] for slot in used], logits if len(used) == num_slots else logits[used])
        self._free_finished(cache, running)

    def _free_finished(self, cache: SlotCache, running: dict[int, Continuation]) -> None:
        for slot in [slot for slot, row in running.items() if row.finish_reason is not None]:
            del running[slot]
            cache.starts[slot] = None

    def _forward(self, ids: Any, starts: Any, width: int, cache: Any) -> Any:
        """Return the logits for the last token of each row. ``starts`` are the columns in which the rows begin."""
        import torch

        mask = torch.arange(width, device=self._device) >= starts[:, None]
        options: dict[str, Any] = {}
        if self._takes_positions:
            options["position_ids"] = (mask.cumsum(-1) - 1).clamp_(min=0)[:, -ids.shape[1] :]
        if self._takes_last_only:
            options["logits_to_keep"] = 1
        out = self.model(ids, attention_mask=mask.long(), past_key_values=cache, use_cache=True, **options)
        return out.logits[:, -1]


def end_tokens(config: Any) -> frozenset[int]:
    """Return the tokens that end an answer, by a ``generation_config``."""
    ends = config.eos_token_id
    return frozenset([ends] if isinstance(ends, int) else ends or ())
