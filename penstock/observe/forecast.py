"""Forecast a query's end and its cost from its recent pace.

A stage of calls counts answered calls, other stages count the rows of their bundles. A rate is measured over at least
ten seconds and fifty rows, because shorter measurements say little about the rest.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

from penstock.events.events import CallCounts, ModelSample
from penstock.observe.stage_stats import StageStats

MIN_SECONDS, MIN_COUNT = 10.0, 50
MAX_POINTS = 100

NOW_SECONDS, NOW_COUNT = 1.0, 20
"""The time over which the latency of calls is measured. Latency shows at once what more calls in flight will bring."""
MIN_GROWTH = 0.1
MIN_SHARE = 0.05
"""The share of the rows from which a growing limit is expected to go on growing."""
MAX_LAG = 2.0
"""If fewer calls are in flight than before, the measured rate is old. A difference below this is chance."""
MIN_ROUNDS, MAX_SHARE = 3.0, 0.85
"""Failures of calls count after some rounds, and if the answered share is below this; above, it is chance."""
USUAL_ROUNDS = 1.5  # between two steps; growth is slower if the next one is overdue
FIRST_ROUNDS, MAX_ROUNDS = 3.0, 6.0
"""Rounds without a step, after which the limit does not grow until its next step: before the first step, and later."""
MAX_SLOWDOWN = 1.5
"""Calls that take this many times as long as the first ones wait in the server; more of them change nothing."""


class RecentFigures:
    """Recent values of some figures that only grow. The first figure counts the finished items."""

    def __init__(
        self, time_s: float, num_figures: int, min_seconds: float = MIN_SECONDS, min_count: int = MIN_COUNT
    ) -> None:
        """All figures are 0 at ``time_s``. Points that neither ``min_seconds`` nor ``min_count`` needs are dropped."""
        self._points: deque[tuple[float, ...]] = deque([(time_s, *(0.0,) * num_figures)])
        self._min_seconds, self.min_count = min_seconds, min_count

    def add(self, time_s: float, *figures: float) -> None:
        points = self._points
        if len(points) > 2 and points[-1][0] - points[-2][0] < (points[-1][0] - points[0][0]) / MAX_POINTS:
            points.pop()  # two points so close are one
        points.append((time_s, *figures))
        while (
            len(points) > 2
            and time_s - points[1][0] >= self._min_seconds
            and figures[0] - points[1][1] >= self.min_count
        ):
            points.popleft()

    def begin_again(self) -> None:
        """Forget all points before the last one."""
        self._points = deque([self._points[-1]])

    @property
    def changes(self) -> tuple[float, ...]:
        """The seconds between the first point and the last, and the growth of each figure."""
        return tuple(last - first for first, last in zip(self._points[0], self._points[-1], strict=True))


class LimitGrowth:
    """The growth of a limit on calls in flight that rises in steps, over rounds: a round is ``limit`` answers.

    A limit that has fallen has settled.
    """

    def __init__(self) -> None:
        self._num_replies = self._limit = self._first_limit = 0
        self._rounds = self._step_at = 0.0  # rounds so far, and before the last step
        self._step = 1.0  # the factor of the last one
        self._may_grow = False

    def start(self, num_in_flight: int) -> None:
        """Take the calls in flight before the first answer as the first limit; with fewer rows they are fewer."""
        self._first_limit = max(num_in_flight, self._first_limit)

    def add(self, num_replies: int, limit: int, most: int) -> None:
        if not self._limit:
            self._may_grow = limit < most
            if self._first_limit <= limit <= 2 * self._first_limit:
                self._limit = self._first_limit
            else:
                self._first_limit = limit
        self._rounds += (num_replies - self._num_replies) / (self._limit or limit)
        if limit != self._limit > 0:
            self._may_grow = self._may_grow and limit > self._limit
            self._step = limit / self._limit
            self._step_at = self._rounds
        self._num_replies, self._limit = num_replies, limit

    @property
    def _is_growing(self) -> bool:
        return self._may_grow and self._rounds - self._step_at <= (MAX_ROUNDS if self._step_at else FIRST_ROUNDS)

    @property
    def is_unknown(self) -> bool:
        """True until the limit first grows, or until its first growth is overdue."""
        return self._is_growing and not self._step_at

    @property
    def per_answer(self) -> float:
        """The growth per answer, averaged over all steps; 0 if the limit no longer grows."""
        if not self._is_growing or not self._step_at:
            return 0.0
        num_rounds = max(self._step_at, self._rounds - USUAL_ROUNDS)
        growth = math.expm1(math.log(self._limit / self._first_limit) / num_rounds)
        return growth if growth >= MIN_GROWTH else 0.0

    @property
    def smooth_limit(self) -> float:
        """The limit as if it grew smoothly at the same pace. In the middle of a step this is the real limit."""
        grown = math.exp(math.log1p(self.per_answer) * (self._rounds - self._step_at))
        return self._limit * min(grown, max(self._step, 1.0)) / math.sqrt(self._step)


class CallPace:
    """The pace of the calls of a stage: the rate of answers, and what the calls in flight promise.

    When more and more calls are in flight, answers follow one latency later. By Little's law, the rate to come is the
    number in flight divided by the latency. If the provider or the user limits the rate, the measured rate stays.
    """

    def __init__(self, time_s: float) -> None:
        self._answers = RecentFigures(time_s, 1)
        self._now = RecentFigures(time_s, 4, NOW_SECONDS, NOW_COUNT)
        self._settled = RecentFigures(time_s, 3)  # since the limit stopped to grow
        self._in_flight_s = 0.0  # the seconds of all calls in flight, added up
        self._first_s = math.inf  # the mean latency of the first calls
        self._growth = LimitGrowth()
        self._calls: CallCounts | None = None
        self._model: ModelSample | None = None
        self._time_s = self._answered_at_s = time_s  # times of the last sample, and of the last one with an answer
        self._sent_all_at_s: float | None = None
        self._has_rate = False  # the provider or the user limits the rate

    def add(self, time_s: float, calls: CallCounts, model: ModelSample | None) -> None:
        before = self._calls
        if before is not None and before.num_done and calls.num_replies > before.num_replies == 0:
            self._answers.begin_again()  # so far, answers came from a cache
            self._now.begin_again()
        self._answers.add(time_s, calls.num_done)
        self._in_flight_s += calls.num_in_flight * (time_s - self._time_s)
        self._now.add(time_s, calls.num_replies, calls.num_done, calls.reply_s, self._in_flight_s)
        self._settled.add(time_s, calls.num_replies, calls.reply_s, self._in_flight_s)
        if self._growth.per_answer:
            self._settled.begin_again()
        if calls.num_replies >= NOW_COUNT and self._first_s == math.inf:
            self._first_s = calls.reply_s / calls.num_replies
        if not calls.num_replies:
            self._growth.start(calls.num_in_flight)
        if model is not None and model.num_allowed:
            self._growth.add(calls.num_replies, model.num_allowed, model.max_allowed or model.num_allowed)
        if before is None or calls.num_done > before.num_done:
            self._answered_at_s = time_s
        self._time_s, self._calls, self._model = time_s, calls, model
        if not self._has_rate and model is not None and model.rate_limit:
            self._has_rate = True
            if self._growth.per_answer:
                self._answers.begin_again()
        if calls.num_done + calls.num_in_flight * self._rows_per_call < (calls.total_rows or math.inf):
            self._sent_all_at_s = None
        elif self._sent_all_at_s is None:
            self._sent_all_at_s = time_s

    @property
    def rate(self) -> float | None:
        """The finished rows per second; None if there were none."""
        seconds, num_done = self._answers.changes
        return num_done / seconds if seconds and num_done else None

    def seconds_for(self, num_rows: int) -> float | None:
        """Return the time until ``num_rows`` rows are done, including the last one; None while it is not known."""
        if (rate := self.rate) is None or (calls := self._calls) is None:
            return None
        if calls.num_in_flight and self._model is not None and not self._model.num_calls:
            return None  # so far, answers came from a cache
        if not calls.num_replies or not calls.num_in_flight:
            return num_rows / rate
        num_to_send = max(num_rows - calls.num_in_flight * self._rows_per_call, 0.0)
        if self._growth.is_unknown and num_to_send > 2 * calls.num_in_flight * self._rows_per_call:
            return None
        if self._growth.per_answer and not self._has_rate and calls.num_done < MIN_SHARE * (calls.total_rows or 0):
            return None
        sending_s = num_to_send / rate
        if not self._has_rate:
            sending_s = self._sending_s(num_to_send / self._rows_per_call, sending_s)
        mean_s = calls.reply_s / calls.num_replies
        deviation_s = math.sqrt(max(calls.reply_s2 / calls.num_replies - mean_s**2, 0.0))
        if self._sent_all_at_s is not None:
            waited_s = self._time_s - self._sent_all_at_s
        else:
            waited_s = min(self._time_s - self._answered_at_s, mean_s)  # calls that were sent together end together
        return max(sending_s + mean_s + 2 * deviation_s - waited_s, 0.0)

    @property
    def _rows_per_call(self) -> float:
        _, num_replies, num_done, _, _ = self._now.changes
        return num_done / num_replies if num_replies and num_done else 1.0

    def _sending_s(self, num_calls: float, measured_s: float) -> float:
        """Return the time to send some calls. At the measured rate it is ``measured_s``."""
        seconds, num_replies, _, reply_s, in_flight_s = self._now.changes
        if not num_replies or not in_flight_s:
            return measured_s
        latency_s, num_in_flight = reply_s / num_replies, in_flight_s / seconds
        most, growth = num_in_flight, self._growth.per_answer
        if latency_s > MAX_SLOWDOWN * self._first_s:
            growth = 0.0
        if growth and self._model is not None:
            most = self._model.max_allowed or most
            num_in_flight = min(self._growth.smooth_limit, most)
        else:
            num_in_flight *= self._answered_share(latency_s)
        least_s = num_calls * min(latency_s, self._first_s) / num_in_flight
        if not growth and least_s > MAX_LAG * measured_s:
            return least_s
        return min(seconds_to_send(num_calls, num_in_flight, latency_s, growth, most), measured_s)

    def _answered_share(self, latency_s: float) -> float:
        """Return the share of the time of calls that led to answers; it is low if many fail and wait to try again."""
        seconds, _, reply_s, in_flight_s = self._settled.changes
        share = reply_s / in_flight_s if reply_s and seconds > MIN_ROUNDS * latency_s else 1.0
        return share if share < MAX_SHARE else 1.0


def seconds_to_send(num_calls: float, num_in_flight: float, latency_s: float, growth: float, most: float) -> float:
    """Return the time to send some calls, if each answer lets ``growth`` more calls be in flight, up to ``most``.

    >>> seconds_to_send(1000, 100, 2.0, 0.0, 100), seconds_to_send(1000, 100, 2.0, 1.0, 400)
    (20.0, 6.0)
    """
    seconds = 0.0
    if growth and most > num_in_flight:
        grown = min(num_in_flight + num_calls * growth / (1 + growth), most)
        seconds = latency_s * math.log(grown / num_in_flight) / math.log1p(growth)
        num_calls -= (grown - num_in_flight) * (1 + 1 / growth)
        num_in_flight = grown
    return seconds + num_calls * latency_s / num_in_flight


class Forecast:
    """The pace of each stage of a query, and what it means for the rest."""

    def __init__(self, stages: Sequence[StageStats], time_s: float = 0.0) -> None:
        self._stages = stages
        self._time_s = time_s  # time of the last sample, without the pauses before it
        self._paused_s = 0.0
        self._rows = [RecentFigures(time_s, 1) for _ in stages]
        self._callers = [_callers(stages, index) for index in range(len(stages))]
        self._calls: dict[tuple[int, ...], CallPace] = {}  # of each stage, and of the stages that call the same model
        self._models: dict[tuple[str, str], RecentFigures] = {}

    def update(self, time_s: float, models: Sequence[ModelSample], is_paused: bool = False) -> None:
        """Take the figures of a sample, which ``stages`` already contain. The time of a pause does not count."""
        time_s -= self._paused_s
        if is_paused:
            self._paused_s += time_s - self._time_s
            return
        by_name = {_name(use): use for use in models}
        for index, stage in enumerate(self._stages):
            if stage.wall_s is not None:
                continue
            if stage.calls is not None:
                self._add_calls(time_s, (index,), by_name)
            elif stage.has_begun:
                self._rows[index].add(time_s, stage.progress(self._stages).num_done)
            else:
                self._rows[index] = RecentFigures(time_s, 1)
        for indices in {indices for indices in self._callers if len(indices) > 1}:
            self._add_calls(time_s, indices, by_name)
        for use in models:
            recent = self._models.setdefault(_name(use), RecentFigures(self._time_s, 4))
            if use.num_calls and recent.changes[1] and not recent.changes[2]:
                recent.begin_again()  # so far, answers came from a cache
            num_tokens = use.input_tokens + use.output_tokens
            recent.add(time_s, self._num_done(use), use.num_calls, num_tokens, use.dollars or 0.0)
        self._time_s = time_s

    def _add_calls(
        self, time_s: float, indices: tuple[int, ...], models: Mapping[tuple[str, str], ModelSample]
    ) -> None:
        """Take the calls of a stage, or of the stages that call the same model."""
        calls = _sum([self._stages[index].calls for index in indices])
        model = self._stages[indices[0]].model
        if calls.num_done or calls.num_in_flight:
            use = None if model is None else models.get(model)
            self._calls.setdefault(indices, CallPace(self._time_s)).add(time_s, calls, use)
        elif model is not None and self._callers[indices[0]] not in self._calls:
            self._models[model] = RecentFigures(time_s, 4)

    def rate(self, index: int) -> float | None:
        """Return the rows a second of a stage; None while it is not known."""
        if (calls := self._calls.get((index,))) is not None:
            return calls.rate
        seconds, num_done = self._rows[index].changes
        return num_done / seconds if seconds and num_done else None

    def call_rates(self, use: ModelSample) -> tuple[float, float]:
        """Return the calls and the tokens a second of a model."""
        seconds, _, num_calls, num_tokens, _ = self._changes(use)
        return (num_calls / seconds, num_tokens / seconds) if seconds else (0.0, 0.0)

    def dollars(self, use: ModelSample) -> float | None:
        """Return the expected final cost of the calls to a model; None if it is not known."""
        stages = [stage for stage in self._stages if stage.model == _name(use)]
        totals = [stage.progress(self._stages).total for stage in stages]
        if use.dollars is None or not totals or None in totals:
            return None
        _, num_done, _, _, dollars = self._changes(use)
        num_left = sum(total or 0 for total in totals) - self._num_done(use)
        if num_left <= 0:
            return use.dollars
        return use.dollars + num_left * dollars / num_done if num_done else None

    def seconds_left(self) -> float | None:
        """Return the time until the slowest stage is done; None while that is not known.

        Three kinds of stages do not count: a write, which is quick once its rows fill a file; a relation, if the query
        also makes calls, which take longer; and stages that a limit will end. A stage that has work but has finished
        none of it makes the time unknown.
        """
        left = self._seconds_left()
        return None if left is None else max(left.values(), default=None)

    def slowest_stage(self) -> int:
        """Return the index of the stage that takes longest. If no time is known, take the last stage with calls that
        has begun, or the stage that has worked most.
        """
        if left := self._seconds_left():
            return max(left, key=lambda index: (left[index], index))
        running = [index for index, stage in enumerate(self._stages) if stage.wall_s is None and stage.kind != "write"]
        begun = [index for index in running if self._stages[index].has_begun]
        if calls := [index for index in begun or running if self._stages[index].calls is not None]:
            return calls[-1]
        return max(begun or running[-1:], key=lambda index: self._stages[index].busy_s, default=len(self._stages) - 1)

    def _seconds_left(self) -> dict[int, float] | None:
        """Return the remaining time of each stage that has begun, or None if one of these times is unknown."""
        has_calls = any(stage.calls is not None for stage in self._stages)
        num_left: dict[int, int] = {}
        for index, stage in enumerate(self._stages):
            if stage.wall_s is not None or stage.is_limited or stage.kind in ("write", "concat"):
                continue
            progress = stage.progress(self._stages)
            if progress.total is None:
                if has_calls and stage.kind in ("relation", "expressions"):
                    continue
                return None
            num_left[index] = max(progress.total - progress.num_done, 0)
        left: dict[int, float] = {}
        for index, num_rows in num_left.items():
            num_together = sum(num_left.get(caller, 0) for caller in self._callers[index])
            if (seconds := self._seconds_for(index, num_together if num_rows else 0)) is not None:
                left[index] = seconds
            elif self._stages[index].has_begun:
                return None
        return left

    def _seconds_for(self, index: int, num_rows: int) -> float | None:
        if not num_rows:
            return 0.0
        if (calls := self._calls.get(self._callers[index])) is not None:
            return calls.seconds_for(num_rows)
        return None if (rate := self.rate(index)) is None else num_rows / rate

    def _changes(self, use: ModelSample) -> tuple[float, ...]:
        """Return the recent growth of a model's figures; zeros if its first answers came during a pause."""
        recent = self._models.get(_name(use))
        return (0.0,) * 5 if recent is None else recent.changes

    def _num_done(self, use: ModelSample) -> int:
        return sum(stage.progress(self._stages).num_done for stage in self._stages if stage.model == _name(use))


def _callers(stages: Sequence[StageStats], index: int) -> tuple[int, ...]:
    """Return the stages that call the same model as a stage. They share its limit."""
    model = stages[index].model
    return (index,) if model is None else tuple(each for each, stage in enumerate(stages) if stage.model == model)


def _sum(counts: Sequence[CallCounts | None]) -> CallCounts:
    """Return the calls of several stages together. The total is unknown if a stage has not begun to count."""
    known = [calls for calls in counts if calls is not None]
    totals = [calls.total_rows for calls in known]
    return CallCounts(
        sum(calls.num_answered for calls in known),
        sum(calls.num_failed for calls in known),
        sum(calls.num_in_flight for calls in known),
        None if None in totals or len(known) < len(counts) else sum(total or 0 for total in totals),
        False,
        sum(calls.num_replies for calls in known),
        sum(calls.reply_s for calls in known),
        sum(calls.reply_s2 for calls in known),
    )


def _name(use: ModelSample) -> tuple[str, str]:
    return use.provider, use.model
