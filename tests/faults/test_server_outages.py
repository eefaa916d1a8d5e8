"""A server of its own process that fails: an outage costs no row, and a row that it fails on only itself."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.ai.client.failed_attempts import FailedAttempts, Verdict
from penstock.ai.client.limits.limiter import Tally
from penstock.cost.budget import spending
from penstock.errors import OutageError, ProviderUnavailableError, UnreachableError
from penstock.functions import embed_text, prompt
from penstock.observe.closing_line import query_totals
from penstock.testing import ModelServer, faults
from tests.plain_server import change, counts, plain_server, supervised_server

NUM_ROWS = 330


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.05)
    monkeypatch.setattr("penstock.ai.client.failed_attempts.PATIENCE_S", 2.0)


def rows(num_rows: int, poison: tuple[int, ...] = ()) -> ps.DataFrame:
    texts = [f"text {number}" + " poison" * (number in poison) for number in range(num_rows)]
    return ps.from_pydict({"text": texts})


def asked(base_url: str, df: ps.DataFrame, **options: Any) -> ps.DataFrame:
    ps.set_provider("openai", base_url=base_url, api_key="x")
    return df.with_column("a", prompt(ps.col("text"), model="m", on_error="null", **options))


def nulls(table: Any) -> list[str]:
    return [row["text"] for row in table.to_pylist() if row["a"] is None]


@pytest.mark.parametrize(
    ("fails_with", "options"),
    [("503", {}), ("500", {}), ("close", {}), ("hang", {"timeout": 1}), ("500", {"max_retries": 0})],
)
def test_an_outage_at_the_end_costs_no_row(tmp_path: Path, fails_with: str, options: dict[str, Any]) -> None:
    out = str(tmp_path / "out")
    with plain_server(latency=0.02, fails_with=fails_with, fails_after=200) as base_url:
        df = asked(base_url, rows(NUM_ROWS), **options)
        with pytest.raises(OutageError, match=r"fails on every call(.|\n)*Run again when it works"):
            df.write_parquet(out, resume=True)
        assert not list(tmp_path.glob("out/*.parquet"))
        assert query_totals(df.stats()).failed == 0  # a call that finds the outage is no failed row
        change(base_url, fails_with="")
        df.write_parquet(out, resume=True)
        found = pq.read_table(out)

        assert sorted(found["a"].to_pylist()) == sorted(f"answer {number}" for number in range(NUM_ROWS))
        assert counts(base_url)["answered"] == NUM_ROWS
    assert not (tmp_path / "out" / "_errors").exists()


@pytest.mark.parametrize("max_retries", [0, 2])
def test_a_server_that_never_answered_ends_the_query(max_retries: int) -> None:
    message = r"has answered no call so far(.|\n)*larger max_retries="
    with plain_server(latency=0.02, fails_with="503") as base_url, pytest.raises(OutageError, match=message):
        asked(base_url, rows(5), max_retries=max_retries).collect()


@pytest.mark.parametrize(
    ("poison", "options"),
    [("500", {}), ("500", {"max_retries": 0}), ("503", {}), ("close", {}), ("hang", {"timeout": 1, "max_retries": 1})],
)
def test_a_poison_row_costs_only_itself(poison: str, options: dict[str, Any]) -> None:
    with plain_server(latency=0.02, poison=poison) as base_url:
        df = asked(base_url, rows(300, poison=(50, 150, 299)), **options).collect()

    assert nulls(df) == ["text 50 poison", "text 150 poison", "text 299 poison"]
    assert df.errors().to_pydict()["error_type"] == ["ProviderUnavailableError"] * 3


def test_a_poison_row_that_ends_the_server_costs_only_itself(tmp_path: Path) -> None:
    log = tmp_path / "answered"
    with supervised_server(0.5, poison="exit", latency=0.1, slots=64, queues=True, log=str(log)) as (base_url, ends):
        df = asked(base_url, rows(400, poison=(100, 105, 350))).collect()

    assert nulls(df) == ["text 100 poison", "text 105 poison", "text 350 poison"]
    assert df.errors().to_pydict()["error_type"] == ["ProviderUnavailableError"] * 3
    assert len(ends) <= 3 * 5
    assert len(set(log.read_text().split())) == 397


def test_rows_that_are_all_poison_share_a_probe() -> None:
    with plain_server(latency=0.1, poison="500") as base_url:
        df = asked(base_url, rows(20, poison=tuple(range(20))), max_retries=0).collect()
        seen = counts(base_url)

    assert len(nulls(df)) == 20
    assert 1 <= seen["answered"] < 15  # the probes
    assert seen["failed"] == 2 * 20


def test_a_poison_text_costs_only_its_own_vector() -> None:
    with plain_server(latency=0.02, poison="500") as base_url:
        ps.set_provider("openai", base_url=base_url, api_key="x")
        vector = embed_text(ps.col("text"), model="m", dimensions=2, on_error="null", max_retries=1)
        found = rows(40, poison=(17,)).with_column("a", vector).collect()

        change(base_url, fails_with="500")
        with pytest.raises(OutageError):
            rows(40).with_column("a", vector).collect()
    assert nulls(found) == ["text 17 poison"]


def test_retries_of_the_probe_cover_an_outage_that_passes(model_server: ModelServer) -> None:
    df = asked(model_server.openai_url, rows(1), max_retries=2)
    model_server.change(faults=[faults.ServerError(500, first=5)])  # three for the row, two for the probe
    assert df.to_pydict()["a"] == ["text 0"]


@pytest.mark.parametrize("budget", [None, 5.0])
def test_a_probe_is_billed_and_not_stored(tmp_path: Path, budget: float | None) -> None:
    with plain_server(latency=0.02, poison="500") as base_url, ps.config(cache_dir=str(tmp_path)):
        options = {"max_retries": 0, "price": {"input": 1, "output": 1}, "max_concurrency": 1}
        with spending(budget) as account:
            assert nulls(asked(base_url, rows(3, poison=(2,)), **options).collect()) == ["text 2 poison"]
        with spending(budget) as again:
            change(base_url, poison="")
            assert nulls(asked(base_url, rows(3, poison=(2,)), **options).collect()) == []

        assert counts(base_url)["answered"] == 2 + 1 + 1
    assert (account.num_calls, again.num_calls) == (3, 1)


def test_a_job_survives_the_death_and_restart_of_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.ai.client.retried_calls.MAX_WAIT_S", 1.0)
    out, log, errors = str(tmp_path / "out"), tmp_path / "answered", list[BaseException]()

    def write(df: ps.DataFrame) -> None:
        try:
            df.write_parquet(out, resume=True)
        except BaseException as exc:
            errors.append(exc)

    with plain_server(latency=0.05, slots=8, queues=True, log=str(log)) as base_url:
        df = asked(base_url, rows(NUM_ROWS))
        job = threading.Thread(target=write, args=(df,))
        job.start()
        while counts(base_url)["answered"] < 100:
            pass
    job.join()
    assert isinstance(errors[0], UnreachableError)

    port = int(base_url.rpartition(":")[2].partition("/")[0])
    with plain_server(port=port, latency=0.02, log=str(log)):
        df.write_parquet(out, resume=True)
    found = pq.read_table(out)
    assert sorted(found["a"].to_pylist()) == sorted(f"answer {number}" for number in range(NUM_ROWS))
    assert Counter(Counter(log.read_text().split()).values()) == {1: NUM_ROWS}


def failures(*steps: tuple[int, int, int], max_retries: int = 2) -> list[Verdict]:
    """Return the verdicts on failures: given the requests sent, the newest one answered, and those lost, at each."""
    failed = FailedAttempts(max_retries)
    found: list[Verdict] = []
    for num_sent, newest_answered, num_lost in steps:
        error = ProviderUnavailableError()
        error.num_lost = num_lost
        tally = Tally(newest_answered, 0, 0, num_sent, 0, newest_answered)
        found.append(failed.add(error, tally, waited_s=0.0))
        if found[-1] == "unsure":
            failed.forgive(error)
    return found


def test_whose_failure_it_is() -> None:
    assert failures((10, 5, 0), (20, 15, 0), (30, 25, 0)) == ["retry", "retry", "row"]
    assert failures((10, 5, 0), (20, 15, 0), (30, 20, 0)) == ["retry", "retry", "unsure"]  # sent before
    assert failures((10, 10, 0), max_retries=0) == ["unsure"]


def test_a_lost_connection_counts_only_if_no_other_is_lost_with_it() -> None:
    assert failures((10, 5, 1), (20, 15, 1), (30, 25, 1)) == ["retry", "retry", "row"]
    assert failures(*[(10 * step, 10 * step - 5, 9) for step in range(1, 20)]) == ["retry"] * 19
    assert failures((10, 5, 9), (20, 15, 1), (22, 22, 1)) == ["retry", "unsure", "row"]  # 22 is the probe
    assert failures((10, 5, 9), (20, 15, 1), (22, 22, 3), (33, 33, 1)) == ["retry", "unsure", "retry", "unsure"]
