"""Programs of Ray Data give the adapter's users the results that ``scripts/record_peers.py`` recorded from Ray."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from PIL import Image

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
    with pytest.raises(AttributeError, match=r"ray\.data\.read_hudi"):
        ray.data.read_hudi("table")
    with pytest.raises(InvalidArgumentError, match=r"train_test_split\(stratify="):
        ray.data.range(2).train_test_split(0.5, stratify="id")


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
