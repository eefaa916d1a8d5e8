"""How a provider's API is spoken: requests to bodies, bodies to answers. Pure: nothing here sends anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.ai.conversation import Generation, Request
from penstock.secret import Secret


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server: where it is, and what every request carries. ``key_header`` is the header of the key, with its form."""

    provider: str
    base_url: str
    key: Secret | None = None
    key_header: tuple[str, str] = ("Authorization", "Bearer {}")
    headers: tuple[tuple[str, str], ...] = ()
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
