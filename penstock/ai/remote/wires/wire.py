"""Wires: convert requests to bodies of a provider's API, and bodies to answers. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.ai.conversation import Generation, Request
from penstock.ai.provider import NDArray
from penstock.errors import InvalidAnswerError
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


@dataclass(slots=True)
class ApiCall:
    """One POST: a path below the base URL, and a body for JSON."""

    path: str
    body: dict[str, Any]
    tokens: int = 0  # estimate of the input
    inputs: Sequence[int] = ()  # the same for each input, if there are several
    key: bytes | None = None  # of the answer in the ledger
    is_looked_up: bool = False  # the ledger had no answer


class Wire(Protocol):
    """One prompt API. Picklable, and created once for all rows."""

    @property
    def takes_options(self) -> bool:
        """True if requests may have options of their own."""
        ...

    def call(self, request: Request) -> ApiCall:
        """Return the call for a request."""
        ...

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        """Return the answers in a body; ignore unknown fields.

        Raises InvalidAnswerError that names a missing field. A refusal is a Generation with ``refusal``.
        """
        ...


class EmbeddingWire(Protocol):
    """One embeddings API. Picklable, and created once for all rows."""

    @property
    def max_items(self) -> int:
        """The maximum number of texts in a call."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens of all texts of a call."""
        ...

    @property
    def max_input_tokens(self) -> int | None:
        """The maximum number of tokens of one text."""
        ...

    def call(self, texts: Sequence[str]) -> ApiCall: ...

    def read(self, body: Mapping[str, Any]) -> NDArray:
        """Return the vectors of a body in the order of the texts, shape ``(n, d)``."""
        ...


def field_of(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...], what: str = "the answer") -> Any:
    """Return a required field, or raise InvalidAnswerError that names it.

    >>> field_of({"id": 1}, "choices", list)
    Traceback (most recent call last):
        ...
    penstock.errors.InvalidAnswerError: the answer has no 'choices' of type list; it has: id
    """
    fields: Any = body  # a server may send anything
    value = field_or_none(fields, name)
    if type(value) is kind or isinstance(value, kind):
        return value
    kinds = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
    found = ", ".join(map(str, fields)) if isinstance(fields, Mapping) else type(fields).__name__
    raise InvalidAnswerError(f"{what} has no {name!r} of type {kinds}; it has: {found or 'nothing'}")


def count_of(usage: Any, name: str) -> int | None:
    """Return a number of tokens, None if the server sends none or something else: an answer is valid without it.

    >>> count_of({"input_tokens": 5}, "input_tokens"), count_of({"input_tokens": "5"}, "input_tokens")
    (5, None)
    """
    count = field_or_none(usage, name)
    return count if type(count) is int else None


def field_or_none(body: Any, name: str) -> Any:
    # JSON objects are dicts; the check for other mappings is slow.
    return body.get(name) if type(body) is dict or isinstance(body, Mapping) else None
