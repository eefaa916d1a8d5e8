"""The projected time and cost: on a virtual clock for each kind of server, and from a real query."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.ai.client.limits.limiter import OWN_START, START
from penstock.ai.client.limits.pace import Outcome, Pace, Sent
from penstock.ai.client.limits.rate_headers import Hints
from penstock.events.events import (
    BundleProduced,
    CallCounts,
    Event,
    Measures,
    ModelSample,
    QueryFinished,
    QuerySampled,
    QueryStarted,
    StageFinished,
    StageInfo,
    StageSample,
)
from penstock.functions import when
from penstock.observe.progress_text import progress_text
from penstock.observe.stats import Stats
from tests.ai.simulation import FixedWindow, Server, Slots, TokenBucket, Unlimited
from tests.plain_server import plain_server

NUM_ROWS = 3000
BUNDLE = 64
CALLS = StageInfo(0, "prompt gpt", kind="async function", model=("o", "gpt"))
STARTED = QueryStarted((CALLS, StageInfo(1, "write out/", 0, (0,), "write")), 0.0)

Latency = Callable[[], float]
Forecasts = list[
    tuple[float, float | None, float | None]
]  # share of the rows, time left over the true one, cost likewise


def simulated(
    latency: Latency, limit: float, *, growth: float = 0.0, steps: float = 1.0, most: int = 1024
) -> Iterator[QuerySampled]:
    """Yield a sample every 0.2 s of calls that a server answers.

    Each answer lets ``growth`` more be under way, or a round of answers ``steps`` times as many.
    """
    num_at_step = 0
    running: list[tuple[float, float]] = []  # the end and the start of each call
    num_sent = num_done = 0
    now_s = ended_s = reply_s = reply_s2 = 0.0
    while num_done < NUM_ROWS:
        now_s += 0.2
        while True:
            while num_sent < NUM_ROWS and len(running) < int(limit):
                at_s = max(now_s - 0.2, ended_s)
                heapq.heappush(running, (at_s + latency(), at_s))
                num_sent += 1
            if not running or running[0][0] > now_s:
                break
            ended_s, started_s = heapq.heappop(running)
            num_done, limit = num_done + 1, min(limit + growth, most)
            if num_done >= num_at_step + limit:
                num_at_step, limit = num_done, min(limit * steps, most)
            reply_s, reply_s2 = reply_s + ended_s - started_s, reply_s2 + (ended_s - started_s) ** 2
        calls = CallCounts(num_done, 0, len(running), NUM_ROWS, True, num_done, reply_s, reply_s2)
        yield sampled(now_s, calls, int(limit), most)


def limited(latency: Latency, start: int, server: Server | None = None, num_cached: int = 0) -> Iterator[QuerySampled]:
    """Yield a sample every 0.2 s of calls that the limiter admits to a server, by default one that takes any number.

    A cache has answered ``num_cached`` rows before.
    """
    pace, server = Pace(start=start), server or Unlimited()
    running: list[tuple[float, int, Sent, Outcome, Hints]] = []
    num_done, num_to_send = num_cached, NUM_ROWS - num_cached
    now_s = written_s = sampled_s = reply_s = reply_s2 = 0.0
    while num_done < NUM_ROWS:
        wake_s = math.inf
        while num_to_send:
            if isinstance(sent := pace.try_send(now_s), float):
                wake_s = max(sent, now_s + 0.001)
                break
            num_to_send -= 1
            outcome, hints = server.arrive(now_s)
            written_s = max(written_s, now_s) + 0.0005
            end_s = written_s + (latency() if outcome == "ok" else 0.01)
            heapq.heappush(running, (end_s, sent.seq, sent, outcome, hints))
        next_s = min(running[0][0] if running else math.inf, wake_s)
        while sampled_s + 0.2 < next_s:
            sampled_s += 0.2
            num_replies, rate_limit = num_done - num_cached, pace.rate_limit(sampled_s) if num_to_send else ""
            calls = CallCounts(num_done, 0, pace.in_flight, NUM_ROWS, True, num_replies, reply_s, reply_s2)
            yield sampled(sampled_s, calls, pace.limit, 1024, pace.num_refused, rate_limit)
        now_s = next_s
        if wake_s == next_s:
            continue
        _, _, sent, outcome, hints = heapq.heappop(running)
        pace.settle(now_s, sent, outcome, hints=hints)
        if outcome == "ok":
            server.depart()
            num_done, reply_s, reply_s2 = num_done + 1, reply_s + now_s - sent.at, reply_s2 + (now_s - sent.at) ** 2
        else:
            num_to_send += 1
    calls = CallCounts(num_done, 0, 0, NUM_ROWS, True, num_done - num_cached, reply_s, reply_s2)
    yield sampled(now_s, calls, pace.limit, 1024, pace.num_refused)


def sampled(
    time_s: float, calls: CallCounts, limit: int, most: int, num_refused: int = 0, rate_limit: str = ""
) -> QuerySampled:
    num_calls = calls.num_replies
    use = ModelSample("o", "gpt", num_calls, 0, 0, 0, 0, num_calls / 1000, num_refused, calls.num_in_flight, 0, limit)
    use = replace(use, max_allowed=most, rate_limit=rate_limit)
    sample = StageSample(0, 40, 64, 0, 0, 0, "workers", NUM_ROWS, True, calls)
    return QuerySampled(time_s, (sample,), 0, 0, 0.0, Measures(models=(use,) if calls.num_done else ()))


def forecasts(samples: Iterator[QuerySampled], loading_s: float = 0.0) -> Forecasts:
    """Return each forecast beside the truth. Before the first call the client loads for some time."""
    stats = Stats()
    stats.on_event(STARTED)
    found, num_bundles = [], 0
    for tenth in range(int(loading_s * 5)):
        calls = CallCounts(0, 0, 0, NUM_ROWS, True)
        waiting = StageSample(0, 40, 64, 0, 0, 0, "workers", NUM_ROWS, True, calls)
        stats.on_event(QuerySampled(0.2 * tenth, (waiting,), 0, 0, 0.0))
    for sample in samples:
        calls = sample.stages[0].calls
        assert calls is not None
        while (num_bundles + 1) * BUNDLE <= calls.num_done - 2000:  # bundles end long after their calls
            num_bundles += 1
            stats.on_event(BundleProduced(0, BUNDLE, 10, 1.0))
        time_s = sample.time_s + loading_s
        stats.on_event(QuerySampled(time_s, sample.stages, 0, 0, 0.0, sample.measures))
        dollars = stats.forecast.dollars(stats.models[0]) if stats.models else None
        found.append((calls.num_done / NUM_ROWS, time_s, stats.forecast.seconds_left(), dollars))
    _, end_s, _, all_dollars = found[-1]
    assert all_dollars
    return [
        (share, left_s and left_s / (end_s - time_s), dollars and dollars / all_dollars)
        for share, time_s, left_s, dollars in found
        if time_s < end_s
    ]


def fixed(seconds: float) -> Latency:
    return lambda: seconds


def varied(low_s: float, high_s: float, seed: int = 7) -> Latency:
    draw = random.Random(seed)
    return lambda: draw.uniform(low_s, high_s)


class Queue(Unlimited):
    """A server where a call waits for one of some slots."""

    def __init__(self, num_slots: int, service: Latency) -> None:
        super().__init__()
        self._free_at, self._service = [0.0] * num_slots, service
        self._latency_s = 0.0

    def arrive(self, now: float) -> tuple[Outcome, Hints]:
        end_s = max(now, self._free_at[0]) + self._service()
        heapq.heapreplace(self._free_at, end_s)
        self._latency_s = end_s - now
        return super().arrive(now)

    def latency(self) -> float:
        """Return the time that the call takes which arrived last."""
        return self._latency_s


def bucket(per_second: float) -> Server:
    return TokenBucket(lambda now: per_second, per_second)


def window(per_second: float) -> Server:
    return FixedWindow(lambda now: per_second, has_headers=True)


@pytest.mark.parametrize(
    ("samples", "tolerance"),
    [
        pytest.param(lambda: simulated(fixed(0.8), 40), 0.25, id="40 slots at 0.8 s"),
        pytest.param(lambda: simulated(varied(0.4, 1.2), 40), 0.25, id="40 slots at 0.4 to 1.2 s"),
        pytest.param(lambda: simulated(fixed(0.1), 4), 0.25, id="4 slots at 0.1 s"),
        pytest.param(lambda: simulated(varied(1, 5), 64, most=64), 0.25, id="64 slots at 1 to 5 s"),
        pytest.param(lambda: simulated(varied(2, 4), 64, growth=1.0), 0.25, id="more and more, at 3 s"),
        pytest.param(lambda: simulated(varied(2, 4), 64, growth=0.3), 0.25, id="slowly more, at 3 s"),
        pytest.param(lambda: simulated(fixed(3), 64, growth=1.0), 0.25, id="more and more, at exactly 3 s"),
        pytest.param(lambda: simulated(varied(2, 4), 64, steps=1.7), 0.25, id="more in steps, at 3 s"),
        pytest.param(lambda: limited(varied(2.7, 3.3), OWN_START), 0.25, id="the limiter, at 2.7 to 3.3 s"),
        pytest.param(lambda: limited(varied(2.7, 3.3), START), 0.45, id="the limiter, at 2.7 to 3.3 s, from more"),
        pytest.param(lambda: limited(varied(2, 4), START), 0.25, id="the limiter, at 2 to 4 s, from more"),
    ],
)
def test_time_and_cost_are_near_the_truth_from_a_twentieth_of_the_rows_on(
    samples: Callable[[], Iterator[QuerySampled]], tolerance: float
) -> None:
    for loading_s in (0.0, 5.0):
        for share, time_ratio, cost_ratio in forecasts(samples(), loading_s):
            if 0.05 <= share <= 0.9:  # later the last round of calls is shorter than what a sample can tell
                assert time_ratio is not None
                assert 1 - tolerance <= time_ratio <= 1 + tolerance, (share, time_ratio)
            if share >= 0.05:
                assert cost_ratio is not None
                assert 0.75 <= cost_ratio <= 1.25, (share, cost_ratio)


@pytest.mark.parametrize(
    ("samples", "since"),
    [
        pytest.param(lambda: limited(fixed(0.6), OWN_START, bucket(30)), 0.05, id="30 a second"),
        pytest.param(lambda: limited(fixed(0.3), OWN_START, bucket(200)), 0.2, id="200 a second"),
        pytest.param(lambda: limited(fixed(0.6), OWN_START, window(30)), 0.05, id="30 a second, with rate headers"),
        pytest.param(lambda: limited(varied(0.4, 0.8), OWN_START, Slots(20)), 0.05, id="20 slots"),
        pytest.param(lambda: limited(fixed(0.6), OWN_START, bucket(30), 1500), 0.55, id="half of the rows cached"),
    ],
)
def test_the_measured_rate_decides_when_the_server_refuses_calls(
    samples: Callable[[], Iterator[QuerySampled]], since: float
) -> None:
    for share, time_ratio, cost_ratio in forecasts(samples()):
        if since <= share <= 0.8:
            assert time_ratio is not None
            assert 0.75 <= time_ratio <= 1.25, (share, time_ratio)
            assert cost_ratio == pytest.approx(1.0), share


def test_calls_that_take_very_different_times_do_not_shake_the_forecast() -> None:
    for seed in range(5):
        for share, time_ratio, _ in forecasts(limited(varied(0.1, 1.9, seed), OWN_START)):
            if 0.05 <= share <= 0.9:
                assert time_ratio is not None
                assert 0.6 <= time_ratio <= 2, (seed, share, time_ratio)


def test_a_server_whose_queue_grows_is_not_expected_to_answer_more() -> None:
    queue = Queue(100, varied(0.7, 1.3))
    for share, time_ratio, _ in forecasts(limited(queue.latency, OWN_START, queue)):
        if 0.16 <= share <= 0.8:
            assert time_ratio is not None
            assert 0.6 <= time_ratio <= 1.6, (share, time_ratio)


def test_stages_that_call_the_same_model_share_its_rate() -> None:
    """The second stage gets its first rows late, and its calls wait behind calls of the first."""
    infos = [StageInfo(index, "prompt gpt", kind="async function", model=("o", "gpt")) for index in range(2)]
    stats = Stats()
    stats.on_event(QueryStarted((*infos, StageInfo(2, "write out/", 1, (1,), "write")), 0.0))
    for sample in simulated(fixed(0.8), 40):
        calls = sample.stages[0].calls
        assert calls is not None
        done = (min(calls.num_done, 2000), max(calls.num_done - 2000, 0))
        stages = [
            StageSample(
                index, 40, 64, 0, 0, 0, "workers", total, True, replace(calls, num_answered=num, total_rows=total)
            )
            for index, (num, total) in enumerate(zip(done, (2000, 1000), strict=True))
        ]
        stages[1] = replace(stages[1], calls=CallCounts(done[1], 0, 0, 1000, True))
        stats.on_event(QuerySampled(sample.time_s, tuple(stages), 0, 0, 0.0, sample.measures))
        true_s = NUM_ROWS * 0.8 / 40 - sample.time_s
        if true_s > 5 and sample.time_s > 4:
            left_s = stats.forecast.seconds_left()
            assert left_s is not None
            assert 0.75 <= left_s / true_s <= 1.25, (sample.time_s, left_s, true_s)


class Recorder:
    """Keeps the samples of a query, each with the forecast at that moment and the rows of finished bundles."""

    def __init__(self) -> None:
        self.stats = Stats()
        self.events: list[Event] = []
        self.forecasts: list[tuple[CallCounts, int, float, float | None, float | None]] = []
        self.ended_s = 0.0

    def on_event(self, event: Event) -> None:
        self.stats.on_event(event)
        self.events.append(event)
        if isinstance(event, QueryFinished):
            self.ended_s = event.time_s
        if not isinstance(event, QuerySampled):
            return
        for stage, sample in zip(self.stats.stages, event.stages, strict=True):
            if (calls := sample.calls) is not None:
                dollars = next(map(self.stats.forecast.dollars, self.stats.models), None)
                left_s = self.stats.forecast.seconds_left()
                self.forecasts.append((calls, stage.num_rows, event.time_s, left_s, dollars))


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    ps.attach_subscriber(recorder)
    yield recorder
    ps.detach_subscriber(recorder)


def test_a_query_counts_answered_calls_and_not_bundles(recorder: Recorder, tmp_path: Path) -> None:
    """A bundle of 64 takes seconds here, and its calls end one after another."""
    ps.from_pydict({"text": [f"review {n}" for n in range(400)]}).write_parquet(str(tmp_path / "in"))
    recorder.forecasts.clear()
    with plain_server(latency=0.3, slots=24, bad_every=50) as base_url:
        ps.set_provider("openai", base_url=base_url, api_key="x")
        answers = ps.prompt(ps.col("text"), model="gpt-5-mini", on_error="ignore")
        df = ps.read_parquet(str(tmp_path / "in")).with_column("answer", answers)
        df.write_parquet(str(tmp_path / "out"))
    last = recorder.forecasts[-1][0]
    assert (last.num_answered, last.num_failed, last.num_in_flight, last.total_rows) == (392, 8, 0, 400)
    assert any(calls.num_done > 0 and num_rows == 0 for calls, num_rows, *_ in recorder.forecasts)
    assert all(calls.num_in_flight <= 64 for calls, *_ in recorder.forecasts)
    (use,) = recorder.stats.models
    later = [each for each in recorder.forecasts if 0.1 <= each[0].num_done / 400 <= 0.9]
    assert later
    for *_, dollars in later:
        assert dollars is not None
        assert use.dollars is not None
        assert 0.75 <= dollars / use.dollars <= 1.25
    ratios = sorted((left_s or 0.0) / (recorder.ended_s - time_s) for _, _, time_s, left_s, _ in later)
    assert 0.4 < ratios[len(ratios) // 2] < 2.5  # the machine may be busy; the virtual clock above is strict


def test_cached_answers_are_counted_at_once_and_cost_nothing(recorder: Recorder, tmp_path: Path) -> None:
    df = ps.from_pydict({"text": [f"review {n}" for n in range(100)]})
    with plain_server(latency=0.01) as base_url, ps.config(cache_dir=str(tmp_path)):
        ps.set_provider("openai", base_url=base_url, api_key="x")
        answer = ps.prompt(ps.col("text"), model="gpt-5-mini", temperature=0)
        df.limit(60).with_column("answer", answer).collect()
        recorder.forecasts.clear()
        df.with_column("answer", answer).collect()
    assert recorder.forecasts[-1][0].num_answered == 100
    assert [use.num_cached for use in recorder.stats.models] == [60]


def test_an_async_function_counts_its_calls(recorder: Recorder) -> None:
    @ps.func(max_concurrency=8, on_error="ignore")
    async def slow(x: int) -> int:
        import asyncio

        await asyncio.sleep(0.1)
        if x % 10 == 3:
            raise ValueError("three")
        return x

    ps.range(100).select(slow(ps.col("id"))).collect()
    most = max(calls.num_in_flight for calls, *_ in recorder.forecasts)
    assert most == 8
    last = recorder.forecasts[-1][0]
    assert (last.num_answered, last.num_failed, last.num_in_flight) == (90, 10, 0)


def test_rows_that_a_condition_leaves_out_are_not_answered(recorder: Recorder) -> None:
    @ps.func(max_concurrency=8)
    async def same(x: int) -> int:
        return x

    rare, none = ((ps.col("id") % 10 == number) & (ps.col("id") < 500) for number in (3, 11))
    answers = {"a": when(rare, same(ps.col("id"))), "b": when(none, same(ps.col("id") + 1))}
    ps.range(1000).with_columns(answers).collect()
    calls = [stage.calls for stage in recorder.stats.stages if stage.calls is not None]
    assert [(each.num_answered, each.total_rows, each.is_total_exact) for each in calls] == [
        (50, 50, True),
        (0, 0, True),
    ]


def test_a_limit_ends_the_stages_before_it_and_gives_the_time(recorder: Recorder) -> None:
    stats = Stats()
    stages = (StageInfo(0, "read"), StageInfo(1, "limit 1000", None, (0,), "limit"), StageInfo(2, "udf", None, (1,)))
    samples = (
        StageSample(0, 1, 2, 0, 0, 0, None, 10**6, True),
        StageSample(1, 0, 0, 0, 0, 0, None, 1000, False),
        StageSample(2, 1, 2, 0, 0, 0, None, 1000, False),
    )
    stats.on_event(QueryStarted(stages, 0.0))
    for stage in (0, 1, 2):
        stats.on_event(BundleProduced(stage, 250, 10, 0.1))
    stats.on_event(QuerySampled(5.0, samples, 0, 0, 0.0))
    assert [stage.progress(stats.stages).total for stage in stats.stages] == [None, 1000, 1000]
    assert stats.forecast.seconds_left() == 15.0

    @ps.func
    def same(x: int) -> int:
        return x

    ps.range(100_000).where(same(ps.col("id")) >= 0).limit(10).select(same(ps.col("id"))).collect()
    ended = {event.stage for event in recorder.events if isinstance(event, StageFinished)}
    assert ended == set(range(len(recorder.stats.stages)))


def test_a_function_of_batches_has_a_total_before_its_first_batch_ends(recorder: Recorder) -> None:
    def slow(batch: dict[str, object]) -> dict[str, object]:
        import time

        time.sleep(0.5)
        return batch

    ps.range(100).map_batches(slow, batch_size=50, concurrency=1).collect()
    early = next(event for event in recorder.events if isinstance(event, QuerySampled) and event.stages[1].num_running)
    assert (early.stages[1].total_rows, early.stages[1].is_total_exact) == (100, False)


def test_a_pause_does_not_count() -> None:
    stats = Stats()
    stats.on_event(STARTED)
    for num_seen, sample in enumerate(simulated(fixed(0.8), 40)):
        paused_s = 600.0 if num_seen > 100 else 0.0
        if num_seen == 100:
            for seconds in (0.0, 300.0, 600.0):
                paused = QuerySampled(
                    sample.time_s + seconds, sample.stages, 0, 0, 0.0, sample.measures, is_paused=True
                )
                stats.on_event(paused)
            before_s = stats.forecast.seconds_left()
        stats.on_event(QuerySampled(sample.time_s + paused_s, sample.stages, 0, 0, 0.0, sample.measures))
        if num_seen == 103:
            after_s = stats.forecast.seconds_left()
            break
    assert before_s is not None
    assert after_s is not None
    assert before_s - 2 < after_s < before_s


def test_the_first_answers_may_come_during_a_pause() -> None:
    stats = Stats()
    stats.on_event(STARTED)
    for num_seen, sample in enumerate(simulated(fixed(0.8), 40)):
        is_paused = num_seen > 0  # the first calls are under way
        stats.on_event(QuerySampled(sample.time_s, sample.stages, 0, 0, 0.0, sample.measures, is_paused=is_paused))
        if stats.models:
            break
    assert stats.forecast.dollars(stats.models[0]) is None
    assert "40 of 3,000 answered" in progress_text(stats, 1.0, 100, 20).plain
