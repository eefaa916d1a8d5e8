"""Detect functions that hold the GIL: their threads could run, but wait for one another."""

from __future__ import annotations

WINDOW_S = 0.3  # how long to watch before judging
NUM_WINDOWS = 2  # judgements that must agree, because an import or a garbage collection stops all threads for a moment
MIN_CORES = 0.75  # functions that use less wait for a disk or a server
MIN_WORKERS_PER_CORE = 1.4
MIN_TASK_S = 0.01  # a shorter task is mostly engine overhead, and sending it to a process costs more


class GilWatch:
    """Decides, by watching a stage on threads, whether processes would run more of its tasks.

    Threads that use one core together, though several are busy all the time, wait for the GIL. Functions that release
    it use a core each; functions that wait for something else use hardly any.
    """

    def __init__(self) -> None:
        self._num_running = 0
        self._changed_at = 0.0
        self._num_agreeing = 0
        self._start(0.0)

    @property
    def is_held_back(self) -> bool:
        return self._num_agreeing >= NUM_WINDOWS

    def note_start(self, now: float) -> None:
        if not self._num_running and not self._busy_s:
            self._start(now)  # idle time does not count
        self._pass_time(now)
        self._num_running += 1

    def note_end(self, now: float, busy_s: float, wanted_cpu_s: float) -> None:
        """Record a task: its duration, and how long it ran or could have run on a core."""
        self._pass_time(now)
        self._num_running -= 1
        self._num_tasks += 1
        self._busy_s += busy_s
        self._wanted_cpu_s += wanted_cpu_s
        if now - self._started_at >= WINDOW_S:
            self._judge(now)

    def _judge(self, now: float) -> None:
        num_workers = self._worker_s / (now - self._started_at)
        num_cores = num_workers * self._wanted_cpu_s / max(self._busy_s, 1e-9)
        is_bound = num_cores >= MIN_CORES and num_workers >= MIN_WORKERS_PER_CORE * num_cores
        is_bound = is_bound and self._busy_s >= MIN_TASK_S * self._num_tasks
        self._num_agreeing = self._num_agreeing + 1 if is_bound else 0
        self._start(now)

    def _start(self, now: float) -> None:
        self._started_at = self._changed_at = now
        self._worker_s = self._busy_s = self._wanted_cpu_s = 0.0
        self._num_tasks = 0

    def _pass_time(self, now: float) -> None:
        self._worker_s += self._num_running * (now - self._changed_at)
        self._changed_at = now
