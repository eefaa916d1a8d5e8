"""The requests that a server saw, and their counts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson


@dataclass(slots=True)
class SeenRequest:
    """One request. ``status`` is None until it is answered, and 0 if it ended without an answer."""

    number: int  # from 1, by arrival
    method: str
    path: str
    headers: Mapping[str, str]
    raw_body: bytes
    arrived: float  # time.time()
    in_flight: int  # requests in progress at its arrival, itself included
    status: int | None = None
    ended: float | None = None

    @property
    def body(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.raw_body)

    def as_json(self) -> dict[str, Any]:
        fields = asdict(self)
        fields["body"] = fields.pop("raw_body").decode(errors="replace")
        return fields


@dataclass(slots=True)
class Counts:
    """``completed``: status 2xx. ``refused``: 429. ``failed``: other statuses. ``dropped``: no complete answer."""

    requests: int = 0
    completed: int = 0
    refused: int = 0
    failed: int = 0
    dropped: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    connections: int = 0
    max_connections: int = 0


class RequestLog:
    """Count all requests and keep the latest ones."""

    def __init__(self, keep_requests: int) -> None:
        self.counts = Counts()
        self.requests: deque[SeenRequest] = deque(maxlen=keep_requests)

    def begin(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> SeenRequest:
        counts = self.counts
        counts.requests += 1
        counts.in_flight += 1
        if counts.in_flight > counts.max_in_flight:
            counts.max_in_flight = counts.in_flight
        seen = SeenRequest(counts.requests, method, path, headers, body, time.time(), counts.in_flight)
        self.requests.append(seen)
        return seen

    def end(self, seen: SeenRequest, status: int) -> None:
        seen.status, seen.ended = status, time.time()
        counts = self.counts
        counts.in_flight -= 1
        if 200 <= status < 300:
            counts.completed += 1
        elif status == 429:
            counts.refused += 1
        elif status:
            counts.failed += 1
        else:
            counts.dropped += 1

    def connected(self) -> None:
        self.counts.connections += 1
        self.counts.max_connections = max(self.counts.max_connections, self.counts.connections)

    def disconnected(self) -> None:
        self.counts.connections -= 1

    def clear(self) -> None:
        """Remove the requests and start the counts at zero, except for requests in progress and open connections."""
        self.requests.clear()
        in_flight, connections = self.counts.in_flight, self.counts.connections
        self.counts = Counts(
            in_flight=in_flight, max_in_flight=in_flight, connections=connections, max_connections=connections
        )
