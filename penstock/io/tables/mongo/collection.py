"""A collection of MongoDB: connected to where it is used, with values of BSON as Arrow can hold them."""

from __future__ import annotations

import datetime
import decimal
import textwrap
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InvalidArgumentError, PathNotFoundError, ReadError, WriteError, load_extra
from penstock.io.tables.libraries import store_errors
from penstock.io.tables.sql.database import check_credentials, label_of, secrets_of


@dataclass(frozen=True)
class MongoCollection:
    """A collection of a server, opened where it is used; messages hide the credentials of ``uri``."""

    uri: str = field(repr=False)
    database: str
    name: str

    @classmethod
    def at(cls, uri: Any, database: str, name: str) -> MongoCollection:
        """Return the collection for the user's arguments."""
        if not isinstance(uri, str) or not uri.startswith(("mongodb://", "mongodb+srv://")):
            raise InvalidArgumentError(
                f"uri must start with 'mongodb://' or 'mongodb+srv://', such as 'mongodb://user:password@host'; "
                f"got {'text' if isinstance(uri, str) else repr(type(uri))}."
            )
        check_credentials("uri", uri)
        return cls(uri, database, name)

    def __str__(self) -> str:
        return f"collection {self.database}.{self.name} of {label_of(self.uri)}"

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

        also = (pymongo.errors.PyMongoError, bson.errors.BSONError, ArithmeticError)  # a decimal of more than 34 digits
        return store_errors(str(self), kind, also=also, secrets=tuple(secrets_of(self.uri)))


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
