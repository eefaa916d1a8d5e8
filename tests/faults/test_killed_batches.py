"""A process that waits for a provider's batch is killed: the next one takes the batch up, and submits nothing twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.testing import BatchTiming, ModelServer, SeenRequest, faults
from tests.ai.batch_submissions import batches, num_posted
from tests.faults.batch_queries import QUESTIONS, answers, embeddings, run, use
from tests.forked import ForkedProcess

CREATING = {"openai": "/v1/batches", "anthropic": "/v1/messages/batches"}
NO_STATUS = faults.Hang(path="/batches/")
"""Keeps a process from the end of its batches, however late it is killed."""


@pytest.fixture
def server(model_server: ModelServer, tmp_path: Path) -> Iterator[ModelServer]:
    use(model_server.url)
    with ps.config(cache_dir=str(tmp_path)):
        yield model_server


def kill_when(server: ModelServer, tmp_path: Path, work: str, is_time: Callable[[list[SeenRequest]], bool]) -> None:
    """Run a query in a process of its own, and kill it when the server has seen what ``is_time`` looks for."""
    child = ForkedProcess(run, str(tmp_path), server.url, work)
    try:
        deadline = time.monotonic() + 60
        while not is_time(server.requests):
            assert child.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline, "the moment to kill it did not come"
            time.sleep(0.01)
    finally:
        child.kill()
        child.ended()


def num_created(requests: list[SeenRequest], provider: str) -> int:
    return sum(r.method == "POST" and r.path == CREATING[provider] and r.status == 200 for r in requests)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_batches_that_run_are_waited_for(server: ModelServer, tmp_path: Path, provider: str) -> None:
    server.change(batches=BatchTiming(0.05, 0.8, 0.05), faults=[NO_STATUS])
    kill_when(server, tmp_path, provider, lambda seen: num_created(seen, provider) == 2)
    server.change(faults=[])
    assert answers(provider) == QUESTIONS
    assert Counter(text for batch in batches(server) for text in batch) == Counter(QUESTIONS)
    assert num_created(server.requests, provider) == 2


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_batch_whose_id_nobody_knows_is_found(server: ModelServer, tmp_path: Path, provider: str) -> None:
    """The first batch is created, and the process killed before it is told so."""
    server.change(faults=[faults.Delay(30.0, path=CREATING[provider].removeprefix("/v1"), at=1)])

    def is_time(seen: list[SeenRequest]) -> bool:
        return any(request.method == "POST" and request.path == CREATING[provider] for request in seen)

    kill_when(server, tmp_path, provider, is_time)
    server.change(faults=[])
    assert answers(provider) == QUESTIONS
    assert Counter(text for batch in batches(server) for text in batch) == Counter(QUESTIONS)


def test_a_batch_that_was_never_created_is_submitted(server: ModelServer, tmp_path: Path) -> None:
    server.change(faults=[faults.Hang(path="/batches", at=1)])
    kill_when(server, tmp_path, "openai", lambda seen: any(request.path == "/v1/batches" for request in seen))
    server.change(faults=[])
    assert answers("openai") == QUESTIONS
    assert num_created(server.requests, "openai") == 2


def test_results_that_nobody_read_are_read(server: ModelServer, tmp_path: Path) -> None:
    """The batches end while the process cannot read them; half of the requests of one expire."""
    server.change(
        batches=BatchTiming(0.01, 0.02, 0.01),
        faults=[faults.Hang(path="/results"), faults.BatchExpires(done=0.5, at=1)],
    )
    kill_when(server, tmp_path, "anthropic", lambda seen: sum(r.path.endswith("/results") for r in seen) == 2)
    server.change(faults=[])
    assert answers("anthropic") == QUESTIONS
    assert sorted(len(batch) for batch in batches(server)) == [13, 15, 25]


def test_embeddings_are_taken_up_text_by_text(server: ModelServer, tmp_path: Path) -> None:
    server.change(batches=BatchTiming(0.05, 0.6, 0.05), faults=[NO_STATUS])
    kill_when(server, tmp_path, "embeddings", lambda seen: num_created(seen, "openai") == 1)
    server.change(faults=[])
    assert embeddings() == len(QUESTIONS)
    assert num_posted(server, "/v1/batches") == 1
