"""Failures that are not about the row: the query ends with one error, and the job continues where it stopped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.ai.client.server_errors import error_for_status
from penstock.engine.error_limit import Breaker
from penstock.errors import (
    AuthenticationError,
    ContentFilteredError,
    FatalError,
    ProviderError,
    ProviderUnusableError,
    QuotaExceededError,
    RateLimitedError,
    RequestRefusedError,
    TooManyErrorsError,
    UdfError,
    UnreachableError,
    WaitTooLongError,
)
from penstock.functions import embed_text, prompt
from penstock.llm import OpenAIProcessorConfig, build_processor
from penstock.testing import ModelServer, faults

AFTER_500, AFTER_50 = range(501, 10**9), range(51, 10**9)
NO_CREDIT = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."


@pytest.fixture
def server(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    for name in ("google", "anthropic", "openai"):  # the last one is the default
        ps.set_provider(name, base_url=getattr(model_server, f"{name}_url"), api_key="k")
    return model_server


def asked(num_rows: int, **options: Any) -> ps.DataFrame:
    rows = ps.range(num_rows).with_column("q", ps.col("id").cast("string"))
    return rows.with_column("a", prompt(ps.col("q"), model="m", **options))


@pytest.mark.parametrize(
    ("provider", "on_error", "fault", "kind"),
    [
        ("openai", "null", faults.RateLimited(at=AFTER_500, retry_after=3600), WaitTooLongError),
        ("anthropic", "log", faults.HttpError(400, NO_CREDIT, at=AFTER_50), QuotaExceededError),
        ("google", "ignore", faults.HttpError(402, "Pay first.", at=AFTER_50), QuotaExceededError),
    ],
)
def test_an_outage_leaves_a_job_that_asks_only_the_missing_rows(
    server: ModelServer, tmp_path: Path, provider: str, on_error: str, fault: faults.Fault, kind: type[Exception]
) -> None:
    num_answers = fault.at.start - 1  # type: ignore[union-attr]
    num_rows = 6 * num_answers
    df, out = asked(num_rows, provider=provider, on_error=on_error), str(tmp_path / "out")
    server.change(faults=[fault])
    with pytest.raises(kind):
        df.write_parquet(out, resume=True)
    server.change(faults=[])
    num_requests = server.num_requests
    df.write_parquet(out, resume=True)
    assert server.num_requests - num_requests == num_rows - num_answers
    rows = pq.read_table(out)
    assert rows["a"].to_pylist() == rows["q"].to_pylist()
    assert sorted(rows["id"].to_pylist()) == list(range(num_rows))
    assert not (tmp_path / "out" / "_errors").exists()


def test_an_outage_of_the_batch_api_ends_the_query(server: ModelServer, tmp_path: Path) -> None:
    df = asked(20, on_error="null", batch_api=True, batch_poll_interval=0.01, max_retries=1)
    with ps.config(cache_dir=str(tmp_path)):
        for fault, kind in (
            (faults.ServerError(503, path="/files"), ProviderUnusableError),
            (faults.RateLimited(retry_after=3600, path="/batches"), WaitTooLongError),
            (faults.HttpError(402, path="/responses"), QuotaExceededError),  # of each request in the batch
            (faults.RateLimited(path="/responses"), WaitTooLongError),
        ):
            server.change(faults=[fault])
            with pytest.raises(kind):
                df.collect()
        server.change(faults=[])
        assert df.to_pydict()["a"] == df.to_pydict()["q"]


def test_an_outage_ends_embeddings_and_processors(server: ModelServer) -> None:
    texts = ps.from_pydict({"t": ["a", "b"]})
    vectors = texts.select(embed_text(ps.col("t"), provider="openai", model="m", dimensions=8, on_error="null"))
    config = OpenAIProcessorConfig(model="m", should_continue_on_error=True)
    processed = build_processor(config, preprocess=lambda row: {"prompt": row["t"]})(texts)
    for df in (vectors, processed):
        server.change(faults=[faults.HttpError(402)])
        with pytest.raises(QuotaExceededError):
            df.collect()


def test_a_text_that_a_filter_refuses_is_embedded_as_null(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, code="content_filter", containing="text 7")])
    texts = ps.from_pydict({"t": [f"text {n}" for n in range(10)]})
    df = texts.with_column("v", embed_text(ps.col("t"), provider="openai", model="m", dimensions=8, on_error="null"))
    assert [row["t"] for row in df.collect().to_pylist() if row["v"] is None] == ["text 7"]


@pytest.mark.parametrize("fault", [faults.Outage(60, at=3), faults.RateLimited(at=range(3, 10**6))])
def test_patience_that_ends_is_not_the_row_s_failure(monkeypatch: pytest.MonkeyPatch, fault: faults.Fault) -> None:
    monkeypatch.setattr("penstock.ai.client.retried_calls.MAX_WAIT_S", 0.2)
    kind = UnreachableError if isinstance(fault, faults.Outage) else WaitTooLongError
    with ModelServer(faults=[fault]) as server:
        ps.set_provider("openai", base_url=server.openai_url, api_key="k")
        with pytest.raises(kind, match=r"Run again later"):
            asked(10, max_concurrency=1, on_error="null").collect()


OPENROUTER_FLAG = {"code": 403, "message": "flagged", "metadata": {"reasons": ["violence"], "flagged_input": "..."}}
AZURE_FILTER = {
    "message": "The response was filtered",
    "type": None,
    "param": "prompt",
    "code": "content_filter",
    "status": 400,
    "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True}}},
}


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (402, {"message": "Insufficient Balance", "type": "unknown_error"}, QuotaExceededError),
        (402, {"code": 402, "message": "This request requires more credits"}, QuotaExceededError),
        (402, "pay", QuotaExceededError),
        (400, {"type": "invalid_request_error", "message": NO_CREDIT}, QuotaExceededError),
        (400, {"type": "billing_error", "message": "no"}, QuotaExceededError),
        (429, {"code": "insufficient_quota", "type": "insufficient_quota"}, QuotaExceededError),
        (429, {"type": "insufficient_quota", "code": "429"}, QuotaExceededError),
        (429, {"code": "rate_limit_exceeded", "message": "slow down"}, RateLimitedError),
        (401, {"message": "no key"}, AuthenticationError),
        (403, {"message": "The key has no access", "type": "permission_error"}, AuthenticationError),
        (403, {"code": 403, "message": "Key limit exceeded", "metadata": None}, AuthenticationError),
        (403, OPENROUTER_FLAG, ContentFilteredError),
        (403, {"code": "content_policy_violation", "message": "no"}, ContentFilteredError),
        (403, {"message": "Your input was flagged by moderation"}, ContentFilteredError),
        (403, "Content violates usage guidelines.", ContentFilteredError),
        (400, AZURE_FILTER, ContentFilteredError),
        (400, {"innererror": {"code": "ResponsibleAIPolicyViolation"}}, ContentFilteredError),
        (400, {"message": "context too long", "details": "x", "metadata": "y"}, RequestRefusedError),
    ],
)
def test_refusals_by_their_reason(status: int, error: Any, kind: type[ProviderError]) -> None:
    found = error_for_status(status, orjson.dumps({"error": error}), {}, "name", "http://x")
    assert type(found) is kind


@pytest.mark.parametrize("error", [OPENROUTER_FLAG, AZURE_FILTER])
def test_a_moderated_request_is_the_row_s_failure(server: ModelServer, error: Any) -> None:
    body = orjson.dumps({"error": error}).decode()
    server.change(faults=[faults.Malformed(body, containing="3")])
    df = asked(6, on_error="null").collect()
    assert df.to_pydict()["a"] == ["0", "1", "2", None, "4", "5"]
    assert df.errors().to_pydict()["error_type"] == ["ContentFilteredError"]


# --- user code ---


def gone(value: int) -> int:
    if value >= 5:
        raise ps.FatalError("the database is gone")
    return value


@pytest.mark.parametrize("use_process", [False, True])
def test_user_code_can_end_the_query(tmp_path: Path, use_process: bool) -> None:
    tolerant = ps.func(gone, on_error="ignore", max_retries=3, use_process=use_process)
    with pytest.raises(FatalError, match="the database is gone"):
        ps.range(10).select(tolerant(ps.col("id"))).write_parquet(str(tmp_path / "out"), resume=True)
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_a_batch_function_can_end_the_query() -> None:
    calls = []

    def fail(batch: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        raise ps.FatalError("the database is gone")

    with pytest.raises(FatalError):
        ps.range(8).map_batches(fail, batch_size=8, on_error="ignore", max_retries=3).collect()
    assert len(calls) == 1


def test_a_tool_can_end_the_query(server: ModelServer) -> None:
    def lookup(x: int) -> int:
        """Look up."""
        raise ps.FatalError("the database is gone")

    server.change(faults=[faults.CallTools([("lookup", {"x": 1})])])
    with pytest.raises(FatalError, match="the database is gone"):
        asked(2, tool_functions=[lookup], on_error="null").collect()


# --- circuit breaker ---


def failing_share(share: float) -> Any:
    """Return a function that fails on a share of its rows, evenly."""

    def fail(value: int) -> int:
        if value % 100 < 100 * share:
            raise ValueError(f"{value} is not valid")
        return value

    return fail


@pytest.mark.parametrize(
    ("num_rows", "share", "options", "does_stop"),
    [
        (6_000, 1.0, {}, True),
        (6_000, 0.99, {}, True),
        (6_000, 0.6, {}, False),
        (900, 1.0, {}, False),
        (6_000, 1.0, {"max_errors": None}, False),
        (6_000, 1.0, {"max_errors": 6_000}, False),
    ],
)
def test_a_function_that_nearly_always_fails_stops_the_query(
    num_rows: int, share: float, options: dict[str, Any], does_stop: bool
) -> None:
    tolerant = ps.func(failing_share(share), return_dtype=int, on_error="ignore", **options)
    df = ps.range(num_rows).into_batches(500).select(tolerant(ps.col("id")))
    if does_stop:
        message = r"'fail' failed on [\d,]+ of its last [\d,]+ rows with ValueError(.|\n)*set max_errors=None"
        with pytest.raises(TooManyErrorsError, match=message):
            df.collect()
        assert df.errors().count_rows() < num_rows / 2
    else:
        assert df.to_pydict()["id"].count(None) == share * num_rows


def test_a_method_can_switch_the_breaker_of_its_class_off() -> None:
    @ps.cls(on_error="ignore")
    class Failing:
        @ps.method(max_errors=None, return_dtype=int)
        def fail(self, value: int) -> int:
            raise ValueError

    assert ps.range(3000).select(Failing().fail(ps.col("id"))).to_pydict()["id"] == [None] * 3000


@pytest.mark.parametrize(
    ("fault", "num_rows", "options", "does_stop"),
    [
        (faults.HttpError(400, "no such parameter"), 3000, {}, True),
        (faults.HttpError(400, "no such parameter"), 300, {"max_errors": None}, False),
        (faults.ContentFilter(), 300, {}, False),
    ],
)
def test_a_model_whose_calls_nearly_all_fail_stops_the_query(
    server: ModelServer, fault: faults.Fault, num_rows: int, options: dict[str, Any], does_stop: bool
) -> None:
    server.change(faults=[fault])
    df = asked(num_rows, on_error="null", max_retries=0, **options)
    num_requests = server.num_requests
    if does_stop:
        with pytest.raises(TooManyErrorsError, match=r"'prompt' failed on .* with"):
            df.collect()
        assert server.num_requests - num_requests < 1000
    else:
        assert None in df.to_pydict()["a"]


@pytest.mark.parametrize(
    ("tasks", "trips_at"),
    [
        ([(50, {"A": 50}), (50, {"A": 50})], 1),
        ([(50, {"A": 50}), (49, {"A": 49})], None),
        ([(100, {"A": 94})], None),
        ([(100, {"A": 95})], 0),
        ([(100, {"A": 50, "B": 50})], None),  # for different reasons
        ([(1000, {}), (60, {"A": 60}), (40, {"A": 40})], 2),  # only the last ones count
        ([(100, {"A": 90}), (90, {"A": 90}), (10, {"A": 10})], 2),
        ([(100, {"ContentFilteredError": 100})], None),
        ([(0, {"A": 100}), (100, {})], 1),  # errors of a task that gives several outputs come before its end
    ],
)
def test_the_decision_to_stop(tasks: list[tuple[int, dict[str, int]]], trips_at: int | None) -> None:
    breaker = Breaker(100)
    trips = [breaker.add(num_rows, Counter(reasons).elements()) for num_rows, reasons in tasks]
    assert trips == [number == trips_at for number in range(len(tasks))]


def test_other_failures_of_the_row_are_still_tolerated(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, "bad", containing="3")])
    assert asked(6, on_error="null").to_pydict()["a"].count(None) == 1
    with pytest.raises(UdfError, match="bad"):
        asked(6).collect()
