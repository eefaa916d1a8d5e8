"""Terminals for tests: what the screen of a person holds after every byte has been obeyed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from rich.cells import cell_len


class FakeTerminal:
    """A pseudo-terminal: ``stream`` is written to, ``screen`` gives the lines that it shows."""

    def __init__(self, width: int) -> None:
        self._controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        self.stream: TextIO = os.fdopen(terminal, "w", encoding="utf-8")
        self.received = ""
        self._has_news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        pending = b""
        while True:
            try:
                data = os.read(self._controller, 1 << 16)
            except OSError:  # the terminal was closed
                return
            pending += data
            try:
                text, pending = pending.decode(), b""
            except UnicodeDecodeError:
                continue
            with self._has_news:
                self.received += text
                self._has_news.notify_all()

    def wait_for(self, text: str, times: int = 1) -> None:
        """Return when the terminal has received ``text`` so many times."""
        with self._has_news:
            assert self._has_news.wait_for(lambda: self.received.count(text) >= times, timeout=60), self.received

    def screen(self) -> list[str]:
        """Return what a person sees. A mark is written first: what was sent before it has then arrived."""
        mark = f"<{time.monotonic_ns()}>"
        self.stream.write(mark)
        self.stream.flush()
        self.wait_for(mark)
        lines = obeyed(self.received.replace(mark, ""))
        self.received = self.received.replace(mark, "")
        return lines

    def close(self) -> None:
        self.stream.close()
        self._reader.join(60)
        assert not self._reader.is_alive()
        os.close(self._controller)


def obeyed(received: str, width: int = 100) -> list[str]:
    """Return the lines on a screen that has obeyed every command it received. A wrapped line is one line."""
    cells: dict[tuple[int, int], str] = {}
    wrapped, row, column = set[int](), 0, 0
    for token in re.findall(r"\x1b\[\??\d*[A-Za-z]|[^\x1b]|\x1b", received, re.DOTALL):
        if token == "\r":
            column = 0
        elif token == "\n":
            row += 1
        elif token.endswith("A") and token.startswith("\x1b["):
            row = max(row - int(token[2:-1] or 1), 0)
        elif token == "\x1b[2K":
            cells = {place: character for place, character in cells.items() if place[0] != row}
            wrapped -= {row, row + 1}
        elif token.startswith("\x1b["):
            assert token.endswith("m"), f"unexpected {token!r}"
        else:
            assert token != "\x1b"
            if column + cell_len(token) > width:
                row, column = row + 1, 0
                wrapped.add(row)
            cells[row, column] = token
            column += cell_len(token)
    lines: list[str] = []
    for number in range(max((place[0] for place in cells), default=-1) + 1):
        own = {place[1]: character for place, character in cells.items() if place[0] == number}
        text, end = "", 0
        for at in sorted(own):
            text += " " * (at - end) + own[at]
            end = at + cell_len(own[at])
        if number in wrapped and lines:
            lines[-1] += text
        else:
            lines.append(text)
    return [line.rstrip() for line in lines if line.strip()]


def run_in_terminal(
    command: Sequence[str], width: int, on_text: dict[str, Callable[[Any], object]] | None = None, **options: Any
) -> tuple[list[str], bytes, int]:
    """Run a command on a terminal; return the lines that it leaves, its standard output and its exit status.

    ``on_text`` holds functions of the process, each called once, when the terminal has received a text.
    """
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    streams = {"stdin": subprocess.DEVNULL, "stdout": terminal, "stderr": terminal} | options
    process = subprocess.Popen(command, env=environment | {"TERM": "xterm-256color"}, **streams)
    os.close(terminal)
    waiting, received = dict(on_text or {}), b""
    with contextlib.suppress(OSError):  # the terminal was closed
        while data := os.read(controller, 1 << 16):
            received += data
            for text in [text for text in waiting if text.encode() in received]:
                waiting.pop(text)(process)
    os.close(controller)
    printed = process.communicate(timeout=60)[0] or b""
    return obeyed(received.decode(), width), printed, process.returncode
