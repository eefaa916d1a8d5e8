"""Worker processes: started on first use, shared by stages that call methods of one object, ended by the last."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.contracts import check_not_cancelled
from penstock.engine.pools.transport import PeerClosedError, receive, send
from penstock.engine.pools.worker import unpacked_error
from penstock.engine.pools.worker_output import MAX_JOIN_S, forward_output
from penstock.errors import QueryCancelledError, WorkerDiedError, WorkerGoneError
from penstock.events.events import RowError
from penstock.events.metrics import current_metrics

CLOSE_TIMEOUT_S = 5.0
START = """
import sys
sys.path[:] = sys.argv[3:]
from penstock.engine.pools.worker import main
main([int(fd) for fd in sys.argv[1].split(",")], int(sys.argv[2]))
"""
"""A worker looks for modules where the driver does, and nowhere else: a file in the current folder may have the name of
a module of the standard library."""


class WorkerProcess:
    """The driver's end of one process, which serves several handlers, each by its key.

    The process has a thread for each of its ``num_channels``, and runs one call of a channel at a time.
    """

    def __init__(self, env: Mapping[str, str], num_channels: int = 1) -> None:
        self.handler_keys = itertools.count()
        self.num_users = 0  # counted by the group
        self._is_dead = False
        pairs = [socket.socketpair() for _ in range(num_channels)]
        self._channels = [_Channel(ours) for ours, _ in pairs]
        theirs = [theirs for _, theirs in pairs]
        lifeline_read, self._lifeline = os.pipe()
        self._output: list[threading.Thread] = []  # that forward it
        fds = [sock.fileno() for sock in theirs]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, ",".join(map(str, fds)), str(lifeline_read), *sys.path],
                pass_fds=(*fds, lifeline_read),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **env},
                start_new_session=True,  # Ctrl-C is for the driver, and the worker's children end with it
            )
        except BaseException:
            for channel in self._channels:
                channel.sock.close()
            os.close(self._lifeline)
            raise
        finally:
            for sock in theirs:
                sock.close()
            os.close(lifeline_read)
        try:
            self._output = forward_output(self._process)
        except BaseException:
            self.end()
            raise

    @property
    def is_alive(self) -> bool:
        return not self._is_dead and self._process.poll() is None

    def call(
        self,
        request: tuple[Any, ...],
        batch: pa.RecordBatch | None,
        is_cancelled: Callable[[], bool],
        channel_number: int = 0,
    ) -> tuple[bool, tuple[RowError, ...], pa.RecordBatch | None]:
        """Return whether the task is done, its failed rows, and its output. Raise the exception of the handler."""
        channel = self._channels[channel_number]
        with channel.turn:
            check_not_cancelled(is_cancelled)
            if self._is_dead:  # since a call of another handler
                raise WorkerGoneError("The worker process has ended.")
            try:
                send(channel.sock, request, batch)
                (is_done, given, metrics), output = receive(channel.sock, known=batch)
            except PeerClosedError as exc:
                self._is_dead = True
                if is_cancelled():
                    raise QueryCancelledError("the query was stopped") from exc
                raise WorkerDiedError(self._death_message(is_starting=request[0] == "open")) from exc
        if metrics is not None and (collected := current_metrics()) is not None:
            collected.add(metrics)
        if is_done is None:
            raise unpacked_error(given)
        return is_done, given, output

    def kill(self) -> None:
        """Kill the process and its children; may be called from any thread."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def send_end(self) -> None:
        """Ask the process to close its handlers and end. Only called while no call runs."""
        for channel in self._channels:
            with contextlib.suppress(PeerClosedError, OSError):
                send(channel.sock, ("end",))

    def end(self) -> None:
        """Ask the process to end, kill it if it does not, and return when it is gone."""
        try:
            self.send_end()
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()
            self._process.wait()
            self._flush_output()
            for channel in self._channels:
                channel.sock.close()
            os.close(self._lifeline)

    def _flush_output(self) -> None:
        """Forward the rest of the output of the ended process."""
        for thread in self._output:
            thread.join(MAX_JOIN_S)

    def _death_message(self, *, is_starting: bool) -> str:
        code = self._process.wait()
        self._flush_output()
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was killed by signal {-code} ({signal.strsignal(-code)})"
        when = "it was starting" if is_starting else "it worked on a batch"
        return (
            f"A worker process {how} while {when}. If it ran out of memory, use a smaller batch_size "
            "or fewer workers; anything it printed is above."
        )


class _Channel:
    """One connection to a process, and the turn to use it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.turn = threading.Lock()


class ProcessGroup:
    """Worker processes by index, each with its own environment variables. A process that died is replaced.

    Worker i of the stage uses process i modulo their number. With several ``channels`` per process, workers of one
    process run at the same time.
    """

    def __init__(self, environments: Sequence[Mapping[str, str]], num_channels: int = 1) -> None:
        self._environments = environments
        self._num_channels = num_channels
        self._processes: dict[int, WorkerProcess] = {}
        self._lock = threading.Lock()

    def channel(self, worker: int) -> int:
        return worker // len(self._environments)

    def join(self, worker: int) -> WorkerProcess:
        """Return the process of a worker. The worker must ``leave`` it."""
        index = worker % len(self._environments)
        with self._lock:
            process = self._processes.get(index)
            if process is None or not process.is_alive:
                process = self._processes[index] = WorkerProcess(self._environments[index], self._num_channels)
            process.num_users += 1
            return process

    def leave(self, worker: int, process: WorkerProcess) -> None:
        """Release a process; the last user ends it."""
        index = worker % len(self._environments)
        with self._lock:
            process.num_users -= 1
            is_last = process.num_users == 0
            if is_last and self._processes.get(index) is process:
                del self._processes[index]
        if is_last:
            process.end()
