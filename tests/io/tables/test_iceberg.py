"""Iceberg tables in a SQLite catalog, written by PyIceberg itself."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError, OutputExistsError, PathNotFoundError, ReadError
from penstock.io.tables.iceberg import iceberg_source
from penstock.protocols import Condition, ReadRequest
from tests.io.helpers import read_rows


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Any]:
    """Two snapshots: rows 1 and 2, then row 3."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("space")
    made = catalog.create_table("space.words", schema=pa.schema({"a": pa.int64(), "s": pa.string()}))
    made.append(pa.table({"a": [1, 2], "s": ["x", None]}))
    made.append(pa.table({"a": [3], "s": ["z"]}))
    yield made
    catalog.close()


def test_rows_of_a_snapshot(table: Any) -> None:
    found = ps.read_iceberg(table)
    assert sorted(found.to_pydict()["a"]) == [1, 2, 3]
    assert found.count_rows() == 3
    first = table.snapshots()[0].snapshot_id
    assert ps.read_iceberg(table, snapshot_id=first).to_pydict() == {"a": [1, 2], "s": ["x", None]}
    assert ps.read_iceberg(table.metadata_location).count_rows() == 3
    table.manage_snapshots().create_tag(first, "early").commit()
    assert ps.read_iceberg(table, tag="early").count_rows() == 2


def test_columns_filters_and_limits(table: Any) -> None:
    found = ps.read_iceberg(table)
    col = ps.col
    assert found.where(col("a") > 2).select("s").to_pydict() == {"s": ["z"]}
    assert found.where(col("s").is_null()).to_pydict() == {"a": [2], "s": [None]}
    assert sorted(found.where(~(col("s") == "x") | (col("a") == 2)).to_pydict()["a"]) == [2, 3]
    assert len(found.limit(1).to_pydict()["a"]) == 1


def test_files_that_cannot_match_are_not_read(table: Any) -> None:
    source = iceberg_source(table)
    assert len(list(source.read_tasks(ReadRequest()))) == 2
    assert len(list(source.read_tasks(ReadRequest(conditions=(Condition("a", ">=", 3),))))) == 1
    assert len(list(source.read_tasks(ReadRequest(conditions=(Condition("s", "in", ("z", "q")),))))) == 1
    assert len(list(source.read_tasks(ReadRequest(conditions=(Condition("s", "is null"),))))) == 1
    assert len(list(source.read_tasks(ReadRequest(limit=1)))) == 1


def test_tasks_travel(table: Any) -> None:
    assert sorted(row["a"] for row in read_rows(iceberg_source(table))) == [1, 2, 3]


def test_tasks_hold_no_secrets(table: Any) -> None:
    source = iceberg_source(table.metadata_location, storage_options={"s3.secret-access-key": "wJalrXUtnFEMI"})
    for task in source.read_tasks(ReadRequest()):
        assert b"wJalrXUtnFEMI" not in pickle.dumps(task)
        assert sum(batch.num_rows for batch in pickle.loads(pickle.dumps(task)).read()) > 0


def test_rows_deleted_and_columns_added_later(table: Any) -> None:
    from pyiceberg.types import LongType

    table.delete("a = 1")
    with table.update_schema() as update:
        update.add_column("n", LongType())
    table.refresh()
    assert sorted(ps.read_iceberg(table).to_pylist(), key=lambda row: row["a"]) == [
        {"a": 2, "s": None, "n": None},
        {"a": 3, "s": "z", "n": None},
    ]


def test_mistakes_say_what_is_wrong(table: Any, tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="There is no Iceberg table"):
        ps.read_iceberg(tmp_path / "missing.metadata.json")
    with pytest.raises(InvalidArgumentError, match="no branch or tag 'nightly'; known: main"):
        ps.read_iceberg(table, branch="nightly")
    with pytest.raises(InvalidArgumentError, match="one of snapshot_id, branch and tag"):
        ps.read_iceberg(table, branch="main", tag="x")
    with pytest.raises(ReadError, match="Cannot read the Iceberg table"):
        ps.read_iceberg(table, snapshot_id=1).collect()


def test_rows_are_written_in_one_commit(table: Any) -> None:
    df = ps.from_pydict({"a": [7], "s": ["new"]})
    before = ps.read_iceberg(table).count_rows()
    with pytest.raises(OutputExistsError, match="has rows; use mode='append'"):
        df.write_iceberg(table)
    assert len(df.write_iceberg(table, mode="append").to_pydict()["path"]) == 1
    assert ps.read_iceberg(table).count_rows() == before + 1
    df.write_iceberg(table, mode="overwrite")
    assert ps.read_iceberg(table).to_pydict() == df.to_pydict()
