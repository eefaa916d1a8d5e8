"""Queries on Ray: workers are actors, and a bundle is a reference to a batch in Ray's object store.

An actor keeps a generator between two outputs without holding a core, which is what the executor means by a task at
rest; a Ray streaming generator under back-pressure keeps its core, so enough of them would leave none for the stages
that drain them. What an actor returns belongs to the driver, not to the actor, and so outlives it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.config import Config
from penstock.errors import MissingExtraError, WorkerDiedError
from penstock.execution.executor import PoolChoice
from penstock.expr.udf import Resources
from penstock.plan.stages import CallBatch, CallUdf, Stage, Work
from penstock.protocols import Bundle, Emit, Report, Task
from penstock.runners.handlers import async_opener, opener
from penstock.runners.local import ASYNC_BATCHES, worker_count
from penstock.runners.query import Workplace
from penstock.runners.ray_worker import Answer, AsyncWorker, Worker, unpacked_batch

try:
    import ray
    from ray.exceptions import RayTaskError
except ImportError as exc:
    raise MissingExtraError("ray", "ray", "The Ray runner") from exc

CLOSE_TIMEOUT_S = 5.0
STORE_SHARE = 0.75  # of the object store that bundles may fill; Ray spills to disk from 0.8 on

Then = Callable[[Answer, Bundle | None], None]


class RayRunner:
    """Runs stages on a Ray cluster: at ``address``, the one this process is connected to, or a new local one.

    A local one stays until the process ends, because starting it takes seconds.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address

    @contextmanager
    def open(self, config: Config) -> Iterator[Workplace]:
        if not ray.is_initialized():
            ray.init(self._address, ignore_reinit_error=True, include_dashboard=False)
        cluster = ray.cluster_resources()
        num_cores = max(1, int(cluster.get("CPU", 0)))
        yield Workplace(
            lambda stage, work, emit: make_pool(stage, work, emit, num_cores),
            num_cores=num_cores,
            memory_bytes=config.memory_limit or int(cluster["object_store_memory"] * STORE_SHARE),
        )

    def fetch(self, bundle: Bundle) -> pa.RecordBatch:
        try:
            return unpacked_batch(ray.get(bundle.handle)).slice(bundle.offset, bundle.num_rows)
        except ray.exceptions.RayError as exc:
            raise translated(exc) from exc


def make_pool(stage: Stage, work: Work, emit: Emit, num_cores: int) -> PoolChoice:
    """Return actors that suit a stage; those that hold no cores of Ray's share the cluster's through the executor."""
    match work:
        case CallUdf(call) if call.udf.is_async:
            make_actor = actor_maker(AsyncWorker, async_opener(work), stage.resources, max_concurrency=ASYNC_BATCHES)
            return PoolChoice(RayPool(make_actor, 1, ASYNC_BATCHES, emit), takes_core=False)
        case CallUdf() | CallBatch():
            num_workers = worker_count(work.call.udf if isinstance(work, CallUdf) else work.spec, num_cores)
        case _:
            num_workers = num_cores
    takes_core = not (stage.resources.max_workers or stage.resources.cpus or stage.resources.gpus)
    make_actor = actor_maker(Worker, opener(work), stage.resources)
    return PoolChoice(RayPool(make_actor, num_workers, 1, emit), takes_core)


def actor_maker(cls: type, open_handler: Callable[..., Any], resources: Resources, **options: Any) -> Callable[[], Any]:
    """Return a function that starts an actor on the node that Ray chooses.

    Without ``cpus`` an actor holds no core, which is Ray's default too: stages outnumber cores, so if each held some,
    the last ones would wait for the first for ever.
    """
    import cloudpickle

    if resources.cpus is not None or resources.gpus:
        options |= {"num_cpus": resources.cpus or 0, "num_gpus": resources.gpus}
    if resources.memory_bytes is not None:
        options["memory"] = resources.memory_bytes
    options = {"scheduling_strategy": "SPREAD", **options, **dict(resources.ray_options)}
    remote_cls = ray.remote(cls).options(**options)
    packed_open = ray.put(cloudpickle.dumps(open_handler))
    return lambda: remote_cls.remote(packed_open)


class RayPool:
    """Implements ``WorkerPool`` on actors, which are started when they are first needed.

    Ray calls back on a thread of its own when an actor has answered; there is no thread of ours.
    """

    def __init__(self, make_actor: Callable[[], Any], num_workers: int, tasks_per_worker: int, emit: Emit) -> None:
        self.capacity = num_workers * tasks_per_worker
        self._make_actor = make_actor
        self._tasks_per_worker = tasks_per_worker
        self._emit = emit
        self._actors: list[Any] = []
        self._free: list[Any] = []  # an actor for each task that it could take
        self._busy: dict[int, Any] = {}
        self._awaited: dict[Any, Any] = {}  # references to answers that are to come, and who gives them
        self._num_unfinished = 0
        self._finishing = threading.Lock()
        self._is_closed = False

    def submit(self, task: Task) -> None:
        actor = self._busy.get(id(task))
        if actor is not None:
            self._call(actor, actor.carry_on, then=partial(self._report, task))
            return
        actor = self._busy[id(task)] = self._free_actor()
        self._call(actor, actor.start, task.first_row, *arguments(task), then=partial(self._report, task))

    def finish(self) -> None:
        self._num_unfinished = len(self._actors)
        for actor in self._actors:
            self._call(actor, actor.finish, then=self._report_rest)
        if not self._actors:
            self._emit(Report(None, None, is_done=True))

    def close(self) -> None:
        if self._is_closed or not ray.is_initialized():
            return
        self._is_closed = True
        awaited = self._awaited.copy()
        running = set(awaited.values())
        ends = list(awaited)
        for actor in self._actors:
            if actor in running:
                ray.kill(actor)
            else:
                ends.append(actor.close.remote())
        ray.wait(ends, num_returns=len(ends), timeout=CLOSE_TIMEOUT_S)
        for actor in self._actors:
            ray.kill(actor)

    def _free_actor(self) -> Any:
        if not self._free:
            actor = self._make_actor()
            self._actors.append(actor)
            self._free.extend([actor] * self._tasks_per_worker)
        return self._free.pop()

    def _call(self, actor: Any, method: Any, *args: Any, then: Then) -> None:
        """Call a method of an actor; its answer goes to ``then``, while the batch stays where it is."""
        batch, answer = method.options(num_returns=2).remote(*args)
        self._awaited[answer] = actor
        answer.future().add_done_callback(partial(self._receive, answer, batch, then))

    def _receive(self, ref: Any, batch: Any, then: Then, future: Any) -> None:
        self._awaited.pop(ref)
        if self._is_closed:
            return
        failure = future.exception()
        answer = Answer(error=translated(failure)) if failure is not None else future.result()
        then(answer, Bundle(batch, answer.num_rows, answer.nbytes) if answer.has_output else None)

    def _report(self, task: Task, answer: Answer, output: Bundle | None) -> None:
        if answer.is_done:
            self._free.append(self._busy.pop(id(task)))
        self._emit(Report(task, output, answer.is_done, answer.busy_s, answer.exception))

    def _report_rest(self, answer: Answer, output: Bundle | None) -> None:
        with self._finishing:  # the last report must be the last
            self._num_unfinished -= 1
            self._emit(Report(None, output, self._num_unfinished == 0, answer.busy_s, answer.exception))


def arguments(task: Task) -> tuple[Any, ...]:
    """Return what an actor needs of a task: the read task; or the parts to cut, and the references Ray resolves."""
    if not isinstance(task.item, tuple):
        return None, task.item
    return tuple((b.offset, b.num_rows) for b in task.item), *(b.handle for b in task.item)


def translated(exc: BaseException) -> BaseException:
    """Return what Ray raises, where no handler answered, as an error of ours."""
    if isinstance(exc, RayTaskError):  # the call never reached the handler, as when a module is missing there
        cause: BaseException = exc.cause
        cause.add_note(f"In the Ray worker:\n{exc.traceback_str}")
        return cause
    error = WorkerDiedError(
        "A Ray worker ended while it worked on a batch, or a batch was lost with its node. If it ran out of memory, "
        f"use a smaller batch_size or fewer workers. Ray says: {exc}"
    )
    error.__cause__ = exc
    return error
