"""Verbs over two DataFrames, and functions of a DataFrame."""

from __future__ import annotations

import penstock as ps
from penstock import col


def test_concat_puts_rows_after_one_another() -> None:
    assert ps.range(2).concat(ps.range(5).offset(3)).to_pydict() == {"id": [0, 1, 3, 4]}
    assert ps.range(1).union_all(ps.range(1)).to_pydict() == {"id": [0, 0]}


def test_concat_matches_columns_by_name_and_widens_types() -> None:
    left = ps.from_pydict({"a": [1], "b": ["x"]})
    right = ps.from_pydict({"b": ["y"], "a": [0.5]})
    combined = left.concat(right)
    assert combined.schema["a"].dtype == ps.DataType.float64()
    assert combined.to_pydict() == {"a": [1.0, 0.5], "b": ["x", "y"]}


def test_concat_of_many_keeps_their_order() -> None:
    df = ps.from_pydict({"n": [0]})
    for n in range(1, 20):
        df = df.concat(ps.from_pydict({"n": [n]}))
    assert df.to_pydict() == {"n": list(range(20))}


def test_concat_with_itself_runs_both_branches() -> None:
    df = ps.range(3).where(col("id") > 0)
    assert df.concat(df).to_pydict() == {"id": [1, 2, 1, 2]}


def test_limit_over_concat_takes_from_the_first() -> None:
    assert ps.range(3).concat(ps.range(100)).limit(4).to_pydict() == {"id": [0, 1, 2, 0]}


def test_pipe_and_transform_pass_arguments_on() -> None:
    def keep(df: ps.DataFrame, num: int, *, at: int = 0) -> ps.DataFrame:
        return df.offset(at).limit(num)

    assert ps.range(9).pipe(keep, 2, at=3).to_pydict() == {"id": [3, 4]}
    assert ps.range(9).transform(keep, 1).to_pydict() == {"id": [0]}
