"""The journal of a job: a file, or an object of a store, for each part that is done.

<root>/_penstock_job/journal/<generation>-<number>

The highest generation counts. A rewrite creates the first file of the next generation, which is atomic.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from penstock.io.commit.output import writing
from penstock.io.commit.target import Place
from penstock.io.consistent_listing import JOB_FOLDER

FOLDER = f"{JOB_FOLDER}/journal"
MAX_CONCURRENT_READS = 32


class Journal:
    """The entries of a job, in order."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._next = (0, 0)  # generation and number of the next entry
        self.damage: str | None = None  # found by ``read``

    def read(self) -> list[dict[str, Any]]:
        """Return the entries before the first missing or damaged one.

        A last entry that cannot be read is not damage: it may be an append that a crash interrupted.
        """
        names = self._names()
        generation = max((name[0] for name in names), default=0)
        length = max((number + 1 for each, number in names if each == generation), default=0)
        with ThreadPoolExecutor(MAX_CONCURRENT_READS) as threads:
            contents = threads.map(self._place.read, [_path(generation, each) for each in range(length)])
            entries = list(unpacked(contents))
        self._next = generation, len(entries)
        if not length:
            self.damage = f"{FOLDER!r} is empty"
        elif len(entries) < max(1, length - 1):
            self.damage = f"entry {len(entries) + 1} of {length} in {FOLDER!r} is missing or cannot be read"
        return entries

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add an entry; returns when it is durable."""
        generation, number = self._next
        with writing(self._place.root):
            self._place.write(_path(generation, number), packed(entry))
        self._next = generation, number + 1

    def rewrite(self, entry: Mapping[str, Any]) -> None:
        """Replace all entries by one, atomically."""
        with writing(self._place.root):
            names = self._names()
            generation = max((name[0] for name in names), default=0) + 1
            self._place.write(_path(generation, 0), packed(entry))
            self._next = generation, 1
            self._place.delete([_path(*name) for name in names])

    def _names(self) -> list[tuple[int, int]]:
        found = []
        for path, _ in self._place.sizes_below(FOLDER):
            generation, _, number = path.rpartition("/")[2].partition("-")
            if generation.isdecimal() and number.isdecimal():
                found.append((int(generation), int(number)))
        return found


def packed(entry: Mapping[str, Any]) -> bytes:
    """Return an entry as JSON behind a checksum.

    >>> packed({"a": 1})
    b'561bacaf {"a":1}'
    """
    text = orjson.dumps(entry, default=tuple)  # named tuples
    return b"%08x %s" % (zlib.crc32(text), text)


def unpacked(contents: Iterable[bytes | None]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal before the first missing or damaged one.

    >>> list(unpacked([packed({"a": 1}), packed({"a": 2})[:-3]]))
    [{'a': 1}]
    """
    for content in contents:
        check, _, text = (content or b"").partition(b" ")
        if check != b"%08x" % zlib.crc32(text):
            return
        yield orjson.loads(text)


def _path(generation: int, number: int) -> str:
    return f"{FOLDER}/{generation:06d}-{number:08d}"
