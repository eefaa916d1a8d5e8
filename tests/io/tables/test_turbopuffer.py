"""turbopuffer, against a server on loopback that stores documents and fails on request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ColumnNotFoundError, InvalidArgumentError, WriteError
from penstock.io.tables import turbopuffer
from penstock.storage import http

KEY = "tpuf-n0t-to-be-seen"


class Server(ThreadingHTTPServer):
    """Keeps documents by namespace and id; ``failures`` are answered first, one by one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.documents: dict[str, dict[Any, Any]] = {}
        self.requests: list[dict[str, Any]] = []
        self.failures: list[tuple[int, dict[str, str]]] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            status, headers = self.server.failures.pop(0) if self.server.failures else (200, {})
            self.server.requests.append({"path": self.path, "key": self.headers["Authorization"], **body})
            if status == 200:
                kept = self.server.documents.setdefault(self.path.rpartition("/")[2], {})
                kept.update({row["id"]: row for row in body["upsert_rows"]})
        content = b'{"status": "OK"}' if status == 200 else b'{"error": "try later"}'
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running_turbopuffer() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with running_turbopuffer() as server:
        yield server


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_DELAY_S", 0.001)


def write(df: ps.DataFrame, server: Server, namespace: Any = "words", **options: Any) -> ps.DataFrame:
    return df.write_turbopuffer(namespace, api_key=KEY, client_kwargs={"base_url": server.url}, **options)


def test_rows_become_documents(server: Server) -> None:
    df = ps.from_pydict({"key": [1, 2], "word": ["a", None], "emb": np.eye(2, dtype=np.float32)})
    written = write(df, server, id_column="key", vector_column="emb", distance_metric="cosine_distance",
                    schema={"word": {"type": "string"}})  # fmt: skip
    assert written.to_pydict() == {"namespace": ["words"], "rows": [2]}
    assert server.documents == {
        "words": {
            1: {"id": 1, "word": "a", "vector": [1.0, 0.0]},
            2: {"id": 2, "word": None, "vector": [0.0, 1.0]},
        }
    }
    [request] = server.requests
    assert request["path"] == "/v2/namespaces/words"
    assert request["key"] == f"Bearer {KEY}"
    assert request["distance_metric"] == "cosine_distance"
    assert request["schema"] == {"word": {"type": "string"}}


def test_requests_are_small(server: Server) -> None:
    assert write(ps.range(5000), server).to_pydict()["rows"] == [5000]
    assert sorted(server.documents["words"]) == list(range(5000))
    assert max(len(request["upsert_rows"]) for request in server.requests) <= turbopuffer.ROWS_PER_REQUEST


def test_what_may_pass_is_tried_again(server: Server) -> None:
    server.failures = [(429, {"Retry-After": "0.001"}), (503, {}), (500, {})]
    assert write(ps.range(3), server).to_pydict()["rows"] == [3]
    assert len(server.requests) == 4


def test_what_cannot_pass_is_an_error(server: Server) -> None:
    server.failures = [(400, {})]
    with pytest.raises(WriteError, match="rows to the namespace 'words' of turbopuffer: 400"):
        write(ps.range(3), server)
    assert len(server.requests) == 1
    server.failures = [(503, {})] * (turbopuffer.MAX_RETRIES + 1)
    with pytest.raises(WriteError, match="503"):
        write(ps.range(3), server)


def test_mistakes_are_reported_before_anything_is_sent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURBOPUFFER_API_KEY", raising=False)
    df = ps.range(1)
    with pytest.raises(InvalidArgumentError, match="needs api_key"):
        df.write_turbopuffer("a", region="x")
    with pytest.raises(InvalidArgumentError, match="needs region"):
        df.write_turbopuffer("a", api_key=KEY)
    with pytest.raises(InvalidArgumentError, match="must have 1 to 128 letters"):
        write(df, server, "../admin")
    with pytest.raises(InvalidArgumentError, match="distance_metric='cos' is not known"):
        write(df, server, distance_metric="cos")
    with pytest.raises(ColumnNotFoundError, match="'vec' not found in write_turbopuffer"):
        write(df, server, vector_column="vec")
    with pytest.raises(WriteError, match="every row needs an id"):
        write(ps.from_pydict({"id": [1, None]}), server)
    assert server.requests == []


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("v", [[1.0, 2.0], None, [1.0, float("nan")]]),
        ("v", np.array([[1, 2], [3, 4], [5, np.inf]], dtype=np.float32)),
        ("x", [0.5, None, float("-inf")]),
    ],
)
def test_numbers_that_json_has_not_are_an_error(server: Server, column: str, values: Any) -> None:
    df = ps.from_pydict({"id": ["a", "b", "c"], column: values})
    with pytest.raises(WriteError, match=f"column '{column}' holds NaN or an infinity"):
        write(df, server)
    assert not server.requests
    write(df.limit(2), server)
    assert len(server.documents["words"]) == 2


def test_columns_that_no_document_can_have(server: Server) -> None:
    with pytest.raises(InvalidArgumentError, match=r"id_column='key' becomes 'id' .* another column 'id'"):
        write(ps.from_pydict({"id": [1], "key": [5]}), server, id_column="key")
    with pytest.raises(InvalidArgumentError, match=r"vector_column='v' becomes 'vector' .* another column 'vector'"):
        write(ps.from_pydict({"id": [1], "v": [[1.0]], "vector": [[2.0]]}), server, vector_column="v")
    assert not server.requests


def test_the_key_is_not_shown(server: Server) -> None:
    sink = turbopuffer.turbopuffer_sink("a", schema=ps.range(1).schema, api_key=KEY, region="r")
    assert KEY not in repr(sink) + sink.name
    server.failures = [(401, {})]
    with pytest.raises(WriteError) as caught:
        write(ps.range(1), server)
    assert KEY not in str(caught.value)
