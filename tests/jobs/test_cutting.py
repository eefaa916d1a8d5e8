"""Rows are taken out of finished files, as they lie there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

import penstock as ps
from penstock.io.commit.output import JobOutput
from penstock.io.formats.csv import CsvEncoding
from penstock.io.formats.json import JsonEncoding
from penstock.io.formats.lines import copy_records, csv_records
from penstock.io.formats.numpy import COLUMN, NumpyEncoding
from penstock.io.formats.parquet import ParquetEncoding
from penstock.io.writer import FileSink, file_sink
from penstock.storage.storage_options import StorageOptions
from penstock.types import Schema
from tests.io.helpers import write_records

TEXTS = ["plain", 'a "quoted" one', "two\nlines", 'three\n"\n" lines', "", "komma, comma", "ü\r\nx", None, '"', "\n"]
RANGES = [(0, 1), (2, 5), (7, 8), (9, 10)]


def cut(tmp_path: Path, sink: Any, batch: pa.RecordBatch) -> tuple[str, dict[str, Any]]:
    """Write a batch as one file of a job, and return the path and the record of what is left after a cut."""
    output = JobOutput(str(tmp_path), StorageOptions(), "run")
    output.begin()
    assert isinstance(sink, FileSink)
    job = FileSink(**{name: getattr(sink, name) for name in ("root", "encoding", "schema")}, output=output)
    (record,) = write_records(job, [batch])
    left = job.assembled("run-cut", [(record, *each) for each in RANGES])
    assert left["path"] != record["path"]
    return output.files.read_back(left["path"]), left


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_rows_are_cut_out(tmp_path: Path, kind: str, compression: str | None) -> None:
    batch = pa.record_batch({"n": range(10), "text": TEXTS})
    make, read = {
        "parquet": (ParquetEncoding, ps.read_parquet),
        "csv": (CsvEncoding, ps.read_csv),
        "json": (JsonEncoding, ps.read_json),
    }[kind]
    encoding: Any = make() if compression is None else make(compression)
    sink = file_sink(tmp_path, encoding, schema=Schema.from_arrow(batch.schema))
    path, record = cut(tmp_path, sink, batch)
    found = read(path).to_pydict()
    kept = [row for start, stop in RANGES for row in range(start, stop)]
    assert found["n"] == kept
    assert [text or None for text in found["text"]] == [TEXTS[row] or None for row in kept]
    assert (record["rows"], record["nbytes"]) == (6, Path(path).stat().st_size)


def test_rows_of_arrays_are_cut_out(tmp_path: Path) -> None:
    batch = pa.record_batch({COLUMN: pa.array([[n, n + 1] for n in range(10)], pa.list_(pa.int64(), 2))})
    sink = file_sink(tmp_path, NumpyEncoding("x"), schema=Schema.from_arrow(batch.schema))
    path, record = cut(tmp_path, sink, batch)
    assert [list(row) for row in ps.read_numpy(path).to_pydict()["data"]] == [[n, n + 1] for n in (0, 2, 3, 4, 7, 9)]
    assert record["rows"] == 6


@given(st.lists(st.sampled_from(['a,"x\ny"\n', "b\n", '"\n\n",""""\n', '""\n', "\n"])))
def test_records_of_csv_files_stay_whole(records: list[str]) -> None:
    text = "".join(records).encode()
    assert list(csv_records(text.splitlines(keepends=True))) == [record.encode() for record in records]


def test_no_range_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n3\n")
    copy_records(str(tmp_path / "b"), [(str(tmp_path / "a"), 1, 1), (str(tmp_path / "a"), 2, 9)], None)
    assert (tmp_path / "b").read_bytes() == b"3\n"
    copy_records(str(tmp_path / "b"), [], None)
    assert (tmp_path / "b").read_bytes() == b""
