"""The handler of ``dedup_near``: it compares each row with the rows that it has kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.contracts import EndOfInput, check_not_cancelled
from penstock.expr.arrays import Numbers
from penstock.expr.vector_matrix import matrix_of
from penstock.plan.similarity import DropNear
from penstock.relational.spill import spill_file
from penstock.types.plain import arrow_array

ROWS_AT_A_TIME = 1024  # new rows that are compared with a block of kept rows at once
KEPT_BLOCK_ROWS = 8192
ROUNDING = 1e-6  # the similarity of equal vectors may differ from 1 by this much


class DropNearHandler:
    """Keeps the rows that are not near an earlier kept row. The output streams; only vectors are held."""

    def __init__(self, relation: DropNear, memory_bytes: int, is_cancelled: Callable[[], bool]) -> None:
        self._relation = relation
        self._least = relation.threshold - ROUNDING
        self._is_cancelled = is_cancelled
        self._kept = _KeptVectors(memory_bytes)
        self._size: int | None = None

    def process(self, item: Any, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            return iter(())
        vectors, rows = matrix_of(
            item.column(self._relation.on), self._size, f"dedup_near: column {self._relation.on!r}"
        )
        if len(rows):
            self._size = vectors.shape[1]
        is_kept = np.ones(item.num_rows, bool)
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            part = slice(start, start + ROWS_AT_A_TIME)
            is_kept[rows[part]] = ~self._is_near(vectors[part])
        return item.filter(arrow_array(is_kept)).replace_schema_metadata(None)

    def close(self) -> None:
        self._kept.close()

    def _is_near(self, vectors: Numbers) -> Numbers:
        """Return which vectors are near an earlier kept one, and keep the others."""
        with np.errstate(all="ignore"):
            vectors = vectors / np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
        is_near = np.zeros(len(vectors), bool)
        rest = np.flatnonzero(np.isfinite(vectors).all(axis=1))
        for block in self._kept.blocks():
            check_not_cancelled(self._is_cancelled)
            is_new = (vectors[rest] @ block.T).max(axis=1) < self._least
            is_near[rest[~is_new]] = True
            rest = rest[is_new]
        # Within the batch the first row of a pair stays, unless an earlier row has dropped it.
        pairs = np.triu(vectors[rest] @ vectors[rest].T >= self._least, 1)
        for row in np.flatnonzero(pairs.any(axis=1)):
            if not is_near[rest[row]]:
                is_near[rest[pairs[row]]] = True
        self._kept.add(vectors[rest[~is_near[rest]]])
        return is_near


class _KeptVectors:
    """Blocks of vectors: in memory up to a limit, then in a nameless file that disappears with the process."""

    def __init__(self, memory_bytes: int) -> None:
        self._free_nbytes = memory_bytes
        self._in_memory: list[Numbers] = []
        self._last: list[Numbers] = []  # the pieces of the block that is not full
        self._file: Any = None
        self._num_in_file = 0

    def add(self, vectors: Numbers) -> None:
        self._last.append(vectors)
        if sum(map(len, self._last)) < KEPT_BLOCK_ROWS:
            return
        block = np.concatenate(self._last)
        block, rest = block[:KEPT_BLOCK_ROWS], block[KEPT_BLOCK_ROWS:]
        self._last = [rest]
        if block.nbytes <= self._free_nbytes:
            self._free_nbytes -= block.nbytes
            self._in_memory.append(block)
            return
        if self._file is None:
            self._file = spill_file()
        self._file.seek(0, 2)
        self._file.write(block)
        self._num_in_file += 1

    def blocks(self) -> Iterator[Numbers]:
        """Yield all vectors that were added."""
        yield from self._in_memory
        if self._last and (last := np.concatenate(self._last)).size:
            yield last
        for number in range(self._num_in_file):
            shape, dtype = (KEPT_BLOCK_ROWS, self._last[0].shape[1]), self._last[0].dtype
            block = np.empty(shape, dtype)
            self._file.seek(number * block.nbytes)
            self._file.readinto(block)
            yield block

    def close(self) -> None:
        self._in_memory, self._last = [], []
        if self._file is not None:
            self._file.close()
