"""Batches that are too much for memory: how such an error is known, what is let go, which size is safe from then on."""

from __future__ import annotations

import contextlib
import math
import sys
import traceback

FIRST_PATIENCE = 8
MAX_PATIENCE = 1024


class SafeSize:
    """The size that memory holds: half of what was too much, and doubled again after many that were not.

    One enormous row can fail batches of any size, which must not make all later ones small. So larger ones are tried
    again, ever more rarely: each batch in which something fails doubles how many must work first.

    >>> safe = SafeSize()
    >>> safe.failed(64, is_first=True)
    >>> safe.limit
    32.0
    """

    def __init__(self) -> None:
        self.limit = math.inf
        self._patience = FIRST_PATIENCE
        self._num_good = 0

    def failed(self, size: float, *, is_first: bool) -> None:
        """Take note of a size that was too much; ``is_first`` says that nothing of its batch had failed before."""
        if size:
            self.limit = min(self.limit, size / 2)
        self._num_good = 0
        if is_first:
            self._patience = min(2 * self._patience, MAX_PATIENCE)

    def worked(self, size: float) -> None:
        """Take note of a size that was not too much; one far below the limit says nothing."""
        if size <= self.limit / 2:
            return
        self._num_good += 1
        if self._num_good >= self._patience:
            self.limit *= 2
            self._num_good = 0


def out_of_memory_classes() -> tuple[type[BaseException], ...]:
    """Return what torch raises when a GPU is full, if torch is there; it is never imported for that."""
    torch = sys.modules.get("torch")
    found = getattr(torch, "OutOfMemoryError", None) or getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)
    return (found,) if isinstance(found, type) else ()


def release_memory(exc: BaseException) -> None:
    """Let go of what the call that failed still holds: tensors in its frames, and blocks that torch keeps for later."""
    chain = [exc, exc.__cause__, exc.__context__]
    for each in chain:
        if each is not None:
            traceback.clear_frames(each.__traceback__)
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
