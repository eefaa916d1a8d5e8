"""A thousand verbs in a chain: programs write them in loops."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps

LENGTH = 1000


def chain(df: ps.DataFrame, verb: Callable[[ps.DataFrame, int], ps.DataFrame], length: int = LENGTH) -> ps.DataFrame:
    for number in range(length):
        df = verb(df, number)
    return df


def independent(df: ps.DataFrame, number: int) -> ps.DataFrame:
    return df.with_column(f"c{number}", ps.col("id") + number)


def dependent(df: ps.DataFrame, number: int) -> ps.DataFrame:
    return df.with_column(f"c{number}", ps.col(f"c{number - 1}" if number else "id") + 1)


def replacing(df: ps.DataFrame, number: int) -> ps.DataFrame:
    return df.with_column("id", ps.col("id") + 1)


def test_a_thousand_new_columns() -> None:
    df = chain(ps.range(2), independent)
    assert df.to_pydict()["c999"] == [999, 1000]


def test_new_columns_after_map_batches() -> None:
    df = chain(ps.range(2).map_batches(lambda batch: batch), independent, 400)
    assert df.count_rows() == 2
    assert df.select("c399").to_pydict() == {"c399": [399, 400]}


def test_columns_that_need_each_other() -> None:
    df = chain(ps.range(2), dependent, 400)
    assert df.to_pydict()["c399"] == [400, 401]


def test_one_column_replaced_a_thousand_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    df = chain(ps.range(2), replacing)
    assert pickle.loads(pickle.dumps(df)).to_pydict() == {"id": [1000, 1001]}
    df.write_parquet(str(tmp_path / "out"), resume=True)
    assert ps.read_parquet(str(tmp_path / "out")).to_pydict() == {"id": [1000, 1001]}
    df.explain()
    assert len(capsys.readouterr().out) < 100_000


def test_columns_after_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    """The columns are not known when the plan is built."""
    df = chain(ps.range(2).map_batches(_same), replacing, 500)
    assert pickle.loads(pickle.dumps(df)).to_pydict() == {"id": [500, 501]}
    df.explain()
    assert "Scan range" in capsys.readouterr().out


def _same(batch: dict[str, object]) -> dict[str, object]:
    return batch
