"""A source and a sink as users write them: plain classes with the methods of the protocols, nothing to inherit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ReadError, WriteError
from penstock.protocols import ReadRequest, Sink, Source
from tests.io.helpers import read_rows, write_all


@dataclass
class TableRows:
    """A part of a database table that one worker reads."""

    path: str
    query: str
    num_rows: int | None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        # One thread may begin to read and another go on, never both at once.
        connection = sqlite3.connect(self.path, check_same_thread=False)
        try:
            cursor = connection.execute(self.query)
            names = [column[0] for column in cursor.description]
            while rows := cursor.fetchmany(1000):
                yield pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
        finally:
            connection.close()


class SqliteSource:
    """Reads a table in pieces of ``rows_per_task``."""

    can_filter = False

    def __init__(self, path: str, table: str, rows_per_task: int = 2) -> None:
        self.name = f"sqlite({table})"
        self.path, self.table, self.rows_per_task = path, table, rows_per_task

    def schema(self) -> ps.Schema:
        return ps.Schema.from_pydict({"id": "int64", "word": "string"})

    def read_tasks(self, request: ReadRequest) -> Iterator[TableRows]:
        columns = ", ".join(self.schema().names if request.columns is None else request.columns)
        connection = sqlite3.connect(self.path)
        [count] = connection.execute(f"select count(*) from {self.table}").fetchone()
        connection.close()
        for offset in range(0, count, self.rows_per_task):
            rows = min(self.rows_per_task, count - offset)
            query = f"select {columns} from {self.table} order by id limit {rows} offset {offset}"
            yield TableRows(self.path, query, rows)


@dataclass
class SqliteWriter:
    """Keeps its rows and hands them over as records: the sink stores them in one transaction."""

    rows: list[dict[str, Any]]

    def write(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
        self.rows.extend(batch.to_pylist())
        return []

    def finish(self) -> Iterable[dict[str, Any]]:
        return self.rows

    def close(self) -> None:
        pass


@dataclass
class SqliteSink:
    """Writes to a new table, in one transaction."""

    path: str
    table: str

    def start(self) -> None:
        pass

    def open(self) -> SqliteWriter:
        return SqliteWriter([])

    def commit(self, records: Sequence[dict[str, Any]]) -> pa.Table:
        with sqlite3.connect(self.path) as connection:
            connection.execute(f"create table {self.table} (id integer, word text)")
            connection.executemany(f"insert into {self.table} values (:id, :word)", records)
        connection.close()
        return pa.table({"table": [self.table], "rows": [len(records)]})

    def abort(self) -> None:
        pass


ROWS = [{"id": number, "word": f"word {number}"} for number in range(5)]


def test_sources_and_sinks_of_your_own(tmp_path: Path) -> None:
    sink, source = SqliteSink(str(tmp_path / "db"), "words"), SqliteSource(str(tmp_path / "db"), "words")
    assert isinstance(sink, Sink)
    assert isinstance(source, Source)
    assert write_all(sink, pa.RecordBatch.from_pylist(ROWS)).to_pylist() == [{"table": "words", "rows": 5}]
    assert read_rows(source) == ROWS
    assert read_rows(source, columns=("word",)) == [{"word": row["word"]} for row in ROWS]


def test_sources_and_sinks_of_your_own_in_a_query(tmp_path: Path) -> None:
    written = ps.from_pylist(ROWS).write_sink(SqliteSink(str(tmp_path / "db"), "words"))
    assert written.to_pydict() == {"table": ["words"], "rows": [5]}
    words = ps.read_source(SqliteSource(str(tmp_path / "db"), "words"))
    assert words.where(ps.col("id") > 2).to_pydict() == {"id": [3, 4], "word": ["word 3", "word 4"]}


@dataclass
class Given:
    """A source of one task that gives just this."""

    given: Any
    name: str = "given"
    can_filter: bool = False
    num_rows: int | None = None
    nbytes: int | None = None

    def schema(self) -> ps.Schema:
        return ps.Schema.from_pydict({"a": "int64"})

    def read_tasks(self, request: ReadRequest) -> Iterator[Given]:
        yield self

    def read(self) -> Any:
        return self.given


def test_tables_are_batches_too() -> None:
    table = pa.concat_tables([pa.table({"a": [1]}), pa.table({"a": [2]})])
    for given in ([table], iter([table]), [*table.to_batches()]):
        assert ps.read_source(Given(given)).to_pydict() == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"a": [1]}], "yielded builtins.dict"),
        ([pa.record_batch({"a": [1]}), None], "yielded builtins.NoneType"),
        (pa.record_batch({"a": [1]}), "returned pyarrow.lib.RecordBatch"),
        (None, "returned builtins.NoneType"),
    ],
)
def test_a_task_must_yield_batches(given: Any, message: str) -> None:
    with pytest.raises(
        ReadError, match=rf"Source 'given': read\(\) of a task {message}; it must yield pyarrow.RecordBatch"
    ):
        ps.read_source(Given(given)).collect()


@dataclass
class Told:
    """A sink, and its writer, that returns given values and records its end."""

    written: Any = None
    finished: Any = None
    shown: Any = None
    ends: list[str] = field(default_factory=list)
    name: str = "scripted"

    def start(self) -> None:
        pass

    def open(self) -> Told:
        return self

    def write(self, batch: pa.RecordBatch) -> Any:
        return self.written

    def finish(self) -> Any:
        return self.finished

    def close(self) -> None:
        pass

    def commit(self, records: Sequence[dict[str, Any]]) -> Any:
        self.ends.append(f"commit {list(records)}")
        return self.shown

    def abort(self) -> None:
        self.ends.append("abort")


def test_a_sink_need_not_return_anything() -> None:
    sink = Told()
    written = ps.range(3).write_sink(sink)
    assert (written.to_pydict(), written.count_rows(), sink.ends) == ({}, 0, ["commit []"])
    assert ps.range(3).write_sink(Told(shown=pa.record_batch({"n": [1]}))).to_pydict() == {"n": [1]}


def test_a_sink_that_returns_something_else_is_named() -> None:
    for sink in (Told(written={"n": 1}), Told(finished=3)):
        with pytest.raises(
            WriteError, match=r"Sink 'scripted': (write|finish)\(\) of its writer returned .* a list of records"
        ):
            ps.range(3).write_sink(sink)
        assert sink.ends == ["abort"]
    sink = Told(shown=5)
    with pytest.raises(
        WriteError, match=r"'scripted' has committed all rows, but its commit\(\) returned 5; it must return"
    ):
        ps.range(3).write_sink(sink)
    assert sink.ends == ["commit []"]  # and no abort: what is committed stays
