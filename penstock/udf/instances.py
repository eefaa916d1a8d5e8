"""The objects behind ``cls``: built once in a worker, whichever of their methods a query calls there.

Each stage has a handler for each of its workers, and each handler holds a *lease* of an instance. Handlers of different
stages share one; those of the same stage, which are workers beside each other, have one each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from penstock.plan.stages import CallUdf
from penstock.udf.callers import Prepared
from penstock.udf.target import built_target, close_instance, method_of


class _Shared:
    """An instance, the identities of the works whose handlers hold it, and the lock of whoever uses it."""

    def __init__(self) -> None:
        self.instance: Any = None
        self.is_built = False
        self.holders: set[int] = set()
        self.lock = threading.Lock()


_shared: dict[tuple[str, bool], list[_Shared]] = {}  # by owner and whether it serves async methods
_guard = threading.Lock()


class Lease:
    """A handler's hold on what it calls. ``lock`` is held by whoever calls it from a thread.

    ``was_last`` says, once it is closed, that no other handler of the object is left.
    """

    def __init__(self, work: CallUdf) -> None:
        self._work = work
        self._spec = spec = work.call.udf
        self._key = (spec.target.owner or "", spec.target.is_async)
        self._held = _taken(work, self._key)
        self.lock = self._held.lock
        self.was_last = False
        try:
            self.function = self._function()
        except BaseException:
            self._is_last()
            raise

    @property
    def prepare(self) -> Prepared | None:
        """What is given the arguments of all rows of a task first, where the spec names it and the instance has it."""
        name = self._spec.builtin.prepare
        return None if name is None else getattr(self._held.instance, name)

    def close(self) -> Any:
        """Let go. The last one closes the instance and returns what its ``close()`` gives, which may be awaitable."""
        self.was_last = self._is_last()
        return close_instance(self._held.instance) if self.was_last else None

    def _function(self) -> Callable[..., Any]:
        if not self._held.is_built:  # one that is built may be at work, for which there is no need to wait
            with self.lock:
                if not self._held.is_built:
                    function, self._held.instance = built_target(self._spec)
                    self._held.is_built = True
                    return function
        return method_of(self._held.instance, self._spec)

    def _is_last(self) -> bool:
        """Give the hold back; say whether nobody has one any more."""
        with _guard:
            self._held.holders.remove(id(self._work))
            if self._held.holders:
                return False
            if self._spec.target.owner is not None:
                _shared[self._key].remove(self._held)
                if not _shared[self._key]:
                    del _shared[self._key]
            return True


def _taken(work: CallUdf, key: tuple[str, bool]) -> _Shared:
    """Return an instance that no handler of this work holds, a new one if there is none."""
    with _guard:
        known = _shared.setdefault(key, []) if work.call.udf.target.owner is not None else []
        held = next((each for each in known if id(work) not in each.holders), None)
        if held is None:
            held = _Shared()
            known.append(held)
        held.holders.add(id(work))
        return held
