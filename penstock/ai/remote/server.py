"""What providers behind an address have in common: where they are, and the key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.ai.provider import Provider
from penstock.errors import AuthenticationError
from penstock.secret import Secret


@dataclass(frozen=True)
class RemoteProvider(Provider):
    """A provider at ``base_url``. ``headers`` go with every request.

    Without ``api_key`` the first of ``key_variables`` that is set has it; a provider that has none needs no key.
    """

    base_url: str = ""
    api_key: Any = None  # a text or a Secret; a Secret from then on
    headers: Any = ()  # a mapping; pairs from then on
    name: str = ""
    key_variables: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if isinstance(self.api_key, str):
            object.__setattr__(self, "api_key", Secret(self.api_key))
        if isinstance(self.headers, Mapping):
            object.__setattr__(self, "headers", tuple(self.headers.items()))

    def key(self) -> Secret | None:
        """Return the key, or say where to put one."""
        if self.api_key is not None or not self.key_variables:
            key: Secret | None = self.api_key
            return key
        for variable in self.key_variables:
            if value := os.environ.get(variable):
                return Secret(value, variable)
        raise AuthenticationError(
            f"Provider {self.name!r} has no API key; set {' or '.join(self.key_variables)}, or "
            f"ps.set_provider({self.name!r}, api_key=...). A server that takes none gets api_key='none'."
        )
