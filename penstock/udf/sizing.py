"""How a worker cuts what it is given into batches: by what the user allows a batch to weigh, and by what was too much.

The driver counts rows alone, as it never touches data. What depends on the data is decided here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import UdfError
from penstock.expr.udf import BatchLimits
from penstock.udf.memory import SafeSize, out_of_memory_classes, release_memory
from penstock.udf.weights import checked_weights, row_nbytes, row_tokens

log = logging.getLogger("penstock.udf")

Shares = npt.NDArray[np.float64]  # for each limit and row: how much of what a batch may weigh the row takes


class BatchSizes:
    """What a worker knows about the sizes of its batches. ``what`` names the function in errors.

    ``columns`` gives the arrays of a batch that the function is given, ``weigh`` what ``batch_weight`` says of it.
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
        self._has_told = False

    def parts(self, batch: pa.RecordBatch) -> Parts:
        """Return the parts to call the function with, one after another."""
        return Parts(self, batch, self._shares(batch))

    def is_too_much(self, exc: BaseException) -> bool:
        """Say whether an error means that a smaller batch may work."""
        return isinstance(exc, (*self._limits.split_on, *out_of_memory_classes()))

    def pieces(self, num_rows: int, shares: Shares) -> list[int]:
        """Return how many rows each piece has, of a batch with these weights."""
        if len(shares):
            return cut(np.cumsum(shares, axis=1), min(1.0, self._safe.limit))
        if num_rows <= self._safe.limit:
            return [num_rows]
        size = max(1, int(self._safe.limit))
        return [size] * (num_rows // size) + ([num_rows % size] if num_rows % size else [])

    def worked(self, num_rows: int, shares: Shares) -> None:
        self._safe.worked(_size(num_rows, shares))

    def failed(self, num_rows: int, shares: Shares, exc: BaseException, *, is_first: bool) -> None:
        """Remember that a part was too much, and make room for a smaller one."""
        if not self._has_told:
            self._has_told = True
            log.info(
                "%s: a batch of %d rows was too much (%s: %.200s); it is halved, and so are those that follow",
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
    """The parts of a batch in order; what is ``split``, or turns out to be too much, comes again in smaller ones."""

    def __init__(self, sizes: BatchSizes, batch: pa.RecordBatch, shares: Shares) -> None:
        self._sizes = sizes
        self._left = [(batch, shares)]  # the next last
        self._given = self._left[0]
        self._has_failed = False
        self._cut_left()

    def __next__(self) -> pa.RecordBatch:
        if not self._left:
            raise StopIteration
        self._given = self._left.pop()
        return self._given[0]

    @property
    def has_more(self) -> bool:
        """Whether the part that was just given is not the last."""
        return bool(self._left)

    def split(self) -> bool:
        """Put the halves of the part that was just given in its place; False if it is a single row."""
        part, shares = self._given
        half = part.num_rows // 2
        if half:
            self._left += [(part.slice(half), shares[:, half:]), (part.slice(0, half), shares[:, :half])]
        return bool(half)

    def worked(self) -> None:
        """Take note that the part that was just given was not too much."""
        part, shares = self._given
        self._sizes.worked(part.num_rows, shares)

    def has_shrunk(self, exc: BaseException) -> bool:
        """If the part was too much, by what it raised, put smaller ones in its place; False if that is no remedy."""
        part, shares = self._given
        if not self._sizes.is_too_much(exc):
            return False
        if part.num_rows == 1:
            release_memory(exc)
            return False
        self._sizes.failed(part.num_rows, shares, exc, is_first=not self._has_failed)
        self._has_failed = True
        self._left.append(self._given)
        self._cut_left()
        if self._left[-1][0].num_rows == part.num_rows:  # rows that weigh nothing, as it seems
            next(self)
            self.split()
        return True

    def _cut_left(self) -> None:
        """Cut what is left by what is known now."""
        cut_up: list[tuple[pa.RecordBatch, Shares]] = []
        for part, shares in reversed(self._left):
            first = 0
            for num_rows in self._sizes.pieces(part.num_rows, shares):
                cut_up.append((part.slice(first, num_rows), shares[:, first : first + num_rows]))
                first += num_rows
        self._left = cut_up[::-1]


def cut(totals: Shares, limit: float) -> list[int]:
    """Return how many rows each part has, as many as stay within ``limit``; a row that is heavier goes alone.

    ``totals`` adds up the weights of the rows, one line for each kind of weight.

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
    """Return the size of a part: its share of what it may weigh, or its rows where nothing is said of that."""
    return float(shares.sum(axis=1).max()) if len(shares) else float(num_rows)
