"""A quick server of objects, as S3 answers a GET: moto's takes 4 ms for each, which hides what a client takes.

`python -m benchmarks.object_server NBYTES` serves objects of so many bytes under any key, on a free port of loopback,
which it prints, until its standard input closes. It checks no signatures.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.s3 import CREDENTIALS

HEADERS = (
    'HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: "a"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n'
    "Accept-Ranges: bytes\r\nContent-Type: application/octet-stream\r\n\r\n"
)


@contextmanager
def serving_any(nbytes: int) -> Iterator[dict[str, str]]:
    """Serve; gives the environment with which clients reach it."""
    command = [sys.executable, "-m", "benchmarks.object_server", str(nbytes)]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}"}
        server.stdin.close()


class Answering(asyncio.Protocol):
    """One connection: every request gets the same object."""

    def __init__(self, nbytes: int) -> None:
        self._head = HEADERS.format(nbytes).encode()
        self._body = b"x" * nbytes
        self._begun = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._begun += data
        while b"\r\n\r\n" in self._begun:
            request, _, self._begun = self._begun.partition(b"\r\n\r\n")
            assert isinstance(self._transport, asyncio.WriteTransport)
            self._transport.write(self._head if request.startswith(b"HEAD") else self._head + self._body)


async def main(nbytes: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(nbytes), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
