"""Turbopuffer: send rows as documents to a namespace of its HTTP API, in requests of bounded size."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import ColumnNotFoundError, InvalidArgumentError, StoreUnavailableError, WriteError
from penstock.io.formats.json_values import json_texts
from penstock.storage.event_loop import wait_for
from penstock.storage.http import retry_after_s, with_retries
from penstock.types import Schema
from penstock.types.plain import arrow_array

NAMESPACE = "__namespace"  # the column with the namespace of each row, for a write to several
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
    """A ``Sink`` into one namespace, or into that of each row.

    The API has no transactions: documents are visible as they are written. Each is written by its id, so a write that
    failed can run again from the start and leaves the same documents.
    """

    namespace: str | None  # None: the column NAMESPACE names it
    base_url: str
    api_key: str = field(repr=False)
    id_column: str = "id"
    vector_column: str | None = None
    write_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, str]:
        """The columns that have another name in a document, with that name."""
        return {self.id_column: "id"} | ({} if self.vector_column is None else {self.vector_column: "vector"})

    @property
    def name(self) -> str:
        return f"turbopuffer {self.namespace or 'namespaces'}"

    def start(self) -> None:
        """Do nothing: there is no staging."""

    def open(self) -> TurbopufferWriter:
        return TurbopufferWriter(self)

    def open_part(self, first_row: int) -> TurbopufferWriter:
        """Return a writer. A part that is written again leaves the same documents."""
        return TurbopufferWriter(self)

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table:
        names = sorted({name for record in records for name in record})
        rows = [sum(record.get(name, 0) for record in records) for name in names]
        return pa.table({"namespace": arrow_array(names, pa.string()), "rows": arrow_array(rows, pa.int64())})

    def abort(self) -> None:
        """Do nothing: written documents look the same as older ones."""


class TurbopufferWriter:
    """Sends batches, a few requests at a time, over one pool of connections."""

    def __init__(self, sink: TurbopufferSink) -> None:
        self._sink = sink
        self._client: Any = None
        self._rows: dict[str, int] = {}

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
        if batch.num_rows:
            try:
                wait_for(self._send_all(batch))
            except ExceptionGroup as failed:  # the first to fail cancels the others
                raise failed.exceptions[0] from None
        return []

    def finish(self) -> Iterable[dict[str, Any]]:
        return [self._rows]

    def close(self) -> None:
        if self._client is not None:
            wait_for(self._client.close())

    async def _send_all(self, batch: pa.RecordBatch) -> None:
        import aiohttp

        if self._client is None:
            self._client = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {self._sink.api_key}", "Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            )
        slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def send(namespace: str, rows: pa.RecordBatch) -> None:
            async with slots:
                await self._send(namespace, self._documents(rows))

        async with asyncio.TaskGroup() as group:
            for namespace, rows in self._by_namespace(batch):
                for piece in _pieces(rows):
                    group.create_task(send(namespace, piece))

    async def _send(self, namespace: str, documents: list[dict[str, Any]]) -> None:
        import orjson

        url = f"{self._sink.base_url}/v2/namespaces/{namespace}"
        body = orjson.dumps({"upsert_rows": documents, **self._sink.write_options}, option=orjson.OPT_SERIALIZE_NUMPY)
        try:
            await with_retries(lambda: self._post(url, body), MAX_RETRIES)
        except (StoreUnavailableError, WriteError) as exc:
            raise WriteError(
                f"Cannot write {len(documents)} rows to the namespace {namespace!r} of turbopuffer: {exc}"
            ) from exc
        self._rows[namespace] = self._rows.get(namespace, 0) + len(documents)

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

    def _by_namespace(self, batch: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
        if self._sink.namespace is not None:
            yield self._sink.namespace, batch
            return
        import pyarrow.compute as pc

        names, rows = batch.column(NAMESPACE), batch.drop_columns([NAMESPACE])
        for name in names.unique().to_pylist():
            yield checked_namespace(name), rows.filter(pc.equal(names, name))

    def _documents(self, rows: pa.RecordBatch) -> list[dict[str, Any]]:
        names = self._sink.names
        columns = [_sendable(column) for column in rows.columns]
        renamed = pa.RecordBatch.from_arrays(columns, [names.get(name, name) for name in rows.schema.names])
        if renamed.column("id").null_count:
            raise WriteError(f"write_turbopuffer: column {self._sink.id_column!r} has nulls; every row needs an id.")
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if not _is_finite(column):
                raise WriteError(
                    f"write_turbopuffer: column {name!r} holds NaN or an infinity, which JSON cannot hold; "
                    "replace it, or leave out its row."
                )
        return list(renamed.to_pylist())


def turbopuffer_sink(
    namespace: str | None,
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
    client = {"api_key": api_key or os.environ.get("TURBOPUFFER_API_KEY"), "region": region} | dict(client_kwargs or {})
    if unknown := set(client) - {"api_key", "region", "base_url"}:
        raise InvalidArgumentError(f"client_kwargs: {min(unknown)!r} is not known; use api_key, region, base_url.")
    if not client["api_key"]:
        raise InvalidArgumentError("write_turbopuffer needs api_key=, or TURBOPUFFER_API_KEY in the environment.")
    base_url = client.get("base_url") or (client["region"] and f"https://{client['region']}.turbopuffer.com")
    if not base_url:
        raise InvalidArgumentError("write_turbopuffer needs region=, such as 'gcp-us-central1'.")
    if distance_metric is not None and distance_metric not in _METRICS:
        raise InvalidArgumentError(f"distance_metric={distance_metric!r} is not one of {', '.join(_METRICS)}.")
    for column in (id_column or "id", *([vector_column] if vector_column else ())):
        if column not in schema:
            raise ColumnNotFoundError(column, schema.names, "write_turbopuffer")
    options = {"distance_metric": distance_metric, "schema": attributes} | dict(write_kwargs or {})
    sink = TurbopufferSink(
        None if namespace is None else checked_namespace(namespace),
        str(base_url).rstrip("/"),
        str(client["api_key"]),
        id_column or "id",
        vector_column,
        {name: value for name, value in options.items() if value is not None},
    )
    _check_columns(sink, schema)
    return sink


def _check_columns(sink: TurbopufferSink, schema: Schema) -> None:
    for given, name in sink.names.items():
        if given != name and name in schema:
            raise InvalidArgumentError(
                f"write_turbopuffer: {name}_column={given!r} becomes {name!r} in a document, and there is another "
                f"column {name!r}; rename that one or leave it out."
            )
    for column in schema.to_arrow():
        if _has_bytes(column.type):
            raise InvalidArgumentError(
                f"write_turbopuffer: column {column.name!r} holds bytes, which JSON cannot hold; cast it to string "
                "if they are UTF-8, encode them as text (base64), or leave the column out."
            )


def checked_namespace(name: Any) -> str:
    """Return a valid name of a namespace, which becomes part of a URL."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"namespace={name!r} must have 1 to 128 letters, digits, hyphens, underscores and periods."
        )
    return name


def _pieces(rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    per_piece = max(1, min(ROWS_PER_REQUEST, rows.num_rows * REQUEST_NBYTES // max(rows.nbytes, 1)))
    for start in range(0, rows.num_rows, per_piece):
        yield rows.slice(start, per_piece)


def _has_bytes(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return False  # sent as lists, or as JSON text
    if pa.types.is_list(dtype) or pa.types.is_fixed_size_list(dtype):
        return _has_bytes(dtype.value_type)
    return bool(pa.types.is_binary(dtype) or pa.types.is_fixed_size_binary(dtype))


def _is_finite(column: pa.Array) -> bool:
    """Return whether all numbers of a column of numbers or vectors are finite."""
    import pyarrow.compute as pc

    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    while pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    return not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column)).as_py() is not False


def _sendable(column: pa.Array) -> pa.Array:
    """Return a column as values that JSON can hold: vectors as lists, times as text, structs as JSON text."""
    dtype = column.type
    if isinstance(dtype, pa.BaseExtensionType):
        return column.storage if pa.types.is_fixed_size_list(dtype.storage_type) else json_texts(column)
    if pa.types.is_temporal(dtype) or pa.types.is_decimal(dtype):
        return column.cast(pa.string())
    return json_texts(column) if pa.types.is_struct(dtype) or pa.types.is_map(dtype) else column
