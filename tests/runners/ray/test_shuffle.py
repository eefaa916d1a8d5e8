"""Relations over more rows than they have memory for: the rows are divided, and the parts are computed by tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.contracts import EndOfInput
from penstock.errors import TypeMismatchError
from penstock.plan.relations import Aggregate, AggregateColumn
from penstock.plan.stages import SIDE, RunRelation
from penstock.relational.partition import HashParts
from penstock.runners.ray import shuffle
from penstock.runners.ray.shuffle_work import divide
from penstock.types.ipc import to_ipc
from tests.runners.ray.test_faults import die_once

pytestmark = pytest.mark.ray

NUM_ROWS = 40_000
MEMORY = 4_000_000  # of which a relation gets half


@pytest.fixture(autouse=True)
def on_ray(ray_cluster: None) -> Iterator[None]:
    ps.set_runner_ray()
    with ps.config(memory_limit=MEMORY):
        yield
    ps.set_runner_local()


def rows() -> ps.DataFrame:
    """Return 4 MB in small batches, of columns that are not known before they are there."""
    numbers = np.random.default_rng(0).permutation(NUM_ROWS)
    table = pa.table({"n": numbers, "k": numbers % 7919, "text": [f"{number:>80}" for number in numbers]})
    return ps.from_arrow(table).into_batches(4000).map_batches(lambda batch: batch)


def by_sort(df: ps.DataFrame) -> ps.DataFrame:
    return df.sort(["k", "n"], desc=[True, False]).select("n", "text")


def by_sort_of_few_keys(df: ps.DataFrame) -> ps.DataFrame:
    """Sort by a key with 11 values: equal keys stay in the order of the rows."""
    return df.with_column("few", ps.col("n") % 11).sort("few")


def by_group(df: ps.DataFrame) -> ps.DataFrame:
    return df.groupby("k").agg(ps.col("n").sum(), ps.col("text").min())


def by_group_in_two_steps(df: ps.DataFrame) -> ps.DataFrame:
    n, x, few = ps.col("n"), ps.col("x"), (ps.col("n") % 3).alias("few")
    rows = df.with_columns({"x": n.cast("float32"), "few": few, "null": ps.when(few == 0, n)})
    means = [n.mean().alias("mean"), ps.col("null").mean().alias("null_mean"), x.mean().alias("x_mean")]
    counts = [ps.col("null").count().alias("count"), n.count("all").alias("all")]
    ends = [n.min().alias("min"), ps.col("text").max().alias("max"), (n >= 0).bool_and().alias("and")]
    return rows.groupby("few").agg(n.sum(), x.sum(), *means, *counts, *ends)


def by_sort_of_texts(df: ps.DataFrame) -> ps.DataFrame:
    return df.sort("text").select("n", "text")


def by_group_of_texts(df: ps.DataFrame) -> ps.DataFrame:
    return df.groupby("text").agg(ps.col("n").count())


def by_join(df: ps.DataFrame) -> ps.DataFrame:
    known = ps.from_arrow(df.to_arrow()).into_batches(4000)
    few = ps.from_pydict({"k": [1.0, 2.0, 9000.0, None], "w": [1, 2, 3, 4]})
    return few.join(known, on="k", how="outer")


@pytest.mark.parametrize("verb", [by_sort, by_sort_of_few_keys, by_group, by_group_in_two_steps, by_join])
def test_more_rows_than_memory_give_what_one_machine_gives(
    verb: Callable[[ps.DataFrame], ps.DataFrame], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "penstock.workers"):
        found = verb(rows()).to_arrow()
    assert "they are divided into 8 parts" in caplog.text
    ps.set_runner_local()
    expected = verb(rows()).to_arrow()
    if verb not in (by_sort, by_sort_of_few_keys):
        order = [(name, "ascending") for name in expected.column_names]
        found, expected = found.sort_by(order), expected.sort_by(order)
    assert found.equals(expected)


@pytest.mark.parametrize("num_groups", [3, NUM_ROWS])
def test_few_groups_are_few_rows_in_the_shuffle(num_groups: int) -> None:
    batch = pa.record_batch({"k": [number % num_groups for number in range(NUM_ROWS)], "n": range(NUM_ROWS)})
    relation = Aggregate(("k",), (AggregateColumn("sum", "sum", ("n",)), AggregateColumn("mean", "mean", ("n",))))
    given = to_ipc(batch.replace_schema_metadata({SIDE: "0"}))
    *_, (forms, counts, *_) = divide(
        HashParts((("k",),)), 8, RunRelation(relation, (None,)), {}, ((0, NUM_ROWS),), given
    )
    assert sum(counts) == num_groups
    assert forms[0].is_grouped == (num_groups == 3)


def test_a_reader_that_stops_ends_the_tasks() -> None:
    with closing(rows().sort("n").iter_rows()) as found:
        assert next(found)["n"] == 0
    assert ps.range(3).sort("id", desc=True).to_pydict() == {"id": [2, 1, 0]}


def test_later_rows_get_the_types_of_the_first() -> None:
    def changing(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "k": batch["k"].astype(np.float32 if batch["n"][0] % 2 else np.int64)}

    groups = rows().map_batches(changing, batch_size=4000).groupby("k").agg(ps.col("n").count()).to_arrow()
    assert groups.num_rows == 7919
    assert pa.compute.sum(groups["n"]).as_py() == NUM_ROWS


@pytest.mark.parametrize("verb", [by_sort_of_texts, by_group_of_texts])
def test_first_rows_of_nulls_decide_no_type(
    verb: Callable[[ps.DataFrame], ps.DataFrame], caplog: pytest.LogCaptureFixture
) -> None:
    def without_first_texts(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "text": [None] * len(batch["n"]) if batch["number"][0] < 12_000 else 3 * batch["text"]}

    numbered = rows().collect().monotonically_increasing_id("number")
    df = numbered.into_batches(4000).map_batches(without_first_texts, batch_size=4000)
    with caplog.at_level(logging.INFO, "penstock.workers"):
        found = verb(df).to_arrow()
    assert "they are divided into 8 parts" in caplog.text
    ps.set_runner_local()
    expected = verb(df).to_arrow()
    order = [(name, "ascending") for name in expected.column_names]
    assert found.sort_by(order).equals(expected.sort_by(order))


class DeadlyRelation:
    """Kills its worker once, after a part of its output."""

    def __init__(self, flag: str) -> None:
        self._flag = flag
        self._batches: list[pa.RecordBatch] = []

    def process(self, item: Any, first_row: int) -> Iterator[pa.RecordBatch]:
        if not isinstance(item, EndOfInput):
            self._batches.append(item)
            return
        yield self._batches[0]
        die_once(self._flag)
        yield from self._batches[1:]

    def close(self) -> None:
        pass


def test_a_part_whose_worker_is_killed_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = tmp_path / "flag"
    monkeypatch.setattr(shuffle, "opener", lambda work: lambda context: DeadlyRelation(str(flag)))
    found = rows().distinct().to_pydict()
    assert sorted(found["n"]) == list(range(NUM_ROWS))
    assert flag.exists()


def test_an_error_in_the_worker_of_a_part_surfaces_as_itself() -> None:
    def renamed(batch: dict[str, Any]) -> dict[str, Any]:
        return {"n" if batch["n"][0] % 2 else "m": batch["n"], "k": batch["k"], "text": batch["text"]}

    with pytest.raises(TypeMismatchError, match="must return the same columns"):
        rows().map_batches(renamed, batch_size=4000).sort("k").collect()
