"""Queries on Ray: workers are actors, and a bundle is a reference to a batch in Ray's object store.

An actor keeps a generator between two outputs without holding a core, which is what the executor means by a task at
rest; a Ray streaming generator under back-pressure keeps its core, so enough of them would leave none for the stages
that drain them. What an actor returns belongs to the driver, not to the actor, and so outlives it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.config import Config
from penstock.cost.accounts import current_account
from penstock.engine.runners.handlers import async_opener, opener
from penstock.engine.runners.placement import sharing_key, worker_count
from penstock.engine.runners.pools import num_async_tasks
from penstock.engine.runners.query import Workplace
from penstock.engine.runners.ray.worker import Answer, AsyncWorker, Worker
from penstock.engine.stage import PoolChoice
from penstock.errors import InvalidArgumentError, MissingExtraError, WorkerDiedError
from penstock.expr.udf import Resources
from penstock.plan.stages import CallBatch, CallUdf, CombineSets, Stage, Work
from penstock.protocols import Bundle, Emit, Report, Task
from penstock.types.ipc import from_ipc

try:
    import ray
    from ray.exceptions import RayTaskError
except ImportError as exc:
    raise MissingExtraError("ray", "ray", "The Ray runner") from exc

from penstock.engine.runners.ray.shared_limits import start_keeper

CLOSE_TIMEOUT_S = 5.0
MAX_SPARES = 16  # actors kept for the next query
STORE_SHARE = 0.75  # of the object store that bundles may fill; Ray spills to disk from 0.8 on

Then = Callable[[Answer, Bundle | None], None]


class RayRunner:
    """Runs stages on a Ray cluster: at ``address``, the one this process is connected to, or a new local one.

    A local one stays until the process ends, because starting it takes seconds.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address

    @contextmanager
    def open(self, config: Config, stages: Sequence[Stage]) -> Iterator[Workplace]:
        if ray.is_initialized():
            self._check_connection()
        else:
            ray.init(self._address, ignore_reinit_error=True, include_dashboard=False)
        cluster = ray.cluster_resources()
        num_cores = max(1, int(cluster.get("CPU", 0)))
        yield Workplace(
            RayPools(num_cores).make,
            num_cores=num_cores,
            memory_bytes=config.memory_limit or int(cluster["object_store_memory"] * STORE_SHARE),
        )

    def _check_connection(self) -> None:
        """Refuse to run on another cluster than the one that was asked for."""
        connected = ray.get_runtime_context().gcs_address
        if self._address not in (None, "auto", "local", connected):
            raise InvalidArgumentError(
                f"This process is connected to Ray at {connected} and cannot use {self._address!r} as well. "
                "Call ray.shutdown() first, or set_runner_ray() without an address."
            )

    def fetch(self, bundle: Bundle) -> pa.RecordBatch:
        try:
            return from_ipc(ray.get(bundle.handle)).slice(bundle.offset, bundle.num_rows)
        except ray.exceptions.RayError as exc:
            raise translated(exc) from exc


class RayPools:
    """Makes the pools of one query. Async stages that would share an event loop on one machine share an actor."""

    def __init__(self, num_cores: int) -> None:
        self._num_cores = num_cores
        self._shared: dict[str, SharedActor] = {}

    def make(self, stage: Stage, work: Work, emit: Emit) -> PoolChoice:
        """Return actors for a stage; those that hold no cores of Ray's share the cluster's through the executor."""
        resources = stage.resources
        takes_core = not (resources.max_workers or resources.cpus or resources.gpus)
        match work:
            case CallUdf(call) if call.udf.target.is_async:
                return self._async_pool(stage, work, emit)
            case CallUdf() | CallBatch():
                spec = work.call.udf if isinstance(work, CallUdf) else work.spec
                crew = Crew(opener(work), actor_options(resources), is_reusable=not spec.target.is_class)
                return PoolChoice(RayPool(crew, worker_count(spec, self._num_cores), 1, emit), takes_core)
            case _:
                crew = Crew(opener(work), actor_options(resources), is_reusable=True)
                # A set operation must have all the rows.
                num_workers = 1 if isinstance(work, CombineSets) else self._num_cores
                return PoolChoice(RayPool(crew, num_workers, 1, emit), takes_core)

    def _async_pool(self, stage: Stage, work: CallUdf, emit: Emit) -> PoolChoice:
        spec, options = work.call.udf, actor_options(stage.resources)
        key = f"{spec.builtin.event_loop or sharing_key(stage)} {options}"
        if key not in self._shared:
            self._shared[key] = SharedActor(options)
            if spec.builtin.event_loop is not None:
                start_keeper()  # beside the workers, which will ask it for their share
        num_tasks = num_async_tasks(stage, spec)
        seat = self._shared[key].join(async_opener(work), num_tasks)
        return PoolChoice(RayPool(seat, 1, num_tasks, emit), takes_core=False)


def actor_options(resources: Resources, **options: Any) -> dict[str, Any]:
    """Return where and how Ray should start the actors of a stage.

    Without ``cpus`` an actor holds no core, which is Ray's default too: stages outnumber cores, so if each held some,
    the last ones would wait for the first for ever.
    """
    if resources.cpus is not None or resources.gpus:
        options |= {"num_cpus": resources.cpus or 0, "num_gpus": resources.gpus}
    if resources.memory_bytes is not None:
        options["memory"] = resources.memory_bytes
    return {"scheduling_strategy": "SPREAD", **options, **dict(resources.ray_options)}


class Hires(Protocol):
    """Gives a stage its actors and takes them back; ``address`` is what calls of them begin with."""

    address: tuple[int, ...]

    def hire(self) -> Any: ...
    def dismiss(self, idle: Sequence[Any], running: Mapping[Any, Any]) -> None: ...


class Crew:
    """Actors that a stage has for itself.

    An actor is a process, and a process takes a second to start. So those that any stage could use are kept for the
    next query, up to a number, until the user's process ends.
    """

    address: tuple[int, ...] = ()
    _spares: ClassVar[list[Any]] = []
    _spares_of: ClassVar[Any] = None  # the connection to Ray that they belong to

    def __init__(self, open_handler: Callable[..., Any], options: dict[str, Any], is_reusable: bool) -> None:
        self._is_reusable = is_reusable and options == actor_options(Resources())
        self._actor_cls = ray.remote(Worker).options(**options)
        self._packed_open = packed(open_handler)

    def hire(self) -> Any:
        """Return an actor that will open this stage's handler with its first task."""
        spares = self._known_spares()
        while self._is_reusable and spares:
            actor = spares.pop()
            if is_well(actor.assign.remote(self._packed_open)):
                return actor
        return self._actor_cls.remote(self._packed_open)

    def dismiss(self, idle: Sequence[Any], running: Mapping[Any, Any]) -> None:
        """Take actors back. ``running``, by the answers they owe, are killed; the others close their handlers first."""
        if not idle and not running:
            return
        for actor in running.values():
            ray.kill(actor)
        closing = {actor.close.remote(): actor for actor in idle}
        ray.wait([*running, *closing], num_returns=len(running) + len(closing), timeout=CLOSE_TIMEOUT_S)
        spares = self._known_spares()
        for ref, actor in closing.items():
            if self._is_reusable and len(spares) < MAX_SPARES and is_well(ref, timeout_s=0):
                spares.append(actor)
            else:
                ray.kill(actor)

    @classmethod
    def _known_spares(cls) -> list[Any]:
        """Return the spares, without those of a cluster that this process has left."""
        context = ray.get_runtime_context()
        connection = context.get_node_id(), context.get_job_id()
        if cls._spares_of != connection:
            cls._spares_of, cls._spares = connection, []
        return cls._spares


class SharedActor:
    """The one actor of async stages that share an event loop, started with the first task and killed by the last.

    All stages join before there is a task: the executor opens every pool first.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._packed_opens: list[Any] = []
        self._num_tasks = 0
        self._num_members = 0
        self._actor: Any = None

    def join(self, open_handler: Callable[..., Any], num_tasks: int) -> Seat:
        """Add a stage with at most ``num_tasks`` tasks at once."""
        self._packed_opens.append(packed(open_handler))
        self._num_tasks += num_tasks
        self._num_members += 1
        return Seat(self, len(self._packed_opens) - 1)

    def started(self) -> Any:
        if self._actor is None:
            # One call more for each stage, so that it can be closed while its tasks run.
            options = {"max_concurrency": self._num_tasks + self._num_members, **self._options}
            self._actor = ray.remote(AsyncWorker).options(**options).remote(*self._packed_opens)
        return self._actor

    def leave(self, stage: int, running: Sequence[Any]) -> None:
        """Cancel the running tasks of a stage and close it; kill the actor if the stage is its last.

        An actor that is killed while it works may send requests for a moment longer, and nothing counts their cost.
        ``running`` are the answers of the cancelled tasks.
        """
        self._num_members -= 1
        if self._actor is None:
            return
        ended = [self._actor.close.remote(stage), *running]
        ray.wait(ended, num_returns=len(ended), timeout=CLOSE_TIMEOUT_S)
        if not self._num_members:
            ray.kill(self._actor)


class Seat:
    """A stage's place in an actor that it shares."""

    def __init__(self, actor: SharedActor, stage: int) -> None:
        self._actor = actor
        self._stage = stage
        self.address: tuple[int, ...] = (stage,)

    def hire(self) -> Any:
        return self._actor.started()

    def dismiss(self, idle: Sequence[Any], running: Mapping[Any, Any]) -> None:
        self._actor.leave(self._stage, list(running))


def packed(open_handler: Callable[..., Any]) -> Any:
    """Return a reference to a function that makes a handler, pickled."""
    import cloudpickle

    return ray.put(cloudpickle.dumps(open_handler))


def is_well(ref: Any, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
    """Say whether a call has ended without an error, or does so within a time."""
    try:
        ray.get(ref, timeout=timeout_s)
    except Exception:  # the user's own, if it comes from closing the handler
        return False
    return True


class RayPool:
    """Implements ``WorkerPool`` on actors, which are started when they are first needed.

    Ray calls back on a thread of its own when an actor has answered; there is no thread of ours.
    """

    def __init__(self, crew: Hires, num_workers: int, tasks_per_worker: int, emit: Emit) -> None:
        self.capacity = num_workers * tasks_per_worker
        self._crew = crew
        self._tasks_per_worker = tasks_per_worker
        self._emit = emit
        self._actors: list[Any] = []
        self._free: list[Any] = []  # an actor for each task that it could take
        self._busy: dict[int, Any] = {}
        self._awaited: dict[Any, Any] = {}  # references to answers that are to come, and who gives them
        self._num_unfinished = 0
        self._finishing = threading.Lock()
        self._account = current_account()  # of the query: answers come on threads of Ray's
        self._is_closed = False

    def submit(self, task: Task) -> None:
        actor = self._busy.get(id(task))
        if actor is not None:
            self._call(actor, actor.carry_on, then=partial(self._report, task))
            return
        actor = self._busy[id(task)] = self._free_actor()
        call = *self._crew.address, task.first_row, *arguments(task)
        self._call(actor, actor.start, *call, then=partial(self._report, task))

    def finish(self) -> None:
        self._num_unfinished = len(self._actors)
        for actor in self._actors:
            self._call(actor, actor.finish, *self._crew.address, then=self._report_rest)
        if not self._actors:
            self._emit(Report(None, None, is_done=True))

    def close(self) -> None:
        if self._is_closed or not ray.is_initialized():
            return
        self._is_closed = True
        running = self._awaited.copy()
        idle = [actor for actor in self._actors if actor not in running.values()]
        self._crew.dismiss(idle, running)

    def _free_actor(self) -> Any:
        if not self._free:
            actor = self._crew.hire()
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
        try:
            failure = future.exception()
            answer = Answer(error=translated(failure)) if failure is not None else future.result()
            if answer.spent is not None and self._account is not None:
                self._account.enter(answer.spent)
            if self._is_closed:
                return
            then(answer, Bundle(batch, answer.num_rows, answer.nbytes) if answer.has_output else None)
        except BaseException as exc:  # Ray drops what its callbacks raise; an error here may be one that cannot travel
            self._emit(Report(None, None, is_done=True, error=exc))

    def _report(self, task: Task, answer: Answer, output: Bundle | None) -> None:
        if answer.is_done:
            self._free.append(self._busy.pop(id(task)))
        self._emit(Report(task, output, answer.is_done, answer.busy_s, answer.exception, answer.errors))

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
