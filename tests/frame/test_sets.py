"""Set operations: distinct rows, null equal to null, types kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import penstock as ps
from penstock.errors import InvalidArgumentError

LEFT = {"x": [1, 2, None, 2], "s": ["a", "b", None, "b"]}
RIGHT = {"x": [2, None, 3], "s": ["b", None, "c"]}


def rows(df: ps.DataFrame) -> set[tuple[Any, ...]]:
    listed = [tuple(row.values()) for row in df.to_pylist()]
    assert len(set(listed)) == len(listed)
    return set(listed)


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("union", {(1, "a"), (2, "b"), (None, None), (3, "c")}),
        ("intersect", {(2, "b"), (None, None)}),
        ("except_distinct", {(1, "a")}),
    ],
)
def test_rows(verb: str, expected: set[tuple[Any, ...]]) -> None:
    assert rows(getattr(ps.from_pydict(LEFT), verb)(ps.from_pydict(RIGHT))) == expected


def test_extension_types_come_back() -> None:
    vectors = ps.from_pydict({"v": list(np.eye(3, dtype=np.float32))})
    both = vectors.intersect(vectors)
    assert both.schema == vectors.schema
    assert sorted(vector.tolist() for vector in both.to_pydict()["v"]) == sorted(np.eye(3).tolist())


def test_columns_are_matched_by_name_and_types_widened() -> None:
    left, right = ps.from_pydict({"a": [1], "b": ["x"]}), ps.from_pydict({"b": ["x"], "a": [1.0]})
    assert left.intersect(right).to_pydict() == {"a": [1.0], "b": ["x"]}


def test_nothing_on_either_side() -> None:
    assert ps.range(0).union(ps.range(0)).to_pydict() == {"id": []}
    assert ps.range(2).intersect(ps.range(0)).to_pydict() == {"id": []}


def test_many_batches() -> None:
    left = ps.range(10_000).into_batches(100)
    assert left.union(ps.range(10_000)).count_rows() == 10_000
    assert left.except_distinct(ps.range(9_999)).to_pydict() == {"id": [9_999]}


def test_other_columns_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the same columns"):
        ps.range(1).union(ps.from_pydict({"a": [1]}))
    with pytest.raises(InvalidArgumentError, match="must be a DataFrame"):
        ps.range(1).intersect([1])  # type: ignore[arg-type]


values = st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=20)


@given(values, values)
@settings(max_examples=12, deadline=None)
def test_like_sets(left: list[int | None], right: list[int | None]) -> None:
    dtype = ps.DataType.int64()
    one, two = (ps.from_pydict({"x": ps.Series.from_pylist(v, dtype=dtype)}) for v in (left, right))
    assert rows(one.union(two)) == {(v,) for v in {*left, *right}}
    assert rows(one.intersect(two)) == {(v,) for v in set(left) & set(right)}
    assert rows(one.except_distinct(two)) == {(v,) for v in set(left) - set(right)}
