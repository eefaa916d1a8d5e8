"""Integers divided by a constant, which takes a path of its own, give what Python gives."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

import penstock as ps
from penstock import col
from penstock.errors import ComputeError

TYPES = {dtype: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for dtype, bits in ((pa.int8(), 8), (pa.int64(), 64))}
TYPES[pa.uint32()] = (0, 2**32 - 1)


@given(st.data(), st.sampled_from(list(TYPES)), st.sampled_from([1, 2, 3, -2, -7, 1000, 2**40, 0, -1]))
def test_a_constant_divides_as_in_python(data: st.DataObject, dtype: pa.DataType, divisor: int) -> None:
    least, most = TYPES[dtype]
    least += dtype == pa.int64()  # whose least value does not divide by -1
    values = data.draw(st.lists(st.none() | st.integers(least, most) | st.sampled_from([least, most]), max_size=12))
    first = data.draw(st.integers(0, len(values)))
    df = ps.from_arrow(pa.table({"a": pa.array(values, dtype)}).slice(first))
    found = df.select((col("a") // divisor).alias("quotient"), (col("a") % divisor).alias("rest")).to_pydict()
    known = [None if value is None or divisor == 0 else divmod(value, divisor) for value in values[first:]]
    assert found["quotient"] == [pair and pair[0] for pair in known]
    assert found["rest"] == [pair and pair[1] for pair in known]


def test_the_least_number_does_not_divide_by_minus_one() -> None:
    with pytest.raises(ComputeError, match="does not fit"):
        ps.from_pydict({"a": [-(2**63)]}).select(col("a") // -1).to_pydict()
