"""A dataset hub on loopback: the endpoints that huggingface_hub uses to list, read and commit files, no more."""

from __future__ import annotations

import base64
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Keeps files by repository, branch and path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.repos: dict[str, dict[str, dict[str, bytes]]] = {}
        self.commits: list[list[dict[str, Any]]] = []
        self.tokens: set[str | None] = set()
        self.refuses_commits = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def running_hub() -> Iterator[Hub]:
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        # A revision may hold slashes, as refs/convert/parquet does; huggingface_hub quotes them.
        raw = urllib.parse.urlsplit(self.path).path
        if found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", raw):
            repo, revision, name = (urllib.parse.unquote(part) for part in found.groups())
            return self._send_file(self._files(repo, revision), name)
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/tree/([^/]+)(?:/(.+))?", raw):
            repo, revision, folder = (urllib.parse.unquote(part or "") for part in found.groups())
            return self._send_tree(self._files(repo, revision), folder)
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+?)(?:/revision/([^/]+))?", raw):
            repo, revision = found[1], urllib.parse.unquote(found[2] or "main")
            files = self._files(repo, revision)
            if files is None:
                return self._send_missing(repo)
            return self._send_json({"id": repo, "sha": SHA, "siblings": [{"rfilename": name} for name in files]})
        return self._send_missing(path)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        self.server.tokens.add(self.headers.get("Authorization"))
        body = self._body()
        raw = urllib.parse.urlsplit(self.path).path
        if raw == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked.get('organization') or 'user'}/{asked['name']}"
            status = 409 if repo in self.server.repos else 200
            self.server.repos.setdefault(repo, {"main": {}})
            return self._send_json({"url": f"{self.server.url}/datasets/{repo}", "name": repo}, status)
        found = re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/(paths-info|preupload|commit)/([^/]+)", raw)
        if not found:
            return self._send_missing(raw)
        repo, action, revision = found[1], found[2], urllib.parse.unquote(found[3])
        files = self._files(repo, revision)
        if files is None:
            return self._send_missing(repo)
        if action == "paths-info":
            wanted = urllib.parse.parse_qs(body.decode()).get("paths", [])
            return self._send_json([entry for name in wanted for entry in _entries(files, name)])
        if action == "preupload":
            asked = json.loads(body)["files"]
            modes = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in asked]
            return self._send_json({"files": modes})
        if self.server.refuses_commits:
            return self._send_json({"error": "no"}, 403)
        operations = [json.loads(line) for line in body.splitlines()]
        self.server.commits.append(operations)
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "deletedFile":
                del files[value["path"]]
        return self._send_json({"commitUrl": f"{self.server.url}/datasets/{repo}/commit/{SHA}", "commitOid": SHA})

    def _files(self, repo: str, revision: str) -> dict[str, bytes] | None:
        return self.server.repos.get(repo, {}).get("main" if revision == SHA else revision)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _send_tree(self, files: dict[str, bytes] | None, folder: str) -> None:
        if files is None:
            return self._send_missing(folder)
        prefix = f"{folder}/" if folder else ""
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        below = {name for name in files if name.startswith(prefix)}
        names = {name if "true" in map(str.lower, query.get("recursive", [])) else
                 prefix + name[len(prefix) :].partition("/")[0] for name in below}  # fmt: skip
        return self._send_json([entry for name in sorted(names) for entry in _entries(files, name)])

    def _send_file(self, files: dict[str, bytes] | None, name: str) -> None:
        if files is None or name not in files:
            return self._send_missing(name)
        content, status, headers = files[name], 200, {"ETag": '"x"', "X-Repo-Commit": SHA, "Accept-Ranges": "bytes"}
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(asked[1]), int(asked[2] or len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{min(last, len(content) - 1)}/{len(content)}"
            content, status = content[first : last + 1], 206
        return self._send(content, status, headers)

    def _send_missing(self, what: str) -> None:
        self._send(json.dumps({"error": f"{what} not found"}).encode(), 404, {"X-Error-Code": "RepoNotFound"})

    def _send_json(self, value: Any, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), status, {"Content-Type": "application/json"})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _entries(files: dict[str, bytes], name: str) -> Iterator[dict[str, Any]]:
    if name in files:
        yield {"type": "file", "path": name, "size": len(files[name]), "oid": SHA}
    elif any(other.startswith(f"{name}/") for other in files):
        yield {"type": "directory", "path": name, "oid": SHA}
