from __future__ import annotations

import datetime
import pickle
import warnings

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ComputeError, InvalidArgumentError, TypeMismatchError
from penstock.types import DataType, Series

D = DataType


def test_a_series_is_a_named_column() -> None:
    series = Series.from_pylist([1, None, 3], name="x")
    assert (series.name, series.dtype, len(series), series.null_count) == ("x", D.int64(), 3, 1)
    assert (series[0], series[-1], series[1]) == (1, 3, None)
    assert list(series) == series.to_pylist() == [1, None, 3]
    assert series.rename("y").name == "y"
    assert series.slice(1, 3).to_pylist() == series[1:].to_pylist() == [None, 3]
    assert series.cast("float32").dtype == D.float32()
    assert repr(series) == "Series('x', int64, 3 rows: [1, None, 3])"
    assert repr(Series.from_pylist(list(range(9)))).endswith("7, ...])")
    with pytest.raises(IndexError):
        series[3]
    back = pickle.loads(pickle.dumps(series))
    assert (back.name, back.to_pylist()) == ("x", [1, None, 3])


def test_chunks_are_combined_and_types_normal() -> None:
    series = Series.from_arrow(pa.chunked_array([["a"], ["b"]], pa.large_string()), "s")
    assert isinstance(series.to_arrow(), pa.Array)
    assert series.dtype == D.string()


def test_numpy_shares_memory() -> None:
    for dtype, shape in (
        (D.embedding("float32", 3), (4, 3)),
        (D.tensor("int16", (2, 3)), (4, 2, 3)),
        (D.image("RGB", 2, 5), (4, 2, 5, 3)),
        (D.fixed_size_list("int64", 3), (4, 3)),
        (D.float32(), (4,)),
    ):
        inner = np.uint8 if dtype.is_image() else (dtype.inner if len(shape) > 1 else dtype).arrow.to_pandas_dtype()
        source = np.arange(np.prod(shape)).astype(inner).reshape(shape)
        series = Series.from_numpy(source, dtype=dtype)
        assert series.dtype == dtype
        assert np.shares_memory(series.to_numpy(), source), dtype
        assert np.array_equal(series[1:3].to_numpy(), source[1:3]), dtype
        assert np.shares_memory(series[1:3].to_numpy(), source), dtype
        assert np.array_equal(np.asarray(series), source)


def test_numpy_with_nulls() -> None:
    assert np.array_equal(Series.from_pylist([1, None]).to_numpy(), [1.0, np.nan], equal_nan=True)
    floats = Series.from_pylist([[1.0, 2.0], None], dtype=D.embedding("float32", 2)).to_numpy()
    assert floats.dtype == np.float32
    assert np.array_equal(floats, [[1, 2], [np.nan, np.nan]], equal_nan=True)


def test_whole_numbers_of_one_shape_with_a_null_are_an_object_array() -> None:
    image = np.zeros((2, 3, 3), np.uint8)
    for values, dtype in (
        ([image, None], D.image("RGB", 2, 3)),
        ([image.astype(np.int16), None], D.tensor("int16", (2, 3, 3))),
        ([[1, 2], None], D.fixed_size_list("int64", 2)),
        ([[1, 2], None], D.embedding("int8", 2)),
    ):
        series = Series.from_pylist(values, dtype=dtype, name="s")
        first, second = series.to_numpy()
        assert np.array_equal(first, values[0])
        assert second is None
        with pytest.raises(TypeMismatchError, match=r"Series 's' of type .* cannot become a torch tensor.*nulls"):
            series.to_torch()
        assert series[:1].to_numpy().shape[0] == 1
        assert series.to_pylist()[1] is None


def test_numpy_of_types_that_numpy_lacks() -> None:
    assert Series.from_pylist(["a", None]).to_numpy().tolist() == ["a", None]
    assert Series.from_pylist([[1], [2, 3]]).to_numpy()[1].tolist() == [2, 3]
    assert Series.from_pylist([{"a": 1}]).to_numpy().tolist() == [{"a": 1}]
    assert Series.from_pylist([{"a": 1}], dtype=D.map("str", "int")).to_numpy().tolist() == [{"a": 1}]
    ragged = Series.from_pylist([np.zeros((1, 2)), np.zeros(3)]).to_numpy()
    assert [row.shape for row in ragged] == [(1, 2), (3,)]
    nested = Series.from_pylist([[np.zeros(2)]], dtype=D.list(D.tensor("float64"))).to_numpy()
    assert nested[0][0].shape == (2,)
    days = Series.from_pylist([datetime.date(2020, 1, 1)]).to_numpy()
    assert days.dtype == np.dtype("M8[D]")


def test_times_that_python_has_not() -> None:
    far = Series(pa.array([0, 2**60], pa.timestamp("us")))
    with pytest.raises(ComputeError, match=r"type timestamp\[us\] is out of the range.*years 1 to 9999.*to_arrow"):
        far.to_pylist()


def test_torch_owns_its_memory_and_does_not_warn() -> None:
    import torch

    series = Series.from_numpy(np.ones((2, 3), np.float32), dtype=D.embedding("float32", 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = series.to_torch()
    tensor += 1
    assert tensor.shape == (2, 3)
    assert torch.equal(series.to_torch(), torch.ones(2, 3))
    assert Series.from_pylist([True, False]).to_torch().dtype == torch.bool
    with pytest.raises(TypeMismatchError, match="'s' of type string cannot become a torch tensor"):
        Series.from_pylist(["a"], name="s").to_torch()


def test_functions_of_expressions_are_methods() -> None:
    numbers, others = Series.from_pylist([1, None, 3], name="x"), Series.from_pylist([2, 2, 2])
    words = Series.from_pylist(["Ab", "c", None])
    found = {
        "add": numbers + others, "reflected": 2 * numbers, "constant": numbers + Series.from_pylist([10]),
        "compare": numbers > others, "filter": numbers.filter(numbers > 1), "choose": (numbers > 2).if_else(1, others),
        "method": words.upper(), "text": words.contains("b"), "fill": numbers.fill_null(0),
        "list": Series.from_pylist([[1, 2], []]).list_length(), "sum": numbers.sum(), "count": numbers.count(),
        "sort": numbers.sort(descending=True), "argsort": numbers.argsort(), "empty": words[:0].lower(),
    }  # fmt: skip
    assert {name: series.to_pylist() for name, series in found.items()} == {
        "add": [3, None, 5], "reflected": [2, None, 6], "constant": [11, None, 13], "compare": [False, None, True],
        "filter": [3], "choose": [2, 2, 1], "method": ["AB", "C", None], "text": [True, False, None],
        "fill": [1, 0, 3], "list": [2, 0], "sum": [4], "count": [2], "sort": [None, 3, 1], "argsort": [0, 2, 1],
        "empty": [],
    }  # fmt: skip
    assert found["add"].name == "x"
    assert Series.concat([numbers, others]).to_pylist() == [1, None, 3, 2, 2, 2]
    with pytest.raises(AttributeError, match=r"Series has no method 'uper'\. Did you mean 'upper'"):
        words.uper()
    with pytest.raises(InvalidArgumentError, match="add: a Series has 3 rows, another 2"):
        numbers + others[:2]
    with pytest.raises(InvalidArgumentError, match="download needs a query"):
        words.download()


def test_the_standard_deviation_is_that_of_expressions() -> None:
    values = [1, 2, 4]
    expected = ps.from_pydict({"x": values}).agg(ps.col("x").stddev()).to_pydict()["x"]
    assert Series.from_pylist(values).stddev().to_pylist() == pytest.approx(expected)
