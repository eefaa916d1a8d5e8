"""Read the documents that a pipeline makes of a collection; each is a row."""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import InvalidArgumentError, ReadError
from penstock.io.batches import rows_alone
from penstock.io.files import UNKNOWN
from penstock.io.selection import Selection
from penstock.io.tables.mongo.collection import MongoCollection
from penstock.protocols import Condition, ReadRequest
from penstock.storage.urls import short_path
from penstock.types import DataType, Schema, to_arrow_array

SAMPLE_DOCUMENTS = 1000  # determine the columns and their types
_OPERATORS = {"=": "$eq", "!=": "$ne", "<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte", "in": "$in"}


@dataclass(eq=False)
class MongoTask:
    """One pipeline, read in the batches that the server sends, of at most 16 MB."""

    collection: MongoCollection
    pipeline: list[dict[str, Any]]
    selection: Selection
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        yield from self.selection.apply(self._batches(), f"the {self.collection}")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        import bson

        with self.collection.opened(ReadError) as collection:
            for content in collection.aggregate_raw_batches(self.pipeline):
                documents = bson.decode_all(content, collection.codec_options)
                if not self.selection.schema.names:
                    yield rows_alone(len(documents))
                elif documents:
                    columns = [self._column(documents, each) for each in self.selection.schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=self.selection.schema)

    def _column(self, documents: list[dict[str, Any]], column: pa.Field) -> pa.Array:
        values = [document.get(column.name) for document in documents]
        if pt.is_decimal(column.type):
            values = [None if value is None else decimal.Decimal(str(value)) for value in values]
        try:
            return to_arrow_array(values, DataType(column.type), what=f"field {column.name!r}")
        except (ValueError, TypeError) as exc:
            raise ReadError(
                f"Cannot read the {self.collection}: {_sentence(exc)} The first {SAMPLE_DOCUMENTS} documents determine "
                f"the types, unless schema= gives others; {_conversion(column.name)}"
            ) from exc


@dataclass(eq=False)
class MongoSource:
    """A ``Source`` over the documents that a pipeline gives; their first ones determine the columns."""

    collection: MongoCollection
    pipeline: Sequence[dict[str, Any]] = ()
    hints: Mapping[str, pa.DataType] = field(default_factory=dict)
    can_filter: bool = True

    def __post_init__(self) -> None:
        self.name = f"read_mongo({self.collection})"
        self.short_name = short_path(self.collection.name)
        self.collection.check_exists(ReadError)
        self._inferred = {} if self.hints else self._sampled()
        self._schema = Schema.from_pydict(dict(self.hints) or self._inferred)

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return {str(self.collection): UNKNOWN}

    def options(self) -> Mapping[str, Any]:
        return {"pipeline": repr(self.pipeline), "schema": {name: str(dtype) for name, dtype in self.hints.items()}}

    def read_tasks(self, request: ReadRequest) -> Iterator[MongoTask]:
        selection = Selection.of(request, self._schema)
        stages: list[dict[str, Any]] = [{"$match": match} for match in map(self._match, request.conditions) if match]
        # Without any column the documents are counted by their ids.
        names = selection.schema.names or ["_id"]
        if all(name and "." not in name and name[0] != "$" for name in names):
            stages.append({"$project": {"_id": 0} | dict.fromkeys(names, 1)})
        if request.limit is not None and request.predicate is None:
            stages.append({"$limit": request.limit})
        yield MongoTask(self.collection, [*self.pipeline, *stages], selection)

    def _match(self, condition: Condition) -> dict[str, Any] | None:
        """Return a condition for the server, or None where it may compare other values than we do."""
        dtype, value = self._inferred.get(condition.column), condition.value
        if dtype is None or not pt.is_primitive(dtype) or condition.operator not in _OPERATORS:
            return None
        given = list(value) if condition.operator == "in" else value
        return {condition.column: {_OPERATORS[condition.operator]: given}}

    def _sampled(self) -> dict[str, pa.DataType]:
        with self.collection.opened(ReadError) as collection:
            documents = list(collection.aggregate([*self.pipeline, {"$limit": SAMPLE_DOCUMENTS}]))
        names = dict.fromkeys(name for document in documents for name in document)
        return {name: self._type_of(name, [document.get(name) for document in documents]) for name in names}

    def _type_of(self, name: str, values: list[Any]) -> pa.DataType:
        try:
            dtype = to_arrow_array(values, None, what=f"field {name!r}").type
        except (ValueError, TypeError) as exc:
            raise ReadError(
                f"Cannot read the {self.collection}: {_sentence(exc)} Give schema= with the fields to read, or "
                f"{_conversion(name)}"
            ) from exc
        return pa.timestamp("ms") if pt.is_timestamp(dtype) else dtype


def _sentence(error: Exception) -> str:
    return f"{str(error).rstrip('.')}."


def _conversion(name: str) -> str:
    stage = {"$set": {name: {"$toString": f"${name}"}}}
    return f"convert the field in the pipeline, such as by {stage}."


def mongo_source(
    uri: str, database: str, collection: str, *, pipeline: Any = None, schema: Mapping[str, Any] | None = None
) -> MongoSource:
    """Return the source for the user's arguments."""
    stages = list(pipeline or ())
    if not all(isinstance(stage, Mapping) for stage in stages):
        raise InvalidArgumentError(f"pipeline={pipeline!r} must be a list of stages, such as [{{'$match': {{...}}}}].")
    if writing := {"$out", "$merge"} & {name for stage in stages for name in stage}:
        raise InvalidArgumentError(
            f"pipeline has the stage {min(writing)!r}, which writes; use write_mongo() for that."
        )
    hints = {name: DataType.of(dtype).arrow for name, dtype in (schema or {}).items()}
    return MongoSource(MongoCollection.at(uri, database, collection), stages, hints)
