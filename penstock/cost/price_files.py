"""JSON files of model prices: dollars for a million tokens, by provider and model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import InvalidArgumentError, did_you_mean

FIELD = "dollars_per_million_tokens"
KINDS = ("input", "output", "cached", "cache_write", "cache_write_1h")


def read_prices(path: str) -> dict[str, Any]:
    """Read and check a file of prices."""
    import orjson

    try:
        prices = orjson.loads(Path(path).expanduser().read_bytes())
        for provider, models in prices[FIELD].items():
            for model, price in models.items():
                check_price(f"prices={path!r}, {provider}, {model}", {} if price is None else price)
    except OSError as exc:
        raise InvalidArgumentError(f"prices={path!r} cannot be read: {exc}") from exc
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as exc:
        raise InvalidArgumentError(
            f"prices={path!r} is not a file of prices ({type(exc).__name__}: {exc}); write "
            f'{{"{FIELD}": {{"openai": {{"my-model": {{"input": 0.25, "output": 2.0}}}}}}}}.'
        ) from exc
    return dict(prices)


def check_price(place: str, price: Any) -> None:
    """Raise unless ``price`` is None or a dict of dollars for a million tokens, with ``input`` at least."""
    if price is None:
        return
    if not isinstance(price, Mapping) or "input" not in price:
        raise InvalidArgumentError(
            f"{place}: price={price!r} is not a price; give dollars for a million tokens, such as "
            "price={'input': 0.25, 'output': 2.0}, with 'cached' where that is cheaper."
        )
    for kind, dollars in price.items():
        if kind not in KINDS:
            raise InvalidArgumentError(
                f"{place}: price has {kind!r}; the keys are {', '.join(KINDS)}.{did_you_mean(str(kind), KINDS)}"
            )
        is_number = isinstance(dollars, int | float) and not isinstance(dollars, bool)
        if not is_number or not 0 <= dollars < math.inf:
            raise InvalidArgumentError(
                f"{place}: price {kind}={dollars!r} is not a number of dollars for a million tokens."
            )
