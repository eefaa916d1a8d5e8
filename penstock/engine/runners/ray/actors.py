"""The actors of a stage: its own, or a slot in an actor that several async stages share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import ray

from penstock.engine.runners.ray.worker import AsyncWorker, Worker
from penstock.errors import UdfError
from penstock.expr.udf import Resources

CLOSE_TIMEOUT_S = 5.0
MAX_SPARES = 16  # actors that wait for the next query


class ActorSource(Protocol):
    """Provides the actors of a stage. Every call of an actor starts with the arguments ``address``."""

    address: tuple[int, ...]

    def acquire(self, *, is_alone: bool) -> Any:
        """Return an actor; with ``is_alone`` one that no other task uses."""
        ...

    def discard(self, actor: Any) -> None:
        """Forget an actor that died, or that must not be used again, and kill it."""
        ...

    def release(self, idle: Sequence[Any], running: Mapping[Any, Any]) -> None:
        """Take actors back. Those in ``running``, by the replies they owe, are killed; the others close first."""
        ...


def actor_options(resources: Resources) -> dict[str, Any]:
    """Return Ray's options for the actors of a stage.

    Without ``cpus`` an actor holds no core, as is Ray's default. Stages outnumber cores: if each held some, the last
    stages would wait for the first forever.
    """
    options: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
    if resources.cpus is not None or resources.gpus:
        options |= {"num_cpus": resources.cpus or 0, "num_gpus": resources.gpus}
    if resources.memory_bytes is not None:
        options["memory"] = resources.memory_bytes
    return options | dict(resources.ray_options)


class OwnActors:
    """Actors of one stage.

    An actor is a process, which takes a second to start. Actors that any stage could use are therefore kept for the
    next query, up to ``MAX_SPARES`` of each ``kind``, until the user's process ends. None: they are not kept.
    """

    address: tuple[int, ...] = ()
    _spares: ClassVar[dict[str, list[Any]]] = {}
    _spares_connection: ClassVar[Any] = None  # the connection to Ray that the spares belong to

    def __init__(self, packed_open: Any, options: dict[str, Any], kind: str | None) -> None:
        self._kind = kind
        self._actor_cls = ray.remote(Worker).options(**options)
        self._packed_open = packed_open

    def acquire(self, *, is_alone: bool) -> Any:
        spares = self._current_spares()
        while spares:
            actor = spares.pop()
            if has_succeeded(actor.assign.remote(self._packed_open)):
                return actor
        return self._actor_cls.remote(self._packed_open)

    def discard(self, actor: Any) -> None:
        ray.kill(actor)

    def release(self, idle: Sequence[Any], running: Mapping[Any, Any]) -> None:
        if not idle and not running:
            return
        for actor in running.values():
            ray.kill(actor)
        closing = {actor.close.remote(): actor for actor in idle}
        ray.wait([*running, *closing], num_returns=len(running) + len(closing), timeout=CLOSE_TIMEOUT_S)
        spares = self._current_spares()
        for ref, actor in closing.items():
            if self._kind is not None and len(spares) < MAX_SPARES and has_succeeded(ref, timeout_s=0):
                spares.append(actor)
            else:
                ray.kill(actor)

    def _current_spares(self) -> list[Any]:
        """Return the spares of this kind and of the present connection to Ray."""
        context = ray.get_runtime_context()
        connection = context.get_node_id(), context.get_job_id()
        if OwnActors._spares_connection != connection:
            OwnActors._spares_connection, OwnActors._spares = connection, {}
        return [] if self._kind is None else OwnActors._spares.setdefault(self._kind, [])


class SharedActor:
    """One actor for the async stages that share an event loop, started with the first task and killed by the last.

    All stages join before the first task, because the executor opens every pool first.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._packed_opens: list[Any] = []
        self._num_tasks = 0
        self._num_members = 0
        self._actor: Any = None
        self._others: list[Any] = []  # actors of single tasks
        self._lock = threading.Lock()

    def join(self, packed_open: Any, num_tasks: int) -> ActorSlot:
        """Add a stage with at most ``num_tasks`` tasks at once."""
        self._packed_opens.append(packed_open)
        self._num_tasks += num_tasks
        self._num_members += 1
        return ActorSlot(self, len(self._packed_opens) - 1)

    def acquire(self, *, is_alone: bool) -> Any:
        with self._lock:
            if is_alone:
                self._others.append(self._started())
                return self._others[-1]
            self._actor = self._actor or self._started()
            return self._actor

    def discard(self, actor: Any) -> None:
        with self._lock:
            if actor is self._actor:
                self._actor = None
            self._others = [each for each in self._others if each is not actor]
        ray.kill(actor)

    def leave(self, stage: int, replies: Sequence[Any], *, is_again: bool) -> None:
        """Cancel the running tasks of a stage and close it; kill the actors after the last stage.

        A stage leaves again if it had to remake batches after its end.
        An actor that is killed while it works may send requests for a moment longer, and their cost is not counted.
        ``replies`` are those of the running tasks.
        """
        with self._lock:
            self._num_members -= not is_again
            actors = [*self._others, *([self._actor] if self._actor is not None else [])]
        ended = [*(actor.close.remote(stage) for actor in actors), *replies]
        if ended:
            ray.wait(ended, num_returns=len(ended), timeout=CLOSE_TIMEOUT_S)
        if not self._num_members:
            for actor in actors:
                self.discard(actor)

    def _started(self) -> Any:
        # One call more for each stage, so that it can be closed while its tasks run, and one to open it.
        options = {"max_concurrency": self._num_tasks + 2 * self._num_members, **self._options}
        return ray.remote(AsyncWorker).options(**options).remote(*self._packed_opens)


class ActorSlot:
    """The place of one stage in a shared actor."""

    def __init__(self, actor: SharedActor, stage: int) -> None:
        self._actor = actor
        self._stage = stage
        self.address: tuple[int, ...] = (stage,)
        self._has_left = False

    def acquire(self, *, is_alone: bool) -> Any:
        return self._actor.acquire(is_alone=is_alone)

    def discard(self, actor: Any) -> None:
        self._actor.discard(actor)

    def release(self, idle: Sequence[Any], running: Mapping[Any, Any]) -> None:
        is_again, self._has_left = self._has_left, True  # before the call: it may come from two threads at once
        self._actor.leave(self._stage, list(running), is_again=is_again)


def put_packed(open_handler: Callable[..., Any], name: str) -> Any:
    """Return a reference to the pickled opener of the handlers of ``name``."""
    import cloudpickle

    try:
        return ray.put(cloudpickle.dumps(open_handler))
    except Exception as exc:  # __reduce__ of an object may raise anything
        raise UdfError(
            f"{name!r} cannot be sent to a Ray worker because something it uses cannot be pickled: {exc}. Make it "
            "inside the function or in __init__ of a class."
        ) from exc


def has_succeeded(ref: Any, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
    """Wait for a call; return False if it fails or takes too long."""
    try:
        ray.get(ref, timeout=timeout_s)
    except Exception:  # closing a user's handler may raise anything
        return False
    return True
