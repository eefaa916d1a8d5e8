"""Which stage runs next: pure functions of the stages' state, so that they can be simulated without threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock.plan.stages import AtMost


class Candidate(Protocol):
    """What the scheduler must know of a stage."""

    @property
    def has_input(self) -> bool:
        """A task waits, or one that rests can be carried on."""

    @property
    def has_part(self) -> bool:
        """Rows wait that are fewer than a task should have."""

    @property
    def has_capacity(self) -> bool:
        """A worker is free for it."""

    @property
    def is_wanted(self) -> bool:
        """What comes next has not enough to do already."""

    @property
    def nbytes_ahead(self) -> int:
        """Bytes between this stage and the end: its own outputs and all that is held further on."""

    @property
    def nbytes_expected(self) -> int:
        """What the next output is expected to take."""


CandidateT = TypeVar("CandidateT", bound=Candidate)


def pick_stage(stages: Sequence[CandidateT], free_bytes: int, is_idle: bool) -> CandidateT | None:
    """Return the most downstream stage that may do more work.

    Draining the end first frees memory soonest. A stage with nothing ahead of it always qualifies, so one oversized
    bundle cannot stall the plan. When nothing runs at all, an incomplete batch leaves; if there is none, the budget
    gives way rather than the query.
    """
    for stage in reversed(stages):
        is_ready = stage.has_input and stage.has_capacity and stage.is_wanted
        if is_ready and (stage.nbytes_expected <= free_bytes or stage.nbytes_ahead == 0):
            return stage
    if is_idle:
        part = next((stage for stage in reversed(stages) if stage.has_part and stage.has_capacity), None)
        return part or next((stage for stage in reversed(stages) if stage.has_input and stage.has_capacity), None)
    return None


def is_queue_short(num_tasks: int, num_takers: int, num_feeders: int) -> bool:
    """Say whether a queue should be fed, by the workers that take from it and those that feed it.

    Two tasks a taker hide the latency of a hand-over. One for each feeder is what feeders that keep up at all need to
    cover the time until their next outputs; more would only hold memory.
    """
    return num_tasks < 2 * num_takers + num_feeders


FIRST_INFLATION = 50  # what a stage is taken to make of a byte before it has shown it; a decoded JPEG is about as bad


def expected_output(nbytes_in: int, total_in: int, total_out: int, first: int = FIRST_INFLATION) -> int:
    """Return what ``nbytes_in`` will become, by what the stage made of its input so far; at first, the worst.

    With much memory that makes no difference; with little, one task shows what the others will need.
    """
    return -(-nbytes_in * total_out // total_in) if total_in else nbytes_in * first


@dataclass(frozen=True, slots=True)
class Footprint:
    """How often a task holds its data while it runs: its input, besides the bundles that it came as, and its output.

    A function gets a copy of its input that it may change, and gives objects that are then copied into Arrow memory.
    The user's own scratch memory is not known, and not counted.
    """

    num_inputs: int = 0
    num_outputs: int = 1


LEAST_FOOTPRINT = Footprint()

TASKS_PER_CORE = 8
LEAST_INPUT_NBYTES = 2**20  # to cut a task smaller costs more than it saves


def task_share(memory_bytes: int, num_cores: int) -> int:
    """Return how large the input or the output of a task may be, so that tasks on all cores and their queues fit.

    >>> task_share(2 * 10**9, num_cores=2)
    125000000
    """
    return memory_bytes // (TASKS_PER_CORE * max(num_cores, 1))


def most_input(share: int, total_in: int, total_out: int) -> int:
    """Return how many bytes a task may take in so that neither they nor what becomes of them is more than ``share``.

    >>> most_input(10**9, total_in=0, total_out=0), most_input(10**9, 10, 40), most_input(10**9, 40, 10)
    (20000000, 250000000, 1000000000)
    """
    wanted = share * total_in // max(total_in, total_out) if total_in else share // FIRST_INFLATION
    return max(wanted, LEAST_INPUT_NBYTES)


PACED_TASK_S = 0.1
MAX_PACED_ROWS = 2**16
QUICK_ROW_S = 1e-4  # what a row takes at most that waits for nobody


def at_most_rows(most_rows: int, num_rows: int, busy_s: float, policy: AtMost) -> int:
    """Return how many rows a task may have, up to now ``most_rows``, after one of ``num_rows`` took ``busy_s``.

    >>> policy = AtMost(64, quick_rows=1024)
    >>> at_most_rows(64, 64, 0.001, policy), at_most_rows(1024, 1024, 0.02, policy), at_most_rows(1024, 64, 0.5, policy)
    (256, 1024, 64)
    """
    if busy_s > QUICK_ROW_S * num_rows:
        return policy.num_rows
    return max(most_rows, min(4 * num_rows, policy.quick_rows or policy.num_rows))


def paced_rows(num_rows: int, busy_s: float) -> int:
    """Return how many rows the next task should have, after ``num_rows`` took ``busy_s``.

    It grows at most eightfold at a time, as the first rows may be cheaper than the rest.

    >>> paced_rows(32, 0.001), paced_rows(1000, 10.0), paced_rows(65536, 0.01)
    (256, 10, 65536)
    """
    wanted = int(PACED_TASK_S * num_rows / max(busy_s, 1e-9))
    return max(1, min(wanted, 8 * num_rows, MAX_PACED_ROWS))


def gathering_s(seconds: float, elapsed_s: float) -> float:
    """Return how long rows are gathered before they are written: ``seconds`` at first, more as a query takes longer.

    A fiftieth of the time is what a crash may cost; and a night's work makes hundreds of files, not thousands.

    >>> gathering_s(5, elapsed_s=10), gathering_s(5, elapsed_s=1000), gathering_s(5, elapsed_s=100_000)
    (5, 20.0, 60)
    """
    return min(max(seconds, elapsed_s / 50), 12 * seconds)
