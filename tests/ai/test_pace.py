"""The limiter's decisions against servers of many kinds, on a virtual clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from penstock.ai.client.limits.caps import Caps
from penstock.ai.client.limits.pace import Outcome, Pace, Sent
from penstock.ai.client.limits.rate_headers import NO_HINTS, Hints, RateWindow
from penstock.cost.usage import UsageEstimate
from tests.ai.simulation import (
    BatchServer,
    FixedWindow,
    Queue,
    Server,
    Slots,
    TokenBucket,
    Troubled,
    Unlimited,
    noisy,
    simulate,
)

JITTER = (0.0, 0.02)
OWN_START = 6


def always(value: float) -> Callable[[float], float]:
    return lambda now: value


def steps(*changes: tuple[float, float]) -> Callable[[float], float]:
    """Return a function of time from (since when, value)."""
    return lambda now: [value for since, value in changes if now >= since][-1]


def lognormal(median_s: float, p99_s: float) -> Callable[[float], float]:
    chance = random.Random(1)
    sigma = math.log(p99_s / median_s) / 2.326
    return lambda now: median_s * math.exp(chance.gauss(0, sigma))


@pytest.mark.parametrize("refusal_s", [0.05, 0.005])
@pytest.mark.parametrize(
    ("make", "network_s"),
    [
        pytest.param(lambda: TokenBucket(always(300), 5), 0.0, id="bucket of 5"),
        *(
            pytest.param(lambda: TokenBucket(always(300), 30), jitter, id=f"bucket of 30, {jitter}")
            for jitter in JITTER
        ),
        *(
            pytest.param(lambda: TokenBucket(always(300), 300), jitter, id=f"bucket of 300, {jitter}")
            for jitter in JITTER
        ),
        *(pytest.param(lambda: FixedWindow(always(300)), jitter, id=f"window, {jitter}") for jitter in JITTER),
    ],
)
def test_rate_limit_without_headers_is_found_and_rarely_passed(
    make: Callable[[], Server], network_s: float, refusal_s: float
) -> None:
    run = simulate(Pace(), make(), 30, network_s=network_s, refusal_s=always(refusal_s))

    assert run.accepted_per_s(10, 30) > 0.95 * 300
    assert run.accepted_per_s(5, 10) > 0.9 * 300
    assert run.refused_share() < 0.05


@pytest.mark.parametrize("per_s", [50, 1000])
def test_other_rates(per_s: int) -> None:
    run = simulate(Pace(), TokenBucket(always(per_s), per_s), 15, most_per_s=8000)

    assert run.accepted_per_s(5, 15) > 0.95 * per_s
    assert run.refused_share(5) < 0.02


def test_a_few_requests_a_minute() -> None:
    window = FixedWindow(always(20 / 60), 60)
    run = simulate(Pace(), window, 300, latency=always(1.0), refusal_s=always(0.1))

    assert run.accepted_per_s(0, 300) > 0.9 * 20 / 60


def test_slower_answers_leave_the_rate_as_it_is() -> None:
    latency = steps((0, 0.05), (15, 0.5))
    run = simulate(Pace(), TokenBucket(always(300), 300), 30, latency=latency)

    assert run.accepted_per_s(15, 20) > 0.9 * 300
    assert run.accepted_per_s(20, 30) > 0.95 * 300
    assert run.refused_share() < 0.05


@pytest.mark.parametrize("make", [lambda rate: TokenBucket(rate, 30), FixedWindow], ids=["bucket", "window"])
def test_limits_that_change(make: Callable[[Callable[[float], float]], Server]) -> None:
    run = simulate(Pace(), make(steps((0, 300), (15, 600), (30, 100))), 40)

    assert run.accepted_per_s(22, 30) > 0.9 * 600
    assert run.accepted_per_s(33, 40) > 0.9 * 100
    assert run.refused_share(0, 30) < 0.05


def test_server_without_limits_is_never_held_back() -> None:
    pace = Pace()
    run = simulate(pace, Unlimited(), 2)

    assert run.most_in_flight(0, 0.3) >= 200
    assert pace.limit == 1024
    assert pace.rate is None


@pytest.mark.parametrize("seed", range(10))
def test_new_connections_are_no_queue(seed: int) -> None:
    """A request that opens a connection takes more than twice as long."""
    chance, pace, num_opened = random.Random(seed), Pace(start=OWN_START), 0

    def latency(now: float) -> float:
        nonlocal num_opened
        is_new, num_opened = pace.in_flight > num_opened, max(num_opened, pace.in_flight)
        return chance.uniform(0.05, 0.06) + (chance.uniform(0.056, 0.104) if is_new else 0.0)

    run = simulate(pace, Unlimited(), 2, latency=latency, most_per_s=3000, network_s=0.002, seed=seed)
    assert run.accepted_per_s(1, 2) > 2500


def test_answers_that_a_busy_client_reads_late_are_no_queue() -> None:
    pace, limits = Pace(start=OWN_START), list[int]()

    def latency(now: float) -> float:
        limits.append(pace.limit)
        if not 0.4 < now < 2:
            return 0.05
        pace.hold_growth(now + 0.2)
        return 0.3

    simulate(pace, Unlimited(), 4, latency=latency, most_per_s=8000, start_at=0)
    assert limits == sorted(limits)
    assert limits[-1] > 300


def test_stragglers_do_not_hold_growth_up() -> None:
    run = simulate(Pace(), Unlimited(), 8, latency=lognormal(0.3, 3.0))

    assert run.most_in_flight(0, 6.0) == 1024


def test_nothing_grows_before_an_answer() -> None:
    run = simulate(Pace(), Unlimited(), 25, latency=always(3))

    assert run.most_in_flight(0, 2.9) == 64
    assert run.most_in_flight(0, 10) > 250
    assert run.most_in_flight() == 1024


def varied(seed: int) -> Callable[[float], float]:
    chance = random.Random(seed)
    return lambda now: chance.uniform(0.5, 5)


def short_or_long(seed: int) -> Callable[[float], float]:
    chance = random.Random(seed)
    return lambda now: 0.3 if chance.random() < 0.7 else 3.0


@pytest.mark.parametrize("latency", [varied, short_or_long])
@pytest.mark.parametrize("seed", range(3))
def test_answers_that_vary_are_no_queue(latency: Callable[[int], Callable[[float], float]], seed: int) -> None:
    run = simulate(Pace(), Unlimited(), 60, latency=latency(seed), seed=seed)

    assert run.most_in_flight(0, 60) > 900
    assert min(run.accepted_per_s(start, start + 10) for start in range(0, 50, 10)) > 5


def test_answers_that_become_slow_are_no_queue() -> None:
    run = simulate(Pace(), Unlimited(), 60, latency=steps((0, 0.3), (3, 3.0)), most_per_s=2000)

    assert run.accepted_per_s(40, 60) > 0.85 * 1024 / 3


@pytest.mark.parametrize("slots", [4, 16, 64])
@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_queues_is_kept_busy_and_no_more(slots: int, seed: int) -> None:
    chance = random.Random(seed)
    server = Queue(slots, lambda now: chance.uniform(0.08, 0.12))
    pace = Pace(start=OWN_START)
    run = simulate(pace, server, 25, latency=server.latency, timeout_s=4, network_s=0.003, seed=seed)

    assert all(outcome == "ok" for _, outcome in run.sent)
    assert run.accepted_per_s(6, 25) > 0.9 * slots / 0.1
    assert run.in_flight_share(10, 0.95) <= 3 * slots


@pytest.mark.parametrize("latency_s", [1.0, 5.0])
def test_a_few_slots_with_slow_answers_are_given_little_more_than_they_work_on(latency_s: float) -> None:
    server = Queue(4, always(latency_s))
    run = simulate(Pace(start=OWN_START), server, 200, latency=server.latency, network_s=0.003)

    assert run.in_flight_share(0, 0.95) <= 3 * 4
    assert run.accepted_per_s(10, 150) > 0.9 * 4 / latency_s


@pytest.mark.parametrize(("slots", "slowdown"), [(16, 1.0), (64, 1.0), (64, 3.0), (256, 1.0)])
def test_a_server_whose_answers_become_slower_with_their_number_is_near_its_best(slots: int, slowdown: float) -> None:
    """A batch of requests is worked on together, as by vLLM: more of them slow each one down."""
    server = BatchServer(slots, service_s=1.0, slowdown=slowdown)
    run = simulate(Pace(start=OWN_START), server, 90, latency=server.latency, network_s=0.003)

    assert run.accepted_per_s(30, 90) > 0.8 * slots / (1 + slowdown)
    assert run.in_flight_share(10, 0.95) <= 3 * slots


def test_a_server_that_queues_and_gets_more_slots() -> None:
    server = Queue(4, always(0.1))

    def latency(now: float) -> float:
        server.slots = 4 if now < 20 else 40
        return server.latency(now)

    run = simulate(Pace(start=OWN_START), server, 60, latency=latency)

    assert run.accepted_per_s(15, 20) > 0.9 * 40
    assert run.accepted_per_s(50, 60) > 0.9 * 400


@pytest.mark.parametrize("slots", [4, 64])
@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_refuses_above_its_queue(slots: int, seed: int) -> None:
    server = Queue(slots, always(0.1), most_waiting=2 * slots)
    run = simulate(Pace(), server, 20, latency=server.latency, refusal_s=always(0.003), network_s=0.003, seed=seed)

    assert run.accepted_per_s(1, 20) > 0.9 * slots / 0.1
    assert run.refused_share() < 0.1
    assert run.refused_share(3) < 0.03


@pytest.mark.parametrize("latency", [always(0.8), lognormal(0.7, 2.0)], ids=["even", "varied"])
def test_slots_are_found_at_once(latency: Callable[[float], float]) -> None:
    pace = Pace()
    run = simulate(pace, Slots(40), 20, latency=latency, refusal_s=always(0.005), network_s=0.003)

    assert run.most_in_flight(1) <= 43
    assert run.accepted_per_s(2, 20) > 0.9 * 40 / 0.83
    assert run.refused_share(1) < 0.05
    assert pace.rate is None


@pytest.mark.parametrize(("num_clients", "stagger_s"), [(2, 0.3), (2, 3.0), (3, 0.3), (3, 3.0)])
@pytest.mark.parametrize("latency_s", [(0.8, 0.8), (0.4, 1.2)], ids=["even", "varied"])
@pytest.mark.parametrize("seed", range(2))
def test_clients_that_start_later_get_their_share_of_slots(
    num_clients: int, stagger_s: float, latency_s: tuple[float, float], seed: int
) -> None:
    chance = random.Random(seed)
    paces = [Pace() for _ in range(num_clients)]
    run = simulate(
        paces,
        Slots(40),
        90,
        latency=lambda now: chance.uniform(*latency_s),
        refusal_s=always(0.003),
        network_s=0.002,
        seed=seed,
        stagger_s=stagger_s,
    )

    assert min(run.answered_shares(36, 90)) > 0.25
    assert run.accepted_per_s(10, 90) > 0.93 * 40 / 0.8
    assert run.refused_share(36) < 0.15


@pytest.mark.parametrize(("slots", "latency_s"), [(4, 0.8), (16, 0.5), (40, 0.8), (200, 0.8)])
def test_room_for_others_costs_a_client_alone_little(slots: int, latency_s: float) -> None:
    run = simulate(Pace(), Slots(slots), 60, latency=always(latency_s), refusal_s=always(0.003), network_s=0.002)

    assert run.accepted_per_s(5, 60) > 0.95 * slots / latency_s
    assert run.refused_share(5) < 0.05


def test_an_outage_of_refusals_at_the_start_ends_soon() -> None:
    run = simulate(Pace(), Unlimited(lambda now: "refused" if now < 20 else "ok"), 30, refusal_s=always(0.01))

    assert sum(1 <= at < 20 for at, _ in run.sent) < 30
    assert run.accepted_per_s(24, 26) > 64 / 0.05


def test_time_outs_lower_the_number_in_flight() -> None:
    server = Queue(4, always(1.0))
    run = simulate(Pace(), server, 200, latency=server.latency, timeout_s=4)

    assert run.most_in_flight(30) <= 12
    assert run.accepted_per_s(120, 200) > 0.8 * 4


def test_a_few_time_outs_change_nothing() -> None:
    chance = random.Random(5)
    run = simulate(Pace(), Unlimited(), 10, latency=lambda now: 9.0 if chance.random() < 0.02 else 0.3, timeout_s=2)

    assert run.most_in_flight() == 1024


def test_slow_answers_of_a_limited_server() -> None:
    run = simulate(Pace(), TokenBucket(always(30), 30), 60, latency=lognormal(4.0, 13.0), refusal_s=always(0.1))

    assert run.accepted_per_s(10, 60) > 0.95 * 30
    assert run.refused_share() < 0.05


def test_few_rows_raise_no_limit() -> None:
    pace = Pace()
    for step in range(1000):
        sent = pace.try_send(step * 0.1)
        assert isinstance(sent, Sent)
        pace.settle(step * 0.1 + 0.05, sent, "ok")

    assert pace.limit == 64


def test_server_that_counts_requests_under_way() -> None:
    run = simulate(Pace(), Slots(20), 20)

    assert run.accepted_per_s(12, 20) > 0.9 * 400
    assert run.refused_share() < 0.02


def test_requests_under_way_with_answers_that_become_slow() -> None:
    run = simulate(Pace(), Slots(20), 40, latency=steps((0, 0.05), (20, 0.5)))

    assert run.accepted_per_s(25, 40) > 0.85 * 40
    assert run.refused_share() < 0.05


@pytest.mark.parametrize("server", [Unlimited(), TokenBucket(always(300), 300)], ids=["unlimited", "bucket"])
def test_outage_of_refusals_is_probed_rarely_and_ends_soon(server: Server) -> None:
    def down(now: float) -> Outcome:
        return "refused" if 5 <= now < 25 else "ok"

    run = simulate(Pace(), Troubled(server, down), 40, most_per_s=1000)

    before = run.accepted_per_s(3, 5)
    assert sum(6 <= at < 25 for at, _ in run.sent) < 60
    assert run.accepted_per_s(28, 30) > 0.85 * before
    assert run.accepted_per_s(30, 40) > 0.95 * before


@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_refusals_cost_at_most_half_as_much_again(share: float, seed: int) -> None:
    clean = simulate(Pace(), Unlimited(), 15, most_per_s=500)
    run = simulate(Pace(), noisy(Unlimited(), share, seed), 15, most_per_s=500)

    assert run.accepted_per_s(0, 15) > clean.accepted_per_s(0, 15) / 1.5
    assert run.accepted_per_s(5, 15) > 0.8 * 500


@pytest.mark.parametrize("make", [lambda: TokenBucket(always(300), 30), lambda: FixedWindow(always(300))])
def test_limit_of_a_server_that_refuses_others_by_chance(make: Callable[[], Server]) -> None:
    run = simulate(Pace(), noisy(make(), 0.01), 30, refusal_s=always(0.01))

    assert run.accepted_per_s(8, 30) > 0.8 * 300
    assert run.refused_share(8) < 0.06


def test_limit_that_comes_after_refusals_by_chance() -> None:
    run = simulate(Pace(), noisy(TokenBucket(steps((0, 800), (15, 300)), 30), 0.02), 40)

    assert run.accepted_per_s(8, 15) > 0.6 * 800
    assert run.accepted_per_s(20, 40) > 0.9 * 300
    assert run.refused_share(25) < 0.07


def test_5xx_pause_growth_and_cut_nothing() -> None:
    pace = Pace()
    run = simulate(pace, Unlimited(lambda now: "unavailable" if 0.07 <= now < 0.5 else "ok"), 3, most_per_s=5000)

    assert run.most_in_flight(0.2, 1.4) == run.most_in_flight(0, 0.2)
    assert run.accepted_per_s(2, 3) > 0.95 * 5000
    assert pace.rate is None


def test_models_learn_apart() -> None:
    for per_s in (50, 300):
        run = simulate(Pace(), TokenBucket(always(per_s), per_s), 15)
        assert run.accepted_per_s(8, 15) > 0.9 * per_s


@pytest.mark.parametrize("make", [lambda rate: TokenBucket(rate, 300), FixedWindow], ids=["bucket", "window"])
def test_processes_that_know_nothing_of_each_other_share(make: Callable[[Callable[[float], float]], Server]) -> None:
    paces = [Pace(), Pace(), Pace()]
    run = simulate(paces, make(always(300)), 30)

    assert run.accepted_per_s(10, 30) > 0.9 * 300
    assert run.refused_share(5) < 0.05


def test_headers_are_followed_before_anything_is_refused() -> None:
    pace = Pace()
    run = simulate(pace, FixedWindow(always(10), 60, has_headers=True), 180)

    assert run.refused_share() == 0
    assert run.accepted_per_s(0, 180) > 0.99 * 10
    assert run.accepted_per_s(0, 1) > 250  # a short job does not wait for the end of the minute


def test_nobody_sends_before_retry_after() -> None:
    run = simulate(Pace(), FixedWindow(always(10), 60, retry_after=True), 120)

    first_refusal = min(at for at, outcome in run.sent if outcome == "refused")
    assert not [at for at, _ in run.sent if first_refusal + 0.06 < at < 60]
    assert run.accepted_per_s(0, 120) == 10


def test_retry_after_is_provoked_rarely() -> None:
    run = simulate(Pace(), FixedWindow(always(300), 1, retry_after=True), 30)

    assert run.accepted_per_s(5, 30) > 0.9 * 300


def test_requests_per_minute_is_a_cap() -> None:
    run = simulate(Pace(Caps(requests_per_minute=600)), Unlimited(), 30)

    assert 0.98 * 300 <= len(run.sent) <= 302


def test_max_concurrency_is_a_cap() -> None:
    run = simulate(Pace(Caps(max_concurrency=7)), Unlimited(), 1)

    assert run.most_in_flight() == 7
    assert len(run.sent) >= 130


def test_tokens_per_minute_counts_what_was_used() -> None:
    chance = random.Random(3)

    def tokens() -> tuple[int, int]:
        return 100, chance.randrange(150, 250)

    pace = Pace(Caps(tokens_per_minute=600_000))
    run = simulate(pace, Unlimited(), 60, tokens=tokens)

    assert 0.95 * 600_000 < 200 * len(run.sent) < 1.02 * 600_000


def test_refused_requests_use_no_tokens() -> None:
    pace = Pace(Caps(tokens_per_minute=60))
    sent = pace.try_send(100.0, 1000)
    assert isinstance(sent, Sent)
    assert pace.try_send(100.1, 1) == pytest.approx(1100, abs=1)

    pace.settle(100.2, sent, "refused")

    assert isinstance(pace.try_send(100.2, 1), Sent)


def test_reservation_is_the_95th_percentile_of_the_last_256() -> None:
    estimate = UsageEstimate()
    assert estimate.estimate(10) == 10
    for _ in range(500):
        estimate.learn(0, 100_000)
    for used in range(256):
        estimate.learn(50, 50 + used)

    assert estimate.estimate(1000) == 1000 + 243


def test_one_burst_is_one_cut() -> None:
    """Refusals of requests that were sent before a cut say nothing against it."""
    pace = Pace()
    sent = [request for _ in range(64) if isinstance(request := pace.try_send(100.0), Sent)]
    for request in sent[:40]:
        pace.settle(100.05, request, "ok")
    for request in sent[40:]:
        pace.settle(100.05, request, "refused")

    assert pace.limit == 40
    assert pace.rate is None


def test_headers_of_older_requests_and_past_resets_are_ignored() -> None:
    pace = Pace()
    first, second = pace.try_send(100.0), pace.try_send(101.0)
    assert isinstance(first, Sent)
    assert isinstance(second, Sent)
    pace.settle(101.1, second, "ok", hints=Hints(requests=RateWindow(90, 10, 100)))
    pace.settle(101.2, first, "ok", hints=Hints(requests=RateWindow(0, 30, 100)))
    third = pace.try_send(101.3)
    assert isinstance(third, Sent)

    pace.settle(200.0, third, "ok", hints=Hints(requests=RateWindow(0, 5, 100)))

    assert isinstance(pace.try_send(200.0), Sent)


def test_nothing_left_waits_for_the_reset_but_not_for_ever() -> None:
    pace = Pace()
    sent = pace.try_send(100.0)
    assert isinstance(sent, Sent)
    pace.settle(100.0, sent, "ok", hints=Hints(requests=RateWindow(0, 7, 100)))
    assert pace.try_send(100.1) == 107
    sent = pace.try_send(107.0)
    assert isinstance(sent, Sent)
    pace.settle(107.0, sent, "ok", hints=Hints(requests=RateWindow(0, 3600, 100)))
    assert pace.try_send(107.1) == 167


@pytest.mark.parametrize("name", ["max_concurrency", "requests_per_minute", "tokens_per_minute"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_caps_that_allow_nothing(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be more than 0, not {value}"):
        Caps(**{name: value})  # type: ignore[arg-type]


def test_other_outcomes_change_nothing() -> None:
    pace = Pace()
    for step in range(1000):
        sent = pace.try_send(float(step))
        assert isinstance(sent, Sent)
        pace.settle(step + 0.5, sent, "other", hints=NO_HINTS)
    assert (pace.limit, pace.in_flight, pace.rate, pace.num_refused) == (64, 0, None, 0)


def test_refusals_that_come_late_or_at_once_break_nothing() -> None:
    pace = Pace()
    sent = [request for _ in range(64) if isinstance(request := pace.try_send(100.0), Sent)]
    for request in sent[:32]:
        pace.settle(100.05, request, "refused")
    for request in sent[32:]:
        pace.settle(140.0, request, "refused")
    assert pace.in_flight == 0
    assert isinstance(pace.try_send(200.0), Sent)

    run = simulate(Pace(), TokenBucket(always(300), 300), 10, refusal_s=always(0.0))
    assert run.accepted_per_s(5, 10) > 0.95 * 300
