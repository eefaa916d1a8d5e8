"""Totals of one stage of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.events.events import CallCounts, StageInfo, StageKind, StageSample


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The progress of a stage, in answered and failed calls if it makes calls, else in rows.

    ``total`` is None if unknown.
    """

    num_done: int
    total: int | None
    is_exact: bool


@dataclass(slots=True)
class StageStats:
    """Totals of one stage. ``num_failed`` counts rows that are null or missing because their function failed.

    ``busy_s`` adds up all workers, so it can exceed ``wall_s``, the time from the start of the query to the end of the
    stage (None while it runs). ``waited_workers_s`` is the time for which all its workers were busy. ``batch_rows`` is
    the batch size found by measurement. ``peak_nbytes`` is the most data that it held.
    """

    stage: str
    num_rows: int = 0
    nbytes: int = 0
    num_bundles: int = 0
    num_failed: int = 0
    busy_s: float = 0.0
    wall_s: float | None = None
    batch_rows: int | None = None
    waited_input_s: float = 0.0
    waited_output_s: float = 0.0
    waited_workers_s: float = 0.0
    peak_nbytes: int = 0
    num_workers: int = 0
    writes: int | None = None  # the stage whose rows a write counts
    kind: StageKind = "expressions"
    model: tuple[str, str] | None = None
    inputs: tuple[int, ...] = ()
    sample: StageSample | None = None  # the last one
    is_limited: bool = False  # a limit behind it will end it
    num_written: int = 0  # rows that a write has taken, at the last sample

    @staticmethod
    def of(info: StageInfo) -> StageStats:
        return StageStats(info.name, writes=info.writes, kind=info.kind, model=info.model, inputs=info.inputs)

    @property
    def has_all_rows(self) -> bool:
        """True if the stage has given all its rows and is about to end."""
        sample = self.sample
        return sample is not None and sample.is_total_exact and self.num_rows == sample.total_rows

    @property
    def calls(self) -> CallCounts | None:
        """The calls so far; None for a stage that does not count them."""
        return None if self.sample is None else self.sample.calls

    @property
    def has_begun(self) -> bool:
        """True if the stage has given rows, or has rows to work on."""
        sample = self.sample
        return bool(self.num_rows or (sample is not None and (sample.num_running or sample.num_rows_queued)))

    @property
    def has_done_some(self) -> bool:
        """True if the stage has given rows, or some of its calls have ended."""
        return bool(self.num_rows or (self.calls is not None and self.calls.num_done))

    @property
    def num_failed_so_far(self) -> int:
        """The number of failed rows. Rows of calls count at once, others with their bundle."""
        return max(self.num_failed, 0 if self.calls is None else self.calls.num_failed)

    def progress(self, stages: Sequence[StageStats]) -> StageProgress:
        """Return how far the stage is; ``stages`` are all stages of the query. A stage that a limit will end has no
        total."""
        sample, calls = self.sample, self.calls
        if self.is_limited:
            num_done, is_done = rows_done(stages, self) if calls is None else calls.num_done, self.wall_s is not None
            return StageProgress(num_done, num_done if is_done else None, is_done)
        if calls is not None:
            return StageProgress(calls.num_done, calls.total_rows, calls.is_total_exact)
        total, is_exact = (None, False) if sample is None else (sample.total_rows, sample.is_total_exact)
        return StageProgress(rows_done(stages, self), total, is_exact)

    def add_sample(self, sample: StageSample, seconds: float) -> None:
        """Add a state of the stage and the time that it lasted."""
        self.sample = sample
        self.peak_nbytes = max(self.peak_nbytes, sample.nbytes_held)
        self.num_workers = max(self.num_workers, sample.num_workers)
        match sample.waiting_for:
            case "input":
                self.waited_input_s += seconds
            case "output":
                self.waited_output_s += seconds
            case "workers":
                self.waited_workers_s += seconds


def stage_stats(infos: Sequence[StageInfo]) -> list[StageStats]:
    """Return the stages of a query that starts."""
    stages = [StageStats.of(info) for info in infos]
    for stage in reversed(stages):  # inputs come before the stages that take them
        if stage.kind == "limit" or stage.is_limited:
            for index in stage.inputs:
                stages[index].is_limited = True
    return stages


def rows_done(stages: Sequence[StageStats], stage: StageStats) -> int:
    """Return the rows that a stage has given; for a write, the rows that it has taken."""
    if stage.writes is None:
        return stage.num_rows
    return stages[stage.writes].num_rows if stage.wall_s is not None else stage.num_written
