from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pydantic
import pytest
import torch

from penstock.errors import TypeMismatchError
from penstock.storage.file import File
from penstock.types import DataType, Series, cast, default_numpy, to_arrow_array, to_batch

D = DataType


def convert(values: Any, dtype: Any = None) -> pa.Array:
    array = to_arrow_array(values, None if dtype is None else D.of(dtype), what="column 'x'")
    array.validate(full=True)
    if dtype is not None:
        assert D(array.type) == D.of(dtype)
    return array


def inferred(values: Any) -> DataType:
    return D(convert(values).type)


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: float


@dataclasses.dataclass
class Tag:
    name: str
    colour: Colour


class Person(pydantic.BaseModel):
    name: str
    tags: list[str] = []


class FakeImage:
    """The attributes of a Pillow image that the conversion uses."""

    __module__ = "PIL.Image"

    def __init__(self, pixels: np.ndarray, mode: str) -> None:
        self.pixels = pixels
        self.mode = mode

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.pixels.__array_interface__

    def convert(self, mode: str) -> FakeImage:
        assert mode == "RGB"
        return FakeImage(np.zeros((*self.pixels.shape[:2], 3), np.uint8), mode)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([], D.null()),
        ([None, None], D.null()),
        ([1, None], D.int64()),
        ([1, 2.5], D.float64()),
        (("a", None), D.string()),
        (range(3), D.int64()),
        ([[1], None, []], D.list("int64")),
        ([{"a": 1}, {"b": "x"}], D.struct({"a": "int64", "b": "string"})),
        ([2**63, 1], D.uint64()),
        ([2**63, -1], D.python()),
        ([2**70], D.python()),
        (np.array([1, 2], np.int8), D.int8()),
        (np.array([1, 2], ">i4"), D.int32()),
        (np.arange(6)[::2], D.int64()),
        (np.array(["a", "bc"]), D.string()),
        (np.array([b"a"]), D.binary()),
        (np.array(["a", None], object), D.string()),
        (np.array(["2020-01-01"], "M8[D]"), D.date()),
        (np.array(["2020-01"], "M8[M]"), D.date()),
        (np.array([5], "m8[h]"), D.duration("s")),
        (np.zeros((2, 3)), D.tensor("float64", (3,))),
        (np.zeros((2, 0)), D.tensor("float64")),
        (np.zeros((2, 3, 4), np.uint8), D.tensor("uint8", (3, 4))),
        (np.array([["a", "b"]]), D.list("string")),
        (np.zeros(2, [("a", np.int8), ("b", np.float32, 2)]), D.struct({"a": "int8", "b": D.tensor("float32", (2,))})),
        (torch.zeros(2, 3, requires_grad=True), D.tensor("float32", (3,))),
        (torch.zeros(2, dtype=torch.bfloat16), D.float32()),
        ([torch.zeros(3), torch.zeros(3)], D.tensor("float32", (3,))),
        ([torch.tensor(1.5), torch.tensor(2.5)], D.float32()),
        ([np.zeros(3), None], D.tensor("float64", (3,))),
        ([np.zeros(3), np.zeros((2, 2))], D.tensor("float64")),
        ([{"m": np.zeros((2, 2))}], D.struct({"m": D.tensor("float64", (2, 2))})),
        (pd.Series([1, 2], index=[5, 6]), D.int64()),
        (pd.Series(["a", None]), D.string()),
        (pd.Series([np.zeros(2), None]), D.tensor("float64", (2,))),
        (pd.Series(["a", "b"], dtype="category"), D.string()),
        (pa.array(["a"], pa.large_string()), D.string()),
        (pa.chunked_array([[1], [2]]), D.int64()),
        (Series.from_pylist([1.5]), D.float64()),
        ([Colour.RED], D.string()),
        ([Point(1, 2.0)], D.struct({"x": "int64", "y": "float64"})),
        ([Tag("a", Colour.RED), None], D.struct({"name": "string", "colour": "string"})),
        ([Person(name="a")], D.struct({"name": "string", "tags": D.list("string")})),
        ([FakeImage(np.zeros((2, 3), np.uint8), "L")], D.image()),
        ([object(), 1], D.python()),
        ([{1: 2}], D.python()),
        ([{"content": "x"}, {"content": [{"type": "text"}]}], D.python()),
        ([1j], D.python()),
    ],
)
def test_inference(values: Any, dtype: DataType) -> None:
    assert inferred(values) == dtype
    assert len(convert(values)) == len(values)


def test_mixed_scalars_are_refused_by_row() -> None:
    with pytest.raises(TypeMismatchError, match=r"column 'x': has 'a' of type str at row 2, expected int64.*one type"):
        convert([1, None, "a"])


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, 2.0, True, None], "int8", [1, 2, 1, None]),
        ([np.int32(1), np.float64(2), torch.tensor(3), np.array(4)], "int64", [1, 2, 3, 4]),
        ([1, 2**24 + 1, decimal.Decimal("1.5")], "float32", [1.0, 2.0**24, 1.5]),
        ([1, "1.25", 2.5], "decimal128[10, 2]", None),
        ([1, 2.5], "decimal128[10, 2]", [decimal.Decimal("1.00"), decimal.Decimal("2.50")]),
        (
            [Colour.RED, "x", pathlib.PurePosixPath("/a"), uuid.UUID(int=1)],
            "string",
            ["red", "x", "/a", str(uuid.UUID(int=1))],
        ),
        ([bytearray(b"a"), memoryview(b"b")], "binary", [b"a", b"b"]),
        ([np.datetime64("2020-01-02T03:04:05.000000006")], "timestamp", [datetime.datetime(2020, 1, 2, 3, 4, 5)]),
        ([np.datetime64("2020-01-02")], "date", [datetime.date(2020, 1, 2)]),
        ([(1, 2), {3}, np.array([4]), None, torch.tensor([5])], "list[int32]", [[1, 2], [3], [4], None, [5]]),
        ([[1, np.float64(2)]], "list[int64]", [[1, 2]]),
        ([[Colour.RED, None]], "list[string]", [["red", None]]),
        ([(1, "a"), {"1": "b"}, None], D.from_hint(tuple[int, str]), [{"0": 1, "1": "a"}, {"0": None, "1": "b"}, None]),
        ([Tag("a", Colour.RED)], D.from_hint(Tag), [{"name": "a", "colour": "red"}]),
        ([Person(name="a", tags=["t"])], D.from_hint(Person), [{"name": "a", "tags": ["t"]}]),
        ([{"a": 1}, [("b", 2)], None], "map[string: int64]", [{"a": 1}, {"b": 2}, None]),
        (["/a", pathlib.PurePosixPath("/b"), b"x"], "file", None),
    ],
)
def test_python_values_of_a_given_type(values: list[Any], dtype: Any, expected: list[Any] | None) -> None:
    if expected is None and dtype != "file":
        with pytest.raises(TypeMismatchError):
            convert(values, dtype)
        return
    rows = Series(convert(values, dtype)).to_pylist()
    if dtype == "file":
        expected = [File("/a"), File("/b"), File(b"x")]
    assert rows == expected


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        ([1, 1.5], "int64", r"column 'x': has 1.5 of type float at row 1, expected int64; a fraction"),
        ([1, 300], "int8", r"has 300 of type int at row 1, expected int8"),
        (["a", 5], "string", r"has 5 of type int at row 1, expected string"),
        (["1"], "int64", r"has '1' of type str at row 0, expected int64"),
        ([[1, 2.5]], "list[int64]", r"has \[1, 2.5\] of type list at row 0"),
        (["abc"], "list[string]", r"has 'abc' of type str at row 0, expected list\[string\]; it is not a list"),
        ([[1.0], [1.0, 2.0]], "embedding[float32; 2]", r"has \[1.0\] of type list at row 0"),
        ([np.zeros(2), np.zeros(3)], "embedding[float32; 2]", r"at row 1, expected embedding\[float32; 2\]"),
        ([["a", "b"]], "embedding[float32; 2]", "not numbers"),
        ([np.zeros((2, 2))], "tensor[float32; 2x3]", r"shape \(2, 2\)"),
        ([{"a": 1, "nmae": 2}], "struct[a: int64, name: string]", "no field 'nmae'.*Did you mean 'name'"),
        ([5], "struct[a: int64]", "a struct is made from a dict"),
        ([{"a": {"b": 1.5}}], "struct[a: struct[b: int64]]", "fraction"),
        ([np.zeros((2, 2, 3))], "image", "uint8"),
        ([b"\x89PNG"], "image", "decode_image"),
        ([np.zeros((2, 2, 3), np.uint8)], "image[L]", r"shape \(2, 2, 3\)"),
        ([5], "file", "a file is a File, a path"),
        ([1], "null", "expected null"),
        (np.zeros((2, 3)), "embedding[float32; 4]", r"array of shape \(2, 3\)"),
        (np.array([1.5]), "int64", "cannot convert float64 to int64"),
        (np.array([1 + 2j]), None, "complex128"),
        (np.float64(3), None, "expected one value for each row"),
        (5, None, "has 5 of type int, expected one value for each row"),
        ("text", None, "has 'text' of type str"),
        ({"a": 1}, None, "of type dict"),
    ],
)
def test_error_names_the_value_that_does_not_fit(values: Any, dtype: str | None, message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        convert(values, dtype)


def test_long_values_are_shortened_in_errors() -> None:
    with pytest.raises(TypeMismatchError) as caught:
        convert(["x" * 1000], "int64")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "dtype",
    [
        "embedding[float32; 3]",
        "fixed_size_list[float32; 3]",
        "list[float32]",
        "list[int64]",
        "tensor[float32; 3]",
        "tensor[int8]",
    ],
)
def test_a_matrix_becomes_any_vector_type(dtype: str) -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    for values in (matrix, torch.from_numpy(matrix), list(matrix), matrix.tolist(), np.asfortranarray(matrix)):
        array = convert(values, dtype)
        assert np.array_equal(np.stack([np.asarray(row) for row in array.to_pylist()]), matrix)
    assert len(convert(np.zeros((0, 3)), dtype)) == 0
    assert len(convert([], dtype)) == 0


def test_deep_arrays_become_nested_lists_and_images() -> None:
    cube = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    assert convert(cube, "list[list[list[int64]]]").to_pylist() == cube.tolist()
    assert convert(cube, "fixed_size_list[list[fixed_size_list[uint8; 3]]; 2]").to_pylist() == cube.tolist()
    for dtype in ("image", "image[RGB]", "image[RGB; 2x2]"):
        assert np.array_equal(np.stack(convert(cube, dtype).to_pylist()), cube)
        assert np.array_equal(np.stack(convert([*cube], dtype).to_pylist()), cube)
    gray = convert(cube[..., 0], "image[L; 2x2]")
    assert default_numpy(gray).shape == (2, 2, 2, 1)
    assert len(convert(np.zeros((0, 2, 2, 3), np.uint8), "image")) == 0


def test_arrays_share_memory() -> None:
    matrix = np.zeros((100, 8), np.float32)
    assert np.shares_memory(default_numpy(convert(matrix, "embedding[float32; 8]")), matrix)
    assert np.shares_memory(default_numpy(convert(matrix)), matrix)
    assert np.shares_memory(default_numpy(convert(torch.from_numpy(matrix))), matrix)


def test_pillow_images() -> None:
    palette = FakeImage(np.zeros((2, 3), np.uint8), "P")
    gray = FakeImage(np.full((2, 3), 7, np.uint8), "L")
    shapes = [row.shape for row in convert([palette, gray]).to_pylist()]
    assert shapes == [(2, 3, 3), (2, 3, 1)]
    assert convert([gray, None], "image[RGB; 2x3]").to_pylist()[0].shape == (2, 3, 3)


def test_missing_values_of_pandas_are_null_and_of_numpy_are_not() -> None:
    assert convert(pd.Series([1.5, np.nan])).null_count == 1
    assert convert(pd.Series([object(), np.nan])).null_count == 1
    assert convert(pd.Series(pd.to_datetime(["2020-01-01", None]))).null_count == 1
    assert convert(np.array([1.5, np.nan])).null_count == 0
    assert convert([1.5, float("nan"), None]).null_count == 1


def test_objects_of_main_are_pickled_by_value() -> None:
    made_here = dataclasses.make_dataclass("MadeHere", ["x"])
    made_here.__module__ = "__main__"
    assert convert([made_here(3), None], D.python()).to_pylist()[0].x == 3


class TestToBatch:
    @pytest.mark.parametrize(
        "output",
        [
            {"a": [1, 2], "b": np.array([[1.0], [2.0]])},
            {"a": torch.tensor([1, 2]), "b": np.array([[1.0], [2.0]])},
            pd.DataFrame({"a": [1, 2], "b": [np.array([1.0]), np.array([2.0])]}, index=[7, 8]),
            pa.table({"a": pa.chunked_array([[1], [2]]), "b": to_arrow_array(np.array([[1.0], [2.0]]), None, what="")}),
            pa.record_batch({"a": [1, 2], "b": to_arrow_array(np.array([[1.0], [2.0]]), None, what="")}),
        ],
    )
    def test_accepted(self, output: Any) -> None:
        batch = to_batch(output, "map_batches(f)")
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema == pa.schema([("a", pa.int64()), ("b", D.tensor("float64", (1,)).arrow)])
        assert batch.column("a").to_pylist() == [1, 2]

    @pytest.mark.parametrize("output", [None, 5, [1, 2], [{"a": 1}], np.zeros(3), "text", pd.Series([1])])
    def test_refused(self, output: Any) -> None:
        with pytest.raises(
            TypeMismatchError, match=r"map_batches\(f\): returned .* of type \w+, expected a dict of arrays"
        ):
            to_batch(output, "map_batches(f)")

    def test_unequal_lengths_are_named(self) -> None:
        with pytest.raises(TypeMismatchError, match="'a' has 2, 'b' has 3"):
            to_batch({"a": [1, 2], "b": [1, 2, 3]}, "f")

    def test_a_scalar_column_is_named(self) -> None:
        with pytest.raises(TypeMismatchError, match="f: column 'a': has 5 of type int"):
            to_batch({"a": 5}, "f")

    @pytest.mark.parametrize(
        "output",
        [
            {1: [1], "1": [2]},
            pd.DataFrame([[1, 2]], columns=["1", "1"]),
            pa.table([[1], [2]], names=["1", "1"]),
            pa.record_batch([pa.array([1]), pa.array([2])], names=["1", "1"]),
        ],
    )
    def test_no_column_is_lost_to_its_namesake(self, output: Any) -> None:
        with pytest.raises(TypeMismatchError, match="f: returned two columns named '1'"):
            to_batch(output, "f")

    def test_nothing(self) -> None:
        assert to_batch({}, "f").num_columns == 0
        assert to_batch(pa.table({"a": pa.array([], pa.large_string())}), "f").schema == pa.schema([("a", pa.string())])


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([1, None], "int64", "string", ["1", None]),
        (["1"], "string", "int64", [1]),
        ([[1.0, 2.0], None], "list[float64]", "embedding[float32; 2]", [[1, 2], None]),
        ([[1.0, 2.0], None], "embedding[float32; 2]", "list[float64]", [[1, 2], None]),
        ([[1.0, 2.0], None], "embedding[float32; 2]", "embedding[float64; 2]", [[1, 2], None]),
        ([[1.0, 2.0], None], "embedding[float32; 2]", "tensor[float32; 2]", [[1, 2], None]),
        ([[1.0, 2.0]], "tensor[float32; 2]", "embedding[float32; 2]", [[1, 2]]),
        ([[[1, 2], [3, 4]]], "tensor[int8; 2x2]", "list[list[int64]]", [[[1, 2], [3, 4]]]),
        ([[[1, 2], [3, 4]]], "tensor[int8; 2x2]", "tensor[int8]", [[[1, 2], [3, 4]]]),
        ([[1, 2, 3, 4]], "fixed_size_list[int8; 4]", "tensor[int8; 2x2]", [[[1, 2], [3, 4]]]),
        ([[[1, 2], [3, 4]]], "list[list[int64]]", "tensor[int8; 2x2]", [[[1, 2], [3, 4]]]),
        ([[[[1]]], None], "image[L; 1x1]", "image", [[[[1]]], None]),
        ([[[[1, 2, 3]]]], "image", "tensor[uint8]", [[[[1, 2, 3]]]]),
        (["/a", None], "string", "file", [File("/a"), None]),
        (["/a", None], "file", "string", ["/a", None]),
        ([{"a": 1}, None], "struct[a: int64]", "python", [{"a": 1}, None]),
        ([1, None], "python", "int8", [1, None]),
        ([None], "null", "image", [None]),
        ([[[1.0, 2.0]]], "list[list[float64]]", "list[embedding[float32; 2]]", [[[1, 2]]]),
        ([{"a": 1}], "struct[a: int64]", "struct[a: float64, b: string]", [{"a": 1.0, "b": None}]),
    ],
)
def test_cast(values: list[Any], source: str, target: str, expected: list[Any]) -> None:
    if source.startswith("image"):
        values = [None if value is None else np.array(value, np.uint8) for value in values]
    result = cast(convert(values, source), D.parse(target))
    result.validate(full=True)
    assert D(result.type) == D.parse(target)

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tolist()
        return [plain(item) for item in value] if isinstance(value, list) else value

    assert plain(Series(result).to_pylist()) == expected


def test_cast_refuses_loss() -> None:
    with pytest.raises(TypeMismatchError, match="f: cannot convert float64 to int64"):
        cast(pa.array([1.5]), D.int64(), what="f")
    with pytest.raises(TypeMismatchError, match="cannot convert"):
        cast(pa.array([[1.0], [1.0, 2.0]]), D.embedding("float32", 2))
    with pytest.raises(TypeMismatchError, match="cannot convert"):
        cast(pa.array([1]), D.list("int64"))
    array = pa.array([1])
    assert cast(array, D.int64()) is array
