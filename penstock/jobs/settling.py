"""What of a job's account still holds when it is taken up again.

A row is done if all that was made of it is in files that are there. Where that is not so, for a lot that was not
finished, a file that somebody deleted, an input that changed or a row that is to be tried again, the row is done anew,
and what was made of it is taken out of the files that hold it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.lineage import Range
from penstock.jobs.account import Account, Part, as_ranges
from penstock.protocols import Origin, cut_origins


@dataclass(frozen=True, slots=True)
class CutFile:
    """A file of which only some rows are kept."""

    file: dict[str, Any]
    keep: tuple[Range, ...]


@dataclass(slots=True)
class Settled:
    """``parts`` are kept, with files that are whole or to be cut; ``gone`` are files that are not wanted any more."""

    parts: list[tuple[list[dict[str, Any] | CutFile], tuple[Origin, ...]]] = field(default_factory=list)
    gone: list[dict[str, Any]] = field(default_factory=list)
    done: dict[int, list[Range]] = field(default_factory=dict)
    done_lots: dict[int, tuple[Origin, ...]] = field(default_factory=dict)
    dropped: list[Origin] = field(default_factory=list)

    def is_done(self, origin: Origin) -> bool:
        """Say whether all of these rows, or this lot, need not be done again."""
        if origin.start is None:
            return origin.source in self.done_lots
        return (
            sum(last - first for first, last in _overlaps(origin, self.done.get(origin.source, ()))) == origin.num_rows
        )


def settle(
    account: Account,
    *,
    has_file: Callable[[dict[str, Any]], bool],
    can_cut: bool,
    stale_reads: Collection[int] = (),
    redo: Iterable[Origin] = (),
) -> Settled:
    """Return what still holds.

    ``stale_reads`` have changed; ``redo`` are rows and lots to be done again. ``can_cut`` says that rows can be taken
    out of a file, and that the files of a part hold its rows one after another; else a part is kept whole or not.
    """
    return _Settling(account, has_file, can_cut, frozenset(stale_reads), tuple(redo)).result()


class _Settling:
    def __init__(
        self,
        account: Account,
        has_file: Callable[[dict[str, Any]], bool],
        can_cut: bool,
        stale_reads: frozenset[int],
        redo: tuple[Origin, ...],
    ) -> None:
        self._account = account
        self._lots = account.done_lots
        self._can_cut = can_cut
        self._stale = stale_reads
        self._redo = as_ranges(redo)
        self._is_there = {file["path"]: has_file(file) for file in account.files}
        self._bad = {origin.source for origin in redo if origin.start is None}

    def result(self) -> Settled:
        """Let lots and parts fall until nothing that stands rests on what fell."""
        self._note_unfinished_lots()
        num_bad = -1
        while num_bad != (num_bad := len(self._bad)):
            self._spread()
            for part in self._account.parts:
                self._let_fall(part)
        return self._settled()

    def _note_unfinished_lots(self) -> None:
        named = [origin for part in self._account.parts for origin in part.origins]
        named += [origin for origins in self._lots.values() for origin in origins]
        self._bad.update(origin.source for origin in named if origin.start is None and origin.source not in self._lots)

    def _spread(self) -> None:
        """A lot made of something that must be done anew falls; and with it every lot that it was made of."""
        num_bad = -1
        while num_bad != (num_bad := len(self._bad)):
            for number, origins in self._lots.items():
                if number in self._bad:
                    self._bad.update(origin.source for origin in origins if origin.start is None)
                elif any(self._is_lost(origin) for origin in origins):
                    self._bad.add(number)

    def _is_lost(self, origin: Origin) -> bool:
        """Say whether any of these rows must be done anew."""
        if origin.start is None:
            return origin.source in self._bad
        return origin.source in self._stale or any(True for _ in _overlaps(origin, self._redone(origin.source)))

    def _redone(self, read: int) -> Sequence[Range]:
        return self._redo.get(read, ())

    def _let_fall(self, part: Part) -> None:
        """Note which lots lose rows with files that are gone, and with a part that cannot be cut."""
        if self._can_cut:
            for file, origins in _by_file(part):
                if not self._is_there[file["path"]]:
                    self._fell(origins)
        elif self._is_broken(part):
            self._fell(part.origins)

    def _fell(self, origins: Iterable[Origin]) -> None:
        for origin in origins:
            if origin.start is None:
                self._bad.add(origin.source)

    def _is_broken(self, part: Part) -> bool:
        is_whole = bool(part.origins) and all(self._is_there[file["path"]] for file in part.files)
        return not is_whole or any(self._is_lost(origin) for origin in part.origins)

    def _settled(self) -> Settled:
        settled = Settled()
        safe: list[Origin] = []
        for part in self._account.parts:
            files, origins, gone = self._kept(part)
            settled.gone += gone
            if files:
                settled.parts.append((files, tuple(origins)))
            safe += origins
        settled.done_lots = {number: made for number, made in self._lots.items() if number not in self._bad}
        settled.dropped = [kept for origin in self._account.dropped for kept in self._left_of(origin)]
        settled.done = as_ranges([*safe, *itertools.chain.from_iterable(settled.done_lots.values()), *settled.dropped])
        return settled

    def _kept(self, part: Part) -> tuple[list[dict[str, Any] | CutFile], list[Origin], list[dict[str, Any]]]:
        if not self._can_cut:
            if self._is_broken(part):
                return [], [], list(part.files)
            return list(part.files), list(part.origins), []
        files: list[dict[str, Any] | CutFile] = []
        kept: list[Origin] = []
        gone: list[dict[str, Any]] = []
        for file, origins in _by_file(part):
            if not self._is_there[file["path"]]:
                gone.append(
                    file
                )  # what is left of it, if somebody changed it, is not to be read beside what is made anew
                continue
            keep, left = self._rows_to_keep(origins)
            if keep == [Range(0, file["rows"])]:
                files.append(file)
            else:
                gone.append(file)
                if keep:
                    files.append(CutFile(file, tuple(keep)))
            kept += left
        return files, kept, gone

    def _rows_to_keep(self, origins: Iterable[Origin]) -> tuple[list[Range], list[Origin]]:
        """Return which rows of a file stay, and what they come from."""
        keep: list[Range] = []
        left: list[Origin] = []
        position = 0
        for origin in origins:
            for kept in self._left_of(origin):
                start = position if origin.start is None or kept.start is None else position + kept.start - origin.start
                if keep and keep[-1].stop == start:
                    keep[-1] = Range(keep[-1].start, start + kept.num_rows)
                else:
                    keep.append(Range(start, start + kept.num_rows))
                left.append(kept)
            position += origin.num_rows
        return keep, left

    def _left_of(self, origin: Origin) -> Iterator[Origin]:
        """Yield what of an origin is not to be done anew."""
        source, start, num_rows = origin
        if start is None:
            if source not in self._bad:
                yield origin
            return
        if source in self._stale:
            return
        position = start
        for first, last in _overlaps(origin, self._redone(source)):
            if first > position:
                yield Origin(source, position, first - position)
            position = last
        if position < start + num_rows:
            yield Origin(source, position, start + num_rows - position)


def _overlaps(origin: Origin, ranges: Sequence[Range]) -> Iterator[tuple[int, int]]:
    assert origin.start is not None
    end = origin.start + origin.num_rows
    for start, stop in ranges:
        first, last = max(start, origin.start), min(end if stop is None else stop, end)
        if first < last:
            yield first, last


def _by_file(part: Part) -> Iterator[tuple[dict[str, Any], tuple[Origin, ...]]]:
    """Yield the files of a part with the origins of their rows, which lie in them one after another."""
    position = 0
    for file in part.files:
        yield file, cut_origins(part.origins, position, file["rows"])
        position += file["rows"]
