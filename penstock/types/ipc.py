"""Serialize batches to one buffer, to send them to another process."""

from __future__ import annotations

import pyarrow as pa


def to_ipc(batch: pa.RecordBatch, compression: str | None = None) -> pa.Buffer:
    """Return a batch as an IPC stream, compressed if a codec (``zstd``, ``lz4``) is named.

    Pickle stores all of the array that a slice belongs to, and loses the number of rows of a batch without columns.

    >>> from_ipc(to_ipc(pa.record_batch({"a": [1, 2, 3]}).slice(1))).to_pydict()
    {'a': [2, 3]}
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def from_ipc(buffer: pa.Buffer) -> pa.RecordBatch:
    """Return the batch, which reads the buffer in place."""
    return pa.ipc.open_stream(buffer).read_next_batch()
