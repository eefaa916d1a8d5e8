"""The handler of ``nearest``: it holds the queries and their best rows, and streams the other rows through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.config import piece_nbytes
from penstock.contracts import EndOfInput, check_not_cancelled
from penstock.errors import ComputeError
from penstock.expr.arrays import Numbers
from penstock.expr.vector_matrix import matrix_of
from penstock.plan.pair_relations import NearestMaker
from penstock.plan.similarity import Metric, Nearest
from penstock.plan.stages import SIDE, RunRelation
from penstock.relational.typed_input import TypedInput
from penstock.similarity.best_rows import BestRows, best_rows, block_rows
from penstock.types.plain import arrow_array

OUTPUT_NBYTES = 8 * 2**20


class NearestHandler:
    """Finds the nearest rows of the first input for the queries, which come first."""

    def __init__(
        self,
        relation: Nearest | NearestMaker,
        work: RunRelation,
        *,
        has_gpu: bool,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._given = relation
        self._rows, self._queries = (TypedInput(str(relation), schema) for schema in work.schemas)
        self._relation: Nearest
        self._output: pa.Schema
        self._memory_bytes = work.memory_bytes
        self._has_gpu = has_gpu
        self._is_cancelled = is_cancelled
        self._query_batches: list[pa.RecordBatch] = []
        self._query_nbytes = 0
        self._query_vectors: Numbers | None = None
        self._query_rows: Numbers  # those with a vector
        self._best: BestRows | None = None
        self._held = _HeldRows()
        self._num_rows = 0

    def process(self, item: Any, first_row: int) -> Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            self._end_queries()
            for batch in self._rows.end():
                self._add(batch)
            return self._results()
        if int(item.schema.metadata[SIDE.encode()]):
            for batch in self._queries.add(item):
                self._add_query(batch)
        else:
            self._end_queries()
            for batch in self._rows.add(item):
                self._add(batch)
        return iter(())

    def close(self) -> None:
        self._query_batches, self._best, self._held = [], None, _HeldRows()
        self._rows.close()
        self._queries.close()

    def _end_queries(self) -> None:
        for batch in self._queries.end():
            self._add_query(batch)

    def _add_query(self, batch: pa.RecordBatch) -> None:
        self._query_batches.append(batch)
        self._query_nbytes += batch.nbytes
        self._check_memory()

    def _start(self) -> None:
        """Find the columns of the result, and the vectors of the queries."""
        assert self._rows.schema is not None
        assert self._queries.schema is not None
        schemas = self._rows.schema, self._queries.schema
        self._relation = self._given.made(*schemas) if isinstance(self._given, NearestMaker) else self._given
        self._output = self._relation.schema(*schemas).to_arrow()
        name = self._relation.query_on
        queries = pa.Table.from_batches(self._query_batches)[name].combine_chunks()
        where = f"nearest: column {name!r} of the queries"
        self._query_vectors, self._query_rows = matrix_of(queries, None, where)

    def _add(self, batch: pa.RecordBatch) -> None:
        if not self._query_batches:
            return
        if self._query_vectors is None:
            self._start()
        assert self._query_vectors is not None
        relation = self._relation
        num_queries, size = self._query_vectors.shape
        if not num_queries:
            return
        vectors, rows = matrix_of(batch.column(relation.on), size, f"nearest: column {relation.on!r}")
        if self._best is None:
            queries = self._query_vectors.astype(vectors.dtype, copy=False)
            self._best = best_rows(queries, relation.k, relation.metric, has_gpu=self._has_gpu)
        positions, step = rows + self._num_rows, block_rows(vectors, self._best.max_block_rows)
        for start in range(0, len(rows), step):
            check_not_cancelled(self._is_cancelled)
            self._best.add(vectors[start : start + step], positions[start : start + step])
        needed = self._best.positions
        self._held.add(batch, self._num_rows, needed)
        if len(self._held) > 2 * needed.size or self._held.nbytes > self._memory_bytes // 2:
            self._held.drop_others(needed)
        self._num_rows += batch.num_rows
        self._check_memory()

    def _check_memory(self) -> None:
        nbytes = self._query_nbytes + self._held.nbytes
        if nbytes > self._memory_bytes:
            raise ComputeError(
                f"nearest holds the queries and {self._given.k} rows for each, which take {nbytes / 2**20:.0f} MiB; "
                f"its part of memory_limit is {self._memory_bytes / 2**20:.0f} MiB. Select fewer columns, run the "
                "queries in parts, or raise memory_limit"
            )

    def _results(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the output, a few queries at a time."""
        if self._best is None:
            return
        found = self._best.positions
        queries, held = pa.Table.from_batches(self._query_batches), self._held.table()
        row_nbytes = queries.nbytes // max(queries.num_rows, 1) + held.nbytes // max(held.num_rows, 1) + 16
        step = max(1, piece_nbytes(OUTPUT_NBYTES) // (row_nbytes * self._relation.k))
        for start in range(0, len(found), step):
            which, rank = np.nonzero(found[start : start + step] >= 0)
            positions = found[start + which, rank]
            yield self._output_batch(queries, self._query_rows[start + which], held, positions)

    def _output_batch(
        self, queries: pa.Table, query_rows: Numbers, held: pa.Table, positions: Numbers
    ) -> pa.RecordBatch:
        relation = self._relation
        rows = self._held.rows_of(positions)
        measures = measured(
            relation.metric,
            matrix_of(_taken(held, relation.on, rows), None, "")[0],
            matrix_of(_taken(queries, relation.query_on, query_rows), None, "")[0],
        )
        order = np.lexsort((positions, -measures if relation.metric == "dot" else measures, query_rows))
        rows, query_rows, measures = rows[order], query_rows[order], measures[order]
        rank = np.arange(len(order)) - np.searchsorted(query_rows, query_rows) + 1
        sides = ((held, rows), (queries, query_rows))
        columns = [_taken(sides[side][0], column, sides[side][1]) for side, column, _ in relation.columns]
        return pa.RecordBatch.from_arrays([*columns, measures, rank.astype(np.uint64)], schema=self._output)


class _HeldRows:
    """Rows of the stream that are among the best for a query."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._positions = np.empty(0, np.int64)  # of the rows of the batches, ascending
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, batch: pa.RecordBatch, first: int, needed: Numbers) -> None:
        """Keep the ``needed`` rows of a batch that starts at position ``first``."""
        new = np.unique(needed[needed >= first])
        if len(new) or not self._batches:
            self._batches.append(batch.take(arrow_array(new - first)))
            self.nbytes += self._batches[-1].nbytes
            self._positions = np.concatenate([self._positions, new])

    def drop_others(self, needed: Numbers) -> None:
        is_needed = np.isin(self._positions, needed)
        self._batches = self.table().filter(arrow_array(is_needed)).combine_chunks().to_batches()
        self._positions = self._positions[is_needed]
        self.nbytes = sum(batch.nbytes for batch in self._batches)

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches)

    def rows_of(self, positions: Numbers) -> Numbers:
        """Return the numbers of the rows in ``table`` by their positions in the stream."""
        return np.searchsorted(self._positions, positions)


def _taken(table: pa.Table, column: str, rows: Numbers) -> pa.Array:
    return table[column].take(arrow_array(rows)).combine_chunks()


def measured(metric: Metric, vectors: Numbers, queries: Numbers) -> Numbers:
    """Return the distance, or for ``dot`` the product, of each pair of rows, in float64.

    >>> measured("euclidean", np.array([[3.0, 0.0]]), np.array([[0.0, 4.0]]))
    array([5.])
    """
    vectors, queries = vectors.astype(np.float64), queries.astype(np.float64)
    if metric == "euclidean":
        return np.asarray(np.sqrt(np.square(vectors - queries).sum(axis=1)))
    products = np.asarray((vectors * queries).sum(axis=1))
    if metric == "dot":
        return products
    norms = np.sqrt(np.square(vectors).sum(axis=1) * np.square(queries).sum(axis=1))
    return np.asarray(np.maximum(1 - products / norms, 0.0))  # a cosine of 1 can be rounded up
