"""Remote providers: address, key and headers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.ai.client.addresses import checked_address, without_end
from penstock.ai.client.api_call import Endpoint
from penstock.ai.provider import Provider
from penstock.errors import AuthenticationError, InvalidArgumentError
from penstock.storage.secret import Secret
from penstock.storage.urls import is_secret_name


@dataclass(frozen=True)
class RemoteProvider(Provider):
    """A provider at ``base_url``. Every request has ``headers``.

    Without ``api_key`` the key is the first of ``key_variables`` that is set. A provider without ``key_variables``
    needs no key.
    """

    base_url: str | None = None
    api_key: Any = None  # a text or a Secret; stored as a Secret
    headers: Any = ()  # a mapping; stored as pairs, with Secrets as values of secret headers
    name: str = ""
    key_variables: ClassVar[tuple[str, ...]] = ()
    url_variable: ClassVar[str | None] = None
    default_url: ClassVar[str] = ""
    key_header: ClassVar[tuple[str, str]] = ("Authorization", "Bearer {}")
    version_path: ClassVar[str] = ""  # the end of an address with which the paths of calls begin

    def __post_init__(self) -> None:
        variable = self.key_variables[0] if self.key_variables else None
        object.__setattr__(self, "api_key", checked_key(self.api_key, variable))
        object.__setattr__(self, "headers", checked_headers(self.headers))
        if self.base_url is not None:
            object.__setattr__(self, "base_url", checked_address(self.base_url))

    def address(self) -> str:
        """Return ``base_url``, or the address in ``url_variable``, or the default."""
        named = os.environ.get(self.url_variable) if self.url_variable else None
        return checked_address(self.base_url or named or self.default_url)

    def key(self) -> Secret | None:
        """Return the key, None if the provider needs none, or raise an error."""
        if self.api_key is not None or not self.key_variables:
            key: Secret | None = self.api_key
            return key
        for variable in self.key_variables:
            if value := os.environ.get(variable):
                return checked_key(value, variable, what=variable)
        raise AuthenticationError(
            f"Provider {self.name!r} has no API key; set {' or '.join(self.key_variables)}, or "
            f"ps.set_provider({self.name!r}, api_key=...). For a server without keys set api_key='none'."
        )

    def endpoint(self) -> Endpoint:
        """Return the server. Raise an error if it needs a key and has none."""
        key, address = self.key(), self.address()
        base_url = without_end(address, self.version_path) if self.version_path else address
        return Endpoint(self.name, base_url, key, self.key_header, self.headers)


def checked_key(given: Any, variable: str | None = None, what: str = "api_key") -> Secret | None:
    """Check a key and return it as a Secret. A saved plan reads it again from ``variable``.

    A line break at its end, as in files, is removed.
    """
    if given is None:
        return None
    if not isinstance(given, str | Secret):
        raise InvalidArgumentError(f"{what} must be a text or a Secret; got {type(given).__name__}.")
    text = given.reveal() if isinstance(given, Secret) else given
    key = text.rstrip("\r\n")
    if not key.strip():
        raise InvalidArgumentError(f"{what} is empty. Leave it out, or set 'none' for a server without keys.")
    if key != key.strip() or not key.isascii() or not key.isprintable():
        raise InvalidArgumentError(
            f"{what} is not a key: it has spaces at its ends, control characters, or non-ASCII characters."
        )
    if isinstance(given, Secret) and key == text and (given.variable or variable is None):
        return given
    return Secret(key, variable)


def checked_headers(given: Any) -> tuple[tuple[str, str | Secret], ...]:
    """Check headers and return them as pairs, with Secrets as values of secret headers."""
    pairs = given.items() if isinstance(given, Mapping) else given
    if not isinstance(given, Mapping | tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidArgumentError(f"headers must be a dict of names and texts; got {type(given).__name__}.")
    return tuple((str(name), _header_value(str(name), value)) for name, value in pairs)


def _header_value(name: str, value: Any) -> str | Secret:
    if isinstance(value, Secret):
        return value
    text = str(value).rstrip("\r\n")
    if not name.isascii() or not name.isprintable() or not text.isprintable():
        raise InvalidArgumentError(f"headers: {name!r} has control characters in its name or value.")
    if not is_secret_name(name):
        return text
    Secret(text.rpartition(" ")[2])  # hide the key without "Bearer" too: a server may quote it alone
    return Secret(text)
