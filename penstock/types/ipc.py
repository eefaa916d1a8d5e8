"""Serialize batches to one buffer, to send them to another process."""

from __future__ import annotations

import pyarrow as pa


def to_ipc(batch: pa.RecordBatch) -> pa.Buffer:
    """Return a batch as an IPC stream.

    Pickle stores all of the array that a slice belongs to, and loses the number of rows of a batch without columns.

    >>> from_ipc(to_ipc(pa.record_batch({"a": [1, 2, 3]}).slice(1))).to_pydict()
    {'a': [2, 3]}
    """
    size = pa.MockOutputStream()  # a buffer that grows would be copied again and again
    _write(batch, size)
    buffer = pa.allocate_buffer(size.size())
    _write(batch, pa.FixedSizeBufferWriter(buffer))
    return buffer


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)


def from_ipc(buffer: pa.Buffer) -> pa.RecordBatch:
    """Return the batch, which reads the buffer in place."""
    return pa.ipc.open_stream(buffer).read_next_batch()
