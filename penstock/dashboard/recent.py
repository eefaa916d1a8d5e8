"""The last rows of a query that runs, in bounded memory."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.cache.ledger.maintenance import has_records
from penstock.cache.ledger.open_ledgers import current_ledger, job_folder
from penstock.config import config
from penstock.contracts import Bundle, RemoteBatch, Report, WrittenOutput
from penstock.dashboard.row_pages.found_rows import (
    EMPTY_PAGE,
    PAGE_ROWS,
    FoundRows,
    RowsRequest,
    joined,
    place_of,
    shown_rows,
)
from penstock.dashboard.row_pages.prompts import PromptTemplate
from penstock.dashboard.row_pages.row_search import NUMBER, neighbours, selected
from penstock.events.events import RowError, StageInfo
from penstock.frame.read.memory import from_arrow
from penstock.observe.printable import format_bytes
from penstock.plan.stages import CallBatch, CallUdf
from penstock.protocols import Ledger
from penstock.types.row_numbers import ROW_NUMBER, RowPlace

MAX_ROWS = 200
MAX_NBYTES = 32 << 20
ROWS_OF_OUTPUT = 10  # the first rows, and as many failed rows
INTERVAL_S = 0.2  # between outputs that are looked at, unless rows failed or few have come so far
FETCH_INTERVAL_S = 1.0  # between outputs that are fetched from other processes, also if rows failed


def watched_stage(stages: Sequence[StageInfo]) -> int:
    """Return the stage whose rows are shown: the last one that calls a function, or the last one that has rows."""
    calls = [each.index for each in stages if each.kind in ("function", "async function")]
    return [0, *(each.index for each in stages if each.kind not in ("write", "limit", "concat")), *calls][-1]


class RecentRows:
    """The last rows of one stage, with their inputs and errors. Rows are copied, so that no batch stays in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: deque[FoundRows] = deque()  # the oldest first, all with the same columns
        self.prompts: dict[str, PromptTemplate] = {}
        self._num_rows = 0
        self._looked_at_s = 0.0
        self._fetching: threading.Thread | None = None
        self._note = ""  # why there are no rows
        self._context = copy_context()  # of the query: it names the ledger

    def add(self, work: object, report: Report) -> None:
        """Take some rows of the output of a task. A thread fetches rows that other processes hold."""
        output, task, now = report.output, report.task, time.monotonic()
        if output is None or not output.num_rows:
            return
        if not self._num_rows:
            self._context = copy_context()
        start, self._num_rows = self._num_rows, self._num_rows + output.num_rows
        is_remote = isinstance(output.handle, RemoteBatch)
        waited_s = now - self._looked_at_s
        is_wanted = bool(report.errors) or self._num_rows <= MAX_ROWS
        if waited_s < FETCH_INTERVAL_S if is_remote else not is_wanted and waited_s < INTERVAL_S:
            return
        errors, inputs = dict[int, RowError](), tuple[Bundle, ...]()
        if task is not None and isinstance(task.item, tuple) and task.num_rows == output.num_rows:  # row for row
            start, inputs = task.first_row, task.item
            errors = {each.position - start: each for each in report.errors if each.position is not None}
        if isinstance(output.handle, WrittenOutput):
            if (rows := output.handle.first_rows).num_rows:
                errors = {row: error for row, error in errors.items() if row < rows.num_rows}
                self._look(work, Bundle(rows, rows.num_rows, rows.nbytes), (), start, errors)
            self._note = "The workers write these rows themselves, and they are too large to show."
        elif not is_remote:
            self._look(work, output, inputs, start, errors)
        elif sum(each.nbytes for each in (output, *inputs)) > MAX_NBYTES:
            self._note = f"Batches of more than {format_bytes(MAX_NBYTES)} are not fetched from the cluster."
        elif self._fetching is None or not self._fetching.is_alive():
            fetch = partial(self._look, work, output, inputs, start, errors)
            self._fetching = threading.Thread(target=_suppressed, args=(fetch,), name="penstock-rows", daemon=True)
            self._fetching.start()
        self._looked_at_s = now

    def _look(
        self, work: object, output: Bundle, inputs: Sequence[Bundle], start: int, errors: Mapping[int, RowError]
    ) -> None:
        kept = sorted({*range(min(ROWS_OF_OUTPUT, output.num_rows)), *list(errors)[:ROWS_OF_OUTPUT]})
        columns = {**_taken(inputs, kept), **_taken([output], kept)}
        row_numbers = columns.pop(ROW_NUMBER, None)
        positions, failed = [start + row for row in kept], [errors.get(row) for row in kept]
        places = _places(work, row_numbers, positions) if inputs else list(map(place_of, failed))
        found = FoundRows(pa.RecordBatch.from_pydict(columns), positions, failed, places)
        if found.batch.nbytes <= MAX_NBYTES:
            self._keep(found)
        if isinstance(work, CallUdf) and not self.prompts and (template := PromptTemplate.of(work.call)) is not None:
            self.prompts = {work.column: template}

    def _keep(self, found: FoundRows) -> None:
        with self._lock:
            if self._pieces and not self._pieces[-1].batch.schema.equals(found.batch.schema):
                self._pieces.clear()
            self._pieces.append(found)
            while (
                sum(len(piece.numbers) for piece in self._pieces) > MAX_ROWS
                or sum(piece.batch.nbytes for piece in self._pieces) > MAX_NBYTES
            ):
                self._pieces.popleft()

    def _open_ledger(self) -> Ledger | None:
        """Return the ledger of the query's calls, or None if it has none. The caller must close it."""
        own = self._context.run(job_folder)
        return None if own and not has_records(Path(own)) else self._context.run(current_ledger)

    def page(self, asked: RowsRequest) -> dict[str, Any]:
        """Return a page of the rows, the newest first. ``first`` counts rows from there, or names the row alone."""
        if (found := self._found()) is None:
            return EMPTY_PAGE | {"note": self._note}
        chosen = _chosen(found, asked)
        if asked.is_alone:
            rows = range(len(found.numbers))
            alone = [row for row in rows if found.numbers[row] == asked.first][:1]
            if asked.jump is not None:
                wanted = [row for row in rows if (place := found.places[row]) and place.number == asked.jump]
                alone = wanted[:1]
            before, after = neighbours([found.numbers[row] for row in chosen], asked.first)
            shown = shown_rows(found.take(alone), asked, self.prompts, self._open_ledger)
            return shown | {"before": before, "after": after}
        end = asked.first + PAGE_ROWS
        page = shown_rows(found.take(chosen[asked.first : end]), asked, self.prompts, self._open_ledger)
        return page | {"num_rows": len(chosen), "num_found": len(chosen), "next": end if end < len(chosen) else None}

    def table(self, asked: RowsRequest) -> pa.Table | None:
        """Return the matching rows, the newest first; None if no row matches."""
        found = self._found()
        return None if found is None else pa.Table.from_batches([found.take(_chosen(found, asked)).batch])

    def rows(self, numbers: Sequence[int]) -> FoundRows | None:
        """Return the rows with these numbers that are still here; None if no row is left."""
        if (found := self._found()) is None:
            return None
        places = {number: row for row, number in enumerate(found.numbers)}
        return found.take([places[number] for number in numbers if number in places])

    def _found(self) -> FoundRows | None:
        with self._lock:
            pieces = list(self._pieces)
        if not pieces:
            return None
        found = joined(pieces)
        return found.take(range(len(found.numbers) - 1, -1, -1))


def _chosen(found: FoundRows, asked: RowsRequest) -> Sequence[int]:
    """Return the places of the rows that match, sorted or the newest first."""
    if not asked.is_filtered:
        return range(len(found.numbers))
    failed = {row: error for row, error in enumerate(found.errors) if error is not None}
    with config(progress=False, dashboard=False):
        rows = selected(from_arrow(pa.Table.from_batches([found.batch])), failed, asked)
        places: list[int] = rows.select(NUMBER).to_pydict()[NUMBER]
    return places


def _places(work: object, row_numbers: pa.Array | None, positions: Sequence[int]) -> list[RowPlace | None]:
    """Return the input rows of the query; if they are unknown, the input rows of the function."""
    if not isinstance(work, CallUdf | CallBatch):
        return [None] * len(positions)
    if work.row_inputs is not None and row_numbers is not None:
        return [work.row_inputs.place(number) for number in row_numbers.to_pylist()]
    return [RowPlace(f"the input of {work.spec.name}", position) for position in positions]


def _taken(bundles: Sequence[Bundle], rows: Sequence[int]) -> dict[str, pa.Array]:
    """Return copies of some rows of bundles that follow each other."""
    if not bundles:
        return {}
    batches = [each.handle.fetch() if isinstance(each.handle, RemoteBatch) else each.handle for each in bundles]
    cut = [batch.slice(each.offset, each.num_rows) for batch, each in zip(batches, bundles, strict=True)]
    table = pa.Table.from_batches(cut)
    taken = table.take(pa.array(rows, pa.int64())).combine_chunks()
    return {name: column.chunk(0) for name, column in zip(taken.column_names, taken.columns, strict=True)}


def _suppressed(look: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):  # the query may have ended, and its cluster may be gone
        look()
