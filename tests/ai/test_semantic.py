"""Verbs that a model carries out: answers for groups, the best rows, joins in plain words."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.errors import InvalidArgumentError
from penstock.testing import ModelServer, faults

MODEL = "gpt-5-mini"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(in_thread=True) as server:
        ps.set_provider("openai", base_url=server.openai_url, api_key="test")
        yield server


# --- semantic_agg ---


def total(request: Any) -> str:
    """Add the numbers of rows, or of answers."""
    word = "total" if "Below are answers" in request.body["instructions"] else "row"
    numbers = map(int, re.findall(rf"{word} (\d+)", request.body["input"]))
    return f"total {sum(numbers)}"


def reviews(num_rows: int) -> ps.DataFrame:
    return ps.from_pydict(
        {"product": [n % 2 for n in range(num_rows)], "text": [f"row {n} ..." for n in range(num_rows)]}
    )


def test_every_row_is_in_one_piece_and_every_piece_in_the_answer(server: ModelServer, tmp_path: Path) -> None:
    """Pieces fit the context, and a second run finds all answers in the ledger, also those of answers."""
    server.change(answer=total)
    with ps.config(cache_dir=str(tmp_path)):
        found = reviews(2000).semantic_agg("How many?", by="product", context_tokens=100, model=MODEL)
        expected = {"product": [0, 1], "answer": [f"total {sum(range(start, 2000, 2))}" for start in (0, 1)]}
        assert found.sort("product").to_pydict() == expected
        num_requests = server.num_requests
        assert num_requests > 2 * 32  # answers of answers of pieces
        assert max(len(request.body["input"]) for request in server.requests) < 4 * 150 + 32 * 25
        again = reviews(2000).semantic_agg("How many?", by="product", context_tokens=100, model=MODEL)
        assert again.sort("product").to_pydict() == expected
        assert server.num_requests == num_requests


def test_an_answer_about_all_rows_and_several_columns(server: ModelServer) -> None:
    df = ps.from_pydict({"title": ["Lamp", None], "stars": [1, 5]})
    found = df.semantic_agg("What is bad?", model=MODEL).to_pydict()
    assert found == {"answer": ["title: Lamp\nstars: 1\n\nstars: 5"]}  # the server repeats its input
    assert "Question: What is bad?" in server.requests[0].body["instructions"]


def test_a_group_without_text_and_one_with_a_failed_piece_have_null(server: ModelServer) -> None:
    server.change(answer=total, faults=[faults.HttpError(400, "no", containing="row 7 ")])
    silent = ps.from_pydict({"product": [2], "text": ["x"]}).with_column("text", ps.lit(None).cast("string"))
    df = reviews(60).concat(silent)
    found = df.semantic_agg("How many?", by="product", context_tokens=100, model=MODEL, on_error="null")
    found = found.sort("product")
    assert found.to_pydict()["answer"] == [f"total {sum(range(0, 60, 2))}", None, None]
    assert found.errors().count_rows() == 1


# --- semantic_top_k ---


def judge(noise: float, bias: float) -> Any:
    """Rank texts by their value, with errors of its own in each list, and a liking for what comes first."""

    def answer(request: Any) -> dict[str, list[int]]:
        draw = random.Random(request.body["input"])
        shown = re.findall(r"\[(\d+)\]\nvalue (\d+)", request.body["input"])
        seen = {int(label): int(value) - bias * int(label) + draw.gauss(0, noise) for label, value in shown}
        return {"value": sorted(seen, key=seen.__getitem__, reverse=True)}

    return answer


def values(num_rows: int, seed: int = 0) -> ps.DataFrame:
    numbers = list(range(num_rows))
    random.Random(seed).shuffle(numbers)
    return ps.from_pydict({"id": numbers, "text": [f"value {number}" for number in numbers]})


def test_a_noisy_and_biased_judge_finds_the_best_rows_in_few_calls(server: ModelServer, tmp_path: Path) -> None:
    """A sort by pairs takes fifty times the calls. The same rows in another order find all answers."""
    server.change(answer=judge(noise=2, bias=0.2))
    with ps.config(cache_dir=str(tmp_path)):
        found = values(300).semantic_top_k(8, "Which is best?", text="{text}", model=MODEL).to_pydict()
        num_calls = server.num_requests
        assert found["rank"] == list(range(1, 9))
        assert len(set(found["id"]) & set(range(292, 300))) >= 6
        assert num_calls < 300 * math.log2(300) / 50
        again = values(300, seed=1).semantic_top_k(8, "Which is best?", text="{text}", model=MODEL)
        assert again.to_pydict() == found
        assert server.num_requests == num_calls


def test_the_best_rows_of_each_group(server: ModelServer) -> None:
    server.change(answer=judge(noise=0, bias=0))
    df = values(60).with_columns(even=col("id") % 2, gone=ps.lit(None).cast("string"))
    found = df.semantic_top_k(2, "Which is best?", by="even", text="{text}", model=MODEL).to_pydict()
    assert found == {
        "id": [58, 56, 59, 57],
        "text": ["value 58", "value 56", "value 59", "value 57"],
        "even": [0, 0, 1, 1],
        "gone": [None] * 4,
        "rank": [1, 2, 1, 2],
    }
    one = values(1).semantic_top_k(5, "Which is best?", text="{text}", model=MODEL)
    num_requests = server.num_requests
    assert one.to_pydict() == {"id": [0], "text": ["value 0"], "rank": [1]}
    assert server.num_requests == num_requests  # nothing to compare


# --- semantic_join ---


def test_a_few_labels_are_one_request_for_a_row(server: ModelServer) -> None:
    def answer(request: Any) -> dict[str, float]:
        asked = {each["name"]: re.search(r"about (\w+)", each["instructions"]) for each in request.body["questions"]}
        return {name: 0.9 if found and found[1] in request.text else 0.1 for name, found in asked.items()}

    server.change(answer=answer)
    texts = ps.from_pydict({"id": [1, 2, 3], "text": ["a bug in {billing}", "nothing", "billing"]})
    topics = ps.from_pydict({"id": [7, 8, 9], "topic": ["bug", "billing", None]})
    found = texts.semantic_join(topics, "{left.text} is about {right.topic}", model="gpt-6-luna")
    assert found.sort(["id", "right.id"]).to_pydict() == {
        "id": [1, 1, 3],
        "text": ["a bug in {billing}", "a bug in {billing}", "billing"],
        "right.id": [7, 8, 8],
        "topic": ["bug", "billing", "billing"],
    }
    assert [len(request.body["questions"]) for request in server.requests] == [2, 2, 2]


def test_pairs_are_near_rows_that_ask_accepts(server: ModelServer) -> None:
    def answer(request: Any) -> dict[str, float]:
        left, right = re.findall(r"n(\d+)", request.text)
        return {"true": 0.9 if left == right else 0.1}

    server.change(answer=answer)
    angles = [n / 8 for n in range(40)]
    vectors = [[math.cos(angle), math.sin(angle)] for angle in angles]
    left = ps.from_pydict({"x": [f"n{n}" for n in range(40)], "v": vectors})
    right = ps.from_pydict({"y": [f"n{n}" for n in range(40)], "w": vectors})
    found = left.semantic_join(
        right, "{left.x} is {right.y}", k=3, left_on="v", right_on="w", model="gpt-6-luna"
    ).select("x", "y")
    assert found.sort("x").to_pydict() == {side: sorted(f"n{n}" for n in range(40)) for side in ("x", "y")}
    assert server.num_requests == 3 * 40
    near = left.semantic_join(right, "{left.x} is {right.y}", k=2, model="gpt-6-luna")  # vectors by embed_text
    assert near.columns == ["x", "v", "y", "w"]
    near.collect()
    assert server.num_requests > 5 * 40


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("{left.z} is {right.y}", "no column; available: left.x, right.y"),
        ("{left.x} is new", "column of the right side"),
        ("{x} is {y}", "no column"),
    ],
)
def test_a_statement_names_columns_of_both_sides(statement: str, message: str) -> None:
    left, right = ps.from_pydict({"x": ["a"]}), ps.from_pydict({"y": ["b"]})
    with pytest.raises(InvalidArgumentError, match=message):
        left.semantic_join(right, statement, model="gpt-6-luna")
