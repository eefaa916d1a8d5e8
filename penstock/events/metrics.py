"""``ps.metrics``: counters and gauges of your own, set from inside functions that a query calls.

They are added up over all workers, and shown in the progress, the statistics and the dashboard of the query. Outside
of a query they do nothing.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from contextvars import ContextVar

from penstock.types.frozen import frozen

__all__ = ["increment_counter", "set_gauge"]

_PROCESS = uuid.uuid4().hex  # process ids repeat on other machines


def increment_counter(name: str, by: float = 1) -> None:
    """Add ``by`` to a counter.

    >>> @ps.func
    ... def words(text: str) -> int:
    ...     ps.metrics.increment_counter("characters", len(text))
    ...     return len(text.split())
    >>> df = ps.from_pydict({"t": ["one two", "three"]}).select(words(ps.col("t"))).collect()
    >>> df.stats().counters
    {'characters': 12}
    """
    if (metrics := _current.get() or _of_worker) is not None:
        metrics.increment(name, by)


def set_gauge(name: str, value: float) -> None:
    """Set a gauge, such as the length of a queue. The last values of all processes are added up.

    >>> @ps.func
    ... def load(x: int) -> int:
    ...     ps.metrics.set_gauge("models loaded", 1)
    ...     return x
    >>> ps.range(3).select(load(ps.col("id"))).collect().stats().gauges
    {'models loaded': 1}
    """
    if (metrics := _current.get() or _of_worker) is not None:
        metrics.set_gauge(name, value)


def note_skipped_file(path: str, reason: str, has_rows: bool) -> None:
    """Note a corrupt file that the query skips; ``has_rows`` says whether rows before the damage remain."""
    if (metrics := _current.get() or _of_worker) is not None:
        metrics.note_skipped_file(path, reason, has_rows)


@frozen
class MetricValues:
    """Counter increments, gauge values by name and process, and the reason for each skipped file."""

    counters: Mapping[str, float]
    gauges: Mapping[tuple[str, str], float]
    skipped_files: Mapping[str, tuple[str, bool]]


class Metrics:
    """The counters and gauges of a query, or of one of its workers. Thread-safe."""

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._gauges: dict[tuple[str, str], float] = {}
        self._skipped_files: dict[str, tuple[str, bool]] = {}
        self._lock = threading.Lock()

    def increment(self, name: str, by: float) -> None:
        with self._lock:
            self._counters[name] = self._counters.get(name, 0) + by

    def set_gauge(self, name: str, value: float) -> None:
        with self._lock:
            self._gauges[name, _PROCESS] = value

    def note_skipped_file(self, path: str, reason: str, has_rows: bool) -> None:
        with self._lock:
            self._skipped_files[path] = reason, has_rows

    def add(self, values: MetricValues) -> None:
        with self._lock:
            for name, by in values.counters.items():
                self._counters[name] = self._counters.get(name, 0) + by
            self._gauges.update(values.gauges)
            self._skipped_files.update(values.skipped_files)

    def take(self) -> MetricValues | None:
        """Remove and return everything, or None if nothing came since the last call."""
        if not (self._counters or self._gauges or self._skipped_files):
            return None
        with self._lock:
            taken = MetricValues(self._counters, self._gauges, self._skipped_files)
            self._counters, self._gauges, self._skipped_files = {}, {}, {}
        return taken

    @property
    def counters(self) -> dict[str, float]:
        with self._lock:
            return dict(self._counters)

    @property
    def skipped_files(self) -> dict[str, tuple[str, bool]]:
        with self._lock:
            return dict(self._skipped_files)

    @property
    def gauges(self) -> dict[str, float]:
        """The last value of each gauge, added up over processes."""
        total: dict[str, float] = {}
        with self._lock:
            for (name, _), value in self._gauges.items():
                total[name] = total.get(name, 0) + value
        return total


_current: ContextVar[Metrics | None] = ContextVar("penstock_metrics", default=None)
_of_worker: Metrics | None = None  # in a worker process: collected for its driver


def collect_metrics() -> Metrics:
    """Return an object that collects the metrics of the current context from now on."""
    metrics = Metrics()
    _current.set(metrics)
    return metrics


def current_metrics() -> Metrics | None:
    """Return the object that collects the metrics of the current context."""
    return _current.get()


def is_in_query() -> bool:
    """Return True in code that a query calls, in any of its workers."""
    return (_current.get() or _of_worker) is not None


def collect_for_driver() -> None:
    """Collect the metrics of this worker process until the driver takes them."""
    global _of_worker
    _of_worker = _of_worker or Metrics()


def taken_metrics() -> MetricValues | None:
    """Return the metrics of this worker process since the last call."""
    return None if _of_worker is None else _of_worker.take()
