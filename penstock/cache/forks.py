"""What belongs to this process alone: a child that is forked lets go of it.

A lock on a file belongs to all who have it open, and a child has open what its parent had. So a child that outlives a
killed parent would keep its locks; and one that ends would tidy up what the parent still uses.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Owned(Protocol):
    """What lets go of itself in a forked child, without waiting for locks: whoever held one is not there any more."""

    def let_go_in_child(self) -> None: ...


_owned: WeakSet[Owned] = WeakSet()


def owned_here(owned: Owned) -> None:
    """Have forked children let go of it."""
    _owned.add(owned)


def _let_go() -> None:
    for owned in list(_owned):
        owned.let_go_in_child()
    _owned.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
