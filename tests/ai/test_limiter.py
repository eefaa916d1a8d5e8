"""The queue of the limiter: its order, and requests that are cancelled or whose loop is closed."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time

import pytest
from hypothesis import given, settings, strategies as st

from penstock.ai.client.limits.caps import Caps
from penstock.ai.client.limits.limiter import Limiter, LimiterKey, Outcome, Permit, limiter_for
from penstock.errors import WaitTooLongError


async def turns(count: int = 5) -> None:
    """Let everything that is ready on the loop run."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_room_is_given_without_a_turn_of_the_loop() -> None:
    limiter = Limiter()
    asked = limiter.admit()
    with pytest.raises(StopIteration) as stop:
        asked.send(None)
    permit: Permit = stop.value.value
    assert limiter.state().in_flight == 1
    permit.settle("ok")
    assert limiter.state().in_flight == 0


def test_a_permit_is_settled_once() -> None:
    async def main() -> None:
        permit = await Limiter().admit()
        permit.settle("ok")
        with pytest.raises(RuntimeError, match="already settled"):
            permit.settle("ok")

    asyncio.run(main())


def test_the_limit_can_be_lowered_while_requests_wait() -> None:
    async def main() -> None:
        limiter = Limiter()
        limiter.limit_requests(2)
        first, second = await limiter.admit(), await limiter.admit()
        waiting = asyncio.create_task(limiter.admit())
        await turns()
        limiter.limit_requests(1)
        first.settle("ok")
        await turns()
        assert limiter.state().waiting == limiter.state().in_flight == 1
        second.settle("ok")
        (await waiting).settle("ok")

    asyncio.run(main())


def test_first_come_first_served() -> None:
    async def main() -> list[int]:
        limiter = Limiter(Caps(max_concurrency=1))
        held = await limiter.admit()
        served: list[int] = []

        async def ask(number: int) -> None:
            permit = await limiter.admit()
            served.append(number)
            permit.settle("ok")

        tasks = [asyncio.create_task(ask(number)) for number in range(20)]
        await turns()
        assert limiter.state().waiting == 20
        held.settle("ok")
        await asyncio.gather(*tasks)
        assert limiter.state().in_flight == limiter.state().waiting == 0
        return served

    assert asyncio.run(main()) == list(range(20))


def test_a_refused_call_comes_before_those_that_were_never_sent() -> None:
    """A bundle of 64 rows that holds refused calls does not wait for 1,000 other calls."""

    async def main() -> list[int]:
        limiter = Limiter(Caps(max_concurrency=8))
        served: list[int] = []

        async def ask(number: int) -> None:
            is_refused = number in (3, 5)
            if is_refused:
                (await limiter.admit()).settle("refused")
            permit = await limiter.admit(rank="retry" if is_refused else "first")
            served.append(number)
            await asyncio.sleep(0)
            permit.settle("ok")

        await asyncio.gather(*(ask(number) for number in range(1064)))
        assert limiter.state().in_flight == limiter.state().waiting == 0
        return served

    served = asyncio.run(main())
    assert sorted(served) == list(range(1064))
    assert max(served.index(number) for number in range(64)) < 80
    assert served.index(3) < served.index(5)


def test_a_cancelled_retry_leaves_the_queue() -> None:
    async def main() -> None:
        limiter = Limiter(Caps(max_concurrency=1))
        held = await limiter.admit()
        new = asyncio.create_task(limiter.admit())
        first, second = (asyncio.create_task(limiter.admit(rank="retry")) for _ in range(2))
        await turns()
        first.cancel()
        await turns()
        assert limiter.state().waiting == 2
        held.settle("ok")
        (await second).settle("ok")
        (await new).settle("ok")

    asyncio.run(main())


def test_a_cancelled_waiter_leaves_the_queue() -> None:
    async def main() -> None:
        limiter = Limiter(Caps(max_concurrency=1))
        held = await limiter.admit()
        first, second = (asyncio.create_task(limiter.admit()) for _ in range(2))
        await turns()
        first.cancel()
        await turns()
        assert limiter.state().waiting == 1
        held.settle("ok")
        (await second).settle("ok")
        assert limiter.state().in_flight == 0

    asyncio.run(main())


def test_a_permit_for_a_cancelled_waiter_is_handed_on() -> None:
    async def main() -> None:
        limiter = Limiter(Caps(max_concurrency=1))
        held = await limiter.admit()
        first, second = (asyncio.create_task(limiter.admit()) for _ in range(2))
        await turns()
        held.settle("ok")  # given to the first, which has not run yet
        first.cancel()
        (await second).settle("ok")
        assert first.cancelled()
        assert limiter.state().in_flight == limiter.state().waiting == 0

    asyncio.run(main())


@given(st.lists(st.sampled_from(["ask", "settle", "cancel", "turn"]), max_size=60))
@settings(max_examples=100, deadline=None)
def test_nothing_is_lost_whatever_is_cancelled(moves: list[str]) -> None:
    async def main() -> None:
        chance = random.Random(len(moves))
        limiter = Limiter(Caps(max_concurrency=3))
        tasks: list[asyncio.Task[Permit]] = []
        settled: set[asyncio.Task[Permit]] = set()

        def holders() -> list[asyncio.Task[Permit]]:
            return [task for task in tasks if task.done() and not task.cancelled() and task not in settled]

        for move in moves:
            if move == "ask":
                tasks.append(asyncio.create_task(limiter.admit()))
            elif move == "turn":
                await turns(1)
            elif move == "settle" and holders():
                task = chance.choice(holders())
                settled.add(task)
                task.result().settle("ok")
            elif move == "cancel" and tasks:
                chance.choice(tasks).cancel()
            assert limiter.state().in_flight <= 3
        await turns()
        while left := holders():
            for task in left:
                settled.add(task)
                task.result().settle("ok")
            await turns()
        assert limiter.state().in_flight == limiter.state().waiting == 0
        assert all(task.done() for task in tasks)

    asyncio.run(main())


def test_several_loops_on_several_threads_share_one_limit() -> None:
    limiter = Limiter(Caps(max_concurrency=4))
    highest, done = 0, 0
    lock = threading.Lock()
    running = 0

    async def one(chance: random.Random) -> None:
        nonlocal highest, running, done
        permit = await limiter.admit()
        with lock:
            running += 1
            highest = max(highest, running)
        await asyncio.sleep(chance.random() * 0.0005)
        with lock:
            running -= 1
            done += 1
        permit.settle("ok")

    async def many(seed: int) -> None:
        chance = random.Random(seed)
        await asyncio.gather(*(one(chance) for _ in range(200)))

    threads = [threading.Thread(target=lambda seed=seed: asyncio.run(many(seed))) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert done == 600
    assert highest == 4
    assert limiter.state().in_flight == limiter.state().waiting == 0


def test_a_closed_loop_takes_no_permit_with_it() -> None:
    limiter = Limiter(Caps(max_concurrency=1))

    async def hold() -> Permit:
        return await limiter.admit()

    held = asyncio.run(hold())
    dead = asyncio.new_event_loop()
    task = dead.create_task(limiter.admit())
    dead.run_until_complete(turns())
    task.cancel()  # never run: the loop is closed before
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    dead.close()
    held.settle("ok")

    async def ask() -> None:
        (await limiter.admit()).settle("ok")

    asyncio.run(asyncio.wait_for(ask(), 5))
    assert limiter.state().in_flight == 0


def test_a_timer_serves_those_who_wait_for_the_pace() -> None:
    async def main() -> float:
        limiter = Limiter(Caps(requests_per_minute=60 * 400))
        started = time.monotonic()
        for _ in range(100):
            (await limiter.admit()).settle("ok")
        return time.monotonic() - started

    assert asyncio.run(main()) > 0.8 * (100 - 400 * 0.03) / 400


def test_retry_after_stops_everybody() -> None:
    now = 100.0

    async def main() -> None:
        nonlocal now
        limiter = Limiter(clock=lambda: now)
        (await limiter.admit()).settle("refused", headers={"retry-after": "30"})
        waiting = asyncio.create_task(limiter.admit())
        await turns()
        now = 129.0
        late = asyncio.create_task(limiter.admit())
        await turns()
        assert not waiting.done()
        waiting.cancel()
        now = 131.0
        late_permit = await asyncio.wait_for(_nudged(limiter, late), 5)
        late_permit.settle("ok")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("outcome", "headers"),
    [
        ("refused", {"retry-after": "86400"}),
        ("refused", {"retry-after": "Fri, 01 Jan 2099 00:00:00 GMT"}),
        ("refused", {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h"}),
        ("unavailable", {"retry-after": "3600"}),
    ],
)
def test_nobody_waits_for_longer_than_patience(outcome: Outcome, headers: dict[str, str]) -> None:
    now = 100.0

    async def main() -> None:
        nonlocal now
        limiter = Limiter(Caps(max_concurrency=1), clock=lambda: now)
        for _ in range(2):  # the second is a later query, which tries for itself
            permit = await limiter.admit()
            waiting = [asyncio.create_task(limiter.admit()) for _ in range(3)]
            await turns()
            permit.settle(outcome, headers=headers)
            for task in waiting:
                with pytest.raises(WaitTooLongError, match=r"asks to come back in .*, at 20\d\d-"):
                    await task
            now += 10
        (await limiter.admit()).settle("ok")
        assert limiter.state().in_flight == limiter.state().waiting == 0

    asyncio.run(main())


def test_one_finds_out_whether_a_server_is_back() -> None:
    async def main() -> None:
        limiter = Limiter()
        (await limiter.admit()).settle("unavailable", headers={"retry-after": "3600"})
        probe = await limiter.admit()
        others = [asyncio.create_task(limiter.admit()) for _ in range(3)]
        await turns()
        assert limiter.state().waiting == 3
        probe.settle("ok")
        for permit in await asyncio.gather(*others):
            permit.settle("ok")

    asyncio.run(main())


def test_patience_ends_while_a_server_asks_again_and_again() -> None:
    now = 100.0

    async def main() -> None:
        nonlocal now
        limiter = Limiter(Caps(max_concurrency=1), clock=lambda: now)
        permit = await limiter.admit()
        first, second = (asyncio.create_task(limiter.admit()) for _ in range(2))
        await turns()
        permit.settle("refused", headers={"retry-after": "400"})
        now = 501.0
        permit = await _nudged(limiter, first)
        late = asyncio.create_task(limiter.admit())
        await turns()
        permit.settle("refused", headers={"retry-after": "400"})
        with pytest.raises(WaitTooLongError, match="accepted no request in 10 min"):
            await second
        assert not late.done()
        now = 902.0
        (await _nudged(limiter, late)).settle("ok")

    asyncio.run(main())


def test_long_waits_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limiter = limiter_for(LimiterKey("openai", "http://slow", "m"))
        permits = [await limiter.admit() for _ in range(5)]
        for permit in permits:
            permit.settle("refused", headers={"retry-after": "300"})

    with caplog.at_level("WARNING", logger="penstock.ai"):
        asyncio.run(main())
    assert caplog.messages == ["openai (m) asks to wait 5 min; waiting"]


async def _nudged(limiter: Limiter, task: asyncio.Task[Permit]) -> Permit:
    """A virtual clock fires no timer: one who comes and goes has the limiter look again."""
    visitor = asyncio.create_task(limiter.admit())
    await turns()
    visitor.cancel()
    await turns()
    return await task


def test_one_limiter_for_each_model() -> None:
    key = LimiterKey("openai", "http://one", "m")
    limiter = limiter_for(key)

    assert limiter_for(key) is limiter
    assert limiter_for(LimiterKey("openai", "http://two", "m")) is not limiter


def test_what_was_learned_outlives_its_users() -> None:
    key = LimiterKey("openai", "http://kept", "m")

    async def refuse() -> None:
        (await limiter_for(key).admit()).settle("refused")

    asyncio.run(refuse())
    gc.collect()
    assert limiter_for(key).state().refused == 1


def test_queries_with_other_caps_have_a_limiter_of_their_own() -> None:
    key = LimiterKey("openai", "https://caps", "m")
    loose, tight = limiter_for(key, Caps(max_concurrency=60)), limiter_for(key, Caps(max_concurrency=5))
    assert (loose.state().limit, tight.state().limit) == (60, 5)
    assert limiter_for(key, Caps(max_concurrency=5)) is tight


def test_a_server_without_tls_starts_with_few_requests() -> None:
    """It may be the user's own, with few slots and a queue."""
    limits = [limiter_for(LimiterKey("openai", f"{scheme}://start", "m")).state().limit for scheme in ("http", "https")]
    assert limits == [6, 64]


def test_an_admission_costs_microseconds() -> None:
    async def main() -> tuple[float, float]:
        limiter = Limiter()
        ours = theirs = float("inf")
        gate = asyncio.Semaphore(64)
        for _ in range(5):
            started = time.perf_counter()
            for _ in range(2000):
                (await limiter.admit()).settle("ok")
            ours = min(ours, time.perf_counter() - started)
            started = time.perf_counter()
            for _ in range(2000):
                async with gate:
                    await asyncio.sleep(0)
            theirs = min(theirs, time.perf_counter() - started)
        return ours, theirs

    ours, theirs = asyncio.run(main())
    assert ours < 3 * theirs  # a semaphore and one turn of the loop
