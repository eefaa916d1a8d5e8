"""The handler of a sort: it sorts runs, sets them aside in memory or in a file, and merges them block by block.

NumPy or DuckDB orders the keys alone. The rows stay in Arrow, so a sort takes rows of any width and type.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.config import get_config
from penstock.contracts import EndOfInput, check_not_cancelled
from penstock.plan.relations import GroupRows, Sort, SortKey
from penstock.plan.stages import RunRelation
from penstock.relational.arrow import to_duckdb
from penstock.relational.groups import whole_groups
from penstock.relational.handler import no_rows
from penstock.relational.number_order import order_of_numbers
from penstock.relational.spill import Place, SpilledBatches
from penstock.relational.sql import ordered
from penstock.relational.temporary_duckdb import BATCH_NBYTES, MIN_MEMORY_BYTES, TemporaryDatabase
from penstock.relational.typed_input import TypedInput
from penstock.types import Schema
from penstock.types.plain import arrow_numbers, numpy_values

RUNS_IN_MEMORY = 12  # a run that fills, its copy in order, a run that is kept, keys in DuckDB, and room for allocators
MAX_RUN_NBYTES = 2**30  # Arrow counts the bytes of a column with 31 bits
BLOCKS_PER_RUN = 128  # a merge holds one block of each run
KEY_NBYTES = 64  # for each row, while DuckDB sorts the keys
CHUNK_ROWS = 2**17  # bytes of keys, for each thread of DuckDB
DRAWN = SortKey("penstock.draw")  # the key of a sort without keys
FIRST_ROW = arrow_numbers(np.zeros(1, np.int64))

Order = npt.NDArray[np.int64]


class Block(NamedTuple):
    """A part of a sorted run: the key of the first row, and the place of the rows."""

    first: pa.RecordBatch
    rows: Place


class SortHandler:
    """Sorts rows, or makes groups of the sorted rows."""

    def __init__(self, relation: Sort | GroupRows, work: RunRelation, is_cancelled: Callable[[], bool]) -> None:
        self._relation = relation
        self._input = TypedInput(str(relation), work.schemas[0])
        self._is_checked = False
        self._is_cancelled = is_cancelled
        self._keys = _keys(relation)
        self._memory_bytes = work.memory_bytes
        self._database: TemporaryDatabase | None = None  # keys that are numbers need none
        self._run_nbytes = min(max(work.memory_bytes, MIN_MEMORY_BYTES) // RUNS_IN_MEMORY, MAX_RUN_NBYTES)
        self._spilled = SpilledBatches(str(relation), self._run_nbytes)
        self._run: list[pa.RecordBatch] = []
        self._nbytes_run = 0
        self._blocks: list[Block] = []

    def process(self, item: Any, first_row: int) -> Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            return self._ended()
        for batch in self._input.add(item):
            self._take(batch)
        return iter(())

    def interrupt(self, *, is_busy: bool) -> None:
        if self._database is not None:
            self._database.interrupt()

    def close(self) -> None:
        self._spilled.close()
        if self._database is not None:
            self._database.close()
        self._input.close()

    def _take(self, batch: pa.RecordBatch) -> None:
        if not self._is_checked:
            self._relation.schema(Schema.from_arrow(batch.schema))  # raises an error if a key cannot be compared
            self._is_checked = True
        self._run += [batch] if batch.num_rows else []
        self._nbytes_run += batch.nbytes + batch.num_rows * KEY_NBYTES
        if self._nbytes_run >= self._run_nbytes:
            self._end_run()

    def _ended(self) -> Iterator[pa.RecordBatch]:
        for batch in self._input.end():
            self._take(batch)
        schema = self._input.schema
        if schema is None:
            return  # an input of unknown columns had no rows
        output = self._relation.schema(schema).to_arrow()
        if self._blocks and self._run:
            self._end_run()
        rows = self._merged() if self._blocks else self._sorted_run(BATCH_NBYTES)
        if isinstance(self._relation, GroupRows):
            yield from whole_groups(rows, self._relation.keys, output)
        else:
            for batch in rows:
                yield batch.select(output.names)
        yield no_rows(output)

    def _end_run(self) -> None:
        """Sort the run and set it aside."""
        for rows in self._sorted_run(self._run_nbytes // BLOCKS_PER_RUN):
            first = self._keys_of(rows).take(FIRST_ROW)  # a copy, which does not keep the block
            self._blocks.append(Block(first, self._spilled.put(rows)))
        pa.default_memory_pool().release_unused()

    def _sorted_run(self, nbytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the run in order, in pieces of about ``nbytes``, and start another run."""
        if not self._run:
            return
        rows = pa.concat_batches(self._run)
        self._run, self._nbytes_run = [], 0
        if self._keys == (DRAWN,):
            rows = rows.append_column(DRAWN.column, arrow_numbers(np.random.default_rng().random(rows.num_rows)))
        yield from self._pieces(rows, self._order(self._keys_of(rows)), nbytes)

    def _merged(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order.

        Load blocks in the order of their first keys. Rows up to the first key of the next block are then final, because
        every later block starts there or after it. At most one block of each run remains.
        """
        order = self._order(pa.concat_batches([block.first for block in self._blocks]))
        blocks = deque(self._blocks[number] for number in order)
        self._blocks = []
        loaded: list[pa.RecordBatch] = []
        while blocks:
            nbytes = 0
            while blocks and nbytes < self._run_nbytes:
                loaded.append(self._spilled.get(blocks.popleft().rows))
                nbytes += loaded[-1].nbytes
            rows = pa.concat_batches(loaded)
            loaded = []
            next_key = [blocks[0].first] if blocks else []
            order = self._order(pa.concat_batches([self._keys_of(rows), *next_key]))
            num_final = int(np.argmax(order == rows.num_rows)) if next_key else rows.num_rows
            yield from self._pieces(rows, order[:num_final], BATCH_NBYTES)
            loaded.append(rows.take(arrow_numbers(order[num_final + 1 :])))
            del rows
            pa.default_memory_pool().release_unused()

    def _pieces(self, rows: pa.RecordBatch, order: Order, nbytes: int) -> Iterator[pa.RecordBatch]:
        """Yield rows in a given order, in pieces of about ``nbytes``."""
        num_rows = max(1, rows.num_rows * nbytes // max(rows.nbytes, 1))
        for start in range(0, len(order), num_rows):
            yield rows.take(arrow_numbers(order[start : start + num_rows]))

    def _keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.select([key.column for key in self._keys])

    def _order(self, keys: pa.RecordBatch) -> Order:
        """Return the row numbers in the order of the keys; rows with equal keys stay in their order."""
        check_not_cancelled(self._is_cancelled)
        columns = to_duckdb(keys).columns
        by_numbers = order_of_numbers(columns, [key.is_descending for key in self._keys])
        if by_numbers is not None:
            return by_numbers
        if self._database is None:
            self._database = TemporaryDatabase(self._memory_bytes, get_config().thread_count)
        names = [f"k{number}" for number in range(len(self._keys))]
        numbers = arrow_numbers(np.arange(keys.num_rows))
        table = pa.RecordBatch.from_arrays([*columns, numbers], names=[*names, "number"])
        chunks = [table.slice(start, CHUNK_ROWS) for start in range(0, table.num_rows, CHUNK_ROWS)]
        by = ordered(tuple(replace(key, column=name) for key, name in zip(self._keys, names, strict=True)))
        stream = pa.RecordBatchReader.from_batches(table.schema, chunks)
        with self._database.naming_errors(str(self._relation)):
            parts = list(self._database.query(f"select number from keys order by {by}, number", {"keys": stream}))
        order: Order = numpy_values(pa.concat_batches(parts).column(0))
        return order


def _keys(relation: Sort | GroupRows) -> tuple[SortKey, ...]:
    if isinstance(relation, GroupRows):
        return tuple(map(SortKey, (*relation.keys, relation.number)))
    return relation.keys or (DRAWN,)
