"""Scheduling decisions: which stage starts a task next, and why others do not. Pure, so simulations need no threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Candidate(Protocol):
    """A stage, reduced to everything that decides whether its next task starts."""

    @property
    def has_capacity(self) -> bool:
        """True if a worker is free."""

    @property
    def has_input(self) -> bool:
        """True if a task waits, or a resting task can continue."""

    @property
    def has_part(self) -> bool:
        """True if rows wait that are too few for a task, but may leave as one if nothing better can be done."""

    @property
    def is_wanted(self) -> bool:
        """True if the queue of the next stage is short, and the reader needs more rows."""

    @property
    def nbytes_expected(self) -> int:
        """Expected size of the next output, with the copies of its input."""

    @property
    def nbytes_ahead(self) -> int:
        """Bytes between this stage and the end: its own outputs and all that later stages hold."""


Chosen = TypeVar("Chosen", bound=Candidate)


def pick_stage(stages: Sequence[Chosen], free_bytes: int, is_idle: bool) -> Chosen | None:
    """Return the most downstream stage that may do more work.

    Draining the end first frees memory soonest. A stage with nothing ahead of it always qualifies, so one oversized
    bundle cannot stall the plan. When nothing runs at all, an incomplete batch is sent; without one, the query
    exceeds its memory budget instead of stopping.
    """
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
    """Decide whether a queue needs more tasks. Takers are the workers that it serves, feeders the ones that fill it.

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
