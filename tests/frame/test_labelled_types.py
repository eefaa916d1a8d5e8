"""UUIDs and extension types: columns keep them through verbs, and functions see what they store."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import DataType, col
from penstock.errors import ComputeError, TypeMismatchError
from penstock.functions import decode, replace, upper

KEYS = [uuid.UUID(int=2), uuid.UUID(int=1), None]
TEXTS = [str(uuid.UUID(int=2)), str(uuid.UUID(int=1)), None]
COLUMN = pa.array([None if key is None else key.bytes for key in KEYS], pa.uuid())
UUID = DataType.uuid()


def test_verbs_keep_the_type_and_values_are_text(tmp_path: Path) -> None:
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
        assert df.select("u").concat(ps.from_pydict({"u": ["x"]})).schema["u"].dtype == DataType.string()


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
    with pytest.raises(TypeMismatchError, match="its 16 bytes are decode"):
        df.select(col("u").cast("binary"))
    assert df.select(decode(replace(col("u"), "-", ""), "hex")).to_pydict()["u"][0] == KEYS[0].bytes  # type: ignore[union-attr]


def test_casts_and_functions_make_uuids() -> None:
    @ps.func
    def key(number: int) -> uuid.UUID:
        return uuid.UUID(int=number)

    made = ps.range(2).select(key(col("id")).alias("u"))
    assert (made.schema["u"].dtype, made.to_pydict()["u"][1]) == (UUID, TEXTS[1])
    forms = ps.from_pydict({"t": [TEXTS[0].upper(), KEYS[1].hex, None]})  # type: ignore[union-attr]
    assert forms.select(col("t").cast(UUID)).to_pydict() == {"t": TEXTS}
    stored = ps.from_pydict({"t": [KEYS[0].bytes, None]})  # type: ignore[union-attr]
    assert stored.select(col("t").cast("uuid")).to_pydict() == {"t": [TEXTS[0], None]}
    wrong = ps.from_pydict({"t": [TEXTS[0], "hello"]})
    assert wrong.select(col("t").try_cast(UUID)).to_pydict() == {"t": [TEXTS[0], None]}
    with pytest.raises(ComputeError, match="Cannot convert 'hello' from string to uuid"):
        wrong.select(col("t").cast(UUID)).to_pydict()
    with pytest.raises(TypeMismatchError, match="int64 to uuid"):
        ps.range(1).select(col("id").cast(UUID))


def test_extension_types() -> None:
    point = DataType.extension("geo.point", "int64", "wgs84")
    df = ps.range(2).select(col("id").cast(point))
    assert (df.schema["id"].dtype, df.to_pydict()) == (point, {"id": [0, 1]})
    assert (df.collect().sort("id", desc=True).schema["id"].dtype, str(point)) == (point, "extension[geo.point; int64]")
    assert df.select(col("id") + 1).to_pydict() == {"id": [1, 2]}
    assert point != DataType.extension("geo.point", "int64")


def test_sparse_tensors_of_one_shape_and_with_offsets() -> None:
    df = ps.from_pydict({"t": [np.array([[0, 1, 0], [0, 0, 5]]), None]})
    fixed, offsets = (DataType.sparse_tensor("int64", (2, 3), uses) for uses in (False, True))
    found = {dtype: df.select(col("t").cast(dtype)) for dtype in (fixed, offsets)}
    assert (fixed.use_offset_indices, offsets.use_offset_indices) == (False, True)
    assert (fixed.shape, fixed == offsets, found[offsets].schema["t"].dtype) == ((2, 3), False, offsets)
    assert [each.to_pydict()["t"][0]["indices"] for each in found.values()] == [[1, 5], [1, 4]]
    for each in found.values():
        assert each.select(col("t").cast("tensor[int64]")).to_pydict()["t"][0].tolist() == [[0, 1, 0], [0, 0, 5]]
        loose = each.select(col("t").cast(DataType.sparse_tensor("int64")))
        assert loose.to_pydict()["t"] == [{"values": [1, 5], "indices": [1, 5], "shape": [2, 3]}, None]
    with pytest.raises(ComputeError, match=r"a tensor has shape \(2, 3\)"):
        df.select(col("t").cast(DataType.sparse_tensor("int64", (3, 2)))).to_pydict()


def test_places_of_an_inferred_struct_are_no_offsets() -> None:
    df = ps.from_pydict({"s": [{"values": [1.0, 2.0], "indices": [1, 2], "shape": [4]}]})
    assert df.select(ps.col("s").cast(DataType.tensor("float64"))).to_pydict()["s"][0].tolist() == [0, 1, 2, 0]
