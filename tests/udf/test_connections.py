"""What a client keeps open for its next call is closed with its worker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as ps

KEPT: list[Any] = []  # as a client's pool keeps its connections: the garbage collector does not close them


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        yield server
    KEPT.clear()


def is_closed_by_the_client(listener: socket.socket) -> bool:
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(5)
        return connection.recv(1) == b""


async def connected(port: int) -> None:
    KEPT.append(await asyncio.open_connection("127.0.0.1", port))


def test_of_a_cls_without_close(listener: socket.socket, runner: str) -> None:
    @ps.cls
    class Client:
        def __init__(self, port: int) -> None:
            self.port = port

        async def ask(self, x: int) -> int:
            await connected(self.port)
            return x

    client = Client(listener.getsockname()[1])
    assert ps.range(1).select(client.ask(ps.col("id"))).to_pydict() == {"id": [0]}
    assert runner == "ray" or KEPT
    assert is_closed_by_the_client(listener)


def test_of_an_async_function_over_batches(listener: socket.socket, runner: str) -> None:
    async def ask(batch: dict[str, Any], port: int) -> dict[str, Any]:
        await connected(port)
        return batch

    df = ps.range(1).map_batches(ask, fn_kwargs={"port": listener.getsockname()[1]})
    assert df.take_all() == [{"id": 0}]
    assert runner == "ray" or KEPT
    assert is_closed_by_the_client(listener)


@pytest.mark.one_machine
def test_also_where_an_async_close_fails_which_is_logged(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    @ps.cls
    class Client:
        def __init__(self, port: int) -> None:
            self.port = port

        async def ask(self, x: int) -> int:
            await connected(self.port)
            return x

        async def close(self) -> None:
            raise ValueError("already closed")

    client = Client(listener.getsockname()[1])
    assert ps.range(1).select(client.ask(ps.col("id"))).to_pydict() == {"id": [0]}
    assert "Client.close() failed" in caplog.text
    assert is_closed_by_the_client(listener)
