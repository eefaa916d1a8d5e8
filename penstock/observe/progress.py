"""Progress of a query on the terminal or in a notebook.

Events only add to counters. A thread draws, so that the display stays alive while one slow batch runs. It starts to
draw, and loads rich, after half a second, and has ended when ``on_event`` returns from the end of the query.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from penstock.config import get_config
from penstock.errors import QueryCancelledError
from penstock.observe.events import Event, QueryFinished, QueryStarted
from penstock.observe.stage_stats import StageStats
from penstock.observe.stats import Stats
from penstock.observe.text import cell_width, fit, format_bytes, format_count, format_rate, format_seconds, visible_text

if TYPE_CHECKING:
    from rich.text import Text

DELAY_S = 0.5
INTERVAL_S = 0.15
MAX_JOIN_S = 1.0  # a terminal that takes no output (Ctrl-S) must not hold up the query
RATE_WINDOW = 64  # drawings, about ten seconds
MAX_NAME_WIDTH = 40
NOTEBOOK_WIDTH = 100

Part = tuple[str, str]  # text and its style

_screen_lock = threading.Lock()  # held by the one query on the screen: a query inside a query stays silent


class RecentRate:
    """Rows per second of one stage over the last drawings."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque(maxlen=RATE_WINDOW)

    def update(self, now_s: float, num_rows: int) -> float | None:
        """Record the rows so far; return None if none came during the last drawings."""
        self._recent.append((now_s, num_rows))
        then_s, then_rows = self._recent[0]
        return (num_rows - then_rows) / (now_s - then_s) if num_rows > then_rows and now_s > then_s else None


class Progress:
    """A Subscriber that shows one line per stage while a query runs, and leaves one line when it ends.

    A query that ends within ``delay_s`` shows nothing. Neither does a query without a terminal (``stream``, standard
    error) or a notebook, or with the setting ``progress`` off; ``is_enabled`` overrides that. With ``interval_s=None``
    there is no thread, and the caller calls ``refresh``.
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
        except Exception:  # an error of the display must not end the query
            return

    def refresh(self) -> None:
        """Draw the counters, unless the query is young or another one is on the screen."""
        if self._query is not None:
            self._query.refresh()

    def _take(self, event: Event) -> None:
        query = self._query
        if isinstance(event, QueryStarted):
            if query is not None:
                query.finish("")
            self._query = query = QueryDisplay(self._stream, self._clock, self._delay_s)
            if self._interval_s is not None:
                query.start(self._interval_s)
        if query is not None:
            query.stats.on_event(event)
            if isinstance(event, QueryFinished):
                self._query = None
                query.finish(query.summary(event.error))


class QueryDisplay:
    """The display of one query. After ``start`` only its thread touches the screen.

    The driver's thread updates ``stats``; the display only reads them.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float], delay_s: float) -> None:
        self.stats = Stats()
        self._rates: defaultdict[int, RecentRate] = defaultdict(RecentRate)
        self._stream = stream
        self._clock = clock
        self._delay_s = delay_s
        self._started_s = clock()
        self._screen: Screen | None = None
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._summary = ""

    def start(self, interval_s: float) -> None:
        """Draw every ``interval_s``, in a thread."""
        self._thread = threading.Thread(target=self._run, args=(interval_s,), name="penstock-progress", daemon=True)
        self._thread.start()

    def _run(self, interval_s: float) -> None:
        # An error ends the display, not the query.
        with contextlib.suppress(Exception):
            wait_s = self._delay_s
            while not self._is_over.wait(wait_s):
                self.refresh()
                wait_s = interval_s
        with contextlib.suppress(Exception):
            self._close()

    def refresh(self) -> None:
        """Draw the counters, unless the query is young or another one is on the screen."""
        now_s = self._clock()
        if now_s - self._started_s < self._delay_s:
            return
        if self._screen is None:
            if not _screen_lock.acquire(blocking=False):
                return
            try:
                self._screen = open_screen(self._stream)
            except BaseException:
                _screen_lock.release()
                raise
        elapsed_s = now_s - self._started_s
        rates = [
            0.0 if stage.wall_s is not None else self._rates[index].update(now_s, stage.num_rows)
            for index, stage in enumerate(self.stats.stages)
        ]
        self._screen.draw(lambda width: stage_lines(self.stats.stages, rates, elapsed_s, width))

    def finish(self, summary: str) -> None:
        """Replace the display, if there is one, by ``summary``."""
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
                _screen_lock.release()

    def summary(self, error: BaseException | None) -> str:
        """Return the line that stays."""
        elapsed_s = self._clock() - self._started_s
        num_rows, nbytes = self.stats.result_size()
        rows, failed = format_count(num_rows, "row"), self.stats.failed_text()
        if error is None:
            rate = format_rate(num_rows / elapsed_s) if elapsed_s else "-"
            return f"✓ {rows} in {format_seconds(elapsed_s)} ({rate}, {format_bytes(nbytes)}){failed}"
        ending = "stopped" if isinstance(error, KeyboardInterrupt | QueryCancelledError) else "failed"
        return f"✗ {ending} after {format_seconds(elapsed_s)} ({rows}){failed}"


def stage_lines(stages: list[StageStats], rates: list[float | None], elapsed_s: float, width: int) -> Text:
    """Return one line per stage, and below them the elapsed time, in ``width`` cells.

    ``rates`` are rows per second; None means the average since the start. A narrow screen drops the bytes first, then
    the rate; numbers are never cut.
    """
    from rich.text import Text

    names = [visible_text(stage.stage) for stage in stages]
    rates = [
        stage.num_rows / max(elapsed_s, 1e-9) if rate is None else rate
        for stage, rate in zip(stages, rates, strict=True)
    ]
    columns = {
        "rows": [[(f"{stage.num_rows:,}", ""), (" rows", "dim")] for stage in stages],
        "failed": [[(f"{stage.num_failed:,} failed", "red")] if stage.num_failed else [] for stage in stages],
        "rate": [[(format_rate(rate) if rate else "", "cyan")] for rate in rates],
        "bytes": [[(format_bytes(stage.nbytes), "dim")] for stage in stages],
    }
    widths = {kind: max(map(_length, cells), default=0) for kind, cells in columns.items()}
    longest = min(max(map(cell_width, names), default=0), MAX_NAME_WIDTH)
    room = width
    kinds = ["rows", "failed", "rate", "bytes"]
    for dropped in ("", "bytes", "rate"):
        kinds = [kind for kind in kinds if kind != dropped]
        room = width - 3 - sum(widths[kind] + 2 for kind in kinds if widths[kind])
        if room >= min(longest, 20):
            break
    name_width = max(min(longest, room), 4)
    text = Text(no_wrap=True, overflow="ellipsis")
    for row, stage in enumerate(stages):
        name = fit(names[row], name_width)
        text.append(
            *(("✓ ", "green") if stage.wall_s is not None else ("● ", "cyan") if stage.num_rows else ("○ ", "dim"))
        )
        text.append(name + " " * (name_width - cell_width(name)))
        for kind in kinds:
            if widths[kind]:
                text.append(" " * (2 + widths[kind] - _length(columns[kind][row])))
                for part, style in columns[kind][row]:
                    text.append(part, style)
        text.append("\n")
    return text.append(format_seconds(elapsed_s), "dim")


def _length(parts: list[Part]) -> int:
    return sum(len(text) for text, _ in parts)


def _is_watched(stream: TextIO) -> bool:
    if not get_config().progress:
        return False
    try:
        is_terminal = stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    except (AttributeError, ValueError):  # no standard error, as under pythonw, or a closed one
        return False
    return is_terminal or is_notebook()


class Screen(Protocol):
    """A place for one drawing. ``draw`` replaces the drawing, and ``close`` leaves one line.

    ``lines`` returns the drawing for a width in cells.
    """

    def draw(self, lines: Callable[[int], Text]) -> None: ...

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
    """The output of a notebook's cell, without widgets."""

    def __init__(self) -> None:
        ipython = importlib.import_module("IPython.display")
        self._handle: Any = ipython.display({"text/plain": ""}, raw=True, display_id=True)

    def draw(self, lines: Callable[[int], Text]) -> None:
        self._update(lines(NOTEBOOK_WIDTH).plain)

    def close(self, summary: str) -> None:
        self._update(summary)

    def _update(self, text: str) -> None:
        self._handle.update({"text/plain": text}, raw=True)


def is_notebook() -> bool:
    """Return True in a Jupyter kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
