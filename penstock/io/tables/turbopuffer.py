"""Turbopuffer: send rows as documents to a namespace of its HTTP API, in requests of bounded size."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import (
    ColumnNotFoundError,
    InvalidArgumentError,
    StoreUnavailableError,
    WriteError,
    check_choice,
)
from penstock.io.formats.json_values import encoded, plain_rows
from penstock.storage.event_loop import wait_for
from penstock.storage.http import retry_after_s, with_retries
from penstock.types import Schema

ROWS_PER_REQUEST = 1000
REQUEST_NBYTES = 8 * 2**20
REQUESTS_AT_ONCE = 4  # requests of one writer at a time
MAX_RETRIES = 8
TIMEOUT_S = 120.0

_RETRIED = {408, 409, 429, 500, 502, 503, 504}
_METRICS = ("cosine_distance", "euclidean_squared")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True)
class TurbopufferSink:
    """A ``Sink`` into one namespace.

    The API has no transactions: documents are visible as they are written. Each is written by its id, so a write that
    failed can run again from the start and leaves the same documents.
    """

    namespace: str
    base_url: str
    api_key: str = field(repr=False)
    names: Mapping[str, str]  # of columns that have another name in a document
    write_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"turbopuffer {self.namespace}"

    def start(self) -> None:
        """Do nothing: there is no staging."""

    def open(self) -> TurbopufferWriter:
        return TurbopufferWriter(self)

    def open_part(self, first_row: int) -> TurbopufferWriter:
        """Return a writer. A part that is written again leaves the same documents."""
        return TurbopufferWriter(self)

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table:
        rows = sum(record["rows"] for record in records)
        return pa.table({"namespace": [self.namespace], "rows": pa.array([rows], pa.int64())})

    def abort(self) -> None:
        """Do nothing: written documents look the same as older ones."""


class TurbopufferWriter:
    """Sends batches, a few requests at a time, over one pool of connections."""

    def __init__(self, sink: TurbopufferSink) -> None:
        self._sink = sink
        self._client: Any = None
        self._num_rows = 0

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
        try:
            wait_for(self._send_all([self._documents(rows) for rows in _pieces(batch)]))
        except ExceptionGroup as failed:  # the first to fail cancels the others
            raise failed.exceptions[0] from None
        self._num_rows += batch.num_rows
        return []

    def finish(self) -> Iterable[dict[str, Any]]:
        return [{"rows": self._num_rows}]

    def close(self) -> None:
        if self._client is not None:
            wait_for(self._client.close())

    def _documents(self, rows: pa.RecordBatch) -> list[bytes]:
        """Return the rows as JSON, as ``write_json`` writes them."""
        import orjson

        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if self._sink.names.get(name, name) == "id" and column.null_count:
                raise WriteError(f"write_turbopuffer: column {name!r} has nulls; every row needs an id.")
            if not _is_finite(column):
                raise WriteError(
                    f"write_turbopuffer: column {name!r} holds NaN or an infinity, which JSON cannot hold; "
                    "replace it, or leave out its row."
                )
        names = [self._sink.names.get(name, name) for name in rows.schema.names]
        return encoded(plain_rows(rows.rename_columns(names)), orjson.OPT_SERIALIZE_NUMPY)

    async def _send_all(self, pieces: Sequence[list[bytes]]) -> None:
        import aiohttp

        if self._client is None:
            self._client = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {self._sink.api_key}", "Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            )
        slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def send(documents: list[bytes]) -> None:
            async with slots:
                await self._send(documents)

        async with asyncio.TaskGroup() as group:
            for documents in pieces:
                group.create_task(send(documents))

    async def _send(self, documents: list[bytes]) -> None:
        import orjson

        url = f"{self._sink.base_url}/v2/namespaces/{self._sink.namespace}"
        body = orjson.dumps({"upsert_rows": list(map(orjson.Fragment, documents)), **self._sink.write_options})
        try:
            await with_retries(lambda: self._post(url, body), MAX_RETRIES)
        except (StoreUnavailableError, WriteError) as exc:
            raise WriteError(
                f"Cannot write {len(documents)} rows to the namespace {self._sink.namespace!r} of turbopuffer: {exc}"
            ) from exc

    async def _post(self, url: str, body: bytes) -> None:
        import aiohttp

        try:
            async with self._client.post(url, data=body) as response:
                if response.status < 300:
                    return
                problem = f"{response.status} {(await response.text())[:500]}"
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise StoreUnavailableError(f"{type(exc).__name__}: {exc}") from exc
        if response.status in _RETRIED:
            raise StoreUnavailableError(problem, retry_after_s(response.headers.get("Retry-After"), time.time()))
        raise WriteError(problem)


def turbopuffer_sink(
    namespace: str,
    *,
    schema: Schema,
    api_key: str | None = None,
    region: str | None = None,
    distance_metric: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    id_column: str | None = None,
    vector_column: str | None = None,
    client_kwargs: Mapping[str, Any] | None = None,
    write_kwargs: Mapping[str, Any] | None = None,
) -> TurbopufferSink:
    """Return the sink for the user's arguments."""
    given: Any = namespace
    if not isinstance(given, str) or not _NAME.fullmatch(given):  # it becomes part of a URL
        raise InvalidArgumentError(
            f"namespace={namespace!r} must have 1 to 128 letters, digits, hyphens, underscores and periods."
        )
    client = {"api_key": api_key or os.environ.get("TURBOPUFFER_API_KEY"), "region": region} | dict(client_kwargs or {})
    if unknown := set(client) - {"api_key", "region", "base_url"}:
        raise InvalidArgumentError(f"client_kwargs: {min(unknown)!r} is not known; use api_key, region, base_url.")
    if not client["api_key"]:
        raise InvalidArgumentError("write_turbopuffer needs api_key=, or TURBOPUFFER_API_KEY in the environment.")
    base_url = client.get("base_url") or (client["region"] and f"https://{client['region']}.turbopuffer.com")
    if not base_url:
        raise InvalidArgumentError("write_turbopuffer needs region=, such as 'gcp-us-central1'.")
    if distance_metric is not None:
        check_choice("distance_metric", distance_metric, _METRICS)
    names = {id_column or "id": "id"} | ({vector_column: "vector"} if vector_column else {})
    for column, name in names.items():
        if column not in schema:
            raise ColumnNotFoundError(column, schema.names, "write_turbopuffer")
        if column != name and name in schema:
            raise InvalidArgumentError(
                f"write_turbopuffer: {name}_column={column!r} becomes {name!r} in a document, and there is another "
                f"column {name!r}; rename that one or leave it out."
            )
    options = {"distance_metric": distance_metric, "schema": attributes} | dict(write_kwargs or {})
    given_options = {name: value for name, value in options.items() if value is not None}
    return TurbopufferSink(namespace, str(base_url).rstrip("/"), str(client["api_key"]), names, given_options)


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    per_piece = max(1, min(ROWS_PER_REQUEST, rows.num_rows * REQUEST_NBYTES // max(rows.nbytes, 1)))
    for start in range(0, rows.num_rows, per_piece):
        yield rows.slice(start, per_piece)


def _is_finite(column: pa.Array) -> bool:
    """Return whether all numbers of a column of numbers or vectors are finite."""
    import pyarrow.compute as pc

    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    while pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    return not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column)).as_py() is not False
