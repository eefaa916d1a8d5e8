"""The handler of a relation: it feeds DuckDB and hands on the result as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.config import get_config
from penstock.contracts import EndOfInput
from penstock.errors import InvalidArgumentError
from penstock.plan.relations import (
    Aggregate,
    DeferredRelation,
    FileAggregate,
    Join,
    SetOperation,
    SqlQuery,
    TableRelation,
)
from penstock.plan.similarity import Nearest
from penstock.plan.stages import SIDE, RunRelation
from penstock.relational.arrow import from_duckdb, to_duckdb
from penstock.relational.sql import input_name, to_sql
from penstock.relational.stream import QueryStream
from penstock.relational.temporary_duckdb import TemporaryDatabase
from penstock.relational.typed_input import TypedInput
from penstock.types import DataType, Field, Schema


class RelationHandler:
    """Runs one relation. DuckDB pulls the inputs of a join as they come; for other relations, all inputs but the first
    are stored."""

    def __init__(self, relation: TableRelation | DeferredRelation, work: RunRelation) -> None:
        self._relation = relation
        self._inputs = [TypedInput(str(relation), schema) for schema in work.schemas]
        paths = relation.paths if isinstance(relation, FileAggregate) else ()
        self._database = TemporaryDatabase(
            work.memory_bytes,
            get_config().thread_count,
            paths,
            is_locked=isinstance(relation, SqlQuery | DeferredRelation),
        )
        self._sides = self._streamed_sides()
        self._stored: set[int] = set()  # the inputs that have a table
        self._output: pa.Schema | None = None
        self._stream: QueryStream | None = None
        self._is_interrupted = False

    def process(self, item: Any, first_row: int) -> Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            return self._ended()
        return self._taken(int(item.schema.metadata[SIDE.encode()]), item)

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
        for each in self._inputs:
            each.close()

    def _streamed_sides(self) -> Sequence[int]:
        """Return the inputs that DuckDB pulls, in the order in which they come."""
        if isinstance(self._relation, SqlQuery | DeferredRelation) and not self._relation.is_streamed:
            return ()
        if isinstance(self._relation, Join) and all(each.schema is not None for each in self._inputs):
            return (1, 0)  # DuckDB takes all rows of the right side before it asks for the left one
        return (0,)

    def _taken(self, side: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield from self._sides_ended(after=side)
        for rows in self._inputs[side].add(batch):
            yield from self._pushed(side, rows)

    def _sides_ended(self, after: int) -> Iterator[pa.RecordBatch]:
        """End the inputs with higher numbers, which come before this one, and take their waiting rows."""
        for side in reversed(range(after + 1, len(self._inputs))):
            for rows in self._inputs[side].end():
                yield from self._pushed(side, rows)

    def _pushed(self, side: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if side not in self._sides:
            self._store(side, to_duckdb(rows))
            return
        if (stream := self._started()) is not None:
            yield from self._outputs(stream.push(side, to_duckdb(rows)))

    def _started(self) -> QueryStream | None:
        """Return the running query; None if an input has neither rows nor known columns, so that nothing comes out."""
        if self._stream is None:
            found = self._schemas()
            if found is None:
                return None
            relation, schemas = found
            empty = [to_duckdb(no_rows(schema.to_arrow())) for schema in schemas]
            for side, rows in enumerate(empty):
                if side not in self._sides and side not in self._stored:
                    self._store(side, rows)
            self._output = relation.schema(*schemas).to_arrow()
            sql = to_sql(relation, *schemas)
            if isinstance(relation, SqlQuery):
                self._database.set_timezone(relation.timezone)

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

    def _schemas(self) -> tuple[TableRelation, list[Schema]] | None:
        """Return the relation, and the columns of its inputs."""
        known = [each.schema for each in self._inputs]
        schemas = [schema or columns_without_rows(self._relation, side, known) for side, schema in enumerate(known)]
        found = [schema for schema in schemas if schema is not None]
        if len(found) < len(schemas):
            return None
        if not isinstance(self._relation, DeferredRelation):
            return self._relation, found
        try:
            made = self._relation.maker.made(*found)
        except InvalidArgumentError:
            if None not in known:
                raise
            return None  # SQL with a function that does not take a column without a type
        assert not isinstance(made, Nearest)
        return made, found

    def _store(self, side: int, batch: pa.RecordBatch) -> None:
        with self._database.naming_errors(str(self._relation)):
            self._database.add_rows(input_name(self._relation, side), batch)
        self._stored.add(side)

    def _ended(self) -> Iterator[pa.RecordBatch]:
        yield from self._sides_ended(after=-1)
        if (stream := self._started()) is not None:
            yield from self._outputs(stream.end())
            assert self._output is not None
            yield no_rows(self._output)

    def _outputs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert self._output is not None
        with self._database.naming_errors(str(self._relation)):
            for batch in batches:
                yield from_duckdb(batch, self._output)


def columns_without_rows(
    relation: TableRelation | DeferredRelation, side: int, known: Sequence[Schema | None]
) -> Schema | None:
    """Return columns for an input whose columns are unknown, because no row reached the function that makes them.

    None: the result has no rows, and its columns are unknown too.
    """
    match relation:
        case SetOperation():
            return known[1 - side]
        case Aggregate((), columns):  # one row, which counts nothing
            names = tuple(dict.fromkeys(name for column in columns for name in column.inputs))
        case DeferredRelation(maker) if len(known) == 1 or any(known):
            names = maker.columns_read(side)
        case _:
            return None
    if not names:  # as for a cross join, which has no keys
        return None
    return Schema([Field(name, DataType.null()) for name in names])


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return an empty batch, which ends a result: a result without rows still has columns."""
    # nulls() rather than from_pylist(), which imports pandas
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
