"""Parquet: how files are cut into tasks and batches, and what is said of broken ones."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import CorruptFileError, PathNotFoundError
from penstock.io.batch_sizes import BATCH_NBYTES, BATCH_ROWS, TASK_ROWS
from penstock.io.file_source import FileSource
from penstock.io.formats.parquet import ParquetEncoding, ParquetFormat
from penstock.io.writer import FileSink
from penstock.protocols import Condition, ReadRequest
from penstock.types import DataType, to_arrow_array
from tests.io.helpers import parquet_rows, read_rows, read_table, requested, write_all


def source_of(table: pa.Table, path: Path, **options: int) -> FileSource:
    pq.write_table(table, path, **options)
    return FileSource(ParquetFormat(), path)


def test_a_large_file_is_several_tasks_of_moderate_batches(tmp_path: Path) -> None:
    table = pa.table({"a": np.arange(3 * TASK_ROWS)})
    source = source_of(table, tmp_path / "x.parquet", row_group_size=TASK_ROWS // 2)
    tasks = list(source.read_tasks(ReadRequest()))
    assert [task.num_rows for task in tasks] == [TASK_ROWS] * 3
    batches = [batch for task in tasks for batch in task.read()]
    assert max(batch.num_rows for batch in batches) <= BATCH_ROWS
    assert pa.Table.from_batches(batches).equals(table)


def test_the_last_row_groups_of_a_file_are_no_small_task(tmp_path: Path) -> None:
    table = pa.table({"a": np.arange(TASK_ROWS * 9 // 4)})
    source = source_of(table, tmp_path / "x.parquet", row_group_size=TASK_ROWS // 8)
    assert [task.num_rows for task in source.read_tasks(ReadRequest())] == [TASK_ROWS, TASK_ROWS * 5 // 4]


def test_small_row_groups_are_read_together(tmp_path: Path) -> None:
    source = source_of(pa.table({"a": range(1000)}), tmp_path / "x.parquet", row_group_size=10)
    [task] = source.read_tasks(ReadRequest())
    assert [batch.num_rows for batch in task.read()] == [1000]


def test_batches_of_large_values_are_bounded_in_bytes(tmp_path: Path) -> None:
    # The same value over and over is small in the file: its size in memory shows only when it is read.
    source = source_of(pa.table({"a": ["x" * 100_000] * 1000}), tmp_path / "x.parquet")
    batches = [batch for task in source.read_tasks(ReadRequest()) for batch in task.read()]
    assert sum(batch.num_rows for batch in batches) == 1000
    assert max(batch.nbytes for batch in batches) <= 1.5 * BATCH_NBYTES


def test_row_groups_that_cannot_match_are_not_read(tmp_path: Path) -> None:
    source = source_of(pa.table({"a": range(100), "b": range(100)}), tmp_path / "x.parquet", row_group_size=10)
    conditions = (Condition("a", ">=", 42), Condition("a", "<", 44))
    assert [task.num_rows for task in source.read_tasks(requested(source, *conditions))] == [10]
    assert read_rows(source, columns=("b",), conditions=conditions) == [{"b": 42}, {"b": 43}]
    assert list(source.read_tasks(requested(source, Condition("a", ">", 1000)))) == []


def test_a_condition_on_a_column_the_file_lacks(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [2]}), tmp_path / "2.parquet")
    source = FileSource(ParquetFormat(), tmp_path)
    assert read_rows(source, conditions=(Condition("b", "is null"),)) == [{"a": 2, "b": None}]
    assert read_rows(source, conditions=(Condition("b", "=", 1),)) == [{"a": 1, "b": 1}]


def test_types_are_normal(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array(["x"], pa.large_string()), "b": pa.array(["y"]).dictionary_encode()})
    source = source_of(table, tmp_path / "x.parquet")
    assert source.schema().to_arrow() == pa.schema([("a", pa.string()), ("b", pa.string())])
    assert read_table(source).schema == source.schema().to_arrow()


def test_nested_columns(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": {"x": [1, 2], "y": None}, "b": [{"z": "t"}]}, {"a": None, "b": []}]
    source = source_of(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    assert read_rows(source) == rows
    assert read_rows(source, columns=("a",)) == [{"a": row["a"]} for row in rows]


def test_uuids_are_text_also_in_filters(tmp_path: Path) -> None:
    keys = [uuid.UUID(int=number << 120) for number in (1, 2, 250)]
    for stores_schema in (True, False):
        pq.write_table(pa.table({"k": keys}), tmp_path / "x.parquet", row_group_size=1, store_schema=stores_schema)
        df = ps.read_parquet(tmp_path)
        assert df.to_pydict() == {"k": [str(key) for key in keys]}
        assert df.where(ps.col("k") >= str(keys[1])).to_pydict() == {"k": [str(key) for key in keys[1:]]}


def test_files_without_rows_or_row_groups(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.int32())}), tmp_path / "0.parquet")
    assert parquet_rows(tmp_path) == []
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "1.parquet")
    assert parquet_rows(tmp_path) == [{"a": 1}]


def test_extension_types_survive(tmp_path: Path) -> None:
    columns = {
        "embedding": to_arrow_array([[1.0, 2.0], None], DataType.embedding("float32", 2), what="x"),
        "tensor": to_arrow_array(np.arange(12).reshape(2, 2, 3), None, what="x"),
        "image": to_arrow_array([np.zeros((2, 3, 3), np.uint8), None], DataType.image(), what="x"),
        "python": to_arrow_array([{1, 2}, None], DataType.python(), what="x"),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    write_all(FileSink(str(tmp_path / "out"), ParquetEncoding()), batch)
    table = read_table(FileSource(ParquetFormat(), tmp_path / "out"))
    assert table.schema == batch.schema
    assert table.to_batches()[0].column("tensor")[1].as_py().tolist() == [[6, 7, 8], [9, 10, 11]]
    assert table.column("python").to_pylist() == [{1, 2}, None]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"hello, this is no parquet file", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_what_is_not_parquet_names_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"Cannot read '.*/x\.parquet'"):
        parquet_rows(tmp_path)


def test_damaged_row_groups_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": np.random.default_rng(0).random(4000)}), path, row_group_size=1000)
    column = pq.ParquetFile(path).metadata.row_group(2).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * column.total_compressed_size)
    with pytest.raises(CorruptFileError, match=r"x\.parquet', row groups 0 to 3 of 4: ") as raised:
        parquet_rows(path)
    assert raised.value.__cause__ is not None


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": range(1000)}), path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(CorruptFileError, match=r"x\.parquet"):
        parquet_rows(path)


def test_a_file_cut_short_while_it_is_read_names_the_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    source = source_of(pa.table({"a": np.random.default_rng(0).random(4000)}), path, row_group_size=1000)
    footer = pq.read_metadata(path).serialized_size + 8
    whole = path.read_bytes()
    [task] = source.read_tasks(ReadRequest())
    path.write_bytes(whole[: len(whole) // 2] + whole[-footer:])  # the footer stands, half the data is gone
    with pytest.raises(CorruptFileError, match="row groups 0 to 3 of 4"):
        list(task.read())


def test_a_file_that_went_away(tmp_path: Path) -> None:
    source = source_of(pa.table({"a": [1]}), tmp_path / "x.parquet")
    [task] = source.read_tasks(ReadRequest())
    (tmp_path / "x.parquet").unlink()
    with pytest.raises(PathNotFoundError, match=r"x\.parquet' no longer exists"):
        list(task.read())


def test_a_file_that_may_not_be_read() -> None:
    code = """
import os, sys
from penstock.errors import ReadError
from penstock.io.file_source import FileSource
from penstock.io.formats.parquet import ParquetFormat
for _ in range(2):
    try:
        FileSource(ParquetFormat(), sys.argv[1]).schema()
    except ReadError as error:
        print(type(error).__name__, error)
        break
    os.setuid(65534)  # root may read everything: try again as nobody
"""
    with tempfile.TemporaryDirectory() as folder:  # unlike tmp_path, other users can be let into it
        os.chmod(folder, 0o755)
        path = Path(folder, "x.parquet")
        pq.write_table(pa.table({"a": [1]}), path)
        path.chmod(0)
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.lower() == f"readerror cannot read '{path}': permission denied\n".lower()


def test_reading_stops_when_the_reader_is_closed(tmp_path: Path) -> None:
    source = source_of(pa.table({"a": np.arange(10 * BATCH_ROWS)}), tmp_path / "x.parquet")
    before = set(os.listdir("/proc/self/fd"))
    batches = next(source.read_tasks(ReadRequest())).read()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(set(os.listdir("/proc/self/fd"))) <= len(before)


def test_reading_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    random = np.random.default_rng(0)
    pq.write_table(pa.table({"a": random.random(10_000_000), "b": random.random(10_000_000)}), path)
    code = f"""
import resource
import pyarrow.parquet, pyarrow.fs
from penstock.io.file_source import FileSource
from penstock.io.formats.parquet import ParquetFormat
from penstock.protocols import Condition, ReadRequest
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
source = FileSource(ParquetFormat(), {str(path)!r})
rows = sum(batch.num_rows for task in source.read_tasks(ReadRequest()) for batch in task.read())
assert rows == 10_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100 * 1024  # kB, of 160 MB of data


def test_a_dictionary_is_written_only_where_values_repeat(tmp_path: Path) -> None:
    ids = pa.array(np.arange(300_000))
    batch = pa.record_batch({"unique": ids, "repeated": pc.bit_wise_and(ids, 1023)})
    (path,) = write_all(FileSink(str(tmp_path), ParquetEncoding()), batch).column("path").to_pylist()
    columns = pq.ParquetFile(path).metadata.row_group(0).to_dict()["columns"]
    assert ["RLE_DICTIONARY" in column["encodings"] for column in columns] == [False, True]
