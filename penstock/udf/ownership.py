"""Results that the function keeps a hand on: an array that it fills again for the next batch must be copied now.

What a function has made and let go of is taken as it is, without a copy. That nobody else has it is read from the
reference count, compared with that of an object which is known to have no other owner.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np


def unshared(result: Any) -> Any:
    """Return what a function gave, with copies of the arrays that it may still change.

    >>> kept = np.zeros(2)
    >>> taken = unshared({"x": kept})
    >>> kept[0] = 1
    >>> taken["x"].tolist()
    [0.0, 0.0]
    """
    if isinstance(result, Iterator):
        return map(unshared, result)
    is_kept = sys.getrefcount(result) > _ALONE
    if type(result) is not dict:
        return _own(result, is_kept)
    counts = [sys.getrefcount(value) for value in result.values()]
    held = [is_kept or count > _IN_DICT for count in counts]
    return {name: _own(value, is_held) for (name, value), is_held in zip(result.items(), held, strict=True)}


def _own(value: Any, is_held: bool) -> Any:
    """Return a value, or a copy if it, or the memory that it is a view of, belongs to somebody else too."""
    if isinstance(value, np.ndarray):
        return value.copy() if value.flags.writeable and (is_held or _is_view_of_kept(value)) else value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().clone() if is_held or value._is_view() else value
    return value


def _is_view_of_kept(array: Any) -> bool:
    if array.base is None:
        return False
    if not isinstance(array.base, np.ndarray) or array.base.base is not None:
        return True  # of something whose other owners cannot be counted
    return sys.getrefcount(array.base) > _VIEWED


# What the same expressions count for objects without another owner.


def _count(result: Any) -> int:
    return sys.getrefcount(result)


def _count_values(result: dict[str, Any]) -> list[int]:
    return [sys.getrefcount(value) for value in result.values()]


def _count_base(array: np.ndarray[Any, Any]) -> int:
    return sys.getrefcount(array.base)


_ALONE = _count(np.empty(0))
_IN_DICT = _count_values({"x": np.empty(0)})[0]
_VIEWED = _count_base(np.empty(2)[:1])
