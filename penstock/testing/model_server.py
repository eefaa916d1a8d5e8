"""The handle of a server: what tests start, ask and stop."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import cloudpickle

from penstock.testing.faults import Fault
from penstock.testing.latency import Latency
from penstock.testing.recording import Counts, SeenRequest
from penstock.testing.script import AnswerFunction, BatchTiming, EmbeddingLimits, Limits, Script
from penstock.testing.server import HOST
from penstock.testing.serving import Serving

START_TIMEOUT_S = 60.0
# With this process's own path, as the answer function may be of a module that only it can find.
START = "import sys; sys.path[:] = sys.argv[2:]; from penstock.testing.__main__ import serve; serve(int(sys.argv[1]))"


class ModelServer:
    """A server on loopback that speaks the APIs of OpenAI, Anthropic and Google, and does what its script says.

    It runs in a process of its own; ``in_thread=True`` keeps it in this one, for an ``answer`` that shares objects
    with the test. Without ``answer`` it repeats the prompt, or gives an instance of the JSON schema that was asked for.

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
            latency, tuple(faults), answer, limits, api_key, models, dimensions, embedding_limits or EmbeddingLimits(),
            batches or BatchTiming(), seed,
            keep_requests,
        )  # fmt: skip
        self._port = port
        self._in_thread = in_thread
        self._serving: _Thread | _Process | None = None

    def start(self) -> ModelServer:
        """Start it, on a free port unless one was given; on the same one if it ran before."""
        if self._serving is None:
            kind = _Thread if self._in_thread else _Process
            self._serving = kind(self.script, self._port)
            self._port = self._serving.port
        return self

    def stop(self) -> None:
        """Stop it; what it recorded is gone with it."""
        if self._serving is not None:
            self._serving.close()
            self._serving = None

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
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
        """The requests so far, by arrival; the latest ``keep_requests`` of them."""
        requests: list[SeenRequest] = self._command("requests")
        return requests

    @property
    def counts(self) -> Counts:
        """How many requests there were, are, and were at once."""
        counts: Counts = self._command("counts")
        return counts

    @property
    def num_requests(self) -> int:
        return self.counts.requests

    @property
    def max_in_flight(self) -> int:
        return self.counts.max_in_flight

    def change(self, **changes: Any) -> None:
        """Go on by another script: ``change(faults=[], latency=0.1)``. Fields that are not named stay as they are.

        They are those of ``Script``; ``limits=Limits(...)`` sets all limits. Counts of faults begin anew.
        """
        self.script = replace(self.script, **changes)
        if self._serving is not None:
            self._command("follow", self.script)

    def clear(self) -> None:
        """Forget the requests so far."""
        self._command("clear")

    def die(self) -> None:
        """Reset all connections and take no more, as if it had been killed; it still knows what it recorded."""
        self._command("die")

    def come_back(self) -> None:
        """Take connections again after ``die``, on the same port."""
        self._command("listen")

    def _command(self, verb: str, argument: Any = None) -> Any:
        if self._serving is None:
            raise RuntimeError(
                "The server is not running; use it as 'with ModelServer(...) as server:' or call start()."
            )
        return self._serving.command(verb, argument)


class _Thread:
    """A server on a thread of this process."""

    def __init__(self, script: Script, port: int) -> None:
        self._inner = Serving(script, port)
        self._thread = threading.Thread(target=self._inner.run, name="penstock-model-server", daemon=True)
        self._thread.start()
        self.port = self._inner.wait_for_port()
        self.command: Callable[[str, Any], Any] = self._inner.command

    def close(self) -> None:
        self._inner.stop()
        self._thread.join()


class _Process:
    """A server in a process of its own, that ends with this one: the socket between them is its lifeline."""

    def __init__(self, script: Script, port: int) -> None:
        ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            fd = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, str(fd), *sys.path],
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the test, which ends the server
            )
        self._connection = Connection(ours.detach())
        try:
            self.port = int(self.command("start", (script, port)))
        except BaseException:
            self.close()
            raise

    def command(self, verb: str, argument: Any = None) -> Any:
        with self._lock:
            self._connection.send_bytes(cloudpickle.dumps((verb, argument)))
            if not self._connection.poll(START_TIMEOUT_S):
                raise TimeoutError(f"The model server did not answer {verb!r} within {START_TIMEOUT_S:g} s.")
            try:
                is_error, result = cloudpickle.loads(self._connection.recv_bytes())
            except EOFError as exc:
                raise RuntimeError(f"The model server ended with exit code {self._process.wait()}.") from exc
        if is_error:
            raise result
        return result

    def close(self) -> None:
        self._connection.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
