"""Small JSON documents in the folder of a job, such as its description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.io.commit.output import JOB_FOLDER, writing
from penstock.io.commit.place import Place

Note = dict[str, Any]


class Notes:
    """The JSON documents of a job, by name."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def read(self, name: str) -> Note | None:
        """Return a note, None if it does not exist."""
        content = self._place.read(f"{JOB_FOLDER}/{name}.json")
        try:
            found: Note | None = None if content is None else json.loads(content)
        except ValueError:  # a torn note belongs to a job that had not begun
            return None
        return found

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a note; returns when it is durable."""
        with writing(self._place.root):
            self._place.write(f"{JOB_FOLDER}/{name}.json", json.dumps(content, indent=1).encode())

    def delete(self, name: str) -> None:
        with writing(self._place.root):
            self._place.delete([f"{JOB_FOLDER}/{name}.json"])
