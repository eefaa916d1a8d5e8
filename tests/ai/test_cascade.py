"""``ask`` with a cheap judge: the model answers a sample and the doubtful rows, and the promise holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import col
from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.functions import ask, when
from penstock.plan.cascade_relations import DrawSample
from penstock.plan.nodes import Filter, Relate, walk_plan
from penstock.plan.optimizer import optimize
from penstock.testing import ModelServer, faults
from tests.forked import ForkedProcess
from tests.jobs.helpers import wait_until

NUM_ROWS = 400
IS_TRUE = np.random.default_rng(1).random(NUM_ROWS) < 0.5
NOISE = np.random.default_rng(2).random(NUM_ROWS)
SURE = np.where(IS_TRUE, 0.9, 0.1)


def answer(request: Any) -> dict[str, Any]:
    """Answer as the model, which knows, or as the judge ``gpt-6-luna``, which is nearly sure."""
    row = int(request.text.split()[1])
    if request.path.endswith("decisions"):
        return {"true": float(SURE[row] + NOISE[row] / 20)}
    return {"value": "yes" if IS_TRUE[row] else "no"}


@pytest.fixture(scope="module")
def started() -> Iterator[ModelServer]:
    with ModelServer(in_thread=True) as server:
        yield server


@pytest.fixture
def server(started: ModelServer) -> ModelServer:
    started.change(answer=answer, faults=[])
    started.clear()
    ps.set_provider("openai", base_url=started.openai_url, api_key="test")
    return started


def rows(**columns: Any) -> ps.DataFrame:
    texts = [f"row {number} end" for number in range(NUM_ROWS)]
    return ps.from_pydict({"id": list(range(NUM_ROWS)), "text": texts, **columns})


def num_calls(server: ModelServer) -> dict[str, int]:
    return Counter(request.path.rpartition("/")[2] for request in server.requests)


def test_sure_rows_are_decided_without_the_model(server: ModelServer) -> None:
    found = rows(score=SURE).where(ask("{text} is true", model="gpt-5", cheap=col("score"))).collect()
    assert found.to_pydict()["id"] == np.flatnonzero(IS_TRUE).tolist()
    assert num_calls(server) == {"responses": 140}  # a pilot of 40 and a sample of 100
    stats = found.stats()
    title = "ask '[text] is true'"
    routes = {name.removeprefix(f"{title}: "): count for name, count in stats.counters.items()}
    assert routes["asked for the sample"] == 140
    saved = routes.pop("dollars that calls would cost")
    assert saved == pytest.approx(stats.models[0].dollars * 260 / 140, rel=0.01)
    assert sum(routes.values()) == NUM_ROWS
    assert set(routes) == {"asked for the sample", "no by the judge", "yes by the judge"}
    assert stats.gauges[f"{title}: precision"] == 1
    assert 0.9 <= stats.gauges[f"{title}: precision at least"] < 1
    assert 0.9 <= stats.gauges[f"{title}: recall at least"] < 1


def test_an_estimate_is_the_cost_of_asking_about_every_row(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    cost = rows(score=SURE).where(ask("{text} is true", model="gpt-5", cheap=col("score"))).estimate_cost()
    assert num_calls(server) == {"responses": 20}
    assert "a cheap judge may make calls needless" in str(cost)
    assert round(sum(model.calls.middle for model in cost.models)) == NUM_ROWS
    assert not caplog.text


def test_a_cheap_model_scores_each_row_once(server: ModelServer) -> None:
    df = rows().with_column("a", ask("{text} is true", model="gpt-5", cheap="gpt-6-luna"))
    assert df.to_pydict()["a"] == IS_TRUE.tolist()
    assert num_calls(server) == {"responses": 140, "decisions": NUM_ROWS}


def test_doubtful_rows_are_asked(server: ModelServer) -> None:
    score = np.where(NOISE < 0.3, 0.5, SURE)
    df = rows(score=score).with_column("a", ask("{text} is true", model="gpt-5", cheap=col("score")))
    assert df.to_pydict()["a"] == IS_TRUE.tolist()
    assert 140 + (NOISE < 0.3).sum() // 2 < num_calls(server)["responses"] < NUM_ROWS / 2 + 140


def test_a_useless_judge_is_not_asked_about_every_row(server: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    server.change(answer=lambda request: answer(request) | {"true": float(NOISE[int(request.text.split()[1])])})
    df = rows().where(ask("{text} is true", model="gpt-5", cheap="gpt-6-luna", recall=0.95))
    assert df.to_pydict()["id"] == np.flatnonzero(IS_TRUE).tolist()
    assert num_calls(server) == {"responses": NUM_ROWS, "decisions": 140}
    assert "the model answers every row" in caplog.text


def test_a_judge_learns_from_vectors(server: ModelServer) -> None:
    vectors = np.random.default_rng(3).normal(size=(NUM_ROWS, 8)).astype(np.float32)
    vectors[:, 2] += np.where(IS_TRUE, 6, -6)
    df = rows(v=list(vectors)).where(ask("{text} is true", model="gpt-5", cheap=col("v")))
    assert df.to_pydict()["id"] == np.flatnonzero(IS_TRUE).tolist()
    assert num_calls(server) == {"responses": 140}


def test_rows_without_a_vector_are_asked(server: ModelServer) -> None:
    """Whole batches, and those at the beginning, may have none."""
    vectors: list[Any] = [[3.0, 1.0] if each else [-3.0, 1.0] for each in IS_TRUE]
    vectors[:130] = [None] * 130
    df = rows(v=vectors).into_batches(64).where(ask("{text} is true", model="gpt-5", cheap=col("v")))
    assert df.to_pydict()["id"] == np.flatnonzero(IS_TRUE).tolist()
    assert 140 < num_calls(server)["responses"] < 140 + 130


def test_auto_takes_the_better_judge(server: ModelServer) -> None:
    """The test server's vectors say nothing about the rows, its decisions nearly everything."""
    df = rows().where(ask("{text} is true", model="gpt-5", cheap="auto"))
    assert df.to_pydict()["id"] == np.flatnonzero(IS_TRUE).tolist()
    calls = num_calls(server)
    assert (calls["responses"], calls["decisions"]) == (140, NUM_ROWS)
    assert calls["embeddings"] >= 1


def test_rows_without_an_answer_are_null(server: ModelServer) -> None:
    texts = [f"row {number} end" if number % 4 else None for number in range(NUM_ROWS)]
    server.change(faults=[faults.HttpError(400, containing="row 1 ")])
    df = ps.from_pydict({"text": texts, "score": np.where(np.arange(NUM_ROWS) == 1, 0.5, SURE)})
    df = df.with_column("a", ask("{text} is true", model="gpt-5", cheap=col("score"), on_error="null"))
    found = df.to_pydict()["a"]
    asked = [number for number in range(2, NUM_ROWS) if number % 4]
    assert [found[number] for number in asked] == IS_TRUE[asked].tolist()
    assert found[1] is None


def test_other_filters_run_before_the_sample_is_drawn() -> None:
    df = rows(score=SURE).where(ask("{text} is true", model="m", cheap=col("score"), provider="ollama"))
    plan = optimize(df.where(col("id") < 20).select("id")._plan)
    (drawn,) = (node for node in walk_plan(plan) if isinstance(node, Relate) and isinstance(node.relation, DrawSample))
    assert any(isinstance(node, Filter) for node in walk_plan(drawn))


@pytest.mark.parametrize("cheap", [None, col("id")])
@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_question_is_asked_after_a_join_that_drops_rows(server: ModelServer, how: Any, cheap: Any) -> None:
    chosen = ps.from_pydict({"id": list(range(20) if how == "semi" else range(20, NUM_ROWS))})
    df = rows().where(ask("{text} is true", model="gpt-5", cheap=cheap)).join(chosen, on="id", how=how)
    assert sorted(df.to_pydict()["id"]) == np.flatnonzero(IS_TRUE[:20]).tolist()
    assert server.num_requests == 20


def test_columns_may_be_unknown_and_computed(server: ModelServer) -> None:
    df = rows(score=SURE).map_batches(lambda batch: batch).with_column("text", col("text").strip() + " ")
    df = df.where(ask("{text} is true", model="gpt-5", cheap=col("score") * 2))
    assert df.select("id").to_pydict()["id"] == np.flatnonzero(IS_TRUE).tolist()
    assert rows(score=SURE).limit(0).where(ask("{text} is true", model="gpt-5", cheap=col("score"))).count_rows() == 0


def test_two_questions_have_their_own_samples(server: ModelServer) -> None:
    df = rows(score=SURE).where(ask("{text} is true", model="gpt-5", cheap=col("score")))
    df = df.where(ask("{text} is true, too", model="gpt-5", cheap=1 - col("score")))
    assert df.to_pydict()["id"] == np.flatnonzero(IS_TRUE).tolist()


def job(url: str, out: Path) -> None:
    """A third of the rows are doubtful, so all three kinds of calls happen: pilot, sample and doubtful rows."""
    ps.set_provider("openai", base_url=url, api_key="test")
    df = rows(score=np.where(NOISE < 0.3, 0.5, SURE))
    df = df.where(ask("{text} is true", model="gpt-5", cheap=col("score"), max_concurrency=4))
    df.write_parquet(out, resume=True)


def test_a_killed_job_pays_no_call_twice(server: ModelServer, tmp_path: Path) -> None:
    server.change(latency=0.002)
    run = ForkedProcess(job, server.openai_url, tmp_path / "out")
    wait_until(lambda: server.num_requests >= 100)  # in the sample
    run.kill()
    assert run.ended()[0] < 0
    job(server.openai_url, tmp_path / "out")
    server.change(latency=0)
    assert sorted(ps.read_parquet(tmp_path / "out").to_pydict()["id"]) == np.flatnonzero(IS_TRUE).tolist()
    asked = Counter(str(request.body["input"]) for request in server.requests)
    assert 180 < len(asked) < NUM_ROWS
    assert sum(asked.values()) - len(asked) <= 4  # the calls under way at the kill


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cheap": 3}, "cheap= is 'auto'"),
        ({"cheap": "auto", "precision": 0}, "precision is a share"),
        ({"cheap": "auto", "confidence": 1}, "no certainty"),
    ],
)
def test_wrong_options_are_refused(server: ModelServer, options: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ask("{text} is true", model="gpt-5", **options)


def test_wrong_places_and_types_are_refused(server: ModelServer) -> None:
    question = ask("{text} is true", model="gpt-5", cheap=col("text"))
    with pytest.raises(TypeMismatchError, match="a number or a vector"):
        rows().where(question)
    question = ask("{text} is true", model="gpt-5", cheap=col("score"))
    df = rows(score=SURE).select(a=when(col("id") > 1, question).otherwise(True))
    with pytest.raises(InvalidArgumentError, match="make it a column first"):
        df.collect()
