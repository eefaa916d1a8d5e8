"""The actors of one pool: started on first use, lent to tasks, released when they are idle."""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from penstock.engine.pools.worker import unpacked_error
from penstock.errors import WorkerDiedError
from penstock.runners.placement import described_amounts, has_room
from penstock.runners.ray.actors import ActorSlot, Process
from penstock.runners.ray.cluster import Cluster, described_nodes
from penstock.runners.ray.failures import is_death, one_line, translated
from penstock.runners.ray.stage_requests import demand_of
from penstock.runners.ray.worker import ActorPlace

log = logging.getLogger("penstock.workers")

MAX_FAILED_STARTS = 3  # of actors in a row that die before they have opened their handler
MAX_RAISED_STARTS = 1  # of models in a row that raise while they load: most of them always would
ROOM_S = 1.5  # until a worker that no node can hold is mentioned, with the next look at the nodes
FREE_ROOM_S = 8.0  # until one is mentioned for which no node is free: a process that starts holds its resources too
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

    process: Process
    opened: Any
    is_alone: bool = False
    place: ActorPlace | None = None  # once it is open
    num_tasks: int = 0
    num_calls: int = 0  # that a thread waits for
    started_at_s: float = field(default_factory=time.monotonic)
    idle_since_s: float = field(default_factory=time.monotonic)

    @property
    def is_busy_elsewhere(self) -> bool:
        """True if it has no task here, but works for another stage."""
        return any(reply is not self.opened for reply in list(self.process.replies))


class Borrower(Protocol):
    """A task that needs an actor."""

    actor: PoolActor | None


class GroupOwner(Protocol):
    """The pool of a group of actors. Its methods may be called on any thread and must not block."""

    def actor_is_ready(self, borrower: Any, failure: BaseException | None) -> None:
        """Use the actor that a borrower has waited for; ``failure`` says why it did not open."""

    def capacity_changed(self) -> None: ...

    def on_thread(self, work: Callable[[], None]) -> None:
        """Do work that blocks; an error ends the query."""


class ActorGroup:
    """Starts the actors of a pool and lends them to tasks. ``name`` is the stage's.

    Actors are released when their node drains. The lock is not held during calls of Ray: they wait for its threads,
    which wait for the lock.
    """

    def __init__(self, name: str, slot: ActorSlot, size: PoolSize, cluster: Cluster, owner: GroupOwner) -> None:
        self._source, self._stage, self._opening = slot
        self._size = size
        self._cluster = cluster
        self._owner: GroupOwner = weakref.proxy(owner)  # it refers to this object
        self._name = name
        self._actors: list[PoolActor] = []
        self._free: list[PoolActor] = []  # an actor for each task that it could take, the one used last at the end
        self._waiting: list[Borrower] = []  # for their actors to open: they do not cause a death before that
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # an actor is free, gone or open
        self._most = max(size.most(), size.least)
        self._num_open = 0
        self._num_failed_starts = 0
        self._may_start = True  # unless too many failed
        self._is_closed = False
        self.missing = ""  # the resources that no node has free for the first actor

    @property
    def capacity(self) -> int:
        """The number of tasks that the actors could take, including actors that may still be started."""
        return self._num_allowed * self._size.tasks_per_worker

    @property
    def _num_allowed(self) -> int:
        most = self._most if self._may_start else max(self._num_open, 1)
        return min(most, max(self._size.least, 2 * self._num_open)) if self._size.is_gradual else most

    @property
    def actors(self) -> list[PoolActor]:
        return list(self._actors)

    def lend(self, borrower: Borrower, node_id: str | None, *, is_alone: bool, has_room: Callable[[str], bool]) -> bool:
        """Set the actor of a borrower, unless it has one: on a node that has room, if possible on ``node_id``. Return
        False if it is not open: the owner hears then.

        With ``is_alone`` the actor has no other task, if it could have several.
        """
        is_alone = is_alone and self._size.tasks_per_worker > 1
        while True:
            actor = borrower.actor or self._free_actor(node_id, has_room, is_alone=is_alone)
            with self._lock:
                is_open = actor.place is not None
                borrower.actor = actor if is_open or actor in self._actors else None  # it may have failed to open
                if borrower.actor is not None and not is_open:
                    self._waiting.append(borrower)
            if borrower.actor is not None:
                return is_open

    def take_back(self, actor: PoolActor) -> None:
        """Make an actor free for the next task."""
        with self._lock:
            actor.num_tasks -= 1
            actor.idle_since_s = time.monotonic()
            is_leaving = self._is_leaving(actor)
            if actor.is_alone or (is_leaving and not actor.num_tasks):
                self._forget(actor)
                self._owner.on_thread(partial(self._source.retire, self._stage, actor.process))
            elif actor in self._actors and not is_leaving:
                self._free.append(actor)
                self._take_waiting(actor)
                self._changed.notify_all()

    @contextmanager
    def calling(self, node_id: str | None) -> Iterator[PoolActor]:
        """Lend the actor with the fewest calls that a thread waits for, on the node if possible. Lend a new one if all
        have a call, or none is on the node.
        """

        def rank(actor: PoolActor) -> tuple[int, bool, int]:
            return actor.num_calls, node_id not in (None, actor.process.node_id), actor.num_tasks

        with self._lock:
            usable = [each for each in self._actors if not each.process.is_gone]
            actor = min(usable, key=rank, default=None)
            may_grow = len(self._actors) < self._most
        if actor is None or (may_grow and rank(actor) >= (0, True)):  # it has calls, or is on another node
            actor = self._new_actor(self._source.acquire(self._stage, node_id))
        with self._lock:
            actor.num_calls += 1
        try:
            yield actor
        finally:
            with self._lock:
                actor.num_calls -= 1

    def discard(self, actor: PoolActor) -> None:
        """Kill an actor, which may be dead."""
        with self._lock:
            self._forget(actor)
        actor.process.kill()

    def note_failed_start(self, actor: PoolActor, failure: BaseException) -> None:
        """Count an actor that did not open its handler. After too many failures in a row, wait until another actor is
        free; raise an error if there is no other.

        An actor from an earlier query, or one that another stage shares, may have died since then.
        """
        if actor.process.is_reused or not actor.process.may_have_died_of(actor.opened):
            return
        most = MAX_FAILED_STARTS if is_death(failure) else MAX_RAISED_STARTS
        with self._changed:
            if self.is_first_note(actor):
                self._num_failed_starts += 1
                log.warning("%s: a Ray worker died while it was starting or loading. %s", self._name, one_line(failure))
            if self._num_failed_starts <= most:
                return
            self._may_start = False
            self._changed.wait_for(
                lambda: self._is_closed or not self._actors or any(each.place for each in self._free)
            )
            if not self._is_closed and not self._actors and self._num_failed_starts > most:
                raise self._start_error(failure)

    def is_shared(self, actor: PoolActor) -> bool:
        """Return whether an actor may have several tasks."""
        return self._size.tasks_per_worker > 1 and not actor.is_alone

    def is_first_note(self, actor: PoolActor) -> bool:
        """Return True for the first report of an actor's death: several tasks may report it."""
        process = actor.process
        with self._lock:
            is_first, process.is_death_noted = not process.is_death_noted, True
            return is_first

    def _start_error(self, failure: BaseException) -> BaseException:
        if not is_death(failure):
            return translated(failure)
        error = WorkerDiedError(
            f"{self._name}: {self._num_failed_starts} Ray workers in a row died while they were starting or loading. "
            f"Ray says: {one_line(failure)}"
        )
        error.__cause__ = failure
        return error

    def follow_size(self) -> None:
        """Allow as many actors as the cluster has room for beside the other stages."""
        most = max(self._size.most(), self._size.least)
        self._may_start, self._most = self._may_start or most > self._most, most

    def adjust(self) -> None:
        """Release actors that are idle or on a draining node, follow the size of the cluster, and say what is missing
        if no actor finds room.
        """
        self.follow_size()
        self._look_for_room()
        now = time.monotonic()
        gone: list[PoolActor] = []
        with self._lock:
            num_spare = len(self._actors) - self._size.least if self._size.is_gradual else 0
            for actor in self._actors:
                is_idle = not actor.num_tasks and not actor.num_calls
                if is_idle and self._is_leaving(actor):
                    gone.append(actor)
                elif is_idle and num_spare > 0 and now - actor.idle_since_s > IDLE_S:
                    gone.append(actor)
                    num_spare -= 1
            for actor in gone:
                self._forget(actor)
            self._free = [actor for actor in self._free if not self._is_leaving(actor)]
        for actor in gone:
            self._source.retire(self._stage, actor.process)
        self._owner.capacity_changed()

    def _look_for_room(self) -> None:
        """Record, and say once, what no node has for the actors while none of them is open."""
        waited_s = time.monotonic() - min((actor.started_at_s for actor in self._actors), default=math.inf)
        was_missing, self.missing = self.missing, "" if self._num_open else self._missing_resources(waited_s)
        if self.missing and not was_missing:
            log.warning("%s waits for a Ray worker: %s.", self._name, self.missing)

    def _missing_resources(self, waited_s: float) -> str:
        demand, nodes = demand_of(self._source.options), self._cluster.nodes
        if waited_s < ROOM_S or not demand or any(actor.process.is_placed for actor in self.actors):
            return ""
        text = f"it needs {described_amounts(demand)}, and no node has that"
        if not has_room(nodes, demand):
            return f"{text}. The nodes: {described_nodes(nodes)}"
        if waited_s < FREE_ROOM_S or has_room(free := self._cluster.free_nodes(), demand):
            return ""
        return f"{text} free. The nodes: {described_nodes(nodes)}; free now: {described_nodes(free)}"

    def release(self, awaited: Mapping[Any, PoolActor]) -> None:
        """Give all actors back. ``awaited`` are the tasks that owe a reply; a lost batch may start more tasks later."""
        with self._lock:
            others = set(self._actors) - set(awaited.values())
            self._actors, self._free, self._num_open = [], [], 0
        running = {reply: actor.process for reply, actor in awaited.items()}
        running |= {actor.opened: actor.process for actor in others if actor.place is None}
        self._source.release(self._stage, [actor.process for actor in others if actor.place is not None], running)

    def close(self, awaited: Mapping[Any, PoolActor]) -> None:
        """Give all actors back for good."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.release(awaited)

    def _free_actor(self, node_id: str | None, has_room: Callable[[str], bool], *, is_alone: bool) -> PoolActor:
        while True:
            if self._is_closed:  # since a task that failed began to wait for another actor
                raise WorkerDiedError(f"{self._name}: the query has ended.")
            with self._lock:
                free = None if is_alone else self._nearest_free(node_id, has_room)
                if free is not None:
                    self._free.remove(free)
                    free.num_tasks += 1
                    return free
                num_new = 1 if is_alone else max(self._size.least - len(self._actors), 1)
            for _ in range(num_new):
                actor = self._new_actor(
                    self._source.acquire(self._stage, node_id, is_alone=is_alone), is_alone=is_alone
                )
            if is_alone:
                actor.num_tasks += 1
                return actor

    def _nearest_free(self, node_id: str | None, has_room: Callable[[str], bool]) -> PoolActor | None:
        """Return a free actor, or None if another one should be started: all are busy for other stages."""
        for actor in [each for each in self._free if each.process.is_gone]:
            self._forget(actor)
        if not self._free:
            return None
        full = {node for node in {each.place.node_id for each in self._free if each.place} if not has_room(node)}
        actor = self._free[nearest([(each.place, each.is_busy_elsewhere) for each in self._free], node_id, full)]
        return None if actor.is_busy_elsewhere and len(self._actors) < self._num_allowed else actor

    def _new_actor(self, process: Process, *, is_alone: bool = False) -> PoolActor:
        opened = process.handle.open.remote(self._stage, *self._opening)
        process.replies[opened] = None
        actor = PoolActor(process, opened, is_alone)
        with self._lock:
            self._actors.append(actor)
            if not is_alone:
                self._free.extend([actor] * self._size.tasks_per_worker)
        if self._is_closed:  # since the call
            with self._lock:
                self._forget(actor)
            self._source.retire(self._stage, process)
        opened.future().add_done_callback(partial(self._replied, actor, self._owner.actor_is_ready))
        return actor

    def _replied(self, actor: PoolActor, notify: Callable[[Any, BaseException | None], None], reply: Any) -> None:
        """Hand an actor to the tasks that wait for it once it is open or dead. ``reply`` is the future of ``open``."""
        failure = reply.exception()
        place: ActorPlace | None = None
        if failure is None:
            found: ActorPlace = reply.result()
            actor.process.node_id, actor.process.has_started = found.node_id, True
            if found.failure is None or not self._size.is_gradual:
                place = found
            else:  # another worker may load the model
                failure = unpacked_error(found.failure)
        if failure is not None:
            actor.process.note_death(actor.opened)
            self._owner.on_thread(actor.process.kill)
        actor.process.replies.pop(actor.opened, None)
        with self._lock:
            waiting = [each for each in self._waiting if each.actor is actor]
            self._waiting = [each for each in self._waiting if each.actor is not actor]
            actor.place = place
            if place is None:
                self._forget(actor)
            else:
                self._num_failed_starts, self._may_start = 0, True
                self._num_open += actor in self._actors
                self._changed.notify_all()
        for borrower in waiting:
            notify(borrower, failure)
        self._owner.capacity_changed()

    def _take_waiting(self, actor: PoolActor) -> None:
        """Give a free actor a task that waits for another actor to open, which may take long or fail for lack of
        room."""
        if self._waiting and actor.place is not None:
            borrower = self._waiting.pop(0)
            assert borrower.actor is not None
            borrower.actor.num_tasks -= 1
            self._free.insert(0, borrower.actor)
            self._free.remove(actor)
            borrower.actor = actor
            actor.num_tasks += 1
            self._owner.actor_is_ready(borrower, None)

    def _is_leaving(self, actor: PoolActor) -> bool:
        """Return whether an actor must get no more work, because its node drains or is gone."""
        return actor.place is not None and actor.place.node_id not in self._cluster.usable

    def _forget(self, actor: PoolActor) -> None:
        if actor in self._actors:
            self._actors.remove(actor)
            if actor.place is not None:
                self._num_open -= 1
                self._num_failed_starts = 0  # it did not fail
            self._free = [each for each in self._free if each is not actor]
            self._changed.notify_all()


def nearest(free: Sequence[tuple[ActorPlace | None, bool]], node_id: str | None, full: Collection[str] = ()) -> int:
    """Return the index of the best free actor. Prefer an actor that is not busy for another stage, then a node that is
    not ``full``, then ``node_id``, then the last of the list.

    Each entry has the actor's place, None if it is not open yet, and says whether it is busy.

    >>> places = [(ActorPlace("a", "pid 1"), False), (ActorPlace("b", "pid 2"), True), (None, False)]
    >>> nearest(places, "a"), nearest(places, "b"), nearest(places[:2], "c"), nearest(places, None)
    (0, 2, 0, 2)
    >>> nearest(places, "a", full={"a"})
    2
    """

    def rank(index: int) -> tuple[bool, bool, bool, int]:
        place, is_busy = free[index]
        is_full = place is not None and place.node_id in full
        return is_busy, is_full, place is None or place.node_id != node_id, -index

    return min(range(len(free)), key=rank)
