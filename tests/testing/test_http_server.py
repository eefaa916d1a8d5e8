"""Requests may arrive in any pieces, and are answered in their order."""

from __future__ import annotations

import socket

import orjson
import pytest

from penstock.testing import ModelServer, faults
from tests.testing.client import ask, until


def post(text: str, **headers: str) -> bytes:
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text}]})
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_texts(sock: socket.socket, num_answers: int) -> list[str]:
    """Return the texts of so many answers."""
    texts = []
    with sock.makefile("rb") as stream:
        for _ in range(num_answers):
            assert stream.readline().startswith(b"HTTP/1.1 200")
            headers = dict(line.split(b": ", 1) for line in iter(stream.readline, b"\r\n"))
            body = orjson.loads(stream.read(int(headers[b"content-length"])))
            texts.append(body["choices"][0]["message"]["content"])
    return texts


def test_requests_in_pieces(server: ModelServer) -> None:
    data = post("first") + post("second")
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), 7):
            sock.sendall(data[start : start + 7])
        assert read_texts(sock, 2) == ["first", "second"]


CHUNKED = b"POST /v1/responses HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "data", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"x" * 100_000, CHUNKED]
)
def test_invalid_http_is_answered_by_400(server: ModelServer, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(data)
        assert sock.recv(1000).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_pipelined_requests_are_answered_in_order(server: ModelServer) -> None:
    server.change(faults=[faults.Delay(0.05, at=1)])
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(post("first") + post("second") + post("third"))
        assert read_texts(sock, 3) == ["first", "second", "third"]
    assert server.max_in_flight == 1


def test_a_connection_is_closed_if_asked(server: ModelServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(post("hello", Connection="close"))
        assert b"hello" in sock.makefile("rb").read()


def test_bodies_that_are_no_objects(server: ModelServer) -> None:
    for body in (b"{", b"[]", b'{"model": "m", "messages": [1]}', b'{"model": "m", "messages": 1}'):
        reply = ask(server, "/v1/chat/completions", body)
        assert (reply.status, reply.body["error"]["type"]) == (400, "invalid_request_error")
    assert ask(server, "/v1/nowhere", b"{}").status == 404


def test_requests_at_once_are_counted(server: ModelServer) -> None:
    server.change(faults=[faults.Hang()])
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    for number, sock in enumerate(sockets):
        sock.sendall(post(str(number)))
        until(lambda: server.counts.in_flight == number + 1)  # noqa: B023
    assert [seen.in_flight for seen in server.requests] == [1, 2, 3, 4, 5]
    assert [seen.body["messages"][0]["content"] for seen in server.requests] == list("01234")
    for sock in sockets:
        sock.close()
    until(lambda: server.counts.in_flight == 0)
    counts = server.counts
    assert (counts.requests, counts.max_in_flight, counts.dropped, counts.max_connections) == (5, 5, 5, 5)
    server.clear()
    assert (server.num_requests, server.requests) == (0, [])
