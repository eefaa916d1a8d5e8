"""Resources that belong to one process: a forked child must release them.

A forked child inherits open files with their locks. If it outlived a killed parent, it would keep the locks; when it
ends, it would clean up files that the parent still uses.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class ProcessOwned(Protocol):
    """A resource that a forked child releases. It must not wait for locks, because their holder does not exist in the
    child."""

    def release_in_child(self) -> None: ...


_owned: WeakSet[ProcessOwned] = WeakSet()


def release_on_fork(resource: ProcessOwned) -> None:
    """Release a resource in forked children."""
    _owned.add(resource)


def _release_all() -> None:
    for resource in list(_owned):
        resource.release_in_child()
    _owned.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_all)
