"""Messages between the driver and a worker process: a pickled head, and Arrow data in memory both can see.

The data travels as the descriptor of an anonymous file. It has no name, so nothing is left behind however a process
ends, and it is not bound by the size of ``/dev/shm``. One copy in, none out: the reader maps the same pages.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import tempfile
from typing import Any

import pyarrow as pa

_HEAD = struct.Struct("<QQ")  # length of the pickled head, length of the Arrow data
SMALL_NBYTES = 2**18


class Closed(EOFError):  # noqa: N818
    """The other side is gone."""


def send(sock: socket.socket, message: Any, batch: pa.RecordBatch | None = None) -> None:
    """Send a picklable message and, with it, a batch. Blocks until the other side has room for the message."""
    head = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        if batch is None:
            sock.sendall(_HEAD.pack(len(head), 0) + head)
            return
        fd = _anonymous_file()
        try:
            nbytes = _write(fd, batch)
            socket.send_fds(sock, [_HEAD.pack(len(head), nbytes)], [fd])
            sock.sendall(head)
        finally:
            os.close(fd)
    except (BrokenPipeError, ConnectionResetError) as exc:
        raise Closed from exc


def receive(sock: socket.socket) -> tuple[Any, pa.RecordBatch | None]:
    """Return the next message and its batch, which stays valid for as long as it is referred to."""
    fds: list[int] = []
    try:
        data, fds, _, _ = socket.recv_fds(sock, _HEAD.size, 1)
        if not data:
            raise Closed
        data += _read_exactly(sock, _HEAD.size - len(data))
        head_nbytes, batch_nbytes = _HEAD.unpack(data)
        message = pickle.loads(_read_exactly(sock, head_nbytes))
        if not fds:
            return message, None
        return message, _read(fds[0], batch_nbytes)
    except ConnectionResetError as exc:
        raise Closed from exc
    finally:
        for fd in fds:
            os.close(fd)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("penstock", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _write(fd: int, batch: pa.RecordBatch) -> int:
    with os.fdopen(os.dup(fd), "wb") as file:  # buffered, which finishes what one write of 2 GiB leaves undone
        with pa.ipc.new_stream(file, batch.schema) as stream:
            stream.write_batch(batch)
        return file.tell()


def _read(fd: int, nbytes: int) -> pa.RecordBatch:
    """Return the batch in a file, which it does not keep open: there may be more batches than a process may have files.

    For the same reason what is small is copied; there is a bound on the number of mappings too.
    """
    if nbytes <= SMALL_NBYTES:
        buffer = pa.py_buffer(os.pread(fd, nbytes, 0))
    else:
        # A tensor of torch cannot be read-only: to write to it where it should not be must not end the process.
        with pa.memory_map(f"/dev/fd/{fd}", "r+") as file:
            buffer = file.read_buffer()
    return pa.ipc.open_stream(buffer).read_next_batch()


def _read_exactly(sock: socket.socket, nbytes: int) -> bytes:
    parts = bytearray(nbytes)
    view = memoryview(parts)
    while view:
        count = sock.recv_into(view)
        if not count:
            raise Closed
        view = view[count:]
    return bytes(parts)
