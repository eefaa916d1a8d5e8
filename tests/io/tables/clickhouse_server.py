"""A ClickHouse server for tests: the engine itself, embedded by chDB, behind the HTTP interface of ClickHouse.

Run as a program it listens on loopback, writes its port to standard output, and stops when standard input ends. It
takes one user with one password, runs one query at a time, and keeps its tables in a temporary folder.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

USER, PASSWORD = "tester", "n0t-to-be-seen"
# Parameters of a request that are not settings of the query.
CONTROLS = {"query", "database", "session_id", "client_protocol_version", "wait_end_of_query", "query_id"}


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and content leave together, or the client waits for the second packet
    engine: Any
    lock = Lock()

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        options = dict(parse_qsl(urlsplit(self.path).query))
        with self.lock:
            try:
                self._check_user()
                status, content = 200, self._run(options, body)
            except PermissionError as exc:
                status, content = 403, str(exc).encode()
            except RuntimeError as exc:
                status, content = 500, f"{exc} (version 26.9.2.1)".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _check_user(self) -> None:
        wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != wanted:
            raise PermissionError(
                "Code: 516. DB::Exception: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)"
            )

    def _run(self, options: dict[str, str], body: bytes) -> bytes:
        query, data = (options["query"], body) if "query" in options else (body.decode(), b"")
        self.engine.query(f"USE `{options.get('database', 'default')}`")
        if data:
            return self._insert(query, data)
        settings = [f"{name} = '{value}'" for name, value in options.items() if name not in CONTROLS]
        if query.lstrip().upper().startswith("SELECT") and settings:
            query += " SETTINGS " + ", ".join(settings)
        return bytes(self.engine.query(query, "TabSeparated").bytes())

    def _insert(self, query: str, data: bytes) -> bytes:
        """Insert data by way of a file: the embedded engine takes only text."""
        target, _, kind = query.rpartition("FORMAT")
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            self.engine.query(f"{target} FROM INFILE '{file.name}' COMPRESSION 'none' FORMAT {kind}")
        return b""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running_server() -> Iterator[str]:
    """Start a server as a process and give its DSN; when the context ends nothing is left of it."""
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        yield f"clickhouse+http://{USER}:{PASSWORD}@127.0.0.1:{port}/default"
        process.stdin.close()


def main() -> None:
    import chdb

    with tempfile.TemporaryDirectory() as folder, ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Answer.engine = chdb.connect(folder)
        os.write(1, f"{server.server_address[1]}\n".encode())
        Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
        server.serve_forever(poll_interval=0.05)
        Answer.engine.close()


if __name__ == "__main__":
    main()
