"""A query is priced by a sample of its rows, over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError
from penstock.estimates.sample import sampled, scattered
from penstock.functions import embed_text, prompt
from penstock.testing import ModelServer

PRICE = {"input": 1.0, "output": 10.0}


@pytest.fixture
def server(model_server: ModelServer) -> ModelServer:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    return model_server


def asking(column: str = "q", **options: Any) -> ps.Expression:
    given: dict[str, Any] = {"model": "mine", "use_chat_completions": True, "price": PRICE} | options
    return prompt(ps.col(column), **given)


def questions(count: int) -> ps.DataFrame:
    """Texts of 1 to 100 tokens, of 50.5 on average, in an order that repeats."""
    return ps.from_pydict({"id": list(range(count)), "q": ["x" * 4 * (number % 100 + 1) for number in range(count)]})


def test_a_sample_says_what_all_rows_will_cost(server: ModelServer) -> None:
    df = questions(2000).with_column("a", asking())
    cost = df.plan_cost(sample=40)
    assert (cost.total_rows, cost.sampled_rows, cost.calls) == (2000, 40, 2000)
    assert server.num_requests == 40
    truth = 2000 * 50.5  # what comes out is what goes in
    assert cost.tokens_out_low <= truth <= cost.tokens_out_high
    assert cost.tokens_out == pytest.approx(truth, rel=0.25)
    assert cost.dollars == pytest.approx((cost.tokens_in * 1.0 + cost.tokens_out * 10.0) / 1e6)
    assert cost.dollars_low is not None
    assert cost.dollars_low < cost.dollars
    assert cost.sample_dollars == pytest.approx(cost.dollars * 40 / 2000)
    assert 0 < cost.seconds_low <= cost.seconds <= cost.seconds_high
    assert df.plan_cost(sample=40).dollars_high == cost.dollars_high


def test_it_reads_as_a_table(server: ModelServer) -> None:
    cost = questions(2000).with_column("a", asking()).plan_cost()
    text = str(cost)
    for shown in ("For 2,000 rows, by a sample of 20", "openai mine", "2,000", "Time, roughly:", "List prices of 20"):
        assert shown in text
    assert text.count("together") == 0


def test_rows_are_filtered_before_they_are_sampled(server: ModelServer) -> None:
    df = questions(2000).where(ps.col("id") % 100 == 7).with_column("a", asking())
    cost = df.plan_cost(sample=10)
    assert (cost.total_rows, cost.sampled_rows) == (20, 10)
    assert cost.tokens_out == cost.tokens_out_low == 20 * 8


def test_a_filter_that_asks_is_part_of_the_sample(server: ModelServer) -> None:
    is_chosen = ps.func(lambda number: number % 10 == 0, return_dtype=ps.DataType.bool())
    df = questions(2000).where(is_chosen(ps.col("id"))).with_column("a", asking())
    cost = df.plan_cost(sample=20)
    assert server.num_requests > 0
    assert cost.calls == server.num_requests * 100
    assert cost.calls_low < 200 < cost.calls_high


def test_a_sample_in_which_no_row_asks_says_that_it_does_not_know(server: ModelServer) -> None:
    is_rare = ps.func(lambda number: number < 3, return_dtype=ps.DataType.bool())
    df = questions(2000).where(is_rare(ps.col("id"))).with_column("a", asking())
    cost = df.plan_cost(sample=20)
    assert server.num_requests == 0
    assert (cost.calls, cost.dollars, cost.dollars_high) == (0, None, None)
    assert cost.calls_high == pytest.approx(0.15 * 2000)
    assert "no row of it called a model" in str(cost)
    assert "take a larger sample" in str(cost)
    assert (
        questions(10).where(is_rare(ps.col("id")) & (ps.col("id") > 5)).with_column("a", asking()).plan_cost().dollars
        == 0
    )


def test_limits_and_nulls(server: ModelServer) -> None:
    assert questions(1000).with_column("a", asking()).limit(50).plan_cost().total_rows == 50
    late = questions(1000).with_column("a", asking()).where(ps.col("a") != "").limit(5).plan_cost()
    assert (late.total_rows, "this is the most" in str(late)) == (1000, True)
    nothing = (
        ps.from_pydict({"q": [None] * 100}).select(ps.col("q").cast(ps.DataType.string())).with_column("a", asking())
    )
    assert nothing.plan_cost(sample=100).dollars == 0
    assert nothing.plan_cost(sample=20).dollars is None


def test_rows_that_become_more_are_said_to(server: ModelServer) -> None:
    lists = ps.from_pydict({"id": list(range(50)), "q": [["a", "b", "c"]] * 50})
    same = ps.func(lambda texts: texts, return_dtype=ps.DataType.list(ps.DataType.string()))
    cost = lists.with_column("q", same(ps.col("q"))).explode("q").with_column("a", asking()).plan_cost(sample=10)
    assert cost.calls == 150
    before = lists.explode("q").with_column("a", asking()).plan_cost(sample=10)  # is counted, as it asks nothing
    assert (before.total_rows, before.calls) == (150, 150)


def test_stages_are_added_up(server: ModelServer) -> None:
    df = questions(1000).with_column("a", asking()).with_column("e", embed_text(ps.col("a"), provider="openai"))
    cost = df.plan_cost()
    asked, embedded = cost.models
    assert asked.calls.middle == 1000
    assert embedded.calls.middle == pytest.approx(1000 / 256)  # as many texts go together
    assert embedded.dollars is not None
    assert asked.dollars is not None
    assert cost.dollars == pytest.approx(asked.dollars.middle + embedded.dollars.middle)
    assert embedded.tokens_in.middle == pytest.approx(asked.tokens_out.middle)
    assert embedded.tokens_in.low < embedded.tokens_in.middle
    assert "together" in str(cost)


def test_both_sides_of_a_union_are_sampled_by_their_size(server: ModelServer) -> None:
    both = questions(900).concat(questions(100)).with_column("a", asking())
    cost = both.plan_cost(sample=20)
    assert (cost.total_rows, cost.sampled_rows, cost.calls) == (1000, 20, 1000)


def test_a_model_without_a_price_has_tokens(server: ModelServer) -> None:
    cost = questions(100).with_column("a", asking(price=None)).plan_cost()
    assert (cost.dollars, cost.dollars_low, cost.calls) == (None, None, 100)
    assert "The price of mine is not known: give price=" in str(cost)


def test_answers_of_the_sample_are_kept_and_counted_as_if_paid(server: ModelServer, tmp_path: Path) -> None:
    df = questions(100).with_column("a", asking()).with_column("e", embed_text(ps.col("q"), provider="openai"))
    with ps.config(cache_dir=str(tmp_path)):
        first, again = df.plan_cost(), df.plan_cost()
        assert server.num_requests == 21
        assert again.sample_dollars == 0
        assert again.tokens_out == first.tokens_out
        assert again.dollars == pytest.approx(first.dollars, rel=0.01)
        assert "40 answers of the sample came from the cache" in str(again)
        df.to_arrow()
    assert server.counts.completed == 100 + 2


def test_without_remote_models_it_costs_nothing(server: ModelServer) -> None:
    double = ps.func(lambda number: number * 2, return_dtype=ps.DataType.int64())
    for df in (ps.range(5000), ps.range(5000).with_column("b", double(ps.col("id")))):
        cost = df.plan_cost()
        assert (cost.dollars, cost.calls, cost.models) == (0, 0, ())
        assert "no calls to remote models, $0" in str(cost)
        assert cost.seconds > 0


def test_no_rows(server: ModelServer) -> None:
    for df in (questions(10).where(ps.col("id") > 99), questions(1).limit(0)):
        cost = df.with_column("a", asking()).plan_cost()
        assert (cost.total_rows, cost.dollars, "There are no rows" in str(cost)) == (0, 0, True)


class Endless:
    """A source that cannot say how much it has."""

    name = "endless"
    can_filter = False

    def schema(self) -> ps.Schema:
        return ps.Schema.from_arrow(pa.schema([("q", pa.string())]))

    def read_tasks(self, request: ps.ReadRequest) -> Iterator[Any]:
        for _ in range(3):
            yield EndlessTask()


class EndlessTask:
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        for _ in range(100):
            yield pa.record_batch({"q": ["x" * 40] * 100})


def test_where_nobody_knows_how_many_there_are_a_thousand_are_priced(server: ModelServer) -> None:
    cost = ps.read_source(Endless()).with_column("a", asking()).plan_cost()
    assert (cost.total_rows, cost.num_rows, cost.calls, cost.tokens_out) == (None, 1000, 1000, 10_000)
    assert "For each 1,000 rows" in str(cost)
    assert "first rows" in str(cost)


def test_files_are_sampled_over_all_of_them(server: ModelServer, tmp_path: Path) -> None:
    for number in range(4):
        ps.from_pydict({"q": ["x" * 4 * (number + 1)] * 250}).write_parquet(str(tmp_path / "in"), mode="append")
    cost = ps.read_parquet(str(tmp_path / "in")).with_column("a", asking()).plan_cost(sample=20)
    assert (cost.total_rows, cost.tokens_out) == (1000, 2500)


def test_large_sources_are_sampled_at_the_beginnings_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.estimates.sample.CHEAP_ROWS", 10)
    plan = ps.from_arrow(
        [pa.record_batch({"id": [part * 100 + row for row in range(100)]}) for part in range(20)]
    )._plan
    found = sampled(plan, 10)
    assert (found.total_rows, found.num_rows) == (2000, 10)
    ids = ps.DataFrame(found.plan).to_pydict()["id"]
    assert len({number // 100 for number in ids}) == 5
    assert all(number % 100 < 2 for number in ids)


def test_rows_are_scattered_so_that_periods_do_no_harm() -> None:
    picked = np.array(list(scattered(50, 5000)))
    assert (np.diff(picked) > 0).all()
    assert (picked // 100 == np.arange(50)).all()
    assert len(set(picked % 100)) > 30


@pytest.mark.parametrize("sample", [0, -1, True, 2.5, "20"])
def test_what_is_no_number_of_rows_is_refused(sample: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a whole number of rows"):
        ps.range(5).plan_cost(sample)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_calls_by_batch_are_sampled_one_by_one(server: ModelServer, provider: str) -> None:
    """A sample cannot wait for a batch: it is paid in full, and the estimate is at the price of batches."""
    ps.set_provider("anthropic", base_url=server.anthropic_url, api_key="test")
    given: dict[str, Any] = {"provider": provider, "use_chat_completions": None}
    alone = questions(2000).with_column("a", asking(**given)).plan_cost(sample=10)
    server.clear()
    cost = questions(2000).with_column("a", asking(**given, batch_api=True)).plan_cost(sample=10)
    assert len(server.requests) == 10
    assert not [seen for seen in server.requests if "batches" in seen.path or "files" in seen.path]
    assert alone.dollars is not None
    assert cost.dollars == pytest.approx(alone.dollars / 2)
    assert cost.sample_dollars == alone.sample_dollars
    assert cost.seconds is cost.seconds_low is cost.seconds_high is cost.models[0].seconds is None
    assert "Time: not known; batches are answered within a day, most within the hour" in str(cost)


def test_texts_embedded_by_batch_are_sampled_one_by_one(server: ModelServer) -> None:
    vectors = embed_text(ps.col("q"), provider="openai", dimensions=4, price={"input": 2.0}, batch_api=True)
    cost = questions(1000).with_column("v", vectors).plan_cost(sample=10)
    assert {seen.path for seen in server.requests} == {"/v1/embeddings"}
    assert cost.calls == 1000  # of one text each, as in batches
    assert cost.dollars == pytest.approx(cost.tokens_in * 1.0 / 1e6)
