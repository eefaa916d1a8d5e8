"""Totals of one stage of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.observe.events import StageInfo, StageKind, StageSample


@dataclass(slots=True)
class StageStats:
    """Totals of one stage. ``num_failed`` counts rows that are null or missing because their function failed.

    ``busy_s`` adds up all workers, so it can exceed ``wall_s``, the time from the start of the query to the end of the
    stage (None while it runs). For ``waited_workers_s`` all its workers were busy. ``batch_rows`` is the batch size
    found by measurement. ``peak_nbytes`` is the most data that it held.
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

    @staticmethod
    def of(info: StageInfo) -> StageStats:
        return StageStats(info.name, writes=info.writes, kind=info.kind, model=info.model, inputs=info.inputs)

    @property
    def has_all_rows(self) -> bool:
        """True if it has given all its rows and is about to end."""
        sample = self.sample
        return sample is not None and sample.is_total_exact and self.num_rows == sample.total_rows

    def add_sample(self, sample: StageSample, seconds: float) -> None:
        """Add the state of the stage, which it had for some time."""
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


def rows_done(stages: Sequence[StageStats], stage: StageStats) -> int:
    """Return the rows that a stage has given; those that it has taken if it writes them."""
    if stage.writes is None:
        return stage.num_rows
    return stages[stage.writes].num_rows - (0 if stage.sample is None else stage.sample.num_rows_queued)
