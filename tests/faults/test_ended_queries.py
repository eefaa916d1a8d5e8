"""A query that ends by an error or Ctrl-C keeps the answers to calls in flight: the next run asks no row twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine.cancellation import Cancellation
from penstock.errors import QueryCancelledError
from penstock.runners import read_rows
from tests.faults.ended_query import FIRST, NUM_EMBEDDED, NUM_ROWS, prompts, run
from tests.forked import ForkedProcess
from tests.plain_server import counts, plain_server

LONG_S = 600.0  # a latency longer than a test


@contextmanager
def started(kind: str, url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.faults.ended_query", kind, url, str(folder / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def forked(kind: str, url: str, folder: Path) -> Iterator[ForkedProcess]:
    process = ForkedProcess(run, kind, url, str(folder / "out"))
    try:
        yield process
    finally:
        process.kill()


def finish(kind: str, url: str, folder: Path) -> None:
    with forked(kind, url, folder) as process:
        assert process.ended()[0] == 0


def change(url: str, **script: Any) -> None:
    """Change the options of a server while it runs."""
    body = json.dumps(script).encode()
    urllib.request.urlopen(urllib.request.Request(url.removesuffix("/v1") + "/script", body, method="POST")).close()


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.03)


@pytest.mark.parametrize("kind", ["job", "collect"])
def test_a_bad_row_loses_no_other_call(kind: str, tmp_path: Path) -> None:
    with plain_server(latency=0.5, spread=0.5, bad_every=FIRST + 50) as url:
        with forked(kind, url, tmp_path) as process:
            code, printed = process.ended()
        assert f"text {FIRST + 50} is not acceptable" in printed
        assert code == 1
        assert counts(url)["failed"] == 1
        change(url, bad_every=0, latency=0)
        finish(kind, url, tmp_path)
        assert counts(url)["requests"] == NUM_ROWS + 1


@pytest.mark.parametrize("kind", ["job", "collect", "batches", "embeddings"])
def test_ctrl_c_loses_no_call(kind: str, tmp_path: Path) -> None:
    num_calls = NUM_EMBEDDED if kind == "embeddings" else NUM_ROWS
    with plain_server(latency=1) as url:
        with forked(kind, url, tmp_path) as process:
            wait_until(lambda: counts(url)["in_flight"] >= 6)
            os.kill(process.pid, signal.SIGINT)
            _, printed = process.ended()
        assert printed.endswith("KeyboardInterrupt\n")
        num_asked = counts(url)["requests"]
        assert num_asked < num_calls
        assert counts(url)["answered"] == num_asked
        change(url, latency=0)
        finish(kind, url, tmp_path)
        assert counts(url)["requests"] == num_calls


@pytest.mark.parametrize("kind", ["job", "batches"])
def test_a_second_ctrl_c_ends_the_wait(kind: str, tmp_path: Path) -> None:
    with plain_server(latency=0) as url:
        change(url, latency=LONG_S)
        with started(kind, url, tmp_path) as process:
            wait_until(lambda: counts(url)["in_flight"] >= 6)
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            notice = next(line for line in process.stderr if "in flight" in line)
            began_s = time.monotonic()
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
        assert "waiting up to 29 s for answers" in notice
        assert rest.endswith("KeyboardInterrupt\n")
        assert "given up" not in rest, "the wait has ended by itself"
        assert time.monotonic() - began_s < LONG_S
        assert counts(url)["answered"] == 0


def test_a_query_without_a_ledger_does_not_wait(tmp_path: Path) -> None:
    with plain_server(latency=LONG_S) as url, forked("unrecorded", url, tmp_path) as process:
        wait_until(lambda: counts(url)["in_flight"] >= 6)
        os.kill(process.pid, signal.SIGINT)
        _, printed = process.ended()
        assert printed.endswith("KeyboardInterrupt\n")
        assert "in flight" not in printed
        assert counts(url)["answered"] == 0


def test_calls_without_an_answer_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.engine.executor.END_TIMEOUT_S", 0.1)
    cancellation = Cancellation()
    with plain_server(latency=LONG_S) as url, ps.config(cache_dir=tmp_path), ThreadPoolExecutor(1) as thread:
        ps.set_provider("openai", base_url=url, api_key="k")
        query = thread.submit(copy_context().run, list, read_rows(prompts()._plan, cancellation=cancellation))
        wait_until(lambda: counts(url)["in_flight"] >= 6)
        cancellation.request()
        with pytest.raises(QueryCancelledError):
            query.result()
        assert counts(url)["answered"] == 0
    assert "calls in flight had no answer after 0.1" in caplog.text


def test_a_reader_who_leaves_waits_for_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with plain_server(latency=0) as url, ps.config(cache_dir=tmp_path):
        ps.set_provider("openai", base_url=url, api_key="k")
        prompts().limit(16).collect()
        num_answered = counts(url)["answered"]
        change(url, latency=LONG_S)
        batches = prompts().iter_batches(batch_size=16, prefetch=1)
        next(batches)
        wait_until(lambda: counts(url)["in_flight"] >= 6)
        batches.close()
        assert counts(url)["answered"] == num_answered
    assert "in flight" not in caplog.text
