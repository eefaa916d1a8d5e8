"""The actors of a stage: its own, or a place in actors that several stages share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.runners.ray.cluster import Cluster, emptiest_node
from penstock.runners.ray.worker import ThreadedWorker, Worker

CLOSE_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 0.2  # for a call that is no longer needed; then its process is killed
KILLED = object()  # by us: no call is the cause


@dataclass(eq=False, slots=True)
class Process:
    """An actor, and the replies that it owes, in the order in which it works on the calls.

    ``is_reused`` marks an actor from an earlier query or another stage; it may have died since. Unless
    ``is_sequential`` it works on all calls at once.

    >>> process = Process(handle=None)
    >>> process.replies = dict.fromkeys(["running", "waiting"])
    >>> for reply in ("waiting", "running", "sent later"):
    ...     process.note_death(reply)
    ...     _ = process.replies.pop(reply, None)
    >>> [process.may_have_died_of(reply) for reply in ("running", "waiting", "sent later")]
    [True, False, False]
    """

    handle: Any
    is_sequential: bool = True
    is_reused: bool = False
    has_started: bool = False  # has replied to this query
    is_gone: bool = False  # died, was killed, or must get no more work
    is_death_noted: bool = False  # several tasks and stages may hear of it
    node_id: str | None = None  # of its place once that is known; else the wanted one
    replies: dict[Any, None] = field(default_factory=dict)
    _deadly: Any = None  # the reply that it worked on when it died

    def call(self, method: str, *args: Any, num_returns: int = 2) -> Any:
        """Call a method that returns a batch, or several, and a report; return their references."""
        *batches, reply = getattr(self.handle, method).options(num_returns=num_returns).remote(*args)
        self.replies[reply] = None
        return *batches, reply

    def note_death(self, reply: Any) -> None:
        """Record that a reply is missing because the process is gone."""
        self.is_gone = True
        if self._deadly is None:
            self._deadly = [*self.replies, reply][0]

    def may_have_died_of(self, reply: Any) -> bool:
        return not self.is_sequential or self._deadly is reply

    @property
    def is_placed(self) -> bool:
        """True once Ray has a process for it on a node."""
        found = ray._private.state.actors(self.handle._actor_id.hex())
        return bool(found) and found["State"] not in ("DEPENDENCIES_UNREADY", "PENDING_CREATION")

    def renewed(self) -> Process:
        """Return the actor for the next query."""
        return Process(self.handle, self.is_sequential, is_reused=True, node_id=self.node_id)

    def kill(self) -> None:
        """Kill the process, so that none of its calls counts as the cause."""
        self.is_gone = True
        self._deadly = self._deadly or KILLED
        ray.kill(self.handle)


class ActorSource(Protocol):
    """Provides the actors of stages, each named by its number. ``options`` are Ray's options for each actor."""

    options: Mapping[str, Any]

    def acquire(self, stage: int, node_id: str | None = None, *, is_alone: bool = False) -> Process:
        """Return an actor that is new to this stage, on the node if one there is idle.

        With ``is_alone`` no other task uses it.
        """

    def retire(self, stage: int, process: Process) -> None:
        """Take back an actor that must get no more work, and that works on nothing for this stage."""

    def release(self, stage: int, idle: Sequence[Process], running: Mapping[Any, Process]) -> None:
        """Take actors back, and stop this stage's calls in ``running``; its keys are the replies that they owe."""


class ActorSlot(NamedTuple):
    """The place of one stage in the actors of a source. ``opening`` are the arguments of ``open``, after the stage."""

    source: ActorSource
    stage: int
    opening: tuple[Any, ...]


class Spares:
    """Idle plain actors that wait for the next query of this process, since starting one takes a second."""

    lock: ClassVar[threading.Lock] = threading.Lock()  # queries of several threads take and keep actors
    _idle: ClassVar[list[Process]] = []
    _connection: ClassVar[Any] = None  # to Ray, to which the actors belong

    @staticmethod
    def all() -> list[Process]:
        context = ray.get_runtime_context()
        connection = context.get_node_id(), context.get_job_id()
        if Spares._connection != connection:
            Spares._connection, Spares._idle = connection, []
        return Spares._idle

    @staticmethod
    def take(node_id: str | None) -> Process | None:
        """Return an idle actor, on the node if one is named, or None."""
        with Spares.lock:
            spares = Spares.all()
            found = next((each for each in spares if node_id in (None, each.node_id)), None)
            if found is not None:
                spares.remove(found)
            return found


@cache
def worker_class(cls: type) -> Any:
    return ray.remote(cls)


def started(cls: type, options: Mapping[str, Any], node_id: str | None = None) -> Process:
    """Return a new actor; on a node if it is named."""
    if node_id is not None:
        options = {**options, "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=True)}
    return Process(worker_class(cls).options(**options).remote(), is_sequential=cls is Worker, node_id=node_id)


class OwnActors:
    """The actors of one stage, or of all stages that call methods of the same object. Each takes ``num_tasks`` tasks at
    once.

    An actor that a stage has started serves the others too. All of them are released after the last stage, or its
    instance would be built again; all stages join before the first task. ``on_change`` is called when their number has
    changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: dict[str, Any],
        num_tasks: int,
        on_change: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._on_change = on_change
        self._class = Worker if num_tasks == 1 else ThreadedWorker
        self.options: Mapping[str, Any] = {"max_concurrency": num_tasks, **options}
        self._num_joined = 0
        self._members: set[int] = set()  # the stages that have not left
        self._users: dict[Process, set[int]] = {}  # the stages that use each actor, except actors for single tasks
        self._lock = threading.Lock()

    @property
    def num_actors(self) -> int:
        return sum(not process.is_gone for process in list(self._users))

    def join(self, opening: tuple[Any, ...]) -> ActorSlot:
        """Add a stage."""
        self._num_joined += 1
        self._members.add(self._num_joined)
        return ActorSlot(self, self._num_joined, opening)

    def acquire(self, stage: int, node_id: str | None = None, *, is_alone: bool = False) -> Process:
        """Return an actor of the other stages, or a new one."""
        with self._lock:
            others = [each for each, users in self._users.items() if stage not in users and self._is_usable(each)]
            if is_alone or not others:
                found = started(self._class, self.options)
            else:
                found = min(others, key=lambda each: len(each.replies))
                found.is_reused |= found.has_started
            if not is_alone:
                self._users.setdefault(found, set()).add(stage)
        self._on_change()
        return found

    def retire(self, stage: int, process: Process) -> None:
        """Kill an actor, unless another stage uses it."""
        with self._lock:
            users = self._users.get(process, set())
            users.discard(stage)
            if users:
                return
            self._users.pop(process, None)
        self._on_change()
        process.kill()

    def release(self, stage: int, idle: Sequence[Process], running: Mapping[Any, Process]) -> None:
        """Release the actors that single tasks of a stage had, and all actors after the last stage.

        The calls that a stage still has when it leaves before the others run to their end. A stage leaves again if it
        had to remake batches after its end.
        """
        with self._lock:
            self._members.discard(stage)
            for users in self._users.values():
                users.discard(stage)
            released = [process for process in {*idle, *running.values()} if process not in self._users]
            if not self._members:
                released += self._users
                self._users = {}
        self._on_change()
        self._release(released)

    def _release(self, processes: Sequence[Process]) -> None:
        busy = {process: list(process.replies) for process in processes if process.replies}
        for process in busy:
            process.kill()
        stages = range(1, self._num_joined + 1)
        closing = {process.handle.close.remote(*stages): process for process in processes if not process.is_gone}
        ended = [*closing, *(reply for replies in busy.values() for reply in replies)]
        if ended:
            ray.wait(ended, num_returns=len(ended), timeout=CLOSE_TIMEOUT_S)
        for process in closing.values():
            process.kill()

    def _is_usable(self, process: Process) -> bool:
        return not process.is_gone and (process.node_id is None or process.node_id in self._cluster.usable)


class SharedWorkers:
    """The actors of all stages of a query that need no resources and no state: one for each core, on its node.

    So a query starts few processes, and the next query none.
    """

    def __init__(self, cluster: Cluster, options: dict[str, Any]) -> None:
        self._cluster = cluster
        self.options: Mapping[str, Any] = options
        self._processes: list[Process] = []
        self._closing: list[tuple[Process, Any]] = []
        self._known: list[list[Process]] = []  # the actors of each stage
        self._is_closed = False
        self._lock = threading.Lock()

    def join(self, opening: tuple[Any, ...]) -> ActorSlot:
        """Add a stage."""
        with self._lock:
            self._known.append([])
            return ActorSlot(self, len(self._known) - 1, opening)

    def acquire(self, stage: int, node_id: str | None = None, *, is_alone: bool = False) -> Process:
        """Give a stage one more actor: an idle one, a new one, or one that works for other stages."""
        with self._lock:
            known = self._known[stage]
            usable = [process for process in self._processes if not process.is_gone]
            others = [process for process in usable if process not in known]
            found = min(others, key=lambda each: (len(each.replies), each.node_id != node_id), default=None)
            if found is None or (found.replies and len(usable) < self._cluster.num_cores):
                place = emptiest_node(self._cluster.usable, [process.node_id for process in usable])
                found = Spares.take(place) or started(Worker, self.options, place)
                self._processes.append(found)
            known.append(found)
            return found

    def release(self, stage: int, idle: Sequence[Process], running: Mapping[Any, Process]) -> None:
        """Close the handlers of a stage. A process that works for it much longer is killed, unless it is starting."""
        self._known[stage] = []
        replies = [reply for reply, process in running.items() if process.has_started]
        _, late = ray.wait(replies, num_returns=len(replies), timeout=STOP_TIMEOUT_S) if replies else ((), ())
        for reply in late:
            running[reply].kill()
        for process in {*idle, *running.values()}:
            if not process.is_gone:
                self._closing.append((process, process.handle.close.remote(stage)))

    def retire(self, stage: int, process: Process) -> None:
        """Give an actor no more work. Other stages may use it, so it is killed when the query ends."""
        with self._lock:
            process.is_gone = True
            if not self._is_closed:
                return
        process.kill()

    def close(self) -> None:
        """Keep the actors for the next query, started or starting. Kill an actor that does not close its handlers."""
        with self._lock:
            self._is_closed = True
        if not self._processes:
            return
        closing = [(process, ref) for process, ref in self._closing if process.has_started]
        refs = [ref for _, ref in closing]
        if refs:
            ray.wait(refs, num_returns=len(refs), timeout=CLOSE_TIMEOUT_S)
        failed = {process for process, ref in closing if not has_succeeded(ref, timeout_s=0)}
        ended = [process for process in self._processes if process.is_gone or process in failed]
        with Spares.lock:
            spares = Spares.all()
            found = [*spares, *(process.renewed() for process in self._processes if process not in ended)]
            spares[:] = [each for each in found if each.node_id in self._cluster.usable][: self._cluster.num_cores]
            surplus = [each for each in found if each not in spares]
        for process in (*ended, *surplus):
            process.kill()


def has_succeeded(ref: Any, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
    """Wait for a call; return False if it fails or takes too long."""
    try:
        ray.get(ref, timeout=timeout_s)
    except Exception:  # closing a user's handler may raise anything
        return False
    return True
