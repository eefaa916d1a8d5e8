"""Verbs over the results of functions, whose columns and types are known only when they run, or never without rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import col
from penstock.errors import ColumnNotFoundError, ComputeError, TypeMismatchError
from penstock.functions import cosine_distance, dot_product
from penstock.relational import typed_input

LEFT = {"k": [1, 2, 3], "v": ["a", "b", "c"]}
RIGHT = {"k": [2, 3, 4], "w": [2.5, 3.5, 4.5], "v": ["x", "y", "z"]}

Verb = Callable[[ps.DataFrame, ps.DataFrame], ps.DataFrame]


def mapped(df: ps.DataFrame) -> ps.DataFrame:
    return df.map_batches(lambda batch: batch, use_process=False)


def rows(df: ps.DataFrame) -> list[str]:
    return sorted(map(repr, df.to_pylist()))


PAIRS: dict[str, Verb] = {
    **{how: lambda x, y, how=how: x.join(y, on="k", how=how) for how in ("inner", "left", "right", "outer", "semi")},
    "anti": lambda x, y: x.join(y, on="k", how="anti", suffix="_r"),
    "cross": lambda x, y: x.join(y, how="cross", prefix="r_"),
    "keys of other names": lambda x, y: x.join(y, left_on=col("k") * 2, right_on="k"),
    "number with fraction": lambda x, y: x.join(y, left_on=col("k"), right_on=col("w") - 0.5, how="outer"),
    "zip": lambda x, y: x.zip(y),
    "union_by_name": lambda x, y: x.union_by_name(y),
    "union_all_by_name": lambda x, y: x.union_all_by_name(y),
}


@pytest.mark.parametrize("sides", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_unknown_columns_are_those_of_known_ones(name: str, sides: tuple[bool, bool]) -> None:
    left, right = ps.from_pydict(LEFT), ps.from_pydict(RIGHT)
    expected = PAIRS[name](left, right)
    found = PAIRS[name](mapped(left) if sides[0] else left, mapped(right) if sides[1] else right)
    assert rows(found) == rows(expected)
    assert found.schema == expected.schema


def test_rows_stay_in_order() -> None:
    left, right = mapped(ps.range(5000)), mapped(ps.range(5000).select(x=col("id") * 2))
    assert left.zip(right).to_pydict() == {"id": list(range(5000)), "x": list(range(0, 10_000, 2))}
    stacked = left.union_all_by_name(right).to_pydict()
    assert stacked["id"] == [*range(5000), *[None] * 5000]
    assert stacked["x"] == [*[None] * 5000, *range(0, 10_000, 2)]


def test_mistakes_are_found_when_the_columns_are_known() -> None:
    left, right = mapped(ps.from_pydict(LEFT)), mapped(ps.from_pydict(RIGHT))
    with pytest.raises(ComputeError, match="different numbers of rows"):
        left.zip(right.limit(2)).collect()
    with pytest.raises(ColumnNotFoundError, match="'nope' not found"):
        left.join(right, on="nope").collect()
    with pytest.raises(TypeMismatchError, match=r"'k' is int64 on the left, but 'v' is string"):
        left.join(right, left_on="k", right_on="v").collect()
    with pytest.raises(TypeMismatchError, match=r"'v' is string on one side and float64 on the other"):
        left.union_all_by_name(right.select(v=col("w"))).collect()


def test_vectors_of_a_model_of_the_user_are_compared() -> None:
    def embed(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "v": np.eye(50, dtype=np.float32)[batch["id"]] + np.float32(0.01)}

    vectors = ps.range(50).map_batches(embed, use_process=False)
    queries = ps.range(3).map_batches(embed, use_process=False).rename_columns({"id": "q"})
    assert vectors.nearest(queries, on="v", k=1).select("q", "id", "rank").to_pydict() == {
        "q": [0, 1, 2],
        "id": [0, 1, 2],
        "rank": [1, 1, 1],
    }
    assert vectors.collect().nearest(queries.collect(), on="v", k=1).to_pydict()["id"] == [0, 1, 2]
    assert vectors.concat(vectors).dedup_near(on="v").count_rows() == 50
    measured = vectors.select(same=cosine_distance(col("v"), col("v")), one=dot_product(col("v"), np.eye(50)[0]))
    assert measured.to_pydict()["same"] == pytest.approx([0.0] * 50, abs=1e-6)
    assert measured.to_pydict()["one"][:2] == pytest.approx([1.01, 0.01])


# --- no rows ---

MAKING: dict[str, Callable[[ps.DataFrame], ps.DataFrame]] = {
    "map": lambda df: df.map(lambda row: row),
    "map_batches": lambda df: df.map_batches(lambda batch: batch),
    "flat_map": lambda df: df.flat_map(lambda row: [row]),
}


@pytest.fixture(params=MAKING)
def nothing(request: pytest.FixtureRequest) -> ps.DataFrame:
    return MAKING[request.param](ps.range(3).where(col("id") > 5))


@pytest.mark.parametrize("is_known", [True, False])
def test_set_verbs_with_an_empty_side(nothing: ps.DataFrame, is_known: bool) -> None:
    full = ps.range(3) if is_known else mapped(ps.range(3))
    everything, none = [0, 1, 2], list[int]()
    for verb, right_is_empty, left_is_empty in (
        ("union", everything, everything),
        ("intersect", none, none),
        ("intersect_all", none, none),
        ("except_distinct", everything, none),
        ("except_all", everything, none),
        ("union_by_name", everything, everything),
        ("union_all_by_name", everything, everything),
        ("concat", everything, everything),
    ):
        assert sorted(getattr(full, verb)(nothing).to_pydict()["id"]) == right_is_empty, verb
        assert sorted(getattr(nothing, verb)(full).to_pydict()["id"]) == left_is_empty, verb


def test_joins_and_aggregates_of_nothing(nothing: ps.DataFrame) -> None:
    full = ps.range(3).with_column("x", col("id") + 1)
    assert sorted(full.join(nothing, on="id", how="left").to_pydict()["x"]) == [1, 2, 3]
    assert sorted(full.join(nothing, on="id", how="anti").to_pydict()["x"]) == [1, 2, 3]
    assert sorted(nothing.join(full, on="id", how="right").to_pydict()["x"]) == [1, 2, 3]
    assert full.join(nothing, on="id").to_pylist() == nothing.join(full, on="id", how="left").to_pylist() == []
    assert nothing.agg(col("id").count(), col("id").sum().alias("s")).to_pydict() == {"id": [0], "s": [None]}
    assert nothing.count().to_pydict() == {"count": [0]}
    assert ps.sql("select count(*) as n, count(id) as m from nothing").to_pydict() == {"n": [0], "m": [0]}
    assert nothing.groupby("id").agg(col("id").count().alias("n")).to_pylist() == nothing.sort("id").to_pylist() == []


@pytest.mark.parametrize("options", [{}, {"resume": True}])
@pytest.mark.parametrize("file_format", ["parquet", "csv", "json"])
def test_nothing_is_a_file_that_can_be_read(
    nothing: ps.DataFrame, tmp_path: Path, file_format: str, options: dict[str, Any]
) -> None:
    folder = str(tmp_path / "out")
    getattr(nothing, f"write_{file_format}")(folder, **options)
    assert getattr(ps, f"read_{file_format}")(folder).to_pydict() == {}
    getattr(ps.range(2), f"write_{file_format}")(folder, mode="append")
    assert getattr(ps, f"read_{file_format}")(folder).to_pydict() == {"id": [0, 1]}


# --- nulls first ---


def texts_after_nulls(batch: dict[str, Any]) -> dict[str, Any]:
    ids = batch["id"].tolist()
    return {
        "id": ids,
        "t": [None if number < 500 else f"x{number % 3}" for number in ids],
        "n": [None if number < 500 else number for number in ids],
        "l": [[] if number < 500 else [number] for number in ids],
    }


@pytest.fixture
def late() -> ps.DataFrame:
    return ps.range(1000).map_batches(texts_after_nulls, batch_size=100, use_process=False)


VERBS: dict[str, tuple[Callable[[ps.DataFrame], ps.DataFrame], Any]] = {
    "sort": (lambda df: df.sort("t").limit(1).select("t"), {"t": ["x0"]}),
    "group": (lambda df: df.groupby("t").agg(col("n").count()).sort("t"), {"t": ["x0", "x1", "x2", None],
                                                                           "n": [167, 166, 167, 0]}),
    "sql": (lambda df: ps.sql("select upper(t) as u, count(n) as n from df group by 1 order by 1", df=df),
            {"u": ["X0", "X1", "X2", None], "n": [167, 166, 167, 0]}),
    "sql text": (lambda df: ps.sql("select t from df where id = 999", df=df), {"t": ["x0"]}),
    "distinct": (lambda df: df.distinct("t").select("t").sort("t"), {"t": ["x0", "x1", "x2", None]}),
    "join": (lambda df: df.join(ps.from_pydict({"t": ["x1"]}), on="t").count(), {"count": [166]}),
    "union": (lambda df: df.select("t").union(df.select("t")).sort("t"), {"t": ["x0", "x1", "x2", None]}),
    "window": (lambda df: df.select(w=col("n").sum().over(ps.Window().partition_by("t"))).distinct().sort("w"),
               {"w": [124_417, 125_083, 125_250, None]}),
    "explode": (lambda df: df.explode("l").agg(col("l").sum()), {"l": [374_750]}),
    "sample": (lambda df: df.sample(size=7).count(), {"count": [7]}),
    "map_groups": (lambda df: df.groupby("t").map_groups(lambda group: {"n": [len(group["id"])]}).sort("n"),
                   {"n": [166, 167, 167, 500]}),
    "minhash": (lambda df: df.dedup_minhash("t", ngram_size=1).count(), {"count": [503]}),
}  # fmt: skip


@pytest.mark.parametrize("name", VERBS)
def test_a_first_batch_of_nulls_decides_no_type(late: ps.DataFrame, name: str) -> None:
    verb, expected = VERBS[name]
    assert verb(late).to_pydict() == expected


def test_batches_that_wait_for_a_type_may_exceed_memory(late: ps.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_input, "HELD_NBYTES", 1)
    assert late.sort(["t", "id"]).limit(2).to_pydict()["id"] == [501, 504]


def test_vectors_after_nulls_are_compared() -> None:
    def embed(batch: dict[str, Any]) -> dict[str, Any]:
        ids = batch["id"].tolist()
        return {"id": ids, "v": [None if number < 200 else [float(number), 1.0] for number in ids]}

    df = ps.range(300).map_batches(embed, batch_size=100, use_process=False)
    assert df.nearest(df.where(col("id") > 297), on="v", k=1, metric="euclidean").to_pydict()["id"] == [298, 299]
    assert df.dedup_near("v", threshold=1.0).count_rows() > 200


@pytest.mark.parametrize("store", ["parquet", "json", "csv", "sql", "lance"])
def test_a_store_has_the_types_of_the_values(late: ps.DataFrame, tmp_path: Path, store: str) -> None:
    df, place = late.select("id", "t", "n"), str(tmp_path / "out")
    if store == "sql":
        df.write_sql("late", f"sqlite:///{place}")
        found = ps.read_sql("select * from late order by id", f"sqlite:///{place}")
    else:
        getattr(df, f"write_{store}")(place)
        # Text formats have no types, and their readers look at the first file only.
        options = {"schema": {"n": "int64"}} if store in ("json", "csv") else {}
        found = getattr(ps, f"read_{store}")(place, **options).sort("id")
    assert [str(field.dtype) for field in found.schema] == ["int64", "string", "int64"]
    assert found.to_pydict() == df.to_pydict()
