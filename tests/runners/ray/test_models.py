"""Remote models with the Ray runner: the driver makes the calls, so one limiter, budget and ledger hold."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.ai.provider import Embedder, Model, ModelTask
from penstock.cost.budget import spending
from penstock.errors import AuthenticationError, BudgetSpentError, ContentFilteredError, InvalidArgumentError
from penstock.expr.udf import Resources
from penstock.functions import ask, embed_text, prompt
from penstock.testing import ModelServer, faults

pytestmark = pytest.mark.ray

KEY = "sk-only-the-driver-knows-it"


@pytest.fixture
def server(model_server: ModelServer, ray_cluster: None) -> Iterator[ModelServer]:
    model_server.change(api_key=KEY)
    ps.set_provider("openai", base_url=model_server.openai_url, api_key=KEY)
    ps.set_runner_ray()
    yield model_server
    ps.set_runner_local()


def questions(count: int) -> ps.DataFrame:
    return ps.from_pydict({"q": [f"question {number}" for number in range(count)]})


def test_the_drivers_key_is_used_and_bad_rows_are_recorded(server: ModelServer) -> None:
    server.change(faults=[faults.Refusal("Not that.", containing="question 1")])
    df = questions(3).select(prompt(ps.col("q"), model="gpt-5", on_error="null").alias("a")).collect()
    assert df.to_pydict() == {"a": ["question 0", None, "question 2"]}
    (error,) = df.errors().to_pylist()
    assert error["error_type"] == ContentFilteredError.__name__
    assert {seen.headers["authorization"] for seen in server.requests} == {f"Bearer {KEY}"}


def test_a_key_that_is_refused_ends_the_query(server: ModelServer) -> None:
    ps.set_provider("openai", base_url=server.openai_url, api_key="sk-another")
    with pytest.raises(AuthenticationError):
        questions(3).select(prompt(ps.col("q"), model="gpt-5", on_error="null")).collect()


def test_texts_are_embedded_in_few_requests(server: ModelServer) -> None:
    vectors = questions(100).select(embed_text(ps.col("q"), dimensions=4)).to_pydict()["q"]
    assert np.shape(vectors) == (100, 4)
    assert server.num_requests < 10


def test_the_driver_finds_the_thresholds_of_a_question(server: ModelServer) -> None:
    """The workers load the kernels that read decisions."""
    df = ps.from_pydict({"id": list(range(200)), "text": [f"{'no' if row % 3 else 'yes'} {row}" for row in range(200)]})
    df = df.where(ask("{text} is fine", model="gpt-6-luna", cheap="tiny", precision=0.7, recall=0.7))
    assert df.to_pydict()["id"] == list(range(0, 200, 3))
    assert Counter(request.body["model"] for request in server.requests) == {"gpt-6-luna": 70, "tiny": 200}


def test_queries_at_the_same_time_share_what_they_may_send(server: ModelServer) -> None:
    server.change(latency=0.02)

    def answers_of(name: str) -> list[str]:
        asked = questions(30).with_column("a", prompt(ps.col("q"), model="gpt-5", max_concurrency=4))
        again = ps.functions.format("{} {}", ps.lit(name), ps.col("a"))
        answers = asked.select(prompt(again, model="gpt-5", max_concurrency=4).alias("b")).to_pydict()["b"]
        return [answer.removeprefix(f"{name} ") for answer in answers]

    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(answers_of, ["one", "two"]))
    assert answers == [questions(30).to_pydict()["q"]] * 2
    assert server.num_requests == 120
    assert server.max_in_flight == 4


def test_a_limit_ends_one_stage_and_not_the_other(server: ModelServer) -> None:
    server.change(faults=[faults.Hang(containing="question 12")])  # of the second task
    answered = questions(100).into_batches(8).with_column("a", prompt(ps.col("q"), model="gpt-5"))
    first = answered.where(ps.col("a") != "").limit(1)  # the filter keeps the limit from reaching the questions
    assert first.with_column("b", prompt(ps.col("a"), model="gpt-5")).to_pydict()["b"] == ["question 0"]
    assert server.num_requests > 8


def test_a_closed_query_sends_no_more_requests(server: ModelServer) -> None:
    asked = prompt(ps.col("q"), model="gpt-5", requests_per_minute=6000, max_concurrency=16)
    with closing(questions(10_000).select(asked).iter_rows()) as rows:
        next(rows)
    other = prompt(ps.col("q"), model="gpt-5", system_message="Another query.", max_concurrency=1)
    questions(20).select(other).collect()
    is_other = [b"Another query." in seen.raw_body for seen in server.requests]
    assert is_other.count(True) == 20
    assert all(is_other[is_other.index(True) :])


def test_a_budget_holds_for_the_queries_of_a_process(server: ModelServer) -> None:
    server.change(answer=lambda request: "x" * 400)  # 100 tokens
    answer = prompt(ps.col("q"), model="mine", use_chat_completions=True, price={"input": 0.0, "output": 10.0})
    with spending(0.0605) as account:
        questions(30).select(answer).collect()
        assert (account.num_calls, account.output_tokens, account.dollars) == (30, 3000, 0.03)
        with pytest.raises(BudgetSpentError, match=r"budget of \$0.0605 is spent: 60 calls cost") as caught:
            questions(200).select(answer).collect()
    assert caught.value.num_calls == server.num_requests == 60
    with spending(1.0), pytest.raises(InvalidArgumentError, match="price of 'mine'"):
        questions(2).select(prompt(ps.col("q"), model="mine")).collect()


class Pairs(ps.Provider):
    name = "pairs"

    def __init__(self, log: Path) -> None:
        self.log = log

    def model(self, task: ModelTask) -> Model:
        return PairEmbedder(self.log)


class PairEmbedder(Embedder):
    """A model whose calls wait until two of them run at the same time."""

    dimensions = 2
    resources = Resources(max_workers=1, tasks_per_worker=2)
    batch_size = 1

    def __init__(self, log: Path) -> None:
        self.log = log

    def load(self) -> None:
        with self.log.open("a") as file:
            file.write(".")
        self._pair = threading.Barrier(2, timeout=60)

    def embed(self, inputs: Sequence[Any]) -> Any:
        self._pair.wait()
        return [np.full(2, float(value)) for value in inputs]


def test_stages_of_one_model_share_it_and_its_tasks(server: ModelServer, tmp_path: Path) -> None:
    vectors, log = embed_text(ps.col("t"), provider=Pairs(tmp_path / "log")), tmp_path / "log"
    one, two = (ps.from_pydict({"t": list(texts)}).select(vectors) for texts in ("12", "34"))
    assert [vector.tolist() for vector in one.concat(two).to_pydict()["t"]] == [[x, x] for x in (1.0, 2.0, 3.0, 4.0)]
    assert log.read_text() == "."
