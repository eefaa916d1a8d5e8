"""The functions that make a DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ColumnNotFoundError, InvalidArgumentError, PathNotFoundError, TypeMismatchError


def test_from_pydict() -> None:
    frame = ps.from_pydict({"a": [1, None], "b": np.array([1.5, 2.5]), "c": pa.array(["x", "y"], pa.large_string())})
    assert frame.to_pydict() == {"a": [1, None], "b": [1.5, 2.5], "c": ["x", "y"]}
    assert ps.from_pydict({"a": []}).to_pydict() == {"a": []}


def test_from_pydict_with_columns_of_unequal_lengths_names_them() -> None:
    with pytest.raises(InvalidArgumentError, match="one length, but 'a' has 2, 'b' has 1"):
        ps.from_pydict({"a": [1, 2], "b": [1]})
    with pytest.raises(InvalidArgumentError, match="from_pydict takes a dict of columns; got list"):
        ps.from_pydict([1])  # type: ignore[arg-type]


def test_from_pylist() -> None:
    assert ps.from_pylist([{"b": 1}, {"a": "x", "b": None}]).to_pydict() == {"b": [1, None], "a": [None, "x"]}
    with pytest.raises(InvalidArgumentError, match="row 1 is 5 of type int; from_items takes any values"):
        ps.from_pylist([{"a": 1}, 5])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([1, 2], {"item": [1, 2]}),
        ([{"a": 1}, {"a": 2}], {"a": [1, 2]}),
        (["x", None], {"item": ["x", None]}),
        (range(2), {"item": [0, 1]}),
        ([[1], [2, 3]], {"item": [[1], [2, 3]]}),
    ],
)
def test_from_items(items: Any, expected: dict[str, Any]) -> None:
    assert ps.from_items(items).to_pydict() == expected


def test_from_arrow() -> None:
    table = pa.table({"a": [1, 2]})
    for data in (
        table,
        table.to_batches()[0],
        table.to_reader(),
        table.to_batches(),
        [table.slice(0, 1), table.slice(1)],
    ):
        assert ps.from_arrow(data).to_pydict() == {"a": [1, 2]}
    assert ps.from_arrow(pa.table({"a": pa.array([], pa.int8())})).schema["a"].dtype == ps.DataType.int8()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": [1]}, "got dict"),
        ([], "the list is empty"),
        ([pa.table({"a": [1]}), pa.table({"b": [1]})], "different columns"),
    ],
)
def test_from_arrow_refuses_the_rest(data: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ps.from_arrow(data)


def test_from_pandas() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [[1], [2, 3]]}, index=[5, 6])
    assert ps.from_pandas(frame).to_pydict() == {"a": [1, 2], "b": ["x", None], "c": [[1], [2, 3]]}
    assert ps.from_pandas([frame, frame]).count_rows() == 4
    with pytest.raises(InvalidArgumentError, match="from_pandas takes a pandas DataFrame"):
        ps.from_pandas({"a": [1]})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="Column 'a' appears twice"):
        ps.from_pandas(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_from_numpy() -> None:
    assert ps.from_numpy(np.array([1, 2])).to_pydict() == {"data": [1, 2]}
    tensors = ps.from_numpy(np.arange(12).reshape(2, 2, 3))
    assert tensors.schema["data"].dtype.is_tensor()
    assert tensors.to_pydict()["data"][1].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert ps.from_numpy([np.zeros(2), np.ones(1)]).to_pydict() == {"data": [0.0, 0.0, 1.0]}
    assert ps.from_numpy({"x": np.zeros(1), "y": np.ones(1)}).to_pydict() == {"x": [0.0], "y": [1.0]}
    with pytest.raises(InvalidArgumentError, match=r"differ in type or shape of rows: int64\[2, 2\], int64\[2, 3\]"):
        ps.from_numpy([np.zeros((2, 2), int), np.zeros((2, 3), int)])
    with pytest.raises(InvalidArgumentError, match="from_numpy takes an ndarray"):
        ps.from_numpy([1, 2])  # type: ignore[list-item]


def test_range() -> None:
    assert ps.range(3).to_pydict() == {"id": [0, 1, 2]}
    assert ps.range(2, 5).to_pydict() == {"id": [2, 3, 4]}
    assert ps.range(5, 0, -2).to_pydict() == {"id": [5, 3, 1]}
    assert ps.range(0).to_pydict() == {"id": []}
    assert ps.range(10**12).limit(2).to_pydict() == {"id": [0, 1]}
    with pytest.raises(InvalidArgumentError, match="step=0"):
        ps.range(0, 1, 0)


def test_from_glob_path(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "sub/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert ps.from_glob_path(f"{tmp_path}/*").to_pydict() == {
        "path": [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"],
        "size": [5, 5],
        "num_rows": [None, None],
    }
    assert ps.from_glob_path([f"{tmp_path}/**/*.txt"]).count_rows() == 3
    (tmp_path / "_c.txt").write_text("hidden")
    assert [ps.from_glob_path(f"{tmp_path}{end}").count_rows() for end in ("", "/*", "/**", "/[ab]*")] == [3, 3, 4, 2]
    with pytest.raises(PathNotFoundError, match=r"\*\.png"):
        ps.from_glob_path(f"{tmp_path}/*.png")


def test_read_source_refuses_what_is_not_a_source() -> None:
    with pytest.raises(InvalidArgumentError, match="read_source takes a Source"):
        ps.read_source("x")  # type: ignore[arg-type]


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_what_is_written_is_read_back(tmp_path: Path, format: str) -> None:
    rows = {"a": [1, 2, 3], "b": ["x", None, "z"]}
    root = str(tmp_path / "out")
    getattr(ps.from_pydict(rows), f"write_{format}")(root)
    frame = getattr(ps, f"read_{format}")(root)
    assert frame.to_pydict() == rows
    assert frame.where(ps.col("a") > 1).select("b").to_pydict() == {"b": [None, "z"]}
    narrow = getattr(ps, f"read_{format}")(root, columns=["b"], file_path_column="path")
    assert narrow.columns == ["b", "path"]
    assert frame.count_rows() == 3


def test_readers_check_paths_and_columns_when_called(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(PathNotFoundError, match=r"y\.csv"):
        ps.read_csv(tmp_path / "y.csv")
    with pytest.raises(ColumnNotFoundError, match="'b'"):
        ps.read_csv(tmp_path / "x.csv", columns=["b"])


def test_read_csv_passes_its_options_on(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1|'a|b'\n2|-\n")
    frame = ps.read_csv(
        tmp_path / "x.csv",
        has_headers=False,
        delimiter="|",
        quote="'",
        null_values=["-"],
        schema={"n": "float32", "s": str},
        infer_schema=False,
    )
    assert frame.to_pydict() == {"n": [1.0, 2.0], "s": ["a|b", None]}


def test_read_text_passes_its_options_on(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a\n\nb\n")
    assert ps.read_text(tmp_path, skip_blank_lines=False).to_pydict() == {"text": ["a", "", "b"]}
    frame = ps.read_text(tmp_path, whole_text=True, file_path_column="path")
    assert frame.to_pydict() == {"text": ["a\n\nb\n"], "path": [f"{tmp_path}/x.txt"]}


# --- arguments that make no sense ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ps.range("a"), "range: start='a' must be a whole number; got str"),  # type: ignore[arg-type]
        (lambda: ps.range(0, 2.5), "range: end=2.5"),  # type: ignore[arg-type]
        (lambda: ps.range(0, 2, "b"), "range: step='b'"),  # type: ignore[arg-type]
        (lambda: ps.read_parquet(5), "path=5 must be text, a Path or a list"),  # type: ignore[arg-type]
        (lambda: ps.read_json([None]), r"path=\[None\] .* got None"),  # type: ignore[list-item]
        (lambda: ps.from_glob_path(None), "path=None"),  # type: ignore[arg-type]
        (lambda: ps.read_parquet("x", column=["a"]), "'column'.*Did you mean 'columns'"),  # type: ignore[call-arg]
        (lambda: ps.read_csv("x", dialect="excel"), "read_csv has no option 'dialect'"),  # type: ignore[call-arg]
        (lambda: ps.read_json("x", shema={}), "Did you mean 'schema'"),  # type: ignore[call-arg]
        (lambda: ps.read_text("x", encodin="a"), "Did you mean 'encoding'"),  # type: ignore[call-arg]
        (lambda: ps.from_glob_path("x", storage={}), "from_glob_path has no option"),  # type: ignore[call-arg]
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        call()


def test_paths_may_be_named_and_numbers_be_of_numpy(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert ps.read_text(path=tmp_path / "a.txt").to_pydict() == {"text": ["x"]}
    assert ps.range(np.int64(2)).to_pydict() == {"id": [0, 1]}  # type: ignore[arg-type]


def test_the_advice_on_mixed_values_works() -> None:
    with pytest.raises(TypeMismatchError, match=r"ps\.Series\.from_pylist\(values, dtype=ps\.DataType\.python\(\)\)"):
        ps.from_pydict({"a": [1, "x"]})
    values = ps.Series.from_pylist([1, "x"], dtype=ps.DataType.python())
    assert ps.from_pydict({"a": values}).to_pydict() == {"a": [1, "x"]}
