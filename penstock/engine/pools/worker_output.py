"""Forward the output of worker processes to the user's terminal, file or notebook."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any, Literal

READ_NBYTES = 1 << 16
MAX_LINE_CHARS = 1 << 16  # longer lines are passed on in parts

StreamName = Literal["stdout", "stderr"]

_write_lock = threading.Lock()  # keeps the lines of several workers apart


def output_for(stream: Any, *, has_progress: bool) -> int | None:
    """Return the output of a worker for ``Popen``: the file behind ``stream``, or a pipe to forward.

    A pipe is used without such a file, as in a notebook or under ``redirect_stdout``, and on a terminal with a progress
    display, which sees only what goes through ``sys.stdout``.
    """
    if stream is None:  # as under pythonw
        return None
    try:
        if not isinstance(stream, io.TextIOWrapper) or (has_progress and stream.isatty()):
            return subprocess.PIPE
        stream.flush()  # keeps the order of output
        return stream.fileno()
    except (OSError, ValueError):  # in memory, or closed
        return subprocess.PIPE


def forward_output(process: subprocess.Popen[bytes]) -> OutputForwarder | None:
    """Forward the pipes of a process, if it has any."""
    pipes: dict[StreamName, IO[bytes] | None] = {"stdout": process.stdout, "stderr": process.stderr}
    given = {name: pipe for name, pipe in pipes.items() if pipe is not None}
    return OutputForwarder(given) if given else None


class OutputForwarder:
    """A thread that forwards the pipes of a process line by line, so that the process never waits for a reader.

    ``close`` is called when the process has ended. It returns once everything is forwarded, and leaves neither thread
    nor pipe behind, even if a child of the worker holds the other ends open.
    """

    def __init__(self, pipes: Mapping[StreamName, IO[bytes]]) -> None:
        self._pipes = pipes
        self._is_over, self._end = os.pipe()  # readable once the other end is closed
        self._thread = threading.Thread(target=self._run, name="penstock-output", daemon=True)
        self._is_closed = False
        try:
            self._thread.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        os.close(self._end)
        if self._thread.ident is not None:  # None if it could not be started
            self._thread.join()
        os.close(self._is_over)
        for pipe in self._pipes.values():
            pipe.close()

    def _run(self) -> None:
        lines = {pipe.fileno(): Lines(name) for name, pipe in self._pipes.items()}
        with selectors.DefaultSelector() as ready:
            for fd in (*lines, self._is_over):
                ready.register(fd, selectors.EVENT_READ)
            is_over = False
            while lines and not is_over:
                for key, _ in ready.select():
                    if key.fd == self._is_over:
                        is_over = True
                    elif data := os.read(key.fd, READ_NBYTES):
                        lines[key.fd].add(data)
                    else:
                        ready.unregister(key.fd)
                        lines.pop(key.fd).finish()
        for fd, rest in lines.items():
            os.set_blocking(fd, False)
            with contextlib.suppress(BlockingIOError):  # nothing more, though a child of the worker holds it open
                while data := os.read(fd, READ_NBYTES):
                    rest.add(data)
            rest.finish()


class Lines:
    """Collects bytes and writes whole lines to the present ``sys.stdout`` or ``sys.stderr``."""

    def __init__(self, name: StreamName) -> None:
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line: list[str] = []  # the incomplete last line
        self._num_chars = 0

    def add(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        end = max(text.rfind("\n"), text.rfind("\r")) + 1  # progress bars end lines with a carriage return
        if end:
            _write(self._name, "".join((*self._line, text[:end])))
            self._line, self._num_chars = [], 0
        self._line.append(text[end:])
        self._num_chars += len(text) - end
        if self._num_chars > MAX_LINE_CHARS:
            self._write_rest()

    def finish(self) -> None:
        self._line.append(self._decoder.decode(b"", final=True))
        self._write_rest()
        with contextlib.suppress(Exception):
            getattr(sys, self._name).flush()

    def _write_rest(self) -> None:
        if rest := "".join(self._line):
            _write(self._name, rest)
        self._line, self._num_chars = [], 0


def _write(name: StreamName, text: str) -> None:
    """Print a text. Errors are dropped: a worker must not fail because its output cannot be shown."""
    stream = getattr(sys, name)
    with _write_lock, contextlib.suppress(Exception):
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
