"""Handlers in processes of their own: for code that holds the GIL, uses a GPU, or may crash.

A slot's handler is a stand-in that passes batches to its process and outputs back; the rest is ``ThreadPool``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError, QueryCancelledError, WorkerDiedError
from penstock.execution.threads import IsCancelled, OpenHandler, ThreadPool, Threads
from penstock.execution.transport import Closed, receive, send
from penstock.protocols import Emit

CLOSE_TIMEOUT_S = 5.0


class ProcessPool(ThreadPool):
    """A thread pool whose handlers stand for worker processes. ``open_handler`` travels there by cloudpickle."""

    def __init__(self, open_handler: OpenHandler, capacity: int, threads: Threads, emit: Emit) -> None:
        import cloudpickle

        super().__init__(partial(RemoteHandler, cloudpickle.dumps(open_handler)), capacity, threads, emit)

    def _interrupt(self) -> None:
        """Kill the workers that are busy, and have the others close their handlers, all at the same time."""
        for slot in self._slots:
            if isinstance(slot.handler, RemoteHandler):
                if slot.lock.locked():
                    slot.handler.kill()
                else:
                    slot.handler.dismiss()


class RemoteHandler:
    """The driver's end of one worker process, which builds its handler when the first batch comes."""

    def __init__(self, packed_open: bytes, is_cancelled: IsCancelled, env: Mapping[str, str] | None = None) -> None:
        self._packed = packed_open
        self._is_cancelled = is_cancelled
        self._is_open = False
        self._sock, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.execution.worker", str(theirs.fileno()), str(lifeline_read)],
                pass_fds=(theirs.fileno(), lifeline_read),
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})},
                start_new_session=True,  # Ctrl-C is for the driver; and the worker's own children end with it
            )
        except BaseException:
            self._sock.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(lifeline_read)

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if not self._is_open:
            self._ask("open", self._packed, sys.path)
            self._is_open = True
        verb, output = self._ask("process", first_row, batch=item)
        return output if verb == "only" else self._outputs(output)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self._is_open:
            _, output = self._ask("finish")
            yield from self._outputs(output)

    def kill(self) -> None:
        """End the process and those it started, at once; may be called from any thread."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def dismiss(self) -> None:
        """Tell the process to close its handler and end."""
        with contextlib.suppress(Closed, OSError):
            send(self._sock, ("close",))

    def close(self) -> None:
        try:
            self.dismiss()
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()
            self._process.wait()
            self._sock.close()
            os.close(self._lifeline)

    def _outputs(self, output: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        while output is not None:
            yield output
            _, output = self._ask("next")

    def _ask(self, *request: Any, batch: pa.RecordBatch | None = None) -> tuple[str, pa.RecordBatch | None]:
        """Return the worker's answer: a word, and an output unless there is no more; raise what the worker raised."""
        if self._is_cancelled():
            raise QueryCancelledError("the query was stopped")
        try:
            send(self._sock, request, batch)
            (verb, *args), output = receive(self._sock)
        except Closed as exc:
            raise self._death() from exc
        if verb == "error":
            error, cause, note = pickle.loads(args[0])
            error.add_note(note)
            raise error from cause
        return verb, output

    def _death(self) -> PenstockError:
        if self._is_cancelled():
            return QueryCancelledError("the query was stopped")
        code = self._process.wait()
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was killed by signal {-code} ({signal.strsignal(-code)})"
        return WorkerDiedError(
            f"A worker process {how} while it worked on a batch. If it ran out of memory, use a smaller batch_size "
            "or fewer workers; anything it printed is above."
        )
