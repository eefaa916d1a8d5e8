"""OpenAI's files, in memory."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from penstock.testing.apis.model_api import BadRequestError, UnknownUrlError, new_id
from penstock.testing.http_server import HttpRequest


class OpenAIFiles:
    """The description and the content of each file, by its id."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[dict[str, Any], bytes]] = {}

    def add(self, filename: str, purpose: str, content: bytes) -> dict[str, Any]:
        """Store a file and return its description."""
        about: dict[str, Any] = {
            "id": new_id("file-"),
            "object": "file",
            "bytes": len(content),
            "created_at": int(time.time()),
            "filename": filename,
            "purpose": purpose,
        }
        self._files[about["id"]] = (about, content)
        return about

    def get(self, file_id: str) -> tuple[dict[str, Any], bytes]:
        if file_id not in self._files:
            raise BadRequestError(f"No such File object: {file_id}", 404)
        return self._files[file_id]

    def respond(self, request: HttpRequest, path: Sequence[str]) -> dict[str, Any] | bytes:
        """Answer a request for ``/files``; ``path`` is the rest of its path."""
        match request.method, path:
            case "POST", []:
                return self._upload(request)
            case "GET", []:
                return page([about for about, _ in reversed(self._files.values())])
            case "GET", [file_id]:
                return self.get(file_id)[0]
            case "GET", [file_id, "content"]:
                return self.get(file_id)[1]
            case "DELETE", [file_id]:
                self.get(file_id)
                del self._files[file_id]
                return {"id": file_id, "object": "file", "deleted": True}
        raise UnknownUrlError(request.path)

    def _upload(self, request: HttpRequest) -> dict[str, Any]:
        parts = parse_multipart(request.headers.get("content-type", ""), request.body)
        if "file" not in parts or "purpose" not in parts:
            raise BadRequestError("'file' and 'purpose' are required, as parts of a form.")
        filename, content = parts["file"]
        return self.add(filename or "upload", parts["purpose"][1].decode(), content)


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
    return {"object": "list", "data": items, "has_more": False}
