"""The pool of a relation whose rows are shuffled once they do not fit in the memory of one node."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from penstock.contracts import Bundle, Emit, EndOfInput, Report, Task
from penstock.engine.pools.threads import ThreadPool
from penstock.runners.ray.shuffle import RowShuffle, groups_of, nbytes_of


class ShufflePool:
    """Implements ``WorkerPool``. All rows go to one worker in this process, until they are more than ``max_nbytes`` and
    nothing has come out: then what the worker got, and everything after it, goes through a shuffle.
    """

    def __init__(
        self,
        make_single: Callable[[Emit], ThreadPool],
        make_shuffle: Callable[[Emit], RowShuffle],
        num_cores: int,
        max_nbytes: int,
        emit: Emit,
    ) -> None:
        self._single = make_single(partial(ShufflePool._pass_on, weakref.proxy(self)))
        self._make_shuffle = make_shuffle
        self._shuffle: RowShuffle | None = None
        self._num_cores = num_cores
        self._max_nbytes = max_nbytes
        self._emit = emit
        self._bundles: list[Bundle] = []  # sent to the worker, or waiting to be a group
        self._nbytes = 0
        self._has_output = False
        self._last: Task | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._added: list[Future[None]] = []  # of each group
        self._may_continue = threading.Event()
        self._is_closed = False

    @property
    def capacity(self) -> int:
        return 1 if self._shuffle is None else self._num_cores

    def submit(self, task: Task) -> None:
        is_new, self._last = task is not self._last, task
        if self._shuffle is None:
            if is_new and isinstance(task.item, tuple) and not self._has_output:
                self._bundles += task.item
                self._nbytes += task.nbytes
            if self._has_output or self._nbytes <= self._max_nbytes:
                return self._single.submit(task)
            self._begin()
        elif not is_new:
            return self._may_continue.set()
        elif isinstance(task.item, tuple):
            self._bundles += task.item
            self._nbytes += task.nbytes
        self._shuffle_rows(task)

    def _shuffle_rows(self, task: Task) -> None:
        """Give the shuffle the rows that wait, in groups; too few for a group wait on, unless they are the last."""
        assert self._shuffle is not None
        assert self._threads is not None
        is_last, groups = isinstance(task.item, EndOfInput), list[list[Bundle]]()
        if is_last or self._nbytes >= self._shuffle.group_nbytes:
            groups = list(groups_of(self._bundles, self._shuffle.group_nbytes))
            self._bundles = [] if is_last or nbytes_of(groups[-1]) >= self._shuffle.group_nbytes else groups.pop()
            self._nbytes = nbytes_of(self._bundles)
        added = [self._threads.submit(self._shuffle.add, *each) for each in enumerate(groups, len(self._added))]
        self._added += added
        self._on_thread(task, partial(self._end, task) if is_last else partial(self._wait, task, added))

    def finish(self) -> None:
        if self._shuffle is None:
            self._single.finish()
        else:
            self._emit(Report(None, None, is_done=True))

    def close(self) -> None:
        self._is_closed = True
        self._may_continue.set()
        self._single.close()
        if self._shuffle is not None and self._threads is not None:
            self._shuffle.close()
            self._threads.shutdown(cancel_futures=True)

    def described_tasks(self) -> list[str]:
        """Implements ``DescribesTasks``."""
        return ["rows in the driver's process" if self._shuffle is None else "rows divided into parts"]

    def _pass_on(self, report: Report) -> None:
        """Receive the reports of the worker."""
        if self._shuffle is not None:
            return  # it is being closed
        if report.output is not None and report.output.num_rows:
            self._has_output = True
            self._bundles = []
        self._emit(report)

    def _begin(self) -> None:
        self._threads = ThreadPoolExecutor(2 * self._num_cores + 1, "penstock-ray-shuffle")
        self._shuffle = self._make_shuffle(self._emit)
        self._threads.submit(self._single.close)

    def _wait(self, task: Task, added: list[Future[None]]) -> None:
        """Report a task once the groups that it completed are divided."""
        for future in added:
            future.result()
        self._emit(Report(task, None, is_done=True))

    def _end(self, task: Task) -> None:
        assert self._shuffle is not None
        for future in self._added:
            future.result()
        for bundle in self._shuffle.results():
            self._may_continue.clear()
            if self._is_closed:  # checked after the clear, which could undo the set of close()
                return
            self._emit(Report(task, bundle, is_done=False))
            del bundle
            self._may_continue.wait()
        self._emit(Report(task, None, is_done=True))

    def _on_thread(self, task: Task, work: Callable[[], None]) -> None:
        """Do work that blocks; an error ends the query."""

        def act() -> None:
            try:
                work()
            except BaseException as exc:
                if not self._is_closed:
                    self._emit(Report(task, None, is_done=True, error=exc))

        assert self._threads is not None
        self._threads.submit(act)
