"""The journal of a job: an entry for each part that is done, as a line of JSON with a checksum.

A crash can tear the last line; the journal ends before the first line that is damaged.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import orjson

from penstock.io.commit.output import JOB_FOLDER, writing
from penstock.io.commit.place import LocalPlace, StorePlace
from penstock.storage.durable import replace_file

MAX_CONCURRENT_READS = 32


class Journal(Protocol):
    """The entries of a job, in order."""

    def read(self) -> list[dict[str, Any]]: ...

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add an entry; returns when it is durable."""

    def rewrite(self, entry: Mapping[str, Any]) -> None:
        """Replace all entries by one, atomically."""


def packed(entry: Mapping[str, Any]) -> bytes:
    """Return an entry as a line.

    >>> packed({"a": 1})
    b'561bacaf {"a":1}\\n'
    """
    text = orjson.dumps(entry, default=tuple)  # named tuples
    return b"%08x %s\n" % (zlib.crc32(text), text)


def unpacked(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal up to the first damaged line.

    >>> list(unpacked([packed({"a": 1}), packed({"a": 2})[:-3]]))
    [{'a': 1}]
    """
    for line in lines:
        check, _, text = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or check != b"%08x" % zlib.crc32(text):
            return
        yield orjson.loads(text)


class LocalJournal:
    """Implements ``Journal`` in one file."""

    def __init__(self, place: LocalPlace) -> None:
        self._root, self._path = place.root, place.path(JOB_FOLDER, "journal")

    def read(self) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            return list(unpacked(file))
        return []

    def append(self, entry: Mapping[str, Any]) -> None:
        with writing(self._root), self._path.open("ab") as file:
            end = file.tell()
            try:
                file.write(packed(entry))
                file.flush()
                os.fdatasync(file.fileno())
            except OSError:  # a full disk: remove the torn line, so that the next one can be read
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), end)
                raise

    def rewrite(self, entry: Mapping[str, Any]) -> None:
        with writing(self._root):
            replace_file(self._path, packed(entry))


class StoreJournal:
    """Implements ``Journal`` on an object store, with an object ``<generation>-<number>`` for each entry.

    The highest generation counts. A rewrite creates the first object of the next generation, which is atomic.
    """

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._next = (0, 0)  # generation and number of the next entry

    def read(self) -> list[dict[str, Any]]:
        names = self._names()
        generation = max((name[0] for name in names), default=0)
        numbers = {number for each, number in names if each == generation}
        # Entries are written one after another: those after a gap are of a run that had lost the job.
        length = next(number for number in range(len(numbers) + 1) if number not in numbers)
        self._next = generation, length
        with ThreadPoolExecutor(MAX_CONCURRENT_READS) as threads:
            contents = threads.map(self._place.client.read, [self._key(generation, each) for each in range(length)])
            return list(unpacked(contents))

    def append(self, entry: Mapping[str, Any]) -> None:
        generation, number = self._next
        with writing(self._place.root):
            self._place.client.put(self._key(generation, number), packed(entry))
        self._next = generation, number + 1

    def rewrite(self, entry: Mapping[str, Any]) -> None:
        with writing(self._place.root):
            names = self._names()
            generation = max((name[0] for name in names), default=0) + 1
            self._place.client.put(self._key(generation, 0), packed(entry))
            self._next = generation, 1
            self._place.client.delete([self._key(*name) for name in names])

    def _names(self) -> list[tuple[int, int]]:
        found = []
        for entry in self._place.client.list_below(self._place.key(JOB_FOLDER, "journal")):
            generation, _, number = entry.key.rpartition("/")[2].partition("-")
            if generation.isdecimal() and number.isdecimal():
                found.append((int(generation), int(number)))
        return found

    def _key(self, generation: int, number: int) -> str:
        return self._place.key(JOB_FOLDER, "journal", f"{generation:06d}-{number:08d}")
