"""CSV: dialects, types, and errors that name the row."""

from __future__ import annotations

import gzip
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import CorruptFileError, InvalidArgumentError, TypeMismatchError
from penstock.io.file_source import FileSource
from penstock.io.formats import csv as csv_module
from penstock.io.formats.csv import CsvEncoding, CsvFormat
from penstock.io.writer import FileSink
from penstock.protocols import Condition, ReadRequest
from tests.io.helpers import read_rows, read_table, write_all


def source_of(
    tmp_path: Path, content: str | bytes, options: dict[str, Any] | None = None, **dialect: Any
) -> FileSource:
    path = tmp_path / "x.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return FileSource(CsvFormat(**dialect), path, **(options or {}))


def read(tmp_path: Path, content: str | bytes, options: dict[str, Any] | None = None, **dialect: Any) -> Any:
    return read_table(source_of(tmp_path, content, options, **dialect)).to_pydict()


def test_types_are_inferred(tmp_path: Path) -> None:
    content = "i,f,b,d,t,s,empty\n1,1.5,true,2024-05-01,2024-05-01 10:00:00,x,\n,,,,,,\n"
    assert read(tmp_path, content) == {
        "i": [1, None],
        "f": [1.5, None],
        "b": [True, None],
        "d": [date(2024, 5, 1), None],
        "t": [datetime(2024, 5, 1, 10), None],
        "s": ["x", None],
        "empty": [None, None],
    }
    assert source_of(tmp_path, content).schema()["empty"].dtype.is_string()


def test_null_is_an_empty_field_and_quotes_make_it_empty_text(tmp_path: Path) -> None:
    assert read(tmp_path, 'a,b\n1,\n2,""\n3,NA\n') == {"a": [1, 2, 3], "b": [None, "", "NA"]}
    assert read(tmp_path, "a,b\n1,NA\n2,x\n", null_values=("NA",)) == {"a": [1, 2], "b": [None, "x"]}


@pytest.mark.parametrize(
    ("content", "dialect"),
    [
        ("a\tb\n1\tx,y\n", {"delimiter": "\t"}),
        ("a,b\n1,'x,y'\n", {"quote": "'"}),
        ('a,b\n1,"x,y"\n', {}),
        ("a,b\n1,x\\,y\n", {"escape_char": "\\"}),
        ('\ufeffa,b\r\n1,"x,y"\r\n', {}),
    ],
)  # fmt: skip
def test_dialects(tmp_path: Path, content: str, dialect: dict[str, Any]) -> None:
    assert read(tmp_path, content, **dialect) == {"a": [1], "b": ["x,y"]}


def test_quoted_fields_span_lines(tmp_path: Path) -> None:
    assert read(tmp_path, 'a,b\n1,"x\n""y"""\n2,z\n') == {"a": [1, 2], "b": ['x\n"y"', "z"]}


def test_options_must_be_single_characters(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="delimiter='::' must be a single ASCII character"):
        CsvFormat(delimiter="::")


def test_without_headers(tmp_path: Path) -> None:
    content = "1,x\n2,y\n"
    assert read(tmp_path, content, has_headers=False) == {"column_1": [1, 2], "column_2": ["x", "y"]}
    assert read(tmp_path, content, {"columns": ["column_2"]}, has_headers=False) == {"column_2": ["x", "y"]}
    options = {"schema": {"n": "float64", "s": "string"}, "infer_schema": False}
    assert read(tmp_path, content, options, has_headers=False, column_names=("n", "s")) == {
        "n": [1.0, 2.0],
        "s": ["x", "y"],
    }


def test_schema_decides_types(tmp_path: Path) -> None:
    assert read(tmp_path, "a,b\n01,2\n", {"schema": {"a": "string"}}) == {"a": ["01"], "b": [2]}


def test_duckdb_reads_rows_of_variable_length(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("# note\na,b\n1\n2,x\n")
    for option in ("comment", "allow_variable_columns"):
        with pytest.raises(InvalidArgumentError, match=rf"no option '{option}'.*null_padding=True"):
            ps.read_csv(path, **{option: True})  # type: ignore[arg-type]
    table = duckdb.read_csv(str(path), comment="#", null_padding=True).arrow()
    assert ps.from_arrow(table).to_pydict() == {"a": [1, 2], "b": [None, "x"]}


@pytest.mark.parametrize("content", ["", "\n\n", "a,b\n"])
def test_empty_files_give_no_rows(tmp_path: Path, content: str) -> None:
    source = source_of(tmp_path, content)
    assert read_table(source).num_rows == 0
    assert source.schema().names == (["a", "b"] if "a" in content else [])


def test_an_empty_first_file_leaves_the_schema_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("")
    (tmp_path / "1.csv").write_text("a\n1\n")
    assert read_rows(FileSource(CsvFormat(), tmp_path)) == [{"a": 1}]


def test_projection_filter_and_count(tmp_path: Path) -> None:
    source = source_of(tmp_path, "a,b\n1,x\n2,y\n")
    assert read_rows(source, columns=("b",), conditions=(Condition("a", ">", 1),)) == [{"b": "y"}]
    assert sum(b.num_rows for t in source.read_tasks(ReadRequest(columns=())) for b in t.read()) == 2


def test_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a\n1\n"))
    assert read_rows(FileSource(CsvFormat(), tmp_path)) == [{"a": 1}]


def test_a_row_longer_than_a_block_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "MAX_BLOCK_NBYTES", 64)
    rows = "1,x\n" * 100
    assert len(read(tmp_path, "a,b\n" + rows)["a"]) == 100
    with pytest.raises(CorruptFileError, match=r"Cannot read '.*/x\.csv': a row has over 64 bytes"):
        read(tmp_path, f"a,b\n{rows}2,{'y' * 5000}\n{rows}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n", r": .*Row #3: Expected 2 columns, got 1: 3"),
        ('a,b\n1,"x\ny\nz"\n3\n', r": .*Row #3: Expected 2 columns, got 1: 3"),
        (b"a,b\n1,x\n2,\xff\n", r", row 3, column 'b': conversion error to string: invalid UTF8 data"),
        (b"a,\xfe\n1,x\n", r": 'utf-8' codec can't decode byte 0xfe in position 2"),
    ],
)
def test_bad_rows_name_file_and_row(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(CorruptFileError, match=rf"Cannot read '.*/x\.csv'{message}"):
        read(tmp_path, content)


def test_a_value_that_does_not_fit_the_type_names_row_and_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_module, "MAX_BLOCK_NBYTES", 64)
    content = "a,b\n" + "1,2\n" * 50 + "3,oops\n"
    message = r"row 52, column 'b': conversion error to int64: invalid value 'oops'; give schema=\{'b': 'string'\}"
    with pytest.raises(CorruptFileError, match=message):
        read(tmp_path, content)
    assert read(tmp_path, content, {"schema": {"b": "string"}})["b"][-1] == "oops"


# --- writing ---


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    batch = batch_of(i=[1, None], s=["", None], t=['a,"b"\nc', "d"], d=[date(2024, 5, 1), None])
    write_all(FileSink(str(tmp_path / "out"), CsvEncoding()), batch)
    assert read_table(FileSource(CsvFormat(), tmp_path / "out")).to_pydict() == batch.to_pydict()


def test_nulls_of_a_single_column_are_read_back(tmp_path: Path) -> None:
    batch = batch_of(a=[None, 1, None, 2, None])
    write_all(FileSink(str(tmp_path / "out"), CsvEncoding()), batch)
    assert read_table(FileSource(CsvFormat(), tmp_path / "out")).to_pydict() == batch.to_pydict()


@pytest.mark.parametrize("compression", ["gzip", "zstd", "bz2", "lz4"])
def test_compression(tmp_path: Path, compression: str) -> None:
    shown = write_all(FileSink(str(tmp_path / "out"), CsvEncoding(compression=compression)), batch_of(a=[1]))
    assert shown.column("path")[0].as_py().endswith((".csv.gz", ".csv.zst", ".csv.bz2", ".csv.lz4"))
    assert read_rows(FileSource(CsvFormat(), tmp_path / "out")) == [{"a": 1}]


def test_compression_that_is_not_known() -> None:
    with pytest.raises(InvalidArgumentError, match="compression='rar' is not known"):
        CsvEncoding(compression="rar")


def test_nested_columns_are_refused_by_name(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "out"), CsvEncoding())
    sink.start()
    with pytest.raises(TypeMismatchError, match=r"Column 'tags' of type list\[int64\] does not fit into CSV"):
        sink.open().write(batch_of(a=[1], tags=[[1]]))
    sink.abort()


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig", "gb18030"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('name,größe\nä,1\n"ö,ü",2\n'.encode(encoding))
    assert ps.read_csv(path, encoding=encoding).to_pydict() == {"name": ["ä", "ö,ü"], "größe": [1, 2]}


def test_wrong_encodings_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\n\x81\n")
    with pytest.raises(CorruptFileError, match=r"a\.csv': 'charmap' codec can't decode byte 0x81"):
        ps.read_csv(path, encoding="cp1252").collect()
    with pytest.raises(CorruptFileError, match=r"encoding= if it is not UTF-8"):
        ps.read_csv(path).collect()
    with pytest.raises(InvalidArgumentError, match="encoding='klingon' is not known"):
        ps.read_csv(path, encoding="klingon")
