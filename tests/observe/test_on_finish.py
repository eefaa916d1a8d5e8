"""``on_finish`` tells a function or a webhook how a write ended."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError, UdfError
from penstock.observe import on_finish
from penstock.observe.on_finish import WriteOutcome


@contextmanager
def webhook(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a webhook; yield its URL, and what was posted to it."""
    posted: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/secret", posted
        server.shutdown()


@ps.func(use_process=False, version="1")
def halve(x: int) -> int:
    if x == 7:
        raise ValueError("no half of this")
    return x // 2


@pytest.mark.parametrize("resume", [True, False])
def test_a_webhook_gets_the_figures(tmp_path: Path, resume: bool) -> None:
    with webhook() as (url, posted):
        ps.range(5).with_column("half", halve(ps.col("id"))).write_parquet(
            str(tmp_path / "out"), resume=resume, on_finish=url
        )
    (outcome,) = posted
    assert (outcome["state"], outcome["rows"], outcome["failed"], outcome["error"]) == ("finished", 5, 0, None)
    assert outcome["output"] == f"{tmp_path}/out/"
    assert outcome["text"].startswith(f"{tmp_path}/out/: ✓ 5 rows in ")


@pytest.mark.parametrize("resume", [True, False])
def test_a_function_hears_of_a_failure(tmp_path: Path, resume: bool) -> None:
    ended: list[WriteOutcome] = []
    with pytest.raises(UdfError):
        ps.range(20).with_column("half", halve(ps.col("id"))).write_parquet(
            str(tmp_path / "out"), resume=resume, on_finish=ended.append
        )
    assert ended[0].state == "failed"
    assert "no half of this" in str(ended[0].error)


def test_rows_in_memory_are_counted(tmp_path: Path) -> None:
    ended: list[WriteOutcome] = []
    ps.from_pydict({"a": [1, 2, 3]}).write_csv(str(tmp_path / "out"), on_finish=ended.append)
    assert ended[0].rows == 3


SCRIPT = """
import sys, time
import penstock as ps

ps.set_config(progress=False)

@ps.func(use_process=False, version="1")
def wait(x: int) -> int:
    print("begun", flush=True)
    time.sleep(0.2)
    return x

ps.range(100_000).with_column("y", wait(ps.col("id"))).write_parquet(sys.argv[1], resume=True, on_finish=sys.argv[2])
"""


def test_a_webhook_hears_of_ctrl_c(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with webhook() as (url, posted):
        command = [sys.executable, str(script), str(tmp_path / "out"), url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.communicate()
    assert [each["state"] for each in posted] == ["stopped"]


def test_its_failure_is_a_line_in_the_log_and_not_the_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    with webhook(status=500) as (url, posted):
        ps.range(5).write_csv(str(tmp_path / "refused"), on_finish=url)
        assert len(posted) == 1
    ps.range(5).write_csv(str(tmp_path / "gone"), on_finish=url)

    def fail(outcome: WriteOutcome) -> None:
        raise KeyError("a\nb")

    ps.range(5).write_csv(str(tmp_path / "failing"), on_finish=fail)
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[:2] for message in messages] == [
        ["on_finish failed", " HTTPError"],
        ["on_finish failed", " URLError"],
        ["on_finish failed", " KeyError"],
    ]
    assert not any("\n" in message or "secret" in message for message in messages)


def test_a_function_that_hangs_holds_the_write_for_a_bounded_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_finish, "MAX_WAIT_S", 0.05)
    never = threading.Event()
    ps.range(5).write_csv(str(tmp_path / "out"), on_finish=lambda outcome: never.wait())
    never.set()
    assert "on_finish has not returned after 0.05 s" in caplog.text


def test_anything_else_is_refused_before_the_write(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="takes a function or the http"):
        ps.range(5).write_csv(str(tmp_path / "out"), on_finish="file:///etc/passwd")
    assert not (tmp_path / "out").exists()
