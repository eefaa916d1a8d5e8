"""Keys of finished calls: a hash of everything that determines the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

KEY_NBYTES = 16
_PREFIX = b"penstock-call-1\0"  # raise the number when the same parts should no longer find the old answers
_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def key_of(parts: Mapping[str, Any] | bytes) -> bytes:
    """Return the key of what ``parts`` describe: the same for equal parts, in whatever order they were put together.

    Bytes are taken as they are; everything else must be what JSON can hold.

    >>> key_of({"model": "m", "prompt": "hi"}) == key_of({"prompt": "hi", "model": "m"})
    True
    >>> len(key_of(b"anything"))
    16
    """
    # A byte apart for each kind, so that no bytes have the key of a mapping.
    body = b"b" + parts if isinstance(parts, bytes) else b"j" + canonical(parts)
    return hashlib.blake2b(_PREFIX + body, digest_size=KEY_NBYTES).digest()


def canonical(value: Any) -> bytes:
    """Return a value as JSON of which there is one for equal values."""
    return orjson.dumps(value, option=_CANONICAL)


def keys_between(head: bytes, parts: Iterable[bytes], tail: bytes) -> list[bytes]:
    """Return ``key_of(head + part + tail)`` for each of the parts; what they share is hashed once.

    >>> keys_between(b"a", [b"b", b"c"], b"d") == [key_of(b"abd"), key_of(b"acd")]
    True
    """
    begun = hashlib.blake2b(_PREFIX + b"b" + head, digest_size=KEY_NBYTES).copy
    keys = []
    for part in parts:
        hashed = begun()
        hashed.update(part + tail)
        keys.append(hashed.digest())
    return keys
