"""The handler of a relation: it feeds DuckDB and hands on the result as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.config import get_config
from penstock.engine.protocols import EndOfInput
from penstock.errors import TypeMismatchError
from penstock.plan.relations import Join, Relation, SqlQuery, TableRelation
from penstock.plan.stages import SIDE, RunRelation
from penstock.relational.arrow import from_duckdb, to_duckdb
from penstock.relational.database import TemporaryDatabase
from penstock.relational.sql import input_name, to_sql
from penstock.relational.stream import QueryStream
from penstock.types import DataType, Schema
from penstock.types.cast import cast


class RelationHandler:
    """Runs one relation. DuckDB pulls the inputs of a join as they come; of others, all but the first are stored."""

    def __init__(self, relation: TableRelation, work: RunRelation) -> None:
        self._relation = relation
        self._schemas = list(work.schemas)
        self._database = TemporaryDatabase(work.memory_bytes, get_config().thread_count)
        self._sides = self._streamed_sides()
        self._stored: set[int] = set()  # the inputs that have a table
        self._output: pa.Schema | None = None
        self._stream: QueryStream | None = None
        self._is_interrupted = False

    def process(self, item: Any, first_row: int) -> Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            return self._ended()
        side = int(item.schema.metadata[SIDE.encode()])
        schema = self._schemas[side]
        if schema is None:
            schema = self._schemas[side] = Schema.from_arrow(item.schema)
        batch = to_duckdb(with_types(self._relation, item, schema.to_arrow()))
        if side in self._sides:
            return self._outputs(self._started().push(side, batch))
        self._store(side, batch)
        return iter(())

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def interrupt(self, *, is_busy: bool) -> None:
        self._is_interrupted = True
        if self._stream is not None:
            self._stream.stop()
        self._database.interrupt()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.stop()
            while not self._stream.has_ended(within_s=0.05):
                self._database.interrupt()  # an interrupt before the query starts has no effect
        self._database.close()

    def _streamed_sides(self) -> Sequence[int]:
        """Return the inputs that DuckDB pulls, in the order in which they come."""
        if isinstance(self._relation, SqlQuery) and not self._relation.is_streamed:
            return ()
        if isinstance(self._relation, Join) and None not in self._schemas:
            return (1, 0)  # DuckDB takes all rows of the right side before it asks for the left one
        return (0,)

    def _started(self) -> QueryStream:
        if self._stream is None:
            schemas = [schema for schema in self._schemas if schema is not None]
            empty = [to_duckdb(no_rows(schema.to_arrow())) for schema in schemas]
            for side, rows in enumerate(empty):
                if side not in self._sides and side not in self._stored:
                    self._store(side, rows)
            self._output = self._relation.schema(*schemas).to_arrow()
            sql = to_sql(self._relation, *schemas)

            def start(inputs: Mapping[int, Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
                readers = {
                    input_name(self._relation, side): pa.RecordBatchReader.from_batches(empty[side].schema, batches)
                    for side, batches in inputs.items()
                }
                return self._database.query(sql, readers)

            self._stream = QueryStream(start, self._sides)
            if self._is_interrupted:
                self._stream.stop()
        return self._stream

    def _store(self, side: int, batch: pa.RecordBatch) -> None:
        with self._database.naming_errors(str(self._relation)):
            self._database.add_rows(input_name(self._relation, side), batch)
        self._stored.add(side)

    def _ended(self) -> Iterator[pa.RecordBatch]:
        if any(schema is None for schema in self._schemas):
            return  # an input of unknown columns had no rows
        yield from self._outputs(self._started().end())
        assert self._output is not None
        yield no_rows(self._output)

    def _outputs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert self._output is not None
        with self._database.naming_errors(str(self._relation)):
            for batch in batches:
                yield from_duckdb(batch, self._output)


def with_types(relation: Relation, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the types of the first one; a function may give other types in each batch."""
    if batch.schema.types == schema.types and batch.schema.names == schema.names:
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    if set(batch.schema.names) != set(schema.names):
        raise TypeMismatchError(
            f"{relation}: the first rows have the columns {', '.join(schema.names)}, later ones "
            f"{', '.join(batch.schema.names)}; a function must return the same columns for all rows"
        )
    what = f"{relation}: a function gave several types for column"
    arrays = [cast(batch.column(f.name), DataType(f.type), what=f"{what} {f.name!r}") for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return an empty batch, which ends a result: a result without rows still has columns."""
    # nulls() rather than from_pylist(), which imports pandas
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
