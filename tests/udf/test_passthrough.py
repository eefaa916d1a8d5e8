"""Columns that a batch function only passes on keep their types and nulls."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
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


MORE_COLUMNS: dict[str, pa.Array] = {
    "integers with a null": pa.array([2**53 + 1, None]),
    "unsigned with a null": pa.array([2**64 - 1, None], pa.uint64()),
    "NaN": pa.array([1.5, math.nan]),
    "NaN and null": pa.array([math.nan, None]),
    "float32 with a null": pa.array([1.5, None], pa.float32()),
    "flags with a null": pa.array([True, None]),
    "no text": pa.array([None, None], pa.string()),
    "no bytes": pa.array([None, None], pa.binary()),
    "no numbers": pa.array([None, None], pa.int32()),
    "decimals": pa.array([Decimal("1.10"), None], pa.decimal128(20, 3)),
    "seconds": pa.array([dt.time(1, 2, 3), None], pa.time32("s")),
    "moments": pa.array([dt.datetime(2026, 1, 2), None], pa.timestamp("s")),
    "fine moments": pa.array([1, None], pa.int64()).cast(pa.timestamp("ns")),
    "durations": pa.array([dt.timedelta(1), None], pa.duration("s")),
    "lists of one length": pa.array([[1, 2], [3, 4]]),
    "lists of texts": pa.array([["a"], ["b", "c"]]),
    "vectors": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    "structs with a null field": pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.int32()), ("b", pa.string())])),
    "fixed bytes": pa.array([b"ab", None], pa.binary(2)),
}
ALL_COLUMNS = {**COLUMNS, **MORE_COLUMNS}
ADDING: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda batch: {**batch, "n": np.arange(len(batch["c"]))},
    "pandas": lambda rows: rows.assign(n=np.arange(len(rows))),
    "pyarrow": lambda rows: rows.append_column("n", pa.array(range(len(rows)))),
    "pylist": lambda rows: [{**row, "n": number} for number, row in enumerate(rows)],
}


@pytest.mark.parametrize("batch_format", ADDING)
@pytest.mark.parametrize("name", ALL_COLUMNS)
def test_a_column_passed_on_is_the_same_column(name: str, batch_format: Any) -> None:
    table = pa.table({"c": ALL_COLUMNS[name]})
    passed = ps.from_arrow(table).map_batches(ADDING[batch_format], batch_format=batch_format).to_arrow()
    assert passed.column("c").type == table.column("c").type
    assert repr(passed.column("c").to_pylist()) == repr(table.column("c").to_pylist())
    assert passed.column("n").to_pylist() == list(range(len(table)))


@pytest.mark.parametrize("name", ["small", "integers with a null", "NaN", "embedding", "lists of one length"])
def test_a_column_of_tensors_passed_on_is_the_same_column(name: str) -> None:
    table = pa.table({"c": ALL_COLUMNS[name]})
    passed = ps.from_arrow(table).map_batches(lambda batch: dict(batch), batch_format="torch").to_arrow()
    assert passed.column("c").type == table.column("c").type
    assert repr(passed.column("c").to_pylist()) == repr(table.column("c").to_pylist())


@pytest.mark.parametrize("name", ["decimals", "moments", "structs with a null field", "embedding", "maps", "no text"])
@pytest.mark.parametrize("verb", ["map", "flat_map"])
def test_rows_passed_on_have_the_same_columns(name: str, verb: str) -> None:
    df, table = ps.from_arrow(pa.table({"c": ALL_COLUMNS[name]})), pa.table({"c": ALL_COLUMNS[name]})
    passed = df.map(lambda row: {**row, "n": 1}) if verb == "map" else df.flat_map(lambda row: [row, row])
    found, times = passed.to_arrow().column("c"), 1 if verb == "map" else 2
    assert found.type == table.column("c").type
    assert repr(found.to_pylist()) == repr([value for value in table.column("c").to_pylist() for _ in range(times)])


def test_rows_that_pandas_picks_keep_their_columns() -> None:
    table = pa.table({"i": [2**53 + 1, None, 3], "l": [[1], [2], [3]], "x": [1, 2, 3]})
    df = ps.from_arrow(table).map_batches(lambda rows: rows[rows["x"] != 2].sort_values("x"), batch_format="pandas")
    assert df.to_arrow().equals(table.take([0, 2]))


def test_what_pandas_changes_is_changed() -> None:
    def change(rows: Any) -> Any:
        rows["i"] = rows["i"].fillna(0)
        rows.loc[0, "f"] = 7.0
        return rows

    table = pa.table({"i": [2**53, None], "f": [math.nan, 1.0], "same": pa.array([None, 1], pa.int8())})
    changed = ps.from_arrow(table).map_batches(change, batch_format="pandas").to_arrow()
    assert changed.to_pydict() == {"i": [2.0**53, 0.0], "f": [7.0, 1.0], "same": [None, 1]}
    assert changed.schema.field("same").type == pa.int8()


def test_a_generator_passes_columns_on() -> None:
    table = pa.table({"c": MORE_COLUMNS["integers with a null"]})
    passed = ps.from_arrow(table).map_batches(lambda batch: iter([batch, dict(batch)])).to_arrow()
    assert passed.equals(pa.concat_tables([table, table]).combine_chunks())


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
