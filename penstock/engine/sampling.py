"""The state of a running query, sampled a few times a second for progress, statistics and viewers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.engine.lineage import is_row_preserving, kind_of
from penstock.engine.scheduling import Candidate
from penstock.engine.stage import StageState
from penstock.events.events import CallCounts, Measures, QuerySampled, StageInfo, StageKind, StageSample, WaitingFor
from penstock.plan.stages import CallBatch, CallUdf, Cut, Read, RunRelation, Stage, WriteOut
from penstock.protocols import Priced

INTERVAL_S = 0.2
LOOK_AHEAD_S = 0.001  # for each sample

Total = tuple[int, bool]  # a number of rows, and whether it is exact


class Sampler:
    """Makes a sample of the stages every ``INTERVAL_S``. ``measure`` returns the figures that belong to no stage."""

    def __init__(self, memory_bytes: int, clock: Callable[[], float], measure: Callable[[], Measures]) -> None:
        self._memory_bytes = memory_bytes
        self._clock = clock
        self._measure = measure
        self._due_at_s = 0.0
        self.reader_s = 0.0  # seconds that the query has waited for the reader of its rows
        self.is_paused = False

    def start(self) -> None:
        self._due_at_s = self._clock() + INTERVAL_S

    def sample_if_due(self, stages: Sequence[StageState], nbytes_waiting: int) -> QuerySampled | None:
        now = self._clock()
        if now < self._due_at_s:
            return None
        for state in stages:
            state.count_rows_ahead(now + LOOK_AHEAD_S)
        self._due_at_s = self._clock() + INTERVAL_S
        return self.sample(stages, nbytes_waiting)

    def sample(self, stages: Sequence[StageState], nbytes_waiting: int) -> QuerySampled:
        totals: list[Total | None] = []
        samples = []
        for state in stages:
            inputs = [totals[each.index] for each in state.inputs]
            totals.append(total_rows(state, inputs))
            samples.append(stage_sample(state, totals[-1], call_counts(state, inputs)))
        nbytes_held = nbytes_waiting + sum(each.nbytes_held for each in samples)
        return QuerySampled(
            self._clock(),
            tuple(samples),
            nbytes_held,
            self._memory_bytes,
            self.reader_s,
            self._measure(),
            self.is_paused,
        )


def stage_sample(state: StageState, total: Total | None, calls: CallCounts | None) -> StageSample:
    num_rows, is_exact = total or (None, False)
    return StageSample(
        state.index,
        state.num_running,
        state.num_workers,
        state.input.inbox.num_rows,
        state.input.inbox.nbytes,
        state.nbytes_held - state.in_flight.nbytes_expected,
        waiting_for(state),
        num_rows,
        is_exact,
        calls,
    )


def total_rows(state: StageState, inputs: Sequence[Total | None]) -> Total | None:
    """Return the rows that a stage will give, or write; None if unknown so far. ``inputs`` are the stages that feed
    it."""
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
    num_done = state.num_rows_taken - state.in_flight.num_rows_running
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
    if num_rows is not None and counter.num_left_out:
        num_seen = counter.num_chosen + counter.num_left_out
        num_rows, is_exact = round(num_rows * counter.num_chosen / num_seen), is_exact and num_seen == num_rows
    return CallCounts(
        counter.num_answered,
        counter.num_failed,
        0 if state.is_done else counter.num_in_flight,
        num_rows,
        is_exact,
        counter.num_replies,
        counter.reply_s,
        counter.reply_s2,
        tuple(counter.reply_times),
    )


def _sum(inputs: Sequence[Total | None]) -> Total | None:
    known = [each for each in inputs if each is not None]
    if len(known) < len(inputs):
        return None
    return sum(num_rows for num_rows, _ in known), all(is_exact for _, is_exact in known)


def waiting_for(state: StageState) -> WaitingFor | None:
    """Return the thing that a stage waits for, once the executor has dispatched all it may.

    A stage that works on the last of its input waits for its workers.
    """
    if state.is_done or state.gate is not None:
        return None
    if state.is_finishing or 0 < state.num_workers <= state.num_running:
        return "workers"
    candidate = Candidate(state)
    if candidate.has_input:
        return "output" if candidate.has_capacity else "workers"
    return "workers" if state.num_running and all(each.is_done for each in state.inputs) else "input"


def stage_info(index: int, stage: Stage) -> StageInfo:
    writes = stage.inputs[0] if isinstance(stage.work, WriteOut) else None
    return StageInfo(index, stage.name, writes, stage.inputs, _kind(stage), _model(stage))


def _kind(stage: Stage) -> StageKind:
    match stage.work:
        case None:
            return "limit" if isinstance(stage.inbox, Cut) else "concat"
        case Read():
            return "read"
        case CallUdf(call) if call.udf.target.is_async:
            return "async function"
        case CallBatch(spec) if spec.target.is_async:
            return "async function"
        case CallUdf() | CallBatch():
            return "function"
        case RunRelation():
            return "relation"
        case WriteOut():
            return "write"
        case _:
            return "expressions"


def _model(stage: Stage) -> tuple[str, str] | None:
    arguments = stage.work.spec.target.init_args if isinstance(stage.work, CallUdf) else ()
    return next((each.billed_as for each in arguments if isinstance(each, Priced)), None)
