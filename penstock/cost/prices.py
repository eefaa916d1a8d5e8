"""Prices of models in dollars for a million tokens, from ``prices.json`` and from the user.

A file of the same structure, named by ``ps.set_config(prices=...)`` or PENSTOCK_PRICES, takes precedence over this
list; the ``price=`` of a call takes precedence over both. The model ``*`` of a provider stands for all models that are
not named.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.config import PRICES_FIELD, get_config, read_prices
from penstock.cost.usage import Usage
from penstock.errors import InvalidArgumentError

BATCH_SHARE = 0.5
"""The price of batch calls, as a share of the usual price; the same at OpenAI and Anthropic."""

PRICES = Path(__file__).with_name("prices.json")
_VERSION = re.compile(r"[-@](\d{4}-?\d{2}-?\d{2}|latest|\d{3})$")  # gpt-4.1-2025-04-14, claude-...-20250929

Price = Mapping[str, float]


def cost_of(
    provider: str,
    model: str | None,
    usage: Usage | None,
    *,
    price: Price | None = None,
    is_batch: bool = False,
) -> float | None:
    """Return the cost of a call in dollars, or None if its tokens or the price of the model are not known.

    >>> cost_of("openai", "gpt-5-mini-2025-08-07", Usage(1_000_000, 0))
    0.25
    """
    price = price or price_of(provider, model)
    if price is None or usage is None:
        return None
    return (BATCH_SHARE if is_batch else 1.0) * millionths(price, *usage) / 1e6


def millionths(
    price: Price, input_tokens: int, output_tokens: int, cached_tokens: int, written: int = 0, written_1h: int = 0
) -> float:
    """Return the cost of a ``Usage`` in millionths of a dollar.

    >>> millionths({"input": 1.0, "cached": 0.1, "cache_write": 1.25, "cache_write_1h": 2.0}, 100, 0, 10, 20, 30)
    126.0
    """
    cached = min(cached_tokens, input_tokens)
    cost = (
        (input_tokens - cached) * price["input"]
        + cached * price.get("cached", price["input"])
        + output_tokens * price.get("output", 0.0)
    )
    if written or written_1h:
        cost += written * (price.get("cache_write", price["input"]) - price["input"])
        cost += written_1h * (price.get("cache_write_1h", price["input"]) - price["input"])
    return cost


def price_of(provider: str, model: str | None) -> Price | None:
    """Return the price of a model, ignoring a date at the end of its name; None if it is not known."""
    if model is None:
        return None
    own = get_config().prices
    return _found(provider, model, own, _changed_at(own) if own else 0)


def prices_date() -> str:
    """Return the date of ``prices.json``."""
    return str(_file(str(PRICES), 0)["date"])


def unknown_price(provider: str, model: str) -> InvalidArgumentError:
    """Return the error for a budget with a model whose price is not known."""
    return InvalidArgumentError(
        f"budget= needs the price of {model!r} (provider {provider!r}), which the prices of {prices_date()} do not "
        "have. Give dollars for a million tokens in the call, such as price={'input': 0.25, 'output': 2.0}, or in a "
        f'file {{"{PRICES_FIELD}": {{"{provider}": {{"{model}": {{"input": 0.25, "output": 2.0}}}}}}}} that '
        "ps.set_config(prices='prices.json') or PENSTOCK_PRICES names."
    )


@functools.lru_cache(maxsize=256)
def _found(provider: str, model: str, own: str, changed_at: int) -> Price | None:
    files = [_file(own, changed_at)] if own else []
    for prices in (*files, _file(str(PRICES), 0)):
        known = prices[PRICES_FIELD].get(provider, {})
        for name in (model, _VERSION.sub("", model), "*"):
            if name in known:
                return dict(known[name])
    return None


@functools.lru_cache(maxsize=8)
def _file(path: str, changed_at: int) -> dict[str, Any]:
    """Return the prices of a file as of its last change."""
    return read_prices(path)


def _changed_at(path: str) -> int:
    try:
        return os.stat(Path(path).expanduser()).st_mtime_ns
    except OSError as exc:
        raise InvalidArgumentError(f"prices={path!r} cannot be read: {exc}") from exc
