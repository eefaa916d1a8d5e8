"""Calls by the batch APIs of OpenAI and Anthropic, over the wire."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

import penstock as ps
from penstock.cache.ledger.open_ledgers import job_ledger
from penstock.errors import (
    InvalidArgumentError,
    OutageError,
    ProviderError,
    ProviderUnusableError,
    QuotaExceededError,
    UdfError,
)
from penstock.functions import classify_text, embed_text, prompt
from penstock.testing import BatchTiming, ModelServer, faults
from tests.ai.batch_submissions import batches, num_posted

QUESTIONS = [f"number {i}" for i in range(30)]
PROVIDERS = ("openai", "anthropic")
QUICK = BatchTiming(0.005, 0.01, 0.005)


@pytest.fixture
def server(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    model_server.change(batches=QUICK)
    ps.set_provider("anthropic", base_url=model_server.anthropic_url, api_key="test")
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    return model_server


@pytest.fixture
def kept(server: ModelServer, tmp_path: Path) -> Iterator[ModelServer]:
    """The server, with a ledger in force."""
    with ps.config(cache_dir=str(tmp_path / "cache")):
        yield server


def ask(questions: list[Any], **options: Any) -> list[Any]:
    options = {"batch_api": True, "batch_poll_interval": 0.02, **options}
    df = ps.from_pydict({"q": questions}).select(prompt(ps.col("q"), **options).alias("a"))
    found: list[Any] = df.to_pydict()["a"]
    return found


@pytest.mark.parametrize("provider", PROVIDERS)
def test_rows_become_one_batch(server: ModelServer, provider: str) -> None:
    assert ask([*QUESTIONS, None], provider=provider) == [*QUESTIONS, None]
    assert [sorted(batch) for batch in batches(server)] == [sorted(QUESTIONS)]


def test_chat_completions(server: ModelServer) -> None:
    assert ask(QUESTIONS, use_chat_completions=True) == QUESTIONS
    assert num_posted(server, "/v1/batches") == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_batches_are_no_larger_than_wanted(server: ModelServer, provider: str) -> None:
    assert ask(QUESTIONS, provider=provider, batch_max_requests=12) == QUESTIONS
    sent = batches(server)
    assert sorted(len(batch) for batch in sent) == [6, 12, 12]
    assert Counter(text for batch in sent for text in batch) == Counter(QUESTIONS)


def test_results_come_as_batches_end(server: ModelServer) -> None:
    """The first rows are there before the last ones are even asked about."""
    has_answers = threading.Event()

    @ps.func(use_process=False)
    def question(number: int) -> str:
        assert number < 100 or has_answers.wait(60)
        return f"q{number}"

    asked = prompt(question(ps.col("i")), batch_api=True, batch_poll_interval=0.02)
    rows = ps.from_pydict({"i": list(range(200))}).into_batches(10).select(asked.alias("a")).iter_rows()
    found = [next(rows)["a"] for _ in range(50)]
    has_answers.set()
    assert [*found, *(row["a"] for row in rows)] == [f"q{i}" for i in range(200)]


def test_files_are_deleted_when_they_are_read(kept: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    """Also if the rows have all they want before that."""
    kept.change(faults=[faults.Delay(0.1, path="/files/")])
    ask(QUESTIONS)
    deleted = [seen.path for seen in kept.requests if seen.method == "DELETE"]
    assert len(deleted) == 2  # what was sent, and the answers
    assert "batches continue" not in caplog.text


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("fault", [faults.BatchExpires(done=0.4, at=1), faults.BatchLoses(done=0.4, at=1)], ids=repr)
def test_what_has_no_result_is_submitted_again(server: ModelServer, provider: str, fault: faults.Fault) -> None:
    server.change(faults=[fault])
    assert ask(QUESTIONS, provider=provider) == QUESTIONS
    first, second = batches(server)
    assert (len(first), len(second)) == (30, 18)
    assert set(second) == set(QUESTIONS[12:])


UNREADABLE = ['{"custom_id": "cut', "[]", "{}", '{"custom_id": 7}', '{"custom_id": "unknown", "response": {}}']


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("line", UNREADABLE)
def test_a_damaged_line_costs_one_request(server: ModelServer, provider: str, line: str) -> None:
    server.change(faults=[faults.BatchDamages(line, at=1)])
    assert ask(QUESTIONS, provider=provider) == QUESTIONS
    assert [len(batch) for batch in batches(server)] == [30, 1]


def test_the_only_line_of_the_errors_is_damaged(server: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    refused = faults.HttpError(400, "No.", containing="number 7", first_tries=1)
    server.change(faults=[refused, faults.BatchDamages('{"custom_id": "cut\n$LINE', at=1)])
    assert ask(QUESTIONS, on_error="null").count(None) == 1
    server.change(faults=[refused, faults.BatchDamages('{"custom_id": "cut', at=1)])
    with caplog.at_level(logging.WARNING):
        assert ask(QUESTIONS, max_retries=1) == QUESTIONS
    assert 'a line is not JSON: \'{"custom_id": "cut\'' in caplog.text


@pytest.mark.parametrize("provider", PROVIDERS)
def test_something_else_in_place_of_results_is_not_paid_for_again(kept: ModelServer, provider: str) -> None:
    page = faults.Malformed("<html>Sign in</html>", path="/content" if provider == "openai" else "/results")
    kept.change(faults=[page])
    with pytest.raises(ProviderUnusableError, match=r"could not be read. Run again"):
        ask(QUESTIONS, provider=provider, max_retries=1, on_error="null")
    kept.change(faults=[])
    assert ask(QUESTIONS, provider=provider) == QUESTIONS
    assert len(batches(kept)) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_result_that_comes_twice(server: ModelServer, provider: str, caplog: pytest.LogCaptureFixture) -> None:
    server.change(faults=[faults.BatchDamages("$LINE\n$LINE")])
    with caplog.at_level(logging.INFO):
        assert ask(QUESTIONS, provider=provider) == QUESTIONS
    assert "30 answers, 0 errors" in caplog.text


@pytest.mark.parametrize(
    ("fault", "num_uploads"),
    [
        (faults.HttpError(400, "No.", path="/batches"), 1),
        (faults.HttpError(404, "Unknown request URL.", path="/batches"), 1),
        (faults.RateLimited(code="insufficient_quota", path="/batches"), 1),
        (faults.ServerError(503, path="/batches", at=(1, 3)), 2),  # the second request looks for the batch
    ],
    ids=str,
)
def test_files_of_a_batch_that_cannot_be_created_are_deleted(
    server: ModelServer, fault: faults.Fault, num_uploads: int
) -> None:
    server.change(faults=[fault])
    with pytest.raises((ProviderError, UdfError)):
        ask(QUESTIONS, max_retries=1)
    deleted = [seen.path for seen in server.requests if seen.method == "DELETE"]
    assert (num_posted(server, "/v1/files"), len(set(deleted))) == (num_uploads, num_uploads)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_bounded_number_of_times(server: ModelServer, provider: str) -> None:
    server.change(faults=[faults.BatchExpires(done=0.0)])
    with pytest.raises(OutageError, match="answered no other request"):
        ask(["a"], provider=provider, max_retries=2, on_error="null")
    assert len(batches(server)) == 3


@pytest.mark.parametrize("provider", PROVIDERS)
def test_requests_that_fail_for_now_are_submitted_again(server: ModelServer, provider: str) -> None:
    server.change(faults=[faults.ServerError(503, containing="number 7", first_tries=1)])
    assert ask(QUESTIONS, provider=provider) == QUESTIONS
    assert batches(server)[1] == ["number 7"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_request_that_fails_among_others_is_the_error_of_its_row(server: ModelServer, provider: str) -> None:
    server.change(faults=[faults.ServerError(500, containing="number 7")])
    answers = ask(QUESTIONS, provider=provider, on_error="null", max_retries=1)
    assert [q for q, a in zip(QUESTIONS, answers, strict=True) if a is None] == ["number 7"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_requests_that_fail_for_good_are_errors_of_their_rows(server: ModelServer, provider: str) -> None:
    server.change(faults=[faults.HttpError(400, "No such thing.", containing="number 7")])
    answers = ask(QUESTIONS, provider=provider, on_error="null")
    assert [q for q, a in zip(QUESTIONS, answers, strict=True) if a is None] == ["number 7"]
    assert len(batches(server)) == 1
    with pytest.raises((ProviderError, UdfError), match=r"No such thing"):
        ask(QUESTIONS, provider=provider)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_batch_that_is_refused(server: ModelServer, provider: str) -> None:
    server.change(faults=[faults.BatchFails("Broken.")])
    with pytest.raises((ProviderError, UdfError), match=r"Broken"):
        ask(QUESTIONS, provider=provider)
    assert len(batches(server)) == 1


def test_an_account_without_room_for_the_batch_gets_smaller_ones(server: ModelServer) -> None:
    server.change(faults=[faults.BatchFails("Enqueued token limit reached.", "token_limit_exceeded", at=1)])
    assert ask(QUESTIONS) == QUESTIONS
    assert [len(batch) for batch in batches(server)] == [30, 15, 15]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_batch_that_is_too_large_is_halved(server: ModelServer, provider: str) -> None:
    path = "/files" if provider == "openai" else "/messages/batches"
    server.change(faults=[faults.HttpError(413, "Too large.", path=path, at=1)])
    assert ask(QUESTIONS, provider=provider) == QUESTIONS
    assert [len(batch) for batch in batches(server)][1:] == [15, 15]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_that_was_lost_does_not_make_a_second_batch(server: ModelServer, provider: str) -> None:
    """The batch is created, and the connection is reset before its id is told."""
    path = "/batches" if provider == "openai" else "/messages/batches"
    server.change(faults=[faults.Reset(mid_body=True, path=path, at=1)])
    assert ask(QUESTIONS, provider=provider) == QUESTIONS
    assert len(batches(server)) == 1


def test_a_server_that_fails_while_it_is_polled(server: ModelServer) -> None:
    server.change(faults=[faults.ServerError(503, path="/batches/", share=0.5)])
    assert ask(QUESTIONS, max_retries=1) == QUESTIONS
    assert len(batches(server)) == 1


def test_a_server_without_batches(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(404, "Unknown request URL.", path="/files")])
    with pytest.raises(ProviderUnusableError, match=r"no batch API; leave out batch_api=True"):
        ask(QUESTIONS, on_error="null")
    assert num_posted(server, "/v1/files") == 1


def test_an_account_without_credit_ends_the_query(server: ModelServer) -> None:
    server.change(faults=[faults.RateLimited(code="insufficient_quota", path="/batches")])
    with pytest.raises(QuotaExceededError):
        ask(QUESTIONS, on_error="null")


@pytest.mark.parametrize("provider", ["google", "ollama", "lm_studio"])
def test_providers_without_a_batch_api(server: ModelServer, provider: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'openai' and 'anthropic'; '\w+' has none"):
        prompt(ps.col("q"), provider=provider, model="m", batch_api=True)


def test_asking_again_is_a_call_of_the_next_batch(server: ModelServer) -> None:
    class Size(BaseModel):
        size: int

    server.change(faults=[faults.InvalidAnswer("large", containing="number 7", first_tries=1)])
    found = ask(QUESTIONS, return_format=Size)
    assert all(isinstance(each["size"], int) for each in found)
    assert [len(batch) for batch in batches(server)] == [30, 1]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_turns_of_tools_are_calls_of_the_next_batch(server: ModelServer, provider: str) -> None:
    def weather(city: str) -> str:
        """Return the weather of a city."""
        return f"rain in {city}"

    server.change(faults=[faults.CallTools([("weather", {"city": "Oslo"})])])
    assert ask(QUESTIONS[:5], provider=provider, tool_functions=[weather]) == ["rain in Oslo"] * 5
    first, *others = batches(server)  # one, if no tool takes its time
    assert (len(first), sum(map(len, others))) == (5, 5)


def test_several_answers(server: ModelServer) -> None:
    found = ask(["a", "b"], provider="anthropic", n=2)
    assert found == [["a", "a"], ["b", "b"]]
    assert sorted(text for batch in batches(server) for text in batch) == ["a", "a", "b", "b"]


def test_labels(server: ModelServer) -> None:
    labels = classify_text(ps.col("q"), ["good", "bad"], batch_api=True, batch_poll_interval=0.02)
    found = ps.from_pydict({"q": ["x", "y"]}).select(labels).to_pydict()["q"]
    assert set(found) <= {"good", "bad"}
    assert len(batches(server)) == 1


def test_a_batch_costs_half(server: ModelServer) -> None:
    (batched,) = ask(["How much?"], usage=True, model="gpt-5-mini")
    (single,) = ps.from_pydict({"q": ["How much?"]}).select(prompt(ps.col("q"), usage=True)).to_pydict()["q"]
    assert batched["cost"] == pytest.approx(single["cost"] / 2)
    assert batched["latency_s"] > 0


# --- embeddings ---


def embed(texts: list[Any], **options: Any) -> list[Any]:
    options = {"batch_api": True, "batch_poll_interval": 0.02, "dimensions": 8, **options}
    column = embed_text(ps.col("t"), provider="openai", **options)
    found: list[Any] = ps.from_pydict({"t": texts}).select(column).to_pydict()["t"]
    return found


def test_embeddings(server: ModelServer) -> None:
    texts = [*QUESTIONS, None, "number 0"]
    found = embed(texts)
    expected = embed(texts, batch_api=None, batch_poll_interval=None)
    assert found[30] is None
    assert all(np.allclose(a, b) for a, b in zip(found, expected, strict=True) if a is not None)
    assert len(batches(server)) == 1


def test_a_text_that_is_refused_fails_alone(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, "No.", containing="number 7")])
    found = embed(QUESTIONS, on_error="null")
    assert [text for text, vector in zip(QUESTIONS, found, strict=True) if vector is None] == ["number 7"]
    assert len(batches(server)) == 1


def test_vectors_are_kept(kept: ModelServer) -> None:
    kept.change(faults=[faults.BatchExpires(done=0.5, at=1)])
    texts = [*QUESTIONS, *QUESTIONS]
    first = embed(texts)
    assert [len(batch) for batch in batches(kept)] == [30, 15]
    again = embed(texts, batch_api=None, batch_poll_interval=None)
    assert all(np.allclose(a, b) for a, b in zip(first, again, strict=True))
    assert num_posted(kept, "/v1/embeddings") == 0


# --- with a ledger ---


def test_answers_are_kept_as_those_of_single_calls(kept: ModelServer) -> None:
    ask(QUESTIONS)
    assert ask(QUESTIONS) == QUESTIONS
    assert ask(QUESTIONS, batch_api=None, batch_poll_interval=None) == QUESTIONS
    assert len(batches(kept)) == 1
    assert num_posted(kept, "/v1/responses") == 0


def test_equal_calls(kept: ModelServer) -> None:
    chat: dict[str, Any] = {"use_chat_completions": True, "model": "gpt-4o-mini"}
    ask(["a", "a", "a"], temperature=0, **chat)
    ask(["b", "b", "b"], temperature=0.8, **chat)
    assert [sorted(batch) for batch in batches(kept)] == [["a"], ["b", "b", "b"]]


def test_what_failed_is_asked_again_by_the_next_run(kept: ModelServer) -> None:
    kept.change(faults=[faults.HttpError(400, "No.", containing="number 7", first_tries=1)])
    assert ask(QUESTIONS, on_error="null", provider="anthropic").count(None) == 1
    assert ask(QUESTIONS, provider="anthropic") == QUESTIONS
    assert [len(batch) for batch in batches(kept)] == [30, 1]


def test_what_was_given_up_is_asked_again_by_the_next_run(kept: ModelServer) -> None:
    kept.change(faults=[faults.BatchExpires(done=0.0, first=4)])
    for _ in range(2):
        with pytest.raises(OutageError):
            ask(["a"], on_error="null", max_retries=1)
    assert ask(["a"], max_retries=1) == ["a"]
    assert len(batches(kept)) == 5


def test_a_job_keeps_its_batches(server: ModelServer, tmp_path: Path) -> None:
    for _ in range(2):
        with job_ledger(tmp_path):
            assert ask(QUESTIONS) == QUESTIONS
    assert len(batches(server)) == 1


def test_without_keeping(kept: ModelServer) -> None:
    ask(QUESTIONS, cache=False)
    ask(QUESTIONS, cache=False)
    assert len(batches(kept)) == 2


# --- stopping ---


def stop_when_submitted(server: ModelServer, provider: str) -> None:
    """Run a query until its batch is created, which takes longer than the test, and stop it then."""
    server.change(batches=BatchTiming(0.005, 60.0, 0.005))

    def stop() -> None:
        deadline = time.monotonic() + 60
        path = "/v1/batches" if provider == "openai" else "/v1/messages/batches"
        while time.monotonic() < deadline:
            if any(seen.method == "GET" and seen.path.startswith(f"{path}/") for seen in server.requests):
                break
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ask(QUESTIONS, provider=provider)
    thread.join()


def num_cancelled(server: ModelServer) -> int:
    return sum(seen.path.endswith("/cancel") and seen.status == 200 for seen in server.requests)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_batches_are_cancelled_with_a_query_that_nobody_can_take_up(server: ModelServer, provider: str) -> None:
    stop_when_submitted(server, provider)
    assert num_cancelled(server) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_batches_continue_with_a_ledger(kept: ModelServer, provider: str, caplog: pytest.LogCaptureFixture) -> None:
    stop_when_submitted(kept, provider)
    assert num_cancelled(kept) == 0
    assert "1 batches continue at the provider; run the query again" in caplog.text


def test_missing_ledger_is_logged(server: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock.ai"):
        ask(["a"])
    assert caplog.text.count("set cache_dir to let another run resume them") == 1
