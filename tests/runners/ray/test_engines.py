"""Engines of local models on Ray: each replica is an actor with its GPUs, and the driver routes the requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ProviderUnusableError, RequestRefusedError, WorkerDiedError
from tests.runners.ray.placed_engine import PlacedProvider, asked

pytestmark = pytest.mark.ray

QUESTIONS = [f"question {number}" for number in range(20)]


@pytest.mark.parametrize("runner", ["ray"], indirect=True)
class TestReplicas:
    def test_replicas_answer_in_order(self, tmp_path: Path) -> None:
        questions = [f"ALL {number}" for number in range(20)]
        df = asked(questions, PlacedProvider(marks=str(tmp_path)), max_concurrency=2)
        answers = [answer.split("/") for answer in df.to_pydict()["a"]]
        assert [text for text, *_ in answers] == questions
        assert len({process for _, process, *_ in answers}) == 2

    def test_a_request_that_is_refused_is_one_error(self, tmp_path: Path) -> None:
        df = asked(["yes", "NO"], PlacedProvider(marks=str(tmp_path)), on_error="null").collect()
        assert [answer and answer.split("/")[0] for answer in df.to_pydict()["a"]] == ["yes", None]
        (error,) = df.errors().to_pylist()
        assert error["error_type"] == RequestRefusedError.__name__

    def test_a_replica_that_is_killed_is_started_again(self, tmp_path: Path) -> None:
        questions = [*QUESTIONS, "DIE ONCE", "DIE"]
        df = asked(questions, PlacedProvider(marks=str(tmp_path)), on_error="null").collect()
        assert [answer and answer.split("/")[0] for answer in df.to_pydict()["a"]] == [*questions[:-1], None]
        (error,) = df.errors().to_pylist()
        assert error["error_type"] == WorkerDiedError.__name__

    def test_an_engine_that_cannot_start_ends_the_query(self, tmp_path: Path) -> None:
        with pytest.raises(ProviderUnusableError, match="no such model"):
            asked(QUESTIONS, PlacedProvider(marks=str(tmp_path)), model="missing", on_error="null").collect()
