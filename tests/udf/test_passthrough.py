"""Columns that a batch function only passes on keep their types and nulls."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import TypeMismatchError

TOKYO = pa.timestamp("us", "Asia/Tokyo")
COLUMNS: dict[str, pa.Array] = {
    "nullable int": pa.array([2**60 + 1, None]),
    "zoned time": pa.array([dt.datetime(2026, 1, 2, tzinfo=dt.UTC), None], TOKYO),
    "lists": pa.array([[1, None], [3, 4]]),
    "structs": pa.array([{"a": 1}, None]),
    "embedding": pa.ExtensionArray.from_storage(
        ps.DataType.embedding("float32", 2).arrow, pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2))
    ),
    "maps": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
    "text": pa.array(["x", None]),
    "small": pa.array([1, 2], pa.int8()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_passed_on_is_the_same_column(name: str) -> None:
    table = pa.table({"c": COLUMNS[name]})
    passed = ps.from_arrow(table).map_batches(lambda batch: {**batch, "n": np.arange(len(batch["c"]))}).to_arrow()
    assert passed.column("c").type == table.column("c").type
    assert passed.column("c").equals(table.column("c"))
    assert passed.column("n").to_pylist() == [0, 1]


def test_a_column_changed_in_place_is_what_it_was_changed_to() -> None:
    def change(batch: dict[str, Any]) -> dict[str, Any]:
        batch["nullable int"][0] = 5
        batch["lists"][1] = [9]
        return batch

    table = pa.table({name: COLUMNS[name] for name in ("nullable int", "lists")})
    changed = ps.from_arrow(table).map_batches(change).to_pydict()
    assert changed["nullable int"][0] == 5
    assert list(changed["lists"][1]) == [9]


@pytest.mark.parametrize("zero_copy", [True, False])
def test_a_value_changed_in_place_is_what_it_was_changed_to(zero_copy: bool) -> None:
    def change(batch: dict[str, Any]) -> dict[str, Any]:
        batch["structs"][0]["a"] = 5
        batch["maps"][1]["new"] = 6
        if not zero_copy:
            batch["lists"][1][0] = 9
        return batch

    table = pa.table({name: COLUMNS[name] for name in ("structs", "maps", "lists")})
    changed = ps.from_arrow(table).map_batches(change, zero_copy_batch=zero_copy).to_pydict()
    assert changed["structs"] == [{"a": 5}, None]
    assert changed["maps"][1]["new"] == 6
    assert list(changed["lists"][1]) == [3 if zero_copy else 9, 4]


def test_rows_are_kept_by_truth_not_by_text() -> None:
    assert ps.range(3).filter(lambda row: np.bool_(row["id"] > 1)).to_pydict() == {"id": [2]}
    with pytest.raises(TypeMismatchError, match=r"returned .no.; return True to keep"):
        ps.range(3).filter(lambda row: "no").collect()  # type: ignore[arg-type, return-value]
