"""The pool of a stage whose one actor has all the rows: if it dies, another one gets them again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from penstock.contracts import Bundle, Emit, EndOfInput, Report, Task
from penstock.errors import WorkerDiedError
from penstock.runners.ray.pool import MAX_DEATHS, RayPool
from penstock.runners.ray.stored import Recipe, StoredBatch

log = logging.getLogger("penstock.workers")


@dataclass(frozen=True, slots=True)
class PastTask:
    """A task whose batches may be dropped: it has their recipes."""

    task: Task  # without bundles
    batches: tuple[tuple[Recipe | StoredBatch, Bundle], ...]  # each with its slice

    @staticmethod
    def of(task: Task) -> PastTask:
        bundles = task.item if isinstance(task.item, tuple) else ()
        batches = tuple((each.handle.recipe or each.handle, replace(each, handle=None)) for each in bundles)
        item = task.item if isinstance(task.item, EndOfInput) else ()
        return PastTask(Task(item, task.first_row, task.nbytes, task.num_rows), batches)

    def again(self) -> Task:
        """Return an equal task. Blocks while lost batches are recomputed."""
        if isinstance(self.task.item, EndOfInput):
            return replace(self.task)
        found = ((each.batch() if isinstance(each, Recipe) else each, part) for each, part in self.batches)
        return replace(self.task, item=tuple(replace(part, handle=batch) for batch, part in found))


class ReplayPool:
    """Implements ``WorkerPool``. ``make_pool`` makes a pool of one actor, which takes one task at a time.

    Once rows are out, a death ends the query. With ``holds_output`` they are out only at the end, as is right for the
    small records of a writer: its files are written again, and those of the dead one are never committed.
    """

    def __init__(self, make_pool: Callable[[Emit], RayPool], emit: Emit, *, holds_output: bool) -> None:
        self._make_pool = make_pool
        self._pool = make_pool(self._receive)
        self._emit = emit
        self._holds_output = holds_output
        self._held: list[Bundle] = []
        self._past: list[PastTask] = []
        self._present: Task | None = None  # None once all are done
        self._has_output = False
        self._num_deaths = 0
        self._repeated: Task | None = None
        self._is_repeated = threading.Event()
        self._is_closed = False

    @property
    def capacity(self) -> int:
        return 1

    def submit(self, task: Task) -> None:
        if self._present is not None and self._present is not task and not self._has_output:
            self._past.append(PastTask.of(self._present))
        self._present = task
        self._pool.submit(task)

    def finish(self) -> None:
        if self._present is not None:
            self._past.append(PastTask.of(self._present))
        self._present = None
        self._pool.finish()

    def close(self) -> None:
        self._is_closed = True
        self._is_repeated.set()
        self._pool.close()

    def described_tasks(self) -> list[str]:
        """Implements ``DescribesTasks``."""
        return self._pool.described_tasks()

    def _receive(self, report: Report) -> None:
        if isinstance(report.error, WorkerDiedError) and self._num_deaths < MAX_DEATHS and not self._has_output:
            self._num_deaths += 1
            self._is_repeated.set()  # for the thread that waits for the dead one
            log.warning("%s Its rows are sent to another one.", report.error)
            return self._on_thread(partial(self._repeat, self._num_deaths))
        if report.output is not None and self._holds_output:
            self._held.append(report.output)
            report = replace(report, output=None)
        if report.task is not None and report.task is self._repeated:
            return self._receive_repeated(report.task, report)
        if report.output is not None and report.output.num_rows:
            self._has_output, self._past = True, []
        if report.task is None and report.is_done:
            for output in self._held:
                self._emit(Report(None, output, is_done=False))
        self._emit(report)

    def _receive_repeated(self, task: Task, report: Report) -> None:
        if report.error is not None or (report.output is not None and report.output.num_rows > 0):
            why = "A Ray worker died, and its rows were sent to another one, which gave rows at another point."
            self._emit(Report(self._present, None, is_done=True, error=report.error or WorkerDiedError(why)))
        elif report.is_done:
            self._is_repeated.set()
        else:
            self._on_thread(partial(self._pool.submit, task))

    def _repeat(self, number: int) -> None:
        """Give another actor all tasks so far, unless that dies as well."""
        dead, self._pool, self._held = self._pool, self._make_pool(self._receive), []
        dead.close()
        if self._is_closed:  # close() may have found the dead pool
            self._pool.close()
        for past in self._past:
            self._is_repeated.clear()
            if self._is_stale(number):  # checked after the clear, which could undo a set
                return
            self._repeated = past.again()
            self._pool.submit(self._repeated)
            self._is_repeated.wait()
        if self._is_stale(number):
            return
        self._repeated = None
        if self._present is None:
            self._pool.finish()
        else:
            self._pool.submit(self._present)

    def _is_stale(self, number: int) -> bool:
        """Return whether repetition ``number`` must stop: the query has ended, or its actor has died too."""
        return self._is_closed or self._num_deaths > number

    def _on_thread(self, work: Callable[[], None]) -> None:
        """Do work that may block; an error ends the query."""

        def act() -> None:
            try:
                work()
            except BaseException as exc:
                if not self._is_closed:
                    self._emit(Report(self._present, None, is_done=True, error=exc))

        threading.Thread(target=act, name="penstock-ray-replay", daemon=True).start()
