"""Figures of a sample become figures of all rows, with an interval that holds them as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.cost.accounts import CallRecord
from penstock.cost.estimates.projecting import projected, rows_of, scaled


def call(row: int | None, tokens: int = 100, model: str = "m", **fields: object) -> CallRecord:
    return CallRecord("p", model, tokens, 10, nanodollars=tokens, row=row, latency_s=1.0, **fields)  # type: ignore[arg-type]


def test_the_calls_of_a_row_belong_together() -> None:
    figures = rows_of([call(1), call(2), call(1, tokens=50)])
    assert figures.tolist() == [[2, 150, 20, 150], [1, 100, 10, 100]]


def test_inputs_that_went_together_share_a_call_by_their_weights() -> None:
    figures = rows_of([CallRecord("p", "m", 100, 0, nanodollars=40, parts=(10, 30), max_parts=256)])
    assert figures.tolist() == [[1 / 256, 25, 0, 10], [1 / 256, 75, 0, 30]]


def test_rows_that_asked_nothing_count() -> None:
    (estimate,) = projected([call(row) for row in range(5)], num_sampled=20, num_rows=2000)
    assert estimate.calls.middle == 500
    assert 100 < estimate.calls.low < 250
    assert estimate.calls.high == pytest.approx(0.4556 * 2000, rel=0.01)  # the exact end for 5 of 20


def test_a_sample_of_all_rows_is_sure() -> None:
    (estimate,) = projected([call(row, tokens=row) for row in range(20)], num_sampled=20, num_rows=20)
    assert estimate.tokens_in.low == estimate.tokens_in.high == sum(range(20))


def test_models_are_told_apart_and_one_may_have_no_price() -> None:
    first, second = projected([call(1), CallRecord("p", "free", 7)], num_sampled=1, num_rows=10)
    assert (first.model, first.tokens_in.middle, first.dollars is None) == ("m", 1000, False)
    assert (second.model, second.tokens_in.middle, second.dollars) == ("free", 70, None)


def test_the_order_of_answers_does_not_matter() -> None:
    calls = [call(row, tokens=row * row) for row in range(20)]
    assert projected(calls, 20, 1000) == projected(calls[::-1], 20, 1000)


def test_limits_of_the_user_bound_the_time() -> None:
    (free,) = projected([call(row, max_at_once=10) for row in range(20)], 20, 1000)
    (paced,) = projected([call(row, max_at_once=10, caps=(None, 60.0, None)) for row in range(20)], 20, 1000)
    (tokens,) = projected([call(row, caps=(None, None, 110.0)) for row in range(20)], 20, 1000)
    (few,) = projected([call(row, max_at_once=10, caps=(2, None, None)) for row in range(20)], 20, 1000)
    assert (free.seconds.low, free.seconds.high) == (1.0, 100.0)
    assert paced.seconds.middle == pytest.approx(1000)
    assert tokens.seconds.middle == pytest.approx(1000 * 110 / 110 * 60)
    assert few.seconds.middle == pytest.approx(500)


@pytest.mark.parametrize("is_skewed", [False, True])
def test_nine_of_ten_intervals_hold_the_truth(is_skewed: bool) -> None:
    random = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        drawn = random.lognormal(5, 0.5, 20) if is_skewed else random.normal(500, 100, 20)
        truth = 10_000 * (np.exp(5 + 0.5**2 / 2) if is_skewed else 500)
        (found,) = scaled(drawn.reshape(-1, 1), 20, 10_000)
        held += found.low <= truth <= found.high
    assert 0.85 * 200 <= held <= 0.95 * 200


@pytest.mark.parametrize(("num_sampled", "share"), [(20, 0.5), (20, 0.1), (20, 0.05), (60, 1 / 3)])
def test_intervals_hold_where_only_some_rows_ask(num_sampled: int, share: float) -> None:
    """Samples without any row that asks are not among them: they give no figure."""
    random = np.random.default_rng(7)
    held = num_seen = 0
    for num_asked in random.binomial(num_sampled, share, 200):
        if num_asked:
            (found,) = scaled(np.ones((num_asked, 1)), num_sampled, 10_000)
            num_seen += 1
            held += found.low <= 10_000 * share <= found.high
    assert held >= 0.88 * num_seen
