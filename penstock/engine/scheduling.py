"""Scheduling decisions: which stage starts a task next, and why others do not. Pure, so simulations need no threads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.engine.stage import StageState
from penstock.plan.stages import Exactly

READ_ON_NBYTES, READ_ON_S = 16 * 2**20, 0.1
"""An open file is read on up to these bytes, before its rows are needed, if a batch of it takes less than this time.
The end of a file tells how many rows it has, and so how long the rest takes."""


class Candidate:
    """A stage, by all that decides whether its next task starts."""

    def __init__(self, stage: StageState) -> None:
        self.stage = stage

    @property
    def has_capacity(self) -> bool:
        """A worker is free."""
        stage = self.stage
        if stage.workers is not None and not stage.workers.has_core:
            return False
        return stage.in_flight.resting is not None or stage.num_running < stage.num_workers

    @property
    def has_input(self) -> bool:
        """A task waits, or a resting task can continue."""
        return self._may_start and (self.stage.in_flight.resting is not None or self.stage.input.has_task)

    @property
    def has_part(self) -> bool:
        """Rows wait that are too few for a task, but may leave as one if nothing better can be done."""
        return self._may_start and self.stage.input.has_part

    @property
    def is_wanted(self) -> bool:
        """The queue of the next stage is short, and the reader needs more rows."""
        stage = self.stage
        if stage.in_flight.resting is None and not self._is_wanted_by_reader:
            return False
        taker = stage.downstream
        while taker is not None and taker.workers is None:
            taker = taker.downstream
        if taker is None:
            return True
        num_tasks = taker.input.next_task.num_ready
        num_coming = stage.in_flight.num_rows_running * num_tasks // max(taker.input.inbox.num_rows, 1)
        durations = taker.costs.usual_s, stage.costs.usual_s
        return is_queue_short(num_tasks, taker.num_workers, stage.num_workers, num_coming, *durations)

    @property
    def reads_on(self) -> bool:
        """A file is open, all of its rows are wanted, and few bytes of it wait."""
        stage = self.stage
        if stage.input.reads is None or stage.in_flight.resting is None or stage.is_limited or not self._may_start:
            return False
        return (stage.costs.usual_s or 0.0) < READ_ON_S and self.nbytes_ahead < READ_ON_NBYTES

    @property
    def nbytes_expected(self) -> int:
        """Expected size of the next output, with the copies of its input."""
        stage = self.stage
        num_copies = stage.costs.footprint.num_inputs if stage.in_flight.resting is None else 0
        return stage.next_output_nbytes + num_copies * (stage.input.next_nbytes or 0)

    @property
    def nbytes_ahead(self) -> int:
        """Bytes between this stage and the end: its own outputs and everything that later stages hold."""
        in_flight, taker = self.stage.in_flight, self.stage.downstream
        nbytes = self.stage.resources.results.nbytes_waiting
        while taker is not None:
            nbytes += taker.nbytes_held
            taker = taker.downstream
        return nbytes if in_flight.is_head_resting else nbytes + in_flight.nbytes

    @property
    def _may_start(self) -> bool:
        return not (self.stage.is_done or self.stage.is_finishing or self.stage.must_wait)

    @property
    def _is_wanted_by_reader(self) -> bool:
        stage = self.stage
        if not stage.is_limited:
            return True
        policy, num_rows = stage.stage.inbox, stage.input.inbox.num_rows
        least = min(policy.num_rows, num_rows) if isinstance(policy, Exactly) else 1
        return stage.reader_limit.num_rows_allowed(stage.num_rows_taken) >= least


def pick_stage(stages: Sequence[Candidate], free_bytes: int, is_idle: bool) -> Candidate | None:
    """Return the most downstream stage that may do more work.

    Draining the end first frees memory soonest; only the first megabytes of an open file come before it. A stage with
    nothing ahead of it always qualifies, so one oversized bundle cannot stall the plan. When nothing runs at all, an
    incomplete batch is sent; without one, the query exceeds its memory budget instead of stopping.
    """
    for stage in stages:
        if stage.reads_on and stage.has_capacity and stage.nbytes_ahead + stage.nbytes_expected <= free_bytes:
            return stage
    for stage in reversed(stages):
        is_ready = stage.has_capacity and stage.has_input and stage.is_wanted
        if is_ready and (stage.nbytes_expected <= free_bytes or stage.nbytes_ahead == 0):
            return stage
    if is_idle:
        able = [stage for stage in reversed(stages) if stage.has_capacity]
        part = next((stage for stage in able if stage.has_part), None)
        return part or next((stage for stage in able if stage.has_input), None)
    return None


def is_queue_short(
    num_tasks: int,
    num_takers: int,
    num_feeders: int,
    num_coming: int = 0,
    taker_s: float | None = None,
    feeder_s: float | None = None,
) -> bool:
    """Decide whether a queue needs more tasks. Takers are the workers that take from it; feeders are the workers that
    fill it.

    Two tasks per taker hide the latency of a hand-over. One per feeder covers the time until the feeders' next
    outputs; more would only hold memory. ``num_coming`` tasks, which running feeders will bring, count once the takers
    have enough: 40 downloads are several tasks of a decoder.

    If feeders are quick, fewer tasks suffice than one per feeder: as many as the takers finish in twice the usual
    duration of a feeder's task, and none before the takers have finished one. All coming tasks count then.
    """
    if feeder_s is not None:
        num_used = math.ceil(2 * num_takers * feeder_s / taker_s) if taker_s else 0
        if num_used < num_feeders:
            return num_tasks + num_coming < 2 * num_takers + num_used
    return num_tasks < 2 * num_takers or num_tasks + num_coming < 2 * num_takers + num_feeders


def num_admitted(waiting: Sequence[int], num_running: int, reserved: int, budget: int) -> int:
    """Return how many of the tasks that wait for memory on one node may start now: the first ones that fit.

    ``waiting`` has the bytes of each, in order; ``reserved`` bytes belong to the tasks that run on the node. If none
    runs, the first may start whatever it needs, so that no task waits forever.

    >>> num_admitted([40, 30, 20], num_running=1, reserved=20, budget=100)
    2
    >>> num_admitted([90, 1], num_running=1, reserved=20, budget=100), num_admitted([500, 1], 0, 0, budget=100)
    (0, 1)
    """
    for number, nbytes in enumerate(waiting):
        is_alone = not num_running and not number
        reserved += nbytes
        if reserved > budget and not is_alone:
            return number
    return len(waiting)
