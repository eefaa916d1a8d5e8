"""Results of the Ray adapter that Ray 2.60 gave for the same rows: columns, sums without values, tensors of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import torch

import penstock.compat.ray as ray
from penstock.compat.ray.data import aggregate


def test_columns_are_fetched_unless_the_query_must_not_run() -> None:
    calls: list[int] = []

    def counting(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        return row

    rows = ray.data.range(3)
    assert rows.schema(fetch_if_missing=False).names == ["id"]
    assert rows.columns(fetch_if_missing=False) == rows.columns() == ["id"]
    mapped = rows.map(counting)
    assert mapped.schema(fetch_if_missing=False) is None
    assert calls == []
    assert mapped.columns(fetch_if_missing=False) is None
    other = rows.map(counting)
    assert (other.schema().names, other.schema(fetch_if_missing=False).names) == (["id"], ["id"])
    assert repr(rows.map(counting).schema()) == repr(rows.schema())


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


def torch_batches(**options: Any) -> list[Any]:
    rows = ray.data.from_items([{"a": n, "b": n / 2, "l": n % 2} for n in range(3)])
    return list(rows.iterator().to_torch(batch_size=2, **options))


def test_pairs_of_features_and_labels() -> None:
    (features, labels), (last, _) = torch_batches(label_column="l")
    assert (features.tolist(), features.dtype) == ([[0, 0], [1, 0.5]], torch.float64)
    assert (labels.tolist(), last.shape) == ([[0], [1]], (1, 2))
    assert len(torch_batches(drop_last=True)) == 1
    [features, labels], _ = torch_batches(feature_columns=["a"], label_column="l", unsqueeze_label_tensor=False)
    assert (features.tolist(), labels.tolist()) == ([[0], [1]], [0, 1])
    (features, labels), _ = torch_batches(feature_columns=[["a"], ["a", "b"]], feature_column_dtypes=torch.float32)
    assert ([each.shape for each in features], features[0].dtype, labels) == ([(2, 1), (2, 2)], torch.float32, None)
    types = {"one": torch.int8, "two": torch.float64}
    (features, _), _ = torch_batches(feature_columns={"one": ["a"], "two": ["b"]}, feature_column_dtypes=types)
    assert {name: each.dtype for name, each in features.items()} == types
    dataset = ray.data.range(4).iterator().to_torch(batch_size=2)
    assert [len(list(dataset)) for _ in range(2)] == [2, 2]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"feature_columns": ["a"], "feature_column_dtypes": [torch.int8]}, TypeError),
        ({"feature_columns": {"x": ["a"]}, "feature_column_dtypes": {"y": torch.int8}}, ValueError),
        ({"feature_columns": [["a"], ["b"]], "feature_column_dtypes": [torch.int8]}, ValueError),
        ({"feature_columns": [["a"], ["b"]], "feature_column_dtypes": {"a": torch.int8}}, TypeError),
    ],
)
def test_types_of_features_have_the_form_of_their_names(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="feature_column_dtypes"):
        torch_batches(**options)


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
        lambda ds: ds.train_test_split("x"),
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
