"""Calls are counted, and a budget stops a query before it costs more."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import penstock as ps
from penstock.ai.provider import ModelTask, Prompter, Request
from penstock.cost.accounts import NANO, Account, current_account
from penstock.cost.budget import SCOUTS, Billing, Budget, Charge, spending
from penstock.cost.usage import Usage
from penstock.errors import AuthenticationError, BudgetSpentError, InvalidArgumentError
from penstock.functions import classify_text, embed_text, prompt
from penstock.observe.stats import Stats
from penstock.testing import ModelServer, faults

PRICE = {"input": 1.0, "output": 10.0}
OUTPUT_TOKENS = 100
INPUT_TOKENS = 7  # of "number 0042": the words, and what the server adds for a message
CALL = (INPUT_TOKENS * 1.0 + OUTPUT_TOKENS * 10.0) / 1e6


@pytest.fixture
def server(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    model_server.change(answer=lambda request: "x" * 4 * 100)
    return model_server


def asked(count: int, **options: Any) -> ps.DataFrame:
    given: dict[str, Any] = {"model": "mine", "use_chat_completions": True, "price": PRICE} | options
    df = ps.from_pydict({"q": [f"number {number:04}" for number in range(count)]})
    return df.with_column("a", prompt(ps.col("q"), **given))


class Echo(ps.Provider):
    name = "echo"

    def model(self, task: ModelTask) -> Prompter:
        return EchoPrompter()


class EchoPrompter(Prompter):
    async def generate(self, request: Request) -> str | None:
        return request.text


# --- counting ---------------------------------------------------------------------------------------------------------


def test_calls_are_counted_by_model(server: ModelServer) -> None:
    with spending() as account:
        asked(30).collect()
        asked(10, model="gpt-5", price=None).collect()
    mine, gpt = account.models
    assert (mine.model, mine.num_calls, mine.output_tokens) == ("mine", 30, 30 * OUTPUT_TOKENS)
    assert (gpt.provider, gpt.num_calls) == ("openai", 10)
    assert account.num_calls == server.num_requests == 40
    assert mine.dollars == pytest.approx(30 * CALL)


def test_what_is_counted_is_what_rows_say_they_cost(server: ModelServer) -> None:
    server.change(answer=None)
    with spending() as account:
        answers = asked(20, usage=True).to_pydict()["a"]
    assert account.dollars == pytest.approx(sum(answer["cost"] for answer in answers))
    assert account.input_tokens == sum(answer["input_tokens"] for answer in answers)


def test_without_an_account_nothing_is_counted(server: ModelServer) -> None:
    with spending() as account:
        pass
    asked(3).collect()
    assert account.models == []


def test_the_price_of_a_model_that_nobody_knows_is_not_known(server: ModelServer) -> None:
    with spending() as account:
        asked(3, price=None).collect()
    assert (account.num_calls, account.output_tokens, account.dollars) == (3, 3 * OUTPUT_TOKENS, None)


def test_answers_that_are_asked_for_again_are_paid_twice(server: ModelServer) -> None:
    class Form(BaseModel):
        name: str

    server.change(answer=None, faults=[faults.InvalidAnswer(at=1)])
    with spending() as account:
        asked(5, return_format=Form).collect()
    assert account.num_calls == server.num_requests == 6


def test_turns_with_tools_are_counted(server: ModelServer) -> None:
    def today() -> str:
        """Return the day."""
        return "Monday"

    server.change(faults=[faults.CallTools([("today", {})])])
    with spending() as account:
        asked(4, tool_functions=[today]).collect()
    assert account.num_calls == server.num_requests == 8


def test_refusals_cost_nothing(server: ModelServer) -> None:
    server.change(faults=[faults.ServerError(503, at=[1, 3]), faults.RateLimited(at=[2], retry_after=0.0)])
    with spending() as account:
        asked(5).collect()
    assert (server.num_requests, account.num_calls) == (8, 5)


def test_embeddings_are_counted(server: ModelServer) -> None:
    df = ps.from_pydict({"t": ["x" * 400] * 10}).select(embed_text(ps.col("t"), provider="openai"))
    with spending() as account:
        df.collect()
    assert (account.num_calls, account.input_tokens, account.output_tokens) == (1, 1000, 0)
    assert account.dollars == pytest.approx(1000 * 0.02 / 1e6)


@pytest.mark.parametrize("provider", ["anthropic", "google"])
def test_other_providers_say_what_they_took(server: ModelServer, provider: str) -> None:
    ps.set_provider(provider, base_url=getattr(server, f"{provider}_url"), api_key="test")
    with spending() as account:
        asked(3, provider=provider, use_chat_completions=None).collect()
    assert (account.num_calls, account.output_tokens) == (3, 3 * OUTPUT_TOKENS)
    assert account.input_tokens > 0


def test_what_a_ledger_has_costs_nothing(server: ModelServer, tmp_path: Path) -> None:
    texts = ps.from_pydict({"t": ["a", "b"]}).select(embed_text(ps.col("t"), provider="openai"))
    with ps.config(cache_dir=str(tmp_path)):
        for df in (asked(5), texts):
            df.to_arrow()
        with spending() as account:
            asked(8).collect()
            texts.to_arrow()
    assert (account.num_calls, account.num_cached, account.output_tokens) == (3, 7, 3 * OUTPUT_TOKENS)


# --- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"max_tokens": 150}, {"max_concurrency": 3}], ids=str)
def test_a_budget_is_used_up_and_never_passed(server: ModelServer, options: dict[str, Any]) -> None:
    server.change(latency=0.005)
    budget = 120.5 * CALL
    with spending(budget) as account, pytest.raises(BudgetSpentError, match="is spent: 120 calls cost") as caught:
        asked(1000, on_error="log", **options).collect()
    assert account.dollars is not None
    assert account.dollars <= budget
    assert server.num_requests == account.num_calls == caught.value.num_calls == 120
    assert server.counts.dropped == 0  # what was under way was answered
    assert caught.value.budget == pytest.approx(budget)
    assert caught.value.spent == pytest.approx(account.dollars)


def test_answers_of_any_length_pass_a_budget_by_little(server: ModelServer) -> None:
    server.change(answer=lambda request: "x" * 4 * (int(request.text[-4:]) * 37 % 200), latency=0.002)
    with spending(0.2) as account, pytest.raises(BudgetSpentError):
        asked(2000).collect()
    assert account.dollars is not None
    assert 0.18 <= account.dollars <= 0.2 + 10 * CALL


def test_what_is_done_is_kept_and_the_rest_is_asked_for_later(server: ModelServer, tmp_path: Path) -> None:
    with ps.config(cache_dir=str(tmp_path / "cache")):
        with (
            spending(50.5 * CALL),
            pytest.raises(BudgetSpentError, match="resume=True, or cache_dir, keeps finished calls"),
        ):
            asked(80).write_parquet(str(tmp_path / "out"))
        assert not list((tmp_path / "out").glob("*.parquet"))
        with spending(50 * CALL) as account:
            asked(80).write_parquet(str(tmp_path / "out"))
    assert (account.num_calls, account.num_cached) == (30, 50)
    assert server.num_requests == 80
    assert ps.read_parquet(str(tmp_path / "out")).count_rows() == 80


def test_the_subscribers_of_a_write_see_its_budget(server: ModelServer, tmp_path: Path) -> None:
    class Viewer(Stats):
        def for_query(self) -> Stats:
            account = current_account()
            budgets.append(None if account is None else account.budget)
            return Stats()

    budgets: list[float | None] = []
    viewer = Viewer()
    ps.attach_subscriber(viewer)
    try:
        asked(2).write_parquet(str(tmp_path / "out"), resume=True, budget=0.5)
    finally:
        ps.detach_subscriber(viewer)
    assert budgets == [0.5]


def test_without_a_ledger_the_error_says_how_to_keep_answers(server: ModelServer) -> None:
    with spending(5.5 * CALL), pytest.raises(BudgetSpentError, match="cache_dir, keeps finished calls"):
        asked(80, max_tokens=120).collect()


def test_queries_within_share_a_budget(server: ModelServer) -> None:
    with spending(40.5 * CALL) as account:
        asked(30).collect()
        with pytest.raises(BudgetSpentError):
            asked(30).collect()
    assert account.num_calls == server.num_requests == 40


def test_stages_of_a_query_share_a_budget(server: ModelServer) -> None:
    second = prompt(ps.col("q"), model="another", use_chat_completions=True, price=PRICE, system_message="No.")
    with spending(60.5 * CALL) as account, pytest.raises(BudgetSpentError):
        asked(100).with_column("b", second).collect()
    assert account.dollars is not None
    assert 58 * CALL < account.dollars < 60.5 * CALL


def test_a_budget_holds_for_embeddings_and_labels(server: ModelServer) -> None:
    texts = ps.from_pydict({"t": ["x" * 4000] * 100})
    vectors = texts.select(embed_text(ps.col("t"), provider="openai", batch_size=5, dimensions=4))
    with spending(0.0005) as account, pytest.raises(BudgetSpentError):  # that is 25,000 tokens
        vectors.collect()
    assert (account.num_calls, account.input_tokens) == (5, 25_000)
    server.change(answer=None)
    labels = texts.select(classify_text(ps.col("t"), ["a", "b"], provider="openai", on_error="null", price=PRICE))
    with spending(0.05) as account, pytest.raises(BudgetSpentError):
        labels.collect()
    assert account.dollars is not None
    assert 0.03 < account.dollars <= 0.05


def test_the_first_call_may_be_too_dear(server: ModelServer, tmp_path: Path) -> None:
    message = r"does not cover the first call, to openai \(mine\), which may cost up to \$0.010\d+: give max_output_"
    with spending(CALL), pytest.raises(BudgetSpentError, match=message):
        asked(5).collect()
    with pytest.raises(BudgetSpentError) as failure:
        asked(5).write_parquet(str(tmp_path / "out"), budget=CALL)
    assert not getattr(failure.value, "__notes__", []), "there is nothing to go on from"
    with spending(CALL), pytest.raises(BudgetSpentError, match="give a max_output_tokens= below 500, or a larger"):
        asked(5, max_tokens=500).collect()
    vectors = ps.from_pydict({"t": ["x" * 4000]}).select(embed_text(ps.col("t"), provider="openai", dimensions=4))
    with spending(1e-9), pytest.raises(BudgetSpentError, match=r"first call, .*: give a larger budget\.$"):
        vectors.collect()
    assert server.num_requests == 0


def test_only_a_few_go_first_where_nothing_is_known(server: ModelServer) -> None:
    server.change(latency=0.02)
    with spending(10.0):
        asked(19).collect()
    assert server.counts.max_in_flight <= SCOUTS


def test_a_call_that_broke_off_counts_as_it_was_expected(server: ModelServer) -> None:
    server.change(faults=[faults.Reset(at=1)])
    with spending(1.0) as account:
        asked(2, max_tokens=200, max_concurrency=1).collect()
    (use,) = account.models
    assert use.num_calls == 3
    assert account.dollars == pytest.approx(2 * CALL + 200 * 10 / 1e6, abs=1e-5)


def test_a_model_without_a_price_is_refused_before_any_call(server: ModelServer) -> None:
    unknown = prompt(ps.col("q"), model="another", use_chat_completions=True, on_error="null")
    with spending(1.0), pytest.raises(InvalidArgumentError, match=r"price of 'another' .* price=\{'input'"):
        asked(5).with_column("b", unknown).collect()
    assert server.num_requests == 0


def test_models_on_this_machine_need_no_price(server: ModelServer) -> None:
    with spending(0.01) as account:
        answers = ps.from_pydict({"q": ["a"]}).select(prompt(ps.col("q"), provider=Echo())).to_pydict()
    assert (answers, account.dollars) == ({"q": ["a"]}, 0)


def test_a_key_that_is_refused_is_said_and_no_budget(server: ModelServer) -> None:
    server.change(api_key="another")
    with spending(1.0), pytest.raises(AuthenticationError):
        asked(5).collect()


@pytest.mark.parametrize("amount", [0, -1, True, "5", float("nan"), float("inf")])
def test_what_is_no_amount_is_refused(amount: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="is not an amount: give dollars"), spending(amount):
        pass


# --- prices -----------------------------------------------------------------------------------------------------------


def test_a_file_of_prices_goes_before_ours(server: ModelServer, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    prices = {"openai": {"mine": {"input": 0, "output": 50}, "gpt-5": {"input": 0, "output": 20}}}
    path.write_text(json.dumps({"date": "2026-11-15", "dollars_per_million_tokens": prices}))
    with ps.config(prices=path):
        for model, dollars in (("mine", 50), ("gpt-5-2025-08-07", 20), ("gpt-5-mini", 2)):
            (answer,) = asked(1, model=model, price=None, usage=True).to_pydict()["a"]
            assert answer["cost"] == pytest.approx(OUTPUT_TOKENS * dollars / 1e6, rel=0.05)
    path.write_text(json.dumps({"dollars_per_million_tokens": {"openai": {"*": {"input": 0, "output": 70}}}}))
    with ps.config(prices=str(path)), spending(1.0) as account:
        asked(1, price=None).collect()
    assert account.dollars == pytest.approx(OUTPUT_TOKENS * 70 / 1e6)


def test_the_price_of_a_call_goes_before_all(server: ModelServer) -> None:
    (answer,) = asked(1, model="gpt-5", usage=True).to_pydict()["a"]
    assert answer["cost"] == pytest.approx(CALL)


@pytest.mark.parametrize(
    ("price", "message"),
    [
        (3, "is not a price; give dollars for a million tokens"),
        ({"output": 2}, "is not a price"),
        ({"input": 2, "ouput": 2}, "Did you mean 'output'"),
        ({"input": -1}, "input=-1 is not a number"),
        ({"input": "1"}, "input='1' is not a number"),
    ],
)
def test_what_is_no_price_is_refused(server: ModelServer, price: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        asked(1, price=price)


@pytest.mark.parametrize("content", ["", "[]", '{"openai": {}}', '{"dollars_per_million_tokens": {"a": {"b": 3}}}'])
def test_a_file_that_has_no_prices_is_refused(server: ModelServer, tmp_path: Path, content: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(content)
    with pytest.raises(InvalidArgumentError, match=r"prices\.json"):
        ps.set_config(prices=path)
    assert ps.get_config().prices == ""


def test_a_file_that_loses_its_prices_is_refused_when_they_are_needed(server: ModelServer, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text('{"dollars_per_million_tokens": {}}')
    with ps.config(prices=path), spending(1.0):
        path.write_text("[]")
        with pytest.raises(InvalidArgumentError, match=r"prices\.json"):
            asked(1, price=None).collect()
        path.unlink()
        with pytest.raises(InvalidArgumentError, match="cannot be read"):
            asked(1, price=None).collect()


# --- reservations -----------------------------------------------------------------------------------------------------


def test_who_is_cancelled_while_waiting_leaves_the_room_to_others() -> None:
    async def run() -> None:
        account = Account(budget=1.0)
        billing = Billing(account, "openai", "mine", {"input": 0.0, "output": 600_000.0})  # a call may cost 60 cents
        body = {"max_tokens": 1}
        first = await billing.reserve(body, 0)
        second, third = (asyncio.create_task(billing.reserve(body, 0)) for _ in range(2))
        await asyncio.sleep(0)
        second.cancel()
        first.answered(Usage(0, 0))
        billing.settle(first)
        billing.settle(await third)
        assert second.cancelled()

    asyncio.run(run())


def test_billing_learns_what_calls_cost() -> None:
    async def run() -> int:
        account = Account(budget=1.0)
        billing = Billing(account, "openai", "mine", {"input": 1.0, "output": 1000.0})
        for _ in range(30):
            charge = await billing.reserve({"max_tokens": 100}, 10)
            charge.usage = Usage(10, 5)
            billing.settle(charge)
        return (await billing.reserve({"max_tokens": 100}, 10)).reserved

    assert asyncio.run(run()) == round((10 * 1.0 + 5 * 1000.0) / 1e6 * NANO)


def test_a_charge_is_settled_once(server: ModelServer) -> None:
    async def run() -> None:
        budget = Budget(1.0)
        billing = Billing(Account(), "openai", "mine", PRICE)
        charge = Charge(billing, 1)
        await budget.reserve(charge)
        budget.settle(charge, 5, is_call=True)
        assert not charge.is_reserved

    asyncio.run(run())
