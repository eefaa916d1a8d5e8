"""``python -m tests.storage.object_server``: objects in memory behind the APIs of S3, Google and Azure, on loopback.

It is quick (moto takes 4 ms a request), and what there is for Google and Azure. It prints its port, and serves
until stdin closes. Buckets are there when they are first named. Signatures are not checked, but must be there.
"""

from __future__ import annotations

import asyncio
import bisect
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PAGE = 1000
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
REASONS = {200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 206: "Partial Content", 403: "Forbidden"}
REASONS |= {409: "Conflict", 412: "Precondition Failed"}
AZURE_ACCOUNT = "account"  # the first part of a path to Azure, as in its emulator

buckets: dict[str, dict[str, bytes]] = defaultdict(dict)


@dataclass
class Request:
    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    is_azure: bool


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: str = ""
    length: int | None = None  # what a HEAD says


def answer(request: Request) -> Answer:
    objects = buckets[request.bucket]
    if not request.headers.get("authorization"):
        return Answer(403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
    match request.method:
        case "GET" if not request.key:
            page = Page.of(sorted(objects), request.query, request.is_azure)
            return Answer(200, (page.azure(objects) if request.is_azure else page.s3(objects)).encode())
        case "GET" | "HEAD":
            return read(objects.get(request.key), request)
        case "PUT":
            return write(objects, request)
        case "DELETE":
            objects.pop(request.key, None)
            return Answer(204)
        case "POST":
            return delete_several(objects, request)
    return Answer(400)


def read(content: bytes | None, request: Request) -> Answer:
    if content is None:
        return Answer(404, b"<Error><Code>NoSuchKey</Code></Error>" if request.method == "GET" else b"")
    headers = f'ETag: "{hash(content) & 0xFFFFFFFF:x}"\r\nLast-Modified: {DATE}\r\nAccept-Ranges: bytes\r\n'
    if request.method == "HEAD":
        return Answer(200, b"", headers, len(content))
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
    if wanted is None:
        return Answer(200, content, headers)
    start, end = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
    headers += f"Content-Range: bytes {start}-{end}/{len(content)}\r\n"
    return Answer(206, content[start : end + 1], headers)


def write(objects: dict[str, bytes], request: Request) -> Answer:
    names = ("x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source")
    source = next((request.headers[name] for name in names if name in request.headers), None)
    content = request.body
    if source is not None:
        bucket, _, key = unquote(urlsplit(source).path.removeprefix(f"/{AZURE_ACCOUNT}/").lstrip("/")).partition("/")
        if key not in buckets[bucket]:
            return Answer(404)
        content = buckets[bucket][key]
    if request.key in objects and must_be_new(request):
        return Answer(409 if request.is_azure else 412)
    objects[request.key] = content
    headers = f'ETag: "{hash(content) & 0xFFFFFFFF:x}"\r\nLast-Modified: {DATE}\r\nx-goog-generation: 1\r\n'
    if source is not None and not request.is_azure:
        return Answer(200, b'<CopyObjectResult><ETag>"a"</ETag></CopyObjectResult>', headers)
    return Answer((202 if source else 201) if request.is_azure else 200, b"", headers)


def must_be_new(request: Request) -> bool:
    return request.headers.get("if-none-match") == "*" or request.headers.get("x-goog-if-generation-match") == "0"


def delete_several(objects: dict[str, bytes], request: Request) -> Answer:
    """S3 takes a list of keys, Azure a batch of requests, each a part of a multipart body."""
    if not request.is_azure:
        keys = re.findall(r"<Key>(.*?)</Key>", request.body.decode())
        for key in keys:
            objects.pop(unescape(key), None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return Answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())
    parts = []
    for number, path in enumerate(re.findall(r"DELETE (\S+) HTTP", request.body.decode())):
        found = unquote(urlsplit(path).path).removeprefix(f"/{AZURE_ACCOUNT}").removeprefix(f"/{request.bucket}/")
        status = "202 Accepted" if objects.pop(found, None) is not None else "404 The specified blob does not exist."
        parts.append(
            f"--batch_x\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\nHTTP/1.1 {status}\r\n\r\n"
        )
    body = "".join(parts) + "--batch_x--\r\n"
    return Answer(202, body.encode(), "Content-Type: multipart/mixed; boundary=batch_x\r\n")


@dataclass
class Page:
    """A part of a listing."""

    keys: list[str]
    folders: list[str]
    token: str | None

    @classmethod
    def of(cls, keys: list[str], query: dict[str, str], is_azure: bool) -> Page:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        after = query.get("marker" if is_azure else "continuation-token") or query.get("start-after") or ""
        found: list[str] = []
        folders: list[str] = []
        for key in keys[bisect.bisect_right(keys, after) :]:
            if not key.startswith(prefix):
                continue
            head, slash, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            folder = f"{prefix}{head}{slash}"
            if slash and folder not in folders:
                folders.append(folder)
            elif not slash:
                found.append(key)
            if len(found) == PAGE:
                return cls(found, folders, key)
        return cls(found, folders, None)

    def s3(self, objects: dict[str, bytes]) -> str:
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key])}</Size>"
            '<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"a"</ETag></Contents>'
            for key in self.keys
        )
        folders = "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in self.folders)
        token = f"<NextContinuationToken>{escape(self.token)}</NextContinuationToken>" if self.token else ""
        return f"<ListBucketResult>{items}{folders}{token}</ListBucketResult>"

    def azure(self, objects: dict[str, bytes]) -> str:
        items = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{DATE}</Last-Modified>"
            f"<Content-Length>{len(objects[key])}</Content-Length><Content-Type>text/plain</Content-Type>"
            "<Etag>a</Etag></Properties></Blob>"
            for key in self.keys
        )
        folders = "".join(f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" for name in self.folders)
        token = f"<NextMarker>{escape(self.token or '')}</NextMarker>"
        return f"<EnumerationResults><Blobs>{items}{folders}</Blobs>{token}</EnumerationResults>"


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._begun = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._begun += data
        for request in self._requests():
            found = answer(request)
            length = len(found.body) if found.length is None else found.length
            reason = REASONS.get(found.status, "Not Found")
            head = f"HTTP/1.1 {found.status} {reason}\r\nContent-Length: {length}\r\n{found.headers}\r\n"
            self._transport.write(head.encode() + found.body)

    def _requests(self) -> Iterator[Request]:
        while (end := self._begun.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._begun[:end].decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            total = end + 4 + int(headers.get("content-length", 0))
            if len(self._begun) < total:
                return
            body = bytes(self._begun[end + 4 : total])
            del self._begun[:total]
            method, target, _ = first.split(" ")
            parts = urlsplit(target)
            is_azure = parts.path.startswith(f"/{AZURE_ACCOUNT}/")
            path = parts.path.removeprefix(f"/{AZURE_ACCOUNT}" if is_azure else "").lstrip("/")
            bucket, _, key = unquote(path).partition("/")
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            yield Request(method, bucket, key, query, headers, body, is_azure)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
