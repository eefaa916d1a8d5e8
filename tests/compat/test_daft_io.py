"""Readers, writers, tables and files of Daft's adapter; expected rows are those that Daft gave for the same files."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
import penstock.compat.daft as daft
from penstock.compat.daft import col
from penstock.errors import InvalidArgumentError


def test_whole_files_and_settings_of_stores(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    config = daft.IOConfig(s3=daft.io.S3Config(region_name="eu-west-1", num_tries=3, key_id="k", access_key="s"))
    assert config.storage_options() == {"region": "eu-west-1", "key": "k", "secret": "s"}
    web = daft.IOConfig(http=daft.io.HTTPConfig(bearer_token="t"))
    assert web.storage_options() == {"headers": {"Authorization": "Bearer t"}}
    with pytest.raises(InvalidArgumentError, match=r"S3Config\(verify_ssl="):
        daft.io.S3Config(verify_ssl=False)
    url = f"file://{tmp_path}/a.bin"
    df = daft.from_pydict({"u": [url]})
    read = df.select(col("u").download(io_config=config).alias("d"), col("u").file().file_size())
    assert read.to_pydict() == {"d": [b"abc"], "u": [3]}


def test_results_of_daft() -> None:
    df = daft.from_pydict({"x": [1, 2, 3], "t": [dt.datetime(2024, 1, 1)] * 3})
    assert [row["x"] for row in df.iter_rows(results_buffer_size=1)] == [1, 2, 3]
    assert df.repartition(None, "x").to_pydict(maps_as_pydicts="lossy")["x"] == [1, 2, 3]


def test_iceberg_tables(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    iceberg = SqlCatalog("ice", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=f"file://{tmp_path}")
    iceberg.create_namespace("space")
    table = iceberg.create_table("space.words", schema=pa.schema({"a": pa.int64()}))
    df = daft.from_pydict({"a": [1, 2]})
    for mode in ("append", "append", "overwrite"):
        df.write_iceberg(table, mode=mode)
    assert sorted(daft.read_iceberg(table).to_pydict()["a"]) == [1, 2]
    iceberg.close()


def test_providers_and_models() -> None:
    asked: list[Any] = []

    class Echo(ps.Provider):
        name = "echo"

        def model(self, task: Any) -> Any:
            asked.append(task.model)
            raise InvalidArgumentError("no model")

    daft.attach_provider(Echo())
    try:
        with pytest.raises(InvalidArgumentError, match="no model"):
            daft.functions.prompt(col("t"), provider="echo", model="tiny")
        assert asked == ["tiny"]
    finally:
        daft.detach_provider("echo")
    with pytest.raises(AttributeError, match="name the model in the function"):
        daft.set_model("tiny")


def test_types() -> None:
    assert isinstance(ps.DataType.int64(), daft.DataType)
