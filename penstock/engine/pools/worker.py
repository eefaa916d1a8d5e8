"""The worker's end of ``processes``: ``main(SOCKET_FDS, LIFELINE_FD)`` serves handlers, on a thread for each socket.

The process is spawned, not forked, so it inherits no threads, locks or CUDA state from the user's process.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.engine.pools.handler_slot import HandlerSlot
from penstock.engine.pools.transport import PeerClosedError, receive, send
from penstock.errors import PenstockError
from penstock.events.events import RowError
from penstock.events.metrics import taken_metrics
from penstock.events.tracebacks import trimmed_text


def main(socket_fds: Sequence[int], lifeline_fd: int) -> None:
    keep_from_children(*socket_fds, lifeline_fd)
    print_by_lines()
    threading.Thread(target=_end_with_parent, args=(lifeline_fd,), daemon=True).start()
    others = [threading.Thread(target=_serve, args=(fd,)) for fd in socket_fds[1:]]
    for thread in others:
        thread.start()
    _serve(socket_fds[0])
    _exit()


def _exit() -> None:
    """Wait for the threads, call the exit functions and end without a teardown, which takes half a second with CUDA."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(0)


def _serve(socket_fd: int) -> None:
    with socket.socket(fileno=socket_fd) as sock, contextlib.suppress(PeerClosedError):
        HandlerServer(sock).serve()


class HandlerServer:
    """Answers the driver's calls. The calls of one handler are ``open``, then ``process``, each followed by
    ``next`` until it is done, then ``close``; ``end`` closes all handlers.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._slots: dict[int, HandlerSlot] = {}

    def serve(self) -> None:
        """Serve calls until ``end`` comes."""
        while self._serve_one():
            pass  # a call in its own frame: no batch stays alive while the next call is awaited

    def _serve_one(self) -> bool:
        (verb, *args), batch = receive(self._sock)
        if verb == "end":
            for slot in self._slots.values():
                slot.close()
            return False
        try:
            is_done, errors, output = self._answer(verb, *args, batch=batch)
            # NumPy arrays of a batch are read-only, but a tensor of torch that shares their memory can be written to.
            send(
                self._sock, (is_done, errors, taken_metrics()), output, known=None if "torch" in sys.modules else batch
            )
        except PeerClosedError:
            raise
        except BaseException as exc:
            send(self._sock, (None, packed_error(exc), taken_metrics()))
        return True

    def _answer(
        self, verb: str, key: int, *args: Any, batch: pa.RecordBatch | None
    ) -> tuple[bool, tuple[RowError, ...], pa.RecordBatch | None]:
        if verb == "open":
            packed, sys.path[:] = args
            self._slots[key] = HandlerSlot(pickle.loads(packed))
            self._slots[key].open()
            return True, (), None
        if verb == "close":
            self._slots.pop(key).close()
            return True, (), None
        slot = self._slots[key]
        output, is_done = slot.start(batch, *args) if verb == "process" else slot.next()
        return is_done, slot.take_errors(), output


def keep_from_children(*fds: int) -> None:
    """Close the descriptors in child processes, so that the other side sees them closed when this process ends."""
    for fd in fds:
        os.set_inheritable(fd, False)
        os.register_at_fork(after_in_child=partial(os.close, fd))


def print_by_lines() -> None:
    """Flush each line at once, even to a pipe or a file: buffered output is lost when a process is killed."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def packed_error(exc: BaseException) -> bytes:
    """Pickle an exception with its cause and the text of its traceback, which pickle drops."""
    import cloudpickle

    whole = "".join(traceback.format_exception(exc))
    note = whole
    if isinstance(exc, PenstockError):  # its own message is shown anyway
        note = "" if exc.__cause__ is None else trimmed_text(exc.__cause__)
    for error, cause in ((exc, exc.__cause__), (exc, None), (RuntimeError(f"{type(exc).__name__}: {exc}"), None)):
        with contextlib.suppress(Exception):
            packed: bytes = cloudpickle.dumps((error, cause, note, whole))
            pickle.loads(packed)  # some exceptions can be pickled but not restored
            return packed
    raise AssertionError("a RuntimeError with a text can be pickled")


def unpacked_error(packed: bytes) -> BaseException:
    """Return an exception of another process, with the text of its traceback as a note."""
    error: BaseException
    error, cause, note, whole = pickle.loads(packed)
    error.__cause__ = cause or error.__cause__
    if note:
        error.add_note(f"In the worker process:\n{note.rstrip()}")
    with contextlib.suppress(AttributeError):  # a class may have slots
        error.worker_traceback = whole  # type: ignore[attr-defined]
    return error


def _end_with_parent(lifeline_fd: int) -> None:
    """Kill this process and its children once the driver is gone, even in the middle of a long call."""
    os.read(lifeline_fd, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)
