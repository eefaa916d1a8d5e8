"""A server that refuses or hangs: a line says what is waited for."""

from __future__ import annotations

import re
from typing import Any

import pytest

import penstock as ps
from penstock.ai.client import silent_server as silence
from penstock.ai.client.silent_server import Silence
from penstock.errors import ProviderUnavailableError
from penstock.functions import prompt
from penstock.testing import ModelServer, faults


def test_a_silence_is_reported_after_30_s_and_then_rarely() -> None:
    server = Silence("openai (m)")
    assert server.message(0.0) is None
    server.begin(100.0)
    server.begin(101.0)
    lines = [now for now in range(100, 1000) if server.message(now)]
    assert lines == [130, 430, 730]
    server.end_silence(1000.0)
    assert server.message(1029.0) is None
    server.failed(ProviderUnavailableError("503: overloaded"))
    line = server.message(1031.0)
    assert line is not None
    assert re.fullmatch(
        r"openai \(m\) has not answered since \d\d:\d\d:\d\d \(31 s\); 2 calls wait. Last: 503: overloaded", line
    )


def test_a_server_without_calls_is_not_reported() -> None:
    server = Silence("openai (m)")
    server.begin(100.0)
    server.end()
    assert server.message(1000.0) is None
    server.begin(1000.0)  # the wait starts here
    assert server.message(1029.0) is None
    assert "1 call waits" in str(server.message(1030.0))


@pytest.mark.parametrize(
    ("fault", "last"),
    [
        (faults.Hang(first=1), ""),
        (faults.ServerError(503, "overloaded", first=1, headers={"Retry-After": "2"}), " Last: .*503: overloaded"),
        (faults.RateLimited(message="slow down", first=1, retry_after=2), " Last: .*429: slow down"),
    ],
)
def test_a_query_that_waits_says_so_once(
    model_server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Any,
    last: str,
) -> None:
    monkeypatch.setattr(silence, "FIRST_S", 1.0)
    monkeypatch.setattr("penstock.ai.client.connections.CHECK_EVERY_S", 0.05)
    model_server.change(faults=[fault])
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="k")
    df = ps.from_pydict({"q": ["a"]}).select(prompt(ps.col("q"), model="m", timeout=2.0))
    with caplog.at_level("WARNING", logger="penstock.ai"):
        assert df.to_pydict() == {"q": ["a"]}
    (line,) = caplog.messages
    assert re.search(rf"openai \(m\) at http://127.0.0.1:\d+/v1 has not answered since .*; 1 call waits\.{last}", line)
