"""Typed questions about rows: every way to answer them gives the same struct, and a row costs one request."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import col
from penstock.errors import BudgetSpentError, InvalidArgumentError
from penstock.functions import choice, classify_image, classify_text, decide, prompt, score, yes_no
from penstock.testing import ModelServer, faults

ASKED = {
    "refund": yes_no("Does the customer ask for a refund?"),
    "topic": choice("What is it about?", {"billing": "payments", "bug": None, "other": None}),
    "anger": score("How angry is the customer?", ["calm", "cross", "furious"]),
}
ANSWER = {
    "refund": 0.75,
    "topic": {"billing": 0.25, "bug": 0.5, "other": 0.25},
    "anger": {"calm": 0.125, "cross": 0.375, "furious": 0.5},
}
EXPECTED = {
    "refund": {"value": True, "probability": 0.75, "probabilities": {"yes": 0.75, "no": 0.25}, "refused": False},
    "topic": {"value": "bug", "probability": 0.5, "probabilities": ANSWER["topic"], "refused": False},
    "anger": {
        "value": "furious", "probability": 0.5, "probabilities": ANSWER["anger"], "refused": False, "score": 1.375,
    },
}  # fmt: skip
REFUSED = {"value": None, "probability": None, "probabilities": None, "refused": True}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(in_thread=True) as server:
        ps.set_provider("openai", base_url=server.openai_url, api_key="test")
        yield server


def attach(server: ModelServer) -> None:
    for name in ("typesafe", "perplexity", "upstage"):
        ps.attach_provider(name, base_url=server.openai_url, api_key="test")


WAYS: dict[str, dict[str, Any]] = {
    "openai": {},
    "systemone of a gateway": {"wire": "systemone", "model": "jev"},
    "typesafe": {"provider": "typesafe"},
    "perplexity": {"provider": "perplexity"},
    "upstage": {"provider": "upstage"},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_service_gives_the_same_struct(server: ModelServer, way: str) -> None:
    attach(server)
    server.change(answer=lambda request: ANSWER)
    df = ps.from_pydict({"text": ["I want my money back", None]})
    found = df.select(d=decide("{text}", ASKED, **WAYS[way])).to_pydict()["d"]
    assert found == [EXPECTED, None]
    path = "/v1/decisions" if way in ("openai", "perplexity") else "/v1/systemone"
    assert [request.path for request in server.requests] == [path]


def test_bodies_are_those_of_the_services(server: ModelServer) -> None:
    attach(server)
    df = ps.from_pydict({"text": ["hello"]})
    for way in ("openai", "typesafe"):
        df.select(d=decide(col("text"), ASKED, **WAYS[way])).collect()
    openai, system_one = (request.body for request in server.requests)
    assert openai == {
        "model": "gpt-6-luna",
        "input": "hello",
        "questions": [
            {"name": "refund", "type": "predicate", "instructions": "Does the customer ask for a refund?"},
            {
                "name": "topic",
                "type": "choice",
                "instructions": "What is it about?",
                "choices": [{"value": "billing", "description": "payments"}, {"value": "bug"}, {"value": "other"}],
            },
            {
                "name": "anger",
                "type": "score",
                "instructions": "How angry is the customer?",
                "levels": [{"label": "calm"}, {"label": "cross"}, {"label": "furious"}],
            },
        ],
    }
    assert system_one == {
        "model": "jev-latest",
        "state": "hello",
        "questions": {
            "refund": {"type": "noul", "instructions": "Does the customer ask for a refund?"},
            "topic": {
                "type": "choice",
                "instructions": "What is it about?",
                "criteria": {"billing": "payments", "bug": None, "other": None},
            },
            "anger": {
                "type": "score",
                "instructions": "How angry is the customer?",
                "criteria": ["calm", "cross", "furious"],
            },
        },
    }


def test_a_refusal_is_an_answer(server: ModelServer) -> None:
    server.change(answer=lambda request: {**ANSWER, "topic": None, "anger": None})
    df = ps.from_pydict({"text": ["a"]}).select(d=decide("{text}", ASKED))
    found = df.to_pydict()["d"][0]
    assert found == {"refund": EXPECTED["refund"], "topic": REFUSED, "anger": {**REFUSED, "score": None}}
    server.change(answer=None, faults=[faults.Refusal("no")])
    assert [each["refused"] for each in df.to_pydict()["d"][0].values()] == [True] * 3


def test_images_are_part_of_the_input(server: ModelServer) -> None:
    attach(server)
    df = ps.from_pydict({"text": ["what?"], "image": [np.zeros((4, 4, 3), np.uint8)]})
    for way in ("openai", "typesafe", "perplexity"):
        df.select(d=decide([col("text"), col("image")], {"old": yes_no("Is it old?")}, **WAYS[way])).collect()
    openai, typesafe, perplexity = (request.body for request in server.requests)
    text, image = openai["input"][0]["content"]
    assert text == {"type": "input_text", "text": "what?"}
    assert image["type"] == "input_image"
    assert image["image_url"].startswith("data:image/png;base64,")
    assert typesafe["state"] == ["what?", "image-1"]
    assert typesafe["assets"]["image-1"]["format"] == "png"
    assert perplexity["state"][1]["image_url"]["url"] == image["image_url"]


# --- one request for a row ---


def share(question: dict[str, Any]) -> float:
    return 0.5 + 0.1 * int(question["instructions"].removeprefix("Is it ").removesuffix("?"))


def test_questions_in_separate_columns_are_one_request(server: ModelServer) -> None:
    df = ps.from_pydict({"text": [f"row {number}" for number in range(40)], "n": list(range(40))})
    for number in range(5):
        df = df.with_column(f"q{number}", decide("{text}", {"q": yes_no(f"Is it {number}?")}))
        df = df.with_column("n", col("n") + 1)
    server.change(answer=lambda request: {each["name"]: share(each) for each in request.body["questions"]})
    found = df.to_pydict()
    assert server.num_requests == 40
    shares = [found[f"q{number}"][7]["q"]["probability"] for number in range(5)]
    assert shares == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9])
    assert found["n"][7] == 12
    assert found["text"][7] == "row 7"


def test_columns_of_a_filter_are_one_request_too(server: ModelServer) -> None:
    df = ps.from_pydict({"text": ["yes", "nothing"] * 10})
    df = df.with_columns({name: decide("{text}", {"q": yes_no(f"{name}?")}) for name in ("a", "b")})
    found = df.where(col("a")["q"]["value"]).select(p=col("b")["q"]["probability"]).to_pydict()
    assert found == {"p": [0.9] * 10}
    assert server.num_requests == 20


def test_rows_that_a_filter_drops_are_not_asked_what_comes_after_it(server: ModelServer) -> None:
    df = ps.from_pydict({"text": ["yes", "nothing"] * 10})
    df = df.with_column("a", decide("{text}", {"q": yes_no("a?")})).where(col("a")["q"]["value"])
    df = df.with_column("b", decide("{text}", {"q": yes_no("b?")})).with_column("c", decide("{text}", ASKED))
    assert len(df.to_pydict()["c"]) == 10
    assert sorted(len(request.body["questions"]) for request in server.requests) == [1] * 20 + [4] * 10


def test_equal_questions_are_asked_once(server: ModelServer) -> None:
    asked = {"q": yes_no("Old?")}
    df = ps.from_pydict({"text": ["yes"]}).with_column("a", decide("{text}", asked))
    found = df.with_column("b", decide("{text}", asked)).to_pydict()
    assert found["a"] == found["b"]
    assert [len(request.body["questions"]) for request in server.requests] == [1]


def test_other_inputs_models_and_options_are_requests_of_their_own(server: ModelServer) -> None:
    df = ps.from_pydict({"text": ["a"], "other": ["b"]}).with_column("a", decide("{text}", {"a": yes_no("a?")}))
    df = df.with_column("b", decide("{other}", {"b": yes_no("b?")}))
    df = df.with_column("c", decide("{text}", {"c": yes_no("c?")}, model="another"))
    df = df.with_column("d", decide("{text}", {"d": yes_no("d?")}, max_retries=1))
    df.collect()
    assert server.num_requests == 4


def test_questions_above_the_limit_of_a_service_are_split(server: ModelServer) -> None:
    attach(server)
    df = ps.from_pydict({"text": ["yes", "no idea"]})
    asked = {f"q{number}": yes_no(f"{number}?") for number in range(130)}
    found = df.select(d=decide("{text}", asked, provider="typesafe")).to_pydict()["d"]
    assert sorted(len(request.body["questions"]) for request in server.requests) == [2, 2, 128, 128]
    assert [each["probability"] for each in found[0].values()] == [0.9] * 130


# --- a language model as a judge ---


def say(server: Any, *tops: dict[str, float]) -> None:
    """Answer with the most likely first tokens."""
    server.say(
        *(
            {
                "model": "m",
                "choices": [
                    {
                        "message": {"role": "assistant", "content": max(top, key=top.__getitem__)},
                        "finish_reason": "length",
                        "logprobs": {
                            "content": [
                                {
                                    "token": max(top, key=top.__getitem__),
                                    "logprob": math.log(max(top.values())),
                                    "top_logprobs": [
                                        {"token": token, "logprob": math.log(share)} for token, share in top.items()
                                    ],
                                }
                            ]
                        },
                    }
                ],
                "usage": {"prompt_tokens": 5, "completion_tokens": 1},
            }
            for top in tops
        )
    )


def test_a_judge_gives_the_shares_of_its_labels(start_server: Any) -> None:
    """Spellings of a label are added up; other tokens do not count."""
    server = start_server()
    ps.set_provider("lm_studio", base_url=server.url)
    df = ps.from_pydict({"text": ["I want my money back"]})
    say(server, {"Yes": 0.3, " Yes": 0.2, "yes": 0.1, "No": 0.2, "Maybe": 0.2})
    found = df.select(d=decide("{text}", {"r": ASKED["refund"]}, model="m")).to_pydict()["d"][0]["r"]
    assert found["probability"] == pytest.approx(0.75)
    body = server.requests[0].body
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"], body["temperature"]) == (1, True, 20, 0)
    assert body["messages"][-1]["content"] == (
        "I want my money back\n\nQuestion: Does the customer ask for a refund?\nAnswer with Yes or No only."
    )
    say(server, {"B": 0.5, " B": 0.25, "A": 0.125, "a": 0.125})
    found = df.select(d=decide("{text}", {"t": ASKED["topic"]}, model="m")).to_pydict()["d"][0]["t"]
    assert found["value"] == "bug"
    assert found["probabilities"] == pytest.approx({"billing": 1 / 7, "bug": 6 / 7, "other": 0.0})


def test_a_judge_that_reasons_first_is_an_error_of_the_row(start_server: Any) -> None:
    server = start_server()
    ps.set_provider("lm_studio", base_url=server.url)
    say(server, {"<think>": 0.9, "Well": 0.1})
    df = ps.from_pydict({"text": ["a"]}).select(d=decide("{text}", {"r": yes_no("b?")}, model="m", on_error="null"))
    assert df.to_pydict()["d"] == [None]
    assert "reasoning_effort" in str(df.errors().to_pydict())


# --- labels ---


def test_a_decision_model_classifies(server: ModelServer) -> None:
    attach(server)
    df = ps.from_pydict({"text": ["a bug", None], "image": [np.zeros((4, 4, 3), np.uint8), None]})
    labels = ["billing", "bug"]
    df = df.with_columns(
        a=classify_text("{text}", labels, model="gpt-6-luna"),
        b=classify_text("{text}", labels, model="gpt-6-luna", scores=True),
        c=classify_text("{text}", labels, provider="typesafe"),
        d=classify_image(col("image"), labels, model="gpt-6-luna"),
    )
    found = df.select("a", "b", "c", "d").to_pydict()
    assert (found["a"], found["c"]) == (["bug", None], ["bug", None])
    assert found["b"][0] == {"label": "bug", "score": 0.9, "scores": {"billing": 0.1, "bug": 0.9}}
    assert found["d"][0] in labels
    assert server.num_requests == 3


# --- refused when the query is built ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: choice("q", ["a"]), "two or more"),
        (lambda: choice("q", ["a", "a "]), "twice"),
        (lambda: choice("q", ["Bug", "bug"]), "twice"),
        (lambda: choice("q", ["a", ""]), "list of texts"),
        (lambda: choice("q", "ab"), "list of texts"),
        (lambda: score("q", ["low", 3]), "list of texts"),
        (lambda: yes_no(" "), "is a text"),
        (lambda: decide("{text}", {}), "dict of names"),
        (lambda: decide("{text}", yes_no("a?")), "give the question a name"),
        (lambda: decide("{text}", {"a": "b?"}), "make it with yes_no"),
        (lambda: decide("no column", {"a": yes_no("b?")}), "names no column"),
        (lambda: decide("{text}", {"a": choice("q", [f"o{n}" for n in range(256)])}), "takes 255"),
        (lambda: decide("{text}", {"a": score("q", [f"o{n}" for n in range(11)])}), "takes 10"),
        (lambda: decide("{text}", {"a": choice("q", [f"o{n}" for n in range(21)])}, wire="logprobs"), "takes 20"),
        (lambda: decide("{text}", ASKED, wire="telepathy"), "systemone"),
        (lambda: decide("{text}", ASKED, temperature=1), "does not take 'temperature'"),
        (lambda: decide("{text}", ASKED, batch_api=True), "has no batch API"),
        (lambda: decide("{text}", ASKED, provider="anthropic"), "has no decide"),
        (lambda: prompt("{text}", provider="typesafe"), "has no prompt"),
    ],
)
def test_what_cannot_be_answered_is_refused_at_once(make: Any, message: str, server: ModelServer) -> None:
    ps.attach_provider("anthropic", api_key="test")
    ps.attach_provider("typesafe", api_key="test")
    with pytest.raises(InvalidArgumentError, match=message):
        make()
    assert server.num_requests == 0


# --- usage, SQL, errors, budget ---


def test_usage_comes_with_the_answers(server: ModelServer) -> None:
    """The price is that of decisions. A request whose usage is wanted is not joined with others."""
    server.change(answer=lambda request: ANSWER)
    df = ps.from_pydict({"text": ["I want my money back"]})
    found = df.with_columns(a=decide("{text}", ASKED, usage=True), b=decide("{text}", ASKED)).to_pydict()
    usage = found["a"][0]
    assert usage["value"] == found["b"][0] == EXPECTED
    assert usage["model"] == "gpt-6-luna"
    assert usage["cost"] == pytest.approx(0.1e-6 * usage["input_tokens"])
    assert server.num_requests == 2


def test_decide_in_sql(server: ModelServer) -> None:
    texts = ps.from_pydict({"text": ["a bug, yes", "billing", None]})
    asked = "{'old': yes_no('Is it old?'), 'topic': choice('What?', {'billing': 'payments', 'bug': NULL})}"
    found = ps.sql(f"select decide('{{text}}', {asked}, model := 'gpt-6-luna').topic.value as topic from texts")
    assert found.to_pydict() == {"topic": ["bug", "billing", None]}
    found = ps.sql("select text from texts where decide(text, {'old': yes_no('Is it old?')}).old.probability > 0.6")
    assert found.to_pydict() == {"text": ["a bug, yes"]}
    level = ps.sql_expr("decide(text, {'l': score('How bad?', ['bad', 'a bug'])}).l.value")
    assert texts.select(l=level).to_pydict() == {"l": ["a bug", "bad", None]}


def test_a_failed_row_is_its_own_error(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, "too long", containing="bad")])
    df = ps.from_pydict({"text": ["yes", "bad"]}).with_column(
        "d", decide("{text}", {"q": yes_no("?")}, on_error="null")
    )
    df = df.with_column("e", decide("{text}", {"r": yes_no("!")}, on_error="null"))
    found = df.to_pydict()
    assert [each and each["q"]["value"] for each in found["d"]] == [True, None]
    assert found["e"][1] is None
    assert df.errors().count_rows() == 1


def test_decisions_are_paid_from_the_budget(server: ModelServer, tmp_path: Path) -> None:
    """The price of decisions is known, and the next run finds the answers that are paid for."""
    df = ps.from_pydict({"text": [f"yes {number}" for number in range(50)]})
    df = df.with_column("d", decide("{text}", {"q": yes_no("?")}, concurrency=2))
    with pytest.raises(BudgetSpentError):
        df.write_parquet(str(tmp_path / "out"), budget=60e-6, resume=True)
    num_paid = server.num_requests
    assert 0 < num_paid < 50
    df.write_parquet(str(tmp_path / "out"), budget=1.0, resume=True)
    assert server.num_requests == 50
    assert ps.read_parquet(str(tmp_path / "out")).where(col("d")["q"]["value"]).count_rows() == 50


def test_a_worker_finds_the_kernels_of_a_plan() -> None:
    """A process of Ray gets a plan with answers of ``decide``, and has never imported its modules."""
    code = "from penstock.expr.registry import lookup; lookup('decisions'), lookup('list_items')"
    subprocess.run([sys.executable, "-c", code], check=True)
