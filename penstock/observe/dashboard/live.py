"""One query as the page shows it, while it runs and afterwards."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from penstock.engine.protocols import QueryControl
from penstock.errors import InvalidArgumentError, QueryCancelledError
from penstock.observe.bottleneck import bottleneck
from penstock.observe.events import (
    BundleProduced,
    Event,
    ModelSample,
    QueryFinished,
    QuerySampled,
    QueryStarted,
    RowError,
    RowsFailed,
)
from penstock.observe.stage_stats import StageStats
from penstock.observe.stats import Stats
from penstock.observe.text import fit

MAX_ERRORS = 100  # the last ones
MAX_ERROR_CHARS = 4_000
MAX_NAME_CHARS = 200  # of a stage
MAX_NAMES = 6  # of stages in the name of a query
MAX_SHORT_NAME_CHARS = 60  # of each of them
MAX_POINTS = 200  # of a chart
RATE_S = 3.0  # over which the rate is measured

State = Literal["running", "paused", "finished", "failed", "cancelled"]


class LiveQuery:
    """A Subscriber with what the page shows of one query, in bounded memory. Any thread may ask for ``snapshot``."""

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.state: State = "running"
        self._lock = threading.Lock()
        self._stats = Stats()
        self._started_s = self._now_s = 0.0  # by the clock of the events
        self._started_at_s = time.time()
        self._recent: deque[tuple[float, list[int]]] = deque()  # times of the last seconds, with the rows by stage
        self._errors: deque[RowError] = deque(maxlen=MAX_ERRORS)
        self._error = ""
        self._control: QueryControl | None = None
        self._limits: dict[int, int] = {}  # by stage, as the person has set them
        self._stopped: set[int] = set()  # stages that had not ended when the query failed or was cancelled

    @property
    def is_started(self) -> bool:
        return bool(self._stats.stages)

    @property
    def is_ended(self) -> bool:
        return self.state not in ("running", "paused")

    def on_control(self, control: QueryControl) -> None:
        self._control = control

    def on_event(self, event: Event) -> None:
        if isinstance(event, BundleProduced):  # nearly all are, and they only add to numbers
            self._stats.on_event(event)
            return
        with self._lock:
            if isinstance(event, QueryFinished) and event.error is not None:
                self._stopped = {index for index, stage in enumerate(self._stats.stages) if stage.wall_s is None}
            self._stats.on_event(event)
            match event:
                case QueryStarted(time_s=time_s):
                    self._started_s = self._now_s = time_s
                case RowsFailed(errors=errors):
                    self._errors.extend(errors)
                case QuerySampled(time_s=time_s):
                    self._now_s = time_s
                    self._note_recent()
                case QueryFinished(error, time_s):
                    self._now_s, self._control = time_s, None
                    self.state = "finished" if error is None else "failed"
                    if error is not None:
                        self.state = "cancelled" if isinstance(error, QueryCancelledError) else "failed"
                        self._error = f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]

    def control(self, action: str, stage: int, max_running: int) -> None:
        """Pause, resume or cancel the query, or limit the tasks of a stage. Does nothing after its end.

        The limit of a stage that calls a model by an API is one on concurrent requests to that model.
        """
        control = self._control
        if control is None:
            return
        match action:
            case "pause" | "resume":
                control.set_paused(action == "pause")
                with self._lock:
                    if self._control is not None:  # else it has ended meanwhile
                        self.state = "paused" if action == "pause" else "running"
            case "cancel":
                control.cancel()
            case "limit" if 0 <= stage < len(self._stats.stages) and max_running >= 1:
                if (model := self._stats.stages[stage].model) is None:
                    control.limit_tasks(stage, max_running)
                else:
                    from penstock.ai.remote.limits.limiter import limit_requests

                    limit_requests(*model, max_running)
                self._limits[stage] = max_running
            case _:
                raise InvalidArgumentError(f"The dashboard knows no action {action!r} with these values.")

    # --- what the page shows ---

    def headline(self) -> dict[str, Any]:
        """Return the line of this query in the list of queries."""
        names = [fit(stage.stage, MAX_SHORT_NAME_CHARS) for stage in self._stats.stages]
        if len(names) > MAX_NAMES:
            names[MAX_NAMES - 1 : -1] = [f"{len(names) - MAX_NAMES} more"]
        return {
            "id": self.number,
            "name": " → ".join(names),
            "state": self.state,
            "started_at": self._started_at_s,
        }

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the query as JSON values."""
        with self._lock:
            stats, elapsed_s = self._stats, self._now_s - self._started_s
            slowest, rates = bottleneck(stats.stages, elapsed_s), self._rates()
            return {
                **self.headline(),
                "can_control": self._control is not None,
                "error": self._error,
                "elapsed_s": elapsed_s,
                "left_s": stats.forecast.seconds_left() if self.state == "running" else None,
                "stages": [
                    self._stage(index, *each) for index, each in enumerate(zip(stats.stages, rates, strict=True))
                ],
                "bottleneck": next((index for index, stage in enumerate(stats.stages) if stage is slowest), None),
                "history": self._history(),
                "errors": [error_values(error) for error in reversed(self._errors)],
                "num_failed": sum(stage.num_failed for stage in stats.stages),
                "models": [
                    asdict(model) | {"projected_dollars": stats.forecast.dollars(model)} for model in stats.models
                ],
                "gpus": [asdict(gpu) for gpu in stats.gpus],
                "counters": [*stats.counters.items(), *stats.gauges.items()],
            }

    def _stage(self, index: int, stats: StageStats, rate: float) -> dict[str, Any]:
        sample, is_finished, is_stopped = stats.sample, stats.wall_s is not None, index in self._stopped
        num_running = sample.num_running if sample and not is_finished else 0
        has_begun = bool(stats.num_bundles or num_running)
        model = next((each for each in self._stats.models if _name(each) == stats.model), None)
        return {
            "index": index,
            "name": stats.stage[:MAX_NAME_CHARS],
            "kind": stats.kind,
            "inputs": stats.inputs,
            "state": "stopped" if is_stopped else "finished" if is_finished else "running" if has_begun else "waiting",
            "num_rows": self._num_rows(stats),
            "total_rows": sample.total_rows if sample and not is_stopped else None,
            "rate": rate,
            "busy_s": stats.busy_s,
            "num_failed": stats.num_failed,
            "num_running": num_running if model is None else model.num_in_flight,  # tasks, or requests
            "num_workers": stats.num_workers,
            "limit": self._limits.get(index),
            "is_remote": stats.model is not None,
            "num_allowed": None if model is None else model.num_allowed,
            "num_rows_queued": sample.num_rows_queued if sample and not is_finished else 0,
            "nbytes_queued": sample.nbytes_queued if sample and not is_finished else 0,
        }

    def _num_rows(self, stats: StageStats) -> int:
        """Return the rows of a stage; a write counts those that it was given."""
        return stats.num_rows if stats.writes is None else self._stats.stages[stats.writes].num_rows

    def _history(self) -> dict[str, Any]:
        """Return points over time: memory of the process, data in flight, and the rows of each stage."""
        timeline = self._stats.timeline
        points = timeline[:: -(-len(timeline) // MAX_POINTS) or 1]
        if timeline and points[-1] is not timeline[-1]:
            points.append(timeline[-1])
        rows = [index if stats.writes is None else stats.writes for index, stats in enumerate(self._stats.stages)]
        return {
            "times": [point.elapsed_s for point in points],
            "figures": [
                [
                    point.sample.measures.rss_bytes,
                    point.sample.nbytes_held,
                    *(point.num_rows[index] for index in rows),
                ]
                for point in points
            ],
        }

    def _note_recent(self) -> None:
        self._recent.append((self._now_s, list(map(self._num_rows, self._stats.stages))))
        while self._recent[0][0] < self._now_s - RATE_S:
            self._recent.popleft()

    def _rates(self) -> Sequence[float]:
        """Return the rows per second of each stage: lately, or until its end."""
        rows = list(map(self._num_rows, self._stats.stages))
        since_s, before = self._started_s, [0] * len(rows)
        if self._recent and self._now_s - self._recent[0][0] > RATE_S / 2:
            since_s, before = self._recent[0]
        lately = [_per_second(now - then, self._now_s - since_s) for now, then in zip(rows, before, strict=True)]
        return [
            rate if stage.wall_s is None else _per_second(num_rows, stage.wall_s)
            for rate, num_rows, stage in zip(lately, rows, self._stats.stages, strict=True)
        ]


def _name(model: ModelSample) -> tuple[str, str]:
    return model.provider, model.model


def _per_second(num_rows: int, seconds: float) -> float:
    return num_rows / seconds if seconds else 0.0


def error_values(error: RowError) -> dict[str, Any]:
    """Return a row error as JSON values of bounded length."""
    values = asdict(error)
    return {name: value[:MAX_ERROR_CHARS] if isinstance(value, str) else value for name, value in values.items()}
