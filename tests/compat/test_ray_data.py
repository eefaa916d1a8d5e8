"""Programs of Ray Data give the adapter's users the results that ``scripts/record_peers.py`` recorded from Ray."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from PIL import Image
from pyarrow import csv, fs

import penstock as ps
import penstock.compat.ray as ray
from penstock.compat.ray.data import aggregate, expressions
from penstock.errors import CorruptFileError, InvalidArgumentError, UdfError, WriteError
from penstock.types import DataType
from tests.compat import ray_programs


def test_programs_return_what_ray_data_returns(tmp_path: Path) -> None:
    expected = json.loads((Path(__file__).parent / "recorded" / "ray.json").read_text())
    found = ray_programs.results(ray.data, expressions, aggregate, tmp_path)
    assert json.loads(json.dumps(found, default=float)) == expected


def test_missing_numbers_in_csv_files_are_null_and_text_never_is(tmp_path: Path) -> None:
    """As Ray Data read the same file."""
    (tmp_path / "x.csv").write_text("n,t\n1,NA\nNA,\n,x\n")
    rows = ray.data.read_csv(str(tmp_path)).take_all()
    assert rows == [{"n": 1, "t": "NA"}, {"n": None, "t": ""}, {"n": None, "t": "x"}]


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


def test_joins_refuse_equal_names_and_unknown_kinds() -> None:
    ids = ray.data.from_items([{"id": 1, "v": "a"}])
    with pytest.raises(InvalidArgumentError, match="both sides have v; give left_suffix= or right_suffix="):
        ids.join(ids, "inner", 1, on=("id",))
    with pytest.raises(InvalidArgumentError, match=r"full_outer.* got 'outer'"):
        ids.join(ids, "outer", 1, on=("id",))


def test_splits() -> None:
    rows = ray.data.range(4)
    assert [len(list(part.iter_rows())) for part in rows.streaming_split(2, equal=True)] == [2, 2]
    with pytest.raises(InvalidArgumentError, match="more rows"):
        rows.to_pandas(limit=3)


class _Pair(NamedTuple):
    left: torch.Tensor
    right: str


def test_torch_batches_of_lists_and_of_collated_parts() -> None:
    """As Ray Data makes them."""
    rows = ray.data.from_items([{"v": [1.0, 2.0]}, {"v": [3.0, 4.0]}])
    assert next(rows.iter_torch_batches())["v"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    parts = next(rows.iter_torch_batches(collate_fn=lambda batch: (torch.ones(len(batch["v"])), {"names": ["a"]})))
    assert (parts[0].tolist(), parts[1]) == ([1.0, 1.0], {"names": ["a"]})
    pair = next(rows.iter_torch_batches(collate_fn=lambda batch: _Pair(torch.ones(1), "b")))
    assert (pair.left.tolist(), pair.right) == ([1.0], "b")
    with pytest.raises(InvalidArgumentError, match="collate_fn= or dtypes="):
        next(rows.iter_torch_batches(collate_fn=dict, dtypes=torch.float32))


@pytest.mark.parametrize("batch_format", ["pandas", "numpy"])
def test_added_column_may_be_a_constant_and_replace_one_of_its_name(batch_format: str) -> None:
    rows = ray.data.from_items([{"a": 1, "b": 2}]).add_column("a", lambda b: b["b"] * 5, batch_format=batch_format)
    assert rows.take_all() == [{"a": 10, "b": 2}]
    assert rows.add_column("c", lambda _: "x").take_all() == [{"a": 10, "b": 2, "c": "x"}]


def test_schemas_print_as_in_ray_data() -> None:
    assert repr(ray.data.range(1).schema()) == "Column  Type\n------  ----\nid      int64"


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
    with pytest.raises(InvalidArgumentError, match=r"str\.zfill"):
        expressions.col("x").str.zfill(5)
    with pytest.raises(AttributeError, match=r"ray\.data\.read_snowflake; use read_sql\(\)"):
        ray.data.read_snowflake("table")
    with pytest.raises(AttributeError, match=r"ray\.data\.Datasource; write a Source or Sink"):
        _ = ray.data.Datasource
    with pytest.raises(AttributeError, match=r"Dataset\.to_tf; use iter_batches"):
        ray.data.range(1).to_tf("id", "id")
    with pytest.raises(InvalidArgumentError, match=r"train_test_split\(stratify="):
        ray.data.range(2).train_test_split(0.5, stratify="id")


def test_functions_of_arrays_and_groups(tmp_path: Path) -> None:
    ds = ray.data.from_items([{"x": n} for n in range(1, 5)])

    @expressions.udf(return_dtype=ray.data.DataType.struct([("y", ray.data.DataType.int64())]))
    class Plus:
        def __init__(self, n: int) -> None:
            self.n = n

        def __call__(self, x: pa.ChunkedArray) -> pa.Array:
            return pa.StructArray.from_arrays([pc.add(x.combine_chunks(), self.n)], ["y"])

    added = ds.with_columns(expressions.unnest(Plus(5)(expressions.col("x"))))
    assert added.take(1) == [{"x": 1, "y": 6}]
    added.write_parquet(f"local://{tmp_path}/local")
    assert ray.data.read_parquet(str(tmp_path / "local")).count() == 4
    twice = ds.groupby("x").with_column("y", expressions.col("x") * 2)
    assert twice.select_columns("y").take(1) == [{"y": 2}]
    seed = ray.data.RandomSeedConfig(seed=1)
    assert sorted(row["x"] for row in ds.random_shuffle(seed=seed).take_all()) == [1, 2, 3, 4]


def test_statistics_and_lance(tmp_path: Path) -> None:
    rows = ray.data.range(3)
    assert rows.stats() == ""
    assert "read" in rows.map_batches(lambda batch: batch).materialize().stats()
    rows.write_lance(str(tmp_path / "l"), mode=ray.data.SaveMode.OVERWRITE)
    rows.write_lance(str(tmp_path / "l"), mode=ray.data.SaveMode.APPEND)
    assert ray.data.read_lance(str(tmp_path / "l")).count() == 6


def test_nulls_are_counted_on_request() -> None:
    rows = ray.data.from_items([{"k": 1, "x": 1}, {"k": 1, "x": None}, {"k": 2, "x": 3}])
    assert (rows.sum("x"), rows.sum("x", ignore_nulls=False), rows.max(["k"], ignore_nulls=False)) == (
        4,
        None,
        {"max(k)": 2},
    )
    grouped = rows.groupby("k").mean("x", ignore_nulls=False).take_all()
    assert grouped == [{"k": 1, "mean(x)": None}, {"k": 2, "mean(x)": 3.0}]


def test_importing_the_adapter_changes_no_expression_of_penstock() -> None:
    assert not any(hasattr(ps.Expression, name) for name in ("str", "dt", "struct", "is_not_null", "not_in"))
    built = 2 * abs(expressions.col("x").cast("string").str.len()) > expressions.lit(3)
    assert isinstance(built.if_else("a", "b"), expressions.RayExpression)

    @expressions.udf(return_dtype=DataType.int64())
    class Add:
        def __init__(self, n: int) -> None:
            self.n = n

        def __call__(self, x: pa.ChunkedArray) -> pa.Array:
            return pc.add(x.combine_chunks(), self.n)

    ds = ray.data.range(2).with_column("y", Add(5)(expressions.col("id")).is_not_null())
    assert ds.take_all() == [{"id": 0, "y": True}, {"id": 1, "y": True}]


def test_names_other_adapters_and_parts() -> None:
    numbers = ray.data.range(5)
    numbers.set_name("numbers")
    assert (numbers.name, ray.data.range(1).name, numbers.to_daft().count_rows()) == ("numbers", None, 5)
    assert [row["id"] for row in numbers.repartition(2, keys=["id"], sort=True).take_all()] == [0, 1, 2, 3, 4]
    with pytest.raises(AttributeError, match=r"Dataset\.mix; number the rows"):
        numbers.mix(numbers)
    with pytest.raises(AttributeError, match=r"aggregate\.ApproximateTopK; use ValueCounter"):
        aggregate.ApproximateTopK("id", k=2)


def test_files_of_ray_data(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"t": "2024-01-02", "u": "2024-01-02T10:00:00", "s": "10 h"}\n')
    [row] = ray.data.read_json(str(tmp_path / "t.json")).take_all()
    assert row == {"t": dt.datetime(2024, 1, 2), "u": dt.datetime(2024, 1, 2, 10), "s": "10 h"}

    folder = str(tmp_path / "p")
    ray.data.range(4).write_parquet(folder, filesystem=fs.LocalFileSystem(), max_rows_per_file=1,
                                    arrow_parquet_args_fn=lambda: {"compression": "zstd"})  # fmt: skip
    missing = str(tmp_path / "missing")
    shuffled = ray.data.read_parquet([folder, missing], shuffle=ray.data.FileShuffleConfig(seed=3),
                                     ignore_missing_paths=True)  # fmt: skip
    assert shuffled.sum("id") == 6
    orders = {tuple(row["id"] for row in ray.data.read_parquet(folder, shuffle="files").take_all()) for _ in range(20)}
    assert len(orders) > 1


def test_files_of_some_partitions(tmp_path: Path) -> None:
    from penstock.compat.ray.data.datasource import Partitioning

    ray.data.from_items([{"id": n, "year": 2020 + n} for n in range(4)]).write_parquet(
        str(tmp_path), partition_cols=["year"]
    )
    ds = ray.data.read_parquet(str(tmp_path), partitioning=Partitioning("hive")).filter(expr="year > '2021'")
    assert sorted((row["id"], row["year"]) for row in ds.take_all()) == [(2, "2022"), (3, "2023")]
    with pytest.raises(InvalidArgumentError, match=r"partition_filter=\.\.\.\); use where\(\)"):
        ray.data.read_parquet(str(tmp_path), partition_filter=lambda paths: paths)
    with pytest.raises(InvalidArgumentError, match="only 'hive' partitioning of the whole path"):
        ray.data.read_parquet(str(tmp_path), partitioning=Partitioning("dir", field_names=["year"]))


def test_records_of_avro(tmp_path: Path) -> None:
    import fastavro

    fields = [{"name": "id", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": "string"}}]
    schema = {"type": "record", "name": "row", "fields": [*fields, {"name": "note", "type": ["null", "string"]}]}
    rows = [{"id": 1, "tags": ["a", "b"], "note": None}, {"id": 2, "tags": [], "note": "x"}]
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate")
    assert ray.data.read_avro(str(tmp_path)).take_all() == rows
    (tmp_path / "b.avro").write_bytes((tmp_path / "a.avro").read_bytes()[:-9])
    with pytest.raises(CorruptFileError, match=r"b\.avro is not a whole Avro file"):
        ray.data.read_avro(str(tmp_path / "b.avro"), include_paths=True).take_all()


def test_tables_of_delta_and_iceberg(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    for mode in (ray.data.SaveMode.APPEND, ray.data.SaveMode.OVERWRITE, "append"):
        ray.data.range(2).write_delta(str(tmp_path / "d"), mode=mode)
    assert ray.data.read_delta(str(tmp_path / "d")).count() == 4
    settings = {"name": "c", "type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    catalog = SqlCatalog("c", uri=settings["uri"], warehouse=settings["warehouse"])
    catalog.create_namespace("space")
    catalog.create_table("space.t", schema=pa.schema({"id": pa.int64(), "x": pa.int64()}))
    ray.data.range(3).with_column("x", expressions.col("id") * 2).write_iceberg("space.t", catalog_kwargs=settings)
    some = {"row_filter": "id > 1", "selected_fields": ("x",), "catalog_kwargs": settings}
    assert ray.data.read_iceberg(table_identifier="space.t", **some).take_all() == [{"x": 4}]
    assert ray.data.read_iceberg(table_identifier="space.t", catalog=catalog).count() == 3
    catalog.close()


def test_columns_and_conditions_of_lance(tmp_path: Path) -> None:
    ray.data.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]).write_lance(str(tmp_path / "t"))
    assert ray.data.read_lance(str(tmp_path / "t"), columns=["b"], filter="a > 1").take_all() == [{"b": "y"}]
    with pytest.raises(InvalidArgumentError, match=r"read_lance\(scanner_options="):
        ray.data.read_lance(str(tmp_path / "t"), scanner_options={"limit": 1})


def test_writes_that_delta_lake_refuses_are_write_errors(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    ray.data.range(2).write_delta(table)
    with pytest.raises(WriteError, match="partitioning does not match"):
        ray.data.range(2).write_delta(table, partition_by=["id"])
    with pytest.raises(WriteError, match="exists"):
        ray.data.range(2).write_delta(table, mode=ray.data.SaveMode.CREATE)

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        raise KeyError(row["id"])

    typed = ray.data.range(2).with_column("x", ps.func(fail, return_dtype=DataType.int64())(ps.col("id")))
    with pytest.raises(UdfError, match="failed on row 0"):
        typed.write_delta(table)


def test_options_of_arrow_for_csv_files(tmp_path: Path) -> None:
    """As Ray Data read the same file."""
    (tmp_path / "x.csv").write_text("1;a\n2;b\n")
    options = {
        "parse_options": csv.ParseOptions(delimiter=";"),
        "read_options": csv.ReadOptions(column_names=["q", "r"]),
        "convert_options": csv.ConvertOptions(column_types={"q": pa.float32()}),
    }
    read = ray.data.read_csv(str(tmp_path), **options)
    assert (read.take_all(), str(read.schema.types[0])) == ([{"q": 1.0, "r": "a"}, {"q": 2.0, "r": "b"}], "float")
    with pytest.raises(InvalidArgumentError, match=r"ReadOptions\(skip_rows="):
        ray.data.read_csv(str(tmp_path), read_options=csv.ReadOptions(skip_rows=1))


def test_a_type_of_arrow_is_a_type_of_results() -> None:
    doubled = expressions.udf(return_dtype=pa.int32())(lambda x: pc.multiply(x, 2).cast(pa.int32()))
    ds = ray.data.range(2).with_column("y", doubled(expressions.col("id")))
    assert ds.schema["y"].dtype == ray.data.DataType.int32()
    assert [row["y"] for row in ds.take_all()] == [0, 2]
    with pytest.raises(AttributeError, match=r"use DataType\.from_arrow_type"):
        ray.data.DataType.from_arrow(pa.int32())


def test_stages_of_processors() -> None:
    llm = ray.data.llm
    config = llm.vLLMEngineProcessorConfig(
        model="m", chat_template_stage=llm.ChatTemplateStageConfig(enabled=False, batch_size=4)
    )
    assert not config.has_chat_template
    with pytest.raises(InvalidArgumentError, match=r"TokenizerStageConfig\(model_source="):
        llm.TokenizerStageConfig(model_source="x")
    with pytest.raises(AttributeError, match="start the server and use vLLMEngineProcessorConfig"):
        _ = llm.SGLangEngineProcessorConfig
    with pytest.raises(AttributeError, match=r"llm\.OtherProcessorConfig; docs/guides/migrating"):
        _ = llm.OtherProcessorConfig


def test_verbs_of_two_datasets_after_functions() -> None:
    """The columns that a function gives are not known before it runs."""
    ids = ray.data.range(3)
    tens = ids.map(lambda row: {"id": row["id"], "ten": row["id"] * 10})
    zipped = ids.zip(ids.map(lambda row: {"double": row["id"] * 2})).take(2)
    assert zipped == [{"id": 0, "double": 0}, {"id": 1, "double": 2}]
    joined = tens.join(ids.limit(1), join_type="inner", num_partitions=1, on=("id",))
    assert joined.take_all() == [{"id": 0, "ten": 0}]


def test_schemas_have_arrow_types() -> None:
    schema = ray.data.from_items([{"n": 1, "s": "a"}]).schema()
    assert isinstance(schema, ray.data.Schema)
    assert (schema.names, schema.types) == (["n", "s"], [pa.int64(), pa.string()])
    assert schema.base_schema == pa.schema({"n": pa.int64(), "s": pa.string()})


def test_partitions_are_text_and_empty_fields_are_empty_text(tmp_path: Path) -> None:
    """Ray Data reads them so; ``penstock`` itself finds integers and nulls."""
    for year in ("01", "2"):
        (tmp_path / f"year={year}").mkdir()
        (tmp_path / f"year={year}" / "a.csv").write_text("n,name\n1,\n,b\n")
    rows = ray.data.read_csv(str(tmp_path), partitioning=ray.data.Partitioning("hive")).take(2)
    assert rows == [{"n": 1, "name": "", "year": "01"}, {"n": None, "name": "b", "year": "01"}]
    typed = ray.data.Partitioning("hive", field_types={"year": int})
    assert sorted(ray.data.read_csv(str(tmp_path), partitioning=typed).unique("year")) == [1, 2]
    ray.data.read_csv(str(tmp_path), partitioning=typed).write_parquet(str(tmp_path / "p"), partition_cols=["year"])
    assert sorted(ray.data.read_parquet(str(tmp_path / "p")).unique("year")) == ["1", "2"]
