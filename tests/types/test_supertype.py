from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from penstock.types import DataType, cast, supertype

D = DataType


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("int8", "int32", "int32"),
        ("int8", "uint8", "int16"),
        ("int64", "uint8", "int64"),
        ("int8", "uint32", "int64"),
        ("int64", "uint64", "float64"),
        ("uint8", "uint16", "uint16"),
        ("int8", "float32", "float32"),
        ("uint16", "float32", "float32"),
        ("int32", "float32", "float64"),
        ("int64", "float64", "float64"),
        ("float16", "float32", "float32"),
        ("bool", "int8", "int8"),
        ("decimal128[5, 2]", "decimal128[6, 4]", "decimal128[7, 4]"),
        ("decimal128[5, 2]", "int8", "decimal128[5, 2]"),
        ("decimal128[38, 0]", "decimal128[38, 10]", "decimal256[48, 10]"),
        ("decimal256[76, 0]", "decimal256[76, 70]", None),
        ("decimal128[5, 2]", "float32", "float64"),
        ("date", "timestamp[ms, UTC]", "timestamp[ms, UTC]"),
        ("timestamp[ms]", "timestamp[ns]", "timestamp[ns]"),
        ("timestamp[us]", "timestamp[us, UTC]", None),
        ("time[s]", "time[us]", "time[us]"),
        ("duration[s]", "duration[ms]", "duration[ms]"),
        ("time[s]", "duration[s]", None),
        ("date", "duration", None),
        ("string", "int64", None),
        ("string", "binary", None),
        ("fixed_size_binary[2]", "fixed_size_binary[3]", "binary"),
        ("list[int8]", "list[float64]", "list[float64]"),
        ("list[null]", "list[string]", "list[string]"),
        ("list[int8]", "list[string]", None),
        ("fixed_size_list[int8; 2]", "fixed_size_list[int16; 2]", "fixed_size_list[int16; 2]"),
        ("fixed_size_list[int8; 2]", "fixed_size_list[int8; 3]", "list[int8]"),
        ("embedding[float32; 2]", "embedding[float64; 2]", "embedding[float64; 2]"),
        ("embedding[float32; 2]", "embedding[float32; 3]", "list[float32]"),
        ("embedding[float32; 2]", "list[float32]", "list[float32]"),
        ("struct[a: int8]", "struct[a: int16, b: string]", "struct[a: int16, b: string]"),
        ("struct[a: int8]", "struct[a: string]", None),
        ("map[string: int8]", "map[string: int16]", "map[string: int16]"),
        ("tensor[float32; 2x3]", "tensor[float32; 3x2]", "tensor[float32]"),
        ("tensor[float32; 2]", "tensor[float64; 2]", "tensor[float64; 2]"),
        ("image[RGB; 2x2]", "image[RGB; 4x2]", "image[RGB; ?x2]"),
        ("python", "string", "python"),
        ("null", "embedding[float32; 2]", "embedding[float32; 2]"),
    ],
)
def test_supertypes(a: str, b: str, expected: str | None) -> None:
    wanted = None if expected is None else D.parse(expected)
    assert supertype(D.parse(a), D.parse(b)) == wanted
    flipped = supertype(D.parse(b), D.parse(a))
    assert flipped == wanted or (flipped is not None and flipped.is_struct())


numbers = st.sampled_from(
    [
        D.parse(f"{kind}{bits}")
        for bits in (8, 16, 32, 64)
        for kind in ("int", "uint", "float")
        if f"{kind}{bits}" != "float8"
    ]
)


@given(numbers, numbers, numbers)
def test_widening_is_symmetric_and_reaches_every_part(a: DataType, b: DataType, c: DataType) -> None:
    both = supertype(a, b)
    assert both is not None
    assert both == supertype(b, a)
    assert supertype(both, a) == both
    three = supertype(both, c)
    assert three is not None
    assert supertype(three, b) == three


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "uint8", "uint16", "uint32"])
@pytest.mark.parametrize("other", ["int16", "uint32", "float32"])
def test_a_supertype_holds_the_extremes(name: str, other: str) -> None:
    dtype, wide = D.parse(name), supertype(D.parse(name), D.parse(other))
    assert wide is not None
    bits = dtype.arrow.bit_width
    extremes = [0, 2**bits - 1] if name.startswith("u") else [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    assert cast(pa.array(extremes, dtype.arrow), wide).to_pylist() == extremes
