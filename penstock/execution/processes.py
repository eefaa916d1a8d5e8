"""Handlers in processes of their own: for code that holds the GIL, uses a GPU, or may crash.

A slot's handler is a stand-in that passes batches to its process and outputs back; the rest is ``ThreadPool``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping

import pyarrow as pa

from penstock.errors import QueryCancelledError, WorkerDiedError
from penstock.execution.threads import IsCancelled, OpenHandler, ThreadPool, Threads
from penstock.execution.transport import Closed, receive, send
from penstock.protocols import Emit

CLOSE_TIMEOUT_S = 5.0


class ProcessPool(ThreadPool):
    """A thread pool whose handlers stand for worker processes. ``open_handler`` travels there by cloudpickle."""

    def __init__(self, open_handler: OpenHandler, capacity: int, threads: Threads, emit: Emit) -> None:
        import cloudpickle

        self._packed = cloudpickle.dumps(open_handler)
        self._remotes: list[RemoteHandler] = []
        self._remotes_lock = threading.Lock()
        super().__init__(self._open_remote, capacity, threads, emit)

    def _open_remote(self, is_cancelled: IsCancelled) -> RemoteHandler:
        remote = RemoteHandler(self._packed, is_cancelled)
        with self._remotes_lock:
            self._remotes.append(remote)
        if is_cancelled():
            remote.kill()
        remote.open()
        return remote

    def _interrupt(self) -> None:
        if self._running.is_none:
            return
        with self._remotes_lock:
            for remote in self._remotes:
                remote.kill()


class RemoteHandler:
    """The driver's end of one worker process."""

    def __init__(self, packed_open: bytes, is_cancelled: IsCancelled, env: Mapping[str, str] | None = None) -> None:
        self._packed = packed_open
        self._is_cancelled = is_cancelled
        self._sock, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.execution.worker", str(theirs.fileno()), str(lifeline_read)],
                pass_fds=(theirs.fileno(), lifeline_read),
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})},
            )
        os.close(lifeline_read)

    def open(self) -> None:
        with self._translated_errors():
            send(self._sock, ("open", self._packed, sys.path))
            self._answer()

    def process(self, item: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        with self._translated_errors():
            send(self._sock, ("process", first_row), item)
            yield from self._outputs()

    def finish(self) -> Iterator[pa.RecordBatch]:
        with self._translated_errors():
            send(self._sock, ("finish",))
            yield from self._outputs()

    def kill(self) -> None:
        """End the process at once; may be called from any thread."""
        self._process.kill()

    def close(self) -> None:
        with contextlib.suppress(Closed, OSError):
            send(self._sock, ("close",))
        self._sock.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._lifeline)

    def _outputs(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._answer()) is not None:
            yield batch
            send(self._sock, ("next",))

    def _answer(self) -> pa.RecordBatch | None:
        """Return the next output, None when there is no more; raise what the worker raised."""
        (verb, *args), batch = receive(self._sock)
        if verb == "error":
            error, cause, note = pickle.loads(args[0])
            error.add_note(note)
            raise error from cause
        return batch

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except Closed as exc:
            if self._is_cancelled():
                raise QueryCancelledError("the query was stopped") from exc
            code = self._process.wait()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise WorkerDiedError(
                f"A worker process {how} while it worked on a batch. If it ran out of memory, use a smaller batch_size "
                "or fewer workers; anything it printed is above."
            ) from exc
