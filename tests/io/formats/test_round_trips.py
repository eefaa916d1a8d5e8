"""Values written as JSON or CSV and read with their types are the same values."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import CorruptFileError, TypeMismatchError, WriteError

DATES = [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None]
COLUMNS = {
    "timestamp_ns": pa.array([1, -1, 1_700_000_000_123_456_789, None], pa.timestamp("ns")),
    "timestamp_ns_zoned": pa.array([1, -1, 1_700_000_000_123_456_789, None], pa.timestamp("ns", "Europe/Berlin")),
    "timestamp_us": pa.array([1, -1, -62_135_596_800_000_000, 253_402_300_799_999_999], pa.timestamp("us")),
    "timestamp_us_zoned": pa.array([1, -1, 1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
    "timestamp_ms": pa.array([1, -1, 1_700_000_000_123, None], pa.timestamp("ms")),
    "timestamp_s": pa.array([1, -1, 1_700_000_000, None], pa.timestamp("s")),
    "time_ns": pa.array([1, 86_399_999_999_999, None], pa.time64("ns")),
    "time_us": pa.array([1, 86_399_999_999, None], pa.time64("us")),
    "time_ms": pa.array([1, 86_399_999, None], pa.time32("ms")),
    "time_s": pa.array([1, 86_399, None], pa.time32("s")),
    "duration_ns": pa.array([1, -1, 2**62 + 1, None], pa.duration("ns")),
    "duration_us": pa.array([1, -1, 2**61 + 1, None], pa.duration("us")),
    "duration_ms": pa.array([1, -1, 2**53 + 1, None], pa.duration("ms")),
    "duration_s": pa.array([1, -1, 2**53 + 1, None], pa.duration("s")),
    "date": pa.array(DATES, pa.date32()),
    "decimal": pa.array([Decimal("123456789012345678901234567890.12"), Decimal("-0.01"), None], pa.decimal128(38, 2)),
    "small_decimal": pa.array([Decimal("0.0000000001"), Decimal(-1), None], pa.decimal128(20, 10)),
    "large_decimal": pa.array([Decimal("1234567890123456789012345678901234567890.12"), None], pa.decimal256(60, 2)),
    "uint64": pa.array([2**64 - 1, 0, 2**63, None], pa.uint64()),
    "int64": pa.array([2**63 - 1, -(2**63), 2**53 + 1, None], pa.int64()),
    "float16": pa.array([1.5, 0.1, None], pa.float16()),
    "float32": pa.array([0.1, 1e-45, 3.4e38, None], pa.float32()),
    "float64": pa.array([0.1, 5e-324, 1.7976931348623157e308, -0.0, None], pa.float64()),
    "bool": pa.array([True, False, None]),
    "string": pa.array(["", 'a"b,\n', "null", "1", "\u2028", None]),
}
JSON_COLUMNS = {
    "binary": pa.array([b"", b"\x00\xff", b"abc", None], pa.binary()),
    "fixed_binary": pa.array([b"ab", b"\x00\xff", None], pa.binary(2)),
    "list_of_ns": pa.array([[1, None], [], None, [2]], pa.list_(pa.timestamp("ns"))),
    "list_of_binary": pa.array([[b"\xff", None], [], None], pa.list_(pa.binary())),
    "struct": pa.array(
        [{"t": 1, "d": 5, "b": b"\xff"}, None],
        pa.struct({"t": pa.time64("ns"), "d": pa.duration("ns"), "b": pa.binary()}),
    ),
}


def written_and_read(kind: str, column: pa.Array, folder: Path, schema: dict[str, object] | None) -> pa.Array:
    df = ps.from_arrow(pa.table({"row": range(len(column)), "v": column}))
    getattr(df, f"write_{kind}")(str(folder))
    return getattr(ps, f"read_{kind}")(str(folder), schema=schema).to_arrow()["v"].combine_chunks()


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        *(pytest.param("json", column, id=f"json-{name}") for name, column in (COLUMNS | JSON_COLUMNS).items()),
        *(pytest.param("csv", column, id=f"csv-{name}") for name, column in COLUMNS.items()),
    ],
)
def test_values_come_back_exactly(tmp_path: Path, kind: str, column: pa.Array) -> None:
    found = written_and_read(kind, column[1:], tmp_path / "out", {"v": ps.DataType(column.type)})
    assert found.type == column.type
    assert found.equals(column[1:])


@pytest.mark.parametrize("kind", ["json", "csv"])
@pytest.mark.parametrize("name", ["uint64", "int64", "float64", "bool", "string"])
def test_types_of_json_and_csv_need_no_schema(tmp_path: Path, kind: str, name: str) -> None:
    found = written_and_read(kind, COLUMNS[name], tmp_path / "out", None)
    assert found.type == COLUMNS[name].type
    assert found.equals(COLUMNS[name])


@pytest.mark.parametrize(("kind", "expected"), [("json", [None] * 3), ("csv", ["nan", "inf", "-inf"])])
def test_json_has_no_nan_and_no_infinity(tmp_path: Path, kind: str, expected: list[str | None]) -> None:
    found = written_and_read(kind, pa.array([math.nan, math.inf, -math.inf]), tmp_path / "out", {"v": "float64"})
    assert [value and str(value) for value in found.to_pylist()] == expected


@pytest.mark.parametrize("name", JSON_COLUMNS)
def test_csv_refuses_other_types_before_it_reads(tmp_path: Path, name: str) -> None:
    with pytest.raises(TypeMismatchError, match="does not fit into CSV"):
        written_and_read("csv", JSON_COLUMNS[name], tmp_path / "out", None)


def test_a_time_after_the_year_9999_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"JSON cannot hold a value: .*out of range"):
        written_and_read("json", pa.array([2**40], pa.timestamp("s")), tmp_path / "out", None)


def test_text_that_is_not_base64_is_no_binary(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"v": "?"}')
    with pytest.raises(CorruptFileError, match=r"x\.json': '\?' is not base64, the form of bytes in JSON"):
        ps.read_json(tmp_path / "x.json", schema={"v": "binary"}).to_arrow()
