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

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import InvalidArgumentError
from penstock.expr.udf import BatchLimits

log = logging.getLogger("penstock.udf")

Weights = npt.NDArray[np.float64]  # one number a row
Shares = npt.NDArray[np.float64]  # for each limit and row: the share of the limit that the row takes

BYTES_PER_TOKEN = 4
"""Bytes of UTF-8 for each token. Tokenizers of English text differ from this by about a third."""
BATCHES_BEFORE_GROWTH = 32


class BatchSizes:
    """The sizes of one worker's batches. ``what`` names the function in errors.

    ``columns`` returns the arguments of a batch as arrays.
    """

    def __init__(
        self,
        limits: BatchLimits,
        what: str,
        columns: Callable[[pa.RecordBatch], Sequence[pa.Array]],
    ) -> None:
        self._limits = limits
        self._what = what
        self._columns = columns
        self.safe = SafeSize()

    def parts(self, batch: pa.RecordBatch) -> Parts:
        """Return the parts of a batch to call the function with."""
        shares = self._shares(batch)
        if not len(shares):
            shares, limit = np.ones((1, batch.num_rows)), self.safe.limit
        else:
            limit = min(1.0, self.safe.limit)
        lengths = [batch.num_rows] if math.isinf(limit) else cut(np.cumsum(shares, axis=1), limit)
        return Parts(self, batch, shares, lengths)

    def is_too_large(self, exc: BaseException) -> bool:
        """Return True if an error means that a smaller batch may work."""
        return isinstance(exc, (*self._limits.split_on, *out_of_memory_classes()))

    def failed(self, shares: Shares, exc: BaseException) -> None:
        """Reduce the safe size after a part that was too large."""
        log.info(
            "%s: a batch of %d rows was too large (%s: %.200s); it is halved, and so are later batches",
            *(self._what, shares.shape[1], type(exc).__name__, exc),
        )
        self.safe.failed(_size(shares))

    def _shares(self, batch: pa.RecordBatch) -> Shares:
        limits = self._limits
        rows = list[Weights]()
        if limits.max_batch_bytes is not None:
            nbytes = sum((row_nbytes(array) for array in self._columns(batch)), np.zeros(batch.num_rows))
            rows.append(nbytes / limits.max_batch_bytes)
        if limits.max_batch_tokens is not None:
            rows.append(row_tokens(self._columns(batch), self._what) / limits.max_batch_tokens)
        return np.stack(rows) if rows else np.empty((0, batch.num_rows))


class Parts(Iterator[pa.RecordBatch]):
    """The parts of a batch in order. After ``split`` and ``has_shrunk`` the last part comes again in halves."""

    def __init__(self, sizes: BatchSizes, batch: pa.RecordBatch, shares: Shares, lengths: Sequence[int]) -> None:
        self._sizes = sizes
        ends = np.cumsum(lengths, dtype=int).tolist()
        starts = [0, *ends[:-1]]
        parts = [(batch[start:end], shares[:, start:end]) for start, end in zip(starts, ends, strict=True)]
        self._left = parts[::-1]  # a stack
        self._last = (batch, shares)

    def __next__(self) -> pa.RecordBatch:
        if not self._left:
            raise StopIteration
        self._last = self._left.pop()
        if _size(self._last[1]) > self._sizes.safe.limit and self.split():
            return next(self)
        return self._last[0]

    def split(self) -> bool:
        """Replace the last part by its halves; return False if it is a single row."""
        part, shares = self._last
        half = part.num_rows // 2
        if half:
            self._left += [(part[half:], shares[:, half:]), (part[:half], shares[:, :half])]
        return bool(half)

    def worked(self) -> None:
        """Record that the last part was not too large."""
        self._sizes.safe.worked(_size(self._last[1]))

    def has_shrunk(self, exc: BaseException) -> bool:
        """Replace the last part by its halves if its error says that it was too large; return False otherwise."""
        if not self._sizes.is_too_large(exc):
            return False
        release_memory(exc)
        if not self.split():
            return False
        self._sizes.failed(self._last[1], exc)
        return True


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


def _size(shares: Shares) -> float:
    """Return the size of a part: its share of the tightest limit, or its rows if there is no limit."""
    return float(shares.sum(axis=1).max())


class SafeSize:
    """The size that memory holds: half the size that was too large, doubled again after many batches that worked.

    One enormous row can fail batches of any size, which must not make all later batches small.

    >>> safe = SafeSize()
    >>> safe.failed(64)
    >>> safe.limit
    32.0
    """

    def __init__(self) -> None:
        self.limit = math.inf
        self._num_good = 0

    def failed(self, size: float) -> None:
        """Record a size that was too large."""
        if size:
            self.limit = min(self.limit, size / 2)
        self._num_good = 0

    def worked(self, size: float) -> None:
        """Record a size that was not too large. A size far below the limit does not count."""
        if size <= self.limit / 2:
            return
        self._num_good += 1
        if self._num_good >= BATCHES_BEFORE_GROWTH:
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


# --- weights ----------------------------------------------------------------------------------------------------------


def row_nbytes(array: pa.Array) -> Weights:
    """Return the bytes of each value; a nested value includes its offsets.

    >>> row_nbytes(pa.array(["abc", None, ""])).tolist()
    [3.0, 0.0, 0.0]
    """
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if _is_text(array.type) or pt.is_binary(array.type) or pt.is_large_binary(array.type):
        lengths = pc.fill_null(pc.binary_length(array), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False), np.float64)
    try:
        return np.full(len(array), array.type.bit_width / 8)
    except ValueError:  # values of different sizes
        return np.array([array.slice(row, 1).nbytes for row in range(len(array))], np.float64)


def row_tokens(columns: Sequence[pa.Array], what: str) -> Weights:
    """Estimate the tokens of each row from the columns with text; at least one.

    >>> row_tokens([pa.array(["one two three", None])], "f").tolist()
    [4.0, 1.0]
    """
    texts = [column for column in columns if _has_text(column.type)]
    if not texts:
        found = ", ".join(str(column.type) for column in columns) or "none"
        raise InvalidArgumentError(
            f"{what}: max_batch_tokens counts text, and no argument has any (types: {found}). "
            "Use max_batch_bytes or batch_size."
        )
    nbytes = sum(map(row_nbytes, texts), np.float64(0))
    return np.maximum(np.ceil(nbytes / BYTES_PER_TOKEN), 1.0)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pt.is_string(dtype) or pt.is_large_string(dtype))


def _has_text(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return _has_text(dtype.storage_type)
    if pt.is_dictionary(dtype):
        return _has_text(dtype.value_type)
    return _is_text(dtype) or any(_has_text(dtype.field(i).type) for i in range(dtype.num_fields))
