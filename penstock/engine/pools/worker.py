"""The worker's end of ``processes``: ``main(SOCKET_FD, LIFELINE_FD)`` serves handlers.

The process is spawned, not forked, so it inherits no threads, locks or CUDA state from the user's process.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.engine.pools.transport import PeerClosedError, receive, send
from penstock.observe.events import RowError
from penstock.protocols import Handler, WorkerContext


def main(socket_fd: int, lifeline_fd: int) -> None:
    keep_from_children(socket_fd, lifeline_fd)
    print_by_lines()
    threading.Thread(target=_end_with_parent, args=(lifeline_fd,), daemon=True).start()
    with socket.socket(fileno=socket_fd) as sock, contextlib.suppress(PeerClosedError):
        HandlerServer(sock).serve()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


class HandlerServer:
    """Answers the driver's calls. The calls of one handler are ``open``, then ``process`` or ``finish``, each followed
    by ``next`` until it is done, then ``close``; ``end`` closes all handlers.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._handlers: dict[int, Handler] = {}
        self._outputs: dict[int, Iterator[pa.RecordBatch]] = {}
        self._errors: list[RowError] = []  # failed rows since the last answer

    def serve(self) -> None:
        """Serve calls until ``end`` comes."""
        while self._serve_one():
            pass  # a call in its own frame: no batch stays alive while the next call is awaited

    def _serve_one(self) -> bool:
        (verb, *args), batch = receive(self._sock)
        if verb == "end":
            for handler in self._handlers.values():
                handler.close()
            return False
        try:
            word, output = self._answer(verb, *args, batch=batch)
            errors = tuple(self._errors)
            self._errors.clear()
            send(self._sock, (word, errors), output)
        except PeerClosedError:
            raise
        except BaseException as exc:
            send(self._sock, ("error", packed_error(exc)))
        return True

    def _answer(
        self, verb: str, key: int, *args: Any, batch: pa.RecordBatch | None
    ) -> tuple[str, pa.RecordBatch | None]:
        match verb:
            case "open":
                packed, sys.path[:] = args
                self._handlers[key] = pickle.loads(packed)(WorkerContext(lambda: False, self._errors.append))
                return "done", None
            case "close":
                self._outputs.pop(key, None)
                self._handlers.pop(key).close()
                return "done", None
            case "process":
                given = self._handlers[key].process(batch, *args)
                if isinstance(given, pa.RecordBatch):
                    return "only", given
                self._outputs[key] = given
            case "finish":
                self._outputs[key] = self._handlers[key].finish()
        output = next(self._outputs[key], None)
        return ("done" if output is None else "output"), output


def keep_from_children(*fds: int) -> None:
    """Close the descriptors in child processes: each side learns from a closed socket that the other is gone."""
    for fd in fds:
        os.set_inheritable(fd, False)
        os.register_at_fork(after_in_child=partial(os.close, fd))


def print_by_lines() -> None:
    """Flush each line at once, also to a pipe or a file: buffered output dies with the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def packed_error(exc: BaseException) -> bytes:
    """Pickle an exception with its cause and the text of its traceback, which pickle drops."""
    import cloudpickle

    note = "In the worker process:\n" + "".join(traceback.format_exception(exc))
    for error, cause in ((exc, exc.__cause__), (exc, None), (RuntimeError(f"{type(exc).__name__}: {exc}"), None)):
        with contextlib.suppress(Exception):
            packed: bytes = cloudpickle.dumps((error, cause, note))
            pickle.loads(packed)  # some exceptions can be pickled but not restored
            return packed
    raise AssertionError("a RuntimeError with a text can be pickled")


def _end_with_parent(lifeline_fd: int) -> None:
    """Kill this process and its children once the driver is gone, even in the middle of a long call."""
    os.read(lifeline_fd, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)
