"""After ``map_batches`` the columns are known only once it runs; every verb works all the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.errors import ColumnNotFoundError, InvalidArgumentError, TypeMismatchError
from penstock.functions import explode


class Counted:
    """Gives columns a, b, s and counts the batches it is called with."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.num_calls += 1
        ids = batch["id"]
        return {"a": ids, "b": ids * 0.5, "s": [{"p": int(i), "q": str(i)} for i in ids]}


@pytest.fixture
def source() -> Counted:
    return Counted()


@pytest.fixture
def unknown(source: Counted) -> ps.DataFrame:
    return ps.range(3).map_batches(source)


@pytest.mark.parametrize(
    ("verb", "columns"),
    [
        (lambda df: df.with_column("c", col("a") + 1), ["a", "b", "s", "c"]),
        (lambda df: df.with_column("a", col("a") + 1), ["a", "b", "s"]),
        (lambda df: df.with_columns({"z": col("b"), "b": col("a")}), ["a", "b", "s", "z"]),
        (lambda df: df.with_column("-", ps.unnest(col("s"))), ["a", "b", "s", "p", "q"]),
        (lambda df: df.with_columns({"-": ps.unnest(col("s")), "a": 1}), ["a", "b", "s", "p", "q"]),
        (lambda df: df.select("b", twice=col("a") * 2), ["b", "twice"]),
        (lambda df: df.select("*", twice=col("a") * 2), ["a", "b", "s", "twice"]),
        (lambda df: df.select(ps.unnest(col("s"))), ["p", "q"]),
        (lambda df: df.exclude("b"), ["a", "s"]),
        (lambda df: df.exclude("b").with_column("b", 1), ["a", "s", "b"]),
        (lambda df: df.rename_columns({"b": "bb"}), ["a", "bb", "s"]),
        (lambda df: df.rename_columns({"a": "b", "b": "a"}), ["b", "a", "s"]),
        (lambda df: df.monotonically_increasing_id("n"), ["n", "a", "b", "s"]),
        (lambda df: df.unpivot("a", "b"), ["a", "variable", "value"]),
        (lambda df: df.where(col("a") > 0).limit(1), ["a", "b", "s"]),
    ],
)
def test_verbs_give_their_columns_in_order(
    unknown: ps.DataFrame, source: Counted, verb: Callable[[ps.DataFrame], ps.DataFrame], columns: list[str]
) -> None:
    df = verb(unknown)
    assert source.num_calls == 0, "building the query ran it"
    assert df.to_arrow().column_names == columns
    assert df.columns == columns


def test_udfs_add_and_replace_columns(unknown: ps.DataFrame) -> None:
    @ps.func
    def plus(x: float, y: float) -> float:
        return x + y

    result = unknown.with_column("a", plus(col("a"), col("b"))).with_column("c", plus(col("a"), 1.0) * 2)
    assert result.exclude("s").to_pydict() == {"a": [0.0, 1.5, 3.0], "b": [0.0, 0.5, 1.0], "c": [2.0, 5.0, 8.0]}
    assert result.columns == ["a", "b", "s", "c"]
    assert unknown.where(plus(col("a"), 0.0) > 1).select("a").to_pydict() == {"a": [2]}


@pytest.mark.one_machine
def test_schema_runs_the_first_rows_once(unknown: ps.DataFrame, source: Counted) -> None:
    assert unknown.schema["s"].dtype.is_struct()
    assert unknown.schema.names == ["a", "b", "s"]
    assert unknown.columns == ["a", "b", "s"]
    assert source.num_calls == 1


def test_repr_does_not_run_it(unknown: ps.DataFrame, source: Counted) -> None:
    assert "MapBatches" in repr(unknown)
    assert source.num_calls == 0


def test_verbs_over_all_columns(unknown: ps.DataFrame) -> None:
    assert unknown.drop_null().count_rows() == 3
    assert unknown.drop_nan().count_rows() == 3
    assert unknown.exclude("s").unpivot("a").count_rows() == 3


def test_batches_may_differ_in_type() -> None:
    mixed = ps.range(2).map_batches(lambda b: {"x": [None] if b["id"][0] == 0 else [1.5]}, batch_size=1)
    assert mixed.with_column("y", col("x")).to_pydict() == {"x": [None, 1.5], "y": [None, 1.5]}


def test_concat_of_known_and_unknown(unknown: ps.DataFrame) -> None:
    assert unknown.select("a").concat(ps.from_pydict({"a": [9]})).to_pydict() == {"a": [0, 1, 2, 9]}


@pytest.mark.parametrize(
    ("verb", "error", "message"),
    [
        (lambda df: df.select("nope"), ColumnNotFoundError, "Column 'nope' not found; available: a, b, s"),
        (lambda df: df.with_column("c", col("aa")), ColumnNotFoundError, "'aa' not found; available: a, b, s"),
        (lambda df: df.exclude("nope"), ColumnNotFoundError, "'nope' not found"),
        (lambda df: df.rename_columns({"nope": "x"}), ColumnNotFoundError, "'nope' not found"),
        (lambda df: df.rename_columns({"a": "b"}), InvalidArgumentError, "Two columns have the name 'b'"),
        (lambda df: df.where(col("nope") > 1), ColumnNotFoundError, "'nope' not found"),
        (lambda df: df.where(col("a")), TypeMismatchError, r"filter needs a bool expression, but col\(a\) is int64"),
        (lambda df: df.explode("a"), TypeMismatchError, "explode needs a list column, but 'a' is int64"),
        (lambda df: df.explode("nope"), ColumnNotFoundError, "'nope' not found in explode"),
        (lambda df: df.unpivot("a", ["b", "s"]), TypeMismatchError, "'s' is struct"),
        (lambda df: df.unpivot("nope", "b"), ColumnNotFoundError, "'nope' not found in unpivot"),
        (lambda df: df.monotonically_increasing_id("a"), InvalidArgumentError, "Column 'a' exists already"),
        (lambda df: df.select(ps.unnest(col("a"))), TypeMismatchError, "expected a struct, got int64"),
    ],
)
def test_mistakes_are_errors_of_the_first_batch(
    unknown: ps.DataFrame, verb: Callable[[ps.DataFrame], ps.DataFrame], error: type[Exception], message: str
) -> None:
    df = verb(unknown)
    with pytest.raises(error, match=message) as caught:
        df.collect()
    if error is ColumnNotFoundError:
        first = verb.__code__.co_firstlineno
        assert f"It is named in {__file__}, line {first}." in str(caught.value)


@pytest.mark.parametrize("use_process", [False, True])
def test_a_missing_column_is_reported_with_the_lines_that_name_it(tmp_path: Path, use_process: bool) -> None:
    df = ps.range(3).map_batches(lambda batch: batch, use_process=use_process)
    df = df.with_column("w", col("id") + 1)
    wrong = df.select("id", explode(col("nope")))
    here = sys._getframe().f_lineno
    for run in (wrong.collect, lambda: wrong.write_parquet(str(tmp_path / "out"), resume=True)):
        with pytest.raises(ColumnNotFoundError, match=rf"available: id.* in {__file__}, line {here - 1}\."):
            run()


@ps.func
def never(x: int) -> int:
    raise AssertionError("the result is not used")


@pytest.mark.parametrize(
    "unused",
    [
        lambda df: df.with_column("w", col("a") + 1),
        lambda df: df.with_columns({"w": col("a"), "b": col("a"), "v": 1}),
        lambda df: df.with_column("w", never(col("a"))),
        lambda df: df.with_column("b", never(col("a"))).exclude("b"),
        lambda df: df.rename_columns({"b": "w"}),
        lambda df: df.with_column("w", 1).where(col("a") >= 0).exclude("b").monotonically_increasing_id("n"),
    ],
)
def test_a_column_that_is_not_used_is_not_computed(
    unknown: ps.DataFrame, tmp_path: Path, unused: Callable[[ps.DataFrame], ps.DataFrame]
) -> None:
    df = unused(unknown)
    assert df.select("a").to_pydict() == {"a": [0, 1, 2]}
    assert df.count_rows() == df.select("a").count_rows() == 3
    df.select("a").write_parquet(str(tmp_path))
    assert ps.read_parquet(str(tmp_path)).to_pydict() == {"a": [0, 1, 2]}


@pytest.mark.parametrize(
    ("dropping", "available"),
    [
        (lambda df: df.select("a"), "a"),
        (lambda df: df.select("a", w=col("b")).where(col("a") > 0).limit(2), "a, w"),
        (lambda df: df.exclude("b"), "the other columns of the input"),
        (lambda df: df.rename_columns({"b": "w"}).into_batches(2), "w, the other columns of the input"),
        (lambda df: df.unpivot("a", "b"), "a, variable, value"),
        (lambda df: df.select("a").with_column("w", 1).monotonically_increasing_id("n"), "n, w, a"),
    ],
)
@pytest.mark.parametrize(
    "reading",
    [
        lambda df: df.select("b"),
        lambda df: df.with_column("x", col("b") + 1),
        lambda df: df.where(col("b") > 1),
        lambda df: df.exclude("b"),
        lambda df: df.explode("b"),
        lambda df: df.select(explode(col("b"))),
    ],
)
def test_a_dropped_column_does_not_come_back(
    unknown: ps.DataFrame,
    dropping: Callable[[ps.DataFrame], ps.DataFrame],
    reading: Callable[[ps.DataFrame], ps.DataFrame],
    available: str,
) -> None:
    dropped = dropping(unknown)
    with pytest.raises(ColumnNotFoundError, match=rf"^Column 'b' not found; available: {available}\."):
        reading(dropped)
