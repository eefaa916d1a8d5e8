"""The worker pool on Ray actors: runs tasks, starts them again after failures, and recomputes lost batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

import ray

from penstock.contracts import Bundle, Emit, Report, Task
from penstock.engine.pools.worker_restart import RestartPlan, RestartPolicy
from penstock.errors import WorkerDiedError
from penstock.events.events import RowError
from penstock.events.metrics import current_metrics
from penstock.runners.ray.actor_group import ActorGroup, PoolActor, PoolSize
from penstock.runners.ray.actors import CLOSE_TIMEOUT_S, ActorSlot
from penstock.runners.ray.cluster import Cluster, is_node_alive
from penstock.runners.ray.failures import is_death, translated
from penstock.runners.ray.node_memory import NodeMemory
from penstock.runners.ray.stored import (
    Recipe,
    StoredBatch,
    TaskInput,
    arguments,
    has_restored,
    put_batch,
)
from penstock.runners.ray.worker import ActorReport, References, WrittenBatch

log = logging.getLogger("penstock.workers")

MAX_DEATHS = 3  # of actors of one task that cannot be cut, such as a read


@dataclass(eq=False, slots=True)
class RunningTask:
    """A task that is not done. ``plan`` is None if its input cannot be cut."""

    task: Task
    plan: RestartPlan | None
    actor: PoolActor | None = None
    input: TaskInput | None = None  # of the current part; None before it starts
    num_rows_out: int = 0  # of the current part
    num_deaths: int = 0  # of actors, not of nodes

    def part_input(self) -> TaskInput:
        part = self.plan.part if self.plan is not None and self.task.num_rows else None  # columns alone are not cut
        return TaskInput.of(self.task) if part is None else TaskInput.of(self.task, part.offset, part.num_rows)


class RayPool:
    """Implements ``WorkerPool`` on actors, which are started on first use. ``name`` is the stage's name.

    Ray calls back on a thread of its own when an actor has replied. A failure is handled on a thread of its own,
    because it may have to wait until lost batches are made again. If an actor dies, its task starts again in another
    actor. It skips rows that have left already; if it dies again, ``restart`` splits it. If a node is gone, its tasks
    just start again. A task waits until ``memory`` has room on the node of its actor. With ``fetches_one_by_one`` the
    handler gets an iterator of the batches of a task. With ``may_write`` a worker may write the output of a task; the
    pool of the write only passes on the records.
    """

    is_cheap = False

    def __init__(
        self,
        name: str,
        slot: ActorSlot,
        size: PoolSize,
        cluster: Cluster,
        emit: Emit,
        memory: NodeMemory,
        *,
        restart: RestartPolicy | None = None,
        fetches_one_by_one: bool = False,
        may_write: bool = False,
    ) -> None:
        self._stage = slot.stage
        self._emit = emit
        self._memory = memory
        self._restart = restart
        self._fetches_one_by_one = fetches_one_by_one
        self._may_write = may_write
        self._group = ActorGroup(name, slot, size, cluster, self)
        self._running: dict[Task, RunningTask] = {}
        self._awaited: dict[Any, PoolActor] = {}  # the actor that owes each reply
        self._threads: WeakSet[threading.Thread] = WeakSet()  # that run
        self._starting = threading.Lock()
        self._is_closed = False
        self._metrics = current_metrics()  # read here: replies come on Ray's threads

    @property
    def capacity(self) -> int:
        return self._group.capacity

    def submit(self, task: Task) -> None:
        if isinstance(task.item, tuple) and isinstance(written := task.item[0].handle, WrittenBatch):
            records = Bundle(written, written.records.num_rows, written.records.nbytes)
            return self._emit(Report(task, records, is_done=True, busy_s=written.write_s))
        run = self._running.get(task)
        if run is None:
            can_cut = self._restart is not None and isinstance(task.item, tuple)
            plan = RestartPlan(task.num_rows, self._restart) if can_cut and self._restart else None
            run = self._running[task] = RunningTask(task, plan)
        if run.input is None:
            self._start(run)
        else:
            self._call(run, "resume", (run.input.first_row,))

    def finish(self) -> None:
        self._emit(Report(None, None, is_done=True))
        self.on_thread(lambda: self._group.release(dict(self._awaited)))

    def close(self) -> None:
        if self._is_closed or not ray.is_initialized():
            return
        with self._starting:
            self._is_closed = True
        self._emit = lambda report: None  # a late report must not keep its batch
        self._group.close(dict(self._awaited))
        with self._starting:  # each of them runs
            threads = list(self._threads)
        for thread in threads:
            thread.join(CLOSE_TIMEOUT_S)

    def adjust(self) -> None:
        """Follow the cluster: its size, and nodes that drain."""
        self._group.adjust()

    def follow_size(self) -> None:
        """Follow the numbers of actors of the other stages."""
        before = self.capacity
        self._group.follow_size()
        if self.capacity > before:
            self.capacity_changed()

    def described_tasks(self) -> list[str]:
        """Implements ``DescribesTasks``."""
        runs, missing = list(self._running.values()), self._group.missing
        none = f"a worker that has not started: {missing}" if missing else "a worker that has not started"
        places = [run.actor.place.name if run.actor and run.actor.place else none for run in runs]
        return [f"rows from {run.task.first_row} in {place}" for run, place in zip(runs, places, strict=True)]

    # --- a task ---

    def _start(self, run: RunningTask) -> None:
        """Start the current part of a task, or the rest of it, in an actor."""
        run.input = run.input or run.part_input()
        has_room = partial(self._memory.has_room, nbytes=run.task.nbytes_held)
        if self._group.lend(run, run.input.node_id(), is_alone=run.num_deaths > 1, has_room=has_room):
            self._send(run)

    def _send(self, run: RunningTask) -> None:
        assert run.input is not None
        given = arguments(run.input.items)
        leading = (run.input.first_row, run.num_rows_out, run.input.slices)
        # The rows of a worker that died are tried without the write, and in parts: only the task itself makes a file.
        method = "write" if self._may_write and not run.num_deaths and not run.num_rows_out else "start"
        self._call(run, method, (*leading, *self._sent(given)), given)

    def _call(self, run: RunningTask, method: str, args: tuple[Any, ...], given: Sequence[Any] = ()) -> None:
        """Call a method of a task's actor, with the references ``given``, once its node has room for the task."""
        assert run.actor is not None
        assert run.actor.place is not None
        nbytes, actor = run.task.nbytes_held, run.actor

        def call() -> None:
            batch, ref = actor.process.call(method, self._stage, *args)
            self._awaited[ref] = actor
            ref.future().add_done_callback(partial(self._replied, run, actor, given, ref, batch, nbytes))

        if not nbytes or self._memory.reserve(run.actor.place.node_id, nbytes, lambda: self.on_thread(call, run)):
            call()

    def _replied(
        self, run: RunningTask, actor: PoolActor, given: Sequence[Any], ref: Any, batch: Any, reserved: int, reply: Any
    ) -> None:
        """Receive the ``reply`` of a call; the ``batch`` stays in the object store."""
        self._awaited.pop(ref, None)
        if reserved and actor.place is not None:
            self._memory.release(actor.place.node_id, reserved)
        if reply.exception() is not None and is_death(reply.exception()):
            actor.process.note_death(ref)
        actor.process.replies.pop(ref, None)
        try:
            if self._metrics is not None and reply.exception() is None and reply.result().metrics is not None:
                self._metrics.add(reply.result().metrics)
            if not self._is_closed:
                self._receive(run, given, ref, batch, reply)
        except BaseException as exc:  # Ray drops exceptions of its callbacks; unpickling the report may raise too
            self._emit_unless_closed(Report(None, None, is_done=True, error=exc))

    def _receive(self, run: RunningTask, given: Sequence[Any], ref: Any, batch: Any, reply: Any) -> None:
        failure = reply.exception()
        if failure is not None:
            batch.future()  # read, or Ray would print its error
            self.on_thread(partial(self._recover, run, given, failure, ref), run)
            return
        report: ActorReport = reply.result()
        if report.exception is not None:
            return self._end(run, Report(run.task, None, is_done=True, error=report.exception))
        output = None
        if report.written is not None:
            output = Bundle(report.written, report.num_rows, report.nbytes, is_task=True)
        elif report.has_output:
            assert run.input is not None
            recipe = Recipe(self, run.input.as_recipes(), run.num_rows_out, report.num_rows)
            node_id = run.actor.place.node_id if run.actor and run.actor.place else None
            output = Bundle(StoredBatch(batch, recipe, node_id), report.num_rows, report.nbytes)
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
            self._group.take_back(run.actor)
        self._emit_unless_closed(report)

    # --- failures ---

    def _recover(self, run: RunningTask, given: Sequence[Any], failure: BaseException, ref: Any = None) -> None:
        """Continue a task whose call failed; raise if that is impossible. ``ref`` is None if its actor did not open."""
        assert run.input is not None
        if self._is_closed:
            return
        if ref is not None and (not is_death(failure) or run.actor is None):
            if not has_restored(run.input.items, given, failure):
                raise translated(failure)
            return self._start(run)
        actor, run.actor = run.actor, None
        assert actor is not None
        if self._is_blamed(actor, ref, failure) and actor.place is not None:
            death = translated(failure, actor.place.name)
            if self._group.is_first_note(actor):
                log.warning("%s Trying its rows again.", death)
            return self._retry(run, death, self._group.is_shared(actor))
        self._start(run)

    def _retry(self, run: RunningTask, death: BaseException, was_shared: bool) -> None:
        """Plan the next attempt after a death that the task may have caused.

        If the actor ``was_shared``, another task may have killed it, so this task is tried alone before its rows are
        split or fail.
        """
        assert isinstance(death, WorkerDiedError)
        run.num_deaths += 1
        assert run.input is not None
        if run.plan is None or run.num_rows_out:
            if run.num_deaths > MAX_DEATHS:
                raise death
        elif was_shared and run.num_deaths > 1:
            pass
        elif run.plan.note_death():
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

    def remake(self, recipe: Recipe) -> Any:
        """Implements ``Remaker``."""
        rows = recipe.input.from_recipes()
        (batch,), report = self.result_of("remake", (rows.first_row, recipe.start, recipe.num_rows), rows)
        if report.exception is not None:
            raise report.exception
        return batch

    def result_of(
        self, method: str, leading: tuple[Any, ...], rows: TaskInput, num_returns: int = 2
    ) -> tuple[list[Any], Any]:
        """Call a method of an actor; repeat it if the actor dies or batches are lost. Blocks.

        Return references to the objects that the method returns, without the last, and the last object itself.
        """
        num_deaths = 0
        while not self._is_closed:
            given = arguments(rows.items)
            with self._group.calling(rows.node_id()) as actor:
                refs: list[Any] = [actor.opened]
                try:
                    ray.get(actor.opened)
                    sent = (self._stage, *leading, rows.slices, *self._sent(given))
                    refs = list(actor.process.call(method, *sent, num_returns=num_returns))
                    return refs[:-1], ray.get(refs[-1])
                except ray.exceptions.RayError as exc:
                    for ref in refs[:-1]:
                        ref.future()  # read, or Ray would print its error
                    if not is_death(exc) and not has_restored(rows.items, given, exc):
                        raise translated(exc) from exc
                    num_deaths += is_death(exc) and self._is_blamed(actor, refs[-1], exc)
                    if num_deaths > MAX_DEATHS:
                        raise translated(exc) from exc
                finally:
                    actor.process.replies.pop(refs[-1], None)
        raise WorkerDiedError("The query ended while its rows were divided or made again.")

    def _is_blamed(self, actor: PoolActor, reply: Any, death: BaseException) -> bool:
        """Discard an actor that died; return whether the call that owes ``reply`` may have killed it."""
        actor.process.note_death(reply)
        self._group.discard(actor)
        if actor.place is None:
            self._group.note_failed_start(actor, death)
            return False
        return actor.process.may_have_died_of(reply) and is_node_alive(actor.place.node_id)

    def _sent(self, given: list[Any]) -> tuple[Any, ...]:
        """Return references as the arguments of a call."""
        return (References(given),) if self._fetches_one_by_one else tuple(given)

    def actor_is_ready(self, borrower: RunningTask, failure: BaseException | None) -> None:
        """Implements ``GroupOwner``, with ``capacity_changed`` and ``on_thread``."""
        assert borrower.input is not None
        given = arguments(borrower.input.items)
        work = partial(self._send, borrower) if failure is None else partial(self._recover, borrower, given, failure)
        self.on_thread(work, borrower)

    def capacity_changed(self) -> None:
        self._emit_unless_closed(Report(None, None, is_done=False))

    def on_thread(self, work: Callable[[], None], run: RunningTask | None = None) -> None:
        """Do work that may block; an error ends the query. A closed pool does nothing more for its tasks."""

        def act() -> None:
            try:
                work()
            except BaseException as exc:
                self._emit_unless_closed(Report(None if run is None else run.task, None, is_done=True, error=exc))

        with self._starting:
            if self._is_closed and run is not None:
                return
            thread = threading.Thread(target=act, name="penstock-ray-recovery", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _emit_unless_closed(self, report: Report) -> None:
        if not self._is_closed:
            self._emit(report)
