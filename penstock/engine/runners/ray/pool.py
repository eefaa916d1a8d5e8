"""The worker pool on Ray actors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayTaskError

from penstock.cost.accounts import current_account
from penstock.engine.runners.ray.actors import ActorSource
from penstock.engine.runners.ray.worker import ActorReport
from penstock.errors import WorkerDiedError
from penstock.protocols import Bundle, Emit, Report, Task

Receive = Callable[[ActorReport, Bundle | None], None]


class RayPool:
    """Implements ``WorkerPool`` on actors, which are started on first use.

    Ray calls back on a thread of its own when an actor has replied; the pool has no threads.
    """

    def __init__(self, source: ActorSource, num_workers: int, tasks_per_worker: int, emit: Emit) -> None:
        self.capacity = num_workers * tasks_per_worker
        self._source = source
        self._tasks_per_worker = tasks_per_worker
        self._emit = emit
        self._actors: list[Any] = []
        self._free: list[Any] = []  # an actor for each task that it could take
        self._busy: dict[int, Any] = {}
        self._awaited: dict[Any, Any] = {}  # the actor that owes each reply
        self._num_unfinished = 0
        self._finishing = threading.Lock()
        self._account = current_account()  # read here: replies come on Ray's threads
        self._is_closed = False

    def submit(self, task: Task) -> None:
        receive = partial(self._report, task)
        actor = self._busy.get(id(task))
        if actor is not None:
            self._call(actor, actor.resume, receive=receive)
            return
        actor = self._busy[id(task)] = self._free_actor()
        self._call(actor, actor.start, task.first_row, *arguments(task), receive=receive)

    def finish(self) -> None:
        self._num_unfinished = len(self._actors)
        for actor in self._actors:
            self._call(actor, actor.finish, receive=self._report_rest)
        if not self._actors:
            self._emit(Report(None, None, is_done=True))

    def close(self) -> None:
        if self._is_closed or not ray.is_initialized():
            return
        self._is_closed = True
        running = self._awaited.copy()
        idle = [actor for actor in self._actors if actor not in running.values()]
        self._source.release(idle, running)

    def _free_actor(self) -> Any:
        if not self._free:
            actor = self._source.acquire()
            self._actors.append(actor)
            self._free.extend([actor] * self._tasks_per_worker)
        return self._free.pop()

    def _call(self, actor: Any, method: Any, *args: Any, receive: Receive) -> None:
        """Call a method of an actor; its report goes to ``receive``, while the batch stays in the object store."""
        batch, reply = method.options(num_returns=2).remote(*self._source.address, *args)
        self._awaited[reply] = actor
        reply.future().add_done_callback(partial(self._receive, reply, batch, receive))

    def _receive(self, ref: Any, batch: Any, receive: Receive, future: Any) -> None:
        self._awaited.pop(ref)
        try:
            failure = future.exception()
            report = ActorReport(error=translated(failure)) if failure is not None else future.result()
            if report.spent is not None and self._account is not None:
                self._account.enter(report.spent)
            if self._is_closed:
                return
            receive(report, Bundle(batch, report.num_rows, report.nbytes) if report.has_output else None)
        except BaseException as exc:  # Ray drops exceptions of its callbacks; unpickling the report may raise too
            if not self._is_closed:
                self._emit(Report(None, None, is_done=True, error=exc))

    def _report(self, task: Task, report: ActorReport, output: Bundle | None) -> None:
        if report.is_done:
            self._free.append(self._busy.pop(id(task)))
        self._emit(Report(task, output, report.is_done, report.busy_s, report.exception, report.errors))

    def _report_rest(self, report: ActorReport, output: Bundle | None) -> None:
        with self._finishing:  # the report that says is_done must be the last
            self._num_unfinished -= 1
            self._emit(Report(None, output, self._num_unfinished == 0, report.busy_s, report.exception))


def arguments(task: Task) -> tuple[Any, ...]:
    """Return a task for an actor: the read task; or the slices to take, and the references that Ray resolves."""
    if not isinstance(task.item, tuple):
        return None, task.item
    return tuple((b.offset, b.num_rows) for b in task.item), *(b.handle for b in task.item)


def translated(exc: BaseException) -> BaseException:
    """Return an exception of Ray as one of ours."""
    if isinstance(exc, RayTaskError):  # the call did not reach the handler, for example because a module is missing
        cause: BaseException = exc.cause
        cause.add_note(f"In the Ray worker:\n{exc.traceback_str}")
        return cause
    error = WorkerDiedError(
        "A Ray worker died while it worked on a batch, or a batch was lost with its node. If it ran out of memory, "
        f"use a smaller batch_size or fewer workers. Ray says: {exc}"
    )
    error.__cause__ = exc
    return error
