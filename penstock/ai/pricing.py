"""What calls cost: by the prices in ``prices.json``, which has their date, and by those that the user gives.

A file of the same form, named by ``ps.set_config(prices=...)`` or PENSTOCK_PRICES, goes before ours; a call's own
``price=`` goes before both. The model ``*`` of a provider is any that is not named.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from penstock.config import get_config
from penstock.errors import InvalidArgumentError, did_you_mean

BATCH_SHARE = 0.5
PRICES = Path(__file__).with_name("prices.json")
FIELD = "dollars_per_million_tokens"
KINDS = ("input", "output", "cached")
_VERSION = re.compile(r"[-@](\d{4}-?\d{2}-?\d{2}|latest|\d{3})$")  # gpt-4.1-2025-04-14, claude-...-20250929

Price = Mapping[str, float]


def cost_of(
    provider: str,
    model: str | None,
    *,
    input_tokens: int | None,
    output_tokens: int | None,
    cached_tokens: int | None = None,
    price: Price | None = None,
    is_batch: bool = False,
) -> float | None:
    """Return the dollars that a call cost, or None where the model's price is not known.

    Batch APIs cost half (``BATCH_SHARE``), at OpenAI as at Anthropic.

    >>> cost_of("openai", "gpt-5-mini-2025-08-07", input_tokens=1_000_000, output_tokens=0)
    0.25
    """
    price = price or price_of(provider, model)
    if price is None or input_tokens is None:
        return None
    share = BATCH_SHARE if is_batch else 1.0
    return share * millionths(price, input_tokens, output_tokens or 0, cached_tokens or 0) / 1e6


def millionths(price: Price, input_tokens: int, output_tokens: int, cached_tokens: int) -> float:
    """Return what tokens cost, in millionths of a dollar."""
    cached = min(cached_tokens, input_tokens)
    return (
        (input_tokens - cached) * price["input"]
        + cached * price.get("cached", price["input"])
        + output_tokens * price.get("output", 0.0)
    )


def price_of(provider: str, model: str | None) -> Price | None:
    """Return the dollars for a million tokens of a model, whatever date its name ends with."""
    if model is None:
        return None
    own = get_config().prices
    return _found(provider, model, own, _changed_at(own) if own else 0)


def prices_date() -> str:
    """Return the day of which our prices are."""
    return str(_file(str(PRICES), 0)["date"])


def check_price(function: str, price: Any) -> None:
    """Refuse what is no price: a dict of dollars for a million tokens, with ``input`` at least."""
    if price is None:
        return
    if not isinstance(price, Mapping) or "input" not in price:
        raise InvalidArgumentError(
            f"{function}: price={price!r} is no price; give dollars for a million tokens, such as "
            "price={'input': 0.25, 'output': 2.0}, with 'cached' where that is cheaper."
        )
    for kind, dollars in price.items():
        if kind not in KINDS:
            raise InvalidArgumentError(
                f"{function}: price has {kind!r}; it takes {', '.join(KINDS)}.{did_you_mean(str(kind), KINDS)}"
            )
        is_number = isinstance(dollars, int | float) and not isinstance(dollars, bool)
        if not is_number or not 0 <= dollars < math.inf:
            raise InvalidArgumentError(
                f"{function}: price {kind}={dollars!r} is no number of dollars for a million tokens."
            )


def unknown_price(provider: str, model: str) -> InvalidArgumentError:
    """Return the error of a budget for a model whose price nobody gave."""
    return InvalidArgumentError(
        f"budget= needs the price of {model!r} (provider {provider!r}), which the prices of {prices_date()} do not "
        "have. Give dollars for a million tokens in the call, such as price={'input': 0.25, 'output': 2.0}, or in a "
        f'file {{"{FIELD}": {{"{provider}": {{"{model}": {{"input": 0.25, "output": 2.0}}}}}}}} that '
        "ps.set_config(prices='prices.json') or PENSTOCK_PRICES names."
    )


@functools.lru_cache(maxsize=256)
def _found(provider: str, model: str, own: str, changed_at: int) -> Price | None:
    files = [_file(own, changed_at)] if own else []
    for prices in (*files, _file(str(PRICES), 0)):
        known = prices[FIELD].get(provider, {})
        for name in (model, _VERSION.sub("", model), "*"):
            if name in known:
                return dict(known[name])
    return None


@functools.lru_cache(maxsize=8)
def _file(path: str, changed_at: int) -> dict[str, Any]:
    """Return the prices that a file has, once it is seen to have them in the right form."""
    try:
        prices = orjson.loads(Path(path).expanduser().read_bytes())
        for provider, models in prices[FIELD].items():
            for model, price in models.items():
                check_price(f"{path}, {provider}, {model}", price)
    except OSError as exc:
        raise InvalidArgumentError(f"prices={path!r} cannot be read: {exc}") from exc
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as exc:
        raise InvalidArgumentError(
            f"prices={path!r} is no file of prices ({type(exc).__name__}: {exc}); its form is "
            f'{{"{FIELD}": {{"openai": {{"my-model": {{"input": 0.25, "output": 2.0}}}}}}}}.'
        ) from exc
    return dict(prices)


def _changed_at(path: str) -> int:
    try:
        return os.stat(Path(path).expanduser()).st_mtime_ns
    except OSError as exc:
        raise InvalidArgumentError(f"prices={path!r} cannot be read: {exc}") from exc
