"""OpenAI's files: kept in memory."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.testing.apis.exchange import BadRequestError, new_id
from penstock.testing.http1 import HttpRequest


@dataclass(slots=True)
class StoredFile:
    id: str
    filename: str
    purpose: str
    content: bytes
    created_at: int

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "file",
            "bytes": len(self.content),
            "created_at": self.created_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
            "expires_at": None,
        }


class Files:
    """Every file by its id."""

    def __init__(self) -> None:
        self._files: dict[str, StoredFile] = {}

    def add(self, filename: str, purpose: str, content: bytes) -> StoredFile:
        stored = StoredFile(new_id("file-"), filename, purpose, content, int(time.time()))
        self._files[stored.id] = stored
        return stored

    def get(self, file_id: str) -> StoredFile:
        if file_id not in self._files:
            raise BadRequestError(f"No such File object: {file_id}", 404)
        return self._files[file_id]

    def action(self, method: str, path: str, request: HttpRequest) -> Callable[[], dict[str, Any] | bytes] | None:
        """Return what a request for files does, None if there is no such thing."""
        match method, path.strip("/").split("/"):
            case "POST", ["files"]:
                return lambda: self._upload(request)
            case "GET", ["files"]:
                return self._listed
            case "GET", ["files", file_id]:
                return lambda: self.get(file_id).shown()
            case "GET", ["files", file_id, "content"]:
                return lambda: self.get(file_id).content
            case "DELETE", ["files", file_id]:
                return lambda: self._deleted(file_id)
        return None

    def _upload(self, request: HttpRequest) -> dict[str, Any]:
        parts = multipart(request.head.headers.get("content-type", ""), request.body)
        if "file" not in parts or "purpose" not in parts:
            raise BadRequestError("'file' and 'purpose' are required, as parts of a form.")
        filename, content = parts["file"]
        return self.add(filename or "upload", parts["purpose"][1].decode(), content).shown()

    def _listed(self) -> dict[str, Any]:
        shown = [stored.shown() for stored in reversed(self._files.values())]
        return listing(shown)

    def _deleted(self, file_id: str) -> dict[str, Any]:
        del self._files[self.get(file_id).id]
        return {"id": file_id, "object": "file", "deleted": True}


def multipart(content_type: str, body: bytes) -> dict[str, tuple[str | None, bytes]]:
    """Return the parts of a form by name, each with its file name, if it has one.

    >>> body = b'--b\\r\\nContent-Disposition: form-data; name="purpose"\\r\\n\\r\\nbatch\\r\\n--b--\\r\\n'
    >>> multipart("multipart/form-data; boundary=b", body)
    {'purpose': (None, b'batch')}
    """
    found = re.search(r'boundary="?([^";]+)"?', content_type)
    if found is None:
        raise BadRequestError("The body must be multipart/form-data.")
    parts: dict[str, tuple[str | None, bytes]] = {}
    for part in (b"\r\n" + body).split(b"\r\n--" + found[1].encode())[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        names = dict(re.findall(r'\b(name|filename)="([^"]*)"', head.decode(errors="replace")))
        parts[names.get("name", "")] = (names.get("filename"), content)
    return parts


def listing(shown: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a list as OpenAI gives it, all of it on one page."""
    ids = [item["id"] for item in shown]
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return {"object": "list", "data": shown, "first_id": first, "last_id": last, "has_more": False}
