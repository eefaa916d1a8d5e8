"""How far a stage is: the rows that it will give, and the calls that it has made, for samples of a running query."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.lineage import is_row_preserving, kind_of
from penstock.engine.stage import StageState
from penstock.events.events import CallCounts
from penstock.plan.stages import CallBatch, RunRelation, WriteOut

Total = tuple[int, bool]  # a number of rows, and whether it is exact


def total_rows(state: StageState, inputs: Sequence[Total | None]) -> Total | None:
    """Return the rows that a stage will give, or write; None if unknown so far. ``inputs`` are those that feed it."""
    work, num_rows_out = state.stage.work, state.num_rows_out
    if state.is_done and not state.is_cut_off and not isinstance(work, WriteOut):
        return num_rows_out, True
    if state.input.reads is not None:
        return state.input.reads.total_rows(num_rows_out)
    if (known := _sum(inputs)) is None:
        return None
    num_rows_in, is_exact = known
    if state.gate is not None:
        return state.gate.total_rows(num_rows_in), is_exact
    if kind_of(work) in ("rows", "write") and is_row_preserving(getattr(work, "steps", ())):
        return num_rows_in, is_exact
    num_done = state.num_rows_done
    if isinstance(work, CallBatch) and not num_done:
        return num_rows_in, False  # most functions of batches give as many rows as they take
    if isinstance(work, RunRelation) or not num_done:
        return None
    return round(num_rows_out * num_rows_in / num_done), False


def call_counts(state: StageState, inputs: Sequence[Total | None]) -> CallCounts | None:
    """Return the calls so far; None if the pool does not count them, or a call may give several rows."""
    counter = None if state.workers is None else state.workers.call_counter
    if counter is None or kind_of(state.stage.work) != "rows":
        return None
    num_rows, is_exact = _sum(inputs) or (None, False)
    return CallCounts(
        counter.num_answered,
        counter.num_failed,
        0 if state.is_done else counter.num_in_flight,
        num_rows,
        is_exact,
        counter.num_replies,
        counter.reply_s,
        counter.reply_s2,
    )


def _sum(inputs: Sequence[Total | None]) -> Total | None:
    known = [each for each in inputs if each is not None]
    if len(known) < len(inputs):
        return None
    return sum(num_rows for num_rows, _ in known), all(is_exact for _, is_exact in known)
