"""OpenAI's files, in memory."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.testing.apis.model_api import BadRequestError, new_id
from penstock.testing.http_server import HttpRequest


@dataclass(slots=True)
class StoredFile:
    id: str
    filename: str
    purpose: str
    content: bytes
    created_at: int

    def as_json(self) -> dict[str, Any]:
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


class OpenAIFiles:
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

    def action(self, path: str, request: HttpRequest) -> Callable[[], dict[str, Any] | bytes] | None:
        """Return the function that answers a request for files, None for other requests."""
        match request.method, path.strip("/").split("/"):
            case "POST", ["files"]:
                return lambda: self._upload(request)
            case "GET", ["files"]:
                return lambda: page([stored.as_json() for stored in reversed(self._files.values())])
            case "GET", ["files", file_id]:
                return lambda: self.get(file_id).as_json()
            case "GET", ["files", file_id, "content"]:
                return lambda: self.get(file_id).content
            case "DELETE", ["files", file_id]:
                return lambda: self._delete(file_id)
        return None

    def _upload(self, request: HttpRequest) -> dict[str, Any]:
        parts = parse_multipart(request.headers.get("content-type", ""), request.body)
        if "file" not in parts or "purpose" not in parts:
            raise BadRequestError("'file' and 'purpose' are required, as parts of a form.")
        filename, content = parts["file"]
        return self.add(filename or "upload", parts["purpose"][1].decode(), content).as_json()

    def _delete(self, file_id: str) -> dict[str, Any]:
        del self._files[self.get(file_id).id]
        return {"id": file_id, "object": "file", "deleted": True}


def parse_multipart(content_type: str, body: bytes) -> dict[str, tuple[str | None, bytes]]:
    """Return the file name and the content of each part of a form, by its name.

    >>> body = b'--b\\r\\nContent-Disposition: form-data; name="purpose"\\r\\n\\r\\nbatch\\r\\n--b--\\r\\n'
    >>> parse_multipart("multipart/form-data; boundary=b", body)
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


def page(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return items as a list of the API with one page."""
    ids = [item["id"] for item in items] or [None]
    return {"object": "list", "data": items, "first_id": ids[0], "last_id": ids[-1], "has_more": False}
