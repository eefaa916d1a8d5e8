"""Places where progress is drawn: a terminal, or the output of a notebook's cell."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from rich.text import Text

NOTEBOOK_WIDTH = 120
NOTEBOOK_HEIGHT = 60
# Black, red, green, yellow, blue, magenta, cyan, white: with enough contrast on white and on black.
NOTEBOOK_COLORS = (
    *((0, 0, 0), (220, 64, 64), (26, 158, 80), (176, 125, 0)),
    *((37, 99, 235), (176, 64, 176), (8, 145, 168), (128, 128, 128)),
)


class Screen(Protocol):
    """A place for one drawing. ``draw`` replaces the drawing, and ``close`` leaves one line.

    ``lines`` returns the drawing for a width in cells and a height in lines.
    """

    def draw(self, lines: Callable[[int, int], Text]) -> None: ...

    def close(self, summary: str) -> None: ...


def open_screen(stream: TextIO) -> Screen:
    """Return the screen that the user watches."""
    return NotebookScreen() if is_notebook() else TerminalScreen(stream)


class TerminalScreen:
    """A terminal. Text that the program prints meanwhile appears above the drawing."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False)
        # Rich writes captured output to its own stream, so only output to the same terminal may be captured.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=stream is sys.stderr and sys.stdout.isatty(),
            redirect_stderr=stream is sys.stderr,
        )

    def draw(self, lines: Callable[[int, int], Text]) -> None:
        self._live.update(lines(*self._console.size))
        if self._live.is_started:
            self._live.refresh()
        else:
            self._live.start(refresh=True)

    def close(self, summary: str) -> None:
        from rich.text import Text

        self._live.stop()
        if summary:
            self._console.print(Text(summary), soft_wrap=True)


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
    page = '<pre style="line-height:1.3;margin:0">{code}</pre>'
    theme = TerminalTheme((255, 255, 255), (0, 0, 0), list(NOTEBOOK_COLORS))
    return console.export_html(theme=theme, inline_styles=True, code_format=page)


def is_notebook() -> bool:
    """Return True in a Jupyter kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
