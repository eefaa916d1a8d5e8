"""A budget and a server that drops connections: the calls that everyone waits for do not wait for money."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import BudgetSpentError
from penstock.testing import ModelServer, Uniform, faults

PRICE = {"input": 0.25, "output": 2.0}
AT_ONCE = 6
ASSUMED = 0.0021  # dollars of a call whose connection broke off: its input, and the 1,000 tokens assumed for its answer


def test_a_dropped_connection_does_not_stop_a_query_with_a_small_budget(model_server: ModelServer) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    model_server.change(latency=Uniform(0.1, 0.3), faults=[faults.Reset(at=(2, 5, 6, 9, 12, 30, 50))])
    words = "one two three four five six seven eight nine ten " * 5
    answer = ps.prompt(f"{words}{{id}}", model="m", concurrency=AT_ONCE, price=PRICE, on_error="null")
    with ps.spending(0.01) as account, pytest.raises(BudgetSpentError, match="is spent"):
        ps.range(2_000).select(answer.alias("a")).collect()
    assert account.dollars is not None
    assert 0.005 < account.dollars < 0.01 + AT_ONCE * ASSUMED  # the calls that others wait for may exceed the budget
