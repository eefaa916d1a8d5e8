"""Places where progress is drawn: a terminal, or the output of a notebook's cell.

All queries of the process share the terminal: their drawings stand one below the other at its bottom. Whatever the
process prints meanwhile, to standard output or standard error, appears above them.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TextIO

from penstock.observe.printable import cell_width, fit, visible_text, wrapped_text

if TYPE_CHECKING:
    from rich.text import Text

LEAST_HEIGHT = 4  # lines of a query, if several share the screen
NOTEBOOK_WIDTH = 120
NOTEBOOK_HEIGHT = 60
# Black, red, green, yellow, blue, magenta, cyan, white: with enough contrast on white and on black.
NOTEBOOK_COLORS = (
    *((0, 0, 0), (220, 64, 64), (26, 158, 80), (176, 125, 0)),
    *((37, 99, 235), (176, 64, 176), (8, 145, 168), (128, 128, 128)),
)
ANSI = re.compile(r"\x1b\[[0-9;]*m")
ERASE_LINE = "\r\x1b[2K"
ERASE_LINE_ABOVE = "\x1b[1A\x1b[2K"


class Screen(Protocol):
    """A place for the drawing of one query. ``draw`` replaces the drawing, and ``close`` leaves one line.

    ``lines`` returns the drawing for a width in cells and a height in lines.
    """

    def draw(self, lines: Callable[[int, int], Text]) -> None: ...

    def close(self, summary: str) -> None: ...


def open_screen(stream: TextIO) -> Screen:
    """Return the screen that the user watches."""
    return NotebookScreen() if is_notebook() else TerminalScreen(stream)


class TerminalScreen:
    """The part of a terminal that belongs to one query."""

    def __init__(self, stream: TextIO) -> None:
        self._lines: Callable[[int, int], Text] | None = None
        self._rendered: tuple[tuple[int, int], list[str]] = (0, 0), []  # for one width and height
        self._terminal = Terminal.shared_by(stream, self)

    def draw(self, lines: Callable[[int, int], Text]) -> None:
        self._lines, self._rendered = lines, ((0, 0), self._rendered[1])
        self._terminal.redraw()

    def close(self, summary: str) -> None:
        self._terminal.remove(self, summary)

    def rendered(self, width: int, height: int, color_system: Any) -> list[str]:
        """Return the drawing as lines with the codes of their colors."""
        from rich.console import Console

        if self._lines is None:
            return []
        if self._rendered[0] != (width, height):
            console = Console(file=(file := io.StringIO()), force_terminal=True, color_system=color_system, width=width)
            lines = self._rendered[1]
            with suppress(Exception):  # it must not reach a ``print`` of the user
                console.print(self._lines(width, height), no_wrap=True, overflow="ellipsis", highlight=False)
                lines = file.getvalue().rstrip("\n").split("\n")
            self._rendered = (width, height), lines
        return self._rendered[1]


class Terminal:
    """A terminal with the drawings of all running queries at its bottom.

    Everything is written under one lock, and each change is one write. While there are drawings, ``write`` of the
    buffers below ``sys.stdout`` and ``sys.stderr`` comes here. So even bytes for ``sys.stdout.buffer``, and log lines,
    whose handlers hold the stream, appear above the drawings.
    """

    _opening = threading.Lock()
    _all: ClassVar[dict[TextIO, Terminal]] = {}

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream)  # knows the size and the colors; it writes nothing
        self._stream = stream
        self._screens: list[TerminalScreen] = []
        self._lock = threading.RLock()
        self._drawn: list[int] = []  # the cells of each line
        self._unfinished = b""  # an unfinished line, part of the drawing until its line break comes
        self._tapped = list(_buffers_of(stream))
        self._pid = os.getpid()
        # A tapped buffer must not be flushed by way of its stream, which would write to it.
        target: Any = getattr(stream, "buffer", stream)
        self._write, self._flush = target.write, target.flush
        self._takes_bytes = target is not stream

    @classmethod
    def shared_by(cls, stream: TextIO, screen: TerminalScreen) -> Terminal:
        """Return the terminal of a stream, with one more query on it."""
        with cls._opening:
            terminal = cls._all.get(stream)
            if terminal is None:
                terminal = cls(stream)
                terminal._open()
                cls._all[stream] = terminal
            terminal._screens.append(screen)
            return terminal

    def remove(self, screen: TerminalScreen, summary: str) -> None:
        """Replace the drawing of a query by its closing line."""
        lines = wrapped_text(visible_text(summary), self._console.width) if summary else []
        with self._opening, self._lock:
            self._screens.remove(screen)
            if not self._screens:
                del self._all[self._stream]
            try:
                self.redraw(self._encoded("".join(f"{line}\n" for line in lines)))
            finally:
                if not self._screens:
                    self._close()

    def print_above(self, data: bytes) -> None:
        """Print what the process has written, above the drawings."""
        with self._lock:
            whole, newline, rest = (self._unfinished + data).rpartition(b"\n")
            self._unfinished = rest[rest.rstrip(b"\r").rfind(b"\r") + 1 :]  # of a progress bar, keep its last state
            self.redraw(whole + newline)

    def redraw(self, above: bytes = b"") -> None:
        """Replace the drawings, with text above them."""
        with self._lock:
            lines, erased = list[str](), ""
            if not self._is_in_background:
                lines = self._drawing()
                erased = ERASE_LINE + ERASE_LINE_ABOVE * (self._num_drawn - 1) if self._drawn else ""
            self._drawn = []  # if a Ctrl-C breaks the write, the next write erases no other lines
            self._put(self._encoded(erased) + above + self._encoded("\n".join(lines)))
            self._drawn = [cell_width(ANSI.sub("", line)) for line in lines]

    @property
    def _num_drawn(self) -> int:
        """The lines of the drawing on the screen. A terminal that has become narrower has wrapped them."""
        width = max(self._console.width, 1)
        return sum(max(-(-cells // width), 1) for cells in self._drawn)

    @property
    def _is_in_background(self) -> bool:
        """True if the terminal now belongs to another program: to a shell, after ``&`` or ``bg``. Its output must
        stay."""
        with suppress(AttributeError, OSError, ValueError):  # it is not the terminal that controls this process
            return os.tcgetpgrp(self._stream.fileno()) != os.getpgrp()
        return False

    def _drawing(self) -> list[str]:
        width, height = self._console.size
        share = max((height - len(self._screens)) // max(len(self._screens), 1), LEAST_HEIGHT)
        lines = [self._unfinished_line(width)] if self._unfinished and self._screens else []
        for number, screen in enumerate(self._screens):
            block = [*([""] if number else []), *screen.rendered(width, share, self._console.color_system)]
            if number and len(lines) + len(block) >= height:
                return [*lines, f"… and {len(self._screens) - number:,} more"][:height]
            lines += block
        return lines[:height]

    def _unfinished_line(self, width: int) -> str:
        from rich.text import Text

        text = Text.from_ansi(self._unfinished.decode(self._encoding, "replace").rstrip("\r"))
        return fit(visible_text(text.plain), width - 1)

    def _open(self) -> None:
        # The cursor may stand after text: a line's worth of spaces then leads to the next line.
        self._put(self._encoded(" " * (self._console.width - 1) + "\r"))
        for buffer in self._tapped:
            self._tap(buffer)

    def _tap(self, buffer: Any) -> None:
        write = buffer.write

        def print_above(data: Any) -> int:
            if not self._screens or os.getpid() != self._pid:  # a forked process has no display
                return int(write(data))
            self.print_above(given := bytes(data))
            return len(given)

        buffer.write = print_above

    def _close(self) -> None:
        for buffer in self._tapped:
            with suppress(AttributeError):
                del buffer.write
        self._put(self._unfinished)

    def _put(self, data: bytes) -> None:
        if self._takes_bytes:
            left = memoryview(data)
            while left:  # without a buffer (``python -u``) the terminal may take a part
                left = left[self._write(left) :]
        else:
            self._write(data.decode())
        self._flush()

    def _encoded(self, text: str) -> bytes:
        return text.encode(self._encoding, "replace")

    @property
    def _encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"


def _buffers_of(stream: TextIO) -> Iterator[Any]:
    """Yield the buffers of the standard streams that lead to the terminal of ``stream``, if that is one of them."""
    if stream is not sys.stderr:
        return
    for each in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there may be none, or one without a file
            if os.ttyname(each.fileno()) == os.ttyname(stream.fileno()):
                each.flush()
                yield each.buffer


class NotebookScreen:
    """The output of a notebook's cell, as HTML that is replaced in place."""

    def __init__(self) -> None:
        ipython = importlib.import_module("IPython.display")
        self._handle: Any = ipython.display({"text/plain": ""}, raw=True, display_id=True)

    def draw(self, lines: Callable[[int, int], Text]) -> None:
        self._update(lines(NOTEBOOK_WIDTH, NOTEBOOK_HEIGHT))

    def close(self, summary: str) -> None:
        from rich.text import Text

        self._update(Text(summary))

    def _update(self, text: Text) -> None:
        self._handle.update({"text/plain": text.plain, "text/html": as_html(text)}, raw=True)


def as_html(text: Text) -> str:
    """Return colored text as HTML that suits light and dark pages."""
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme

    console = Console(file=io.StringIO(), record=True, width=NOTEBOOK_WIDTH, force_jupyter=False)
    console.print(text, soft_wrap=True)
    page = '<pre style="font-family:monospace;line-height:1.3;margin:0">{code}</pre>'
    theme = TerminalTheme((255, 255, 255), (0, 0, 0), list(NOTEBOOK_COLORS))
    return console.export_html(theme=theme, inline_styles=True, code_format=page)


def is_notebook() -> bool:
    """Return True in a Jupyter kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
