"""Delta Lake tables, written by deltalake itself."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import PathNotFoundError, ReadError
from penstock.io.tables.deltalake import delta_source
from penstock.protocols import Condition, ReadRequest
from tests.io.helpers import requested


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two versions: three rows in two partitions, then one more in a third."""
    path = tmp_path / "table"
    deltalake.write_deltalake(path, pa.table({"a": [1, 2, 3], "p": ["x", "y", "x"]}), partition_by=["p"])
    deltalake.write_deltalake(path, pa.table({"a": [4], "p": ["z"]}), mode="append")
    return path


def test_rows_of_a_version(table: Path) -> None:
    found = ps.read_deltalake(table)
    assert sorted(found.to_pydict()["a"]) == [1, 2, 3, 4]
    assert found.count_rows() == 4
    assert ps.read_deltalake(table, version=0).count_rows() == 3
    assert ps.read_deltalake(deltalake.DeltaTable(table)).schema == found.schema


def test_columns_filters_and_limits(table: Path) -> None:
    found = ps.read_deltalake(str(table))
    assert found.where((ps.col("p") == "x") & (ps.col("a") > 1)).select("a").to_pydict() == {"a": [3]}
    assert found.where(ps.col("a") < 2).select("p").to_pydict() == {"p": ["x"]}
    assert len(found.limit(1).to_pydict()["a"]) == 1


def test_files_that_cannot_match_are_not_read(table: Path) -> None:
    source = delta_source(table)
    found = {("p", "=", "z"): [1], ("a", ">", 3): [1], ("a", ">", 9): []}
    for condition, expected in found.items():
        tasks = source.read_tasks(requested(source, Condition(*condition)))
        assert [task.num_rows for task in tasks] == expected
    assert len(list(source.read_tasks(ReadRequest(limit=1)))) == 1


def test_filters_on_a_column_that_was_added_later(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"i": [1, 2]}))
    deltalake.write_deltalake(tmp_path, pa.table({"i": [3], "new": ["n"]}), mode="append", schema_mode="merge")
    found, new = ps.read_deltalake(tmp_path), ps.col("new")
    for predicate, expected in (
        (new.is_null(), [1, 2]),
        (new.is_null() | (ps.col("i") == 3), [1, 2, 3]),
        (new.is_null() & (ps.col("i") > 1), [2]),
        (new == "n", [3]),
        (new.not_null(), [3]),
    ):
        assert sorted(found.where(predicate).to_pydict()["i"]) == expected
    deltalake.DeltaTable(tmp_path).alter.add_columns(deltalake.Field("later", "long"))
    assert ps.read_deltalake(tmp_path).where(ps.col("later").is_null()).count_rows() == 3


def test_rows_deleted_from_the_table_are_gone(table: Path) -> None:
    deltalake.DeltaTable(table).delete("a = 3")
    assert sorted(ps.read_deltalake(table).to_pydict()["a"]) == [1, 2, 4]


def test_mistakes_say_what_is_wrong(table: Path, tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="There is no Delta table"):
        ps.read_deltalake(tmp_path / "missing")
    with pytest.raises(ReadError, match="Cannot read the Delta table"):
        ps.read_deltalake(table, version=99)
    for file in table.rglob("*.parquet"):
        file.write_bytes(b"not parquet")
    with pytest.raises(ReadError, match="Cannot read the Delta table"):
        ps.read_deltalake(table).collect()
