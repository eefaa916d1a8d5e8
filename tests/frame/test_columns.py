"""Verbs that choose, add and name columns."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock import col
from penstock.errors import InvalidArgumentError


@pytest.fixture
def people() -> ps.DataFrame:
    return ps.from_pydict({"name": ["ann", "bob"], "age": [30, 40], "pet": [{"kind": "cat"}, {"kind": "dog"}]})


def test_select_takes_names_expressions_and_keywords_in_the_order_given(people: ps.DataFrame) -> None:
    selected = people.select("age", col("name").alias("who"), older=col("age") + 1)
    assert selected.columns == ["age", "who", "older"]
    assert selected.to_pydict() == {"age": [30, 40], "who": ["ann", "bob"], "older": [31, 41]}


def test_select_star_stands_for_every_column(people: ps.DataFrame) -> None:
    assert people.select("*", twice=col("age") * 2).columns == ["name", "age", "pet", "twice"]


def test_select_of_nothing_keeps_the_number_of_rows(people: ps.DataFrame) -> None:
    nothing = people.select()
    assert nothing.columns == []
    assert nothing.count_rows() == 2
    assert nothing.to_pylist() == [{}, {}]


def test_with_column_adds_at_the_end_and_replaces_in_place(people: ps.DataFrame) -> None:
    assert people.with_column("tall", True).columns == ["name", "age", "pet", "tall"]
    replaced = people.with_column("name", col("name").upper())
    assert replaced.columns == ["name", "age", "pet"]
    assert replaced.to_pydict()["name"] == ["ANN", "BOB"]


def test_with_columns_reads_the_columns_as_they_were(people: ps.DataFrame) -> None:
    swapped = people.with_columns({"name": col("age"), "age": col("name")}).exclude("pet")
    assert swapped.to_pydict() == {"name": [30, 40], "age": ["ann", "bob"]}


def test_with_column_takes_a_plain_value_as_a_constant(people: ps.DataFrame) -> None:
    assert people.with_columns({"n": 7, "none": None, "list": [1, 2]}).select("n", "none", "list").to_pylist() == [
        {"n": 7, "none": None, "list": [1, 2]},
        {"n": 7, "none": None, "list": [1, 2]},
    ]


def test_unnest_gives_the_fields_their_own_names(people: ps.DataFrame) -> None:
    assert people.with_column("ignored", ps.unnest(col("pet"))).columns == ["name", "age", "pet", "kind"]
    assert people.select(ps.unnest(col("pet"))).to_pydict() == {"kind": ["cat", "dog"]}


def test_a_verb_leaves_the_dataframe_it_is_called_on_as_it_was(people: ps.DataFrame) -> None:
    people.with_column("x", 1).exclude("name").where(col("age") > 100)
    assert people.columns == ["name", "age", "pet"]
    assert people.count_rows() == 2


def test_rename_keeps_order_and_can_swap_names(people: ps.DataFrame) -> None:
    assert people.rename_columns({"name": "age", "age": "name"}).columns == ["age", "name", "pet"]
    assert people.with_column_renamed("age", "years").columns == ["name", "years", "pet"]
    assert people.rename_columns({"pet": "animal"}).columns == ["name", "age", "animal"]


def test_exclude_and_drop_columns_are_the_same_but_for_lists(people: ps.DataFrame) -> None:
    assert people.exclude("age", "pet").columns == ["name"]
    assert people.drop_columns("age", ["pet"]).columns == ["name"]
    assert people.exclude("name", "age", "pet").columns == []


def test_brackets_give_a_column_and_a_narrower_frame(people: ps.DataFrame) -> None:
    assert people.select(people["age"] + 1).to_pydict() == {"age": [31, 41]}
    assert people[["age", "name"]].columns == ["age", "name"]


def test_in_asks_for_a_column_and_runs_nothing() -> None:
    def fail(row: dict[str, int]) -> bool:
        raise AssertionError("it ran")

    df = ps.range(3).filter(fail)
    assert "id" in df
    assert "other" not in df


def test_a_function_as_a_column_names_what_takes_functions() -> None:
    with pytest.raises(InvalidArgumentError, match=r"Column 'z' is given a function.* @ps\.func .* use map"):
        ps.range(1).with_column("z", lambda row: row["id"])
