"""Databases: a real PostgreSQL through ADBC, and SQLite through SQLAlchemy."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import (
    ColumnNotFoundError,
    InvalidArgumentError,
    OutputExistsError,
    PathNotFoundError,
    ReadError,
    UdfError,
    WriteError,
)
from penstock.io.tables.sql.database_spec import Database, secrets_of
from penstock.io.tables.sql.driver import Session, TableName
from penstock.io.tables.sql.sink import SqlSink, sql_sink
from penstock.io.tables.sql.source import SqlSource, even_bounds, sql_source
from penstock.protocols import Condition, ReadRequest
from tests.explained import explained
from tests.io.tables.postgres import PASSWORD, running_server

Conn = str | Callable[[], Any]

ROWS = {
    "id": [1, 2, 3, None],
    "score": [1.5, 0.25, None, 2.5],
    "word": ["a", "it's", None, "back\\slash"],
    "raw": [b"\0x", None, b"", b"q"],
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_server() as url:
        yield url


def alchemy(path: Path) -> Callable[[], Any]:
    def connect() -> Any:
        import sqlalchemy

        return sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=sqlalchemy.pool.NullPool).connect()

    return connect


@pytest.fixture(params=["postgresql", "sqlite", "sqlalchemy"])
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Conn]:
    """Each way to a database, without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'test.db'}"
    elif request.param == "sqlalchemy":
        yield alchemy(tmp_path / "test.db")
    else:
        url = request.getfixturevalue("postgres")
        yield url
        execute(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")


def execute(url: str, *statements: str) -> None:
    import adbc_driver_postgresql.dbapi

    with adbc_driver_postgresql.dbapi.connect(url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


def tables(conn: Conn) -> list[str]:
    query = "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'"
    if callable(conn) or conn.startswith("sqlite"):
        query = "SELECT name FROM sqlite_master"
    names: list[str] = ps.read_sql(query, conn).to_pydict()["name"]
    return sorted(names)


def query_of(df: ps.DataFrame, source: SqlSource) -> str:
    """Return the query that the rows of ``df`` are read with."""
    from penstock.plan.lower import lower
    from penstock.plan.optimizer import optimize
    from penstock.plan.stages import Read

    [work] = [stage.work for stage in lower(optimize(df._plan), is_ordered=True) if isinstance(stage.work, Read)]
    [task] = source.read_tasks(work.request)
    return task.query


# --- both ways ---


def test_rows_come_back(conn: Conn) -> None:
    written = ps.from_pydict(ROWS).write_sql("words", conn)
    assert written.to_pydict() == {"table": ["words"], "rows": [4]}
    found = ps.read_sql("SELECT * FROM words", conn)
    assert found.schema == ps.from_pydict(ROWS).schema
    assert found.to_pydict() == ROWS
    assert tables(conn) == ["words"]


def test_columns_filters_and_limits_give_the_same_rows(conn: Conn) -> None:
    ps.from_pydict(ROWS).write_sql("words", conn)
    words = ps.read_sql("SELECT * FROM words;", conn)
    col = ps.col
    for predicate in (
        col("id") > 1,
        (col("score") <= 1.5) & col("word").not_null(),
        col("word") == "it's",
        col("word") == "back\\slash",
        col("word") > "b",
        col("word").is_in(["a", "it's"]),
        ~(col("id") == 2),
        col("raw").is_null(),
        (col("id") == 1) | (col("id") == 3),
    ):
        expected = ps.from_pydict(ROWS).where(predicate).select("score", "word").to_pydict()
        assert words.where(predicate).select("score", "word").to_pydict() == expected
    assert words.limit(2).to_pydict()["id"] == [1, 2]
    assert words.count_rows() == 4
    unpushed = ps.read_sql("SELECT * FROM words", conn, disable_pushdowns_to_sql=True)
    assert unpushed.where(col("id") > 1).select("word").limit(1).to_pydict() == {"word": ["it's"]}


def test_partitions_take_in_every_row_once(conn: Conn) -> None:
    ids = [*range(1000), None, None]
    ps.from_pydict({"id": ids}).write_sql("numbers", conn)
    source = sql_source("SELECT id FROM numbers", conn, partition_col="id", num_partitions=4)
    tasks = list(source.read_tasks(ReadRequest()))
    counts = [sum(batch.num_rows for batch in task.read()) for task in tasks]
    assert counts == [252, 250, 250, 250]
    found = ps.read_source(source).to_pydict()["id"]
    assert sorted(found, key=lambda value: (value is None, value)) == ids


@pytest.mark.parametrize(("mode", "expected"), [("append", [1, 2, 3]), ("overwrite", [3])])
def test_modes_of_writing(conn: Conn, mode: Any, expected: list[int]) -> None:
    ps.from_pydict({"a": [1, 2]}).write_sql("t", conn, mode=mode)  # the table need not exist
    with pytest.raises(OutputExistsError, match="Table 't' exists already"):
        ps.from_pydict({"a": [3]}).write_sql("t", conn)
    ps.from_pydict({"a": [3]}).write_sql("t", conn, mode=mode)
    assert ps.read_sql("SELECT a FROM t ORDER BY a", conn).to_pydict() == {"a": expected}
    assert tables(conn) == ["t"]


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "there"])
def test_a_sink_can_tell_whether_its_rows_were_added(conn: Conn, is_new: bool) -> None:
    batch = pa.record_batch({"a": [1, 2]})
    if not is_new:
        ps.from_pydict({"a": [0]}).write_sql("t", conn)
    target = sql_sink("t", conn, mode="append", schema=ps.Schema.from_arrow(batch.schema))
    sink = target.marked("run-1")
    sink.start()
    writer = sink.open()
    writer.write(batch)
    assert not target.has_committed("run-1")
    sink.commit(list(writer.finish()))
    assert target.has_committed("run-1")
    assert not target.has_committed("run-2")
    sink.abort()
    target.forget("run-1")
    assert not target.has_committed("run-1")
    assert ps.read_sql("SELECT a FROM t ORDER BY a", conn).to_pydict() == {"a": [1, 2] if is_new else [0, 1, 2]}
    assert tables(conn) == ["t"]


def test_a_write_that_fails_leaves_everything_as_it_was(conn: Conn) -> None:
    ps.from_pydict({"a": [1, 2]}).write_sql("t", conn)

    @ps.func
    def fails_late(value: int) -> int:
        if value == 4999:
            raise ValueError("no")
        return value

    for mode in ("append", "overwrite"):
        with pytest.raises(UdfError, match="no"):
            ps.range(5000).select(fails_late(ps.col("id")).alias("a")).write_sql("t", conn, mode=mode)  # type: ignore[arg-type]
        assert ps.read_sql("SELECT a FROM t", conn).to_pydict() == {"a": [1, 2]}
        assert tables(conn) == ["t"]


class FailsToCommit(SqlSink):
    def _statements(self, session: Session) -> list[str]:
        return [*super()._statements(session), "NO SUCH STATEMENT"]


def test_a_commit_that_fails_changes_nothing(conn: Conn) -> None:
    ps.from_pydict({"a": [1, 2]}).write_sql("t", conn)
    schema = ps.from_pydict({"a": [3]}).schema
    with pytest.raises(WriteError):
        ps.from_pydict({"a": [3]}).write_sink(FailsToCommit(Database.of(conn), TableName("t"), "overwrite", schema))
    assert ps.read_sql("SELECT a FROM t", conn).to_pydict() == {"a": [1, 2]}
    assert tables(conn) == ["t"]


def test_several_writers_fill_one_table(conn: Conn) -> None:
    ps.range(200_000).write_sql("numbers", conn)
    found = ps.read_sql("SELECT count(*) AS n, min(id) AS low, max(id) AS high FROM numbers", conn).to_pylist()
    assert found == [{"n": 200_000, "low": 0, "high": 199_999}]


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_a_sqlite_file_is_read_and_written_at_once(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "test.db"
    conn = f"sqlite:///{path}"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id INT, s TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", ((number, "x" * 200) for number in range(20_000)))
    found = ps.read_sql("SELECT * FROM t", conn)
    if mode != "append":
        found = found.with_column("n", ps.col("s").length())
    found.write_sql("t2" if mode == "create" else "t", conn, mode=mode)
    with sqlite3.connect(path) as connection:
        count = "SELECT count(*), count(DISTINCT id) FROM " + ("t2" if mode == "create" else "t")
        assert connection.execute(count).fetchone() == (40_000 if mode == "append" else 20_000, 20_000)
    assert os.listdir(tmp_path) == ["test.db"]


def test_sqlite_tables_have_the_types_of_their_columns(tmp_path: Path) -> None:
    conn = f"sqlite:///{tmp_path / 'test.db'}"
    ps.from_pydict({"a b": [1], "r": [1.5], "s": ["x"], "b": [b"x"]}).write_sql("main.t", conn)
    with sqlite3.connect(tmp_path / "test.db") as connection:
        found = [row[1:3] for row in connection.execute("PRAGMA table_info(t)")]
    assert found == [("a b", "BIGINT"), ("r", "FLOAT"), ("s", "TEXT"), ("b", "BLOB")]
    assert os.listdir(tmp_path) == ["test.db"]


def test_exact_numbers_in_sqlite(tmp_path: Path) -> None:
    url, price = f"sqlite:///{tmp_path / 'test.db'}", decimal.Decimal("12345678901234567.89")
    ps.from_pydict({"price": [price]}).write_sql("t", url)
    assert ps.read_sql("SELECT * FROM t", url, schema={"price": "decimal128(20, 2)"}).to_pydict() == {"price": [price]}
    with pytest.raises(WriteError, match="Writing table large"):
        ps.from_arrow(pa.table({"n": pa.array([2**63], pa.uint64())})).write_sql("large", url)


def test_nested_values_are_kept_as_json(conn: Conn) -> None:
    ps.from_pydict({"s": [{"a": [1, None]}, None]}).write_sql("t", conn)
    assert ps.read_sql("SELECT s FROM t", conn).to_pydict() == {"s": ['{"a":[1,null]}', None]}


def test_an_empty_result_has_columns(conn: Conn) -> None:
    ps.from_pydict(ROWS).where(ps.col("id") > 10).write_sql("words", conn)
    found = ps.read_sql("SELECT id, word FROM words", conn, schema={"word": "string"})
    assert found.to_pydict() == {"id": [], "word": []}


# --- mistakes, where they are made ---


def test_mistakes_are_reported_when_the_query_is_built(conn: Conn) -> None:
    ps.from_pydict({"a": [1], "b": ["x"]}).write_sql("t", conn)
    with pytest.raises(ReadError, match=r"The query 'SELECT \* FROM missing' in .* failed"):
        ps.read_sql("SELECT * FROM missing", conn)
    with pytest.raises(ColumnNotFoundError, match="available: a, b"):
        ps.read_sql("SELECT * FROM t", conn, partition_col="c")
    with pytest.raises(InvalidArgumentError, match="two columns 'a'"):
        ps.read_sql('SELECT a, b AS "a" FROM t', conn)
    with pytest.raises(InvalidArgumentError, match="must be a column of numbers, dates or timestamps"):
        ps.read_sql("SELECT * FROM t", conn, partition_col="b", num_partitions=2).collect()
    with pytest.raises(ColumnNotFoundError, match="'z' not found in table t"):
        ps.from_pydict({"z": [1]}).write_sql("t", conn, mode="append")


def test_arguments_are_checked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    for message, call in {
        "needs partition_col": lambda: ps.read_sql("SELECT 1", url, num_partitions=2),
        "must be a URL": lambda: ps.read_sql("SELECT 1", "x.db"),
        "in memory is visible only to the connection": lambda: ps.read_sql("SELECT 1", "sqlite:///:memory:"),
        "must be a query": lambda: ps.read_sql(" ", url),
        "needs schema": lambda: ps.read_sql("SELECT 1", url, infer_schema=False),
        "mode='replace' is not known": lambda: ps.range(1).write_sql("t", url, mode="replace"),  # type: ignore[arg-type]
        "must be 'table' or 'schema.table'": lambda: ps.range(1).write_sql("a.b.c", url),
        "must return a connection": lambda: ps.read_sql("SELECT 1", object),
        "has no option 'column'": lambda: ps.read_sql("SELECT 1", url, column="a"),  # type: ignore[call-arg]
    }.items():
        with pytest.raises(InvalidArgumentError, match=message):
            call()


# --- credentials ---


def test_credentials_are_never_shown(postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    df = ps.read_sql("SELECT 1 AS a", postgres)
    source = sql_source("SELECT 1 AS a", postgres)
    [task] = source.read_tasks(ReadRequest())
    texts = [repr(df), explained(df), repr(source), repr(task), source.name, str(df._plan), repr(df._plan)]
    wrong_port = postgres.replace("@/postgres", "@127.0.0.1:1/postgres").partition("?")[0]
    refused = postgres.replace(PASSWORD, "wr0ng-secret")
    for url in (wrong_port, refused, wrong_port.replace(":1/", ":port/"), f"nosuchdb://me:{PASSWORD}@host/db"):
        with pytest.raises(Exception, match=r"failed|nosuchdb") as caught:
            ps.read_sql("SELECT 1", url)
        texts += [str(error) for error in chain(caught.value)]
    with pytest.raises(WriteError) as caught_write:
        ps.range(1).write_sql("t", wrong_port)
    texts += [str(error) for error in chain(caught_write.value)] + list(capsys.readouterr())
    assert not [text for text in texts if PASSWORD in text or "wr0ng-secret" in text]
    assert "postgresql://***@" in explained(df)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__ if not error.__suppress_context__ else error.__cause__


def test_a_password_in_a_message_of_the_driver_is_hidden() -> None:
    def fail() -> None:
        raise OSError("cannot parse postgresql://me:p%40ss@host")

    database = Database.of("postgresql://me:p%40ss@host/db")
    shown = r"cannot parse postgresql://me:\*\*\*@host"
    with pytest.raises(ReadError, match=shown) as caught, database.errors(ReadError, "The query"):
        fail()
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "shown", "secrets"),
    [
        ("mysql://u:pw@h:1/d", "mysql://***@h:1/d", ["pw"]),
        ("mysql://h/d?user=u&Password=pw", "mysql://h/d?user=u&Password=***", ["pw"]),
        ("mysql://u:a@b:c@h/d", "mysql://***@h/d", ["a@b:c"]),
        ("sqlite:///a.db", "sqlite:///a.db", []),
    ],
)
def test_urls_without_secrets(url: str, shown: str, secrets: list[str]) -> None:
    assert Database.of(url).label == shown
    assert secrets_of(url) == secrets


# --- PostgreSQL ---


def test_types_of_postgresql(postgres: str) -> None:
    query = """SELECT 1::int2 AS small, 2::int4 AS whole, 1.5::float4 AS single, 12.30::numeric(10, 2) AS price,
        1.5::numeric AS ratio, true AS flag, DATE '2024-02-29' AS day, TIMESTAMP '2024-02-29 12:00:00.5' AS moment,
        TIMESTAMPTZ '2024-02-29 12:00:00+02' AS instant, '{1,null}'::int8[] AS numbers, '{"a": 1}'::jsonb AS document,
        'a2b6f9d8-0000-4000-8000-000000000001'::uuid AS key, '10.0.0.1'::inet AS address, '1 day'::interval AS span"""
    found = ps.read_sql(query, postgres)
    assert {field.name: str(field.dtype) for field in found.schema} == {
        "small": "int16",
        "whole": "int32",
        "single": "float32",
        "price": "decimal128[10, 2]",
        "ratio": "float64",
        "flag": "bool",
        "day": "date",
        "moment": "timestamp[us]",
        "instant": "timestamp[us, UTC]",
        "numbers": "list[int64]",
        "document": "string",
        "key": "string",
        "address": "string",
        "span": "string",
    }
    assert found.to_pylist() == [
        {
            "small": 1,
            "whole": 2,
            "single": 1.5,
            "price": decimal.Decimal("12.30"),
            "ratio": 1.5,
            "flag": True,
            "day": datetime.date(2024, 2, 29),
            "moment": datetime.datetime(2024, 2, 29, 12, 0, 0, 500_000),
            "instant": datetime.datetime(2024, 2, 29, 10, tzinfo=datetime.UTC),
            "numbers": [1, None],
            "document": '{"a": 1}',
            "key": "a2b6f9d8-0000-4000-8000-000000000001",
            "address": "10.0.0.1/32",
            "span": "1 day",
        }
    ]


def test_types_written_to_postgresql(postgres: str) -> None:
    rows = pa.table(
        {
            "flag": pa.array([True, None]),
            "day": pa.array([datetime.date(2024, 2, 29), None]),
            "instant": pa.array([datetime.datetime(2024, 2, 29), None], pa.timestamp("us", "UTC")),
            "price": pa.array([decimal.Decimal("12.30"), None], pa.decimal128(10, 2)),
            "large": pa.array([2**64 - 1, None], pa.uint64()),
            "vector": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        }
    )
    ps.from_arrow(rows).write_sql("public.typed", postgres)
    found = ps.read_sql("SELECT * FROM typed", postgres)
    expected = [str(f.dtype) for f in ps.from_arrow(rows.drop_columns(["large", "vector"])).schema]
    assert [str(f.dtype) for f in found.schema] == [*expected, "decimal128[20, 0]", "list[float32]"]
    assert found.to_pylist() == rows.to_pylist()
    execute(postgres, "DROP TABLE typed")


def test_rows_are_left_out_by_postgresql(postgres: str) -> None:
    source = sql_source("SELECT 1 AS id, 'x' AS word, DATE '2024-02-29' AS day, true AS flag, 'a' AS other", postgres)
    df = ps.read_source(source)
    col = ps.col
    query = query_of(df.where((col("id") >= 1) & (col("day") < datetime.date(2025, 1, 1))).select("word"), source)
    assert query.startswith('SELECT "id", "word", "day" FROM (\nSELECT 1 AS id')
    assert query.endswith("""WHERE "id" >= 1 AND "day" < DATE '2025-01-01'""")
    assert query_of(df.limit(3), source).endswith("AS penstock_query LIMIT 3")
    assert query_of(df.where(col("word") > "a"), source).endswith("AS other")  # text is ordered by us


def test_nan_is_not_larger_than_numbers(postgres: str) -> None:
    df = ps.read_sql("SELECT * FROM (VALUES ('NaN'::float8), (1.0), (2.0)) AS t(x)", postgres)
    assert df.where(ps.col("x") > 1.5).to_pydict() == {"x": [2.0]}


def test_partitions_by_time(postgres: str) -> None:
    query = "SELECT generate_series(TIMESTAMP '2024-01-01', '2024-01-10', '1 hour') AS t"
    source = sql_source(query, postgres, partition_col="t", num_partitions=3)
    counts = [sum(batch.num_rows for batch in task.read()) for task in source.read_tasks(ReadRequest())]
    assert counts == [72, 72, 73]


# --- SQLite ---


def test_sqlite_types_do_not_depend_on_which_rows_come_first(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (n, x, s, b)")
        connection.execute("INSERT INTO t VALUES (1, 0.5, 'a', x'00')")
        connection.executemany("INSERT INTO t VALUES (?, NULL, NULL, NULL)", [(n,) for n in range(2, 3000)])
        connection.execute("INSERT INTO t VALUES (3000, 2, 'z', x'01')")
    connection.close()
    found = ps.read_sql("SELECT * FROM t ORDER BY n DESC", f"sqlite:///{tmp_path / 't.db'}")
    last = found.where(ps.col("n") > 1).to_pylist()
    assert last[0] == {"n": 3000, "x": 2.0, "s": "z", "b": b"\x01"}
    assert [row["n"] for row in last] == list(range(3000, 1, -1))


def test_sqlite_columns_whose_first_values_are_null_are_text(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 't.db'}"
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (n INT, s TEXT, x REAL)")
        connection.executemany("INSERT INTO t (n) VALUES (?)", [(n,) for n in range(1500)])
        connection.execute("INSERT INTO t (s, x) VALUES ('late', 0.5)")
    connection.close()
    assert ps.read_sql("SELECT s, x FROM t", url).to_pylist()[-1] == {"s": "late", "x": "0.5"}
    found = ps.read_sql("SELECT s AS word, x FROM t", url, schema={"x": "float64"})
    assert found.to_pylist()[-1] == {"word": "late", "x": 0.5}
    assert found.where(ps.col("word") == "late").count_rows() == 1
    assert ps.read_sql("SELECT NULL AS a", url).to_pydict() == {"a": [None]}


def test_sqlite_types_can_be_given(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (x, day)")
        connection.executemany("INSERT INTO t VALUES (?, '2024-02-29')", [(n,) for n in range(2000)])
        connection.execute("INSERT INTO t VALUES (0.5, NULL)")
    connection.close()
    url = f"sqlite:///{tmp_path / 't.db'}"
    with pytest.raises(ReadError, match=r"does not become int64.*give schema=\{'x'"):
        ps.read_sql("SELECT * FROM t", url).collect()
    found = ps.read_sql("SELECT * FROM t", url, schema={"x": "float64", "day": "date"}).to_pydict()
    assert (found["x"][-1], found["day"][0]) == (0.5, datetime.date(2024, 2, 29))


def test_wide_rows_come_in_small_batches(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'wide.db'}"
    rows = {"a": [os.urandom(2**20) for _ in range(40)]}
    ps.from_pydict(rows).write_sql("wide", url)
    [task] = sql_source("SELECT a FROM wide", url).read_tasks(ReadRequest())
    batches = list(task.read())
    assert max(batch.nbytes for batch in batches) < 20 * 2**20
    found = [value for batch in batches for value in batch.column("a").to_pylist()]
    assert sorted(found) == sorted(rows["a"])  # several writers: in no order


def test_sqlalchemy_types_are_checked(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(2000)])
        connection.execute("INSERT INTO t VALUES ('text')")
    connection.close()
    with pytest.raises(ReadError, match=r"have no type in common|give schema=\{'x'"):
        ps.read_sql("SELECT * FROM t", alchemy(tmp_path / "t.db")).collect()


def test_sqlite_filters_see_each_value_as_it_is_read(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'm.db'}"
    with sqlite3.connect(tmp_path / "m.db") as connection:
        connection.execute("CREATE TABLE m (y TEXT)")
        connection.executemany("INSERT INTO m VALUES (?)", [(y,) for y in [5, "a", "5", 0.5, "0.5", None, "b"]])
    found = ps.read_sql("SELECT y FROM m", url)
    plain = ps.from_arrow(found.to_arrow())
    for predicate in (
        ps.col("y") == "5",
        ps.col("y") == "a",
        ps.col("y") == "0.5",
        ps.col("y").is_in(["5", "b"]),
        ps.col("y") != "5",
        ps.col("y").is_null(),
    ):
        assert found.where(predicate).to_pydict() == plain.where(predicate).to_pydict()


def test_partitions_by_numeric_columns(postgres: str) -> None:
    execute(
        postgres,
        "CREATE TABLE n (a numeric(10, 2), b numeric, c numeric)",
        "INSERT INTO n SELECT g / 4.0, g / 4.0, g FROM generate_series(1, 100) g",
        "INSERT INTO n VALUES (NULL, NULL, 'NaN')",
    )
    for column, num_tasks in (("a", 4), ("b", 4), ("c", 1)):
        source = sql_source("SELECT * FROM n", postgres, partition_col=column, num_partitions=4)
        tasks = list(source.read_tasks(ReadRequest()))
        counts = [sum(batch.num_rows for batch in task.read()) for task in tasks]
        assert (len(counts), sum(counts)) == (num_tasks, 101)
        assert max(counts) <= 26 or num_tasks == 1
    found = ps.read_sql("SELECT * FROM n", postgres).where(ps.col("a") == decimal.Decimal("0.25")).select("a")
    assert found.to_pydict() == {"a": [decimal.Decimal("0.25")]}
    execute(postgres, "DROP TABLE n")


@pytest.mark.parametrize(
    ("kind", "end"),
    [("timestamptz", "infinity"), ("timestamp", "-infinity"), ("date", "infinity"), ("date", "-infinity")],
)
def test_times_without_end_are_an_error(postgres: str, kind: str, end: str) -> None:
    found = ps.read_sql(f"SELECT {kind} '{end}' AS t UNION ALL SELECT {kind} '2024-02-29'", postgres)
    with pytest.raises(ReadError, match=r"Column 't' holds 'infinity' or '-infinity'.*NULLIF\(t, 'infinity'\)"):
        found.to_pydict()
    found = ps.read_sql(f"SELECT NULLIF({kind} '{end}', '{end}') AS t", postgres)
    assert found.to_pydict() == {"t": [None]}


def test_a_sqlite_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match=r"There is no SQLite database '.*tpyo\.db'"):
        ps.read_sql("SELECT 1 AS a", f"sqlite:///{tmp_path / 'tpyo.db'}")
    assert os.listdir(tmp_path) == []


def test_a_semicolon_may_end_a_query(conn: Conn) -> None:
    ps.from_pydict({"a": [1, 2, 3]}).write_sql("t", conn)
    found = ps.read_sql("SELECT a, ';--' AS b FROM t ;\n", conn)
    assert found.where(ps.col("a") > 2).to_pydict() == {"a": [3], "b": [";--"]}


def test_a_query_may_end_in_a_comment(conn: Conn) -> None:
    ps.from_pydict({"a": [1, 2, 3]}).write_sql("t", conn)
    found = ps.read_sql("SELECT a, 0 AS b FROM t -- rows;", conn)
    assert sorted(found.to_pydict()["a"]) == [1, 2, 3]
    assert found.where(ps.col("a") > 2).select("a").limit(5).to_pydict() == {"a": [3]}
    parted = ps.read_sql("SELECT a FROM t -- rows", conn, partition_col="a", num_partitions=2)
    assert sorted(parted.to_pydict()["a"]) == [1, 2, 3]


# --- pure functions ---


def test_bounds_are_even() -> None:
    assert even_bounds(0, 99, 4) == [25, 50, 75]
    assert even_bounds(5, 5, 4) == []
    assert even_bounds(0.0, 1.0, 2) == [0.5]
    assert even_bounds(float("nan"), float("nan"), 2) == []
    days = even_bounds(datetime.date(2024, 1, 1), datetime.date(2024, 1, 11), 2)
    assert days == [datetime.date(2024, 1, 6)]


def test_conditions_reach_the_source(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 't.db'}"
    ps.from_pydict({"a": [1], "s": ["x"]}).write_sql("t", url)
    source = sql_source("SELECT * FROM t", url)
    conditions = (Condition("a", "in", (1, 2)), Condition("a", "is not null"), Condition("s", "!=", "x"))
    [task] = source.read_tasks(ReadRequest(conditions=conditions))
    assert task.query.endswith('WHERE "a" IN (1, 2) AND "a" IS NOT NULL')


# --- plain DB-API connections ---


class PlainConnection:
    """A connection to PostgreSQL with the methods of PEP 249 and no others."""

    def __init__(self, url: str) -> None:
        import adbc_driver_postgresql.dbapi

        self._connection = adbc_driver_postgresql.dbapi.connect(url)
        self.cursor, self.close = self._connection.cursor, self._connection.close
        self.commit, self.rollback = self._connection.commit, self._connection.rollback


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_plain_connections_are_read(tmp_path: Path, request: pytest.FixtureRequest, database: str) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}" if database == "sqlite" else request.getfixturevalue("postgres")
    ps.range(3000).with_column("t", ps.col("id").cast("string")).write_sql("plain", url, mode="overwrite")

    def connect() -> Any:
        return sqlite3.connect(tmp_path / "test.db") if database == "sqlite" else PlainConnection(url)

    streamed = ps.read_sql("SELECT * FROM plain", connect)
    assert streamed.where(ps.col("id") > 2997).to_pydict() == {"id": [2998, 2999], "t": ["2998", "2999"]}
    assert streamed.count_rows() == 3000
    with (
        contextlib.closing(connect()) as connection,
        pytest.raises(InvalidArgumentError, match="give a function that connects"),
    ):
        ps.read_sql("SELECT * FROM plain", connection)
    with pytest.raises(InvalidArgumentError, match="can only read"):
        ps.range(3).write_sql("other", connect)
