"""API keys and credentials of stores: plans carry them without showing them or writing them to disk."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping

from penstock.errors import AuthenticationError

_revealed: dict[str, str] = {}  # by fingerprint, for this process only
_SEAL = re.compile("secret-([0-9a-f]{16})")


class Secret:
    """A key or password. It prints as stars; a pickle has its fingerprint and the environment variable it came from.

    The process that unpickles it must know the key: a query passes it to its workers (``known_secrets``), and a plan
    that was saved to disk takes it from the environment.

    >>> secret = Secret("sk-live-1234")
    >>> secret, str(secret), secret.reveal()
    (Secret('***'), '***', 'sk-live-1234')
    """

    __slots__ = ("_fingerprint", "_variable")

    def __init__(self, value: str, variable: str | None = None) -> None:
        self._fingerprint = hashlib.sha256(value.encode()).hexdigest()[:16]
        self._variable = variable
        _revealed[self._fingerprint] = value

    @property
    def variable(self) -> str | None:
        """The environment variable that also holds the key."""
        return self._variable

    def reveal(self) -> str:
        """Return the key."""
        if (value := _revealed.get(self._fingerprint)) is not None:
            return value
        if self._variable and (value := os.environ.get(self._variable)):
            return value.rstrip("\r\n")
        remedy = f"set {self._variable}" if self._variable else "make the DataFrame again with the key"
        raise AuthenticationError(
            f"This plan was saved without a key that it needs, as keys are never saved; {remedy}."
        )

    def __repr__(self) -> str:
        return "Secret('***')"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._fingerprint == other._fingerprint

    def __hash__(self) -> int:
        return hash(self._fingerprint)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self._fingerprint, self._variable)


def sealed(value: str) -> str:
    """Return a text that stands for a key, to put into an address. Sealing it again changes nothing.

    >>> sealed("sk-live-1234")
    'secret-13c769a106e34070'
    >>> unsealed(f"http://host/v1?code={sealed('sk-live-1234')}")
    'http://host/v1?code=sk-live-1234'
    """
    return value if _SEAL.fullmatch(value) else f"secret-{Secret(value)._fingerprint}"


def unsealed(text: str) -> str:
    """Return a text with the keys that its seals stand for."""
    return _SEAL.sub(lambda seal: _restored(seal[1], None).reveal(), text)


def known_secrets() -> Mapping[str, str]:
    """Return the keys that this process knows, to pass them to the workers of a query."""
    return dict(_revealed)


def restore_secrets(secrets: Mapping[str, str]) -> None:
    """Make keys of another process known in this one."""
    _revealed.update(secrets)


def hidden(text: str) -> str:
    """Return a text without the keys that this process knows, since servers quote them in errors.

    >>> _ = Secret("sk-live-1234")
    >>> hidden("Incorrect API key provided: sk-live-1234.")
    'Incorrect API key provided: ***.'
    """
    for value in _revealed.values():
        if len(value) >= 6:  # a shorter one, such as "none", may be a word
            text = text.replace(value, "***")
    return text


def _restored(fingerprint: str, variable: str | None) -> Secret:
    secret = Secret.__new__(Secret)
    secret._fingerprint, secret._variable = fingerprint, variable
    return secret
