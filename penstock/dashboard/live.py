"""One query as the page shows it, while it runs and afterwards."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal

from penstock.contracts import QueryControl
from penstock.cost.accounts import current_account
from penstock.cost.budget import set_budget
from penstock.dashboard.cluster import cluster_state
from penstock.dashboard.error_kinds import ErrorKinds
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
    StageFinished,
)
from penstock.events.latency import NUM_DURATIONS, percentile
from penstock.observe.bottleneck import bottleneck
from penstock.observe.printable import fit
from penstock.observe.stage_stats import StageStats
from penstock.observe.stats import Stats, TimelinePoint

MAX_ERRORS = 100  # the last ones
MAX_ERROR_CHARS = 4_000
MAX_NAME_CHARS = 200  # of a stage
MAX_NAMES = 6  # of stages in the name of a query
MAX_SHORT_NAME_CHARS = 60  # of each of them
MAX_POINTS = 200  # of a chart
LAST_ERRORS = 4
MAX_LOG = 100  # lines
POINT_SHARE = 0.1  # of the elapsed time: the charts get a point after it,
POINT_S = 30.0  # or after these seconds
FORECAST_S = 10.0  # the range of the remaining time has the forecasts of these last seconds
MIN_RANGE = 0.1  # of the remaining time, to both sides

End = Literal["finished", "failed", "cancelled"]
HOW_IT_ENDED: dict[End, str] = {"finished": "finished", "failed": "failed", "cancelled": "was stopped"}
State = Literal["running", "pausing", "paused"] | End


@dataclass(frozen=True, slots=True)
class Order:
    """A change of a running query, by a person."""

    action: str
    stage: int = 0
    max_running: int = 1
    dollars: float = 0.0

    @staticmethod
    def of(asked: Mapping[str, Any]) -> Order:
        stage, max_running, dollars = int(asked.get("stage", 0)), int(asked.get("max_running", 1)), 0.0
        if asked["action"] == "budget":
            dollars = dollars_of(asked.get("dollars"), "A budget")
        return Order(str(asked["action"]), stage, max_running, dollars)

    @property
    def done(self) -> str:
        """The answer to the person when the order is on its way."""
        return {
            "pause": "The query pauses: calls in flight finish, none starts.",
            "resume": "The query goes on.",
            "cancel": "The query stops. A job keeps what it has committed.",
            "limit": f"At most {self.max_running:,} at once from now on.",
            "budget": f"The budget is {exact_dollars(self.dollars)} now.",
        }.get(self.action, "")


def dollars_of(typed: Any, name: str) -> float:
    """Return the amount that a person typed. Raises InvalidArgumentError if it is not above 0.

    >>> dollars_of("0.5", "A budget")
    0.5
    """
    try:
        dollars = float(typed)
    except (TypeError, ValueError):
        dollars = 0.0
    if not 0 < dollars < math.inf:
        given = "nothing" if typed in (None, "") else typed
        raise InvalidArgumentError(f"{name} is an amount above 0 dollars; got {given}.")
    return dollars


def exact_dollars(dollars: float) -> str:
    """Return an amount with its cents, or with all its digits.

    >>> exact_dollars(1200.5), exact_dollars(0.001), exact_dollars(0.00000002)
    ('$1,200.50', '$0.001', '$0.00000002')
    """
    digits = f"{Decimal(repr(dollars)):,f}"
    whole, _, cents = digits.partition(".")
    return f"${whole}.{cents.rstrip('0'):0<2}"


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
        self._history, self._history_until_s = dict[str, Any](), 0.0
        self._ends: deque[tuple[float, float]] = deque()  # times of the last seconds, with the end expected then
        self._errors: deque[RowError] = deque(maxlen=MAX_ERRORS)
        self._kinds = ErrorKinds()
        self._log: deque[tuple[float, str]] = deque(maxlen=MAX_LOG)
        self._account = current_account()
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
                    self._say("The query started.")
                case RowsFailed(errors=errors):
                    self._errors.extend(errors)
                    for error in errors:
                        if self._kinds.add(error):
                            self._say(f"First {error.error_type} in {error.operator}: {error.message[:200]}")
                case StageFinished(stage, time_s):
                    self._now_s = time_s
                    self._say(f"{self._stats.stages[stage].stage[:MAX_NAME_CHARS]} is done.")
                case QuerySampled(time_s=time_s):
                    self._now_s = time_s
                    self._note_expected_end()
                case QueryFinished(error, time_s):
                    self._now_s, self._control, self._end = time_s, None, "finished"
                    if error is not None:
                        self.fail(error)
                    self._say(f"The query {HOW_IT_ENDED[self._end]}.")

    def fail(self, error: BaseException) -> None:
        """Record the error that ended the query, or that followed it: the commit of a job may fail."""
        self._end, self._error = "failed", f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]
        if isinstance(error, KeyboardInterrupt):
            self._end, self._error = "cancelled", "Stopped by Ctrl-C."
        elif isinstance(error, QueryCancelledError):
            self._end = "cancelled"

    def _say(self, text: str) -> None:
        self._log.append((self._now_s - self._started_s, text))

    def follow(self, order: Order) -> None:
        """Pause, resume or cancel the query, limit the tasks of a stage, or set the budget.

        Raises InvalidArgumentError if the query has ended.

        For a stage that calls a model by an API, the limit applies to concurrent requests to that model.
        """
        control = self._control
        if control is None:
            raise InvalidArgumentError("The query has ended, so nothing was changed.")
        action, stage, max_running = order.action, order.stage, order.max_running
        match action:
            case "budget" if order.dollars > 0 and self._account is not None:
                set_budget(self._account, order.dollars)
                self._say(f"A person set the budget to {exact_dollars(order.dollars)}.")
            case "pause" | "resume":
                control.set_paused(action == "pause")
                self._is_paused = action == "pause"
                self._say(f"A person {action}d the query.")
            case "cancel":
                control.cancel()
                self._say("A person stopped the query.")
            case "limit" if 0 <= stage < len(self._stats.stages) and max_running >= 1:
                if (model := self._stats.stages[stage].model) is None:
                    control.limit_tasks(stage, max_running)
                else:
                    from penstock.ai.client.limits.limiter import limit_requests

                    limit_requests(*model, max_running)
                self._limits[stage] = max_running
                self._say(
                    f"A person limited {self._stats.stages[stage].stage[:MAX_NAME_CHARS]} to {max_running:,} at once."
                )
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
            slowest = bottleneck(stats.stages, elapsed_s)
            calls, tasks = self._num_under_way()
            return {
                **self.headline(),
                "under_way": {"calls": calls, "tasks": tasks},
                "can_control": self._control is not None,
                "error": self._error,
                "elapsed_s": elapsed_s,
                "left_s": (left_s := stats.forecast.seconds_left() if self.state == "running" else None),
                "left_range": None if left_s is None else self._range(left_s),
                "budget": None if self._account is None else self._account.budget,
                "stages": [self._stage(index, stage) for index, stage in enumerate(stats.stages)],
                "bottleneck": next((index for index, stage in enumerate(stats.stages) if stage is slowest), None),
                "history": self._recent_history(),
                "errors": [error_values(error) for error in reversed(self._errors)],
                "error_kinds": self._kinds.values(),
                "log": list(self._log),
                "num_failed": sum(stage.num_failed_so_far for stage in stats.stages),
                "calls_stage": self._calls_stage(),
                "models": [
                    asdict(model) | {"projected_dollars": stats.forecast.dollars(model)} for model in stats.models
                ],
                "gpus": [asdict(gpu) for gpu in stats.gpus],
                "cluster": cluster_state() if not self.is_ended else None,
                "counters": [*stats.counters.items(), *stats.gauges.items()],
            }

    def _stage(self, index: int, stats: StageStats) -> dict[str, Any]:
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
            "rate": self._rate(index, stats),
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
        """Return the stage of calls that takes longest; None if no stage makes calls."""
        stages = self._stats.stages
        calls = [index for index, stage in enumerate(stages) if stage.calls is not None]
        slowest = self._stats.forecast.slowest_stage() if calls and not self.is_ended else None
        return slowest if slowest in calls else next(iter(calls[-1:]), None)

    def _num_rows(self, stats: StageStats) -> int:
        """Return the rows of a stage; for a write, the rows that reached it."""
        return stats.num_rows if stats.writes is None else self._stats.stages[stats.writes].num_rows

    def _recent_history(self) -> dict[str, Any]:
        """Return the points over time, a little old while the query runs: a page draws new charts for new points."""
        elapsed_s = self._now_s - self._started_s
        if not self._history or self.is_ended or elapsed_s >= self._history_until_s:
            self._history = self._points()
            self._history_until_s = elapsed_s + min(POINT_SHARE * elapsed_s, POINT_S)
        return self._history

    def _points(self) -> dict[str, Any]:
        """Return points over time: memory of the process, data in flight, and the rows or calls of each stage.

        ``models`` adds up the tokens, refusals and dollars of all models. ``latency`` has the 50th and the 95th
        percentile of the requests since the point before; None if there was none.
        """
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
            "models": [_model_totals(point.sample.measures.models) for point in points],
            "latency": [None, *(_latency(before, after) for before, after in pairwise(points))][: len(points)],
            "latency_so_far": _percentiles(_reply_times(points[-1])) if points else None,
        }

    def _note_expected_end(self) -> None:
        if (left_s := self._stats.forecast.seconds_left()) is not None and not self._is_paused:
            self._ends.append((self._now_s, self._now_s + left_s))
        while self._ends and self._ends[0][0] < self._now_s - FORECAST_S:
            self._ends.popleft()

    def _range(self, left_s: float) -> tuple[float, float]:
        """Return the shortest and the longest remaining time that was forecast in the last seconds."""
        expected = [end_s - self._now_s for _, end_s in self._ends]
        least, most = left_s * (1 - MIN_RANGE), left_s * (1 + MIN_RANGE)
        return max(min([least, *expected]), 0.0), max([most, *expected])

    def _rate(self, index: int, stage: StageStats) -> float:
        """Return the rows or calls of a stage per second: recently, or until its end."""
        if stage.wall_s is not None or self.is_ended:
            return _per_second(
                stage.progress(self._stats.stages).num_done, stage.wall_s or self._now_s - self._started_s
            )
        return 0.0 if self._is_paused else self._stats.forecast.rate(index) or 0.0


def _call_values(calls: CallCounts, *, is_ended: bool) -> dict[str, Any]:
    return {
        "num_answered": calls.num_answered,
        "num_failed": calls.num_failed,
        "num_in_flight": 0 if is_ended else calls.num_in_flight,
        "total": calls.total_rows,
    }


def _num_done(point: TimelinePoint, stage: int, of: int) -> int:
    """Return how many calls a stage has made at a point in time, or how many rows stage ``of`` has."""
    calls = point.sample.stages[stage].calls
    return point.num_rows[of] if calls is None else calls.num_done


def _model_totals(models: Sequence[ModelSample]) -> tuple[int, int, float]:
    return (
        sum(each.input_tokens + each.output_tokens for each in models),
        sum(each.num_refused for each in models),
        sum(each.dollars or 0.0 for each in models),
    )


def _reply_times(point: TimelinePoint) -> list[int]:
    counts = [0] * NUM_DURATIONS
    for stage in point.sample.stages:
        if stage.calls is not None:
            for index, count in enumerate(stage.calls.reply_times):
                counts[index] += count
    return counts


def _latency(before: TimelinePoint, after: TimelinePoint) -> tuple[float, float] | None:
    return _percentiles([new - old for old, new in zip(_reply_times(before), _reply_times(after), strict=True)])


def _percentiles(counts: Sequence[int]) -> tuple[float, float] | None:
    half, most = percentile(counts, 0.5), percentile(counts, 0.95)
    return None if half is None or most is None else (half, most)


def _name(model: ModelSample) -> tuple[str, str]:
    return model.provider, model.model


def _per_second(num_rows: int, seconds: float) -> float:
    return num_rows / seconds if seconds else 0.0


def summary_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a query or job in a list, from its snapshot."""
    stages, models = run["stages"], run["models"]
    counted = stages[run["calls_stage"]] if run.get("calls_stage") is not None else (stages or [None])[-1]
    total, dollars = counted and counted["total"], [each["dollars"] for each in models]
    return {
        **{
            name: run[name]
            for name in ("id", "name", "state", "started_at", "error", "elapsed_s", "left_s", "num_failed")
        },
        "num_rows": run.get("num_rows", counted["num_rows"] if counted else 0),
        "share": counted["num_done"] / total if counted and total else None,
        "models": [each["model"] for each in models],
        "dollars": None if None in dollars or not dollars else sum(dollars),
    }


def news_of(run: Mapping[str, Any], asked: Mapping[str, str]) -> dict[str, Any]:
    """Return a snapshot without the points over time that the page has, and with the last errors alone unless a person
    asks for all.
    """
    times, known = run["history"]["times"], asked.get("points")
    history = None if known and times[-1:] == [float(known)] else run["history"]
    return {**run, "history": history, "errors": run["errors"][: None if asked.get("errors") == "all" else LAST_ERRORS]}


def error_values(error: RowError) -> dict[str, Any]:
    """Return a row error as JSON values of bounded length."""
    values = asdict(error)
    return {name: value[:MAX_ERROR_CHARS] if isinstance(value, str) else value for name, value in values.items()}
