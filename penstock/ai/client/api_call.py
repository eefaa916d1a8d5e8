"""One call of a remote model, and the interface of all layers that make calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from penstock.ai.client.limits.limiter import Rank
from penstock.cost.usage import Usage
from penstock.storage.secret import Secret


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server: its address, key and headers. ``key_header`` is the header of the key, and a template for its value."""

    provider: str
    base_url: str
    key: Secret | None = None
    key_header: tuple[str, str] = ("Authorization", "Bearer {}")
    headers: tuple[tuple[str, str | Secret], ...] = ()
    if_unreachable: str = ""  # advice for the error message if the server does not answer
    if_not_found: str = ""  # advice if it answers 404


class CallObserver(Protocol):
    """Observes the attempts of a call, to know what they cost."""

    def sent(self) -> None:
        """The request is about to be sent. From now on it may cost something."""

    def answered(self, usage: Usage) -> None:
        """The server answered. If the answer does not report its usage, ``usage`` is the estimated input."""

    def failed(self) -> None:
        """The server did not receive the request, or refused it: it costs nothing."""


class _NoObserver:
    def sent(self) -> None: ...

    def answered(self, usage: Usage) -> None: ...

    def failed(self) -> None: ...


NO_OBSERVER = _NoObserver()


def as_is(body: Any, usage: Usage | None) -> Any:
    return body


@dataclass(slots=True)
class ApiCall:
    """One POST: a path below the base URL, and a body for JSON.

    ``read`` converts the body of the answer; it also gets the usage that the body reports.
    """

    path: str
    body: dict[str, Any]
    read: Callable[[Any, Usage | None], Any] = as_is
    tokens: int = 0  # estimate of the input
    inputs: Sequence[int] = ()  # the same for each input, if there are several
    key: bytes | None = None  # key of the answer in the ledger
    is_looked_up: bool = False  # the ledger had no answer
    is_random: bool = True  # equal calls may have different answers
    rank: Rank = "first"  # set by the layer that retries
    observer: CallObserver = NO_OBSERVER  # set by the layer that bills


class Answered(NamedTuple):
    """The result of a call: what ``call.read`` returns, and the latency in seconds, None for a cached answer."""

    value: Any
    latency_s: float | None


class Calls(Protocol):
    """A layer that makes calls: it sends them, or wraps another layer."""

    def ask(self, call: ApiCall) -> Awaitable[Answered]: ...

    async def close(self) -> None: ...
