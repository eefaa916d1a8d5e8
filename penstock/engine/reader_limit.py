"""Limit the calls of a query whose reader may stop at any row.

A stage that makes calls starts with few rows and takes more as results are read. So a reader who wants ten rows does
not pay for thousands of calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.in_flight import InFlight
from penstock.engine.inbox import Gate
from penstock.engine.resources import Results
from penstock.plan.stages import (
    CallBatch,
    CallUdf,
    Cut,
    Evenly,
    Exactly,
    ExplodeLists,
    Gathered,
    Melt,
    RunRelation,
    Stage,
    TakeSample,
    Transform,
    Work,
)

FIRST_ROWS = 16
MAX_WASTE = 4


class ReaderLimit:
    """Says how many rows a stage may take. ``least_read`` is the least that the reader needs; None: all rows.

    ``rows`` counts the rows in and out of the stage. ``taker`` is the limit of the next stage, and ``earlier`` are the
    counts of the inputs that the next stage takes before this one. The last stage gives its rows to ``results``.
    """

    def __init__(
        self,
        stage: Stage,
        rows: Gate | InFlight,
        taker: ReaderLimit | None,
        earlier: Sequence[Gate | InFlight],
        results: Results,
        least_read: int | None,
    ) -> None:
        self._rows = rows
        self._taker = taker
        self._earlier = earlier
        self._results = results
        self._next_cut: Gate | None = None if taker is None else taker._cut
        self._cut: Gate | None = self._next_cut
        if isinstance(rows, Gate) and rows.num_rows_missing is not None:
            self._cut = rows
        self._makes_calls = isinstance(stage.work, CallUdf | CallBatch)
        least_output = least_read if taker is None else taker._least_input
        is_batched = isinstance(stage.work, CallUdf) and stage.work.call.udf.builtin.is_batched
        needs_all = is_batched and self._next_cut is None
        self._least_input: int | None = None if needs_all else least_input(stage, least_output)
        self.may_stop_early = least_output is not None

    @property
    def is_needed(self) -> bool:
        """False if the stage may take any number of rows: it makes no calls, or the reader needs all rows."""
        return self._least_input is not None and self._makes_calls

    def num_rows_allowed(self, num_rows_taken: int) -> int:
        """Return how many more rows the stage may take now, if the limit ``is_needed``."""
        assert self._least_input is not None
        cut = self._next_cut
        found, missing = (0, None) if cut is None else (cut.num_rows_in, cut.num_rows_missing)
        return rows_to_take(self._num_rows_settled, self._least_input, found, missing) - num_rows_taken

    @property
    def _num_rows_settled(self) -> int:
        """The number of input rows whose results the reader has used, or that gave none."""
        if isinstance(self._rows, Gate) and not self.may_stop_early:
            return self._rows.num_rows_in
        return self._rows.num_rows_settled(self._num_rows_used)

    @property
    def _num_rows_used(self) -> int:
        """The number of output rows that the reader has used, or that later stages have dropped."""
        if self._taker is None:
            return self._results.num_rows_used
        return self._taker._num_rows_settled - sum(rows.num_rows_out for rows in self._earlier)


def least_input(stage: Stage, least_output: int | None) -> int | None:
    """Return how many input rows a stage needs at least to give ``least_output`` rows; None if it needs all rows.

    >>> least_input(Stage("", None, inbox=Cut(5, offset=2)), None)
    7
    >>> least_input(Stage("", Transform(()), inbox=Exactly(64)), 7)
    64
    """
    match stage.inbox, stage.work:
        case (Cut(int(num_rows), offset), _):
            return offset + (num_rows if least_output is None else min(num_rows, least_output))
        case (Evenly() | Gathered(), _) | (_, RunRelation()):
            return None
    if least_output is None:
        return None
    least = 1 if _may_add_rows(stage.work) else least_output
    return -(-least // stage.inbox.num_rows) * stage.inbox.num_rows if isinstance(stage.inbox, Exactly) else least


def _may_add_rows(work: Work | None) -> bool:
    match work:
        case Transform(steps):
            return any(isinstance(step, ExplodeLists | Melt | TakeSample) for step in steps)
        case CallUdf(call):
            return call.udf.target.is_generator
        case CallBatch(spec):
            return spec.verb in ("map_batches", "map_groups", "flat_map")
        case _:
            return False


def rows_to_take(num_settled: int, least: int, num_found: int = 0, num_missing: int | None = None) -> int:
    """Return how many rows a stage of calls may have taken in all, while its reader may still stop early.

    ``num_settled`` of its rows are settled: their results were read, or dropped on the way. All of these were needed,
    so taking four times as many costs at most four times what is needed. If a limit still misses ``num_missing`` rows
    after ``num_found``, the share of rows found so far shows how many more are needed; half as many again allow for
    chance.

    >>> rows_to_take(0, least=1), rows_to_take(0, least=100), rows_to_take(100, least=1)
    (16, 100, 416)
    >>> rows_to_take(100, least=100, num_found=50, num_missing=50)
    250
    """
    most = MAX_WASTE * num_settled + FIRST_ROWS
    if num_missing is not None and num_found:
        most = min(most, num_settled + max(FIRST_ROWS, 3 * num_missing * num_settled // (2 * num_found)))
    return max(most, least)
