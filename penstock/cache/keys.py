"""Keys of cached results: a hash of everything that determines the result."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

KEY_NBYTES = 16
NOTE_MARK = bytes(4)  # the last bytes of the keys of notes; one key of a call in four billion ends with them
_PREFIX = b"penstock-call-1\0"  # increase the number to invalidate all keys
_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def key_of(parts: Mapping[str, Any] | bytes) -> bytes:
    """Return the key of bytes, or of a mapping that JSON can hold, independent of the order of its items.

    >>> key_of({"model": "m", "prompt": "hi"}) == key_of({"prompt": "hi", "model": "m"})
    True
    >>> len(key_of(b"anything"))
    16
    """
    # One byte for the kind keeps the keys of bytes and of mappings apart.
    body = b"b" + parts if isinstance(parts, bytes) else b"j" + canonical(parts)
    return hashlib.blake2b(_PREFIX + body, digest_size=KEY_NBYTES).digest()


def note_key(content: bytes) -> bytes:
    """Return the key of a record about a call. It differs from the keys of calls, so that only calls are counted.

    >>> note_key(b"the row of a call").endswith(NOTE_MARK)
    True
    """
    return key_of(content)[: -len(NOTE_MARK)] + NOTE_MARK


def canonical(value: Any) -> bytes:
    """Return JSON that is the same for equal values."""
    return orjson.dumps(value, option=_CANONICAL)


def keys_between(head: bytes, parts: Iterable[bytes], tail: bytes) -> list[bytes]:
    """Return ``key_of(head + part + tail)`` for each part. The head is hashed once.

    >>> keys_between(b"a", [b"b", b"c"], b"d") == [key_of(b"abd"), key_of(b"acd")]
    True
    """
    copy_of_head = hashlib.blake2b(_PREFIX + b"b" + head, digest_size=KEY_NBYTES).copy
    keys = []
    for part in parts:
        hashed = copy_of_head()
        hashed.update(part + tail)
        keys.append(hashed.digest())
    return keys
