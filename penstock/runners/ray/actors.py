"""The actors of a stage: its own, or a place in actors that several stages share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple

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


class ActorSlot(NamedTuple):
    """The place of one stage in the actors of a source. ``opening`` are the arguments of ``open``, after the stage."""

    source: Actors
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


class Actors:
    """Actors with the same options, in each a handler for each stage that uses it. Each takes ``num_tasks`` at once.

    An actor that a stage has started serves the others too. The stages that call methods of one object share its
    actors, which are all released after the last of these stages, or its instance would be built again; all stages join
    before the first task. With ``is_shared`` they are the actors of all stages that need no resources and no state: one
    for each core, on its node. So a query starts few processes, and the next query none. ``on_change`` is called when
    their number has changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: dict[str, Any],
        num_tasks: int = 1,
        on_change: Callable[[], None] = lambda: None,
        *,
        is_shared: bool = False,
    ) -> None:
        self._on_change = on_change
        self._cluster = cluster
        self._is_shared = is_shared
        self._class = Worker if num_tasks == 1 else ThreadedWorker
        self.options: Mapping[str, Any] = {"max_concurrency": num_tasks, **options}
        self._num_joined = 0
        self._members: set[int] = set()  # the stages that have not left
        self._users: dict[Process, set[int]] = {}  # the stages that use each actor, except actors for single tasks
        self._closing: list[tuple[Process, Any]] = []  # with the replies of shared actors
        self._lock = threading.Lock()

    @property
    def num_actors(self) -> int:
        return sum(not process.is_gone for process in list(self._users))

    def join(self, opening: tuple[Any, ...]) -> ActorSlot:
        """Add a stage."""
        with self._lock:
            self._num_joined += 1
            self._members.add(self._num_joined)
            return ActorSlot(self, self._num_joined, opening)

    def acquire(self, stage: int, node_id: str | None = None, *, is_alone: bool = False) -> Process:
        """Return an actor that is new to a stage: one of the other stages, on the node if possible, or a new one.

        With ``is_alone`` no other task uses it.
        """
        with self._lock:
            usable = [process for process in self._users if self._is_usable(process)]
            others = [process for process in usable if stage not in self._users[process]]
            found = min(others, key=lambda each: (len(each.replies), each.node_id != node_id), default=None)
            may_grow = self._is_shared and len(usable) < self._cluster.num_cores
            if found is None or is_alone or (found.replies and may_grow):
                found = self._started(usable)
            else:
                found.is_reused |= found.has_started
            if not is_alone:
                self._users.setdefault(found, set()).add(stage)
        self._on_change()
        return found

    def retire(self, stage: int, process: Process) -> None:
        """Kill an actor that must get no more work, and works on nothing for this stage, unless another uses it."""
        with self._lock:
            users = self._users.get(process, set())
            users.discard(stage)
            if users:
                return
            self._users.pop(process, None)
        self._on_change()
        process.kill()

    def release(self, stage: int, idle: Sequence[Process], running: Mapping[Any, Process]) -> None:
        """Take back the actors of a stage; the keys of ``running`` are the replies that they owe.

        Shared actors close the handlers of the stage. One that works for it much longer is killed, unless it is
        starting. Other actors keep them until the last stage leaves, and the calls of this stage run to their end. A
        stage leaves again if it had to remake batches after its end.
        """
        found = {*idle, *running.values()}
        with self._lock:
            self._members.discard(stage)
            for users in self._users.values():
                users.discard(stage)
            released = [process for process in found if process not in self._users]
            if not self._is_shared and not self._members:
                released += self._users
                self._users = {}
        self._on_change()
        if not self._is_shared:
            return self._release(released)
        replies = [reply for reply, process in running.items() if process.has_started]
        _, late = ray.wait(replies, num_returns=len(replies), timeout=STOP_TIMEOUT_S) if replies else ((), ())
        for reply in late:
            running[reply].kill()
        self._closing += [(each, each.handle.close.remote(stage)) for each in found if not each.is_gone]

    def close(self) -> None:
        """Keep shared actors for the next query, started or starting. Kill one that does not close its handlers."""
        with self._lock:
            processes, self._users = list(self._users), {}
        if not processes:
            return
        closing = [(process, ref) for process, ref in self._closing if process.has_started]
        refs = [ref for _, ref in closing]
        if refs:
            ray.wait(refs, num_returns=len(refs), timeout=CLOSE_TIMEOUT_S)
        failed = {process for process, ref in closing if not has_succeeded(ref, timeout_s=0)}
        ended = [process for process in processes if process.is_gone or process in failed]
        with Spares.lock:
            spares = Spares.all()
            found = [*spares, *(process.renewed() for process in processes if process not in ended)]
            spares[:] = [each for each in found if each.node_id in self._cluster.usable][: self._cluster.num_cores]
            surplus = [each for each in found if each not in spares]
        for process in (*ended, *surplus):
            process.kill()

    def _started(self, usable: Sequence[Process]) -> Process:
        if not self._is_shared:
            return started(self._class, self.options)
        place = emptiest_node(self._cluster.usable, [process.node_id for process in usable])
        return Spares.take(place) or started(self._class, self.options, place)

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


def has_succeeded(ref: Any, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
    """Wait for a call; return False if it fails or takes too long."""
    try:
        ray.get(ref, timeout=timeout_s)
    except Exception:  # closing a user's handler may raise anything
        return False
    return True
