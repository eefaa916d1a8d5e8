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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import pyarrow as pa

from penstock.config import get_config
from penstock.errors import PenstockError, QueryCancelledError, WorkerDiedError
from penstock.execution.printed import Forwarder, forwarded, output_for
from penstock.execution.revival import RemoteWorker, Revival, RevivingHandler
from penstock.execution.threads import OpenHandler, Slot, ThreadPool, Threads
from penstock.execution.transport import Closed, receive, send
from penstock.protocols import Emit, WorkerContext

CLOSE_TIMEOUT_S = 5.0


class ProcessPool(ThreadPool):
    """A thread pool whose handlers stand for worker processes. ``open_handler`` travels there by cloudpickle.

    ``environments`` are variables to set, for each worker. Without ``revival`` a worker that dies is an error.
    """

    def __init__(
        self,
        open_handler: OpenHandler,
        capacity: int,
        threads: Threads,
        emit: Emit,
        environments: Sequence[Mapping[str, str]] = (),
        revival: Revival | None = None,
    ) -> None:
        import cloudpickle

        super().__init__(open_handler, capacity, threads, emit)
        self._packed_open: bytes = cloudpickle.dumps(open_handler)
        self._environments = environments or [{}] * capacity
        self._revival = revival
        self._is_screen_drawn = get_config().progress

    def _opened(self, slot: Slot) -> RemoteWorker:
        env = self._environments[slot.index]
        context = self._context(slot)
        start = partial(RemoteHandler, self._packed_open, context, env, self._is_screen_drawn)
        return start() if self._revival is None else RevivingHandler(start, self._revival, context.record)

    def _interrupt(self) -> None:
        """Kill the workers that are busy, and have the others close their handlers, all at the same time."""
        for slot in self._slots:
            if (worker := cast(RemoteWorker | None, slot.handler)) is not None:
                if slot.lock.locked():
                    worker.kill()
                else:
                    worker.dismiss()


class RemoteHandler:
    """The driver's end of one worker process, which builds its handler when the first batch comes."""

    def __init__(
        self, packed_open: bytes, context: WorkerContext, env: Mapping[str, str], is_screen_drawn: bool = False
    ) -> None:
        self._packed = packed_open
        self._is_cancelled = context.is_cancelled
        self._record = context.record
        self.is_open = False
        self._sock, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        self._printed: Forwarder | None = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.execution.worker", str(theirs.fileno()), str(lifeline_read)],
                pass_fds=(theirs.fileno(), lifeline_read),
                stdin=subprocess.DEVNULL,
                stdout=output_for(sys.stdout, is_screen_drawn=is_screen_drawn),
                stderr=output_for(sys.stderr, is_screen_drawn=is_screen_drawn),
                bufsize=0,
                env={**os.environ, **env},
                start_new_session=True,  # Ctrl-C is for the driver; and the worker's own children end with it
            )
        except BaseException:
            self._sock.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(lifeline_read)
        try:
            self._printed = forwarded(self._process)
        except BaseException:
            self.close()
            raise

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if not self.is_open:
            self._ask("open", self._packed, sys.path)
            self.is_open = True
        verb, output = self._ask("process", first_row, batch=item)
        return output if verb == "only" else self._outputs(output)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self.is_open:
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
            self._pass_printed()
            self._sock.close()
            os.close(self._lifeline)

    def _pass_printed(self) -> None:
        """Return once the user has seen all that the process printed, which has ended."""
        if self._printed is not None:
            self._printed.close()

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
        for failed in args[0]:
            self._record(failed)
        return verb, output

    def _death(self) -> PenstockError:
        if self._is_cancelled():
            return QueryCancelledError("the query was stopped")
        code = self._process.wait()
        self._pass_printed()
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was killed by signal {-code} ({signal.strsignal(-code)})"
        when = "it worked on a batch" if self.is_open else "it was starting"
        return WorkerDiedError(
            f"A worker process {how} while {when}. If it ran out of memory, use a smaller batch_size "
            "or fewer workers; anything it printed is above."
        )
