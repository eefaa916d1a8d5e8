"""Forward the output of worker processes to the user's terminal, file or notebook."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import threading
from typing import Any, Literal

MAX_LINE_CHARS = 1 << 16  # longer lines are passed on in parts
MAX_JOIN_S = 1.0  # a child that outlives its worker may hold the pipes open

_write_lock = threading.Lock()  # keeps the lines of several workers apart


def forward_output(process: subprocess.Popen[bytes]) -> list[threading.Thread]:
    """Start threads that forward the pipes of a process line by line, so that the process never waits for a reader.

    Lines go to the current ``sys.stdout`` and ``sys.stderr``, so that a notebook, ``redirect_stdout`` and a progress
    display see them.
    """
    pipes = (process.stdout, "stdout"), (process.stderr, "stderr")
    threads = [threading.Thread(target=_forward, args=pipe, name="penstock-output", daemon=True) for pipe in pipes]
    for thread in threads:
        thread.start()
    return threads


def _forward(pipe: Any, name: Literal["stdout", "stderr"]) -> None:
    # Lines keep their ends: progress bars end them with a carriage return.
    with io.TextIOWrapper(pipe, "utf-8", "replace", newline="") as lines:
        while line := lines.readline(MAX_LINE_CHARS):
            _write(getattr(sys, name), line)


def _write(stream: Any, line: str) -> None:
    """Print a line. Errors are dropped: a worker must not fail because its output cannot be shown."""
    with _write_lock, contextlib.suppress(Exception):
        try:
            stream.write(line)
        except UnicodeEncodeError:
            stream.write(line.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
