"""Messages between the driver and a worker process: a pickled head, and Arrow data in shared memory.

The data travels as descriptors of anonymous files. They have no name, so nothing is left behind however a process ends,
and they are not limited by the size of ``/dev/shm``. The writer copies once; the reader maps the same pages. A large
column has a file of its own, so that its pages are freed with it even if other columns are still in use. An answer
names the unchanged columns of the question instead of copying them back.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_HEAD = struct.Struct("<Q")  # length of the pickled head
SMALL_NBYTES = 2**18
MAX_FILES = 64  # per message; the system allows about 250

FilePart = tuple[list[int], int]  # the columns in a file, and their bytes
KnownColumn = tuple[int, int, pa.Field]  # the index of a column, and its index in the batch that both sides have


class PeerClosedError(EOFError):
    """The process on the other side is gone."""


def send(
    sock: socket.socket, message: Any, batch: pa.RecordBatch | None = None, known: pa.RecordBatch | None = None
) -> None:
    """Send a picklable message with an optional batch. Blocks until the other side has room for the message.

    ``known`` is a batch that came from the other side, which passes the original to ``receive``.
    """
    fds: list[int] = []
    parts: list[FilePart] = []
    unchanged: list[KnownColumn] = []
    try:
        if batch is not None:
            unchanged = [] if known is None else unchanged_columns(batch, known)
            others = sorted({*range(batch.num_columns)} - {number for number, _, _ in unchanged})
            for group in columns_by_file([batch.column(number).nbytes for number in others]):
                columns = [others[position] for position in group]
                fds.append(_anonymous_file())
                parts.append((columns, _write(fds[-1], batch.select(columns))))
        head = pickle.dumps((message, parts, unchanged), protocol=pickle.HIGHEST_PROTOCOL)
        if fds:
            socket.send_fds(sock, [_HEAD.pack(len(head))], fds)
            sock.sendall(head)
        else:
            sock.sendall(_HEAD.pack(len(head)) + head)
    except (BrokenPipeError, ConnectionResetError) as exc:
        raise PeerClosedError from exc
    finally:
        for fd in fds:
            os.close(fd)


def receive(sock: socket.socket, known: pa.RecordBatch | None = None) -> tuple[Any, pa.RecordBatch | None]:
    """Return the next message and its batch, which stays valid as long as it is referenced."""
    fds: list[int] = []
    try:
        data, fds, _, _ = socket.recv_fds(sock, _HEAD.size, MAX_FILES)
        if not data:
            raise PeerClosedError
        data += _read_exactly(sock, _HEAD.size - len(data))
        (head_nbytes,) = _HEAD.unpack(data)
        message, parts, unchanged = pickle.loads(_read_exactly(sock, head_nbytes))
        batches = [_read(fd, nbytes) for fd, (_, nbytes) in zip(fds, parts, strict=True)]
        return message, _joined(batches, parts, unchanged, known)
    except ConnectionResetError as exc:
        raise PeerClosedError from exc
    finally:
        for fd in fds:
            os.close(fd)


def unchanged_columns(batch: pa.RecordBatch, known: pa.RecordBatch) -> list[KnownColumn]:
    """Return the columns of ``batch`` that are columns of ``known``: the same memory.

    The buffers of a received batch hold only its own rows, so equal addresses mean equal values. A
    dictionary column's values are not among its buffers, but the engine has no such columns.
    """
    numbers = {_memory(column): number for number, column in enumerate(known.columns)}
    found = [(number, numbers.get(_memory(column))) for number, column in enumerate(batch.columns)]
    return [(number, same, batch.schema.field(number)) for number, same in found if same is not None]


def _memory(column: pa.Array) -> tuple[Any, ...]:
    addresses = [None if buffer is None else buffer.address for buffer in column.buffers()]
    return column.type, len(column), column.offset, *addresses


def columns_by_file(column_nbytes: Sequence[int]) -> list[list[int]]:
    """Assign columns to files: one file for all small columns, and one for each large column up to ``MAX_FILES``.

    >>> columns_by_file([8, 10**6, 8]), columns_by_file([8]), columns_by_file([10**6]), columns_by_file([])
    ([[0, 2], [1]], [[0]], [[0]], [[]])
    """
    large = [number for number, nbytes in enumerate(column_nbytes) if nbytes > SMALL_NBYTES][: MAX_FILES - 1]
    others = [number for number in range(len(column_nbytes)) if number not in large]
    return ([others] if others or not large else []) + [[number] for number in large]


def _joined(
    batches: list[pa.RecordBatch],
    parts: list[FilePart],
    unchanged: list[KnownColumn],
    known: pa.RecordBatch | None,
) -> pa.RecordBatch | None:
    """Return one batch with the columns of all batches, in their original order."""
    if len(batches) < 2 and not unchanged:
        return batches[0] if batches else None
    placed = {
        number: (batch.schema.field(position), batch.column(position))
        for batch, (columns, _) in zip(batches, parts, strict=True)
        for position, number in enumerate(columns)
    }
    for number, same, field in unchanged:
        assert known is not None
        placed[number] = field, known.column(same)
    fields, columns = zip(*(placed[number] for number in sorted(placed)), strict=True)
    return pa.RecordBatch.from_arrays(list(columns), schema=pa.schema(fields, batches[0].schema.metadata))


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("penstock", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _write(fd: int, batch: pa.RecordBatch) -> int:
    with os.fdopen(os.dup(fd), "wb") as file:  # buffered: one system call writes at most 2 GiB
        with pa.ipc.new_stream(file, batch.schema) as stream:
            stream.write_batch(batch)
        return file.tell()


def _read(fd: int, nbytes: int) -> pa.RecordBatch:
    """Return the batch in a file without keeping the file open: a process may hold more batches than open files.

    A small batch is copied, because the number of mappings is limited too.
    """
    if nbytes <= SMALL_NBYTES:
        buffer = pa.py_buffer(os.pread(fd, nbytes, 0))
    else:
        # Mapped as writable: writing to a torch tensor on read-only pages would kill the process.
        with pa.memory_map(f"/dev/fd/{fd}", "r+") as file:
            buffer = file.read_buffer()
    return pa.ipc.open_stream(buffer).read_next_batch()


def _read_exactly(sock: socket.socket, nbytes: int) -> bytes:
    parts = bytearray(nbytes)
    view = memoryview(parts)
    while view:
        count = sock.recv_into(view)
        if not count:
            raise PeerClosedError
        view = view[count:]
    return bytes(parts)
