"""The feed of an inference engine on a virtual clock: grouping, replicas, deaths, cancellation."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import pytest

from penstock.ai.conversation import Generation, Request, Text, UserTurn
from penstock.ai.local.serving.feed import MAX_DEATHS, Feed
from penstock.ai.local.serving.prefix_queue import PrefixQueue
from penstock.errors import ProviderUnusableError, WorkerDiedError
from tests.ai.scripted_engine import Script, ScriptedEngine, run_virtually


def shuffled(num_prefixes: int, num_each: int) -> list[str]:
    texts = [f"prefix {p} {'x' * 100}|question {q}" for p in range(num_prefixes) for q in range(num_each)]
    random.Random(0).shuffle(texts)
    return texts


def fed(
    script: Script, texts: Sequence[str], *, is_grouped: bool = True, num_replicas: int = 1, max_in_flight: int = 16,
    gap_s: float = 0.0,
) -> tuple[list[Generation | BaseException], float]:  # fmt: skip
    """Return the answer to each text, or its error, and the virtual seconds. The texts arrive ``gap_s`` apart."""
    found: list[Generation | BaseException] = []

    async def ask(feed: Feed, text: str) -> Generation:
        request = Request((UserTurn((Text(text),)),))
        return (await feed.generate(request, {}, text if is_grouped else ""))[0]

    async def run() -> None:
        feed = Feed(lambda replica: ScriptedEngine(script, replica), num_replicas, max_in_flight)
        asked = []
        for text in texts:
            asked.append(asyncio.create_task(ask(feed, text)))
            await asyncio.sleep(gap_s)
        found.extend(await asyncio.gather(*asked, return_exceptions=True))
        await feed.close()

    return found, run_virtually(run())


def test_requests_with_the_same_prefix_leave_together() -> None:
    texts = shuffled(num_prefixes=64, num_each=16)
    seconds = {}
    for order, given in (("random", texts), ("grouped", texts), ("sorted", sorted(texts))):
        script = Script(num_cached=8, request_s=0.01)
        found, seconds[order] = fed(script, given, is_grouped=order == "grouped", max_in_flight=64, gap_s=0.0001)
        assert [answer.text for answer in found if isinstance(answer, Generation)] == given
    assert seconds["grouped"] < seconds["random"] / 3
    assert seconds["grouped"] < seconds["sorted"] / 0.75


def test_without_prefixes_requests_leave_in_order_and_a_bounded_number_is_in_flight() -> None:
    script, texts = Script(request_s=0.01), shuffled(8, 8)
    fed(script, texts, is_grouped=False, max_in_flight=5)
    assert [text for _, text in script.order] == texts
    assert script.max_in_flight == 5


def test_the_first_request_leaves_at_once_and_few_requests_do_not_wait_for_more() -> None:
    script, texts = Script(num_cached=0, request_s=1.0), shuffled(4, 25)
    _, seconds = fed(script, texts, max_in_flight=1000)
    assert script.max_in_flight == len(texts)  # all of them after a pause, although groups might still grow
    assert seconds == pytest.approx(len(texts) * 1.0, rel=0.1)


def test_the_largest_group_leaves_first_and_a_group_as_a_whole() -> None:
    queue = PrefixQueue[str]()
    for text in (*("a" * 50 + str(n) for n in range(2)), "single", *("b" * 50 + str(n) for n in range(5))):
        queue.add(text, text)
    first = [queue.take(), queue.take()]
    queue.add("b" * 50 + "9", "b" * 50 + "9")  # joins the group that is leaving
    order = [*first, *iter(queue.take, None)]
    assert [text[0] for text in order if text is not None] == [*"bbbbbb", *"aa", "s"]
    assert not queue


def test_a_replica_keeps_its_prefixes_and_none_is_idle() -> None:
    texts, script = shuffled(num_prefixes=32, num_each=16), Script(num_cached=16, request_s=0.01)
    fed(script, texts * 2, num_replicas=4, gap_s=0.0001)
    per_replica = Counter(replica for replica, _ in script.order)
    assert min(per_replica.values()) > len(texts * 2) / 8
    assert script.num_hits > 0.85 * len(texts * 2)
    pairs = {(replica, text.partition("|")[0]) for replica, text in script.order}
    assert len(pairs) < 2 * 32  # most prefixes stay with one replica


def test_the_queue_does_not_keep_what_has_left() -> None:
    queue = PrefixQueue[int](2)
    for number in range(20_000):
        queue.add(number, f"group {number % 7} {'x' * 50} {number}")
        assert queue.take(number % 2) is not None
    assert not queue
    assert sum(map(len, queue._orders)) < 5_000


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_an_engine_that_dies_is_restarted_and_its_requests_are_repeated() -> None:
    script, texts = Script(request_s=0.01, start_s=30, deaths=[20]), shuffled(8, 8)
    found, _ = fed(script, texts)
    assert [answer.text for answer in found if isinstance(answer, Generation)] == texts
    assert (script.num_starts, script.num_open) == (2, 0)


@pytest.mark.parametrize("num_rows", [1, 500])
def test_a_request_that_kills_the_engine_is_one_error(num_rows: int) -> None:
    script, texts = Script(request_s=0.01), ["DIE", *(f"{n}|" for n in range(num_rows - 1))]
    random.Random(1).shuffle(texts)
    found, _ = fed(script, texts, is_grouped=False, max_in_flight=64)
    errors = [(text, answer) for text, answer in zip(texts, found, strict=True) if isinstance(answer, BaseException)]
    assert [text for text, _ in errors] == ["DIE"]
    assert isinstance(errors[0][1], WorkerDiedError)
    assert "times on this request, the last time on it alone" in str(errors[0][1])
    assert script.num_starts <= 5


def test_an_engine_that_always_dies_is_given_up() -> None:
    script = Script()
    found, _ = fed(script, [f"DIE {n}" for n in range(20)], max_in_flight=4)
    assert {type(answer) for answer in found} <= {ProviderUnusableError, WorkerDiedError}
    assert isinstance(found[-1], ProviderUnusableError)
    assert "without an answer in between: the script says so" in str(found[-1])
    assert script.num_starts == MAX_DEATHS
    assert script.num_open == 0


def test_the_death_of_one_replica_does_not_stop_the_others() -> None:
    script = Script(request_s=0.01, start_s=5, deaths=[30])
    found, _ = fed(script, shuffled(16, 16), num_replicas=2)
    assert all(isinstance(answer, Generation) for answer in found)
    dead = script.order[30][0]
    runs = [(replica, len(list(run))) for replica, run in groupby(replica for replica, _ in script.order)]
    assert max(length for replica, length in runs if replica != dead) > 20  # it went on alone


def test_an_engine_that_cannot_start_fails_every_request() -> None:
    found, _ = fed(Script(start_error="no such model"), ["a", "b"])
    assert [str(answer) for answer in found] == ["no such model"] * 2


def test_cancelled_requests_are_aborted_and_those_that_wait_never_leave() -> None:
    script = Script()

    async def run() -> None:
        feed = Feed(lambda replica: ScriptedEngine(script, replica), 1, max_in_flight=2)
        texts = ["WAIT 1", "WAIT 2", "WAIT 3", "last"]
        asked = [asyncio.create_task(feed.generate(Request((UserTurn((Text(t),)),)), {})) for t in texts]
        await asyncio.sleep(0.1)
        for task in asked[:3]:
            task.cancel()
        assert (await asked[3])[0].text == "last"
        await feed.close()

    run_virtually(run())
    assert [text for _, text in script.order] == ["WAIT 1", "WAIT 2", "last"]
    assert script.num_aborted == 2
