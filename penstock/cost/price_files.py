"""Files of prices of models: dollars for a million tokens, by provider and model, as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import InvalidArgumentError, did_you_mean

FIELD = "dollars_per_million_tokens"
KINDS = ("input", "output", "cached")


def read_prices(path: str) -> dict[str, Any]:
    """Return the prices that a file has, once it is seen to have them in the right form."""
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
            f"prices={path!r} is no file of prices ({type(exc).__name__}: {exc}); its form is "
            f'{{"{FIELD}": {{"openai": {{"my-model": {{"input": 0.25, "output": 2.0}}}}}}}}.'
        ) from exc
    return dict(prices)


def check_price(place: str, price: Any) -> None:
    """Refuse what is no price: a dict of dollars for a million tokens, with ``input`` at least."""
    if price is None:
        return
    if not isinstance(price, Mapping) or "input" not in price:
        raise InvalidArgumentError(
            f"{place}: price={price!r} is no price; give dollars for a million tokens, such as "
            "price={'input': 0.25, 'output': 2.0}, with 'cached' where that is cheaper."
        )
    for kind, dollars in price.items():
        if kind not in KINDS:
            raise InvalidArgumentError(
                f"{place}: price has {kind!r}; it takes {', '.join(KINDS)}.{did_you_mean(str(kind), KINDS)}"
            )
        is_number = isinstance(dollars, int | float) and not isinstance(dollars, bool)
        if not is_number or not 0 <= dollars < math.inf:
            raise InvalidArgumentError(
                f"{place}: price {kind}={dollars!r} is no number of dollars for a million tokens."
            )
