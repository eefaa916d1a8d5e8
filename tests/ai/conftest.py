"""Fixtures of the tests of AI functions."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.ai.client.limits.limiter import forget_limits
from penstock.ai.client.server_errors import reached_addresses
from penstock.ai.provider_registry import detach_providers
from tests.plain_server import held_port


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A local port without a listener, which no other program gets meanwhile. No server of an earlier test had it."""
    reached_addresses.clear()
    with held_port() as port:
        yield port


@dataclass
class Received:
    """A request as it came in."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class RawServer:
    """A server with scripted answers, one for each request. It repeats the last one."""

    port: int = 0
    answers: list[tuple[int, Mapping[str, str], bytes]] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def say(self, *bodies: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer with these bodies from now on; what is not bytes is sent as JSON."""
        raw = (body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies)
        self.answers = [(status, headers or {}, each) for each in raw]
        self.requests.clear()


@pytest.fixture
def start_server() -> Iterator[Callable[[], RawServer]]:
    """Starts servers that say what no sane one would."""
    started: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start() -> RawServer:
        raw = RawServer()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                raw.requests.append(Received(self.path, dict(self.headers), body))
                status, headers, answer = raw.answers.pop(0) if len(raw.answers) > 1 else raw.answers[0]
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(answer))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        raw.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        started.append((server, thread))
        return raw

    yield start
    for server, thread in started:
        server.shutdown()
        server.server_close()
        thread.join()
    detach_providers()
    forget_limits()


@pytest.fixture
def raw_server(start_server: Callable[[], RawServer], monkeypatch: pytest.MonkeyPatch) -> RawServer:
    """Such a server as the default provider."""
    import penstock as ps

    monkeypatch.setattr("penstock.ai.options.FIRST_DELAY_S", 0.01)
    server = start_server()
    ps.set_provider("openai", base_url=server.url, api_key="sk-test-1234")
    return server
