"""A web server on loopback that serves well and badly, and notes what it was asked."""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass
class Asked:
    """One request: its method, path and range."""

    method: str
    path: str
    range: str | None
    headers: dict[str, str]
    client_port: int


@dataclass
class Web:
    """What the server serves, by path, and what it saw. The first part of a path says how it behaves.

    ``/plain/x`` serves ranges, ``/whole/x`` does not, ``/nohead/x`` refuses HEAD, ``/chunked/x`` does not say how long
    the content is, ``/flaky/N/x`` fails N times, ``/busy/N/x`` the same with Retry-After: 0, ``/cut/x`` breaks off,
    ``/cut1/x`` breaks off the first time only, ``/hang/x`` answers when ``release`` is set, ``/status/N/x`` says N,
    ``/to?url=...`` redirects, ``/loop`` redirects to itself, ``/other/x`` sends another range than
    requested, ``/other1/x`` the first time only.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    release: threading.Event = field(default_factory=threading.Event)
    nbytes_sent: int = 0
    url: str = ""

    def put(self, name: str, content: bytes, how: str = "plain") -> str:
        """Serve content and return its URL."""
        self.files[name] = content
        return f"{self.url}/{how}/{name}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        self._serve(has_body=False)

    def do_GET(self) -> None:
        self._serve(has_body=True)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self, has_body: bool) -> None:
        web = self.server.web
        parts = urlsplit(self.path)
        web.asked.append(
            Asked(self.command, self.path, self.headers.get("Range"), dict(self.headers), self.client_address[1])
        )
        how, _, rest = parts.path.strip("/").partition("/")
        if how == "to":
            return self._redirect(parse_qs(parts.query)["url"][0])
        if how == "loop":
            return self._redirect("/loop")
        if how in ("flaky", "busy", "status"):
            number, _, rest = rest.partition("/")
            if how == "status":
                return self._short(int(number))
            web.failures[self.path] += 1
            if web.failures[self.path] <= int(number):
                return self._short(503, {"Retry-After": "0"} if how == "busy" else {})
        if how == "nohead" and self.command == "HEAD":
            return self._short(405)
        if how == "hang":
            web.release.wait(60)
        if rest not in web.files:
            return self._short(404)
        if how == "cut1" or (how == "other1" and self.command == "GET"):
            web.failures[self.path] += 1
        self._content(web.files[rest], how, has_body, is_cut=how == "cut" or web.failures[self.path] == 1)

    def _content(self, content: bytes, how: str, has_body: bool, is_cut: bool) -> None:
        wanted = self.headers.get("Range")
        start, end, status = 0, len(content), 200
        if wanted and how not in ("whole", "chunked"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end, status = int(first), min(int(last) + 1, len(content)), 206
            if how == "other" or (how == "other1" and self.server.web.failures[self.path] == 1):
                start, end = start + 1, min(end + 1, len(content))
        body = content[start:end]
        self.send_response(status)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", f'"{zlib.crc32(content)}"')
        if how not in ("whole", "chunked"):
            self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        if how == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if has_body:
                self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if has_body:
            sent = body[: len(body) // 2] if is_cut and how.startswith("cut") else body
            self.server.web.nbytes_sent += len(sent)
            self.wfile.write(sent)
            self.close_connection = self.close_connection or len(sent) < len(body)

    def _short(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _redirect(self, url: str) -> None:
        self._short(302, {"Location": url})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, web: Web) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.web = web


def start_web() -> tuple[Web, _Server]:
    web = Web()
    server = _Server(web)
    web.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return web, server
