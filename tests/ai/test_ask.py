"""Filters in plain words: a statement about each row, answered by one model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import col
from penstock.errors import InvalidArgumentError
from penstock.functions import ask
from penstock.testing import ModelServer, faults


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(in_thread=True) as server:
        ps.set_provider("openai", base_url=server.openai_url, api_key="test")
        yield server


def test_a_decision_model_decides(server: ModelServer) -> None:
    df = ps.from_pydict({"text": ["yes, it is late", "no, all is well", None]})
    found = df.with_column("late", ask("{text} is about a late parcel")).to_pydict()
    assert found["late"] == [True, False, None]
    assert df.where(ask("{text} is about a late parcel")).to_pydict() == {"text": ["yes, it is late"]}
    body = server.requests[0].body
    assert (body["model"], body["input"]) == ("gpt-6-luna", "yes, it is late")
    assert body["questions"][0]["instructions"] == "Is this true? [text] is about a late parcel ([text] is the input.)"


def test_a_language_model_answers_in_words(server: ModelServer) -> None:
    server.change(answer=lambda request: {"value": "yes" if "late" in request.text else "no"})
    df = ps.from_pydict({"text": ["late", "well", None]})
    found = df.select(a=ask("{text} is about a late parcel", model="gpt-5")).to_pydict()
    assert found["a"] == [True, False, None]
    assert {request.path for request in server.requests} == {"/v1/responses"}
    assert "Is this true? [text] is about a late parcel" in str(server.requests[0].body)


def test_each_column_is_a_part_of_the_message(server: ModelServer) -> None:
    df = ps.from_pydict({"title": ["a dog"], "photo": [np.zeros((4, 4, 3), np.uint8)]})
    df.where(ask("{photo} shows {title}, and {title} is {{old}}")).collect()
    body = server.requests[0].body
    kinds = [part["type"] for part in body["input"][0]["content"]]
    assert kinds == ["input_text", "input_image", "input_text", "input_text"]
    assert body["questions"][0]["instructions"] == "Is this true? [photo] shows [title], and [title] is {old}"


def test_a_failed_row_is_null_and_a_declined_one_too(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, containing="broken"), faults.Refusal("no", containing="awful")])
    df = ps.from_pydict({"text": ["yes", "broken yes", "awful yes"]})
    df = df.with_column("a", ask("{text} is fine", on_error="null")).collect()
    assert df.to_pydict()["a"] == [True, None, None]
    assert df.errors().count_rows() == 1


def test_other_filters_run_before_the_question(server: ModelServer) -> None:
    df = ps.from_pydict({"text": ["yes"] * 10, "n": list(range(10))})
    kept = df.where(ask("{text} is fine")).where(col("n") < 3)
    assert kept.to_pydict()["n"] == [0, 1, 2]
    assert server.num_requests == 3


@pytest.mark.parametrize(
    ("given", "message"), [("fine", "name of a column"), (col("text"), "is a text"), ("{} x", "name of a col")]
)
def test_a_statement_names_a_column(given: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ask(given)
