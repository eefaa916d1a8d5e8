"""One query as the page shows it, while it runs and afterwards."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from penstock.contracts import QueryControl
from penstock.errors import InvalidArgumentError, QueryCancelledError
from penstock.events.events import (
    BundleProduced,
    CallCounts,
    Event,
    ModelSample,
    QueryFinished,
    QuerySampled,
    QueryStarted,
    RowError,
    RowsFailed,
)
from penstock.observe.bottleneck import bottleneck
from penstock.observe.printable import fit
from penstock.observe.stage_stats import StageStats
from penstock.observe.stats import Stats
from penstock.observe.timeline import TimelinePoint

MAX_ERRORS = 100  # the last ones
MAX_ERROR_CHARS = 4_000
MAX_NAME_CHARS = 200  # of a stage
MAX_NAMES = 6  # of stages in the name of a query
MAX_SHORT_NAME_CHARS = 60  # of each of them
MAX_POINTS = 200  # of a chart
RATE_S = 3.0  # over which the rate is measured

End = Literal["finished", "failed", "cancelled"]
State = Literal["running", "pausing", "paused"] | End


class LiveQuery:
    """A Subscriber with what the page shows of one query, in bounded memory. Any thread may ask for ``snapshot``."""

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self._end: End | None = None
        self._is_paused = False
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
        return self._end is not None

    @property
    def state(self) -> State:
        if self._end is not None or not self._is_paused:
            return self._end or "running"
        return "pausing" if any(self._num_under_way()) else "paused"

    def _num_under_way(self) -> tuple[int, int]:
        """Return the number of calls in flight and of other running tasks."""
        control = self._control
        return (0, 0) if control is None else control.num_under_way()

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
                    self._now_s, self._control, self._end = time_s, None, "finished"
                    if error is not None:
                        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Record the error that ended the query, or that followed it: the commit of a job may fail."""
        self._end, self._error = "failed", f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]
        if isinstance(error, KeyboardInterrupt):
            self._end, self._error = "cancelled", "Stopped by Ctrl-C."
        elif isinstance(error, QueryCancelledError):
            self._end = "cancelled"

    def control(self, action: str, stage: int, max_running: int) -> None:
        """Pause, resume or cancel the query, or limit the tasks of a stage. Does nothing after its end.

        For a stage that calls a model by an API, the limit applies to concurrent requests to that model.
        """
        control = self._control
        if control is None:
            return
        match action:
            case "pause" | "resume":
                control.set_paused(action == "pause")
                self._is_paused = action == "pause"
            case "cancel":
                control.cancel()
            case "limit" if 0 <= stage < len(self._stats.stages) and max_running >= 1:
                if (model := self._stats.stages[stage].model) is None:
                    control.limit_tasks(stage, max_running)
                else:
                    from penstock.ai.client.limits.limiter import limit_requests

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
            calls, tasks = self._num_under_way()
            return {
                **self.headline(),
                "under_way": {"calls": calls, "tasks": tasks},
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
                "num_failed": sum(stage.num_failed_so_far for stage in stats.stages),
                "calls_stage": self._calls_stage(),
                "models": [
                    asdict(model) | {"projected_dollars": stats.forecast.dollars(model)} for model in stats.models
                ],
                "gpus": [asdict(gpu) for gpu in stats.gpus],
                "counters": [*stats.counters.items(), *stats.gauges.items()],
            }

    def _stage(self, index: int, stats: StageStats, rate: float) -> dict[str, Any]:
        sample, is_finished, is_stopped = stats.sample, stats.wall_s is not None, index in self._stopped
        progress = stats.progress(self._stats.stages)
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
            "num_done": progress.num_done,
            "total": progress.total if not is_stopped else None,
            "calls": None if stats.calls is None else _call_values(stats.calls, is_ended=is_finished or is_stopped),
            "rate": rate,
            "busy_s": stats.busy_s,
            "num_failed": stats.num_failed_so_far,
            "num_running": num_running if model is None else model.num_in_flight,  # tasks, or requests
            "num_workers": stats.num_workers,
            "limit": self._limits.get(index),
            "is_remote": stats.model is not None,
            "num_allowed": None if model is None else model.num_allowed,
            "num_rows_queued": sample.num_rows_queued if sample and not is_finished else 0,
            "nbytes_queued": sample.nbytes_queued if sample and not is_finished else 0,
        }

    def _calls_stage(self) -> int | None:
        """Return the stage of calls that takes longest; None without one."""
        stages = self._stats.stages
        calls = [index for index, stage in enumerate(stages) if stage.calls is not None]
        slowest = self._stats.forecast.slowest_stage() if calls and not self.is_ended else None
        return slowest if slowest in calls else next(iter(calls[-1:]), None)

    def _num_done(self, stats: StageStats) -> int:
        """Return the rows of a stage, or the calls of one that makes calls."""
        return self._num_rows(stats) if stats.calls is None else stats.calls.num_done

    def _num_rows(self, stats: StageStats) -> int:
        """Return the rows of a stage; a write counts those that it was given."""
        return stats.num_rows if stats.writes is None else self._stats.stages[stats.writes].num_rows

    def _history(self) -> dict[str, Any]:
        """Return points over time: memory of the process, data in flight, and the rows or calls of each stage."""
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
                    *(_num_done(point, index, of) for index, of in enumerate(rows)),
                ]
                for point in points
            ],
        }

    def _note_recent(self) -> None:
        self._recent.append((self._now_s, list(map(self._num_done, self._stats.stages))))
        while self._recent[0][0] < self._now_s - RATE_S:
            self._recent.popleft()

    def _rates(self) -> Sequence[float]:
        """Return the rows per second of each stage: recently, or until its end."""
        rows = list(map(self._num_done, self._stats.stages))
        since_s, before = self._started_s, [0] * len(rows)
        if self._recent and self._now_s - self._recent[0][0] > RATE_S / 2:
            since_s, before = self._recent[0]
        lately = [_per_second(now - then, self._now_s - since_s) for now, then in zip(rows, before, strict=True)]
        return [
            rate if stage.wall_s is None else _per_second(num_rows, stage.wall_s)
            for rate, num_rows, stage in zip(lately, rows, self._stats.stages, strict=True)
        ]


def _call_values(calls: CallCounts, *, is_ended: bool) -> dict[str, Any]:
    return {
        "num_answered": calls.num_answered,
        "num_failed": calls.num_failed,
        "num_in_flight": 0 if is_ended else calls.num_in_flight,
        "total": calls.total_rows,
    }


def _num_done(point: TimelinePoint, stage: int, of: int) -> int:
    """Return the number of a stage's calls at a point in time, or of the rows of stage ``of``."""
    calls = point.sample.stages[stage].calls
    return point.num_rows[of] if calls is None else calls.num_done


def _name(model: ModelSample) -> tuple[str, str]:
    return model.provider, model.model


def _per_second(num_rows: int, seconds: float) -> float:
    return num_rows / seconds if seconds else 0.0


def error_values(error: RowError) -> dict[str, Any]:
    """Return a row error as JSON values of bounded length."""
    values = asdict(error)
    return {name: value[:MAX_ERROR_CHARS] if isinstance(value, str) else value for name, value in values.items()}
