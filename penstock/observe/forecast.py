"""The pace of a query, its end and its cost, projected from what was done lately.

A stage of calls counts answered calls, other stages count the rows of their bundles. Rates are those of the last ten
seconds, or of a longer time that holds fifty rows: less of either says little about the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.observe.events import ModelSample
from penstock.observe.stage_stats import StageStats

MIN_SECONDS = 10.0
MIN_COUNT = 50
MAX_POINTS = 100


class RecentFigures:
    """The last points in time of some figures that only grow. The first figure counts what was done."""

    def __init__(self, time_s: float, num_figures: int) -> None:
        """All figures are 0 at ``time_s``."""
        self._points: deque[tuple[float, ...]] = deque([(time_s, *(0.0,) * num_figures)])

    def add(self, time_s: float, *figures: float) -> None:
        """Add the figures of a later time, and forget points that are not needed any more."""
        points = self._points
        if len(points) > 2 and points[-1][0] - points[-2][0] < (points[-1][0] - points[0][0]) / MAX_POINTS:
            points.pop()  # two points so close are one
        points.append((time_s, *figures))
        while len(points) > 2 and time_s - points[1][0] >= MIN_SECONDS and figures[0] - points[1][1] >= MIN_COUNT:
            points.popleft()

    @property
    def changes(self) -> tuple[float, ...]:
        """The seconds between the first point and the last, and the growth of each figure."""
        return tuple(last - first for first, last in zip(self._points[0], self._points[-1], strict=True))


class Forecast:
    """The pace of each stage of a query, and what it means for the rest."""

    def __init__(self, stages: Sequence[StageStats], time_s: float = 0.0) -> None:
        self._stages = stages
        self._time_s = time_s
        self._done = [RecentFigures(time_s, 1) for _ in stages]
        self._models: dict[tuple[str, str], RecentFigures] = {}

    def update(self, time_s: float, models: Sequence[ModelSample]) -> None:
        """Take the figures of a sample, which the stages already have."""
        for index, stage in enumerate(self._stages):
            if not stage.has_begun:
                self._done[index] = RecentFigures(time_s, 1)
            elif stage.wall_s is None:
                self._done[index].add(time_s, stage.progress(self._stages).num_done)
        for use in models:
            figures = self._num_done(use), use.num_calls, use.input_tokens + use.output_tokens, use.dollars or 0.0
            self._models.setdefault(_name(use), RecentFigures(self._time_s, len(figures))).add(time_s, *figures)
        self._time_s = time_s

    def rate(self, index: int) -> float | None:
        """Return the rows a second of a stage; None while it is not known."""
        seconds, num_done = self._done[index].changes
        return num_done / seconds if seconds and num_done else None

    def call_rates(self, use: ModelSample) -> tuple[float, float]:
        """Return the calls and the tokens a second of a model."""
        seconds, _, num_calls, num_tokens, _ = self._models[_name(use)].changes
        return (num_calls / seconds, num_tokens / seconds) if seconds else (0.0, 0.0)

    def dollars(self, use: ModelSample) -> float | None:
        """Return what the calls to a model will have cost in the end; None if that is not known."""
        stages = [stage for stage in self._stages if stage.model == _name(use)]
        totals = [stage.progress(self._stages).total for stage in stages]
        if use.dollars is None or not totals or None in totals:
            return None
        _, num_done, _, _, dollars = self._models[_name(use)].changes
        num_left = sum(total or 0 for total in totals) - self._num_done(use)
        if num_left <= 0:
            return use.dollars
        return use.dollars + num_left * dollars / num_done if num_done else None

    def seconds_left(self) -> float | None:
        """Return the time until the slowest stage is done; None while that is not known.

        A write is left out: it waits until its rows fill a file, and then is quick. So is a relation beside calls,
        which take longer. A stage that has work and has done none of it yet makes the time unknown.
        """
        left = self._seconds_left()
        return None if left is None else max(left.values(), default=None)

    def slowest_stage(self) -> int:
        """Return the index of the stage that takes longest: by its time, else the last with calls, else the last."""
        if left := self._seconds_left():
            return max(left, key=lambda index: left[index])
        running = [index for index, stage in enumerate(self._stages) if stage.wall_s is None and stage.kind != "write"]
        calls = [index for index in running if self._stages[index].calls is not None]
        return (calls or running or [len(self._stages) - 1])[-1]

    def _seconds_left(self) -> dict[int, float] | None:
        has_calls = any(stage.calls is not None for stage in self._stages)
        left: dict[int, float] = {}
        for index, stage in enumerate(self._stages):
            if stage.wall_s is not None or stage.kind in ("write", "limit"):
                continue
            progress = stage.progress(self._stages)
            if progress.total is None:
                if has_calls and stage.kind in ("relation", "expressions"):
                    continue
                return None
            if (rate := self.rate(index)) is not None:
                left[index] = max(progress.total - progress.num_done, 0) / rate
            elif stage.has_begun:
                return None
        return left

    def _num_done(self, use: ModelSample) -> int:
        return sum(stage.progress(self._stages).num_done for stage in self._stages if stage.model == _name(use))


def _name(use: ModelSample) -> tuple[str, str]:
    return use.provider, use.model
