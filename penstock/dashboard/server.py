"""The page and its data over HTTP, on a thread of its own.

The page itself holds no data, so everyone may load it. Its data, and every change of state, need the token in the
``Authorization`` header, which a page of another origin cannot send. The token reaches the page in the fragment of its
URL, which browsers do not send, log or put into ``Referer``.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import orjson
import pyarrow as pa
from aiohttp import web

from penstock.dashboard.row_pages.export import MAX_ROWS, MAX_SHAPE_ROWS, exported, shapes
from penstock.errors import BudgetSpentError, InvalidArgumentError, PenstockError, PlanError

PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MAX_BODY_NBYTES = 64 * 1024
MAX_PAGES = 100  # that are remembered
OPEN_S = 10.0  # after its last request, a page counts as closed
LOOK_S = 0.02

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Board(Protocol):
    """The content of a dashboard. Called on several threads; each call may block."""

    def home(self) -> dict[str, Any]:
        """Return the lists of jobs and queries."""

    def state(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """Return the state of a query or job, of the latest query if none is named."""

    def shown(self, asked: Mapping[str, Any]) -> ShownRun:
        """Return the query or job that a person asks about; the latest query if none is named."""


class ShownRun(Protocol):
    """One query or job of a board."""

    def rows(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """Return a page of rows; see ``found_rows.RowsRequest``."""

    def table(self, asked: Mapping[str, str], max_rows: int) -> pa.Table:
        """Return the rows that a person asks for, on all pages."""

    def review(self, asked: Mapping[str, Any]) -> str:
        """Keep a note on a row; see ``reviews``. Return a message for the person."""

    def prompts(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """Return the prompts of a query or job that a person may edit; see ``trials``."""

    def try_prompt(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Ask an edited prompt about a few rows; return the answers beside the answers of the run."""

    def control(self, asked: Mapping[str, Any]) -> str:
        """Change a running query; see ``live.Order``. Return a message for the person."""


class DashboardServer:
    """Serves a board, from its creation until ``close``. Raises InvalidArgumentError if it cannot use the address."""

    def __init__(self, board: Board, host: str = "127.0.0.1", port: int = 0) -> None:
        self._board = board
        self._token = secrets.token_urlsafe(24)
        self._socket = _listening_socket(host, port)
        self._host, self._port = host, self._socket.getsockname()[1]
        self._is_ready = threading.Event()
        self._pages: dict[str, tuple[float, str]] = {}  # by id: the time of its last request, and the end that it shows
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._serve(),), name="penstock-dashboard", daemon=True
        )
        self._thread.start()
        self._is_ready.wait()

    @property
    def url(self) -> str:
        """The URL of the page, with the token."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/#{self._token}"

    def close(self) -> None:
        """End the server and its thread. May be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._is_closed.set)
            self._thread.join()

    def wait_for_pages(self, end: str, timeout_s: float) -> None:
        """Wait until every open page shows ``end`` (see ``_seen``), for a bounded time."""
        until_s = time.monotonic() + timeout_s
        while (now := time.monotonic()) < until_s:
            if all(shown == end for asked_at_s, shown in list(self._pages.values()) if now - asked_at_s < OPEN_S):
                return
            time.sleep(LOOK_S)

    async def _serve(self) -> None:
        self._loop, self._is_closed = asyncio.get_running_loop(), asyncio.Event()
        self._is_ready.set()
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.SockSite(runner, self._socket).start()
        await self._is_closed.wait()
        await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded], client_max_size=MAX_BODY_NBYTES)
        app.on_response_prepare.append(_add_headers)
        app.router.add_routes(
            [
                web.get("/", _static(PAGE / "index.html")),
                *(web.get(f"/{file.relative_to(PAGE).as_posix()}", _static(file)) for file in PAGE.rglob("*.*s")),
                web.get("/api/home", self._home),
                web.get("/api/state", self._state),
                web.get("/api/rows", self._about_one(lambda run, asked: run.rows(asked))),
                web.get("/api/shape", self._about_one(_shape)),
                web.get("/api/export", self._export),
                web.get("/api/prompts", self._about_one(lambda run, asked: run.prompts(asked))),
                web.post("/api/try", self._about_one(lambda run, asked: run.try_prompt(asked))),
                web.post("/api/control", self._about_one(lambda run, asked: {"done": run.control(asked)})),
                web.post("/api/review", self._about_one(lambda run, asked: {"done": run.review(asked)})),
                web.post("/api/seen", self._seen),
            ]
        )
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse names that another site may have pointed at this address, and data without the token."""
        if not is_trusted_host(request.host):
            raise web.HTTPForbidden(text="Open the dashboard by its address, not by this name.")
        if request.path.startswith("/api/"):
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(errors="surrogateescape"), self._token.encode()):
                raise web.HTTPUnauthorized(text="The token is missing or wrong.")
        try:
            return await handler(request)
        except (PenstockError, ValueError, KeyError, TypeError) as exc:
            is_refused = not isinstance(exc, PenstockError) or isinstance(exc, PlanError | BudgetSpentError)
            return _json({"error": str(exc)}, 400 if is_refused else 500)

    async def _state(self, request: web.Request) -> web.Response:
        self._note_page(request.query.get("page", ""))
        return _news(request, await _apart(self._board.state, dict(request.query)))

    async def _home(self, request: web.Request) -> web.Response:
        return _news(request, await _apart(self._board.home))

    def _about_one(self, ask: Callable[[ShownRun, dict[str, Any]], Any]) -> Handler:
        """Return the handler of requests about one query or job. ``ask`` gets the parameters, or the body, as well."""

        async def answer(request: web.Request) -> web.Response:
            asked = await _body(request) if request.method == "POST" else dict(request.query)
            return _news(request, await _apart(lambda: ask(self._board.shown(asked), asked)))

        return answer

    async def _export(self, request: web.Request) -> web.Response:
        def export() -> tuple[bytes, int]:
            asked = dict(request.query)
            rows = self._board.shown(asked).table(asked, MAX_ROWS)
            return exported(rows, request.query.get("format", "")), rows.num_rows

        content, num_rows = await _apart(export)
        found = f"{num_rows:,} rows exported" + (", the most there may be." if num_rows == MAX_ROWS else ".")
        return web.Response(body=content, content_type="application/octet-stream", headers={"X-Rows": found})

    async def _seen(self, request: web.Request) -> web.Response:
        """Note that a page shows how every query named in the state ended, with its last rows."""
        asked = await _body(request)
        self._note_page(str(asked["page"]), str(asked["end"]))
        return _json({})

    def _note_page(self, page: str, end: str | None = None) -> None:
        shown = self._pages.pop(page, (0.0, ""))[1]
        self._pages[page] = time.monotonic(), shown if end is None else end
        if len(self._pages) > MAX_PAGES:
            del self._pages[next(iter(self._pages))]


def _shape(run: ShownRun, asked: dict[str, Any]) -> dict[str, Any]:
    rows = run.table(asked, MAX_SHAPE_ROWS)
    return {"num_rows": rows.num_rows, "shapes": shapes(rows)}


def is_trusted_host(host: str) -> bool:
    """Return whether a Host header names this machine in a way that no other site can point elsewhere.

    An address cannot be rebound by DNS, a name can.

    >>> [is_trusted_host(host) for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:80", "evil.example:8000", "")]
    [True, True, True, False, False]
    """
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _listening_socket(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, OverflowError) as exc:
        raise InvalidArgumentError(
            f"The dashboard cannot listen on {host}, port {port}: {exc.args[-1]}. Choose another address "
            "of this machine, or another port; 0 is any free one."
        ) from None


def _static(file: Path) -> Handler:
    async def serve(request: web.Request) -> web.Response:
        body = await _apart(file.read_bytes)
        return web.Response(body=body, content_type=TYPES[file.suffix], charset="utf-8")

    return serve


async def _body(request: web.Request) -> dict[str, Any]:
    body = orjson.loads(await request.read())
    if not isinstance(body, dict):
        raise ValueError("The body is no JSON object.")
    return body


async def _apart(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that may block on another thread. While the process ends, Python lends no more threads."""
    try:
        called = asyncio.get_running_loop().run_in_executor(None, function, *args)
    except RuntimeError:
        return function(*args)
    return await called


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value, default=str), content_type="application/json", status=status)


def _news(request: web.Request, value: Any) -> web.Response:
    """Return the value, or 304 if the page has it already: pages ask each second or two."""
    body = orjson.dumps(value, default=str)
    headers = {"ETag": f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type="application/json", headers=headers)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
