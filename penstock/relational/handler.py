"""The handler of a relation: it feeds DuckDB and hands on the result as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.config import get_config
from penstock.errors import ComputeError, PenstockError, TypeMismatchError
from penstock.plan.relations import GroupRows, SqlQuery, TableRelation
from penstock.plan.stages import SIDE, RunRelation
from penstock.protocols import EndOfInput
from penstock.relational.arrow import duckdb_type, from_duckdb, to_duckdb
from penstock.relational.database import TemporaryDatabase
from penstock.relational.groups import whole_groups
from penstock.relational.sql import input_name, to_sql
from penstock.relational.stream import QueryStream
from penstock.types import DataType, Schema
from penstock.types.cast import cast


class RelationHandler:
    """Runs one relation. All inputs but the first are stored before it streams through."""

    def __init__(self, relation: TableRelation, work: RunRelation) -> None:
        self._relation = relation
        self._schemas = list(work.schemas)
        self._database = TemporaryDatabase(work.memory_bytes, get_config().thread_count)
        self._is_streamed = not isinstance(relation, SqlQuery) or relation.is_streamed
        self._stored: set[int] = set()  # the inputs that have a table
        self._output: pa.Schema | None = None
        self._stream: QueryStream | None = None

    def process(self, item: Any, first_row: int) -> Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            return self._ended()
        side = int(item.schema.metadata[SIDE.encode()])
        schema = self._schemas[side]
        if schema is None:
            schema = self._schemas[side] = Schema.from_arrow(item.schema)
        batch = to_duckdb(self._with_types(item, schema.to_arrow()))
        if side or not self._is_streamed:
            self._store(side, batch)
            return iter(())
        return self._outputs(self._started().push(batch))

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def interrupt(self, *, is_busy: bool) -> None:
        if self._stream is not None:
            self._stream.stop()
        self._database.interrupt()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.stop()
            self._database.interrupt()
            self._stream.join()
        self._database.close()

    def _with_types(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return a batch with the types of the first one; a function may give other types in each batch."""
        if batch.schema.types == schema.types and batch.schema.names == schema.names:
            return batch
        if set(batch.schema.names) != set(schema.names):
            raise TypeMismatchError(
                f"{self._relation}: the first rows have the columns {', '.join(schema.names)}, later ones "
                f"{', '.join(batch.schema.names)}; a function must return the same columns for all rows"
            )
        what = f"{self._relation}: a function gave several types for column"
        arrays = [cast(batch.column(f.name), DataType(f.type), what=f"{what} {f.name!r}") for f in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _started(self) -> QueryStream:
        if self._stream is None:
            schemas = [schema for schema in self._schemas if schema is not None]
            for side in range(1 if self._is_streamed else 0, len(schemas)):
                if side not in self._stored:
                    self._store(side, _empty(schemas[side]))
            self._output = self._relation.schema(*schemas).to_arrow()
            sql = to_sql(self._relation, *schemas)
            streamed = (input_name(self._relation, 0), _empty(schemas[0]).schema) if self._is_streamed else None
            self._stream = QueryStream(lambda batches: self._database.query(sql, streamed, batches))
        return self._stream

    def _store(self, side: int, batch: pa.RecordBatch) -> None:
        self._database.add_rows(input_name(self._relation, side), batch)
        self._stored.add(side)

    def _ended(self) -> Iterator[pa.RecordBatch]:
        if any(schema is None for schema in self._schemas):
            return  # an input of unknown columns had no rows
        yield from self._outputs(self._started().end())
        assert self._output is not None
        # Without rows, the columns alone go on.
        yield pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in self._output], schema=self._output)

    def _outputs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert self._output is not None
        try:
            if isinstance(self._relation, GroupRows):
                yield from whole_groups(batches, self._relation.keys, self._output)
                return
            for batch in batches:
                yield from_duckdb(batch, self._output)
        except PenstockError:
            raise
        except Exception as exc:
            raise ComputeError(f"{self._relation}: {exc}") from exc


def _empty(schema: Schema) -> pa.RecordBatch:
    fields = [(field.name, duckdb_type(field.type)) for field in schema.to_arrow()]
    return pa.RecordBatch.from_pylist([], schema=pa.schema(fields))
