"""Write rows as documents of a collection, by way of a staging collection."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.errors import OutputExistsError, WriteError, check_choice
from penstock.io.commit.output import WRITE_MODES, new_run_id
from penstock.io.tables.mongo.collection import MongoCollection
from penstock.storage.urls import short_path
from penstock.types import Series

logger = logging.getLogger(__name__)


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
    def short_name(self) -> str:
        return short_path(self.target.name)

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
            else:
                staging.rename(self.target.name, dropTarget=self.mode == "overwrite")
        if is_merged:
            self.abort()  # the rows are committed: a failure to remove the staged ones is not an error
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


def mongo_sink(uri: str, database: str, collection: str, *, mode: str) -> MongoSink:
    """Return the sink for the user's arguments."""
    check_choice("mode", mode, WRITE_MODES)
    return MongoSink(MongoCollection.at(uri, database, collection), mode)
