"""How a provider's API is spoken: requests to bodies, bodies to answers. Pure: nothing here sends anything."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.ai.conversation import Generation, Request
from penstock.errors import InvalidAnswerError, InvalidArgumentError, did_you_mean
from penstock.storage.secret import Secret


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server: where it is, and what every request carries. ``key_header`` is the header of the key, with its form."""

    provider: str
    base_url: str
    key: Secret | None = None
    key_header: tuple[str, str] = ("Authorization", "Bearer {}")
    headers: tuple[tuple[str, str | Secret], ...] = ()
    if_unreachable: str = ""  # what to do where nobody answers there


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One POST: a path below the base URL, and a body for JSON."""

    path: str
    body: dict[str, Any]


class Wire(Protocol):
    """One prompt API. Picklable, and made once for all rows; ``options`` are the user's, by Penstock's names."""

    def call(self, request: Request) -> ApiCall:
        """Return what to send for a request."""
        ...

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        """Return the answers that a body holds; extra fields are passed over.

        Raises InvalidAnswerError that names the field where one is missing that must be there. A refusal is a
        Generation with ``refusal``.
        """
        ...


def field_of(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...], what: str = "the answer") -> Any:
    """Return a field that must be there, or raise InvalidAnswerError that names it.

    >>> field_of({"id": 1}, "choices", list)
    Traceback (most recent call last):
        ...
    penstock.errors.InvalidAnswerError: the answer has no 'choices' of type list; it has: id
    """
    fields: Any = body  # whatever a server sent
    value = field_or_none(fields, name)
    if type(value) is kind or isinstance(value, kind):
        return value
    kinds = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
    found = ", ".join(map(str, fields)) if isinstance(fields, Mapping) else type(fields).__name__
    raise InvalidAnswerError(f"{what} has no {name!r} of type {kinds}; it has: {found or 'nothing'}")


def usage_of(usage: Any, given: str, made: str, details: str) -> tuple[int | None, int | None, int | None]:
    """Return the tokens of a call: of the input, of the output, and those of the input that a cache held."""
    if type(usage) is not dict:
        return None, None, None
    num_given, num_made, rest = usage.get(given), usage.get(made), usage.get(details)
    num_cached = rest.get("cached_tokens") if type(rest) is dict else None
    return (
        num_given if type(num_given) is int else None,
        num_made if type(num_made) is int else None,
        num_cached if type(num_cached) is int else None,
    )


def count_of(usage: Any, name: str) -> int | None:
    """Return a number of tokens, None where a server says none or something else: an answer is good without it.

    >>> count_of({"input_tokens": 5}, "input_tokens"), count_of({"input_tokens": "5"}, "input_tokens")
    (5, None)
    """
    count = field_or_none(usage, name)
    return count if type(count) is int else None


def field_or_none(body: Any, name: str) -> Any:
    # What came as JSON is a dict; to ask whether it is any mapping takes as long as all the rest.
    return body.get(name) if type(body) is dict or isinstance(body, Mapping) else None


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def data_url(data: bytes, mime_type: str) -> str:
    return f"data:{mime_type};base64,{encoded(data)}"


def audio_format(mime_type: str) -> str:
    """Return the name that APIs have for a kind of sound.

    >>> audio_format("audio/mpeg"), audio_format("audio/x-wav")
    ('mp3', 'wav')
    """
    kind = mime_type.partition("/")[2].removeprefix("x-")
    return {"mpeg": "mp3", "mp4": "m4a"}.get(kind, kind)


def check_row_options(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse options of a single request that nobody would read, with the nearest known name."""
    for name in options:
        if name not in known:
            raise InvalidArgumentError(
                f"A request does not take {name!r}; it takes: {', '.join(sorted(known))}.{did_you_mean(name, known)} "
                "Fields of the server's own go into extra_body."
            )
