"""The handler of ``dedup_minhash``: groups of rows with similar signatures, by locality sensitive hashing.

The values of a signature are cut into bands. Rows that agree in a whole band are compared, and linked if their
signatures are similar enough. Rows and signatures wait in nameless files, which disappear with the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.contracts import EndOfInput, check_not_cancelled
from penstock.expr.arrays import Numbers, elements_of, validity
from penstock.plan.similarity import DropSimilar
from penstock.plan.stages import RunRelation
from penstock.relational.spill import Place, SpilledBatches, spill_file
from penstock.relational.typed_input import TypedInput
from penstock.types.plain import arrow_array

RECALL = 0.99  # the least probability that a pair at the threshold shares a band
PAIRS_AT_A_TIME = 4096
ODD = np.uint64(0x9E3779B97F4A7C15)


class DropSimilarHandler:
    """Keeps the first row of each group. The groups are known at the end, so the rows wait until then."""

    def __init__(self, relation: DropSimilar, work: RunRelation, is_cancelled: Callable[[], bool]) -> None:
        self._relation = relation
        self._input = TypedInput(str(relation), work.schemas[0])
        self._is_cancelled = is_cancelled
        self._spilled, self._signatures_file = SpilledBatches(str(relation)), spill_file()
        self._rows: list[Place] = []
        self._has_signature: list[Numbers] = []  # of each batch
        self._num_hashes = 0

    def process(self, item: Any, first_row: int) -> Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            self._hold(self._input.end())
            return self._first_rows()
        self._hold(self._input.add(item))
        return iter(())

    def close(self) -> None:
        self._input.close()
        self._spilled.close()
        self._signatures_file.close()

    def _hold(self, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            self._rows.append(self._spilled.put(batch))
            signatures = batch.column(self._relation.signature)
            self._num_hashes = signatures.type.list_size
            self._has_signature.append(validity(signatures))
            self._signatures_file.write(elements_of(signatures)[0].to_numpy())

    def _first_rows(self) -> Iterator[pa.RecordBatch]:
        firsts, start = self._is_first(), 0
        for place, has_signature in zip(self._rows, self._has_signature, strict=True):
            end = start + int(np.count_nonzero(has_signature))
            is_kept = ~has_signature
            is_kept[has_signature] = firsts[start:end]
            start = end
            yield self._spilled.get(place).filter(arrow_array(is_kept))

    def _is_first(self) -> Numbers:
        """Return for each signature whether its row is the first of its group."""
        num_rows = sum(map(np.count_nonzero, self._has_signature))
        parents = np.arange(num_rows)
        if not num_rows:
            return np.empty(0, bool)
        self._signatures_file.flush()
        signatures = np.memmap(self._signatures_file, np.uint32, "r", shape=(num_rows, self._num_hashes))
        num_bands, width = bands(self._num_hashes, self._relation.threshold)
        for band in range(num_bands):
            for left, right in candidates(_hashed(signatures[:, band * width : (band + 1) * width])):
                self._link_similar(signatures, parents, left, right)
        return np.asarray(parents == np.arange(num_rows))

    def _link_similar(self, signatures: Numbers, parents: Numbers, left: Numbers, right: Numbers) -> None:
        is_new = _roots(parents, left) != _roots(parents, right)
        left, right = left[is_new], right[is_new]
        for start in range(0, len(left), PAIRS_AT_A_TIME):
            check_not_cancelled(self._is_cancelled)
            part = slice(start, start + PAIRS_AT_A_TIME)
            similarity = (signatures[left[part]] == signatures[right[part]]).mean(axis=1)
            is_similar = similarity >= self._relation.threshold
            link(parents, left[part][is_similar], right[part][is_similar])


def bands(num_hashes: int, threshold: float) -> tuple[int, int]:
    """Return the number of bands and the values in each: as wide as possible, but so that RECALL is kept.

    >>> bands(128, 0.8), bands(128, 0.5), bands(4, 0.1)
    ((21, 6), (42, 3), (4, 1))
    """
    widths = range(num_hashes, 0, -1)
    found = (width for width in widths if 1 - (1 - threshold**width) ** (num_hashes // width) >= RECALL)
    width = next(found, 1)
    return num_hashes // width, width


def candidates(hashes: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield pairs of rows with equal hashes: each row with the first one, then each row with the one before it.

    >>> [(left.tolist(), right.tolist()) for left, right in candidates(np.array([7, 5, 7, 7]))]
    [([0, 0], [2, 3]), ([0, 2], [2, 3])]
    """
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    is_same = ordered[1:] == ordered[:-1]
    members = np.flatnonzero(is_same) + 1
    starts = np.flatnonzero(np.concatenate([[True], ~is_same]))
    firsts = starts[np.searchsorted(starts, members, side="right") - 1]
    yield order[firsts], order[members]
    yield order[members - 1], order[members]


def link(parents: Numbers, left: Numbers, right: Numbers) -> None:
    """Join the groups of each pair, in place. The parent of a row is an earlier row, or itself.

    >>> parents = np.arange(5)
    >>> link(parents, np.array([0, 3]), np.array([3, 4]))
    >>> parents.tolist()
    [0, 1, 2, 0, 0]
    """
    while True:
        one, other = _roots(parents, left), _roots(parents, right)
        is_apart = one != other
        if not is_apart.any():
            return
        parents[np.maximum(one, other)[is_apart]] = np.minimum(one, other)[is_apart]


def _roots(parents: Numbers, rows: Numbers) -> Numbers:
    """Return the first rows of the groups, and note them as the parents."""
    roots = parents[rows]
    while ((above := parents[roots]) != roots).any():
        roots = above
    parents[rows] = roots
    return roots


def _hashed(values: Numbers) -> Numbers:
    hashes = np.zeros(len(values), np.uint64)
    for column in values.T:
        hashes = (hashes ^ column) * ODD
        hashes ^= hashes >> np.uint64(29)
    return hashes
