"""Worker processes: started when first needed, shared by stages that call methods of one object, ended by the last."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.config import get_config
from penstock.engine.pools.transport import Closed, receive, send
from penstock.engine.pools.worker_output import Forwarder, forwarded, output_for
from penstock.errors import QueryCancelledError, WorkerDiedError, WorkerGoneError
from penstock.observe.events import RowError

CLOSE_TIMEOUT_S = 5.0
START = """
import sys
sys.path[:] = sys.argv[3:]
from penstock.engine.pools.worker import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""
"""A worker looks for modules where the driver does, and nowhere else: a file in the current folder may bear the name of
one of the standard library."""


class WorkerProcess:
    """The driver's end of one process, which serves several handlers, each by its number, one request at a time.

    ``is_screen_drawn`` says that progress is drawn on the terminal, which what the process prints must not tear.
    """

    def __init__(self, env: Mapping[str, str], *, is_screen_drawn: bool) -> None:
        self.handler_numbers = itertools.count()
        self.num_users = 0  # kept by the crew
        self._turn = threading.Lock()
        self._is_dead = False
        self._sock, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        self._printed: Forwarder | None = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, str(theirs.fileno()), str(lifeline_read), *sys.path],
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
            self.end()
            raise

    @property
    def is_alive(self) -> bool:
        return not self._is_dead and self._process.poll() is None

    def ask(
        self, request: tuple[Any, ...], batch: pa.RecordBatch | None, is_cancelled: Callable[[], bool]
    ) -> tuple[str, tuple[RowError, ...], pa.RecordBatch | None]:
        """Return the answer: a word, the rows that failed, and an output unless there is none; raise what it raised."""
        with self._turn:
            if is_cancelled():
                raise QueryCancelledError("the query was stopped")
            if self._is_dead:  # of what another handler asked
                raise WorkerGoneError("The worker process has ended.")
            try:
                send(self._sock, request, batch)
                (verb, given), output = receive(self._sock)
            except Closed as exc:
                self._is_dead = True
                if is_cancelled():
                    raise QueryCancelledError("the query was stopped") from exc
                raise WorkerDiedError(self._death(is_starting=request[0] == "open")) from exc
        if verb == "error":
            error, cause, note = pickle.loads(given)
            error.add_note(note)
            raise error from cause
        return verb, given, output

    def kill(self) -> None:
        """End the process and those it started, at once; may be called from any thread."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def dismiss(self) -> None:
        """Tell the process to close its handlers and end. Only while nobody asks."""
        with contextlib.suppress(Closed, OSError):
            send(self._sock, ("end",))

    def end(self) -> None:
        """Have the process close its handlers and end, or end it; returns when it is gone."""
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

    def _death(self, *, is_starting: bool) -> str:
        code = self._process.wait()
        self._pass_printed()
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was killed by signal {-code} ({signal.strsignal(-code)})"
        when = "it was starting" if is_starting else "it worked on a batch"
        return (
            f"A worker process {how} while {when}. If it ran out of memory, use a smaller batch_size "
            "or fewer workers; anything it printed is above."
        )


class Crew:
    """Processes by number, one for each of the variables in ``environments``. A member that died is replaced."""

    def __init__(self, environments: Sequence[Mapping[str, str]]) -> None:
        self._environments = environments
        self._is_screen_drawn = get_config().progress  # asked here, as members are started by other threads
        self._members: dict[int, WorkerProcess] = {}
        self._lock = threading.Lock()

    def join(self, number: int) -> WorkerProcess:
        """Return the process of that number, for a user who will ``leave`` it."""
        with self._lock:
            member = self._members.get(number)
            if member is None or not member.is_alive:
                member = self._members[number] = WorkerProcess(
                    self._environments[number], is_screen_drawn=self._is_screen_drawn
                )
            member.num_users += 1
            return member

    def leave(self, number: int, member: WorkerProcess) -> None:
        """Let go of a process; the last to do so ends it."""
        with self._lock:
            member.num_users -= 1
            is_last = member.num_users == 0
            if is_last and self._members.get(number) is member:
                del self._members[number]
        if is_last:
            member.end()
