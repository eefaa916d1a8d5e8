from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from penstock.errors import ColumnNotFoundError, InvalidArgumentError
from penstock.types import DataType, Field, Schema

SCHEMA = Schema.from_pydict({"id": DataType.int64(), "text": "string", "vector": DataType.embedding("float32", 3)})


def test_columns_by_name_and_by_position() -> None:
    assert SCHEMA["text"] == SCHEMA[1] == SCHEMA.field("text") == Field("text", DataType.string())
    assert SCHEMA.names == SCHEMA.column_names() == ["id", "text", "vector"]
    assert SCHEMA.dtypes[0] == DataType.int64()
    assert SCHEMA.index("vector") == 2
    assert "id" in SCHEMA
    assert "nope" not in SCHEMA
    assert [field.name for field in SCHEMA] == SCHEMA.names
    assert len(SCHEMA) == 3
    assert SCHEMA.select(["vector", "id"]).names == ["vector", "id"]


def test_a_missing_column_names_the_nearest() -> None:
    with pytest.raises(
        ColumnNotFoundError, match=r"'txt' not found; available: id, text, vector. Did you mean 'text'\?"
    ):
        SCHEMA["txt"]
    with pytest.raises(ColumnNotFoundError):
        SCHEMA.select(["id", "txt"])


def test_names_are_unique() -> None:
    with pytest.raises(InvalidArgumentError, match="'a' appears twice"):
        Schema([Field("a", DataType.int8()), Field("a", DataType.int8())])


def test_arrow_and_back() -> None:
    assert Schema.from_arrow(SCHEMA.to_arrow()) == SCHEMA
    large = pa.schema([pa.field("id", pa.large_string(), nullable=False, metadata={"k": "v"})])
    assert Schema.from_arrow(large).to_arrow() == pa.schema([("id", pa.string())])


def test_equality_is_of_names_types_and_order() -> None:
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA
    assert hash(pickle.loads(pickle.dumps(SCHEMA))) == hash(SCHEMA)
    assert SCHEMA.select(["text", "id", "vector"]) != SCHEMA
    assert Schema.from_pydict({"id": "int32", "text": "string", "vector": SCHEMA.dtypes[2]}) != SCHEMA


def test_it_is_shown_as_a_table() -> None:
    assert repr(Schema.from_pydict({"a": "int64", "longer": "list[string]"})).splitlines() == [
        "column  type",
        "------  ------------",
        "a       int64",
        "longer  list[string]",
    ]
    assert "<td>&lt;b&gt;</td><td>int64</td>" in Schema.from_pydict({"<b>": "int64"})._repr_html_()
    assert repr(Schema([])) == "column  type\n------  ----"
