"""Find the part of a job's state that is still valid when the job is resumed.

A row is done if all its results are in files that exist. A row must be redone if its lot was not finished, a file was
deleted, an input changed, or the user retries rows that failed. Its results are then cut out of the files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.contracts import Origin, cut_origins
from penstock.jobs.state import JobPart, JobState, as_ranges
from penstock.types.row_ranges import RowRange

File = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CutFile:
    """A file with rows that must be cut out: only the ranges ``keep`` are valid."""

    file: File
    keep: tuple[RowRange, ...]


@dataclass(slots=True)
class Reconciled:
    """The valid part of a state. ``gone`` are files that are no longer valid."""

    parts: list[tuple[list[File | CutFile], tuple[Origin, ...]]] = field(default_factory=list)
    gone: list[File] = field(default_factory=list)
    done: dict[int, list[RowRange]] = field(default_factory=dict)
    done_lots: dict[int, tuple[Origin, ...]] = field(default_factory=dict)

    def state(self, old: JobState, stale_reads: Collection[int], cut: Callable[[CutFile], File]) -> JobState:
        """Return the valid part of ``old`` as a state; ``cut`` makes a file without the rows that are not valid."""
        return JobState(
            reads={key: number for key, number in old.reads.items() if number not in stale_reads},
            ends={number: rows for number, rows in old.ends.items() if number not in stale_reads},
            first_places={number: each for number, each in old.first_places.items() if number not in stale_reads},
            parts=[
                JobPart(tuple(cut(file) if isinstance(file, CutFile) else file for file in files), origins)
                for files, origins in self.parts
            ],
            done_lots=self.done_lots,
            failures=[each for each in old.failures if each.origin is not None and self._is_done(each.origin)],
            retired=list(old.retired),
        )

    def _is_done(self, origin: Origin) -> bool:
        if origin.start is None:
            return origin.source in self.done_lots
        overlaps = _overlaps(origin, self.done.get(origin.source, ()))
        return sum(last - first for first, last in overlaps) == origin.num_rows


def reconcile(
    state: JobState,
    *,
    has_file: Callable[[File], bool],
    can_cut: bool,
    stale_reads: Collection[int] = (),
    redo: Iterable[Origin] = (),
) -> Reconciled:
    """Return the part of a state that is still valid.

    ``stale_reads`` are the reads whose input changed; ``redo`` are rows and lots to compute again. ``can_cut`` means:
    rows can be cut out of a file, and the files of a part hold its rows one after another. Otherwise a part is valid as
    a whole or not at all.
    """
    return _Reconciliation(state, has_file, can_cut, frozenset(stale_reads), tuple(redo)).result()


class _Reconciliation:
    def __init__(
        self,
        state: JobState,
        has_file: Callable[[File], bool],
        can_cut: bool,
        stale_reads: frozenset[int],
        redo: tuple[Origin, ...],
    ) -> None:
        self._state = state
        self._lots = state.done_lots
        self._can_cut = can_cut
        self._stale = stale_reads
        self._redo = as_ranges(redo)
        self._exists = {file["path"]: has_file(file) for file in state.files}
        self._invalid = _lots_of(redo)

    def result(self) -> Reconciled:
        """Invalidate lots until no valid part or lot depends on an invalid one."""
        unfinished = _lots_of(itertools.chain(*(part.origins for part in self._state.parts), *self._lots.values()))
        self._invalid |= unfinished - set(self._lots)
        num_invalid = -1
        while num_invalid != (num_invalid := len(self._invalid)):
            for number, origins in self._lots.items():
                if number in self._invalid:
                    self._invalid |= _lots_of(origins)
                elif any(self._has_row_to_redo(origin) for origin in origins):
                    self._invalid.add(number)
            for part in self._state.parts:
                self._invalid |= _lots_of(self._lost_origins(part))
        return self._reconciled()

    def _has_row_to_redo(self, origin: Origin) -> bool:
        if origin.start is None:
            return origin.source in self._invalid
        overlaps = _overlaps(origin, self._redo.get(origin.source, ()))
        return origin.source in self._stale or next(overlaps, None) is not None

    def _lost_origins(self, part: JobPart) -> Iterable[Origin]:
        """Return the origins whose rows are lost, because a file is missing or because the part cannot be cut."""
        if self._can_cut:
            lost = (origins for file, origins in rows_by_file(part) if not self._exists[file["path"]])
            return itertools.chain.from_iterable(lost)
        return part.origins if self._is_invalid(part) else ()

    def _is_invalid(self, part: JobPart) -> bool:
        is_tracked = bool(part.origins) or not any(file["rows"] for file in part.files)
        is_whole = is_tracked and all(self._exists[file["path"]] for file in part.files)
        return not is_whole or any(self._has_row_to_redo(origin) for origin in part.origins)

    def _reconciled(self) -> Reconciled:
        found = Reconciled()
        written: list[Origin] = []
        for part in self._state.parts:
            files, origins = self._valid_files(part, found.gone)
            if files:
                found.parts.append((files, tuple(origins)))
            written += origins
        found.done_lots = {number: origins for number, origins in self._lots.items() if number not in self._invalid}
        found.done = as_ranges([*written, *itertools.chain.from_iterable(found.done_lots.values())])
        return found

    def _valid_files(self, part: JobPart, gone: list[File]) -> tuple[list[File | CutFile], list[Origin]]:
        """Return the valid files of a part, whole or cut, with their origins; add the others to ``gone``."""
        if not self._can_cut:
            if self._is_invalid(part):
                gone += part.files
                return [], []
            return list(part.files), list(part.origins)
        files: list[File | CutFile] = []
        kept: list[Origin] = []
        for file, origins in rows_by_file(part):
            keep, left = self._rows_to_keep(origins) if self._exists[file["path"]] else ([], [])
            if keep == [RowRange(0, file["rows"])] or (not file["rows"] and self._exists[file["path"]]):
                files.append(file)
            else:
                gone.append(file)  # even if it is missing: a damaged file must not stay visible
                files += [CutFile(file, tuple(keep))] if keep else []
            kept += left
        return files, kept

    def _rows_to_keep(self, origins: Iterable[Origin]) -> tuple[list[RowRange], list[Origin]]:
        """Return the rows of a file that are valid, and their origins."""
        keep: list[RowRange] = []
        left: list[Origin] = []
        position = 0
        for origin in origins:
            for kept in self._valid_rows(origin):
                start = position if origin.start is None or kept.start is None else position + kept.start - origin.start
                if keep and keep[-1].stop == start:
                    keep[-1] = RowRange(keep[-1].start, start + kept.num_rows)
                else:
                    keep.append(RowRange(start, start + kept.num_rows))
                left.append(kept)
            position += origin.num_rows
        return keep, left

    def _valid_rows(self, origin: Origin) -> Iterator[Origin]:
        """Yield the rows of an origin that need not be redone."""
        source, start, num_rows = origin
        if start is None:
            if source not in self._invalid:
                yield origin
            return
        if source in self._stale:
            return
        position = start
        for first, last in _overlaps(origin, self._redo.get(source, ())):
            if first > position:
                yield Origin(source, position, first - position)
            position = last
        if position < start + num_rows:
            yield Origin(source, position, start + num_rows - position)


def _lots_of(origins: Iterable[Origin]) -> set[int]:
    return {origin.source for origin in origins if origin.start is None}


def _overlaps(origin: Origin, ranges: Sequence[RowRange]) -> Iterator[tuple[int, int]]:
    assert origin.start is not None
    end = origin.start + origin.num_rows
    for start, stop in ranges:
        first, last = max(start, origin.start), min(end if stop is None else stop, end)
        if first < last:
            yield first, last


def rows_by_file(part: JobPart) -> Iterator[tuple[File, tuple[Origin, ...]]]:
    """Yield the files of a part with the origins of their rows, which follow each other."""
    position = 0
    for file in part.files:
        yield file, cut_origins(part.origins, position, file["rows"])
        position += file["rows"]
