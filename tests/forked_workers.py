"""Worker processes for tests, forked from a server that has imported what each of them imports.

A worker takes 30 ms of a core to start instead of 400, and the tests start hundreds. The server has no threads and has
read no data, so that workers inherit only modules. ``tests/engine/pools`` and scripts start workers as users do.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

IMPORTED = (
    *("penstock.engine.multiplying_steps", "penstock.runners.openers", "penstock.udf.cached_functions"),
    *("penstock.udf.batches", "penstock.udf.call", "pyarrow.compute"),
)
"""Modules that workers import before they call a function."""

PR_SET_CHILD_SUBREAPER = 36
MOST_NBYTES, MOST_FDS = 2**20, 250
START = """
import sys
sys.path[:] = sys.argv[2:]
from tests.forked_workers import serve
serve(int(sys.argv[1]))
"""


class ForkServer:
    """Starts workers as children of this process. It ends with this process."""

    def __init__(self) -> None:
        import ctypes

        self._prctl = ctypes.CDLL(None).prctl
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", "-c", START, str(theirs.fileno()), *sys.path]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )

    def close(self) -> None:
        self._requests.close()
        self._process.wait()

    def start(
        self, command: Sequence[str], *, pass_fds: Sequence[int], env: Mapping[str, str], **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a worker with the arguments of ``process_group``'s call of ``subprocess.Popen``."""
        if os.getpid() != self._owner:
            return subprocess.Popen(command, pass_fds=pass_fds, env=env, **options)
        pipes = (out, their_out), (err, their_err), (reply, their_reply) = os.pipe(), os.pipe(), os.pipe()
        paths = command[command.index("-c") + 4 :]
        request = pickle.dumps((dict(env), list(paths), os.getcwd()))
        with self._lock:
            self._prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the process that forks the worker ends at once
            try:
                socket.send_fds(self._requests, [request], [their_reply, their_out, their_err, *pass_fds])
                for _, theirs in pipes:
                    os.close(theirs)
                pid = int.from_bytes(os.read(reply, 4), "big")
            finally:
                self._prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
                os.close(reply)
        assert pid, "the server of worker processes has ended"
        return _child(pid, list(command), out, err)


def use(server: ForkServer) -> None:
    """Let queries of this process start their workers on a server."""
    from penstock.engine.pools import process_group

    process_group.subprocess = SimpleNamespace(**vars(subprocess) | {"Popen": server.start})  # type: ignore[assignment]


def _child(pid: int, command: list[str], out: int, err: int) -> subprocess.Popen[bytes]:
    """Return the object that ``subprocess`` makes for a process that it has started."""
    process: Any = subprocess.Popen.__new__(subprocess.Popen)
    given = {"args": command, "pid": pid, "returncode": None, "stdin": None, "_child_created": True}
    made = {"_waitpid_lock": threading.Lock(), "_sigint_wait_secs": 0.25, "_communication_started": False}
    vars(process).update(given, stdout=open(out, "rb"), stderr=open(err, "rb"), **made)  # noqa: SIM115, of its user
    return process  # type: ignore[no-any-return]


def serve(fd: int) -> None:
    """Fork for each request until the other side closes, and be a worker in the forked processes."""
    for name in IMPORTED:
        import_module(name)
    from penstock.engine.pools.worker import main

    with socket.socket(fileno=fd) as requests:
        while (forked := _next_fork(requests)) is None:
            pass
    main(*forked)


def _next_fork(requests: socket.socket) -> tuple[list[int], int] | None:
    """Start a worker. In its process, return its sockets and its lifeline."""
    request, received, _, _ = socket.recv_fds(requests, MOST_NBYTES, MOST_FDS)
    if not request:
        os._exit(0)
    reply, *fds = received
    between = os.fork()
    if between:
        for each in (reply, *fds):
            os.close(each)
        os.waitpid(between, 0)
        return None
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.0002)
    os.write(reply, os.getpid().to_bytes(4, "big"))
    env, sys.path[:], folder = pickle.loads(request)
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    os.dup2(fds[0], 1)
    os.dup2(fds[1], 2)
    for each in (reply, *fds[:2]):
        os.close(each)
    return fds[2:-1], fds[-1]
