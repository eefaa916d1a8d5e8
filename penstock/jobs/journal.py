"""The journal of a job: one line for each thing that is done, as JSON with a checksum.

A crash can tear the last line; what cannot be read ends the journal.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson


def packed(entry: Mapping[str, Any]) -> bytes:
    """Return an entry as a line.

    >>> packed({"a": 1})
    b'561bacaf {"a":1}\\n'
    """
    text = orjson.dumps(entry, default=tuple)  # named tuples
    return b"%08x %s\n" % (zlib.crc32(text), text)


def entries(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal up to the first line that is not whole.

    >>> list(entries([packed({"a": 1}), packed({"a": 2})[:-3]]))
    [{'a': 1}]
    """
    for line in lines:
        check, _, text = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or check != b"%08x" % zlib.crc32(text):
            return
        yield orjson.loads(text)
