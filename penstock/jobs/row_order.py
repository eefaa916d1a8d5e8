"""Put the rows of a job in the order of its input.

Recomputed rows, such as rows that had failed, go to new files. If the result is ordered, the commit merges them with
the rows that stayed, and gives each file a name that sorts by its position.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.contracts import Origin, cut_origins
from penstock.jobs.reconcile import File, rows_by_file
from penstock.jobs.state import JobState

MAX_NAME = 180  # characters of a name; with longer ones, all files get new names


@dataclass(slots=True)
class OrderedFile:
    """A file of the result: ``file`` as it is, or rows of several files under a new ``name``."""

    pieces: list[tuple[File, int, int]] = field(default_factory=list)  # ranges of rows
    origins: list[Origin] = field(default_factory=list)
    file: File | None = None
    name: str = ""

    @property
    def num_rows(self) -> int:
        return sum(stop - start for _, start, stop in self.pieces)


def in_input_order(
    state: JobState, positions: Mapping[int, tuple[int, int]], run_id: str, max_rows: int
) -> list[OrderedFile]:
    """Return the files of a result in input order. ``positions`` gives the place of each read among all reads.

    A file whose rows are already in their places stays. A new file has at most ``max_rows``.
    """
    files = _arranged(state, positions, max_rows)
    if _name_files(files, run_id, lambda name, following: following is None or name < following):
        _name_files(files, run_id, lambda name, following: False)
    return files


def _arranged(state: JobState, positions: Mapping[int, tuple[int, int]], max_rows: int) -> list[OrderedFile]:
    """Arrange the rows of all files.

    A file whose rows follow each other stays, unless it is small and lies between the rows of another file.
    """
    pieces = [
        (_position(origin, state, positions), file, start, origin)
        for part in state.parts
        for file, origins in rows_by_file(part)
        for start, origin in zip(
            itertools.accumulate((each.num_rows for each in origins), initial=0), origins, strict=False
        )
    ]
    pieces.sort(key=lambda piece: piece[0])  # stable: pieces of one lot stay in order
    runs = [(file, list(run)) for file, run in itertools.groupby(pieces, key=lambda piece: piece[1])]
    num_left = Counter(file["path"] for file, _ in runs)
    num_runs, begun = dict(num_left), set[str]()  # files with rows before and after
    arranged: list[OrderedFile] = []
    for file, run in runs:
        path, starts = file["path"], [start for _, _, start, _ in run]
        num_left[path] -= 1
        begun = begun | {path} if num_left[path] else begun - {path}
        may_stay = not begun or file["rows"] * 2 >= max_rows
        if num_runs[path] == 1 and may_stay and starts == sorted(starts):
            arranged.append(OrderedFile([(file, 0, file["rows"])], [origin for *_, origin in run], file))
            continue
        for _, _, start, origin in run:
            _add_rows(arranged, file, start, origin, max_rows)
    return arranged


def _position(origin: Origin, state: JobState, positions: Mapping[int, tuple[int, int]]) -> tuple[int, int, int]:
    """Return the scan, the number of the read and the row that an output row was made from."""
    while origin.start is None:
        made_from = state.done_lots.get(origin.source)
        if not made_from:
            return sys.maxsize, 0, 0
        origin = made_from[0]
    return *positions.get(origin.source, (sys.maxsize, origin.source)), origin.start


def _add_rows(arranged: list[OrderedFile], file: File, start: int, origin: Origin, max_rows: int) -> None:
    """Add rows to the last file, and to further files if it is full."""
    position = 0
    while position < origin.num_rows:
        if not arranged or arranged[-1].file is not None or arranged[-1].num_rows >= max_rows:
            arranged.append(OrderedFile())
        last = arranged[-1]
        num_rows = min(origin.num_rows - position, max_rows - last.num_rows)
        first = start + position
        if last.pieces and last.pieces[-1][0] is file and last.pieces[-1][2] == first:
            last.pieces[-1] = (file, last.pieces[-1][1], first + num_rows)
        else:
            last.pieces.append((file, first, first + num_rows))
        last.origins += cut_origins((origin,), position, num_rows)
        position += num_rows


def _name_files(files: list[OrderedFile], run_id: str, may_stay: Callable[[str, str | None], bool]) -> bool:
    """Name the new files, from the last to the first, so that names sort as the files do; return True if one is long.

    A name with a suffix behind its stem sorts right before the name itself: ``a-1.parquet`` before ``a.parquet``.
    """
    following: str | None = None
    stem = f"{run_id}-end"
    for number, each in reversed(list(enumerate(files))):
        if each.file is not None and may_stay(each.file["path"], following):
            following = each.file["path"]
            stem = f"{following.partition('.')[0]}-{run_id}"
        else:
            each.file = None
            following = each.name = f"{stem}-{number:06d}"
    return any(len(each.name) > MAX_NAME for each in files)
