"""Small JSON documents in the folder of a job, such as its description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import PathNotFoundError
from penstock.io.commit.output import JOB_FOLDER, writing
from penstock.io.commit.store_prefix import StorePrefix
from penstock.storage.durable import replace_file

Note = dict[str, Any]


class Notes(Protocol):
    """JSON documents by name."""

    def read(self, name: str) -> Note | None:
        """Return a note, None if it does not exist."""
        ...

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a note; returns when it is durable."""
        ...

    def delete(self, name: str) -> None: ...


class LocalNotes:
    """Implements ``Notes`` on disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _path(self, name: str) -> Path:
        return self._root / JOB_FOLDER / f"{name}.json"

    def read(self, name: str) -> Note | None:
        try:
            found: Note = json.loads(self._path(name).read_text())
        except (FileNotFoundError, ValueError):  # a torn note belongs to a job that had not begun
            return None
        return found

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        with writing(self._root):
            replace_file(self._path(name), json.dumps(content, indent=1).encode())

    def delete(self, name: str) -> None:
        with writing(self._root):
            self._path(name).unlink(missing_ok=True)


class StoreNotes:
    """Implements ``Notes`` on an object store."""

    def __init__(self, place: StorePrefix) -> None:
        self._place = place

    def _key(self, name: str) -> str:
        return self._place.key(JOB_FOLDER, f"{name}.json")

    def read(self, name: str) -> Note | None:
        try:
            found: Note = json.loads(self._place.client.read(self._key(name)))
        except PathNotFoundError:
            return None
        return found

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        with writing(self._place.root):
            self._place.client.put(self._key(name), json.dumps(content, indent=1).encode())

    def delete(self, name: str) -> None:
        with writing(self._place.root):
            self._place.client.delete([self._key(name)])
