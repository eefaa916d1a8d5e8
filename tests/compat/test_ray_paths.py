"""Paths, partitions and options of the Ray adapter's readers and writers; the expected values are those of Ray 2.60."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest

import penstock.compat.ray as ray
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


def test_times_in_json(tmp_path: Path) -> None:
    path = str(tmp_path / "a.jsonl")
    Path(path).write_text('{"a":1,"t":"2024-01-02"}\n{"a":2,"t":"2024-01-03"}\n')
    days = [dt.datetime(2024, 1, 2), dt.datetime(2024, 1, 3)]
    assert [row["t"] for row in ray.data.read_json(path).take_all()] == days
    assert ray.data.read_json(path, lines=True).take(1) == [{"a": 1, "t": "2024-01-02"}]
    assert ray.data.read_json(path, schema={"t": "string"}).schema().types == [pa.int64(), pa.string()]
    with pytest.raises(InvalidArgumentError, match="parse_options"):
        ray.data.read_json(path, parse_options=pa.json.ParseOptions())
