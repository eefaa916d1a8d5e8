"""Results and errors of the Daft adapter that Daft 0.7.26 gave for the same programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
import penstock.compat.daft as daft
from penstock.compat.daft import DataType, col
from penstock.compat.daft.functions import count, to_list
from penstock.errors import CorruptFileError


def frame() -> daft.DataFrame:
    return daft.from_pydict({"g": [1, 1, 2], "x": [1, None, 3], "s": ["a", "b", None]})


def test_rows_are_counted_without_a_column() -> None:
    df = frame()
    rows = count(mode="all")
    assert df.agg(rows).to_pydict() == {"g": [3], "x": [3], "s": [3]}
    assert df.agg(rows.alias("n"), col("x").sum()).to_pydict() == {"n": [3], "x": [4]}
    assert df.agg([col("*").count()]).to_pydict() == {"g": [3], "x": [2], "s": [2]}
    assert df.where(col("x") > 5).agg(rows.alias("n")).to_pydict() == {"n": [0]}
    by_key = df.groupby("g")
    assert by_key.agg(rows.alias("n"), col("x").sum()).sort("g").to_pydict() == {"g": [1, 2], "n": [2, 1], "x": [1, 3]}
    assert df.groupby("g", "s").agg(rows).to_pydict()["x"] == [1, 1, 1]
    over = rows.over(daft.Window().partition_by("g")).alias("n")
    assert df.select("g", over).sort("g").to_pydict() == {"g": [1, 1, 2], "n": [2, 2, 1]}
    assert df.agg(count(col("x"), "null")).to_pydict() == {"x": [1]}
    with pytest.raises(ValueError, match="mode='all'"):
        count()


def test_tensors_divide() -> None:
    tensors = {"a": [np.array([[1, 2], [3, 4]]), None], "b": [np.array([[2, 4], [0, 8]])] * 2}
    df = daft.from_pydict(tensors)
    for name in ("float32", "int64", "uint8"):
        dtype = DataType.tensor(name, (2, 2))
        typed = df.select(col("a").cast(dtype), col("b").cast(dtype)).select((col("a") / col("b")).alias("r"))
        assert typed.schema["r"].dtype == DataType.tensor("float64", (2, 2))
        quotient, missing = typed.to_pydict()["r"]
        assert (quotient.tolist(), missing) == ([[0.5, 0.5], [float("inf"), 0.5]], None)
    halves = df.select((col("a") / 2).alias("r"), (col("a") / ps.lit(None)).alias("n")).to_pydict()
    assert (halves["r"][0].tolist(), halves["n"]) == ([[0.5, 1.0], [1.5, 2.0]], [None, None])
    vectors = daft.from_pydict({"e": [[1.0, 2.0]]}).select(col("e").cast(DataType.embedding("float32", 2)))
    assert str(vectors.select(col("e") / col("e")).schema["e"].dtype) == "embedding[float64; 2]"


def test_metrics_are_a_table_of_the_stages() -> None:
    df = frame().where(col("x") > 0)
    with pytest.raises(ValueError, match=r"after collect\(\)"):
        _ = df.metrics
    metrics = df.collect().metrics
    assert metrics is not None
    assert metrics.schema.to_arrow() == pa.schema(
        [
            ("id", pa.uint64()), ("name", pa.string()), ("type", pa.string()), ("category", pa.string()),
            ("duration", pa.duration("ms")),
            ("stats", pa.map_(pa.string(), pa.struct([("value", pa.float64()), ("unit", pa.string())]))),
        ]
    )  # fmt: skip
    rows = metrics.to_pylist()
    assert (len(metrics), rows[0]["id"], rows[0]["category"]) == (len(rows), 0, "Source")
    assert dict(rows[-1]["stats"])["rows.out"] == {"value": 2.0, "unit": None}
    assert frame().metrics is None


def test_results_of_writes(tmp_path: Path) -> None:
    df = frame()
    for write in (df.write_parquet, df.write_csv, df.write_json):
        written = write(str(tmp_path / write.__name__))
        assert (written.column_names, len(written)) == (["path"], 1)
        assert "path" in repr(written)
    parts = df.write_parquet(tmp_path / "p", partition_cols=["g", "s"])
    assert (len(parts), parts.schema.to_arrow().types) == (3, [pa.string(), pa.int64(), pa.string()])
    assert parts.sort(["g", "s"]).to_pydict()["s"] == ["a", "b", None]
    computed = df.write_parquet(str(tmp_path / "c"), partition_cols=[(col("g") * 2).alias("k")])
    assert sorted(computed.to_pydict()["k"]) == [2, 4]
    unknown = df.map_batches(lambda batch: batch).write_parquet(str(tmp_path / "u"), partition_cols="g")
    assert sorted(unknown.to_pydict()["g"]) == [1, 2]
    assert len(df.where(col("g") > 9).write_parquet(str(tmp_path / "e"))) == 1


def test_results_of_writes_to_tables(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    df = daft.from_pydict({"a": [1, 2]})
    catalog = SqlCatalog("ice", uri=f"sqlite:///{tmp_path / 'c.db'}", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("space")
    table = catalog.create_table("space.t", schema=pa.schema({"a": pa.int64()}))
    writes = [
        lambda mode: df.write_deltalake(str(tmp_path / "d"), mode=mode),
        lambda mode: df.write_iceberg(table, mode),
    ]
    for write in writes:
        added, replaced = write("append"), write("overwrite").to_pydict()
        assert (added.column_names, len(added)) == (["operation", "rows", "file_size", "file_name"], 1)
        assert (added.to_pydict()["operation"], added.to_pydict()["rows"]) == (["ADD"], [2])
        assert (replaced["operation"], replaced["rows"]) == (["ADD", "DELETE"], [2, 2])
        assert replaced["file_name"][1] == added.to_pydict()["file_name"][0]
    catalog.close()


def test_ranges_with_partitions_and_names_of_lists() -> None:
    assert daft.range(0, 10, 2, 3).to_pydict() == {"id": [0, 2, 4, 6, 8]}
    assert daft.range(1, end=9, step=3, partitions=2).to_pydict() == {"id": [1, 4, 7]}
    df = frame().limit(1)
    assert df.select(to_list(col("g"), col("x"))).to_pydict() == {"list": [[1, 1]]}
    assert df.select(to_list(1, col("x")).alias("q")).column_names == ["q"]


@pytest.mark.parametrize(
    "call",
    [
        lambda: bool(col("x") > 1),
        lambda: frame().where(col("x").is_in(5)),
        lambda: DataType.fixed_size_list("int64", -1),
        lambda: DataType.fixed_size_binary(-1),
    ],
)
def test_arguments_that_daft_refuses_with_a_value_error(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the class is what is tested
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: frame().join(frame(), on="x", how="bad"),
        lambda: frame().write_parquet("unused", write_mode="bad"),
        lambda: frame().write_csv("unused", write_mode="bad"),
        lambda: daft.from_pydict([1]),
        lambda: frame().select(5),
        lambda: daft.func(5),
        lambda: frame().show(1, format="zz"),
        lambda: list(frame().iter_rows(column_format="zz")),
    ],
)
def test_arguments_that_daft_refuses_with_a_type_error(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        call()


def test_a_file_that_cannot_be_parsed_is_a_value_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a"')
    with pytest.raises(ValueError, match="not valid JSON") as caught:
        daft.read_json(str(tmp_path / "a.json")).collect()
    assert isinstance(caught.value, CorruptFileError)
