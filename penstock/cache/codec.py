"""Codec: how the results of a function or model are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Codec:
    """Convert a result to bytes and back. ``encode`` returns None for a result that must not be cached."""

    encode: Callable[[Any], bytes | None]
    decode: Callable[[bytes], Any]
