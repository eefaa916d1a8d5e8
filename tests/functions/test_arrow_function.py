"""Functions of ``pyarrow.compute``, which decide themselves what null means."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError
from penstock.functions import arrow_function


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (arrow_function("if_else", ps.col("a") > 1, ps.col("a"), ps.lit(None)), [None, None, 3]),
        (arrow_function("is_null", ps.col("e")), [True, True, True]),
        (arrow_function("utf8_length", ps.col("e")), [None, None, None]),
    ],
)
def test_null_is_an_ordinary_argument(expr: ps.Expression, expected: list[Any]) -> None:
    df = ps.from_pydict({"a": [1, None, 3], "e": [None] * 3})
    assert df.select(expr.alias("y")).to_pydict() == {"y": expected}


def test_function_without_columns_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="needs a column"):
        arrow_function("random", 5)
