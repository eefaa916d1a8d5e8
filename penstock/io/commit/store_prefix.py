"""A prefix of an object store, as a write and a job see it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.errors import PathNotFoundError
from penstock.storage.objects import ObjectStore
from penstock.storage.options import StorageOptions, endpoint_of
from penstock.storage.stores import object_store
from penstock.storage.urls import KINDS, scheme_of


@dataclass(frozen=True)
class StorePrefix:
    """Where ``root`` is: its client and its keys. Picklable."""

    root: str
    options: StorageOptions = field(default_factory=StorageOptions)

    @property
    def client(self) -> ObjectStore:
        return object_store(scheme_of(self.root), self._path.partition("/")[0], self.options)

    @property
    def _path(self) -> str:
        return self.root[len(scheme_of(self.root)) + len("://") :]

    def key(self, *names: str) -> str:
        """Return the key of a name below the root."""
        return "/".join(name for name in (self._path.partition("/")[2], *names) if name)

    @property
    def digest(self) -> str:
        """A name for the root that is safe as the name of a local folder."""
        endpoint = endpoint_of(KINDS[scheme_of(self.root)], self.options)
        return hashlib.blake2b(f"{endpoint} {self.root}".encode(), digest_size=10).hexdigest()

    def exists(self, key: str) -> bool:
        try:
            self.client.size(key)
        except PathNotFoundError:
            return False
        return True

    def sizes_below(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield the objects below a folder: their names relative to the root, and their sizes."""
        length = len(self.key()) + 1 if self.key() else 0
        for entry in self.client.list_below(self.key(folder)):
            if entry.size is not None:
                yield entry.key[length:], entry.size
