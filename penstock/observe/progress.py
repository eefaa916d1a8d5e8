"""Progress of a query on the terminal or in a notebook.

Events only add to counters. A thread draws, so that the display stays alive while one slow batch runs. The thread
starts to draw, and loads rich, after half a second. It has ended when ``on_event`` returns from the last event.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TextIO

from penstock.config import get_config
from penstock.errors import QueryCancelledError
from penstock.events.events import Event, QueryFinished, QuerySampled, QueryStarted
from penstock.observe.closing_line import Destination, closing_line
from penstock.observe.printable import terminal_width, wrapped_text
from penstock.observe.progress_text import progress_line, progress_text
from penstock.observe.screens import Screen, is_notebook, open_screen
from penstock.observe.stats import Stats
from penstock.protocols import Subscriber

DELAY_S = 0.5
INTERVAL_S = 0.3
MAX_INTERVAL_S = 1.0  # the interval of a long query, whose numbers change little: a drawing takes a millisecond
MAX_INTERVAL_SHARE = 0.05  # the interval as a share of the time so far
MAX_JOIN_S = 1.0  # a terminal that takes no output (Ctrl-S) must not hold up the query
LINE_INTERVAL_S = 30.0  # seconds between lines without a terminal


class Progress:
    """A Subscriber that shows one line per stage while a query runs, and leaves one line when it ends.

    A query that ends within ``delay_s`` shows nothing. Only a thread touches the screen. With ``interval_s=None`` there
    is no thread, and the caller calls ``refresh``. If another subscriber counts the totals of the query, ``stats`` is
    that one. ``destination`` is the place that the query writes to.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        delay_s: float = DELAY_S,
        interval_s: float | None = INTERVAL_S,
        stats: Stats | None = None,
        destination: Destination | None = None,
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._delay_s = delay_s
        self._interval_s = interval_s
        self._has_own_stats = stats is None
        self._stats = stats or Stats()
        self._destination = destination
        self._started_s = 0.0
        self._screen: Screen | None = None
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._is_over.set()
        self._line = ""

    def on_event(self, event: Event) -> None:
        try:
            self._take(event)
        except Exception:  # an error of the display must not end the query
            return

    def _take(self, event: Event) -> None:
        if self._has_own_stats:
            self._stats.on_event(event)
        if isinstance(event, QueryStarted):
            self._start()
        elif isinstance(event, QueryFinished) and not self._is_over.is_set():
            elapsed_s = self._clock() - self._started_s
            self._finish(closing_line(self._stats, event.error, elapsed_s, self._destination))

    def _start(self) -> None:
        """Begin the display, whose thread draws less often when the query is long."""
        self._finish("")
        self._started_s = self._clock()
        self._is_over.clear()
        if self._interval_s is not None:
            context = copy_context()  # in a notebook, it knows the cell of the query
            run = partial(context.run, self._run, self._interval_s)
            self._thread = threading.Thread(target=run, name="penstock-progress", daemon=True)
            self._thread.start()

    def _run(self, interval_s: float) -> None:
        # An error ends the display, not the query.
        with contextlib.suppress(Exception):
            wait_s = self._delay_s
            while not self._is_over.wait(wait_s):
                self.refresh()
                elapsed_s = self._clock() - self._started_s
                wait_s = max(interval_s, min(elapsed_s * MAX_INTERVAL_SHARE, MAX_INTERVAL_S))
        with contextlib.suppress(Exception):
            self._close()

    def refresh(self) -> None:
        """Draw the counters, unless the query is young."""
        elapsed_s = self._clock() - self._started_s
        if self._is_over.is_set() or elapsed_s < self._delay_s:
            return
        if self._screen is None:
            self._screen = open_screen(self._stream)
        self._screen.draw(partial(progress_text, self._stats, elapsed_s))

    def _finish(self, line: str) -> None:
        """Replace the display, if there is one, by a line."""
        self._line = line
        self._is_over.set()
        if self._thread is None:
            self._close()
        else:
            self._thread.join(MAX_JOIN_S)

    def _close(self) -> None:
        screen, self._screen = self._screen, None
        if screen is not None:
            screen.close(self._line)
            self._stats.has_closing_line = True


class ProgressLog:
    """A Subscriber that prints one line every 30 seconds, for a query whose progress goes to a file.

    A query that is shorter prints a line if it is interrupted, or if the file is a terminal that cannot show progress.
    """

    def __init__(
        self, stream: TextIO | None = None, stats: Stats | None = None, destination: Destination | None = None
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._has_own_stats = stats is None
        self._stats = stats or Stats()
        self._destination = destination
        self._started_s = self._due_at_s = 0.0
        self._has_printed = False

    def on_event(self, event: Event) -> None:
        try:
            self._take(event)
        except Exception:  # an error of the display must not end the query
            return

    def _take(self, event: Event) -> None:
        if self._has_own_stats:
            self._stats.on_event(event)
        match event:
            case QueryStarted(_, time_s):
                self._started_s, self._due_at_s = time_s, time_s + LINE_INTERVAL_S
                self._has_printed = False
            case QuerySampled(time_s) if time_s >= self._due_at_s:
                self._due_at_s = time_s + LINE_INTERVAL_S
                self._print(progress_line(self._stats, time_s - self._started_s))
            case QueryFinished(error, time_s) if self._is_closing_line_due(error, time_s - self._started_s):
                line = closing_line(self._stats, error, time_s - self._started_s, self._destination)
                self._print(f"penstock: {line}")
                self._stats.has_closing_line = True

    def _is_closing_line_due(self, error: BaseException | None, elapsed_s: float) -> bool:
        is_interrupted = isinstance(error, KeyboardInterrupt | QueryCancelledError)
        return self._has_printed or (elapsed_s >= DELAY_S and (is_interrupted or _is_terminal(self._stream)))

    def _print(self, line: str) -> None:
        self._has_printed = True
        if self._stream is not None:
            self._stream.write("\n".join([*wrapped_text(line, _width_of(self._stream)), ""]))
            self._stream.flush()


def progress_subscriber(stats: Stats | None, destination: Destination | None = None) -> Subscriber:
    """Return a drawing for a person who watches, or lines for a file; see ``Progress`` for the arguments."""
    return (Progress if is_watched(sys.stderr) else ProgressLog)(stats=stats, destination=destination)


def is_watched(stream: TextIO) -> bool:
    """Return whether progress can be drawn: in a notebook, or on a terminal that no other program writes to.

    Standard output that is a pipe may lead to the same terminal, as in ``| head`` or ``| tee``. A drawing would erase
    what comes out there.
    """
    if not get_config().progress:
        return False
    is_drawable = _is_terminal(stream) and os.environ.get("TERM") not in ("dumb", "unknown")
    return is_notebook() or (is_drawable and not (stream is sys.stderr and _is_pipe(sys.stdout)))


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):  # no standard error, as under pythonw, or a closed one
        return False


def _width_of(stream: TextIO) -> int | None:
    return terminal_width(stream) if _is_terminal(stream) else None


def _is_pipe(stream: TextIO) -> bool:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there may be none, or one without a file
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    return False
