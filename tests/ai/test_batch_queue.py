"""Decisions about batches, without a server or a clock."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from penstock.ai.client.api_call import ApiCall, Endpoint
from penstock.ai.client.batch.batch_queue import (
    NBYTES_AROUND,
    BatchQueue,
    SubmittedBatch,
    WaitingCall,
    is_transient,
    next_poll_s,
    num_fitting,
    quiet_s,
)
from penstock.ai.client.batch.batch_records import Attempts, BatchRecords
from penstock.ai.client.batch.batch_service import BatchCapacity, BatchClient, Intent
from penstock.ai.provider import CallSettings
from penstock.ai.providers import anthropic_batches, openai_batches
from penstock.cache.ledger import open_ledger
from penstock.errors import (
    AuthenticationError,
    ContentFilteredError,
    InvalidAnswerError,
    ProviderError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitedError,
    RequestRefusedError,
)

CLIENT = BatchClient(Endpoint("provider", "http://localhost"), "m", CallSettings())
CAPACITY = BatchCapacity(max_requests=4, max_nbytes=10 * NBYTES_AROUND)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def calls_of(loop: asyncio.AbstractEventLoop, sizes: Sequence[int]) -> list[WaitingCall]:
    return [
        WaitingCall(number.to_bytes(16, "big"), ApiCall("/x", {}), b"x" * size, loop.create_future())
        for number, size in enumerate(sizes)
    ]


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 10), st.integers(1, 100))
def test_all_requests_go_into_batches_within_the_limits(sizes: list[int], max_requests: int, max_nbytes: int) -> None:
    capacity, left, batches = BatchCapacity(max_requests, max_nbytes), list(sizes), []
    while left:
        num = num_fitting(left, capacity)
        batches.append(left[:num])
        left = left[num:]
    assert list(itertools.chain(*batches)) == sizes
    for batch in batches:
        assert len(batch) <= max_requests
        assert sum(batch) <= max_nbytes or len(batch) == 1
    for batch, following in itertools.pairwise(batches):  # none is smaller than it has to be
        assert len(batch) == max_requests or sum(batch) + following[0] > max_nbytes


def test_a_batch_leaves_when_no_call_has_come_for_a_while(loop: asyncio.AbstractEventLoop) -> None:
    queue = BatchQueue(CAPACITY, poll_interval_s=30)
    assert queue.wait_s(0) == math.inf
    queue.note_arrival(10.0)
    queue.add(calls_of(loop, [1, 1]))
    assert queue.wait_s(10.0) == pytest.approx(1.0)
    queue.note_arrival(10.5)
    assert queue.wait_s(10.5) == pytest.approx(2.0)  # four times the gap
    assert queue.wait_s(12.5) <= 0
    assert len(queue.take()) == 2
    assert queue.wait_s(12.5) == math.inf


@pytest.mark.parametrize("sizes", [[1] * 4, [5 * NBYTES_AROUND] * 2])
def test_a_full_batch_leaves_at_once(loop: asyncio.AbstractEventLoop, sizes: list[int]) -> None:
    queue = BatchQueue(CAPACITY, 30)
    queue.note_arrival(10.0)
    queue.add(calls_of(loop, sizes))
    assert queue.wait_s(10.0) <= 0


def test_cancelled_calls_are_not_submitted(loop: asyncio.AbstractEventLoop) -> None:
    queue = BatchQueue(CAPACITY, 30)
    calls = calls_of(loop, [1] * 6)
    queue.add(calls)
    for call in calls[:3]:
        call.future.cancel()
    assert queue.take() == calls[3:]


def test_a_held_back_batch_is_due_when_another_ends(loop: asyncio.AbstractEventLoop) -> None:
    queue = BatchQueue(CAPACITY, 30)
    queue.add(calls_of(loop, [1] * 4))
    queue.hold_back(100.0, has_others=True)
    assert queue.wait_s(100.0) == pytest.approx(300.0)
    queue.note_end(110.0)
    assert queue.wait_s(110.0) <= 0


def test_batches_become_smaller(loop: asyncio.AbstractEventLoop) -> None:
    queue = BatchQueue(CAPACITY, 30)
    queue.add(calls_of(loop, [1] * 4))
    queue.shrink(4)
    assert [len(queue.take()), len(queue.take())] == [2, 2]


@given(st.floats(0.01, 100), st.floats(0, 1e6))
def test_polls_are_neither_too_often_nor_too_seldom(interval_s: float, age_s: float) -> None:
    assert interval_s <= next_poll_s(interval_s, age_s) <= 10 * interval_s


@given(st.floats(0.001, 1000), st.floats(0, 1e6))
def test_a_lull_is_bounded(interval_s: float, gap_s: float) -> None:
    assert 0.05 <= quiet_s(interval_s, gap_s) <= 60


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProviderUnavailableError(), True),
        (RateLimitedError(), True),
        (InvalidAnswerError(), True),
        (RequestRefusedError(), False),
        (ContentFilteredError(), False),
        (AuthenticationError(), False),
        (QuotaExceededError(), False),
    ],
)
def test_transient_errors(error: ProviderError, expected: bool) -> None:
    assert is_transient(error) == expected


def test_results_are_known_by_batch_and_call(loop: asyncio.AbstractEventLoop) -> None:
    batch = SubmittedBatch.of(calls_of(loop, [1, 1]))
    ids = [request.custom_id for request in batch.requests()]
    assert [batch.key_of(each) for each in ids] == list(batch.calls)
    assert all(len(each) <= 64 and each.replace("_", "").isalnum() for each in ids)
    assert SubmittedBatch().key_of(ids[0]) is None
    for unknown in ("no", "ab", "00" * 15 + "07"):
        assert batch.key_of(f"{batch.token}_{unknown}") is None
    assert SubmittedBatch(batch.token).key_of(f"{batch.token}_ab") is None


def test_records(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    records = BatchRecords(ledger)
    one, two, three = (bytes([number]) * 16 for number in (1, 2, 3))
    assert records.attempts([one, two]) == {}
    records.begin("aa", [(one, 0), (two, 0)], Intent(2, 5.0))
    assert records.attempts([one, two, three]) == {one: Attempts("aa", 1), two: Attempts("aa", 1)}
    assert (records.batch_id("aa"), records.intent("aa")) == (None, Intent(2, 5.0))
    records.name("aa", "batch_1")
    records.end(two, 0)
    assert records.attempts([one, two]) == {one: Attempts("aa", 1), two: Attempts(None, 1)}
    records.begin("bb", [(two, 1)], Intent(1, 6.0))
    assert records.attempts([one, two]) == {one: Attempts("aa", 1), two: Attempts("bb", 2)}
    ledger.close()

    ledger = open_ledger(tmp_path)
    again = BatchRecords(ledger)
    assert again.attempts([two]) == {two: Attempts("bb", 2)}
    assert (again.batch_id("aa"), again.batch_id("bb"), again.intent("cc")) == ("batch_1", None, None)
    ledger.close()


def test_many_records(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    records = BatchRecords(ledger)
    keys = [number.to_bytes(16, "big") for number in range(2500)]
    records.begin("aa", [(key, 0) for key in keys], Intent(2500, 5.0))
    assert records.attempts(keys) == dict.fromkeys(keys, Attempts("aa", 1))
    ledger.close()


OK = {"id": "r", "output": []}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ({"response": {"status_code": 200, "body": OK}, "error": None}, None),
        ({"response": None, "error": {"code": "batch_expired", "message": "late"}}, ProviderUnavailableError),
        ({"response": None, "error": {"code": "batch_cancelled"}}, ProviderUnavailableError),
        ({"response": None, "error": None}, ProviderUnavailableError),
        ({"response": {"status_code": 0, "body": {}}}, ProviderUnavailableError),
        ({"response": {"status_code": 200, "body": None}}, ProviderUnavailableError),
        ({"response": {"status_code": 500, "body": {"error": {"message": "x"}}}}, ProviderUnavailableError),
        ({"response": {"status_code": 429, "body": {"error": {"message": "x"}}}}, RateLimitedError),
        ({"response": {"status_code": 429, "body": {"error": {"code": "insufficient_quota"}}}}, QuotaExceededError),
        ({"response": {"status_code": 400, "body": {"error": {"message": "x"}}}}, RequestRefusedError),
        ({"response": {"status_code": 401, "body": {"error": {"message": "x"}}}}, AuthenticationError),
    ],
    ids=str,
)
def test_lines_of_openai(line: dict[str, Any], kind: type[ProviderError] | None) -> None:
    result = openai_batches.result_of(CLIENT, "id", line)
    assert (type(result.error), result.body) == ((kind, None) if kind else (type(None), OK))


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ({"type": "succeeded", "message": OK}, None),
        ({"type": "expired"}, ProviderUnavailableError),
        ({"type": "canceled"}, ProviderUnavailableError),
        (None, ProviderUnavailableError),
        ({"type": "errored", "error": {"type": "error", "error": {"type": "api_error"}}}, ProviderUnavailableError),
        (
            {"type": "errored", "error": {"type": "error", "error": {"type": "overloaded_error"}}},
            ProviderUnavailableError,
        ),
        ({"type": "errored", "error": {"type": "error", "error": {"type": "rate_limit_error"}}}, RateLimitedError),
        (
            {"type": "errored", "error": {"type": "error", "error": {"type": "invalid_request_error"}}},
            RequestRefusedError,
        ),
        ({"type": "errored", "error": {"type": "invalid_request_error", "message": "x"}}, RequestRefusedError),
        ({"type": "errored", "error": {"type": "error", "error": {"type": "permission_error"}}}, AuthenticationError),
    ],
    ids=str,
)
def test_results_of_anthropic(result: Any, kind: type[ProviderError] | None) -> None:
    found = anthropic_batches.result_of(CLIENT, "id", result)
    assert (type(found.error), found.body) == ((kind, None) if kind else (type(None), OK))
