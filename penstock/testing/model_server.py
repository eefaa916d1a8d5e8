"""The handle with which tests start, query and stop a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.testing.answer_times import Latency
from penstock.testing.faults import Fault
from penstock.testing.http_server import HOST, Counts, SeenRequest
from penstock.testing.script import AnswerFunction, BatchTiming, EmbeddingLimits, Limits, Script
from penstock.testing.server_runner import ServerProcess, ServerThread

_started: set[ModelServer] = set()  # a server without this reference would stop with its handle


class ModelServer:
    """A server on loopback that speaks the APIs of OpenAI, Anthropic, Google and System One, and follows a script.

    It runs in a process of its own; ``in_thread=True`` keeps it in this one, for an ``answer`` that shares objects
    with the test. Without ``answer`` it repeats the prompt, or answers with an instance of the requested JSON schema.

    >>> from penstock.testing import ModelServer, faults
    >>> import json, urllib.request
    >>> with ModelServer(answer=lambda request: request.text.upper(), faults=[faults.ServerError(503, at=2)]) as server:
    ...     body = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}
    ...     with urllib.request.urlopen(f"{server.openai_url}/chat/completions", json.dumps(body).encode()) as reply:
    ...         answer = json.load(reply)["choices"][0]["message"]["content"]
    ...     answer, server.num_requests, server.requests[0].body["model"]
    ('HELLO', 1, 'any')
    """

    def __init__(
        self,
        *,
        latency: Latency | float = 0.0,
        faults: Sequence[Fault] = (),
        answer: AnswerFunction | None = None,
        requests_per_second: float | None = None,
        tokens_per_minute: float | None = None,
        max_concurrency: int | None = None,
        burst_s: float = 1.0,
        has_limit_headers: bool = True,
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        dimensions: int | None = None,
        embedding_limits: EmbeddingLimits | None = None,
        batches: BatchTiming | None = None,
        seed: int = 0,
        port: int = 0,
        in_thread: bool = False,
        keep_requests: int = 100_000,
    ) -> None:
        limits = Limits(requests_per_second, tokens_per_minute, max_concurrency, burst_s, has_limit_headers)
        self.script = Script(
            latency=latency,
            faults=tuple(faults),
            answer=answer,
            limits=limits,
            api_key=api_key,
            models=models,
            dimensions=dimensions,
            embedding_limits=embedding_limits or EmbeddingLimits(),
            batches=batches or BatchTiming(),
            seed=seed,
            keep_requests=keep_requests,
        )
        self._port = port
        self._in_thread = in_thread
        self._running: ServerThread | ServerProcess | None = None

    def start(self) -> ModelServer:
        """Start on a free port, on ``port`` if given, or on the port of the last start.

        The server runs until ``stop``, or until this process ends.
        """
        if self._running is None:
            kind = ServerThread if self._in_thread else ServerProcess
            self._running = kind(self.script, self._port)
            self._port = self._running.port
            _started.add(self)
        return self

    def stop(self) -> None:
        """Stop the server and discard its log."""
        if self._running is not None:
            self._running.close()
            self._running = None
            _started.discard(self)

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        return self.url

    @property
    def google_url(self) -> str:
        return f"{self.url}/v1beta"

    @property
    def requests(self) -> list[SeenRequest]:
        """The latest ``keep_requests`` requests in order of arrival."""
        requests: list[SeenRequest] = self._command("requests")
        return requests

    @property
    def counts(self) -> Counts:
        """The numbers of requests and connections."""
        counts: Counts = self._command("counts")
        return counts

    @property
    def num_requests(self) -> int:
        return self.counts.requests

    @property
    def max_in_flight(self) -> int:
        return self.counts.max_in_flight

    def change(self, **changes: Any) -> None:
        """Change fields of the ``Script``: ``change(faults=[], latency=0.1)``. Other fields keep their values.

        ``limits=Limits(...)`` sets all limits. The counts of faults start at zero.
        """
        self.script = replace(self.script, **changes)
        if self._running is not None:
            self._command("follow", self.script)

    def clear(self) -> None:
        """Remove the requests so far from the log."""
        self._command("clear")

    def die(self) -> None:
        """Reset all connections and accept no more, like a killed server; the log stays."""
        self._command("die")

    def come_back(self) -> None:
        """Accept connections again after ``die``, on the same port."""
        self._command("listen")

    def _command(self, verb: str, argument: Any = None) -> Any:
        if self._running is None:
            raise RuntimeError(
                "The server is not running; use it as 'with ModelServer(...) as server:' or call start()."
            )
        return self._running.command(verb, argument)
