"""Programs of Ray Data give the adapter's users the results that ``scripts/record_peers.py`` recorded from Ray."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import penstock.compat.ray as ray
from penstock.compat.ray.data import expressions
from penstock.errors import InvalidArgumentError


def test_sql_with_a_connection_factory(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "rows.db")

    connect().execute("create table rows(id, x)")
    ray.data.from_items([{"id": 1, "x": "a"}, {"id": 2, "x": "b"}]).write_sql("insert into rows values (?, ?)", connect)
    assert ray.data.read_sql("select * from rows where id > 1", connect).take_all() == [{"id": 2, "x": "b"}]


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
