"""Paths, partitions and options of the Ray adapter's readers and writers; the expected values are those of Ray 2.60."""

from __future__ import annotations

import datetime as dt
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from penstock.compat.ray.data.datasource import Partitioning, PathPartitionParser

import penstock.compat.ray as ray
from penstock.compat.ray.data.expressions import col
from penstock.errors import InvalidArgumentError


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "lance", "delta"])
def test_a_path_object_is_a_target(kind: str, tmp_path: Path) -> None:
    rows = ray.data.from_items([{"n": 1}, {"n": 2}])
    target = tmp_path / "out"
    getattr(rows, f"write_{kind}")(target)
    assert getattr(ray.data, f"read_{kind}")(str(target)).count() == rows.count()


def test_a_path_object_is_a_target_of_arrays_and_images(tmp_path: Path) -> None:
    arrays = ray.data.from_items([{"image": np.zeros((4, 5, 3), np.uint8)}])
    arrays.write_images(tmp_path / "i", column="image")
    arrays.write_numpy(tmp_path / "n", column="image")
    assert (ray.data.read_images(tmp_path / "i").count(), ray.data.read_numpy(tmp_path / "n").count()) == (1, 1)


@pytest.mark.parametrize(
    ("scheme", "path", "values"),
    [
        ({}, "/a/b=1/c=x%20y/f.csv", {"b": "1", "c": "x y"}),
        ({"base_dir": "/a"}, "/a/b=1/f.csv", {"b": "1"}),
        ({"base_dir": "/z"}, "/a/b=1/f.csv", {}),
        ({"field_types": {"b": int, "c": float, "d": bool}}, "/b=1/c=2.5/d=False/f", {"b": 1, "c": 2.5, "d": False}),
        ({"style": "dir", "base_dir": "/a", "field_names": ["x", "y"], "field_types": {"x": int}}, "/a/1/2/f",
         {"x": 1, "y": "2"}),
        ({"style": "dir", "base_dir": "/a", "field_names": [None, "y"]}, "/a/1/2/f", {"y": "2"}),
        ({"style": "dir", "base_dir": "/a", "field_names": ["x", "y"]}, "/a/f", {}),
        ({"style": "dir", "field_names": ["x", "y"]}, "foo/bar/f", {"x": "foo", "y": "bar"}),
    ],
)  # fmt: skip
def test_values_in_paths(scheme: dict[str, Any], path: str, values: dict[str, Any]) -> None:
    assert PathPartitionParser.of(**scheme)(path) == values


@pytest.mark.parametrize(
    ("scheme", "path"),
    [
        ({"field_names": ["x"]}, "/a/b=1/f"),
        ({"field_names": ["x", "y"]}, "/a/x=1/f"),
        ({"style": "dir", "field_names": ["x"]}, "1/2/f"),
        ({"style": "dir"}, "1/f"),
        ({"style": "other"}, "1/f"),
    ],
)
def test_paths_that_do_not_fit_the_scheme(scheme: dict[str, Any], path: str) -> None:
    with pytest.raises(ValueError, match="Partitioning"):
        PathPartitionParser.of(**scheme)(path)


def test_conditions_on_paths() -> None:
    parser = PathPartitionParser(Partitioning("hive"))
    paths = ("b=1/f", "b=2/f", "f", "c=1/f")
    assert [parser.evaluate_predicate_on_partition(path, col("b") == "1") for path in paths] == [
        True,
        False,
        False,
        True,
    ]
    scheme = parser.scheme
    assert (scheme.style, scheme.base_dir, scheme.field_types) == ("hive", "", {})


def test_hive_partitions_of_files_that_pyarrow_wrote(tmp_path: Path) -> None:
    """A type that the file or the schema gives to the column of a folder is that of its values."""
    table = pa.table({"v": [1, 2], "w": [3, 4], "k": ["a b", "c/d"], "j": [7, 8]})
    pq.write_to_dataset(table, str(tmp_path / "p"), partition_cols=["k", "j"])
    read = ray.data.read_parquet(str(tmp_path / "p"))
    rows = sorted(read.take_all(), key=lambda row: row["v"])
    assert rows == [{"v": 1, "w": 3, "k": "a b", "j": "7"}, {"v": 2, "w": 4, "k": "c/d", "j": "8"}]
    schema = pa.schema([("v", pa.int32())])
    assert ray.data.read_parquet(str(tmp_path / "p"), schema=schema, partitioning=None).schema().types == [pa.int32()]
    typed = ray.data.read_parquet(str(tmp_path / "p"), schema=schema).schema()
    assert dict(zip(typed.names, typed.types, strict=True)) == {"v": pa.int32(), "k": pa.string(), "j": pa.string()}

    (tmp_path / "y=2020").mkdir()
    pq.write_table(pa.table({"v": [1], "y": [7]}), tmp_path / "y=2020" / "a.parquet")
    assert ray.data.read_parquet(str(tmp_path / "y=2020" / "a.parquet")).take_all() == [{"v": 1, "y": 2020}]
    back = ray.data.from_items([{"v": 1, "k": "a"}, {"v": 2, "k": "b"}])
    back.write_parquet(tmp_path / "w", partition_cols=["k"])
    assert sorted(pq.read_table(tmp_path / "w").to_pydict()["k"]) == ["a", "b"]


def test_options_of_json(tmp_path: Path) -> None:
    path = str(tmp_path / "a.jsonl")
    Path(path).write_text('{"a":1,"t":"2024-01-02"}\n{"a":2,"t":"2024-01-03"}\n')
    days = [dt.datetime(2024, 1, 2), dt.datetime(2024, 1, 3)]
    options = pa.json.ReadOptions(block_size=2000)
    assert [row["t"] for row in ray.data.read_json(path, read_options=options).take_all()] == days
    assert ray.data.read_json(path, lines=True).take(1) == [{"a": 1, "t": "2024-01-02"}]
    explicit = pa.schema([("a", pa.float32())])
    parse = pa.json.ParseOptions(explicit_schema=explicit)
    assert ray.data.read_json(path, parse_options=parse).schema().types == [pa.float32(), pa.timestamp("s")]
    alone = pa.json.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="ignore")
    assert ray.data.read_json(path, parse_options=alone).take_all() == [{"a": 1.0}, {"a": 2.0}]
    refused = pa.json.ParseOptions(unexpected_field_behavior="error")
    with pytest.raises(InvalidArgumentError, match="unexpected_field_behavior"):
        ray.data.read_json(path, parse_options=refused)


@pytest.mark.parametrize(
    ("condition", "parameters", "found"),
    [
        ("y > ? and t != ?", (1, "c"), [2]),
        ("y > ?", [1], [2, 3]),
        ("y > :y", {"y": 1}, [2, 3]),
        ("y < 3", None, [1, 2]),
    ],
)
def test_parameters_of_sql(condition: str, parameters: Any, found: list[int], tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "rows.db")

    connection = connect()
    connection.executescript("create table rows(t, y); insert into rows values ('a', 1), ('b', 2), ('c', 3)")
    connection.close()
    query = f"select * from rows where {condition}"
    read = ray.data.read_sql(query, connect, sql_params=parameters, shard_keys=["y"])
    assert [row["y"] for row in read.take_all()] == found
    assert read.filter(expr="y == 2").select_columns("t").take_all() == [{"t": "b"}]  # after the query, not within it


def test_parameters_of_sql_need_placeholders_of_a_driver() -> None:
    with pytest.raises(InvalidArgumentError, match=r"sql_params=\.\.\.\) needs a connection_factory"):
        ray.data.read_sql("select ?", object, sql_params=(1,))
