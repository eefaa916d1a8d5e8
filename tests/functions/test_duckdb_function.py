"""Scalar functions of DuckDB by name, and the way around for functions that Penstock leaves to others."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import functions
from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.functions import duckdb_function

ROWS = {"n": [5, None, 255], "t": ["a,b", "it's", None], "l": [[3, 1], [], None]}


@pytest.mark.parametrize(
    ("expr", "dtype", "expected"),
    [
        (ps.sql_expr("bin(n)"), "string", ["101", None, "11111111"]),
        (ps.sql_expr("regexp_full_match(t, '\\w,\\w')"), "bool", [True, False, None]),
        (ps.sql_expr("list_reverse_sort(l)"), "list[int64]", [[3, 1], [], None]),
        (ps.sql_expr("nullif(t, 'it''s')"), "string", ["a,b", None, None]),
        (duckdb_function("nullif", "it's", ps.col("t")), "string", ["it's", None, "it's"]),
        (duckdb_function("list_concat", ps.col("l"), [7]), "list[int64]", [[3, 1, 7], [7], [7]]),
        (duckdb_function("MD5", ps.lit("a")), "string", ["0cc175b9c0f1b6a831c399e269772661"] * 3),
        (duckdb_function("bin", ps.lit(None)), "null", [None] * 3),
        (ps.sql_expr("lpad('a', 3, '0')"), "string", ["00a"] * 3),
        (ps.sql_expr("make_date(2024, 2, 29)").cast("string"), "string", ["2024-02-29"] * 3),
    ],
)
def test_values_and_types(expr: ps.Expression, dtype: str, expected: list[Any]) -> None:
    df = ps.from_pydict(ROWS).select(expr.alias("y"))
    assert (df.schema["y"].dtype, df.to_pydict()["y"]) == (ps.DataType.of(dtype), expected)


def test_functions_of_penstock_come_first() -> None:
    assert repr(ps.sql_expr("substr(t, 1)")) == repr(functions.substr(ps.col("t"), 1))


@pytest.mark.parametrize("name", ["random", "sum", "read_csv", "1 or bin", "no_such", 3, "bin(a) or hex"])
def test_only_scalar_functions_without_side_effects(name: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(f"{name!r} is no function of DuckDB")):
        duckdb_function(name, ps.col("n"))


def test_mistakes() -> None:
    df = ps.from_pydict(ROWS)
    with pytest.raises(TypeMismatchError, match="bin"):
        df.select(duckdb_function("bin", ps.col("l")))
    with pytest.raises(ComputeError, match="Date out of range"):
        df.select(ps.sql_expr("make_date(n, 2, 30)")).collect()
    with pytest.raises(InvalidArgumentError, match="takes one to 8 columns, or constants alone"):
        duckdb_function("version")


def test_dates_that_functions_of_other_engines_make() -> None:
    """The ways around that the messages name give the values of these functions."""
    df = ps.from_pydict({"y": [2024], "s": [0]})
    parts = df.select(
        ps.sql_expr("make_date(y, 2, 29)").alias("d"),
        ps.sql_expr("make_timestamp(y, 2, 29, 13, 5, 7.25)").alias("t"),
        ps.col("s").from_unix_epoch().strftime("%Y").alias("f"),
    )
    assert parts.to_arrow().schema.types == [pa.date32(), pa.timestamp("us"), pa.string()]
    assert [str(value) for [value] in parts.to_pydict().values()] == [
        "2024-02-29",
        "2024-02-29 13:05:07.250000",
        "1970",
    ]


def test_a_removed_function_names_the_way_around() -> None:
    with pytest.raises(AttributeError, match=r'no method .bin.\. Use ps.sql_expr\("bin\(a\)"\)'):
        ps.col("a").bin()
    with pytest.raises(AttributeError, match=r"no method .str.\. Write the method on the column itself"):
        ps.col("a").str.upper()
    with pytest.raises(AttributeError, match=r"no function 'soundex'. Write it as a @ps.func"):
        _ = functions.soundex
    with pytest.raises(InvalidArgumentError, match=r"no function 'soundex'. Write it as a @ps.func"):
        ps.sql_expr("soundex(a)")
    with pytest.raises(AttributeError, match="no function 'no_such'"):
        _ = functions.no_such
