"""The server in a process of its own, by its handle or from a command line."""

from __future__ import annotations

import gc
import importlib
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from penstock.testing import ModelServer, faults, model_server
from tests.testing.client import ask, chat, said, until


def test_a_closure_answers_in_the_process_of_the_server() -> None:
    greeting = "Good day"
    with ModelServer(answer=lambda request: f"{greeting}, {request.text}!") as server:
        assert said(chat(server, "you")) == "Good day, you!"
        server.change(faults=[faults.ServerError(503)])
        assert chat(server).status == 503
        assert [(seen.path, seen.status) for seen in server.requests] == [
            ("/v1/chat/completions", 200),
            ("/v1/chat/completions", 503),
        ]
        server.die()
        with pytest.raises(ConnectionRefusedError):
            chat(server)
        assert server.num_requests == 2
        port = server.port
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.requests
    with pytest.raises(ConnectionRefusedError):
        chat(server)
    with server:
        assert server.port == port
        assert chat(server).status == 503


def test_a_server_runs_until_it_is_stopped_though_nobody_holds_it() -> None:
    url = ModelServer().start().url
    gc.collect()
    with urllib.request.urlopen(f"{url}/v1/models") as reply:
        assert reply.status == 200
    next(server for server in model_server._started if server.url == url).stop()


def test_an_answer_function_of_a_module_that_only_the_test_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answers_of_this_test.py").write_text("def shout(request):\n    return request.text.upper()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    shout = importlib.import_module("answers_of_this_test").shout
    with ModelServer(answer=shout) as server:
        assert said(chat(server, "loud")) == "LOUD"


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for in_thread in (True, False):
            server = ModelServer(port=taken.getsockname()[1], in_thread=in_thread)
            with pytest.raises(OSError, match="address already in use"):
                server.start()


def test_the_server_ends_with_its_parent() -> None:
    code = """
import sys, time
from penstock.testing import ModelServer
server = ModelServer().start()
print(server.port, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
        assert psutil.wait_procs([child], timeout=60)[0]


def test_the_command_line() -> None:
    command = [sys.executable, "-m", "penstock.testing"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            server = ModelServer(port=int(process.stdout.readline().removeprefix("port ")))
            assert said(chat(server, "hello")) == "hello"
            assert ask(server, "/_penstock/counts").body["completed"] == 1
            assert [seen["status"] for seen in ask(server, "/_penstock/requests").body] == [200]
            assert ask(server, "/_penstock/restart").status == 200
            assert ask(server, "/_penstock/requests").body == []
            assert ask(server, "/_penstock/nothing").status == 404
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_many_requests_at_once_wait_together() -> None:
    """Answers that are delayed delay no others."""
    with ModelServer(latency=0.3) as server:
        body = b'{"model":"m","input":"x"}'
        request = b"POST /v1/responses HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
        for sock in sockets:
            sock.sendall(request)
        for sock in sockets:
            assert sock.recv(65536).startswith(b"HTTP/1.1 200")
            sock.close()
        until(lambda: server.counts.completed == 50)
        assert server.max_in_flight > 10
