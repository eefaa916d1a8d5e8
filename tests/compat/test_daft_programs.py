"""Programs of Daft run with the import line changed, and what the adapter cannot honour is refused by name."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock.compat.daft as daft
from penstock.compat.daft import DataType, col
from penstock.errors import InvalidArgumentError, TypeMismatchError, WriteError


def test_parameters_of_daft(tmp_path: Path) -> None:
    df = daft.from_pydict({"a": [1, 2, 3], "l": [[1, 2], [], None]})
    config = daft.IOConfig(s3=daft.io.S3Config(region_name="eu-west-1", anonymous=True))
    for _ in range(2):  # Daft appends
        df.write_parquet(root_dir=str(tmp_path / "p"), io_config=None, write_mode="append")
    assert daft.read_parquet(str(tmp_path / "p"), io_config=config).count_rows() == 6
    with pytest.raises(InvalidArgumentError, match=r"DataFrame\.explode\(index_column="):
        df.explode("l", index_column="i")
    assert daft.concat([df, df]).collect(num_preview_rows=2).count_rows() == 6
    assert daft.range(1, 5, 2, partitions=2).to_pydict() == {"id": [1, 3]}
    assert next(df.to_arrow_iter(results_buffer_size=1)).num_rows == 3
    assert df.count(df["*"]).to_pydict() == {"a": [3], "l": [2]}
    assert df.select(df[0]).columns == ["a"]
    assert df.select(df[-1]).columns == ["l"]
    assert isinstance(df.groupby("a").agg(col("a").count().alias("n")), daft.DataFrame)


def test_legacy_udfs() -> None:
    @daft.udf(return_dtype=DataType.int64())
    def plus_one(x: Any) -> list[int]:
        return [value + 1 for value in x.to_pylist()]

    @daft.udf(return_dtype=DataType.int64(), concurrency=1, batch_size=2)
    class Plus:
        def __init__(self, n: int = 5) -> None:
            self.n = n

        def __call__(self, x: Any) -> list[int]:
            return [value + self.n for value in x.to_pylist()]

    df = daft.from_pydict({"a": [1, 2, 3]})
    found = df.select(
        plus_one(col("a")).alias("f"), Plus(col("a")).alias("c"), Plus.with_init_args(10)(col("a")).alias("d")
    )
    assert found.to_pydict() == {"f": [2, 3, 4], "c": [6, 7, 8], "d": [11, 12, 13]}
    smaller = Plus.override_options(batch_size=1).with_concurrency(2)
    assert df.select(smaller(col("a"))).to_pydict() == {"a": [6, 7, 8]}


def test_groups_windows_and_modules_of_daft() -> None:
    from penstock.compat.daft.window import Window

    df = daft.from_pydict({"g": ["x", "x", "y"], "v": [1, 5, 2], "d": [dt.date(2024, 1, day) for day in (1, 2, 9)]})
    pair = Window().order_by("d").rows_between(-1, 0)
    assert df.select("d", col("v").sum().over(pair).alias("s")).sort("d").to_pydict()["s"] == [1, 6, 7]
    with pytest.raises(InvalidArgumentError, match="map_groups takes a function"):
        df.groupby("g").map_groups(df["v"])


def test_behaviour_of_daft(tmp_path: Path) -> None:
    from penstock.compat.daft.ai.utils import RetryAfterError

    @daft.func(max_retries=1, on_error="log")
    def waiting(n: int) -> int:
        raise RetryAfterError(retry_after=0.0, original=KeyError(n))

    assert (waiting.max_retries, waiting.on_error, waiting.use_process) == (1, "log", None)
    frame = daft.from_pydict({"n": [1]}).select(waiting(col("n"))).collect()
    assert "after 0 s: 1" in frame.errors().to_pydict()["message"][0]

    (tmp_path / "_10%.txt").write_text("x")
    [url] = daft.from_glob_path(str(tmp_path)).to_pydict()["path"]
    assert url == f"file://{tmp_path}/_10%25.txt"
    assert daft.from_pydict({"u": [url]}).select(col("u").download()).to_pydict() == {"u": [b"x"]}
    copy = daft.from_pydict({"d": [b"y"]}).select(col("d").upload(str(tmp_path / "up"))).to_pydict()["d"][0]
    assert copy.startswith(f"file://{tmp_path}/up/")

    df = daft.from_pydict({"t": [dt.datetime(2024, 1, 2)], "v": [3], "f": ["1.5"], "b": ["true"]})
    df.write_parquet(
        str(tmp_path / "p"), partition_cols=[col("t").date().alias("t_days"), (col("v") % 2).alias("m"), "f", "b"]
    )
    found = daft.read_parquet(str(tmp_path / "p"), hive_partitioning=True).to_pydict()
    expected = {"t": [dt.datetime(2024, 1, 2)], "v": [3], "t_days": [dt.date(2024, 1, 2)]}
    assert found == {**expected, "m": [1], "f": [1.5], "b": [True]}
    with pytest.raises(InvalidArgumentError, match="would replace column 'v'; name it"):
        df.write_parquet(str(tmp_path / "q"), partition_cols=[col("v") % 2])

    (tmp_path / "empty.json").touch()
    (tmp_path / "one.json").write_text('{"a": 1}')
    assert daft.read_json(f"{tmp_path}/*.json", skip_empty_files=True).to_pydict() == {"a": [1]}


def test_schemas_files_and_counters(tmp_path: Path) -> None:
    @daft.func
    def size(file: daft.File) -> int:
        daft.metrics.increment_counter("files", amount=2)
        return file.size() if isinstance(file, daft.File) else -1

    (tmp_path / "a.txt").write_text("hello")
    df = daft.from_pydict({"path": [str(tmp_path / "a.txt")]}).select(size(col("path"))).collect()
    assert df.metrics is not None
    figures = dict(df.metrics.to_pydict()["stats"][-1])
    assert (df.to_pydict(), figures["files"]["value"]) == ({"path": [5]}, 2)
    assert daft.File(str(tmp_path / "a.txt"), io_config=None).read() == b"hello"
    png = daft.File(b"\x89PNG\r\n\x1a\n")
    assert (png.mime_type(), daft.File("a.mp4").mime_type()) == ("image/png", "video/mp4")
    daft.from_pydict({"a": [1]}).write_parquet(str(tmp_path / "p"))
    with daft.execution_config_ctx(default_morsel_size=10):
        assert daft.io.read_parquet(str(tmp_path / "p")).schema().names == ["a"]
    with pytest.raises(AttributeError, match=r"daft\.read_blob; use from_glob_path"):
        daft.read_blob(str(tmp_path))


def test_files_of_text(tmp_path: Path) -> None:
    df = daft.from_pydict({"a": [1], "d": [dt.date(2024, 1, 2)]})
    df.write_csv(str(tmp_path / "c"), delimiter="|", header=False, quote=None)
    df.with_column("d", daft.functions.strftime(col("d"), "%Y")).write_json(root_dir=str(tmp_path / "j"))
    texts = [next((tmp_path / folder).glob("*.*")).read_text() for folder in "cj"]
    assert texts == ["1|2024-01-02\n", '{"a":1,"d":"2024"}\n']


def test_delta_tables(tmp_path: Path) -> None:
    df = daft.from_pydict({"a": [1, 2], "g": ["x", "y"]})
    for mode in ("append", "append", "overwrite"):
        df.write_deltalake(str(tmp_path), mode=mode, partition_cols=["g"])
    assert daft.read_deltalake(str(tmp_path)).sort("a").to_pydict() == {"a": [1, 2], "g": ["x", "y"]}
    store = daft.io.S3Config(endpoint_url="http://127.0.0.1:1", region_name="x", key_id="k", access_key="hidden")
    with pytest.raises(WriteError, match="Cannot write the Delta table 's3://bucket/t'"):
        df.write_deltalake("s3://bucket/t", io_config=daft.IOConfig(s3=store))


def test_sql_sees_frames_of_the_caller_and_by_name() -> None:
    frame = daft.from_pydict({"a": [1, 2]})
    assert daft.sql("select sum(a) as s from frame").to_pydict() == {"s": [3]}
    assert daft.sql("select max(a) as m from t", t=frame).to_pydict() == {"m": [2]}
    with pytest.raises(AttributeError, match=r"daft\.Session; give DataFrames by name"):
        daft.Session()
    with pytest.raises(AttributeError, match=r"daft\.Catalog; use the library of the catalog"):
        daft.Catalog.from_pydict({})


def test_expressions_of_daft() -> None:
    assert (col("a").is_column(), daft.lit(5).as_py(), col("a").column_name()) == (True, 5, "a")
    df = daft.from_pydict({"a": ["1", None]})
    found = df.select(
        col("a").cast("int64").alias("i"),
        col("a").apply(lambda value: f"{value}!", return_dtype=DataType.string()).alias("p"),
        col("a").coalesce("none").alias("c"),
    )
    assert found.to_pydict() == {"i": [1, None], "p": ["1!", "None!"], "c": ["1", "none"]}
    df = daft.from_pydict({"l": [["a", "b", "a"]], "b": [b"Hello"]})
    counted = df.select(daft.functions.value_counts(col("l")), col("b").slice(1, -1))
    assert counted.to_pydict() == {"l": [[("a", 2), ("b", 1)]], "b": [b"ell"]}
    assert counted.to_pylist(maps_as_pydicts="strict")[0] == {"l": {"a": 2, "b": 1}, "b": b"ell"}
    twice = daft.from_arrow(pa.table({"m": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))}))
    with pytest.raises(KeyError, match="k"):
        twice.to_pydict(maps_as_pydicts="strict")
    with pytest.raises(InvalidArgumentError, match="maps_as_pydicts='loose'; use 'lossy' or 'strict'"):
        twice.to_pydict(maps_as_pydicts="loose")


def test_what_cannot_be_honoured_is_refused_by_name(tmp_path: Path) -> None:
    df = daft.from_pydict({"a": [1]})
    with pytest.raises(InvalidArgumentError, match=r"DataFrame\.write_csv\(partitions="):
        df.write_csv(str(tmp_path), partitions=2)
    with pytest.raises(AttributeError, match=r"daft\.read_hudi"):
        daft.read_hudi("table")
    with pytest.raises(AttributeError, match=r"DataFrame\.write_paimon; left out on purpose"):
        df.write_paimon("table")
    with pytest.raises(AttributeError, match=r"daft\.with_subscriber; events have other shapes"):
        daft.with_subscriber("name", object())


def test_explain_never_runs_the_query(capsys: pytest.CaptureFixture[str]) -> None:
    """The first parameter of Daft's ``explain`` is ``show_all``, and ours runs the query."""

    def fail(batch: object) -> object:
        raise AssertionError("it ran")

    df = daft.from_pydict({"x": [1]}).map_batches(fail)
    df.explain(True)
    assert "map_batches fail" in capsys.readouterr().out
    with pytest.raises(InvalidArgumentError, match="explain"):
        df.explain(format="mermaid")


def test_a_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="checkpoint_config"):
        daft.from_pydict({"x": [1]}).write_parquet(str(tmp_path), checkpoint_config=object())


def test_intervals_in_files(tmp_path: Path) -> None:
    df = daft.from_arrow(pa.table({"i": pa.array([pa.MonthDayNano([1, 2, 1_500_000_000]), None])}))
    for write in (df.write_csv, df.write_parquet):
        with pytest.raises(TypeMismatchError, match="Column 'i' of type month_day_nano_interval does not fit"):
            write(str(tmp_path))
    assert df.select(col("i").cast("string")).to_pydict() == {"i": ["P1M2DT1.5S", None]}


def test_a_refused_name_has_a_remedy() -> None:
    with pytest.raises(AttributeError, match="use the library of the catalog"):
        daft.Identifier  # noqa: B018
    with pytest.raises(ImportError):
        exec("from penstock.compat.daft import Identifier")
    assert not hasattr(daft, "Identifier")


def test_providers_have_their_modules() -> None:
    found: dict[str, Any] = {}
    exec("from penstock.compat.daft.ai.openai.provider import OpenAIProvider", found)
    assert found["OpenAIProvider"](name="mine", api_key="key").name == "mine"
