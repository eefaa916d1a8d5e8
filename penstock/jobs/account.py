"""What a job has done, as its journal tells it: which rows of which reads are in which files."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from penstock.engine.lineage import News, Range
from penstock.observe.events import RowError
from penstock.protocols import Origin, ReadTask


class ReadKey(NamedTuple):
    """What a read is known by in the next run: the number of its source in the plan, the input, the part of that."""

    scan: int
    input: str
    part: str


@dataclass(frozen=True, slots=True)
class Part:
    """Files that were made together, and where their rows come from, in order."""

    files: tuple[dict[str, Any], ...]
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A row, or a lot, on which a function failed, where that is tolerated."""

    origin: Origin | None  # None: of a plan whose rows are not kept account of
    error: RowError


@dataclass(slots=True)
class Account:
    """The journal as data. ``note`` takes what a run has done; ``entry`` of it goes to the journal first."""

    reads: dict[ReadKey, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)  # by read, how many rows it has
    parts: list[Part] = field(default_factory=list)
    done_lots: dict[int, tuple[Origin, ...]] = field(default_factory=dict)  # with what they were made of
    dropped: list[Origin] = field(default_factory=list)  # rows of reads that gave nothing
    failures: list[Failure] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)  # visible files that the next commit deletes

    @staticmethod
    def of(entries: Iterable[Mapping[str, Any]]) -> Account:
        """Return what the entries of a journal say."""
        account = Account()
        for entry in entries:
            account._take(entry)
        return account

    def entry(self) -> dict[str, Any]:
        """Return all of it as one entry."""
        return {
            "reads": [[number, *key] for key, number in self.reads.items()],
            "ends": list(self.ends.items()),
            "parts": [_packed_part(part) for part in self.parts],
            "lots": [[number, merged(origins)] for number, origins in self.done_lots.items()],
            "dropped": merged(self.dropped),
            "failures": [[failure.origin, *_fields_of(failure.error)] for failure in self.failures],
            "retired": self.retired,
        }

    @property
    def is_empty(self) -> bool:
        return not (self.parts or self.done_lots or self.dropped or self.failures)

    @property
    def num_rows(self) -> int:
        return sum(file["rows"] for part in self.parts for file in part.files)

    @property
    def files(self) -> list[dict[str, Any]]:
        return [file for part in self.parts for file in part.files]

    @property
    def next_lot(self) -> int:
        """Return a number from which on no lot was ever called."""
        used = [origin.source for part in self.parts for origin in part.origins if origin.start is None]
        used += [origin.source for origins in self.done_lots.values() for origin in origins if origin.start is None]
        return max([*used, *self.done_lots], default=-1) + 1

    def add(self, news: News, part: Part | None = None) -> dict[str, Any]:
        """Take what a run has done, and return the entry that says so."""
        new_reads = {key: number for key, number in self.reads.items() if number not in self._told_reads}
        told = Account(
            reads=new_reads,
            ends=news.ends,
            parts=[] if part is None else [part],
            done_lots={lot.number: lot.origins for lot in news.done_lots},
            dropped=news.dropped,
            failures=[Failure(origin, error) for origin, error in news.failed],
        ).entry()
        self._take(told)
        return {name: value for name, value in told.items() if value}

    def _take(self, entry: Mapping[str, Any]) -> None:
        for number, *key in entry.get("reads", ()):
            self.reads[ReadKey(*key)] = number
            self._told_reads.add(number)
        self.ends.update((number, length) for number, length in entry.get("ends", ()))
        self.parts += [_unpacked_part(part) for part in entry.get("parts", ())]
        self.done_lots.update((number, _origins(origins)) for number, origins in entry.get("lots", ()))
        self.dropped += _origins(entry.get("dropped", ()))
        for origin, *values in entry.get("failures", ()):
            self.failures.append(Failure(None if origin is None else Origin(*origin), RowError(*values)))
        self.retired += entry.get("retired", ())

    _told_reads: set[int] = field(default_factory=set, repr=False)


@dataclass(slots=True)
class RowsLeft:
    """Implements ``LeftToRead``: what is wanted of each read is what is not done."""

    account: Account
    done: Mapping[int, Sequence[Range]]

    def register(self, scan: int, number: int, task: ReadTask) -> tuple[int, Sequence[Range]]:
        key = read_key(scan, number, task)
        read = self.account.reads.get(key)
        if read is None:
            # Sources give their tasks at the same time, yet another run has to number them alike, before any is told.
            read = (scan << 32) + number
            if read in (used := self.account.reads.values()):
                read = max(used) + 1
            self.account.reads[key] = read
        return read, complement(self.done.get(read, ()), self.account.ends.get(read))


def read_key(scan: int, number: int, task: ReadTask) -> ReadKey:
    """Return what the ``number``-th task of the ``scan``-th source is known by."""
    name, part = getattr(task, "origin", None) or ("", str(number))
    return ReadKey(scan, name, part)


def merged(origins: Iterable[Origin]) -> list[Origin]:
    """Return the same origins, those that follow each other as one.

    >>> merged([Origin(0, 0, 5), Origin(0, 5, 5), Origin(0, 20, 1)])
    [Origin(source=0, start=0, num_rows=10), Origin(source=0, start=20, num_rows=1)]
    """
    found: list[Origin] = []
    for source, start, num_rows in origins:
        last = found[-1] if found else None
        if last is not None and last.source == source and _follows(last, start):
            found[-1] = Origin(source, last.start, last.num_rows + num_rows)
        else:
            found.append(Origin(source, start, num_rows))
    return found


def _follows(last: Origin, start: int | None) -> bool:
    return start is None if last.start is None else start == last.start + last.num_rows


def as_ranges(origins: Iterable[Origin]) -> dict[int, list[Range]]:
    """Return the rows of reads among ``origins`` as ranges that do not touch, in order, by read.

    >>> as_ranges([Origin(0, 8, 2), Origin(0, 0, 5), Origin(0, 3, 4), Origin(9, None, 1)])
    {0: [Range(start=0, stop=7), Range(start=8, stop=10)]}
    """
    spans: dict[int, list[tuple[int, int]]] = {}
    for source, start, num_rows in origins:
        if start is not None:
            spans.setdefault(source, []).append((start, start + num_rows))
    ranges: dict[int, list[Range]] = {}
    for source, pieces in spans.items():
        joined: list[Range] = []
        for start, stop in sorted(pieces):
            last = joined[-1].stop if joined else None
            if last is not None and start <= last:
                joined[-1] = Range(joined[-1].start, max(last, stop))
            else:
                joined.append(Range(start, stop))
        ranges[source] = joined
    return ranges


def complement(done: Sequence[Range], num_rows: int | None) -> list[Range]:
    """Return the rows that are not in ``done``, which is in order; of a read of ``num_rows``, None if nobody knows.

    >>> complement([Range(0, 5), Range(7, 10)], 12), complement([Range(0, 5)], None), complement([Range(0, 5)], 5)
    ([Range(start=5, stop=7), Range(start=10, stop=None)], [Range(start=5, stop=None)], [])
    """
    left, position = [], 0
    for start, stop in done:
        if start > position:
            left.append(Range(position, start))
        assert stop is not None
        position = stop
    if num_rows is None or position < num_rows:
        left.append(Range(position, None))
    return left


def _packed_part(part: Part) -> list[Any]:
    files = [file | {"schema": base64.b64encode(file["schema"]).decode()} for file in part.files]
    return [files, merged(part.origins)]


def _unpacked_part(given: Sequence[Any]) -> Part:
    files, origins = given
    return Part(tuple(file | {"schema": base64.b64decode(file["schema"])} for file in files), _origins(origins))


def _origins(given: Iterable[Sequence[Any]]) -> tuple[Origin, ...]:
    return tuple(Origin(*origin) for origin in given)


def _fields_of(error: RowError) -> list[Any]:
    return [getattr(error, each.name) for each in fields(RowError)]
