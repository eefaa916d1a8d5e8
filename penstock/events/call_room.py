"""Room for the answers of one stage of concurrent calls, in bytes.

Answers wait in memory until all earlier rows of their task have theirs. Waiting and arriving answers together stay
within one share of the memory budget. Beyond it no call starts and no large answer is received, except for the first
row that others wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from contextvars import ContextVar
from itertools import islice
from sys import getsizeof
from typing import Any

from penstock.config import piece_nbytes

COPIES_OF_BODY = 3  # while an answer is received: its bytes, the parsed value, and what is stored of it
FIRST_ANSWER_NBYTES = 2**20  # assumed before the first answers: with little memory, few calls show what others need
SAMPLED_ITEMS = 16  # items of a long list that are measured to estimate its size
NEWEST = 0.1  # the weight of the newest answer in the mean size

IsFirst = Callable[[], bool]
_is_first: ContextVar[IsFirst] = ContextVar("penstock_is_first", default=lambda: True)


class CallRoom:
    """Counts the bytes of answers. Used on one event loop."""

    def __init__(self, nbytes: int | None = None) -> None:
        self.limit = piece_nbytes(2**62) if nbytes is None else nbytes
        self.few_nbytes = self.limit / 2  # below this, nothing needs to be done
        self._waiting: list[asyncio.Future[None]] = []
        self.held = 0  # answers that wait for others
        self.receiving = 0
        self.num_calls = 0  # calls under way
        self.answer_nbytes = float(FIRST_ANSWER_NBYTES)  # mean of recent answers

    def __reduce__(self) -> tuple[type[CallRoom], tuple[()]]:
        return CallRoom, ()

    @property
    def is_full(self) -> bool:
        """True if no further call may start, because its answer may not fit."""
        return self.held + self.receiving + self.num_calls * self.answer_nbytes > self.limit

    @property
    def is_filling(self) -> bool:
        """True if answers should leave before their task has all of its answers."""
        return self.held > self.few_nbytes or self.is_full

    def changed(self) -> None:
        """Wake the waiting calls, so that they look again."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def change(self) -> None:
        """Wait until ``changed`` is called."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            with suppress(ValueError):
                self._waiting.remove(future)

    def has_place(self, nbytes: int) -> bool:
        """Decide whether a large answer may be received now."""
        needed = COPIES_OF_BODY * nbytes
        return self.held + self.receiving + needed <= self.limit or (not self.receiving and _is_first.get()())

    def begin_receiving(self, nbytes: int) -> None:
        self.receiving += COPIES_OF_BODY * nbytes

    def end_receiving(self, nbytes: int) -> None:
        self.receiving -= COPIES_OF_BODY * nbytes
        # After the value of the answer is counted as held, which takes some turns of the loop.
        asyncio.get_running_loop().call_later(0.001, self.changed)


_room: ContextVar[CallRoom | None] = ContextVar("penstock_call_room", default=None)


def current_room() -> CallRoom:
    """Return the room of the calls made here; a new one if no stage makes calls here."""
    return _room.get() or CallRoom()


def make_room(room: CallRoom) -> None:
    """Count the answers to the calls made in the current context in ``room``."""
    _room.set(room)


def wait_for_first(is_first: IsFirst) -> None:
    """Set the function that says whether other answers wait for the call made in the current context."""
    _is_first.set(is_first)


_SCALARS = frozenset((type(None), bool, str, bytes, int, float))


def value_nbytes(value: Any) -> int:
    """Estimate the bytes of a Python value.

    >>> value_nbytes("a" * 1000) > 1000, value_nbytes([["a" * 1000] * 50]) > 50_000
    (True, True)
    """
    if value is None or isinstance(value, str | bytes | int | float):
        return getsizeof(value)
    if isinstance(value, dict):
        return getsizeof(value) + _sum_nbytes(value.values())
    if isinstance(value, list | tuple | set):
        sampled = list(islice(value, SAMPLED_ITEMS))
        return getsizeof(value) + _sum_nbytes(sampled) * len(value) // max(len(sampled), 1)
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    return getsizeof(value) + sum(map(value_nbytes, getattr(value, "__dict__", {}).values()))


def _sum_nbytes(values: Collection[Any]) -> int:
    if _SCALARS.issuperset(map(type, values)):
        return sum(map(getsizeof, values))
    return sum(map(value_nbytes, values))
