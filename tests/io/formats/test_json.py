"""JSON: lines and arrays, types, and errors that name the line."""

from __future__ import annotations

import gzip
import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import CorruptFileError, WriteError
from penstock.io.file_source import FileSource
from penstock.io.formats import lines
from penstock.io.formats.json import JsonEncoding, JsonFormat
from penstock.io.writer import FileSink
from penstock.protocols import Condition, ReadRequest
from penstock.types import DataType, to_arrow_array
from tests.io.helpers import read_rows, read_table, write_all


def source_of(tmp_path: Path, content: str | bytes, **options: Any) -> FileSource:
    path = tmp_path / "x.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return FileSource(JsonFormat(), path, **options)


def read(tmp_path: Path, content: str | bytes, **options: Any) -> list[dict[str, Any]]:
    return read_rows(source_of(tmp_path, content, **options))


ROWS = [{"a": 1, "b": {"c": [1.5], "d": None}}, {"a": None, "b": {"c": [], "d": "x"}}]


@pytest.mark.parametrize(
    "content",
    [
        "\n".join(map(json.dumps, ROWS)),
        "\n".join(map(json.dumps, ROWS)) + "\n",
        "\n\n" + "\r\n\r\n".join(map(json.dumps, ROWS)) + "\n\n",
        json.dumps(ROWS),
        "\n  " + json.dumps(ROWS, indent=2) + "\n",
        "\ufeff" + "\n".join(map(json.dumps, ROWS)),
    ],
)
def test_lines_and_arrays_are_distinguished(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content) == ROWS


def test_text_stays_text_and_what_is_always_null_is_text(tmp_path: Path) -> None:
    source = source_of(tmp_path, '{"day": "2024-05-01", "nothing": null, "list": []}')
    assert [field.dtype for field in source.schema()] == [
        DataType.string(),
        DataType.string(),
        DataType.list("string"),
    ]
    assert read_rows(source) == [{"day": "2024-05-01", "nothing": None, "list": []}]


def test_schema_decides_types(tmp_path: Path) -> None:
    schema = {"day": "date", "e": DataType.embedding("float32", 2), "n": "float64"}
    [row] = read(tmp_path, '{"day": "2024-05-01", "e": [1, 2], "n": 3}', schema=schema)
    assert row["day"] == date(2024, 5, 1)
    assert row["e"].tolist() == [1.0, 2.0]
    assert row["n"] == 3.0


def test_files_with_other_fields(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "2.jsonl").write_text('{"b": 1}\n{"a": 2, "b": 3}')
    assert read_rows(FileSource(JsonFormat(), tmp_path)) == [{"a": 1}, {"a": None}, {"a": 2}]


@pytest.mark.parametrize("content", ["", " \n\n", "[]"])
def test_empty_files_give_no_rows(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content) == []


def test_projection_filter_and_count(tmp_path: Path) -> None:
    source = source_of(tmp_path, '{"a": 1, "b": "x"}\n\n{"a": 2, "b": "y"}\n')
    assert read_rows(source, columns=("b",), conditions=(Condition("a", ">", 1),)) == [{"b": "y"}]
    assert sum(b.num_rows for t in source.read_tasks(ReadRequest(columns=())) for b in t.read()) == 2


def test_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n'))
    assert read_rows(FileSource(JsonFormat(), tmp_path)) == [{"a": 1}]


def test_lines_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_NBYTES", 64)
    rows = [{"a": number, "b": "y" * (number * 20)} for number in range(50)]
    assert read(tmp_path, "\n".join(map(json.dumps, rows))) == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\n{"a": oops}\n', r"line 2: not valid JSON \(.*\): '\{\"a\": oops\}'"),
        ('{"a": 1}\n\n\n{"a": 1\n', r"line 4: not valid JSON"),
        ('{"a": 1}\n[1]\n', r"line 2: not an object"),
        ('{"a": 1}\n{"a": "' + "z" * 200 + "}\n", r"line 2: not valid JSON \(.*\): '.{77}\.\.\.'"),
        ('[{"a": 1},\n{"a": }]', r"line 2: the file begins with '\[' but is not a JSON array"),
        ('[{"a": 1}, 5]', r"element 2: not an object"),
        ('{"a": 1}\n{"a": "x", "b": 1.5}\n', r"line 2: Column\(/a\) changed from number to string.*give schema="),
        ('{"a": 1}\n{"a": 3, "a": 2}\n', r"line 2: Column\(/a\) was specified twice"),
        ('{\n  "a": 1,\n  "b":\n}\n', r"line 1: not valid JSON"),
        ('{"a": 1}\n{"a": 1.5}\n', r"line 1 or later: .*couldn't parse.*1\.5.*give schema="),
        (b'{"a": "x"}\n{"a": "\xff"}\n', r"line 2: byte 0xff is not UTF-8 text"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(CorruptFileError, match=rf"Cannot read '.*/x\.json', {message}"):
        read(tmp_path, content, schema={"a": "int64"} if "1.5" in str(content) else None)


MIXED = """
{"v": 1.10, "w": 1, "x": {"y": ["a"]}}
{"v": "a", "w": 2, "x": {"y": [7, null, {"z": 0}]}}
{"v": {"n": [1]}, "w": null}
{"v": true, "w": 5}
{"v": null, "w": 6}
"""
TEXTS = ["1.10", "a", '{"n":[1]}', "true", None]


@pytest.mark.parametrize("options", [{}, {"schema": {"v": "string"}}])
def test_a_column_of_mixed_types_is_text(tmp_path: Path, options: dict[str, Any]) -> None:
    assert [row["v"] for row in read(tmp_path, MIXED, **options)] == TEXTS
    assert [row["w"] for row in read(tmp_path, MIXED, columns=["w"], **options)] == [1, 2, None, 5, 6]


def test_mixed_types_below_a_column_are_text_where_the_schema_says_so(tmp_path: Path) -> None:
    nested = DataType(pa.struct([("y", pa.list_(pa.string()))]))
    rows = read(tmp_path, MIXED, schema={"x": nested}, infer_schema=False)
    assert rows[:2] == [{"x": {"y": ["a"]}}, {"x": {"y": ["7", None, '{"z":0}']}}]


def test_types_that_mix_after_the_first_block_need_a_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_NBYTES", 64)
    content = '{"v": 1}\n' * 100 + '{"v": "a"}\n'
    with pytest.raises(CorruptFileError, match=r"line 101: Column.* changed from number to string; give schema="):
        read(tmp_path, content)
    assert [row["v"] for row in read(tmp_path, content, schema={"v": "string"})] == ["1"] * 100 + ["a"]


def test_one_object_over_several_lines_is_one_row(tmp_path: Path) -> None:
    assert read(tmp_path, "\n" + json.dumps(ROWS[0], indent=2) + "\n") == [{"a": 1, "b": {"c": [1.5], "d": None}}]


def test_lines_are_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_NBYTES", 64)
    with pytest.raises(CorruptFileError, match="line 101: not valid JSON"):
        read(tmp_path, '{"a": 1}\n' * 100 + "{]\n" + '{"a": 1}\n' * 100)


# --- writing ---


def written(tmp_path: Path, batch: pa.RecordBatch) -> list[Any]:
    shown = write_all(FileSink(str(tmp_path / "out"), JsonEncoding()), batch)
    [path] = shown.column("path").to_pylist()
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_every_type_has_a_form(tmp_path: Path) -> None:
    columns = {
        "date": pa.array([date(2024, 5, 1)]),
        "time": pa.array([datetime(2024, 5, 1, 10, 0, 0, 5)], pa.timestamp("ns")),
        "zoned": pa.array([datetime(2024, 5, 1, 10)], pa.timestamp("us", "UTC")),
        "span": pa.array([timedelta(seconds=1.5)]),
        "decimal": pa.array([Decimal("1.10")]),
        "bytes": pa.array([b"\xff\x00"]),
        "nan": pa.array([float("nan")]),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"x": [Decimal("2.5")]}]),
        "embedding": to_arrow_array([[1.0, 2.0]], DataType.embedding("float32", 2), what="x"),
        "tensor": to_arrow_array(np.arange(4).reshape(1, 2, 2), None, what="x"),
        "half": pa.array(np.array([0.5], np.float16)),
        "null": pa.nulls(1),
    }
    assert written(tmp_path, pa.RecordBatch.from_pydict(columns)) == [
        {
            "date": "2024-05-01",
            "time": "2024-05-01T10:00:00.000005000",
            "zoned": "2024-05-01T10:00:00+00:00",
            "span": 1.5,
            "decimal": 1.1,
            "bytes": "/wA=",
            "nan": None,
            "map": {"k": 1},
            "struct": {"x": [2.5]},
            "embedding": [1.0, 2.0],
            "tensor": [[0, 1], [2, 3]],
            "half": 0.5,
            "null": None,
        }
    ]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pylist([{"a": 1, "b": {"c": ["x", None]}}, {"a": None, "b": None}])
    for compression in (None, "gzip"):
        root = tmp_path / str(compression)
        write_all(FileSink(str(root), JsonEncoding(compression)), batch)
        assert read_table(FileSource(JsonFormat(), root)).to_pylist() == batch.to_pylist()


def test_a_value_without_a_form_is_an_error(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"a": to_arrow_array([object], DataType.python(), what="x")})
    with pytest.raises(WriteError, match=r"JSON cannot hold a value: .*object.*type"):
        write_all(FileSink(str(tmp_path / "out"), JsonEncoding()), batch)


def test_a_file_is_its_path(tmp_path: Path) -> None:
    df = ps.from_pydict({"f": [ps.File("a/b.txt"), None, ps.File("s3://bucket/x")]})
    df.write_json(str(tmp_path / "out"))
    assert ps.read_json(tmp_path / "out").to_pydict() == {"f": ["a/b.txt", None, "s3://bucket/x"]}
    with pytest.raises(WriteError, match=r"is in memory and has no path; write its content with download"):
        ps.from_pydict({"f": [ps.File(b"x")]}).write_json(str(tmp_path / "other"))
