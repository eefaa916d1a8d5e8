"""The HTTP server, the model service and the request log of one ``ModelServer``."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from penstock.errors import InvalidArgumentError
from penstock.testing.http_server import HOST, HttpReply, HttpRequest, HttpServer
from penstock.testing.request_log import RequestLog, SeenRequest
from penstock.testing.script import Script
from penstock.testing.script_text import change_script
from penstock.testing.service import ModelService

CONTROL = "/_penstock/"


class ScriptedServer:
    """Answer model requests by a script. Every method is called on the event loop."""

    def __init__(self, script: Script, port: int = 0) -> None:
        self._log = RequestLog(script.keep_requests)
        self._http = HttpServer(self._handle, self._log, port)
        self._service = ModelService(script, asyncio.get_running_loop().call_later, self._url)

    @property
    def port(self) -> int:
        return self._http.port

    async def listen(self) -> None:
        await self._http.listen()

    async def command(self, verb: str, argument: Any = None) -> Any:
        """Run a command of the ``ModelServer`` handle."""
        match verb:
            case "requests":
                return list(self._log.requests)
            case "counts":
                return self._log.counts
            case "clear":
                self._log.clear()
            case "follow":
                self._service.follow(argument)
            case "die":
                self._http.die()
            case "listen":
                await self._http.listen()
            case _:
                raise ValueError(f"unknown command {verb!r}")
        return None

    def _url(self, path: str) -> str:
        return f"http://{HOST}:{self.port}{path}"

    def _handle(self, request: HttpRequest) -> tuple[SeenRequest | None, HttpReply]:
        if request.path.startswith(CONTROL):
            return None, self._control(request)
        seen = self._log.begin(request.method, request.path, request.headers, request.body)
        return seen, self._service.respond(request, seen.in_flight)

    def _control(self, request: HttpRequest) -> HttpReply:
        """Answer a request about the server itself, for users who start it from a command line."""
        body: Any = None
        try:
            match request.method, request.path.removeprefix(CONTROL):
                case "GET", "counts":
                    body = self._log.counts
                case "GET", "requests":
                    body = [seen.as_json() for seen in self._log.requests]
                case "POST", "clear":
                    self._log.clear()
                case "POST", "script":
                    self._service.follow(change_script(self._service.script, orjson.loads(request.body)))
                case _:
                    return HttpReply(404, b"{}", {})
        except (InvalidArgumentError, orjson.JSONDecodeError) as error:
            return HttpReply(400, orjson.dumps({"error": str(error)}), {})
        return HttpReply(200, orjson.dumps(body), {"content-type": "application/json"})
