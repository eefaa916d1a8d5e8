"""The state of a job, as recorded in its journal: the rows of each read that are in each file."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

from penstock.contracts import Origin
from penstock.engine.lineage import LineageUpdate
from penstock.events.events import RowError
from penstock.protocols import ConsecutiveReadTask, NamedReadTask, ReadTask
from penstock.types.row_numbers import RowPlace
from penstock.types.row_ranges import RowRange


class ReadKey(NamedTuple):
    """Identifies a read in later runs, by its source's number in the plan, the input, and the part of the input."""

    scan: int
    input: str
    part: str


@dataclass(frozen=True, slots=True)
class JobPart:
    """Files that were written together, and the origins of their rows, in order."""

    files: tuple[dict[str, Any], ...]
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A row error, with the row or lot that failed; None in a plan whose rows are not tracked."""

    origin: Origin | None
    error: RowError


@dataclass(slots=True)
class JobState:
    """The content of a journal. ``add`` records the work of a run, and returns the entry for the journal."""

    reads: dict[ReadKey, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)  # the number of rows of each read
    parts: list[JobPart] = field(default_factory=list)
    done_lots: dict[int, tuple[Origin, ...]] = field(default_factory=dict)  # with the rows they were made from
    failures: list[Failure] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)  # visible files that the next commit deletes
    first_places: dict[int, RowPlace] = field(default_factory=dict)  # the first row of each read of consecutive rows
    _journalled_reads: set[int] = field(default_factory=set, repr=False)

    @staticmethod
    def of(entries: Iterable[Mapping[str, Any]]) -> JobState:
        """Return the state after the entries of a journal."""
        state = JobState()
        for entry in entries:
            state._apply(entry)
        return state

    def entry(self) -> dict[str, Any]:
        return {
            "reads": [[number, *key] for key, number in self.reads.items()],
            "ends": list(self.ends.items()),
            "first_places": [[number, place.input, place.number] for number, place in self.first_places.items()],
            "parts": [_packed_part(part) for part in self.parts],
            "lots": [[number, merged(origins)] for number, origins in self.done_lots.items()],
            "failures": [[failure.origin, *astuple(failure.error)] for failure in self.failures],
            "retired": self.retired,
        }

    @property
    def is_empty(self) -> bool:
        return not (self.parts or self.done_lots or self.failures)

    @property
    def errors(self) -> list[RowError]:
        """The errors of failed rows. A failed lot records its error for each of its origins; this lists it once."""
        return list(dict.fromkeys(failure.error for failure in self.failures))

    @property
    def num_rows(self) -> int:
        return sum(file["rows"] for file in self.files)

    @property
    def files(self) -> list[dict[str, Any]]:
        return [file for part in self.parts for file in part.files]

    @property
    def next_lot(self) -> int:
        """Return a number that is higher than the number of any lot so far."""
        origins = [*(part.origins for part in self.parts), *self.done_lots.values()]
        used = [origin.source for each in origins for origin in each if origin.start is None]
        return max([*used, *self.done_lots], default=-1) + 1

    def add(self, update: LineageUpdate, part: JobPart | None = None) -> dict[str, Any]:
        """Record the work of a run, and return the entry for the journal."""
        reads = {key: number for key, number in self.reads.items() if number not in self._journalled_reads}
        entry = JobState(
            reads=reads,
            ends=update.ends,
            first_places={number: each for number, each in self.first_places.items() if number in reads.values()},
            parts=[] if part is None else [part],
            done_lots={lot.number: lot.origins for lot in update.done_lots},
            failures=[Failure(origin, error) for origin, error in update.failed],
        ).entry()
        self._apply(entry)
        return {name: value for name, value in entry.items() if value}

    def _apply(self, entry: Mapping[str, Any]) -> None:
        for number, *key in entry.get("reads", ()):
            self.reads[ReadKey(*key)] = number
            self._journalled_reads.add(number)
        self.ends.update((number, length) for number, length in entry.get("ends", ()))
        self.first_places.update((number, RowPlace(*place)) for number, *place in entry.get("first_places", ()))
        self.parts += [_unpacked_part(part) for part in entry.get("parts", ())]
        self.done_lots.update((number, _origins(origins)) for number, origins in entry.get("lots", ()))
        for origin, *values in entry.get("failures", ()):
            self.failures.append(Failure(None if origin is None else Origin(*origin), RowError(*values)))
        self.retired += entry.get("retired", ())


@dataclass(slots=True)
class UnfinishedRows:
    """Implements ``ReadSelection``: selects the rows that are not ``done``, by read."""

    state: JobState
    done: Mapping[int, Sequence[RowRange]]
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)  # by read, its source and its place there

    def register(self, scan: int, number: int, task: ReadTask) -> tuple[int, Sequence[RowRange]]:
        key = read_key(scan, number, task)
        read = self.state.reads.get(key)
        if read is None:
            # Sources yield their tasks concurrently, so the number must not depend on the tasks of other sources.
            read = (scan << 32) + number
            if read in (used := self.state.reads.values()):
                read = max(used) + 1
            self.state.reads[key] = read
            if isinstance(task, ConsecutiveReadTask) and (place := task.first_place) is not None:
                self.state.first_places[read] = place
        self.positions[read] = scan, number
        return read, complement(self.done.get(read, ()), self.state.ends.get(read))


def read_key(scan: int, number: int, task: ReadTask) -> ReadKey:
    """Return the key of the ``number``-th task of the ``scan``-th source."""
    origin = task.origin if isinstance(task, NamedReadTask) else None
    return ReadKey(scan, *(origin or ("", str(number))))


def merged(origins: Iterable[Origin]) -> list[Origin]:
    """Return the origins; origins of consecutive rows in one source become one.

    >>> merged([Origin(0, 0, 5), Origin(0, 5, 5), Origin(0, 20, 1)])
    [Origin(source=0, start=0, num_rows=10), Origin(source=0, start=20, num_rows=1)]
    """
    found: list[Origin] = []
    for source, start, num_rows in origins:
        if found and found[-1].source == source and start == _next_row(found[-1]):
            num_rows, start = num_rows + found[-1].num_rows, found.pop().start
        found.append(Origin(source, start, num_rows))
    return found


def _next_row(origin: Origin) -> int | None:
    return None if origin.start is None else origin.start + origin.num_rows


def as_ranges(origins: Iterable[Origin]) -> dict[int, list[RowRange]]:
    """Return the rows of reads among ``origins`` as ranges by read: sorted, without overlaps.

    >>> as_ranges([Origin(0, 8, 2), Origin(0, 0, 5), Origin(0, 3, 4), Origin(9, None, 1)])
    {0: [RowRange(start=0, stop=7), RowRange(start=8, stop=10)]}
    """
    ranges: dict[int, list[RowRange]] = {}
    rows = [(source, start, start + num_rows) for source, start, num_rows in origins if start is not None]
    for source, start, stop in sorted(rows):
        joined = ranges.setdefault(source, [])
        last = joined[-1].stop if joined else None
        if last is not None and start <= last:
            joined[-1] = RowRange(joined[-1].start, max(last, stop))
        else:
            joined.append(RowRange(start, stop))
    return ranges


def complement(done: Sequence[RowRange], num_rows: int | None) -> list[RowRange]:
    """Return the rows of a read that are not in the sorted list ``done``; ``num_rows`` is None if unknown.

    >>> complement([RowRange(0, 5), RowRange(7, 10)], 12)
    [RowRange(start=5, stop=7), RowRange(start=10, stop=None)]
    >>> complement([RowRange(0, 5)], None), complement([RowRange(0, 5)], 5)
    ([RowRange(start=5, stop=None)], [])
    """
    left, position = [], 0
    for start, stop in done:
        if start > position:
            left.append(RowRange(position, start))
        assert stop is not None
        position = stop
    if num_rows is None or position < num_rows:
        left.append(RowRange(position, None))
    return left


def _packed_part(part: JobPart) -> list[Any]:
    files = [file | {"schema": base64.b64encode(file["schema"]).decode()} for file in part.files]
    return [files, merged(part.origins)]


def _unpacked_part(packed: Sequence[Any]) -> JobPart:
    files, origins = packed
    return JobPart(tuple(file | {"schema": base64.b64decode(file["schema"])} for file in files), _origins(origins))


def _origins(given: Iterable[Sequence[Any]]) -> tuple[Origin, ...]:
    return tuple(Origin(*origin) for origin in given)
