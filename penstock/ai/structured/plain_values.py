"""Convert validated values to plain Python values: dicts, lists and scalars."""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Mapping
from typing import Any

from penstock.errors import shortened
from penstock.types.hints import record_fields

_MAX_INPUT_CHARS = 60


def shown(value: Any) -> str:
    """Return a value for an error message."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    return shortened(text, _MAX_INPUT_CHARS)


@functools.lru_cache(maxsize=256)
def _field_names(kind: Any) -> tuple[str, ...] | None:
    return None if (fields := record_fields(kind)) is None else tuple(fields)


def plain(value: Any) -> Any:
    """Return a value without classes of the user: records as dicts, enums as their values."""
    kind: Any = type(value)
    if value is None or kind in (str, int, float, bool):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if (names := _field_names(kind)) is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return list(map(plain, value)) if isinstance(value, list | set | frozenset) else value
