"""Programs of Ray Data give the adapter's users the results that ``scripts/record_peers.py`` recorded from Ray."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from PIL import Image
from pyarrow import orc

import penstock.compat.ray as ray
from penstock.compat.ray.data import aggregate, expressions
from penstock.errors import InvalidArgumentError
from tests.compat import ray_programs


def test_programs_return_what_ray_data_returns(tmp_path: Path) -> None:
    expected = json.loads((Path(__file__).parent / "recorded" / "ray.json").read_text())
    found = ray_programs.results(ray.data, expressions, aggregate, tmp_path)
    assert json.loads(json.dumps(found, default=float)) == expected


def test_sql_with_a_connection_factory(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "rows.db")

    connect().execute("create table rows(id, x)")
    ray.data.from_items([{"id": 1, "x": "a"}, {"id": 2, "x": "b"}]).write_sql("insert into rows values (?, ?)", connect)
    assert ray.data.read_sql("select * from rows where id > 1", connect).take_all() == [{"id": 2, "x": "b"}]


def test_images_and_files_as_ray_data_reads_them(tmp_path: Path) -> None:
    for shade in range(2):
        Image.new("RGB", (5, 4), (shade, shade, shade)).save(tmp_path / f"{shade}.png")
    (tmp_path / "notes.txt").write_text("a\n")
    folder = str(tmp_path)
    assert ray.data.read_images(folder, file_extensions=["png"]).take_batch()["image"].shape == (2, 4, 5, 3)
    gray = ray.data.read_images(paths=folder, file_extensions=["png"], mode="L", include_paths=True).take_batch()
    assert (gray["image"].shape, sorted(gray)) == ((2, 4, 5), ["image", "path"])
    strategy = ray.data.ActorPoolStrategy(size=1, initial_size=1, max_tasks_in_flight_per_actor=2)
    counted = ray.data.range(4).map_batches(lambda batch: {"n": batch["id"]}, compute=strategy)
    assert counted.sum("n") == 6


def test_join_and_splits() -> None:
    left = ray.data.from_items([{"id": i, "x": i * i} for i in range(4)])
    right = ray.data.from_items([{"key": 2, "y": "two"}, {"key": 9, "y": "nine"}])
    joined = left.join(right, join_type="left_outer", num_partitions=2, on=("id",), right_on=("key",))
    assert sorted((row["id"], row["y"]) for row in joined.take_all()) == [(0, None), (1, None), (2, "two"), (3, None)]
    assert [len(list(part.iter_rows())) for part in left.streaming_split(2, equal=True)] == [2, 2]
    with pytest.raises(InvalidArgumentError, match="more rows"):
        left.to_pandas(limit=3)


def test_show_prints_rows_as_dicts(capsys: pytest.CaptureFixture[str]) -> None:
    ray.data.range(30).show()
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[0]) == (20, "{'id': 0}")


@pytest.mark.parametrize("name", ["init", "get", "put", "remote"])
def test_names_of_ray_itself_are_refused(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"ray\.data only, not ray\.{name}"):
        getattr(ray, name)


def test_what_cannot_be_honoured_is_refused_by_name(tmp_path: Path) -> None:
    ray.data.range(2).write_parquet(str(tmp_path))
    with pytest.raises(InvalidArgumentError, match=r"read_parquet\(filesystem=\.\.\.\)"):
        ray.data.read_parquet(str(tmp_path), filesystem=object())
    with pytest.raises(InvalidArgumentError, match=r"str\.center"):
        expressions.col("x").str.center(5)
    with pytest.raises(AttributeError, match=r"ray\.data\.read_avro; read_binary_files\(\) and flat_map"):
        ray.data.read_avro("table")
    with pytest.raises(AttributeError, match=r"Dataset\.mix; use union\(\)"):
        ray.data.range(2).mix(ray.data.range(2))
    with pytest.raises(InvalidArgumentError, match=r"train_test_split\(stratify="):
        ray.data.range(2).train_test_split(0.5, stratify="id")


def test_sources_sinks_and_aggregations_of_your_own(tmp_path: Path) -> None:
    class Numbers(ray.data.Datasource):
        def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None) -> list[ray.data.ReadTask]:
            blocks = [pd.DataFrame({"x": [n, n + 1]}) for n in (1, 3)]
            return [
                ray.data.ReadTask(lambda block=block: [block], ray.data.BlockMetadata(num_rows=2)) for block in blocks
            ]

    class Folder(ray.data.Datasink):
        def on_write_start(self, schema: Any = None) -> None:
            (tmp_path / "out").mkdir()

        def write(self, blocks: Iterable[pa.Table], ctx: Any) -> int:
            for block in blocks:
                orc.write_table(block, tmp_path / "out" / f"{ctx.task_idx}.orc")
            return ctx.task_idx

        def on_write_complete(self, write_result: Any) -> None:
            (tmp_path / "rows").write_text(str(write_result.num_rows))

    class Total(aggregate.AggregateFnV2):
        def __init__(self, on: str) -> None:
            super().__init__(f"total({on})", lambda: 0, on=on, ignore_nulls=True)

        def aggregate_block(self, block: pa.Table) -> int:
            return sum(block[self.on].to_pylist())

        def combine(self, current_accumulator: int, new: int) -> int:
            return current_accumulator + new

    ds = ray.data.read_datasource(Numbers(), override_num_blocks=2)
    ds.write_datasink(Folder())
    back = ray.data.read_orc(str(tmp_path / "out"))
    assert (sorted(back.unique("x")), (tmp_path / "rows").read_text()) == ([1, 2, 3, 4], "4")
    assert ds.aggregate(Total("x")) == {"total(x)": 10}
    assert ds.add_column("g", lambda df: df["x"] % 2).groupby("g").aggregate(Total("x")).take_all() == [
        {"g": 0, "total(x)": 6},
        {"g": 1, "total(x)": 4},
    ]

    class Pairs(ray.data.ArrowBatchCollateFn):
        def __call__(self, batch: pa.Table) -> dict[str, torch.Tensor]:
            return {"x": torch.tensor(batch["x"].to_pylist())}

    assert [batch["x"].tolist() for batch in ds.iter_torch_batches(collate_fn=Pairs(), batch_size=4)] == [[1, 2, 3, 4]]

    @expressions.udf(return_dtype=ray.data.DataType.struct([("y", ray.data.DataType.int64())]))
    class Plus:
        def __init__(self, n: int) -> None:
            self.n = n

        def __call__(self, x: pa.Array) -> pa.Array:
            return pa.StructArray.from_arrays([pc.add(x, self.n)], ["y"])

    added = ds.with_columns(expressions.unnest(Plus(5)(expressions.col("x"))))
    assert added.take(1) == [{"x": 1, "y": 6}]
    added.write_parquet(f"local://{tmp_path}/local")
    assert ray.data.read_parquet(str(tmp_path / "local")).count() == 4
    twice = ds.groupby("x").with_column("y", expressions.col("x") * 2)
    assert twice.select_columns("y").take(1) == [{"y": 2}]
    seed = ray.data.RandomSeedConfig(seed=1)
    assert sum(part.count() for part in ds.streaming_train_test_split(0.5, seed=1)) == 4
    assert sorted(row["x"] for row in ds.random_shuffle(seed=seed).take_all()) == [1, 2, 3, 4]


def test_nulls_are_counted_on_request() -> None:
    rows = ray.data.from_items([{"k": 1, "x": 1}, {"k": 1, "x": None}, {"k": 2, "x": 3}])
    assert (rows.sum("x"), rows.sum("x", ignore_nulls=False), rows.max(["k"], ignore_nulls=False)) == (
        4,
        None,
        {"max(k)": 2},
    )
    grouped = rows.groupby("k").mean("x", ignore_nulls=False).take_all()
    assert grouped == [{"k": 1, "mean(x)": None}, {"k": 2, "mean(x)": 3.0}]
    with pytest.raises(InvalidArgumentError, match=r"repartition\(sort=True\)"):
        rows.repartition(2, keys=["k"], sort=True)
