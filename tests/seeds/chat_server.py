"""A chat completions server on loopback, for the samples that ask one."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


class ChatServer:
    """Answers ``POST /v1/chat/completions`` with the model and the question, once two requests wait at the same time.

    A client that asks one question after the other gets 503: the answers must be awaited together.
    """

    def __init__(self, api_key: str) -> None:
        self.prompts: list[str] = []
        self._api_key = api_key
        self._together = threading.Barrier(2)
        self._met = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, authorization: str | None, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body for one request."""
        if path != "/v1/chat/completions":
            return 404, {"error": {"message": f"no such path: {path}"}}
        if authorization != f"Bearer {self._api_key}":
            return 401, {"error": {"message": "wrong key"}}
        if not self._is_in_company():
            return 503, {"error": {"message": "one question at a time"}}
        prompt = request["messages"][-1]["content"]
        self.prompts.append(prompt)
        message = {"role": "assistant", "content": f"{request['model']}: {prompt}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return 200, {"id": "1", "object": "chat.completion", "created": 0, "model": "gpt-4o", "choices": [choice]}

    def _is_in_company(self) -> bool:
        """Hold the first request until there is a second; from then on none is held."""
        if not self._met.is_set():
            try:
                self._together.wait(timeout=60)
            except threading.BrokenBarrierError:
                return self._met.is_set()
            self._met.set()
            self._together.abort()  # a third that came in between waits for nobody
        return True

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # connections are kept and used again

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = server.answer(self.path, self.headers["Authorization"], request)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Keep the test's output to itself."""

        return Handler
