"""Calls by batch APIs are paid for out of a budget: as many at once as it allows."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.cost.budget import FIRST_OUTPUT_TOKENS, spending
from penstock.errors import BudgetSpentError
from penstock.functions import embed_text, prompt
from penstock.testing import BatchTiming, ModelServer
from tests.ai.batch_submissions import batches

PRICE = {"input": 100.0, "output": 100.0}  # half of it by batch
OUTPUT_TOKENS = 100
INPUT_TOKENS = 7
CALL = (INPUT_TOKENS + OUTPUT_TOKENS) * 50 / 1e6
POLLS: dict[str, Any] = {"batch_api": True, "batch_poll_interval": 0.02}


@pytest.fixture
def server(model_server: ModelServer) -> ModelServer:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    model_server.change(answer=lambda request: "x" * 4 * OUTPUT_TOKENS, batches=BatchTiming(0.01, 0.3, 0.01))
    return model_server


def asked(count: int, **options: Any) -> ps.DataFrame:
    given: dict[str, Any] = {"model": "mine", "use_chat_completions": True, "price": PRICE, **POLLS} | options
    df = ps.from_pydict({"q": [f"number {number:04}" for number in range(count)]})
    return df.with_column("a", prompt(ps.col("q"), **given))


def sizes(server: ModelServer) -> list[int]:
    return [len(batch) for batch in batches(server)]


def test_the_first_batch_is_as_large_as_the_budget_allows(server: ModelServer) -> None:
    """And the next one by what was learned of it."""
    with spending(5.0) as account:
        asked(400).collect()
    first, second = sizes(server)
    assert first == pytest.approx(5.0 / (FIRST_OUTPUT_TOKENS * 50 / 1e6), abs=3)
    assert first + second == account.num_calls == 400
    assert account.dollars == pytest.approx(400 * CALL)


def test_one_batch_where_all_can_be_paid_for(server: ModelServer) -> None:
    with spending(5.0):
        asked(400, max_tokens=150).collect()
    assert sizes(server) == [400]


@pytest.mark.parametrize("options", [{}, {"max_tokens": 150}], ids=str)
def test_a_budget_is_used_up_and_never_passed(server: ModelServer, options: dict[str, Any]) -> None:
    budget = 200.5 * CALL
    with spending(budget) as account, pytest.raises(BudgetSpentError, match="is spent: 200 calls cost"):
        asked(400, on_error="log", **options).collect()
    assert account.num_calls == sum(sizes(server)) == 200
    assert account.dollars is not None
    assert account.dollars <= budget
    assert len(sizes(server)) <= 3


@pytest.mark.parametrize("budget", [0.1, 1.0])
def test_first_answers_that_happen_to_be_short_do_not_make_it_pass(server: ModelServer, budget: float) -> None:
    server.change(answer=lambda request: "x" * 4 * (int(request.text[-4:]) * 37 % 200), batches=BatchTiming(0, 0.01, 0))
    with spending(budget) as account, pytest.raises(BudgetSpentError):
        asked(400).collect()
    assert account.dollars is not None
    assert 0.8 * budget < account.dollars <= budget + CALL


def test_what_has_gathered_is_submitted_while_others_wait_for_money(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the quiet time, which never ends here."""
    monkeypatch.setattr("penstock.ai.client.batch.batch_queue.quiet_s", lambda poll_interval_s, longest_gap_s: 1e6)
    with spending(2.5 * CALL), pytest.raises(BudgetSpentError, match="2 calls cost"):
        asked(5, max_tokens=OUTPUT_TOKENS).collect()
    assert sizes(server) == [2]


def test_embeddings_are_paid_for(server: ModelServer) -> None:
    texts = ps.from_pydict({"t": [f"{number:04}" * 1000 for number in range(100)]})  # of 1,000 tokens
    vectors = texts.select(embed_text(ps.col("t"), provider="openai", dimensions=4, price={"input": 2.0}, **POLLS))
    with spending(0.0305) as account, pytest.raises(BudgetSpentError, match="30 calls cost"):
        vectors.collect()
    assert (account.num_calls, account.input_tokens) == (30, 30_000)
    assert sum(sizes(server)) == 30
    with spending(0.1) as account:
        vectors.collect()
    assert account.dollars == pytest.approx(0.1)
