"""What providers behind an address have in common: where they are, the key, and headers, of which some are keys too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.ai.provider import Provider
from penstock.ai.remote.addresses import checked_address
from penstock.errors import AuthenticationError, InvalidArgumentError
from penstock.storage.secret import Secret

SECRET_WORDS = ("key", "token", "secret", "authorization", "cookie", "password", "credential")
"""In the name of a header whose value nobody shall see."""


@dataclass(frozen=True)
class RemoteProvider(Provider):
    """A provider at ``base_url``. ``headers`` go with every request.

    Without ``api_key`` the first of ``key_variables`` that is set has it; a provider that has none needs no key.
    """

    base_url: str = ""
    api_key: Any = None  # a text or a Secret; a Secret from then on
    headers: Any = ()  # a mapping; pairs from then on, with a Secret where the name says so
    name: str = ""
    key_variables: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        variable = self.key_variables[0] if self.key_variables else None
        object.__setattr__(self, "api_key", checked_key(self.api_key, variable))
        object.__setattr__(self, "headers", checked_headers(self.headers))
        if self.base_url != "":
            object.__setattr__(self, "base_url", checked_address(self.base_url))

    def key(self) -> Secret | None:
        """Return the key, or say where to put one."""
        if self.api_key is not None or not self.key_variables:
            key: Secret | None = self.api_key
            return key
        for variable in self.key_variables:
            if value := os.environ.get(variable):
                return checked_key(value, variable, what=variable)
        raise AuthenticationError(
            f"Provider {self.name!r} has no API key; set {' or '.join(self.key_variables)}, or "
            f"ps.set_provider({self.name!r}, api_key=...). A server that takes none gets api_key='none'."
        )


def checked_key(given: Any, variable: str | None = None, what: str = "api_key") -> Secret | None:
    """Return a key as a Secret that a saved plan finds again in ``variable``, or say what is wrong with it.

    A line break at its end, as files have, is taken off.
    """
    if given is None:
        return None
    if not isinstance(given, str | Secret):
        raise InvalidArgumentError(f"{what} is a text or a Secret; got {type(given).__name__}.")
    text = given.reveal() if isinstance(given, Secret) else given
    key = text.rstrip("\r\n")
    if not key.strip():
        raise InvalidArgumentError(f"{what} is empty. Leave it out, or give 'none' to a server that takes no key.")
    if key != key.strip() or not key.isascii() or not key.isprintable():
        raise InvalidArgumentError(
            f"{what} is no key: it has spaces at its ends, control characters, or letters that are not ASCII."
        )
    if isinstance(given, Secret) and key == text and (given.variable or variable is None):
        return given
    return Secret(key, variable)


def checked_headers(given: Any) -> tuple[tuple[str, str | Secret], ...]:
    """Return headers as pairs, with a Secret for each value whose name says that it is one."""
    pairs = given.items() if isinstance(given, Mapping) else given
    if not isinstance(given, Mapping | tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidArgumentError(f"headers is a dict from names to texts; got {type(given).__name__}.")
    return tuple((str(name), _header_value(str(name), value)) for name, value in pairs)


def _header_value(name: str, value: Any) -> str | Secret:
    if isinstance(value, Secret):
        return value
    text = str(value).rstrip("\r\n")
    if not name.isascii() or not name.isprintable() or not text.isprintable():
        raise InvalidArgumentError(f"headers: {name!r} has control characters in its name or value.")
    if not any(word in name.lower() for word in SECRET_WORDS):
        return text
    Secret(text.rpartition(" ")[2])  # without "Bearer": a server may quote the key alone
    return Secret(text)
