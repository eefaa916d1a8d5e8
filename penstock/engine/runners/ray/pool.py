"""The worker pool on Ray actors."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray

from penstock.engine.pools.worker_restart import RestartPlan, RestartPolicy
from penstock.engine.runners.ray.actors import CLOSE_TIMEOUT_S, ActorSource
from penstock.engine.runners.ray.cluster import Cluster, is_node_alive
from penstock.engine.runners.ray.failures import is_death, translated
from penstock.engine.runners.ray.stored import Recipe, StoredBatch, TaskInput, arguments, has_restored, put_batch
from penstock.engine.runners.ray.worker import ActorPlace, ActorReport
from penstock.errors import WorkerDiedError
from penstock.observe.events import RowError
from penstock.observe.metrics import current_metrics
from penstock.protocols import Bundle, Emit, Report, Task

log = logging.getLogger("penstock.workers")

MAX_FAILED_STARTS = 3  # of actors in a row that die before they have opened their handler
MAX_DEATHS = 3  # of actors of one task that cannot be cut, such as a read
IDLE_S = 30.0  # until an actor that the stage may have, but does not need, is released


@dataclass(frozen=True, slots=True)
class PoolSize:
    """The number of actors of a stage. It may grow to ``most()``, which follows the cluster.

    With ``is_gradual`` it doubles once its actors have opened their handlers: a model takes long to load, and tasks
    that are quick need few. Such actors are released when they are idle, down to ``least``.
    """

    most: Callable[[], int]
    least: int = 1
    tasks_per_worker: int = 1
    is_gradual: bool = False


@dataclass(eq=False, slots=True)
class PoolActor:
    """An actor of a pool. ``opened`` is the reply of ``open``."""

    handle: Any
    opened: Any
    is_alone: bool = False
    place: ActorPlace | None = None  # once it is open
    num_tasks: int = 0
    num_remakes: int = 0
    idle_since_s: float = field(default_factory=time.monotonic)


@dataclass(eq=False, slots=True)
class RunningTask:
    """A task that is not done. ``plan`` is None if its input cannot be cut."""

    task: Task
    plan: RestartPlan | None
    actor: PoolActor | None = None
    input: TaskInput | None = None  # of the present part; None before it starts
    num_rows_out: int = 0  # of the present part
    num_deaths: int = 0  # of actors, not of nodes

    def part_input(self) -> TaskInput:
        part = self.plan.part if self.plan is not None else None
        return TaskInput.of(self.task) if part is None else TaskInput.of(self.task, part.offset, part.num_rows)


class RayPool:
    """Implements ``WorkerPool`` on actors, which are started on first use.

    Ray calls back on a thread of its own when an actor has replied. A failure is handled on a thread of its own,
    because it may have to wait until lost batches are made again. If an actor dies, its task starts again in another
    one: without the rows that are out already, then in parts, by ``restart``. If a node is gone, its tasks just start
    again. ``has_state`` marks stages whose actors cannot be replaced, such as relations.
    """

    def __init__(
        self,
        source: ActorSource,
        size: PoolSize,
        cluster: Cluster,
        emit: Emit,
        *,
        restart: RestartPolicy | None = None,
        has_state: bool = False,
    ) -> None:
        self._source = source
        self._size = size
        self._cluster = cluster
        self._emit = emit
        self._restart = restart
        self._has_state = has_state
        self._actors: list[PoolActor] = []
        self._free: list[PoolActor] = []  # an actor for each task that it could take, the one used last at the end
        self._lock = threading.RLock()  # for the actors
        self._running: dict[Task, RunningTask] = {}
        self._waiting: list[RunningTask] = []  # for their actors to open: they do not cause a death before that
        self._awaited: dict[Any, PoolActor] = {}  # the actor that owes each reply
        self._threads: set[threading.Thread] = set()
        self._most = max(size.most(), size.least)
        self._num_open = 0  # actors
        self._num_failed_starts = 0
        self._num_unfinished = 0
        self._finishing = threading.Lock()
        self._is_closed = False
        self._metrics = current_metrics()  # read here: replies come on Ray's threads

    @property
    def capacity(self) -> int:
        num_actors = self._most
        if self._size.is_gradual:
            num_actors = min(num_actors, max(self._size.least, 2 * self._num_open))
        return num_actors * self._size.tasks_per_worker

    def submit(self, task: Task) -> None:
        run = self._running.get(task)
        if run is None:
            can_cut = self._restart is not None and isinstance(task.item, tuple)
            plan = RestartPlan(task.num_rows, self._restart) if can_cut and self._restart else None
            run = self._running[task] = RunningTask(task, plan)
        if run.input is None:
            self._start(run)
        else:
            assert run.actor is not None
            self._call(run.actor, "resume", (), partial(self._receive, run, ()))

    def finish(self) -> None:
        if not self._has_state:
            self._emit(Report(None, None, is_done=True))
            self._on_thread(self._release)
            return
        self._num_unfinished = len(self._actors)
        for actor in self._actors:
            self._call(actor, "finish", (), self._receive_rest)
        if not self._actors:
            self._emit(Report(None, None, is_done=True))

    def close(self) -> None:
        if self._is_closed or not ray.is_initialized():
            return
        self._is_closed = True
        self._release()
        for thread in list(self._threads):
            thread.join(CLOSE_TIMEOUT_S)

    def adjust(self) -> None:
        """Release actors that are idle or on a draining node, and tell the executor that the capacity may differ."""
        now = time.monotonic()
        self._most = max(self._size.most(), self._size.least)
        gone: list[PoolActor] = []
        with self._lock:
            num_spare = len(self._actors) - self._size.least if self._size.is_gradual else 0
            for actor in () if self._has_state else self._actors:
                is_idle = not actor.num_tasks and not actor.num_remakes
                if is_idle and self._is_leaving(actor):
                    gone.append(actor)
                elif is_idle and num_spare > 0 and now - actor.idle_since_s > IDLE_S:
                    gone.append(actor)
                    num_spare -= 1
            for actor in gone:
                self._forget(actor)
        for actor in gone:
            self._source.discard(actor.handle)
        self._emit_unless_closed(Report(None, None, is_done=False))

    def described_tasks(self) -> list[str]:
        """Implements ``DescribesTasks``."""
        runs = list(self._running.values())
        places = [
            run.actor.place.name if run.actor and run.actor.place else "a worker that has not started" for run in runs
        ]
        return [f"rows from {run.task.first_row} in {place}" for run, place in zip(runs, places, strict=True)]

    # --- a task ---

    def _start(self, run: RunningTask) -> None:
        """Start the present part of a task, or the rest of it, in an actor."""
        run.input = run.input or run.part_input()
        while True:
            actor = run.actor or self._free_actor(is_alone=self._size.tasks_per_worker > 1 and run.num_deaths > 1)
            with self._lock:
                is_open = actor.place is not None
                run.actor = actor if is_open or actor in self._actors else None  # it may have failed to open
                if run.actor is not None and not is_open:
                    self._waiting.append(run)
            if run.actor is not None:
                return self._send(run) if is_open else None

    def _send(self, run: RunningTask) -> None:
        assert run.input is not None
        assert run.actor is not None
        given = arguments(run.input.items)
        leading = (run.input.first_row, run.num_rows_out, run.input.slices)
        self._call(run.actor, "start", (*leading, *given), partial(self._receive, run, given))

    def _receive(self, run: RunningTask, given: Any, batch: Any, reply: Any) -> None:
        """Pass on the outcome of a call. ``reply`` is a future, ``given`` are the references that the call got."""
        failure = reply.exception()
        if failure is not None:
            batch.future()  # read, or Ray would print its error
            self._on_thread(partial(self._recover, run, given, failure), run)
            return
        report: ActorReport = reply.result()
        if report.exception is not None:
            return self._end(run, Report(run.task, None, is_done=True, error=report.exception))
        output = None
        if report.has_output:
            assert run.input is not None
            recipe = None if self._has_state else run.input.recipe(self, run.num_rows_out, report.num_rows)
            output = Bundle(StoredBatch(batch, recipe), report.num_rows, report.nbytes)
            run.num_rows_out += report.num_rows
        if report.is_done and run.plan is not None:
            run.plan.note_done()
        self._report(run, output, report.is_done, report.busy_s, report.errors)

    def _report(
        self,
        run: RunningTask,
        output: Bundle | None,
        is_part_done: bool,
        busy_s: float = 0.0,
        errors: tuple[RowError, ...] = (),
    ) -> None:
        if is_part_done:
            run.input, run.num_rows_out = None, 0
        is_done = is_part_done and (run.plan is None or run.plan.part is None)
        report = Report(run.task, output, is_done, busy_s, None, errors)
        if is_done:
            self._end(run, report)
        else:
            self._emit_unless_closed(report)

    def _end(self, run: RunningTask, report: Report) -> None:
        self._running.pop(run.task, None)
        if run.actor is not None:
            self._give_back(run.actor)
        self._emit_unless_closed(report)

    # --- failures ---

    def _recover(self, run: RunningTask, given: Any, failure: BaseException) -> None:
        """Continue a task whose call failed; raise if that is impossible."""
        assert run.input is not None
        if self._is_closed:
            return
        if not is_death(failure) or run.actor is None:
            if not has_restored(run.input.items, given, failure):
                raise translated(failure)
            return self._start(run)
        actor, run.actor = run.actor, None
        self._discard(actor)
        if actor.place is None:
            self._note_failed_start(failure)
        elif self._has_state:
            raise translated(failure, actor.place.name)
        elif is_node_alive(actor.place.node_id):  # otherwise the task is not the cause
            return self._retry(run, translated(failure, actor.place.name))
        self._start(run)

    def _retry(self, run: RunningTask, death: BaseException) -> None:
        """Plan the next attempt after a death that the task may have caused."""
        assert isinstance(death, WorkerDiedError)
        self._num_failed_starts = 0
        run.num_deaths += 1
        assert run.input is not None
        if run.plan is None or run.num_rows_out:
            if run.num_deaths > MAX_DEATHS:
                raise death
        elif run.plan.note_death():
            log.warning("%s Trying its rows again.", death)
            run.input = None
        else:
            return self._give_up(run, run.input, death)
        self._start(run)

    def _give_up(self, run: RunningTask, row: TaskInput, death: WorkerDiedError) -> None:
        """Report the result of a row that kills each of its actors."""
        assert self._restart is not None
        errors: list[RowError] = []
        given = self._restart.give_up(row.fetched(), row.first_row, death, errors.append)
        output = None
        if given is not None:
            output = put_batch(given)
        self._report(run, output, is_part_done=True, errors=tuple(errors))

    def _note_failed_start(self, death: BaseException) -> None:
        self._num_failed_starts += 1
        if self._num_failed_starts > MAX_FAILED_STARTS:
            raise WorkerDiedError(
                f"{self._num_failed_starts} Ray workers in a row died while they were starting. Ray says: {death}"
            ) from death

    def remake(self, recipe: Recipe) -> Any:
        """Implements ``Remaker``."""
        while not self._is_closed:
            items = recipe.inputs()
            given = arguments(items)
            actor = self._remaking_actor()
            leading = (recipe.first_row, recipe.start, recipe.num_rows, recipe.slices)
            method = actor.handle.remake.options(num_returns=2)
            try:
                ray.get(actor.opened)
                batch, reply = method.remote(*self._source.address, *leading, *given)
                report = ray.get(reply)
            except ray.exceptions.RayError as exc:
                if is_death(exc):
                    self._discard(actor)
                    if actor.place is None:
                        self._note_failed_start(exc)
                elif not has_restored(items, given, exc):
                    raise translated(exc) from exc
                continue
            finally:
                with self._lock:
                    actor.num_remakes -= 1
            if report.exception is not None:
                raise report.exception
            return batch
        raise WorkerDiedError("The query ended while a lost batch was made again.")

    def _remaking_actor(self) -> PoolActor:
        """Return the actor that remakes the fewest batches, or a new one if all are busy with that."""
        with self._lock:
            actor = min(self._actors, key=lambda each: (each.num_remakes, each.num_tasks), default=None)
            is_busy = actor is None or (actor.num_remakes > 0 and len(self._actors) < self._most)
        if actor is None or is_busy:
            actor = self._new_actor(is_alone=False)
        with self._lock:
            actor.num_remakes += 1
        return actor

    # --- actors ---

    # The lock is not held during calls of Ray: they wait for its threads, which wait for the lock.

    def _free_actor(self, *, is_alone: bool) -> PoolActor:
        while True:
            with self._lock:
                if self._free and not is_alone:
                    actor = self._free.pop()
                    actor.num_tasks += 1
                    return actor
                num_new = 1 if is_alone else max(self._size.least - len(self._actors), 1)
            for _ in range(num_new):
                actor = self._new_actor(is_alone=is_alone)
            if is_alone:
                actor.num_tasks += 1
                return actor

    def _new_actor(self, *, is_alone: bool) -> PoolActor:
        handle = self._source.acquire(is_alone=is_alone)
        actor = PoolActor(handle, handle.open.remote(*self._source.address), is_alone)
        with self._lock:
            self._actors.append(actor)
            if not is_alone:
                self._free.extend([actor] * self._size.tasks_per_worker)
        if self._is_closed:  # since the call
            self._discard(actor)
        self._on_thread(partial(self._await_open, actor))
        return actor

    def _await_open(self, actor: PoolActor) -> None:
        """Start the tasks that wait for an actor once it is open or dead."""
        place, failure = None, None
        try:
            place = ray.get(actor.opened)
        except ray.exceptions.RayError as exc:
            failure = exc
        with self._lock:
            waiting = [run for run in self._waiting if run.actor is actor]
            self._waiting = [run for run in self._waiting if run.actor is not actor]
            actor.place = place
            if place is None:
                self._forget(actor)
            else:
                self._num_open += actor in self._actors
        for run in waiting:
            work = partial(self._send, run) if failure is None else partial(self._recover, run, (), failure)
            self._on_thread(work, run)
        self._emit_unless_closed(Report(None, None, is_done=False))  # the capacity may have grown

    def _give_back(self, actor: PoolActor) -> None:
        with self._lock:
            actor.num_tasks -= 1
            actor.idle_since_s = time.monotonic()
            if actor.is_alone or (self._is_leaving(actor) and not actor.num_tasks):
                self._forget(actor)
                self._on_thread(partial(self._discard, actor))  # a call of Ray on its own thread would never return
            elif actor in self._actors:
                self._free.append(actor)
                self._take_waiting(actor)

    def _is_leaving(self, actor: PoolActor) -> bool:
        """Say whether an actor must get no more work, because its node drains or is gone. Shared actors stay."""
        can_leave = not self._has_state and self._size.tasks_per_worker == 1
        return can_leave and actor.place is not None and actor.place.node_id not in self._cluster.usable

    def _take_waiting(self, actor: PoolActor) -> None:
        """Give a free actor a task that waits for another one to open: that may take long, or fail for lack of room."""
        if self._waiting and actor.place is not None:
            run = self._waiting.pop(0)
            assert run.actor is not None
            run.actor.num_tasks -= 1
            self._free.insert(0, run.actor)
            self._free.remove(actor)
            run.actor = actor
            actor.num_tasks += 1
            self._on_thread(partial(self._send, run), run)

    def _discard(self, actor: PoolActor) -> None:
        with self._lock:
            self._forget(actor)
        self._source.discard(actor.handle)

    def _forget(self, actor: PoolActor) -> None:
        if actor in self._actors:
            self._actors.remove(actor)
            self._num_open -= actor.place is not None
            self._free = [each for each in self._free if each is not actor]

    def _release(self) -> None:
        with self._lock:
            running = {reply: actor.handle for reply, actor in self._awaited.items()}
            others = set(self._actors) - set(self._awaited.values())
            self._actors, self._free, self._num_open = [], [], 0
        for actor in others:
            if actor.place is None:
                self._source.discard(actor.handle)
        self._source.release([actor.handle for actor in others if actor.place is not None], running)

    def _call(self, actor: PoolActor, method: str, args: tuple[Any, ...], receive: Callable[..., None]) -> None:
        """Call a method of an actor; its reply goes to ``receive``, while the batch stays in the object store."""
        call = getattr(actor.handle, method).options(num_returns=2)
        batch, reply = call.remote(*self._source.address, *args)
        self._awaited[reply] = actor
        reply.future().add_done_callback(partial(self._replied, reply, batch, receive))

    def _replied(self, ref: Any, batch: Any, receive: Callable[..., None], reply: Any) -> None:
        self._awaited.pop(ref, None)
        try:
            if self._metrics is not None and reply.exception() is None and reply.result().metrics is not None:
                self._metrics.add(reply.result().metrics)
            if not self._is_closed:
                receive(batch, reply)
        except BaseException as exc:  # Ray drops exceptions of its callbacks; unpickling the report may raise too
            self._emit_unless_closed(Report(None, None, is_done=True, error=exc))

    def _receive_rest(self, batch: Any, reply: Any) -> None:
        failure = reply.exception()
        report = ActorReport(error=translated(failure)) if failure is not None else reply.result()
        output = Bundle(StoredBatch(batch, None), report.num_rows, report.nbytes) if report.has_output else None
        with self._finishing:  # the report that says is_done must be the last
            self._num_unfinished -= 1
            self._emit_unless_closed(Report(None, output, self._num_unfinished == 0, report.busy_s, report.exception))

    def _emit_unless_closed(self, report: Report) -> None:
        if not self._is_closed:
            self._emit(report)

    def _on_thread(self, work: Callable[[], None], run: RunningTask | None = None) -> None:
        """Do work that may block; an error ends the query."""

        def act() -> None:
            try:
                work()
            except BaseException as exc:
                self._emit_unless_closed(Report(None if run is None else run.task, None, is_done=True, error=exc))
            finally:
                self._threads.discard(thread)

        thread = threading.Thread(target=act, name="penstock-ray-recovery", daemon=True)
        self._threads.add(thread)
        thread.start()
