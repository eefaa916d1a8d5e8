"""Instances of user classes: each worker builds one, shared by all methods that a query calls in that worker.

Each stage has a handler for each of its workers, and each handler holds a lease of an instance. Handlers of different
stages share an instance; handlers of the same stage run in parallel, so each has its own, unless a worker of the
function may run several tasks at once.
"""

from __future__ import annotations

import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expr.udf import Target
from penstock.plan.stages import CallUdf
from penstock.udf.failures import CALL_FAILURES
from penstock.udf.user_errors import udf_error

log = logging.getLogger("penstock.udf")


class _Instance:
    """An instance, the ids of the stages whose handlers hold it, and the lock of the thread that uses it."""

    def __init__(self) -> None:
        self.value: Any = None
        self.is_built = False
        self.holders: Counter[int] = Counter()
        self.lock = threading.Lock()


_shared: dict[tuple[str, bool], list[_Instance]] = {}  # by owner and whether it serves async methods
_guard = threading.Lock()


class Unfinished(NamedTuple):
    """Stands for a result that is not known yet: an intermediate state, and the id of its row, if any."""

    found: Any
    row_id: bytes | None


class RowLookup(ABC):
    """An instance that knows the results of some rows before they are computed one by one."""

    has_lookup: bool = True

    @abstractmethod
    def results(self, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the result of each row of a task, given its arguments, or ``Unfinished``."""

    @abstractmethod
    def finish(self, unfinished: Unfinished, *args: Any) -> Awaitable[Any]:
        """Compute the result of an unfinished row."""


class Lease:
    """A handler's hold on an instance, or on a plain function. A thread must hold ``lock`` while it calls.

    The lock of an instance that takes several tasks at once admits all of them.

    ``was_last`` is True after ``close()`` if no other handler holds the instance.
    """

    def __init__(self, work: CallUdf) -> None:
        self._work = work
        self._spec = work.call.udf
        self._target = self._spec.target
        self._key = (self._target.owner or "", self._target.is_async)
        self._num_tasks = self._spec.resources.tasks_per_worker
        self._instance = self._acquire()
        self.lock: AbstractContextManager[Any] = self._instance.lock if self._num_tasks == 1 else nullcontext()
        self.was_last = False
        try:
            self.function = self._build()
        except BaseException:
            self._release()
            raise

    @property
    def lookup(self) -> RowLookup | None:
        instance = self._instance.value
        if not self._spec.builtin.has_lookup:
            return None
        assert isinstance(instance, RowLookup)
        return instance if instance.has_lookup else None

    @property
    def at_once(self) -> Callable[..., Awaitable[pa.Array | None]] | None:
        name = self._spec.builtin.at_once
        return None if name is None else getattr(self._instance.value, name)

    def close(self) -> Any:
        """Release the hold. The last holder closes the instance and returns the result, which may be awaitable."""
        self.was_last = self._release()
        return close_instance(self._instance.value) if self.was_last else None

    def _build(self) -> Callable[..., Any]:
        if not self._instance.is_built:  # a built instance may be in use, which must not delay this
            with self._instance.lock:
                if not self._instance.is_built:
                    self._instance.value = build_instance(self._target)
                    self._instance.is_built = True
        return callable_of(self._target, self._instance.value)

    def _acquire(self) -> _Instance:
        """Return an instance that this work may still call, or a new one."""
        with _guard:
            known = _shared.setdefault(self._key, []) if self._target.owner is not None else []
            found = next((each for each in known if each.holders[id(self._work)] < self._num_tasks), None)
            if found is None:
                found = _Instance()
                known.append(found)
            found.holders[id(self._work)] += 1
            return found

    def _release(self) -> bool:
        """Return True if no other handler holds the instance."""
        with _guard:
            self._instance.holders[id(self._work)] -= 1
            if self._instance.holders.total():
                return False
            if self._target.owner is not None:
                _shared[self._key].remove(self._instance)
                if not _shared[self._key]:
                    del _shared[self._key]
            return True


def build_instance(target: Target) -> Any:
    """Return a new instance of the target's class, None for a plain function."""
    if not target.is_class:
        return None
    try:
        return target.function(*target.init_args, **dict(target.init_kwargs))
    except PenstockError:  # such as a missing key or a broken model; its message has the remedy
        raise
    except CALL_FAILURES as exc:
        name = target.function.__name__
        message = f"{name}() failed when a worker built its instance: {type(exc).__name__}: {exc}"
        raise udf_error(message, exc) from exc


def callable_of(target: Target, instance: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = target.function if target.method is None else getattr(instance, target.method)
    return function


def close_instance(instance: Any) -> Any:
    """Call a user's object's ``close()`` if it has such a method, and return an awaitable if it is async.

    Log an error instead of raising it: the results are complete, and it must not hide another error.
    """
    close = getattr(instance, "close", None)
    if not callable(close):
        return None
    try:
        closing = close()
    except Exception as exc:
        _log_close(instance, exc)
        return None
    return _await_close(instance, closing) if inspect.isawaitable(closing) else None


def close_instance_sync(closing: Any) -> None:
    """Run an async ``close()`` to its end on an event loop of its own; the caller may run in another loop."""
    if not inspect.isawaitable(closing):
        return
    import asyncio

    async def wait() -> None:
        await closing

    thread = threading.Thread(target=lambda: asyncio.run(wait()), name="penstock-close")
    thread.start()
    thread.join()


async def _await_close(instance: Any, closing: Awaitable[Any]) -> None:
    try:
        await closing
    except Exception as exc:
        _log_close(instance, exc)


def _log_close(instance: Any, error: Exception) -> None:
    """Log an error of ``close()``; Penstock's own errors without their traceback."""
    log.warning("%s.close() failed: %s", type(instance).__name__, error, exc_info=not isinstance(error, PenstockError))
