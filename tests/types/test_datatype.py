from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.types import DataType

D = DataType


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (D.int64(), "int64"),
        (D.list(D.string()), "list[string]"),
        (D.fixed_size_list(D.int8(), 3), "fixed_size_list[int8; 3]"),
        (D.struct({"a": D.int64(), "b": D.string()}), "struct[a: int64, b: string]"),
        (D.struct({"a b": D.bool()}), 'struct["a b": bool]'),
        (D.map(D.string(), D.float64()), "map[string: float64]"),
        (D.embedding(D.float32(), 384), "embedding[float32; 384]"),
        (D.tensor(D.float32(), (2, 3)), "tensor[float32; 2x3]"),
        (D.tensor(D.float32()), "tensor[float32]"),
        (D.image(), "image"),
        (D.image("RGB", 4, 5), "image[RGB; 4x5]"),
        (D.image(None, 4, None), "image[4x?]"),
        (D.timestamp("us", "UTC"), "timestamp[us, UTC]"),
        (D.timestamp("ns", "+05:30"), "timestamp[ns, +05:30]"),
        (D.timestamp("ms", "America/New_York"), "timestamp[ms, America/New_York]"),
        (D.time("s"), "time[s]"),
        (D.duration("ns"), "duration[ns]"),
        (D.decimal128(10, 2), "decimal128[10, 2]"),
        (D.date(), "date"),
        (D.file(), "file"),
        (D.python(), "python"),
        (D.null(), "null"),
    ],
)
def test_a_type_reads_as_it_is_shown(dtype: DataType, text: str) -> None:
    assert str(dtype) == repr(dtype) == text
    assert D.parse(text) == dtype


@pytest.mark.parametrize(
    ("alias", "dtype"),
    [
        ("str", D.string()),
        ("text", D.string()),
        ("VARCHAR(20)", D.string()),
        ("int", D.int64()),
        ("Integer", D.int64()),
        ("bigint", D.int64()),
        ("float", D.float64()),
        ("double", D.float64()),
        ("boolean", D.bool()),
        ("bytes", D.binary()),
        ("timestamp", D.timestamp()),
        ("datetime", D.timestamp()),
        ("decimal(10,2)", D.decimal128(10, 2)),
        ("list<str>", D.list(D.string())),
        (" struct[ x : list[int] , y : text ] ", D.struct({"x": D.list(D.int64()), "y": D.string()})),
    ],
)
def test_parse_knows_the_words_of_python_and_sql(alias: str, dtype: DataType) -> None:
    assert D.parse(alias) == dtype


def test_parse_names_the_nearest_type() -> None:
    with pytest.raises(InvalidArgumentError, match=r"Unknown type 'int46'.*Did you mean 'int64'\?"):
        D.parse("int46")
    with pytest.raises(InvalidArgumentError, match=r"Unknown type 'strng'.*Did you mean 'string'"):
        D.parse("list[strng]")


@pytest.mark.parametrize(
    "text",
    ["", "list", "list[int", "list[int]]", "embedding[float32]", "int64 x", "time[h]", "tensor[int8; 2xx]", "a$b"],
)
def test_parse_refuses_invalid_types(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        D.parse(text)


def test_arrow_variants_are_normalised() -> None:
    assert D.from_arrow_type(pa.large_string()) == D.from_arrow_type(pa.string_view()) == D.string()
    assert D(pa.large_binary()) == D(pa.binary_view()) == D.binary()
    assert D(pa.large_list(pa.dictionary(pa.int8(), pa.large_string()))) == D.list(D.string())
    assert D(pa.list_view(pa.int64())) == D.list(D.int64())
    assert D(pa.map_(pa.large_string(), pa.large_list(pa.int8()))) == D.map("string", D.list("int8"))
    assert D(pa.struct([pa.field("a", pa.large_string(), nullable=False)])) == D.struct({"a": D.string()})
    assert D(pa.run_end_encoded(pa.int32(), pa.large_string())) == D.string()
    assert D(pa.fixed_shape_tensor(pa.float32(), [2, 3])) == D.tensor(D.float32(), (2, 3))
    assert D(pa.uuid()) == D.parse("uuid") == D.list(pa.uuid()).inner == D.string()
    with pytest.raises(AttributeError, match=r"no 'uuid'; UUIDs are text: use DataType.string\(\)"):
        D.uuid()


def test_of_takes_every_spelling() -> None:
    assert D.of(D.int8()) == D.of("int8") == D.of(pa.int8()) == D.of(np.int8) == D.of(np.dtype("int8")) == D.int8()
    assert D.of(list[int]) == D.list(D.int64())
    with pytest.raises(TypeMismatchError):
        D("int8")


def test_equal_types_hash_alike_and_parameters_count() -> None:
    assert len({D.tensor(D.int8(), (2, 3)), D.tensor(D.int8(), (2, 3)), D.tensor(D.int8(), (3, 2))}) == 2
    assert D.list(D.tensor(D.int8(), (2, 3))) != D.list(D.tensor(D.int8(), (3, 2)))
    assert D.image("RGB") != D.image("L") != D.image()
    assert D.embedding(D.float32(), 2) != D.fixed_size_list(D.float32(), 2)
    assert D.int64() != "int64"


def test_predicates_and_parts() -> None:
    vector = D.embedding(D.float32(), 3)
    assert (vector.is_embedding(), vector.is_special(), vector.is_list(), vector.is_comparable()) == (
        True,
        True,
        False,
        False,
    )
    assert (vector.inner, vector.size) == (D.float32(), 3)
    assert D.fixed_size_list(D.int8(), 4).is_list()
    assert D.fixed_size_list(D.int8(), 4).size == 4
    assert D.struct({"a": D.int8()}).fields == {"a": D.int8()}
    assert (D.map("str", "int").key, D.map("str", "int").value) == (D.string(), D.int64())
    assert D.tensor(D.int8(), (2, 3)).shape == (2, 3)
    assert D.tensor(D.int8()).shape is None
    assert D.image("RGB", 4, 5).shape == (4, 5, 3)
    assert D.image("RGB").mode == "RGB"
    assert (D.timestamp("ms", "UTC").unit, D.timestamp("ms", "UTC").timezone) == ("ms", "UTC")
    assert D.decimal128(5, 2).is_numeric()
    assert not D.bool().is_numeric()
    assert D.duration().is_temporal()
    assert D.fixed_size_binary(3).is_binary()
    assert D.fixed_size_binary(3).size == 3
    with pytest.raises(TypeMismatchError, match="int64 has no 'inner'"):
        _ = D.int64().inner
    with pytest.raises(TypeMismatchError, match="binary has no 'size'"):
        _ = D.binary().size


def test_types_are_immutable_and_parameters_checked() -> None:
    with pytest.raises(AttributeError):
        D.int8().arrow = pa.int16()  # type: ignore[misc]
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        D.embedding(D.float32(), 0)
    with pytest.raises(InvalidArgumentError, match="must be numbers"):
        D.embedding(D.string(), 3)
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        D.tensor(D.float32(), (0, 2))
    with pytest.raises(InvalidArgumentError, match="Did you mean 'RGB'"):
        D.image("RGBX")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (None, D.null()),
        (True, D.bool()),
        (1, D.int64()),
        (2**63, D.uint64()),
        (1.5, D.float64()),
        ("a", D.string()),
        (b"a", D.binary()),
        ([1, None], D.list(D.int64())),
        ({"a": 1}, D.struct({"a": D.int64()})),
        (np.float32(1), D.float32()),
        (np.zeros((2, 3), np.float32), D.tensor(D.float32(), (2, 3))),
        (np.zeros((0, 3), np.float32), D.tensor(D.float32())),
        (np.datetime64("2020-01-01"), D.date()),
        (object(), D.python()),
    ],
)
def test_a_value_tells_its_type(value: object, dtype: DataType) -> None:
    assert D.from_value(value) == dtype


def test_names_and_parameters_of_daft() -> None:
    assert DataType.list(dtype="int8").dtype == DataType.int8()
    assert DataType.map(key_type="str", value_type="int").key_type == DataType.string()
    assert (DataType.timestamp(timeunit="ms").timeunit, DataType.image("RGB").image_mode) == ("ms", "RGB")
    decimal = DataType.decimal128(5, 2)
    assert (decimal.precision, decimal.scale, decimal.is_decimal()) == (5, 2, True)
    assert (DataType.int8().is_int8(), DataType.int8().is_int16(), DataType.float16().is_float16()) == (
        True,
        False,
        True,
    )
    assert DataType.infer_from_type(list[int]) == DataType.infer_from_object([1]) == DataType.list("int64")
    with pytest.raises(TypeMismatchError, match="has no 'precision'"):
        _ = DataType.int8().precision
