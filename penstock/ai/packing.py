"""Answers as they are kept: what was generated and what it took, without all that servers wrap around it.

The text is as the model wrote it, so another form of answer, or another parser, reads what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from penstock.ai.conversation import Generation


def packed(answers: Sequence[Generation]) -> bytes | None:
    """Return answers as they are kept: a JSON array. None where one calls tools: that is kept as the server told it."""
    for answer in answers:
        if answer.tool_calls:
            return None
    return orjson.dumps(
        [
            (a.text, a.model, a.input_tokens, a.output_tokens, a.cached_tokens, a.finish_reason, a.reasoning, a.refusal)
            for a in answers
        ]
    )


def unpacked(kept: Sequence[Sequence[Any]]) -> list[Generation]:
    """Return what ``packed`` was given, from its JSON.

    >>> unpacked(orjson.loads(packed([Generation("hi", input_tokens=3)])))[0].input_tokens
    3
    """
    return [
        Generation(text, model, given, made, cached, reason, (), reasoning, refusal)
        for text, model, given, made, cached, reason, reasoning, refusal in kept
    ]
