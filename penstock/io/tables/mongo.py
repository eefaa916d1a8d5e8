"""MongoDB: the documents that a pipeline gives are rows; rows are written by way of a staging collection."""

from __future__ import annotations

import datetime
import decimal
import logging
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import (
    InvalidArgumentError,
    OutputExistsError,
    PathNotFoundError,
    ReadError,
    WriteError,
    load_extra,
)
from penstock.io.batches import rows_alone
from penstock.io.commit.output import new_run_id
from penstock.io.files import UNKNOWN
from penstock.io.modes import check_mode
from penstock.io.selection import Selection
from penstock.io.tables.libraries import store_errors
from penstock.io.tables.sql.database import secrets_of
from penstock.protocols import Condition, ReadRequest
from penstock.storage.urls import redacted
from penstock.types import DataType, Schema, Series, to_arrow_array

SAMPLE_DOCUMENTS = 1000  # determine the columns and their types
_OPERATORS = {"=": "$eq", "!=": "$ne", "<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte", "in": "$in"}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MongoCollection:
    """A collection of a server, opened where it is used; messages hide the credentials of ``uri``."""

    uri: str = field(repr=False)
    database: str
    name: str

    def __str__(self) -> str:
        return f"collection {self.database}.{self.name} of {redacted(self.uri)}"

    @contextmanager
    def opened(self, kind: type[ReadError] | type[WriteError]) -> Iterator[Any]:
        """Connect for the duration of the context and give the collection; errors name it."""
        pymongo = load_extra("pymongo", "mongo", "MongoDB")
        with self.errors(kind), pymongo.MongoClient(self.uri) as client:
            yield client[self.database].get_collection(self.name, _codec_options())

    def exists(self, kind: type[ReadError] | type[WriteError]) -> bool:
        with self.opened(kind) as collection:
            return self.name in collection.database.list_collection_names(filter={"name": self.name})

    def check_exists(self, kind: type[ReadError] | type[WriteError]) -> None:
        if not self.exists(kind):
            raise PathNotFoundError(f"There is no {self}.")

    def errors(self, kind: type[ReadError] | type[WriteError]) -> AbstractContextManager[None]:
        import bson.errors
        import pymongo.errors

        also = (pymongo.errors.PyMongoError, bson.errors.BSONError)
        return store_errors(str(self), kind, also=also, secrets=tuple(secrets_of(self.uri)))


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


@dataclass(frozen=True)
class MongoSink:
    """A ``Sink`` into one collection: documents go into the collection ``penstock_<run>`` of the same database.

    The commit renames it, which for ``overwrite`` drops the old collection in the same step. ``append`` merges it into
    an existing collection inside the server; a document whose ``_id`` exists there stops that.
    """

    target: MongoCollection
    mode: str
    run_id: str = field(default_factory=new_run_id)

    @property
    def name(self) -> str:
        return str(self.target)

    @property
    def staging(self) -> MongoCollection:
        return replace(self.target, name=f"penstock_{self.run_id}")

    def start(self) -> None:
        if self.mode == "create" and self.target.exists(WriteError):
            raise OutputExistsError(
                f"The {self.target} exists already; use mode='overwrite' to replace it or mode='append' to add to it."
            )
        with self.staging.opened(WriteError) as staging:
            staging.database.create_collection(staging.name)

    def open(self) -> MongoWriter:
        return MongoWriter(self.staging)

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table:
        is_merged = self.mode == "append" and self.target.exists(WriteError)
        with self.staging.opened(WriteError) as staging:
            if is_merged:
                list(staging.aggregate([{"$merge": {"into": self.target.name, "whenMatched": "fail"}}]))
                staging.drop()
            else:
                staging.rename(self.target.name, dropTarget=self.mode == "overwrite")
        rows = sum(record["rows"] for record in records)
        return pa.table({"collection": [self.target.name], "rows": pa.array([rows], pa.int64())})

    def abort(self) -> None:
        try:
            with self.staging.opened(WriteError) as staging:
                staging.drop()
        except WriteError as exc:
            logger.warning("The %s is left behind: %s", self.staging, exc)

    def discard(self, run_id: str) -> None:
        replace(self, run_id=run_id).abort()


class MongoWriter:
    """Inserts the rows of batches as documents; connects when the first rows come."""

    def __init__(self, staging: MongoCollection) -> None:
        self._staging = staging
        self._resources = ExitStack()
        self._collection: Any = None
        self._num_rows = 0

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
        if batch.num_rows:
            columns = [Series(column).to_pylist() for column in batch.columns]
            documents = [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
            with self._staging.errors(WriteError):
                if self._collection is None:
                    self._collection = self._resources.enter_context(self._staging.opened(WriteError))
                self._insert(documents)
            self._num_rows += batch.num_rows
        return []

    def finish(self) -> Iterable[dict[str, Any]]:
        return [{"rows": self._num_rows}]

    def close(self) -> None:
        self._resources.close()

    def _insert(self, documents: list[dict[str, Any]]) -> None:
        from pymongo.errors import BulkWriteError

        try:
            self._collection.insert_many(documents, ordered=False)
        except BulkWriteError as exc:  # its message holds the documents
            first = (exc.details or {}).get("writeErrors", [{}])[0]
            raise WriteError(
                f"Cannot write the {self._staging}: {first.get('errmsg') or 'the server refused documents'}"
            ) from None


def _codec_options() -> Any:
    """Return how BSON becomes Python values that Arrow has a type for, and back."""
    from bson import Decimal128, Int64, ObjectId, Regex, Timestamp
    from bson.codec_options import CodecOptions, TypeDecoder, TypeRegistry

    transforms = {ObjectId: str, Decimal128: str, Int64: int, Regex: lambda each: each.pattern,
                  Timestamp: lambda each: each.as_datetime().replace(tzinfo=None)}  # fmt: skip

    def decoder(kind: type, transform: Any) -> Any:
        members = {"bson_type": kind, "transform_bson": lambda self, value: transform(value)}
        return type(f"{kind.__name__}Decoder", (TypeDecoder,), members)()

    decoders = [decoder(kind, transform) for kind, transform in transforms.items()]
    return CodecOptions(type_registry=TypeRegistry(decoders, fallback_encoder=_encodable))


def _encodable(value: Any) -> Any:
    """Return a value that BSON has a type for."""
    from bson import Decimal128

    match value:
        case decimal.Decimal():
            return Decimal128(value)
        case datetime.date():
            return datetime.datetime.combine(value, datetime.time())
        case datetime.time() | datetime.timedelta():
            return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ValueError(f"MongoDB has no type for {textwrap.shorten(repr(value), 60)}, a value of {type(value).__name__}.")


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
    return MongoSource(_collection(uri, database, collection), stages, hints)


def mongo_sink(uri: str, database: str, collection: str, *, mode: str) -> MongoSink:
    """Return the sink for the user's arguments."""
    check_mode(mode)
    return MongoSink(_collection(uri, database, collection), mode)


def _collection(uri: Any, database: str, name: str) -> MongoCollection:
    if not isinstance(uri, str) or not uri.startswith(("mongodb://", "mongodb+srv://")):
        raise InvalidArgumentError(
            f"uri must start with 'mongodb://' or 'mongodb+srv://', such as 'mongodb://user:password@host'; "
            f"got {'text' if isinstance(uri, str) else repr(type(uri))}."
        )
    return MongoCollection(uri, database, name)
