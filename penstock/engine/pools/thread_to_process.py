"""A pool that begins on threads, which cost nothing to start, and moves to processes if the GIL holds it back."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from penstock.contracts import Emit, Report, Task, WorkerPool
from penstock.engine.pools.gil import GilWatch
from penstock.errors import QueryCancelledError

log = logging.getLogger("penstock.workers")

MakePool = Callable[[Emit], WorkerPool | None]


class ThreadToProcessPool:
    """Implements ``WorkerPool`` with one pool of threads and, once it has moved, one of processes.

    Tasks that started on threads end there. A stage stays on threads if ``make_processes`` returns None, and returns to
    them if its first task in a process fails: the function may not work there.
    """

    def __init__(
        self,
        make_threads: Callable[[Emit], WorkerPool],
        make_processes: MakePool,
        emit: Emit,
        name: str,
        watch: GilWatch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit = emit
        self._name = name  # the name of the function, for the log
        self._watch = watch or GilWatch()
        self._clock = clock
        self._lock = threading.Lock()  # reports come from other threads
        self._on_threads: set[Task] = set()
        self._threads = make_threads(self._passing_on(ThreadToProcessPool._pass_on_from_threads))
        self._make_processes: MakePool | None = make_processes
        self._processes: WorkerPool | None = None
        self._are_threads_closed = False
        self._has_worked = False  # in a process
        self._has_returned = False
        self.capacity = self._threads.capacity

    def submit(self, task: Task) -> None:
        with self._lock:
            is_on_threads = task in self._on_threads
            should_move = self._make_processes is not None and self._watch.is_held_back
        if should_move:
            self._move()
        if self._processes is not None and not is_on_threads and not self._has_returned:
            self._close_threads_if_drained()
            self._processes.submit(task)
        else:
            self._submit_to_threads(task)

    def _submit_to_threads(self, task: Task) -> None:
        with self._lock:
            self._watch.note_start(self._clock())
            self._on_threads.add(task)
        self._threads.submit(task)

    def finish(self) -> None:
        self._threads.finish()  # the last report makes the processes finish

    def close(self) -> None:
        with ExitStack() as closing:
            closing.callback(self._threads.close)
            if self._processes is not None:
                closing.callback(self._processes.close)

    def _move(self) -> None:
        make, self._make_processes = self._make_processes, None
        assert make is not None
        self._processes = make(self._passing_on(ThreadToProcessPool._pass_on_from_processes))
        if self._processes is None:
            log.info("%s holds the GIL, but stays on threads: it cannot be sent to a worker process.", self._name)
        else:
            log.warning(
                "%s holds the GIL, so it moves from threads to worker processes. Each process has its own copy of the "
                "global variables: what the function changes there is not seen here. use_process=False keeps it on "
                "threads; use_process=True uses processes from the start and logs nothing.",
                self._name,
            )

    def _close_threads_if_drained(self) -> None:
        """Close the handlers on threads, which may hold a model, once their last task is done."""
        with self._lock:
            is_drained = self._has_worked and not self._on_threads and not self._are_threads_closed
        if is_drained:
            self._are_threads_closed = True
            self._threads.close()

    def _passing_on(self, pass_on: Callable[[ThreadToProcessPool, Report], None]) -> Emit:
        """Return a receiver for a pool's reports that does not keep this object alive."""
        return partial(ThreadToProcessPool._or_fail, weakref.proxy(self), pass_on)

    def _or_fail(self, pass_on: Callable[[ThreadToProcessPool, Report], None], report: Report) -> None:
        """Pass on a report. An error on this thread must reach the executor as well."""
        try:
            pass_on(self, report)
        except BaseException as exc:
            self._emit(Report(report.task, None, is_done=True, error=exc))

    def _pass_on_from_threads(self, report: Report) -> None:
        if report.task is not None:
            with self._lock:
                self._watch.note_end(self._clock(), report.busy_s, report.wanted_cpu_s)
                if report.is_done:
                    self._on_threads.discard(report.task)
            self._emit(report)
        elif report.is_done and report.error is None and self._processes is not None:
            self._processes.finish()
        else:
            self._emit(report)

    def _pass_on_from_processes(self, report: Report) -> None:
        """Pass on a report. Until a process has produced something, a failed task is retried on a thread."""
        if report.task is None or report.error is None:
            self._has_worked = self._has_worked or report.task is not None
            self._emit(report)
        elif self._has_worked or isinstance(report.error, QueryCancelledError):
            self._emit(report)
        else:
            log.info("%s returns from processes to threads: it failed in a process: %r", self._name, report.error)
            self._has_returned = True
            self._submit_to_threads(report.task)
