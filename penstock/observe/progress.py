"""A query's progress on the terminal or in a notebook, for those that last long enough to be watched.

Events only add to counters. A thread draws, so that the display lives while one slow batch runs; it begins to draw,
and loads rich, after half a second, and has ended when ``on_event`` returns from the end of the query.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from penstock.config import get_config
from penstock.errors import QueryCancelledError
from penstock.observe.events import (
    BundleProduced,
    Event,
    QueryFinished,
    QueryStarted,
    RowsFailed,
    StageFinished,
    StageInfo,
)
from penstock.observe.text import cell_width, fit, format_bytes, format_count, format_rate, format_seconds, visible_text

if TYPE_CHECKING:
    from rich.text import Text

DELAY_S = 0.5
INTERVAL_S = 0.15
MAX_JOIN_S = 1.0  # a terminal that takes no output (Ctrl-S) must not hold up the query
RATE_WINDOW = 64  # drawings, about ten seconds
BAR_WIDTH = 16
MAX_NAME_WIDTH = 40
NOTEBOOK_WIDTH = 100

Part = tuple[str, str]  # text and its style

_is_drawn = threading.Lock()  # held by the one query on the screen: a query inside a query stays silent


@dataclass(slots=True)
class StageCount:
    """What is known of a stage now. Written by the driver's thread, read by the one that draws."""

    info: StageInfo
    num_rows: int = 0
    nbytes: int = 0
    num_failed: int = 0
    is_finished: bool = False
    recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RATE_WINDOW))

    def rate(self, now_s: float, elapsed_s: float) -> float:
        """Return the rows per second of late, or over all where none came of late."""
        self.recent.append((now_s, self.num_rows))
        then_s, then_rows = self.recent[0]
        if self.is_finished or self.num_rows == then_rows or now_s <= then_s:
            return 0.0 if self.is_finished or elapsed_s <= 0 else self.num_rows / elapsed_s
        return (self.num_rows - then_rows) / (now_s - then_s)


class Screen(Protocol):
    """Where progress is drawn: each drawing replaces the one before, and ``close`` leaves one line.

    ``lines`` gives the drawing for a width in cells.
    """

    def draw(self, lines: Callable[[int], Text]) -> None: ...

    def close(self, summary: str) -> None: ...


class Progress:
    """A Subscriber that shows one line a stage while a query runs, and leaves one line when it ends.

    A query that ends within ``delay_s`` shows nothing. So does every query where nobody watches: ``stream`` (standard
    error) is no terminal and this is no notebook, or the setting ``progress`` is off. ``is_enabled`` decides otherwise.
    With ``interval_s=None`` there is no thread: whoever holds the object calls ``refresh``.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        is_enabled: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
        delay_s: float = DELAY_S,
        interval_s: float | None = INTERVAL_S,
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._is_enabled = _is_watched(self._stream) if is_enabled is None else is_enabled
        self._clock = clock
        self._delay_s = delay_s
        self._interval_s = interval_s
        self._query: QueryDisplay | None = None

    def on_event(self, event: Event) -> None:
        if not self._is_enabled:
            return
        try:
            self._take(event)
        except Exception:  # the display is never worth a query: what goes wrong with it stays here
            return

    def refresh(self) -> None:
        """Draw what is known now, unless the query is young or another one is on the screen."""
        if self._query is not None:
            self._query.refresh()

    def _take(self, event: Event) -> None:
        query = self._query
        match event:
            case BundleProduced():
                if query is not None:
                    count = query.stages[event.stage]
                    count.num_rows += event.num_rows
                    count.nbytes += event.nbytes
            case RowsFailed():
                if query is not None:
                    query.stages[event.stage].num_failed += len(event.errors)
            case StageFinished():
                if query is not None:
                    query.stages[event.stage].is_finished = True
            case QueryStarted():
                if query is not None:
                    query.finish("")
                self._query = QueryDisplay(event.stages, self._stream, self._clock, self._delay_s)
                if self._interval_s is not None:
                    self._query.start(self._interval_s)
            case QueryFinished():
                self._query = None
                if query is not None:
                    query.finish(query.summary(event.error))


class QueryDisplay:
    """The display of one query. Once ``start`` is called, only its thread touches the screen."""

    def __init__(
        self, stages: tuple[StageInfo, ...], stream: TextIO, clock: Callable[[], float], delay_s: float
    ) -> None:
        self.stages = [StageCount(info) for info in stages]
        self._stream = stream
        self._clock = clock
        self._delay_s = delay_s
        self._started_s = clock()
        self._screen: Screen | None = None
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._summary = ""

    def start(self, interval_s: float) -> None:
        """Draw every ``interval_s`` from now on, in a thread."""
        self._thread = threading.Thread(target=self._run, args=(interval_s,), name="penstock-progress", daemon=True)
        self._thread.start()

    def _run(self, interval_s: float) -> None:
        # Nobody could catch what fails here: the display ends, and the query goes on without it.
        with contextlib.suppress(Exception):
            wait_s = self._delay_s
            while not self._is_over.wait(wait_s):
                self.refresh()
                wait_s = interval_s
        with contextlib.suppress(Exception):
            self._close()

    def refresh(self) -> None:
        """Draw what is known now, unless the query is young or another one is on the screen."""
        now_s = self._clock()
        if now_s - self._started_s < self._delay_s:
            return
        if self._screen is None:
            if not _is_drawn.acquire(blocking=False):
                return
            try:
                self._screen = NotebookScreen() if is_notebook() else TerminalScreen(self._stream)
            except BaseException:
                _is_drawn.release()
                raise
        elapsed_s = now_s - self._started_s
        self._screen.draw(lambda width: stage_lines(self.stages, now_s, elapsed_s, width))

    def finish(self, summary: str) -> None:
        """Take the display away and leave ``summary`` in its place, if there was a display."""
        self._summary = summary
        self._is_over.set()
        if self._thread is None:
            self._close()
        else:
            self._thread.join(MAX_JOIN_S)

    def _close(self) -> None:
        screen, self._screen = self._screen, None
        if screen is not None:
            try:
                screen.close(self._summary)
            finally:
                _is_drawn.release()

    def summary(self, error: BaseException | None) -> str:
        """Return the one line that stays."""
        elapsed_s = self._clock() - self._started_s
        last = self.stages[-1] if self.stages else None
        if last is not None and last.info.writes is not None:
            last = self.stages[last.info.writes]
        num_rows, nbytes = (last.num_rows, last.nbytes) if last is not None else (0, 0)
        rows = format_count(num_rows, "row")
        num_failed = sum(stage.num_failed for stage in self.stages)
        failed = f"; {format_count(num_failed, 'row')} failed, see errors()" if num_failed else ""
        if error is None:
            rate = format_rate(num_rows / elapsed_s) if elapsed_s else "-"
            return f"✓ {rows} in {format_seconds(elapsed_s)} ({rate}, {format_bytes(nbytes)}){failed}"
        ending = "stopped" if isinstance(error, KeyboardInterrupt | QueryCancelledError) else "failed"
        return f"✗ {ending} after {format_seconds(elapsed_s)} ({rows}){failed}"


def stage_lines(stages: list[StageCount], now_s: float, elapsed_s: float, width: int) -> Text:
    """Return one line a stage, and below them the time that has passed, in ``width`` cells.

    Where it is narrow the bar goes first, then the bytes, then the rate; numbers are never cut.
    """
    from rich.text import Text

    names = [visible_text(stage.info.name) for stage in stages]
    rates = [stage.rate(now_s, elapsed_s) for stage in stages]
    columns = {
        "bar": [_bar(stage) for stage in stages],
        "rows": [[(f"{stage.num_rows:,}", ""), (_of_total(stage) + " rows", "dim")] for stage in stages],
        "failed": [[(f"{stage.num_failed:,} failed", "red")] if stage.num_failed else [] for stage in stages],
        "rate": [[(format_rate(rate) if rate else "", "cyan")] for rate in rates],
        "bytes": [[(format_bytes(stage.nbytes), "dim")] for stage in stages],
    }
    widths = {kind: max(map(_length, cells), default=0) for kind, cells in columns.items()}
    longest = min(max(map(cell_width, names), default=0), MAX_NAME_WIDTH)
    room = width
    kinds = ["bar", "rows", "failed", "rate", "bytes"]
    for dropped in ("", "bar", "bytes", "rate"):
        kinds = [kind for kind in kinds if kind != dropped]
        room = width - 3 - sum(widths[kind] + 2 for kind in kinds if widths[kind])
        if room >= min(longest, 20):
            break
    name_width = max(min(longest, room), 4)
    text = Text(no_wrap=True, overflow="ellipsis")
    for row, stage in enumerate(stages):
        name = fit(names[row], name_width)
        text.append(*(("✓ ", "green") if stage.is_finished else ("● ", "cyan") if stage.num_rows else ("○ ", "dim")))
        text.append(name + " " * (name_width - cell_width(name)))
        for kind in kinds:
            if widths[kind]:
                text.append(" " * (2 + widths[kind] - _length(columns[kind][row])))
                for part, style in columns[kind][row]:
                    text.append(part, style)
        text.append("\n")
    return text.append(format_seconds(elapsed_s), "dim")


def _of_total(stage: StageCount) -> str:
    return "" if stage.info.total_rows is None or stage.is_finished else f" / {stage.info.total_rows:,}"


def _bar(stage: StageCount) -> list[Part]:
    if not stage.info.total_rows or stage.is_finished:
        return []
    filled = min(BAR_WIDTH * stage.num_rows // stage.info.total_rows, BAR_WIDTH)
    return [("━" * filled, "cyan"), ("─" * (BAR_WIDTH - filled), "dim")]


def _length(parts: list[Part]) -> int:
    return sum(len(text) for text, _ in parts)


class TerminalScreen:
    """Draws over itself in a terminal; what the program prints meanwhile appears above."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False)
        # Rich sends what it catches to its own stream: only what goes to the same terminal anyway may be caught.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=stream is sys.stderr and sys.stdout.isatty(),
            redirect_stderr=stream is sys.stderr,
        )

    def draw(self, lines: Callable[[int], Text]) -> None:
        self._live.update(lines(self._console.width))
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
    """Draws over itself in the output of a notebook's cell; needs no widgets."""

    def __init__(self) -> None:
        ipython = importlib.import_module("IPython.display")
        self._handle: Any = ipython.display({"text/plain": ""}, raw=True, display_id=True)

    def draw(self, lines: Callable[[int], Text]) -> None:
        self._update(lines(NOTEBOOK_WIDTH).plain)

    def close(self, summary: str) -> None:
        self._update(summary)

    def _update(self, text: str) -> None:
        self._handle.update({"text/plain": text}, raw=True)


def _is_watched(stream: TextIO) -> bool:
    if not get_config().progress:
        return False
    try:
        is_terminal = stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    except (AttributeError, ValueError):  # no standard error, as under pythonw, or a closed one
        return False
    return is_terminal or is_notebook()


def is_notebook() -> bool:
    """Whether this is a Jupyter kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
