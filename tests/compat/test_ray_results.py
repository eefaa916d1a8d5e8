"""Results of the Ray adapter that Ray 2.60 gave for the same rows: columns, sums without values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import penstock.compat.ray as ray
from penstock.compat.ray.data import aggregate


def test_columns_are_called_as_in_ray_data() -> None:
    rows = ray.data.range(3)
    assert rows.schema().names == rows.columns() == rows.columns == ["id"]
    mapped = rows.map(lambda row: row)
    assert (mapped.columns(fetch_if_missing=False), repr(mapped.schema())) == (["id"], repr(rows.schema()))


NULLS = pa.table({"g": [1, 1, 2], "n": pa.array([None] * 3, pa.int64()), "z": pa.nulls(3), "m": [None, None, 3]})


def test_sums_of_nulls_alone_are_null() -> None:
    rows = ray.data.from_arrow(NULLS)
    assert rows.sum(["n", "z", "m"]) == {"sum(n)": None, "sum(z)": None, "sum(m)": 3}
    assert (rows.sum("z"), rows.sum("z", ignore_nulls=False), rows.mean("z"), rows.max("z")) == (None,) * 4
    counted = rows.aggregate(aggregate.Sum("z"), aggregate.Count("z"), aggregate.Count("n", ignore_nulls=True))
    assert counted == {"sum(z)": None, "count(z)": 3, "count(n)": 0}
    assert rows.groupby("g").sum(["z", "m"]).take_all() == [
        {"g": 1, "sum(z)": None, "sum(m)": None}, {"g": 2, "sum(z)": None, "sum(m)": 3}
    ]  # fmt: skip
    assert ray.data.from_items([{"x": None}, {"x": None}]).sum("x") is None
    assert ray.data.from_pandas(pd.DataFrame({"x": [None, None]})).sum("x") is None


def rows_of_six() -> Any:
    return ray.data.from_items([{"a": n, "b": n / 2, "s": str(n)} for n in range(6)])


@pytest.mark.parametrize(
    "call",
    [
        lambda ds: ds.filter(expr="a > 1", fn_args=[1]),
        lambda ds: ds.add_column("x", 5),
        lambda ds: ds.drop_columns(["a", "a"]),
        lambda ds: ds.rename_columns({}),
        lambda ds: ds.repartition(),
        lambda ds: ds.repartition(2, target_num_rows_per_block=3),
        lambda ds: ds.repartition(target_num_rows_per_block=3, shuffle=True),
        lambda ds: ds.split(0),
        lambda ds: ds.split(2, locality_hints=[1]),
        lambda ds: ds.split_at_indices([]),
        lambda ds: ds.groupby("zz"),
        lambda ds: ds.groupby(5),
        lambda ds: ds.groupby("a", num_partitions=0),
        lambda ds: ds.write_parquet("unused", min_rows_per_file=5, max_rows_per_file=3),
        lambda ds: ds.limit(0).take_batch(2),
        lambda ds: ds.limit(0).take_batch(2, batch_format="pyarrow"),
    ],
)
def test_arguments_that_ray_data_refuses_with_a_value_error(call: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the class is what is tested
        call(rows_of_six())


@pytest.mark.parametrize(
    "call",
    [
        lambda ds: ds.filter(expr=5),
        lambda ds: ray.data.from_pandas(5),
        lambda ds: ray.data.from_arrow(5),
    ],
)
def test_arguments_that_ray_data_refuses_with_a_type_error(call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        call(rows_of_six())


def test_a_column_that_is_missing_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="'zz' not found"):
        rows_of_six().drop_columns(["zz"])
