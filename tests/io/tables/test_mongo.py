"""MongoDB: pymongo over a real socket, against a small server of this test suite (see mongo_server.py)."""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pymongo
import pytest

import penstock as ps
import penstock.compat.ray as ray
from penstock.errors import InvalidArgumentError, OutputExistsError, PathNotFoundError, ReadError, UdfError, WriteError
from penstock.io.tables.mongo.sink import MongoSink
from tests.io.helpers import interrupted_after_commit
from tests.io.tables.mongo_server import Server, running_server

SECRET = "n0t-to-be-seen"
AT = dt.datetime(2024, 1, 2, 3, 4, 5, 678000)


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def database(server: Server) -> Iterator[Any]:
    with pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        yield client["shop"]


def read(server: Server, **options: Any) -> ps.DataFrame:
    return ps.read_mongo(server.uri, "shop", "orders", **options)


def write(df: ps.DataFrame, server: Server, **options: Any) -> ps.DataFrame:
    return df.write_mongo(server.uri, "shop", "orders", **options)


def pipelines(server: Server) -> list[Any]:
    return [command["pipeline"] for command in server.commands if "aggregate" in command]


def test_documents_are_rows(server: Server, database: Any) -> None:
    key = bson.ObjectId()
    database["orders"].insert_many([
        {"_id": key, "n": 1, "big": bson.Int64(2**40), "x": 0.5, "at": AT, "ok": True, "raw": b"\xff",
         "tags": ["a", None], "to": {"city": "Bern", "no": 4}, "price": bson.Decimal128("1.20"),
         "like": bson.Regex("^a"), "seen": bson.Timestamp(60, 1)},
        {"_id": bson.ObjectId(), "n": None, "x": 2, "late": "only here"},
    ])  # fmt: skip
    df = read(server)
    assert {each.name: str(each.dtype) for each in df.schema} == {
        "_id": "string", "n": "int64", "big": "int64", "x": "float64", "at": "timestamp[ms]", "ok": "bool",
        "raw": "binary", "tags": "list[string]", "to": "struct[city: string, no: int64]", "price": "string",
        "like": "string", "seen": "timestamp[ms]", "late": "string",
    }  # fmt: skip
    first, second = df.to_pylist()
    assert first == {
        "_id": str(key), "n": 1, "big": 2**40, "x": 0.5, "at": AT, "ok": True, "raw": b"\xff", "tags": ["a", None],
        "to": {"city": "Bern", "no": 4}, "price": "1.20", "like": "^a", "seen": dt.datetime(1970, 1, 1, 0, 1),
        "late": None,
    }  # fmt: skip
    assert (second["x"], second["late"], second["big"]) == (2.0, "only here", None)


def test_columns_conditions_and_limits_reach_the_server(server: Server, database: Any) -> None:
    times = [AT + dt.timedelta(days=n) for n in range(250)]
    database["orders"].insert_many([{"_id": f"k{n}", "n": n, "at": times[n], "a.b": n} for n in range(250)])
    df = read(server)
    assert df.where((ps.col("n") >= 248) & (ps.col("_id") != "k248")).select("_id").to_pydict() == {"_id": ["k249"]}
    assert pipelines(server)[-1] == [{"$match": {"n": {"$gte": 248}}}, {"$project": {"_id": 1, "n": 1}}]
    assert df.where(ps.col("at") < times[2]).count_rows() == 2
    assert df.where(ps.col("n").is_in([3, 4])).select("n").to_pydict() == {"n": [3, 4]}
    assert df.select("n").limit(2).to_pydict() == {"n": [0, 1]}
    assert pipelines(server)[-1] == [{"$project": {"_id": 0, "n": 1}}, {"$limit": 2}]
    assert df.count_rows() == 250
    assert df.select("a.b").limit(1).to_pydict() == {"a.b": [0]}
    made = read(server, pipeline=[{"$match": {"n": {"$lt": 4}}}, {"$project": {"_id": 0, "n": 1}}])
    assert made.where(ps.col("n") != 2).to_pydict() == {"n": [0, 1, 3]}


def test_types_can_be_given(server: Server, database: Any) -> None:
    database["orders"].insert_many([{"n": n, "price": bson.Decimal128("1.5")} for n in range(1000)] + [{"n": "text"}])
    with pytest.raises(ReadError, match=r"field 'n'.*convert the field in the pipeline, .*'\$toString'"):
        read(server).collect()
    df = read(server, schema={"price": "decimal128(5, 2)"})
    assert df.to_pylist()[-2:] == [{"price": Decimal("1.50")}, {"price": None}]
    with pytest.raises(ReadError, match=r"field 'n': has 999.*schema= with the fields to read"):
        read(server, pipeline=[{"$sort": {"n": -1}}])


def test_rows_are_documents(server: Server, database: Any) -> None:
    columns = {
        "_id": pa.array([1, 2]), "day": pa.array([dt.date(2024, 1, 2), None]), "v": pa.array([[1.5], []]),
        "price": pa.array([Decimal("1.25"), None]), "at": pa.array([AT, None], pa.timestamp("us", "UTC")),
        "s": pa.array([{"d": AT.date()}] * 2), "time": pa.array([dt.time(1, 2), None]),
    }  # fmt: skip
    written = write(ps.from_arrow(pa.table(columns)), server)
    assert written.to_pydict() == {"collection": ["orders"], "rows": [2]}
    day = dt.datetime(2024, 1, 2)
    assert list(database["orders"].aggregate([])) == [
        {"_id": 1, "day": day, "v": [1.5], "price": bson.Decimal128("1.25"), "at": AT, "s": {"d": day},
         "time": "01:02:00"},
        {"_id": 2, "day": None, "v": [], "price": None, "at": None, "s": {"d": day}, "time": None},
    ]  # fmt: skip
    assert database.list_collection_names() == ["orders"]
    embedded = ps.from_pydict({"_id": [3]}).with_column("v", ps.lit([1.0, 2.0]).cast("embedding[float32, 2]"))
    write(embedded, server, mode="overwrite")
    assert list(database["orders"].aggregate([])) == [{"_id": 3, "v": [1.0, 2.0]}]


def test_modes(server: Server, database: Any) -> None:
    for mode in ("create", "overwrite", "append"):
        write(ps.from_pydict({"_id": [mode]}), server, mode=mode)
    assert [each["_id"] for each in database["orders"].aggregate([])] == ["overwrite", "append"]
    with pytest.raises(OutputExistsError, match=r"collection shop\.orders of mongodb.* exists already"):
        write(ps.range(1), server)
    with pytest.raises(WriteError, match="E11000 Duplicate Key Error"):
        write(ps.from_pydict({"_id": ["append"]}), server, mode="append")
    with pytest.raises(WriteError, match=r"Cannot write the collection shop\.penstock_.*E11000") as raised:
        write(ps.from_pydict({"_id": [1, 1], "word": [SECRET] * 2}), server, mode="append")
    assert SECRET not in str(raised.value)

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        assert row["id"] < 3
        return row

    with pytest.raises(UdfError):
        write(ps.range(5).map(fails), server, mode="overwrite")
    assert (database.list_collection_names(), len(list(database["orders"].aggregate([])))) == (["orders"], 2)


def test_an_append_is_done_although_its_staged_rows_cannot_be_removed(
    server: Server, database: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(ps.from_pydict({"_id": [1]}), server)

    def refuse(database: Any, command: dict[str, Any]) -> dict[str, Any]:
        raise pymongo.errors.OperationFailure("not now")

    monkeypatch.setattr(server, "run_drop", refuse)
    assert write(ps.from_pydict({"_id": [2]}), server, mode="append").to_pydict()["rows"] == [1]
    assert [each["_id"] for each in database["orders"].aggregate([])] == [1, 2]
    assert "is left behind" in caplog.text


def test_rows_without_documents(server: Server, database: Any) -> None:
    write(ps.range(0), server)
    assert read(server).to_pydict() == {}
    assert read(server, schema={"id": "int64"}).to_pydict() == {"id": []}


def test_a_job_that_was_killed_after_its_commit_does_not_write_twice(
    server: Server, database: Any, tmp_path: Path
) -> None:
    with interrupted_after_commit(MongoSink):
        write(ps.range(3), server, resume=True, job_dir=tmp_path)
    write(ps.range(3), server, resume=True, job_dir=tmp_path)
    assert [each["id"] for each in database["orders"].aggregate([])] == [0, 1, 2]
    with pytest.raises(InvalidArgumentError, match=r"write_mongo\(mode='append'\) cannot be a job"):
        write(ps.range(3), server, mode="append", resume=True, job_dir=tmp_path)


def test_errors_name_the_place_and_no_secret(server: Server, database: Any) -> None:
    database["orders"].insert_one({"n": 1})
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    refused = server.uri.replace("//", f"//me:{SECRET}@")
    absent = f"mongodb://me:{SECRET}@127.0.0.1:{port}/?serverSelectionTimeoutMS=100"
    for uri, message in ((refused, "Authentication failed"), (absent, "Connection refused")):
        for kind, call in (
            (ReadError, lambda uri=uri: ps.read_mongo(uri, "shop", "orders")),
            (WriteError, lambda uri=uri: ps.range(1).write_mongo(uri, "shop", "orders")),
        ):
            with pytest.raises(kind, match=message) as raised:
                call()
            assert SECRET not in str(raised.value)
    assert SECRET not in repr(read(server)._plan)
    with pytest.raises(InvalidArgumentError, match=r"^uri has a '/' in its user name or password; write it as %2F\.$"):
        ps.read_mongo(f"mongodb://me:a/{SECRET}@host/", "shop", "orders")
    with pytest.raises(PathNotFoundError, match=r"There is no collection shop\.nope"):
        ps.read_mongo(server.uri, "shop", "nope")
    with pytest.raises(InvalidArgumentError, match="uri must start with 'mongodb://'"):
        ps.read_mongo("localhost", "shop", "orders")
    with pytest.raises(InvalidArgumentError, match=r"pipeline has the stage '\$out', which writes"):
        read(server, pipeline=[{"$out": "copy"}])
    with pytest.raises(InvalidArgumentError, match="must be a list of stages"):
        read(server, pipeline=["$match"])
    with pytest.raises(WriteError, match="Cannot write the collection"):
        write(ps.from_pydict({"n": [Decimal("1." + "1" * 35)]}), server, mode="append")
    with pytest.raises(WriteError, match="MongoDB has no type for 9223372036854775808"):
        write(ps.from_arrow(pa.table({"n": pa.array([2**63], pa.uint64())})), server, mode="append")


def test_programs_of_ray_data(server: Server, database: Any) -> None:
    ds = ray.data.range(3)
    with pytest.raises(PathNotFoundError, match=r"There is no collection shop\.orders"):
        ds.write_mongo(server.uri, "shop", "orders")
    database.create_collection("orders")
    for _ in range(2):
        ds.write_mongo(uri=server.uri, database="shop", collection="orders", concurrency=1)
    back = ray.data.read_mongo(
        uri=server.uri, database="shop", collection="orders", pipeline=[{"$match": {"id": {"$gte": 1}}}],
        schema={"id": pa.int32()}, override_num_blocks=2,
    )  # fmt: skip
    assert sorted(row["id"] for row in back.take_all()) == [1, 1, 2, 2]
    assert str(back.schema["id"].dtype) == "int32"
    with pytest.raises(InvalidArgumentError, match=r"read_mongo\(allowDiskUse="):
        ray.data.read_mongo(server.uri, "shop", "orders", allowDiskUse=True)
