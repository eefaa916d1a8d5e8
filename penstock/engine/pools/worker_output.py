"""What worker processes print comes out where the user's own prints do: on the terminal, in a file, in a notebook."""

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
MAX_LINE_CHARS = 1 << 16  # of a line that has not ended; longer ones are passed on in parts

StreamName = Literal["stdout", "stderr"]

_writing = threading.Lock()  # lines of several workers come one after another


def output_for(stream: Any, *, is_screen_drawn: bool) -> int | None:
    """Return what ``Popen`` gives a worker in place of ``stream``: the file beneath it, or a pipe to be forwarded.

    A pipe it is where nothing is beneath, as in a notebook or under ``redirect_stdout``, and on a terminal where the
    progress of the query is drawn: whoever draws catches what goes through ``sys.stdout``, and nothing else.
    """
    if stream is None:  # as under pythonw
        return None
    try:
        if not isinstance(stream, io.TextIOWrapper) or (is_screen_drawn and stream.isatty()):
            return subprocess.PIPE
        stream.flush()  # what was printed before comes before
        return stream.fileno()
    except (OSError, ValueError):  # its bytes go to memory, or it is closed
        return subprocess.PIPE


def forwarded(process: subprocess.Popen[bytes]) -> Forwarder | None:
    """Pass on what a process writes to the pipes it was given, if any."""
    pipes: dict[StreamName, IO[bytes] | None] = {"stdout": process.stdout, "stderr": process.stderr}
    given = {name: pipe for name, pipe in pipes.items() if pipe is not None}
    return Forwarder(given) if given else None


class Forwarder:
    """A thread that passes on, by lines, what a process writes to its pipes, so that it never waits for a reader.

    ``close`` is for when the process has ended. It returns once all that was written has been passed on, and leaves
    neither thread nor pipe behind, even where a process started by the worker holds the other ends open.
    """

    def __init__(self, pipes: Mapping[StreamName, IO[bytes]]) -> None:
        self._pipes = pipes
        self._is_over, self._end = os.pipe()  # readable once the other end is closed
        self._thread = threading.Thread(target=self._run, name="penstock-printed", daemon=True)
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
        if self._thread.ident is not None:  # else it could not be started
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
            with contextlib.suppress(BlockingIOError):  # nothing more, though someone holds it open
                while data := os.read(fd, READ_NBYTES):
                    rest.add(data)
            rest.finish()


class Lines:
    """Bytes as they come, given to ``sys.stdout`` or ``sys.stderr``, whatever that is at the time, in whole lines."""

    def __init__(self, name: StreamName) -> None:
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line: list[str] = []  # what there is of the last line
        self._num_chars = 0

    def add(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        end = max(text.rfind("\n"), text.rfind("\r")) + 1  # progress bars end their lines by a return
        if end:
            _write(self._name, "".join((*self._line, text[:end])))
            self._line, self._num_chars = [], 0
        self._line.append(text[end:])
        self._num_chars += len(text) - end
        if self._num_chars > MAX_LINE_CHARS:
            self._pass_rest()

    def finish(self) -> None:
        self._line.append(self._decoder.decode(b"", final=True))
        self._pass_rest()
        with contextlib.suppress(Exception):
            getattr(sys, self._name).flush()

    def _pass_rest(self) -> None:
        if rest := "".join(self._line):
            _write(self._name, rest)
        self._line, self._num_chars = [], 0


def _write(name: StreamName, text: str) -> None:
    """Print a text. What cannot be printed is dropped: the worker must not stop because nobody can read it."""
    stream = getattr(sys, name)
    with _writing, contextlib.suppress(Exception):
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
