"""What calls cost, by the prices in ``prices.json``, which has their date."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import orjson

BATCH_SHARE = 0.5
PRICES = Path(__file__).with_name("prices.json")
_VERSION = re.compile(r"[-@](\d{4}-?\d{2}-?\d{2}|latest|\d{3})$")  # gpt-4.1-2025-04-14, claude-...-20250929


def cost_of(
    provider: str,
    model: str | None,
    *,
    input_tokens: int | None,
    output_tokens: int | None,
    cached_tokens: int | None = None,
    is_batch: bool = False,
) -> float | None:
    """Return the dollars that a call cost, or None where the model's price is not known.

    Batch APIs cost half (``BATCH_SHARE``), at OpenAI as at Anthropic.

    >>> cost_of("openai", "gpt-5-mini-2025-08-07", input_tokens=1_000_000, output_tokens=0)
    0.25
    """
    price = price_of(provider, model)
    if price is None or input_tokens is None:
        return None
    cached = cached_tokens or 0
    dollars = (
        (input_tokens - cached) * price["input"]
        + cached * price.get("cached", price["input"])
        + (output_tokens or 0) * price.get("output", 0.0)
    )
    return float(dollars) / 1e6 * (BATCH_SHARE if is_batch else 1.0)


@functools.lru_cache(maxsize=256)
def price_of(provider: str, model: str | None) -> dict[str, float] | None:
    """Return the dollars for a million tokens of a model, whatever date its name ends with."""
    if model is None:
        return None
    known = _prices().get(provider, {})
    found = known.get(model) or known.get(_VERSION.sub("", model))
    return dict(found) if found else None


@functools.cache
def _prices() -> dict[str, Any]:
    prices: dict[str, Any] = orjson.loads(PRICES.read_bytes())["dollars_per_million_tokens"]
    return prices
