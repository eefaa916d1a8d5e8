"""JSON of servers and models, which is not always valid."""

from __future__ import annotations

import json
from typing import Any

import orjson


def parse_json(raw: bytes) -> Any:
    r"""Return the value of a JSON text, or raise ValueError.

    Half of a surrogate pair, and bytes that are not UTF-8, become U+FFFD: the answer is paid for, and asking again
    would give the same. NaN and Infinity, which Python servers send, are numbers.

    >>> parse_json(rb'{"text": "half an emoji: \ud83d", "score": NaN}')
    {'text': 'half an emoji: �', 'score': nan}
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        text = json.dumps(json.loads(raw.decode("utf-8-sig", "replace")), ensure_ascii=False)
        return json.loads(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
