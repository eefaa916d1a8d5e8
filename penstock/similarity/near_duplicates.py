"""The handler of ``dedup_near``: it compares each row with the rows that it has kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.contracts import EndOfInput, check_not_cancelled
from penstock.errors import ComputeError
from penstock.expr.arrays import Numbers
from penstock.expr.vector_matrix import matrix_of
from penstock.plan.similarity import DropNear
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
        self._kept = _KeptVectors(0)

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
    """Vectors in blocks. An error ends the query if they take more than ``memory_bytes``."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._nbytes = 0
        self._full: list[Numbers] = []
        self._last: list[Numbers] = []  # the pieces of the block that is not full

    def add(self, vectors: Numbers) -> None:
        self._last.append(vectors)
        self._nbytes += vectors.nbytes
        if self._nbytes > self._memory_bytes:
            raise ComputeError(
                f"dedup_near holds the vectors of the rows that it keeps, which take {self._nbytes / 2**20:.0f} MiB; "
                f"its part of memory_limit is {self._memory_bytes / 2**20:.0f} MiB. Drop rows by distinct or "
                "dedup_minhash before, or raise memory_limit"
            )
        if sum(map(len, self._last)) >= KEPT_BLOCK_ROWS:
            block = np.concatenate(self._last)
            self._full.append(block[:KEPT_BLOCK_ROWS].copy())
            self._last = [block[KEPT_BLOCK_ROWS:].copy()]

    def blocks(self) -> Iterator[Numbers]:
        """Yield all vectors that were added."""
        yield from self._full
        if self._last and (last := np.concatenate(self._last)).size:
            yield last
