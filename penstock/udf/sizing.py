"""Cut batches in the worker, to the weight that the user allows and to the size that memory holds.

The driver counts only rows, since it never touches data. Decisions that depend on the data are made here.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import UdfError
from penstock.expr.udf import BatchLimits
from penstock.udf.weights import checked_weights, row_nbytes, row_tokens

log = logging.getLogger("penstock.udf")

Shares = npt.NDArray[np.float64]  # for each limit and row: the share of the limit that the row takes

FIRST_PATIENCE = 8
MAX_PATIENCE = 1024


class BatchSizes:
    """The sizes of one worker's batches. ``what`` names the function in errors.

    ``columns`` returns the arguments of a batch as arrays, ``weigh`` the result of ``batch_weight`` for them.
    """

    def __init__(
        self,
        limits: BatchLimits,
        what: str,
        columns: Callable[[pa.RecordBatch], Sequence[pa.Array]],
        weigh: Callable[[pa.RecordBatch], Any],
    ) -> None:
        self._limits = limits
        self._what = what
        self._columns = columns
        self._weigh = weigh
        self._safe = SafeSize()
        self._has_logged = False

    def parts(self, batch: pa.RecordBatch) -> Parts:
        """Return the parts of a batch to call the function with."""
        return Parts(self, batch, self._shares(batch))

    def is_too_large(self, exc: BaseException) -> bool:
        """Return True if an error means that a smaller batch may work."""
        return isinstance(exc, (*self._limits.split_on, *out_of_memory_classes()))

    def lengths(self, num_rows: int, shares: Shares) -> list[int]:
        """Return the number of rows of each part of a batch."""
        if len(shares):
            return cut(np.cumsum(shares, axis=1), min(1.0, self._safe.limit))
        if num_rows <= self._safe.limit:
            return [num_rows]
        size = max(1, int(self._safe.limit))
        return [size] * (num_rows // size) + ([num_rows % size] if num_rows % size else [])

    def worked(self, num_rows: int, shares: Shares) -> None:
        self._safe.worked(_size(num_rows, shares))

    def failed(self, num_rows: int, shares: Shares, exc: BaseException, *, is_first: bool) -> None:
        """Reduce the safe size after a part that was too large, and release the memory of its call."""
        if not self._has_logged:
            self._has_logged = True
            log.info(
                "%s: a batch of %d rows was too large (%s: %.200s); it is halved, and so are later batches",
                *(self._what, num_rows, type(exc).__name__, exc),
            )
        self._safe.failed(_size(num_rows, shares), is_first=is_first)
        release_memory(exc)

    def _shares(self, batch: pa.RecordBatch) -> Shares:
        limits = self._limits
        rows = list[npt.NDArray[np.float64]]()
        if limits.max_batch_bytes is not None:
            nbytes = sum((row_nbytes(array) for array in self._columns(batch)), np.zeros(batch.num_rows))
            rows.append(nbytes / limits.max_batch_bytes)
        if limits.max_batch_tokens is not None:
            rows.append(self._tokens(batch) / limits.max_batch_tokens)
        return np.stack(rows) if rows else np.empty((0, batch.num_rows))

    def _tokens(self, batch: pa.RecordBatch) -> npt.NDArray[np.float64]:
        if self._limits.batch_weight is None:
            return row_tokens(self._columns(batch), self._what)
        try:
            weights = self._weigh(batch)
        except Exception as exc:
            raise UdfError(f"{self._what}: batch_weight failed: {type(exc).__name__}: {exc}") from exc
        return checked_weights(weights, batch.num_rows, self._what)


class Parts(Iterator[pa.RecordBatch]):
    """The parts of a batch in order. After ``split`` and ``has_shrunk`` the last part comes again in smaller parts."""

    def __init__(self, sizes: BatchSizes, batch: pa.RecordBatch, shares: Shares) -> None:
        self._sizes = sizes
        self._left = [(batch, shares)]  # a stack
        self._last = self._left[0]
        self._has_failed = False
        self._cut_left()

    def __next__(self) -> pa.RecordBatch:
        if not self._left:
            raise StopIteration
        self._last = self._left.pop()
        return self._last[0]

    def split(self) -> bool:
        """Put the halves of the last part in its place; return False if it is a single row."""
        part, shares = self._last
        half = part.num_rows // 2
        if half:
            self._left += [(part.slice(half), shares[:, half:]), (part.slice(0, half), shares[:, :half])]
        return bool(half)

    def worked(self) -> None:
        """Note that the last part was not too large."""
        part, shares = self._last
        self._sizes.worked(part.num_rows, shares)

    def has_shrunk(self, exc: BaseException) -> bool:
        """Put smaller parts in the place of the last one, if its error says it was too large; return False if not."""
        part, shares = self._last
        if not self._sizes.is_too_large(exc):
            return False
        if part.num_rows == 1:
            release_memory(exc)
            return False
        self._sizes.failed(part.num_rows, shares, exc, is_first=not self._has_failed)
        self._has_failed = True
        self._left.append(self._last)
        self._cut_left()
        if self._left[-1][0].num_rows == part.num_rows:  # its rows have a weight of 0
            next(self)
            self.split()
        return True

    def _cut_left(self) -> None:
        cut_up: list[tuple[pa.RecordBatch, Shares]] = []
        for part, shares in reversed(self._left):
            first = 0
            for num_rows in self._sizes.lengths(part.num_rows, shares):
                cut_up.append((part.slice(first, num_rows), shares[:, first : first + num_rows]))
                first += num_rows
        self._left = cut_up[::-1]


def cut(totals: Shares, limit: float) -> list[int]:
    """Return the number of rows of each part, as many as stay within ``limit``; a heavier row goes alone.

    ``totals`` holds the cumulative weights of the rows, one line for each kind of weight.

    >>> cut(np.cumsum([[0.5, 0.5, 0.25, 3.0, 1.0]], axis=1), 1.0)
    [2, 1, 1, 1]
    """
    lengths: list[int] = []
    first, num_rows = 0, totals.shape[1]
    slack = 1e-9 * limit  # sums of shares round
    while first < num_rows:
        before = totals[:, first - 1] if first else np.zeros(len(totals))
        most = before + limit + slack
        end = min(int(np.searchsorted(line, total, "right")) for line, total in zip(totals, most, strict=True))
        end = max(first + 1, end)
        lengths.append(end - first)
        first = end
    return lengths


def _size(num_rows: int, shares: Shares) -> float:
    """Return the size of a part: its share of the tightest limit, or its rows if there is no limit."""
    return float(shares.sum(axis=1).max()) if len(shares) else float(num_rows)


class SafeSize:
    """The size that memory holds: half of a size that was too large, doubled again after many batches that worked.

    One enormous row can fail batches of any size, which must not make all later batches small. So larger sizes are
    tried again, at growing intervals: each batch with a failure doubles the number of batches that must work first.

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
        """Note a size that was too large; ``is_first`` marks the first failure of its batch."""
        if size:
            self.limit = min(self.limit, size / 2)
        self._num_good = 0
        if is_first:
            self._patience = min(2 * self._patience, MAX_PATIENCE)

    def worked(self, size: float) -> None:
        """Note a size that was not too large. A size far below the limit does not count."""
        if size <= self.limit / 2:
            return
        self._num_good += 1
        if self._num_good >= self._patience:
            self.limit *= 2
            self._num_good = 0


def out_of_memory_classes() -> tuple[type[BaseException], ...]:
    """Return the class that torch raises when a GPU is full. Torch is not imported for it."""
    torch = sys.modules.get("torch")
    found = getattr(torch, "OutOfMemoryError", None) or getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)
    return (found,) if isinstance(found, type) else ()


def release_memory(exc: BaseException) -> None:
    """Release what a failed call holds: tensors in its frames, and the blocks in torch's cache."""
    for each in (exc, exc.__cause__, exc.__context__):
        if each is not None:
            traceback.clear_frames(each.__traceback__)
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
