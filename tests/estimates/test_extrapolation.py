"""The figures of a sample are projected to all rows, with a 90 % interval."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.cost.accounts import NANO, CallRecord
from penstock.estimates.extrapolation import call_figures, project_calls, scaled


def call(tokens: int = 100, model: str = "m", **fields: object) -> CallRecord:
    return CallRecord("p", model, tokens, 10, nanodollars=tokens, latency_s=1.0, **fields)  # type: ignore[arg-type]


def test_inputs_that_went_together_share_a_call_by_their_weights() -> None:
    figures = call_figures([CallRecord("p", "m", 100, 0, nanodollars=40, inputs=(10, 30), max_inputs=256)])
    assert figures == pytest.approx(np.array([[1 / 256, 25, 0, 10 / NANO], [1 / 256, 75, 0, 30 / NANO]]))


def test_rows_that_asked_nothing_count() -> None:
    (estimate,) = project_calls([call() for _ in range(5)], num_sampled=20, num_rows=2000)
    assert estimate.calls.middle == 500
    assert 100 < estimate.calls.low < 250
    assert 750 < estimate.calls.high < 900


def test_a_sample_of_all_rows_is_sure() -> None:
    (estimate,) = project_calls([call(row) for row in range(20)], num_sampled=20, num_rows=20)
    assert estimate.tokens_in.low == estimate.tokens_in.high == sum(range(20))


def test_models_are_told_apart_and_one_may_have_no_price() -> None:
    first, second = project_calls([call(), CallRecord("p", "free", 7)], num_sampled=1, num_rows=10)
    assert (first.model, first.tokens_in.middle, first.dollars is None) == ("m", 1000, False)
    assert (second.model, second.tokens_in.middle, second.dollars) == ("free", 70, None)


def test_the_order_of_answers_does_not_matter() -> None:
    calls = [call(row * row) for row in range(20)]
    assert project_calls(calls, 20, 1000) == project_calls(calls[::-1], 20, 1000)


def test_limits_of_the_user_bound_the_time() -> None:
    (free,) = project_calls([call(max_at_once=10) for _ in range(20)], 20, 1000)
    (paced,) = project_calls([call(max_at_once=10, caps=(None, 60.0, None)) for _ in range(20)], 20, 1000)
    (tokens,) = project_calls([call(caps=(None, None, 110.0)) for _ in range(20)], 20, 1000)
    (few,) = project_calls([call(max_at_once=10, caps=(2, None, None)) for _ in range(20)], 20, 1000)
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
    assert 0.83 * 200 <= held <= 0.95 * 200
