"""Constrain answers to a JSON schema with llguidance: each next token must allow valid JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.errors import RequestRefusedError, require_extra

COMPILER = {"whitespace_flexible": False, "lenient": True}
"""No spaces between values, since a model might repeat them without end. Keywords that the compiler lacks are ignored
here, and checked when the answer is parsed."""


class Constraints:
    """Grammars for the tokens of one model, each compiled once."""

    def __init__(self, tokenizer: Any, num_tokens: int, end_tokens: Sequence[int]) -> None:
        require_extra("llguidance", "transformers", "return_format with a model on this machine")
        import llguidance
        import llguidance.hf

        self._ends = list(end_tokens)
        end = self._ends[0] if self._ends else None  # llguidance before 1.7 takes no more than one
        try:
            self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, num_tokens, end)
        except ValueError as exc:
            raise RequestRefusedError(f"return_format needs a tokenizer that llguidance can read: {exc}") from exc
        self._num_tokens = num_tokens
        self._executor = llguidance.LLExecutor()
        self._matchers: dict[str, Any] = {}

    def matcher(self, schema: Mapping[str, Any]) -> Any:
        """Return the state of one answer, at its beginning."""
        import llguidance

        text = json.dumps(closed(schema))
        if text not in self._matchers:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(text, COMPILER)
            self._matchers[text] = llguidance.LLMatcher(self._tokenizer, grammar)
        matcher = self._matchers[text].deep_copy()
        if matcher.is_error():
            raise RequestRefusedError(f"The return format cannot be compiled to a grammar: {matcher.get_error()}")
        return matcher

    def allowed(self, matchers: Sequence[Any], device: Any) -> Any:
        """Return the tokens that each answer may continue with, as a tensor of booleans. None stands for all tokens."""
        import torch
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask_par

        bits = allocate_token_bitmask(len(matchers), self._num_tokens)
        pairs = [(matcher, row) for row, matcher in enumerate(matchers) if matcher is not None]
        fill_next_token_bitmask_par(self._executor, pairs, bits)
        words = torch.from_numpy(bits.view(np.int32)).to(device)
        flags = (words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=device)) & 1
        found = flags.reshape(len(matchers), -1)[:, : self._num_tokens].bool()
        if len(self._ends) > 1:
            found[:, self._ends] = found[:, self._ends[:1]]
        return found


class Guide:
    """A logits processor that keeps the answers of a batch valid; ``matchers`` has None for an answer that is free."""

    def __init__(self, constraints: Constraints, matchers: Sequence[Any]) -> None:
        self._constraints, self._matchers = constraints, matchers
        self._has_begun = False

    def __call__(self, ids: Any, logits: Any) -> Any:
        if self._has_begun:
            for matcher, token in zip(self._matchers, ids[:, -1].tolist(), strict=True):
                if matcher is not None and not matcher.is_stopped():
                    matcher.consume_token(token)
        self._has_begun = True
        return logits.masked_fill(~self._constraints.allowed(self._matchers, logits.device), -float("inf"))


def closed(schema: Any) -> Any:
    """Return a JSON schema whose objects allow only the properties that they list.

    Otherwise a model may invent properties until it runs out of tokens, and nothing reads them. Unlike OpenAI's strict
    mode, this keeps optional properties optional, and all limits. An object with ``additionalProperties`` keeps it.

    >>> closed({"type": "array", "items": {"properties": {"n": {"type": "integer"}}}})["items"]
    {'additionalProperties': False, 'properties': {'n': {'type': 'integer'}}}
    """
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {
        key: {name: closed(each) for name, each in part.items()} if key in ("properties", "$defs") else closed(part)
        for key, part in schema.items()
    }
    return {"additionalProperties": False, **found} if "properties" in found else found
