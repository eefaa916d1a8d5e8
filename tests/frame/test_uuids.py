"""Columns of UUIDs are read as text."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock import DataType, col
from penstock.functions import decode, replace, upper

KEYS = [uuid.UUID(int=2), uuid.UUID(int=1), None]
TEXTS = [str(uuid.UUID(int=2)), str(uuid.UUID(int=1)), None]
COLUMN = pa.array([None if key is None else key.bytes for key in KEYS], pa.uuid())
UUID = DataType.string()


def test_values_are_text(tmp_path: Path) -> None:
    for part in range(2):
        pq.write_table(pa.table({"u": COLUMN, "n": [1, 2, 3]}), tmp_path / f"{part}.parquet")
    for df in (ps.from_arrow(pq.read_table(tmp_path / "0.parquet")), ps.read_parquet(tmp_path / "0.parquet").collect()):
        assert df.schema["u"].dtype == UUID
        assert df.to_pydict()["u"] == TEXTS
        ordered = df.where(col("n") < 3).select(col("u").alias("v"), "n").sort("v")
        assert (ordered.schema["v"].dtype, ordered.to_pydict()["n"]) == (UUID, [2, 1])
        counted = ps.read_parquet(tmp_path).groupby("u").agg(col("n").sum(), col("u").list_agg().alias("all")).sort("n")
        assert counted.schema["u"].dtype == UUID
        assert counted.to_pydict()["all"] == [[TEXTS[0]] * 2, [TEXTS[1]] * 2, [None, None]]
        joined = df.join(ps.from_pydict({"u": [TEXTS[0]], "x": [7]}), on="u")
        assert (joined.schema["u"].dtype, joined.to_pydict()) == (UUID, {"u": [TEXTS[0]], "n": [1], "x": [7]})
        assert df.concat(df).schema["u"].dtype == UUID


def test_uuids_in_lists_and_structs_are_text(tmp_path: Path) -> None:
    nested = pa.table(
        {"l": pa.ListArray.from_arrays([0, 1, 1, 3], COLUMN), "s": pa.StructArray.from_arrays([COLUMN], ["a"])}
    )
    pq.write_table(nested, tmp_path / "0.parquet")
    df = ps.read_parquet(tmp_path)
    lists = [[TEXTS[0]], [], [TEXTS[1], None]]
    assert df.sort("l").to_pydict() == {"l": [[], lists[2], lists[0]], "s": [{"a": TEXTS[n]} for n in (1, 2, 0)]}
    assert df.explode("l").to_pydict()["l"] == [TEXTS[0], None, TEXTS[1], None]
    assert [list(each) for each in df.to_pandas()["l"]] == lists
    df.write_json(tmp_path / "json")
    assert ps.read_json(tmp_path / "json").to_pydict()["l"] == lists


def test_functions_take_the_text(tmp_path: Path) -> None:
    df = ps.from_arrow(pa.table({"u": COLUMN}))
    loud = df.where(col("u") == TEXTS[0]).select(upper(col("u")))
    assert (loud.schema["u"].dtype, loud.to_pydict()) == (DataType.string(), {"u": [TEXTS[0]]})
    assert df.where(col("u").is_in([KEYS[0]])).count_rows() == 1
    assert df.select(col("u").cast("string")).schema["u"].dtype == DataType.string()
    assert df.select(decode(replace(col("u"), "-", ""), "hex")).to_pydict()["u"][0] == KEYS[0].bytes  # type: ignore[union-attr]


def test_functions_make_uuids() -> None:
    @ps.func
    def key(number: int) -> uuid.UUID:
        return uuid.UUID(int=number)

    made = ps.range(2).select(key(col("id")).alias("u"))
    assert (made.schema["u"].dtype, made.to_pydict()["u"][1]) == (UUID, TEXTS[1])
