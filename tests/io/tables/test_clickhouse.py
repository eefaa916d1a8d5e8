"""ClickHouse, against its own engine behind its own protocol."""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import pyarrow as pa
import pytest

import penstock as ps
import penstock.compat.daft as daft
import penstock.compat.ray as ray
from penstock.errors import (
    ColumnNotFoundError,
    InvalidArgumentError,
    OutputExistsError,
    ReadError,
    UdfError,
    WriteError,
)
from penstock.io.tables.clickhouse import ClickHouseSink
from tests.io.helpers import interrupted_after_commit
from tests.io.tables.clickhouse_server import PASSWORD, USER, running_server

AT = dt.datetime(2024, 1, 2, 3, 4, 5, 678000, dt.UTC)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as dsn:
        yield dsn


@pytest.fixture
def client(server: str) -> Iterator[Any]:
    """Give a client of an empty database."""
    client = clickhouse_connect.get_client(dsn=server)
    for table in tables(client):
        client.command(f"DROP TABLE `{table}`")
    yield client
    client.close()


def tables(client: Any) -> list[str]:
    return [row[0] for row in client.query("SHOW TABLES").result_rows]


def rows_of(client: Any, query: str) -> list[Any]:
    return list(client.query(query).result_rows)


COLUMNS = {
    "flag": pa.array([True, None]),
    "small": pa.array([-1, None], pa.int8()),
    "big": pa.array([2**64 - 1, None], pa.uint64()),
    "real": pa.array([0.1, None]),
    "text": pa.array(["it's \\ é", None]),
    "day": pa.array([dt.date(1950, 1, 2), None]),
    "at": pa.array([AT, None], pa.timestamp("ms", "Asia/Tokyo")),
    "price": pa.array([12, None], pa.int64()).cast(pa.decimal128(21, 2)),
    "words": pa.array([["a", None], []]),
    "point": pa.array([{"x": 1, "y": None}, {"x": None, "y": "b"}]),
}


def test_values_and_types_come_back(server: str, client: Any) -> None:
    df = ps.from_arrow(pa.table(COLUMNS))
    written = df.write_clickhouse("words", server)
    assert (written.to_pydict()["table"], written.to_pydict()["rows"]) == (["words"], [2])
    assert tables(client) == ["words"]
    back = ps.read_clickhouse("default.words", server)
    assert back.schema == df.schema
    assert back.to_pylist() == df.to_pylist()
    df.limit(0).write_clickhouse("words", server, mode="overwrite")
    back = ps.read_clickhouse("words", server)
    assert (back.to_pylist(), back.schema) == ([], df.schema)


def test_values_that_clickhouse_lacks(server: str, client: Any) -> None:
    columns = {"list": pa.array([None, [1]]), "time": pa.array([1, None], pa.time64("us")), "none": pa.nulls(2)}
    df = ps.from_arrow(pa.table(columns)).with_column("v", ps.lit([1.0, 2.0]).cast("embedding[float32, 2]"))
    df.write_clickhouse("t", server)
    assert ps.read_clickhouse("t", server).to_pylist() == [
        {"list": [], "time": "00:00:00.000001", "none": None, "v": [1.0, 2.0]},
        {"list": [1], "time": None, "none": None, "v": [1.0, 2.0]},
    ]


def test_types_that_arrow_lacks(server: str, client: Any) -> None:
    client.command(
        "CREATE TABLE t (at DateTime('UTC'), gone Nullable(DateTime), kind Enum('a' = 1, 'b' = 2), ip IPv4, "
        "id UUID, huge Int128, tag LowCardinality(String)) ENGINE = MergeTree ORDER BY at"
    )
    client.command("INSERT INTO t VALUES ('2024-01-02 03:04:05', NULL, 'b', '1.2.3.4', "
                   "'00000000-0000-0000-0000-000000000001', 170141183460469231731687303715884105727, 'x')")  # fmt: skip
    df = ps.read_clickhouse("t", server)
    assert df.to_pylist() == [
        {"at": AT.replace(microsecond=0), "gone": None, "kind": "b", "ip": "1.2.3.4",
         "id": "00000000-0000-0000-0000-000000000001", "huge": str(2**127 - 1), "tag": "x"}
    ]  # fmt: skip
    assert df.where(ps.col("kind") == "b").count_rows() == df.where(ps.col("at") > AT).count_rows() + 1 == 1
    raw = ray.data.read_clickhouse(table="t", dsn=server, columns=["kind", "at", "id"])
    row = {"kind": 2, "at": 1704164645, "id": "00000000-0000-0000-0000-000000000001"}
    assert raw.take_all() == [row]  # as Ray Data reads them


@pytest.mark.one_machine
def test_columns_filters_and_limits_reach_the_server(server: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ps.range(100).with_column("day", ps.lit(AT)).write_clickhouse("t", server, order_by="id")
    asked: list[str] = []
    stream = clickhouse_connect.driver.client.Client.query_arrow_stream

    def asking(self: Any, query: str, *args: Any, **options: Any) -> Any:
        asked.append(query)
        return stream(self, query, *args, **options)

    monkeypatch.setattr(clickhouse_connect.driver.client.Client, "query_arrow_stream", asking)
    df = ps.read_clickhouse("t", server, filter="id % 2 = 0 -- even")
    assert df.where((ps.col("id") > 90) & (ps.col("day") == AT)).select("id").to_pydict() == {"id": [92, 94, 96, 98]}
    assert "`id` > 90" in asked[-1]
    assert "parseDateTime64BestEffort('2024-01-02T03:04:05.678000+00:00', 6)" in asked[-1]
    assert df.where(ps.col("day") < dt.datetime(9999, 1, 1, tzinfo=dt.UTC)).count_rows() == 50
    assert df.limit(3).to_pydict()["id"] == [0, 2, 4]
    assert asked[-1].endswith("LIMIT 3")
    assert df.count_rows() == 50
    assert ps.read_clickhouse("t", server, order_by="id DESC").select("id").limit(2).to_pydict() == {"id": [99, 98]}


def test_partitions_are_read_at_once(server: str, client: Any) -> None:
    times = [dt.datetime(2024, 1, 1 + n % 28, tzinfo=dt.UTC) for n in range(100)]
    ps.from_pydict({"id": list(range(100)), "at": times}).write_clickhouse("t", server)
    for column in ("id", "at"):
        df = ps.read_clickhouse("t", server, partition_col=column, num_partitions=3)
        assert sorted(df.to_pydict()["id"]) == list(range(100))
    with pytest.raises(InvalidArgumentError, match="order_by= needs one query"):
        ps.read_clickhouse("t", server, partition_col="id", order_by="id")


def test_modes(server: str, client: Any) -> None:
    ps.from_pydict({"id": [2, 1]}).write_clickhouse("t", server, order_by="id", table_settings="index_granularity = 8")
    with pytest.raises(OutputExistsError, match="Table 't' exists already in clickhouse"):
        ps.range(1).write_clickhouse("t", server)
    ps.range(1).write_clickhouse("t", server, mode="append")
    assert rows_of(client, "SELECT id FROM t ORDER BY id") == [(0,), (1,), (2,)]
    with pytest.raises(ColumnNotFoundError, match="'other'"):
        ps.from_pydict({"other": [1]}).write_clickhouse("t", server, mode="append")
    with pytest.raises(InvalidArgumentError, match=r"order_by='other' differs from the sorting key .*\(id\)"):
        ps.range(1).write_clickhouse("t", server, mode="append", order_by="other")
    ps.from_pydict({"id": [5], "word": ["new"]}).write_clickhouse("t", server, mode="overwrite")
    assert rows_of(client, "SELECT * FROM t") == [(5, "new")]
    assert rows_of(client, "SELECT sorting_key FROM system.tables WHERE name = 't'") == [("id",)]
    for mode in ("append", "overwrite"):
        ps.range(1).write_clickhouse(f"new_{mode}", server, mode=mode, column_types={"id": "UInt8"})
    assert ps.read_clickhouse("new_append", server).schema["id"].dtype == ps.DataType.uint8()
    assert tables(client) == ["new_append", "new_overwrite", "t"]


def test_a_column_that_is_left_out_gets_its_default(server: str, client: Any) -> None:
    client.command("CREATE TABLE t (id UInt8, word String DEFAULT 'none') ENGINE = MergeTree ORDER BY id")
    ps.from_pydict({"id": [7, None]}).write_clickhouse("t", server, mode="append")
    assert rows_of(client, "SELECT * FROM t ORDER BY id") == [(0, "none"), (7, "none")]
    assert rows_of(client, "SELECT count() FROM t") == [(2,)]


def test_values_that_do_not_fit_a_column_are_refused(server: str, client: Any) -> None:
    client.command("CREATE TABLE t (n Nullable(Int32), day Date32) ENGINE = MergeTree ORDER BY tuple()")
    for values in ([2**40], ["text"]):  # the server would store 0, and null
        with pytest.raises(WriteError, match="column 'n'"):
            ps.from_pydict({"n": values}).write_clickhouse("t", server, mode="append")
    with pytest.raises(WriteError, match=r"Writing table t in clickhouse\+http://\*\*\*@.* failed"):
        ps.from_pydict({"day": ["text"]}).write_clickhouse("t", server, mode="append")
    assert rows_of(client, "SELECT count() FROM t") == [(0,)]
    with pytest.raises(WriteError, match="column 'n'"):
        ps.from_pydict({"n": [2**40]}).write_clickhouse("u", server, column_types={"n": "Int8"})
    ps.from_pydict({"n": ["7"], "day": ["2024-01-02"]}).write_clickhouse("t", server, mode="append")
    assert rows_of(client, "SELECT * FROM t") == [(7, dt.date(2024, 1, 2))]


def test_a_failed_write_leaves_nothing(server: str, client: Any) -> None:
    ps.range(1).write_clickhouse("t", server)

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        assert row["id"] < 3
        return row

    with pytest.raises(UdfError):
        ps.range(5).map(fails).write_clickhouse("t", server, mode="overwrite")
    assert (tables(client), rows_of(client, "SELECT * FROM t")) == (["t"], [(0,)])


def test_a_job_that_was_killed_after_its_commit_does_not_write_twice(server: str, client: Any, tmp_path: Path) -> None:
    with interrupted_after_commit(ClickHouseSink):
        ps.range(3).write_clickhouse("t", server, resume=True, job_dir=tmp_path)
    ps.range(3).write_clickhouse("t", server, resume=True, job_dir=tmp_path)
    assert rows_of(client, "SELECT id FROM t") == [(0,), (1,), (2,)]
    with pytest.raises(InvalidArgumentError, match=r"write_clickhouse\(mode='append'\) cannot be a job"):
        ps.range(3).write_clickhouse("t", server, mode="append", resume=True, job_dir=tmp_path)


def test_errors_name_the_place_and_no_secret(server: str, client: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    wrong = server.replace(PASSWORD, "wr0ng-secret")
    without = server.replace(f"{USER}:{PASSWORD}@", "")
    cases = [
        (lambda: ps.read_clickhouse("nope", server), ReadError, "Unknown table expression identifier 'nope'"),
        (lambda: ps.read_clickhouse("t", server, filter="nope = 1"), ReadError, "nope"),
        (lambda: ps.read_clickhouse("t", wrong), ReadError, "Authentication failed"),
        (lambda: ps.range(1).write_clickhouse("t", wrong), WriteError, "Authentication failed"),
        (
            lambda: ps.read_clickhouse("t", without, client_kwargs={"username": USER, "password": "wr0ng-secret"}),
            ReadError, "Authentication failed",
        ),
        (lambda: ps.read_clickhouse("t", f"clickhouse+http://a:wr0ng-secret@127.0.0.1:{port}"), ReadError, "refused"),
        (lambda: ps.read_clickhouse("t", "host"), InvalidArgumentError, "dsn must be a URL"),
        (lambda: ps.read_clickhouse("a.b.c", server), InvalidArgumentError, "table='a.b.c' must be"),
        (lambda: ps.range(1).write_clickhouse("u", server, engine="Nope"), WriteError, "Unknown table engine"),
    ]  # fmt: skip
    ps.range(1).write_clickhouse("t", server)
    for call, kind, message in cases:
        with pytest.raises(kind, match=message) as raised:
            call()
        shown = "".join(map(str, (raised.value, raised.value.__cause__)))
        assert PASSWORD not in shown
        assert "wr0ng-secret" not in shown
    assert PASSWORD not in repr(ps.read_clickhouse("t", server)._plan)


def test_an_unreachable_server_is_one_short_error(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dsn = f"clickhouse+http://me:secret@127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(ReadError, match=r"failed: Failed to establish a new connection: .*refused$") as raised:
        ps.read_clickhouse("t", dsn)
    assert raised.value.__cause__ is None
    assert not caplog.records


def test_strings_may_hold_bytes(server: str, client: Any) -> None:
    ps.from_pydict({"b": [b"\xff"]}).write_clickhouse("t", server)
    with pytest.raises(ReadError, match=r"no UTF-8 text.*'output_format_arrow_string_as_string': 0"):
        ps.read_clickhouse("t", server).collect()
    settings = {"output_format_arrow_string_as_string": 0}
    assert ps.read_clickhouse("t", server, client_settings=settings).to_pydict() == {"b": [b"\xff"]}


def test_settings_reach_the_server(server: str, client: Any) -> None:
    ps.range(10).write_clickhouse("t", server)
    with pytest.raises(ReadError, match="TOO_MANY_ROWS"):
        ps.read_clickhouse("t", server, client_settings={"max_result_rows": 1}).collect()


def test_programs_of_ray_data(server: str, client: Any) -> None:
    ds = ray.data.from_items([{"id": n, "ok": n > 1, "text": None if n else "a"} for n in range(3)])
    schema = pa.schema([("id", pa.int32()), ("text", pa.string()), ("ok", pa.bool_())])
    ds.write_clickhouse(
        table="default.t", dsn=server, mode=ray.data.SinkMode.OVERWRITE, schema=schema, max_insert_block_rows=2,
        table_settings=ray.data.ClickHouseTableSettings(engine="ReplacingMergeTree()", order_by="id"), concurrency=2,
    )  # fmt: skip
    assert rows_of(client, "SELECT name, type FROM system.columns WHERE table = 't'") == [
        ("id", "Int32"), ("text", "String"), ("ok", "UInt8")
    ]  # fmt: skip
    with pytest.raises(OutputExistsError):
        ds.write_clickhouse("t", server)
    ds.write_clickhouse("t", server, mode=ray.data.SinkMode.APPEND)
    back = ray.data.read_clickhouse(
        table="t", dsn=server, columns=["id", "text"], filter="ok = 0", order_by=(["id", "text"], True),
        override_num_blocks=4,
    )  # fmt: skip
    assert back.take_all() == [{"id": 1, "text": ""}] * 2 + [{"id": 0, "text": "a"}] * 2
    with pytest.raises(InvalidArgumentError, match=r"read_clickhouse\(nope=\.\.\.\)"):
        ray.data.read_clickhouse(table="t", dsn=server, nope=1)


def test_programs_of_daft(server: str, client: Any) -> None:
    address = server.rpartition("@")[2]
    place: dict[str, Any] = {"host": "127.0.0.1", "port": int(address.split("/")[0].split(":")[1]), "user": USER,
                             "password": PASSWORD, "database": "default"}  # fmt: skip
    df = daft.from_pydict({"a": [1, 2, 3, 4]})
    with pytest.raises(ReadError, match="UNKNOWN_TABLE"):
        df.write_clickhouse("t", **place)
    client.command("CREATE TABLE t (a Int64, b String) ENGINE = MergeTree ORDER BY a")
    assert df.write_clickhouse("t", **place).to_pydict() == {"total_written_rows": [4], "total_written_bytes": [32]}
    df.write_clickhouse("t", **place, write_kwargs={"settings": {"max_threads": 1}})
    assert rows_of(client, "SELECT sum(a) FROM t") == [(20,)]
    with pytest.raises(InvalidArgumentError, match=r"write_clickhouse\(write_kwargs=\{'column_names'"):
        df.write_clickhouse("t", **place, write_kwargs={"column_names": ["a"]})
