"""What a server saw: each request, and how many there were at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from penstock.testing.http1 import HttpRequest


@dataclass(slots=True)
class SeenRequest:
    """One request. ``status`` is None while it is unanswered, and 0 if it ended without an answer."""

    number: int  # from 1, by arrival
    method: str
    path: str
    headers: Mapping[str, str]
    raw_body: bytes
    arrived: float  # as time.time()
    in_flight: int  # when it arrived, with it
    status: int | None = None
    ended: float | None = None

    @property
    def body(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.raw_body)


@dataclass(slots=True)
class Counts:
    """``completed`` got a 2xx, ``refused`` a 429, ``failed`` another status; ``dropped`` had no whole answer."""

    requests: int = 0
    completed: int = 0
    refused: int = 0
    failed: int = 0
    dropped: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    connections: int = 0
    max_connections: int = 0


class Recording:
    """Counts everything and keeps the latest requests."""

    def __init__(self, keep_requests: int) -> None:
        self.counts = Counts()
        self.requests: deque[SeenRequest] = deque(maxlen=keep_requests)

    def begin(self, request: HttpRequest) -> SeenRequest:
        counts, head = self.counts, request.head
        counts.requests += 1
        counts.in_flight += 1
        if counts.in_flight > counts.max_in_flight:
            counts.max_in_flight = counts.in_flight
        arrived = time.time()
        seen = SeenRequest(
            counts.requests, head.method, head.path, head.headers, request.body, arrived, counts.in_flight
        )
        self.requests.append(seen)
        return seen

    def end(self, seen: SeenRequest, status: int) -> None:
        """``status`` is 0 where the client got no whole answer."""
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
        """Forget what was; requests that are under way stay counted as in flight."""
        self.requests.clear()
        in_flight, connections = self.counts.in_flight, self.counts.connections
        self.counts = Counts(
            in_flight=in_flight, max_in_flight=in_flight, connections=connections, max_connections=connections
        )
