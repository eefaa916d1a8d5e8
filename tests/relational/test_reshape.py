"""Samples, shuffles, pivots, summaries, parts by value and zips. Expected values are those of Daft."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ColumnNotFoundError, ComputeError, InvalidArgumentError

# --- samples and random orders ---


@pytest.mark.parametrize(
    ("num_rows", "fraction", "expected"),
    [
        (3, 0.0, 0),
        (3, 0.1, 1),
        (3, 0.34, 2),
        (3, 0.5, 2),
        (3, 1.0, 3),
        (1000, 0.0015, 2),
        (30_000, 0.3, 9000),
        (0, 0.5, 0),
    ],
)
@pytest.mark.parametrize("with_replacement", [False, True])
def test_a_share_is_rounded_up(num_rows: int, fraction: float, expected: int, with_replacement: bool) -> None:
    assert ps.range(num_rows).sample(fraction, with_replacement=with_replacement).count_rows() == expected


def test_a_share_of_many_rows_is_exact_but_for_rounding() -> None:
    counts = {ps.range(20_000).sample(0.00013, seed=seed).count_rows() for seed in range(8)}
    assert counts <= {2, 3}


def test_every_row_can_be_drawn() -> None:
    blocks = {row // 1024 for seed in range(60) for row in ps.range(8192).sample(0.0005, seed=seed).to_pydict()["id"]}
    assert blocks == set(range(8))


@pytest.mark.parametrize("options", [{"fraction": 0.01}, {"fraction": 0.01, "with_replacement": True}, {"size": 20}])
def test_a_seed_gives_the_same_rows_however_they_are_batched(options: dict[str, Any]) -> None:
    def drawn(df: ps.DataFrame, seed: int) -> list[int]:
        found: list[int] = df.sample(**options, seed=seed).to_pydict()["id"]
        return sorted(found)

    whole = drawn(ps.range(2000), 1)
    assert len(whole) == 20
    assert whole == drawn(ps.range(2000).into_batches(7), 1)
    assert whole != drawn(ps.range(2000), 2)
    assert "with_replacement" in options or len(set(whole)) == 20


def test_sizes() -> None:
    df = ps.range(10)
    assert df.sample(size=0).count_rows() == 0
    assert sorted(df.sample(size=20).to_pydict()["id"]) == list(range(10))
    with pytest.raises(InvalidArgumentError, match="only by a share"):
        df.sample(size=20, with_replacement=True)


def test_a_shuffle_keeps_the_rows() -> None:
    df = ps.range(500)
    first, again, other = (df.shuffle(seed).to_pydict()["id"] for seed in (1, 1, 2))
    assert first == again != other != list(range(500))
    assert sorted(first) == sorted(df.shuffle().to_pydict()["id"]) == list(range(500))
    assert df.shuffle().to_pydict() != df.shuffle().to_pydict()


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"shuffle": True, "seed": 3}])
@pytest.mark.parametrize("test_size", [0.3, 3])
def test_train_and_test_rows_are_all_rows(options: dict[str, Any], test_size: float) -> None:
    train, test = ps.range(10).train_test_split(test_size, **options)
    assert (train.count_rows(), test.count_rows()) == (7, 3)
    assert sorted(train.to_pydict()["id"] + test.to_pydict()["id"]) == list(range(10))


# --- parts and pairs ---


def test_rows_of_equal_values_are_in_one_part() -> None:
    keys = [1.5, math.nan, None, 2.5, math.nan, 1.5, None, 3.5]
    df = ps.from_pydict({"k": keys, "v": list(range(8)), "e": [np.ones(2, np.float32)] * 8})
    parts = [part.to_pydict() for part in df.repartition(3, "k").iter_partitions()]
    assert 1 <= len(parts) <= 3
    of_row = {row: number for number, part in enumerate(parts) for row in part["v"]}
    assert sorted(of_row) == list(range(8))
    assert (of_row[0], of_row[1], of_row[2]) == (of_row[5], of_row[4], of_row[6])
    assert all(part["v"] == sorted(part["v"]) for part in parts)
    by_expression = ps.range(100).repartition(4, ps.col("id") % 10).iter_partitions()
    assert sum(len(part) for part in by_expression) == 100


def test_zip_pairs_rows_by_position() -> None:
    left = ps.range(70_000)
    other = ps.range(70_000).select((ps.col("id") * 2).alias("x")).into_batches(999)
    got = left.zip(other).zip(left).to_pydict()
    assert list(got) == ["id", "x", "id_1"]
    assert got["id"] == got["id_1"] == list(range(70_000))
    assert got["x"] == list(range(0, 140_000, 2))
    for num_rows in (2, 4):
        with pytest.raises(ComputeError, match=r"^zip: .*the DataFrames have different numbers of rows"):
            ps.range(3).zip(ps.range(num_rows)).collect()


LEFT = {"t": [1, 5, 10, None], "k": ["a", "a", "b", None], "v": [1, 2, 3, 4]}


# --- pivots and summaries ---

SALES = {"g": [1, 1, 2, 2, None], "p": ["a", "b", "a", None, "a"], "v": [1, 2, 3, 4, 5]}


@pytest.mark.parametrize(
    ("agg_fn", "expected"),
    [
        ("sum", {"None": [None, 4, None], "a": [1, 3, 5], "b": [2, None, None]}),
        ("count", {"None": [None, 1, None], "a": [1, 1, 1], "b": [1, None, None]}),
        ("list", {"None": [None, [4], None], "a": [[1], [3], [5]], "b": [[2], None, None]}),
    ],
)
def test_pivots(agg_fn: str, expected: dict[str, Any]) -> None:
    got = ps.from_pydict(SALES).pivot("g", "p", "v", agg_fn).sort("g").to_pydict()
    assert got == {"g": [1, 2, None], **expected}


def test_pivots_with_names_expressions_and_numbers() -> None:
    df = ps.from_pydict(SALES)
    got = df.pivot(["g"], "p", ps.col("v") * 2, "sum", names=["b", "zz"]).sort("g").to_pydict()
    assert got == {"g": [1, 2, None], "b": [4, None, None], "zz": [None, None, None]}
    numbers = ps.from_pydict({"g": [1, 1], "p": [10, 20], "v": [1, 2]})
    assert numbers.pivot("g", "p", "v", "sum").to_pydict() == {"g": [1], "10": [1], "20": [2]}
    assert df.where(ps.col("v") > 9).pivot("g", "p", "v", "sum").to_pydict() == {"g": []}


def test_summaries() -> None:
    df = ps.from_pydict({"x": [1, 2, 3], "y": ["a", None, "c"], "z": [1.5, None, 2.0], "l": [[1], [2], None]})
    assert df.describe().to_pydict() == {
        "column_name": ["x", "y", "z", "l"],
        "type": ["int64", "string", "float64", "list[int64]"],
    }
    assert df.summarize().to_pydict() == {
        "column": ["x", "y", "z", "l"],
        "type": ["int64", "string", "float64", "list[int64]"],
        "min": ["1", "a", "1.5", None],
        "max": ["3", "c", "2.0", None],
        "count": [3, 2, 2, 2],
        "count_nulls": [0, 1, 1, 1],
        "approx_count_distinct": [3, 2, 2, 2],
    }


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda df: df.sample(), InvalidArgumentError, "sample takes either a fraction or a size"),
        (lambda df: df.sample(0.5, 3), InvalidArgumentError, "sample takes either a fraction or a size"),
        (lambda df: df.sample(1.5), InvalidArgumentError, "a fraction from 0 to 1; got 1.5"),
        (lambda df: df.sample(size=-1), InvalidArgumentError, "a whole number, 0 or more; got -1"),
        (lambda df: df.shuffle("x"), InvalidArgumentError, "shuffle takes a whole number as seed; got 'x'"),
        (lambda df: df.train_test_split(9), InvalidArgumentError, "test_size is 9, but there are 4 rows"),
        (lambda df: df.train_test_split("x"), InvalidArgumentError, "between 0 and 1, or a number of rows; got 'x'"),
        (lambda df: df.repartition(0, "k"), InvalidArgumentError, "a whole number of 1 or more; got 0"),
        (lambda df: df.repartition(2, "q"), ColumnNotFoundError, "'q' not found in repartition; available: t, k, v"),
        (lambda df: df.zip(3), InvalidArgumentError, "must be a DataFrame; got int"),
        (lambda df: df.pivot("k", "t", "v", "most"), InvalidArgumentError, "such as 'sum'; got 'most'"),
        (lambda df: df.pivot("k", "t", "v", "sum", names=["k"]), InvalidArgumentError, "'k' is a group_by column"),
    ],
)
def test_mistakes(use: Callable[[ps.DataFrame], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        use(ps.from_pydict(LEFT))
