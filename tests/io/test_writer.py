"""Writing files: modes, partitions, file sizes, schemas, and what an error leaves behind."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import threading
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import ColumnNotFoundError, InvalidArgumentError, OutputExistsError, TypeMismatchError, WriteError
from penstock.io import staged_file, writer
from penstock.io.commit import target
from penstock.io.commit.output import JobOutput, Output
from penstock.io.commit.target import LocalPlace
from penstock.io.consistent_listing import STAGING_FOLDER as FOLDER
from penstock.io.file_source import FileSource
from penstock.io.formats.csv import CsvEncoding, CsvFormat
from penstock.io.formats.json import JsonEncoding, JsonFormat
from penstock.io.formats.parquet import ParquetEncoding, ParquetFormat
from penstock.io.staged_file import FileEncoding
from penstock.io.writer import FileSink, file_sink
from penstock.protocols import Sink
from penstock.storage.durable import boot_id
from penstock.storage.storage_options import StorageOptions
from penstock.types import DataType, Schema, cast
from tests.io.helpers import parquet_rows, read_rows, visible_files, write_all, write_records


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def sink_to(root: Path, **options: Any) -> FileSink:
    return FileSink(str(root), ParquetEncoding(), **options)


def values(root: Path) -> list[Any]:
    return sorted(row["a"] for row in parquet_rows(root))


# --- modes ---


def test_create_writes_files_and_says_which(tmp_path: Path) -> None:
    root = tmp_path / "new" / "out"
    sink = sink_to(root)
    assert isinstance(sink, Sink)
    shown = write_all(sink, batch_of(a=[1, 2]), batch_of(a=[3]))
    [name] = visible_files(root)
    assert shown.to_pylist() == [{"path": f"{root}/{name}", "rows": 3, "nbytes": os.path.getsize(root / name)}]
    assert values(root) == [1, 2, 3]
    assert os.listdir(root) == [name]


def test_nothing_is_visible_before_the_commit(tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    sink.start()
    records = write_records(sink, [batch_of(a=[1])])
    assert visible_files(tmp_path) == []
    sink.commit(records)
    assert values(tmp_path) == [1]


def test_files_are_on_the_disk_before_the_commit_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, renamed, fsync, rename = set[int](), list[bool](), os.fsync, os.rename

    def noting_fsync(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def noting_rename(source: Any, target: Any) -> None:
        renamed.append(os.stat(source).st_ino in synced)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "rename", noting_rename)
    ps.range(10).write_parquet(str(tmp_path / "out"), rows_per_file=3)
    assert renamed == [True] * 5  # of the four files and of the list of what to move


def test_workers_of_other_machines_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver cannot write what is in the memory of another machine. The files of a job are journalled at once."""
    synced = list[str]()
    monkeypatch.setattr(target, "sync_all", lambda paths: synced.extend(map(os.path.basename, paths)))
    output = Output(str(tmp_path), StorageOptions())
    for number, (boot, sent) in enumerate(
        [(boot_id(), output), ("another machine", output), (boot_id(), JobOutput(str(tmp_path), StorageOptions()))]
    ):
        monkeypatch.setattr(target, "boot_id", lambda boot=boot: boot)
        files = pickle.loads(pickle.dumps(sent)).files
        Path(files.path_for(f"{number}.csv")).write_text("1")
        files.store([f"{number}.csv"])
    assert synced == ["1.csv", "2.csv"]


def test_create_refuses_a_folder_with_data_and_names_the_modes(tmp_path: Path) -> None:
    write_all(sink_to(tmp_path), batch_of(a=[1]))
    with pytest.raises(OutputExistsError, match=r"already holds data.*mode='overwrite'.*mode='append'") as raised:
        sink_to(tmp_path).start()
    assert str(tmp_path) in str(raised.value)
    assert values(tmp_path) == [1]


def test_append_adds_under_new_names(tmp_path: Path) -> None:
    for value in (1, 2, 3):
        write_all(sink_to(tmp_path, mode="append"), batch_of(a=[value]))
    assert len(visible_files(tmp_path)) == 3
    assert values(tmp_path) == [1, 2, 3]


def test_overwrite_deletes_the_old_files_at_the_commit(tmp_path: Path) -> None:
    write_all(sink_to(tmp_path, partition_cols=("k",)), batch_of(a=[1, 2], k=["x", "y"]))
    (tmp_path / "notes.md").write_text("keep me")
    sink = sink_to(tmp_path, mode="overwrite")
    sink.start()
    records = write_records(sink, [batch_of(a=[3])])
    assert values(tmp_path) == [1, 2]
    sink.commit(records)
    assert values(tmp_path) == [3]
    assert len(os.listdir(tmp_path)) == 2, "the new file and the notes: neither partition folders nor staging"
    assert (tmp_path / "notes.md").exists()


def test_overwriting_a_folder_with_what_is_read_from_it(tmp_path: Path) -> None:
    write_all(sink_to(tmp_path), batch_of(a=[1, 2]))
    source = FileSource(ParquetFormat(), tmp_path)
    doubled = batch_of(a=[row["a"] * 2 for row in read_rows(source)])
    write_all(sink_to(tmp_path, mode="overwrite"), doubled)
    assert values(tmp_path) == [2, 4]


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="Did you mean 'overwrite'"):
        FileSink("out", ParquetEncoding(), mode="overwrit")


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(WriteError, match="it is a file"):
        sink_to(tmp_path / "x").start()


def test_web_servers_take_no_files() -> None:
    with pytest.raises(InvalidArgumentError, match="local folders and to s3://"):
        file_sink("https://host/out", ParquetEncoding())


# --- several writers, and errors ---


def test_several_writers_at_once(tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    sink.start()
    records: list[dict[str, Any]] = []

    def work(start: int) -> None:
        records.extend(write_records(sink, [batch_of(a=[start + i]) for i in range(100)]))

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sink.commit(records).column("rows").to_pylist() == [100] * 4
    assert values(tmp_path) == sorted(1000 * number + i for number in range(4) for i in range(100))


def test_abort_leaves_nothing_behind(tmp_path: Path) -> None:
    root = tmp_path / "out"
    sink = sink_to(root)
    sink.start()
    open_writer = sink.open()
    open_writer.write(batch_of(a=[1]))
    open_writer.close()
    sink.abort()
    assert list(root.iterdir()) == []


def test_abort_keeps_a_folder_that_was_there_for_the_next_write(tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    sink.start()
    sink.abort()
    assert os.listdir(tmp_path) == []
    write_all(sink_to(tmp_path), batch_of(a=[1]))
    assert values(tmp_path) == [1]


def test_files_of_a_worker_that_never_reported_are_not_committed(tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    sink.start()
    lost = sink.open()
    lost.write(batch_of(a=[99]))
    lost.finish()
    lost.close()
    sink.commit(write_records(sink, [batch_of(a=[1])]))
    assert values(tmp_path) == [1]
    assert not (tmp_path / FOLDER).exists()


def test_a_staged_file_that_is_gone_fails_the_commit_and_loses_nothing(tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    sink.start()
    [record] = write_records(sink, [batch_of(a=[1])])
    with pytest.raises(WriteError, match=str(tmp_path)):
        sink.commit([record | {"path": "missing.parquet"}])
    sink.abort()


def test_another_write_in_progress_is_respected(tmp_path: Path) -> None:
    first = sink_to(tmp_path)
    first.start()
    for mode in ("create", "overwrite"):
        with pytest.raises(WriteError, match=f"in progress \\(run {first.run_id}\\)"):
            sink_to(tmp_path, mode=mode).start()
    write_all(sink_to(tmp_path, mode="append"), batch_of(a=[2]))
    first.commit(write_records(first, [batch_of(a=[1])]))
    assert values(tmp_path) == [1, 2]


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(WriteError, match=r"Cannot write to '.*/x/out': "):
        sink_to(tmp_path / "x" / "out").start()


# --- files ---


def test_rows_per_file_is_exact(tmp_path: Path) -> None:
    shown = write_all(sink_to(tmp_path, rows_per_file=4), batch_of(a=list(range(3))), batch_of(a=list(range(3, 10))))
    assert shown.column("rows").to_pylist() == [4, 4, 2]
    assert values(tmp_path) == list(range(10))
    with pytest.raises(InvalidArgumentError, match="rows_per_file=0"):
        sink_to(tmp_path, rows_per_file=0)


def test_files_roll_at_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FILE_NBYTES", 1000)
    shown = write_all(sink_to(tmp_path), *(batch_of(a=list(range(100))) for _ in range(4)))
    assert shown.column("rows").to_pylist() == [200, 200]


def test_small_batches_make_large_row_groups(tmp_path: Path) -> None:
    shown = write_all(sink_to(tmp_path), *(batch_of(a=[i]) for i in range(1000)))
    assert pq.ParquetFile(shown.column("path")[0].as_py()).metadata.num_row_groups == 1


def test_row_groups_are_bounded_by_the_memory_limit(tmp_path: Path) -> None:
    with ps.config(memory_limit="8MiB", num_threads=1):
        shown = write_all(sink_to(tmp_path), *(batch_of(a=list(range(40_000))) for _ in range(8)))
    metadata = pq.ParquetFile(shown.column("path")[0].as_py()).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [120_000, 120_000, 80_000]


class AddressEncoding(CsvEncoding):
    """An encoding that writes the addresses of its input instead of the rows."""

    def open(self, path: str, schema: pa.Schema) -> Any:
        return AddressEncoder(open(path, "w"))


class AddressEncoder:
    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, block: pa.Table) -> None:
        print(*map(address, block.column("a").chunks), file=self._file)

    def close(self) -> None:
        self._file.close()


def address(column: pa.Array) -> int:
    return int(column.buffers()[1].address)


def test_large_blocks_are_encoded_without_a_copy(tmp_path: Path) -> None:
    batches = [batch_of(a=np.arange(2**17)) for _ in range(5)]
    with ps.config(memory_limit=16 * 2**21):
        write_all(FileSink(str(tmp_path), AddressEncoding()), *batches)
    [name] = visible_files(tmp_path)
    addresses = [address(batch.column("a")) for batch in batches]
    blocks = [addresses[:2], addresses[2:4], addresses[4:]]
    assert (tmp_path / name).read_text().splitlines() == [" ".join(map(str, block)) for block in blocks]


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "none", None])
def test_compression(tmp_path: Path, compression: str | None) -> None:
    shown = write_all(FileSink(str(tmp_path), ParquetEncoding(compression)), batch_of(a=[1]))
    column = pq.ParquetFile(shown.column("path")[0].as_py()).metadata.row_group(0).column(0)
    assert column.compression == (compression or "none").upper().replace("NONE", "UNCOMPRESSED")


def test_compression_that_is_not_known() -> None:
    with pytest.raises(InvalidArgumentError, match=r"compression='zip'.*snappy, zstd"):
        ParquetEncoding("zip")


# --- partitions ---


def test_partitions_become_folders_and_leave_the_files(tmp_path: Path) -> None:
    batch = batch_of(a=[1, 2, 3, 4], k=["x", None, "p/q=é %", "x"], d=[date(2024, 5, 1)] * 4)
    write_all(sink_to(tmp_path, partition_cols=("k", "d")), batch)
    folders = {os.path.dirname(name) for name in visible_files(tmp_path)}
    assert folders == {
        "k=x/d=2024-05-01",
        "k=__HIVE_DEFAULT_PARTITION__/d=2024-05-01",
        "k=p%2Fq%3D%C3%A9%20%25/d=2024-05-01",
    }
    assert parquet_rows(tmp_path / "k=x", hive_partitioning=False) == [{"a": 1}, {"a": 4}]
    back = parquet_rows(tmp_path, hive_partitioning=True)
    assert sorted(back, key=lambda row: row["a"]) == batch.to_pylist()


@pytest.mark.parametrize("keys", [[True, False, None], [1.5, 2.5, None], [None, None, None]])
def test_partitions_of_other_types(tmp_path: Path, keys: list[Any]) -> None:
    write_all(sink_to(tmp_path, partition_cols=("k",)), batch_of(a=[1, 2, 3], k=keys))
    assert values(tmp_path) == [1, 2, 3]
    assert len({os.path.dirname(name) for name in visible_files(tmp_path)}) == len(set(keys))


def test_many_partitions_stay_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_OPEN_FILES", 4)
    monkeypatch.setattr(writer, "HELD_NBYTES", 100)
    sink = sink_to(tmp_path, partition_cols=("k",))
    sink.start()
    open_writer = sink.open()
    before = len(os.listdir("/proc/self/fd"))
    records = [r for i in range(10) for r in open_writer.write(batch_of(a=list(range(20)), k=list(range(20))))]
    assert len(os.listdir("/proc/self/fd")) <= before + 5
    records.extend(open_writer.finish())
    open_writer.close()
    sink.commit(records)
    assert values(tmp_path) == sorted(list(range(20)) * 10)


def test_many_partitions_make_one_file_each(tmp_path: Path) -> None:
    num_partitions = writer.MAX_OPEN_FILES + 20
    batches = [batch_of(a=[i] * num_partitions, k=list(range(num_partitions))) for i in range(6)]
    ps.from_arrow(pa.Table.from_batches(batches)).write_parquet(str(tmp_path / "out"), partition_cols=["k"])
    assert len(visible_files(tmp_path / "out")) == num_partitions


def test_folders_are_moved_as_a_whole_only_if_nothing_else_is_in_them(tmp_path: Path) -> None:
    staged = ["k=1/new", "k=2/new", "k=2/unfinished", "k=3/j=1/new", "new"]
    for name in ["k=1/old", *(f"staging/{name}" for name in staged)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    place = LocalPlace(str(tmp_path))
    names = [name for name in staged if name != "k=2/unfinished"]
    for _ in range(2):  # again, as after a crash
        assert place.move([*names, "k=4/lost"], "staging") == ["k=4/lost"]
        assert sorted(visible_files(tmp_path)) == sorted(["k=1/old", *names, "staging/k=2/unfinished"])
    assert (tmp_path / "k=1" / "new").read_text() == "staging/k=1/new"


def test_rows_held_back_keep_no_batch_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "HELD_NBYTES", 2**20)
    monkeypatch.setattr(staged_file, "BLOCK_NBYTES", 2**18)
    sink = sink_to(tmp_path, partition_cols=("k",))
    sink.start()
    open_writer = sink.open()
    before = pa.total_allocated_bytes()
    for _ in range(40):  # almost all rows are of one partition, whose file writes them soon
        list(open_writer.write(batch_of(a=np.zeros(50_000), k=[1, 2, *[0] * 49_998])))
    assert pa.total_allocated_bytes() - before < 8 * 2**20
    open_writer.close()
    sink.abort()


def test_partition_columns_are_checked(tmp_path: Path) -> None:
    schema = Schema.from_pydict({"a": "int64", "tags": "list[string]"})
    with pytest.raises(ColumnNotFoundError, match="Column 'b' not found in partition_cols"):
        sink_to(tmp_path, schema=schema, partition_cols=("b",))
    with pytest.raises(TypeMismatchError, match="Cannot partition by column 'tags'"):
        sink_to(tmp_path, schema=schema, partition_cols=("tags",))
    with pytest.raises(InvalidArgumentError, match="leave at least one"):
        sink_to(tmp_path, schema=Schema.from_pydict({"a": "int64"}), partition_cols=("a",))


# --- schemas ---


def test_an_empty_result_leaves_a_file_that_can_be_read(tmp_path: Path) -> None:
    schema = Schema.from_pydict({"a": "int64", "b": "list[string]"})
    for batches in ([], [batch_of(a=pa.array([], pa.int64()), b=pa.array([], pa.list_(pa.string())))]):
        shown = write_all(sink_to(tmp_path, mode="overwrite", schema=schema), *batches)
        assert shown.column("rows").to_pylist() == [0]
        assert FileSource(ParquetFormat(), tmp_path).schema() == schema
        assert parquet_rows(tmp_path) == []


def test_an_empty_result_of_unknown_schema_is_a_file_without_columns(tmp_path: Path) -> None:
    assert write_all(sink_to(tmp_path)).to_pydict()["rows"] == [0]
    assert ps.read_parquet(tmp_path).to_pydict() == {}
    assert write_all(sink_to(tmp_path, mode="append")).num_rows == 0
    write_all(sink_to(tmp_path, mode="append"), batch_of(a=[1]))
    assert parquet_rows(tmp_path) == [{"a": 1}]


def test_later_batches_are_cast(tmp_path: Path) -> None:
    write_all(sink_to(tmp_path), batch_of(a=[1], b=["x"]), batch_of(b=pa.nulls(1), a=pa.array([2], pa.int8())))
    assert parquet_rows(tmp_path) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_the_schema_of_the_sink_rules(tmp_path: Path) -> None:
    schema = Schema.from_pydict({"a": "float64"})
    write_all(sink_to(tmp_path, schema=schema), batch_of(a=[1]))
    assert FileSource(ParquetFormat(), tmp_path).schema() == schema


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"a": ["x"]}, "column 'a' is string in a batch and cannot be made int64"),
        ({"b": [1]}, "a batch has the new column 'b'"),
        ({}, "column 'a' is missing"),
    ],
)
def test_batches_that_do_not_fit_name_the_column(tmp_path: Path, batch: dict[str, Any], message: str) -> None:
    sink = sink_to(tmp_path)
    sink.start()
    open_writer = sink.open()
    open_writer.write(batch_of(a=[1]))
    odd = batch_of(**batch) if batch else batch_of(a=[1]).select([])
    with pytest.raises(WriteError, match=message):
        open_writer.write(odd)
    open_writer.close()
    sink.abort()


def test_no_columns_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no columns to write"):
        sink_to(tmp_path, schema=Schema([]))


def test_what_a_format_cannot_hold_is_refused_before_the_query_runs(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatchError, match="Column 'tags'"):
        FileSink(str(tmp_path), CsvEncoding(), schema=Schema.from_pydict({"tags": "list[string]"}))


# --- types that differ between batches of unknown schema ---

VARIOUS = [
    pytest.param(pa.nulls(1), pa.array(["s"]), [None, "s"], id="null-then-text"),
    pytest.param(pa.array([[]]), pa.array([["s"]]), [[], ["s"]], id="empty-list-then-text"),
    pytest.param(pa.array([1]), pa.array([0.5]), [1.0, 0.5], id="int-then-float"),
    pytest.param(
        pa.array([{"x": 1}]),
        pa.array([{"x": 0.5, "y": "z"}]),
        [{"x": 1.0, "y": None}, {"x": 0.5, "y": "z"}],
        id="struct",
    ),
    pytest.param(
        pa.nulls(1),
        cast(pa.array([[1.0, 2.0]]), DataType.embedding("float32", 2)),
        [None, [1.0, 2.0]],
        id="null-then-embedding",
    ),
]


def as_lists(root: Path) -> list[Any]:
    return [v.tolist() if isinstance(v, np.ndarray) else v for v in (row["v"] for row in parquet_rows(root))]


def stored_types(root: Path) -> set[str]:
    return {str(pq.read_schema(root / name).field("v").type) for name in visible_files(root)}


@pytest.mark.parametrize(("first", "second", "expected"), VARIOUS)
def test_a_writer_takes_wider_types_as_they_come(
    tmp_path: Path, first: pa.Array, second: pa.Array, expected: Any
) -> None:
    shown = write_all(sink_to(tmp_path), batch_of(v=first), batch_of(v=second), batch_of(v=first))
    assert sorted(map(str, as_lists(tmp_path))) == sorted(map(str, [*expected, expected[0]]))
    assert len(stored_types(tmp_path)) == 1
    assert shown.column("nbytes").to_pylist() == [os.path.getsize(path) for path in shown.column("path").to_pylist()]
    assert sum(shown.column("rows").to_pylist()) == 3


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(("first", "second", "expected"), VARIOUS)
def test_writers_that_met_other_types_agree_at_the_commit(
    tmp_path: Path, first: pa.Array, second: pa.Array, expected: Any, is_reversed: bool
) -> None:
    sink = sink_to(tmp_path)
    sink.start()
    records = [record for values in (first, second) for record in write_records(sink, [batch_of(v=values)])]
    sink.commit(records[::-1] if is_reversed else records)
    assert len(visible_files(tmp_path)) == 2
    assert sorted(map(str, as_lists(tmp_path))) == sorted(map(str, expected))
    assert len(stored_types(tmp_path)) == 1
    assert not (tmp_path / FOLDER).exists()


def test_partitioned_files_get_one_type_too(tmp_path: Path) -> None:
    batches = [batch_of(v=pa.nulls(2), k=["x", "y"]), batch_of(v=["s", "t"], k=["y", "z"])]
    write_all(sink_to(tmp_path, partition_cols=("k",)), *batches)
    assert len(visible_files(tmp_path)) == 4
    assert stored_types(tmp_path) == {"string"}


@pytest.mark.parametrize("encoding", [JsonEncoding(), CsvEncoding()])
def test_text_formats_need_no_rewriting(tmp_path: Path, encoding: FileEncoding) -> None:
    write_all(FileSink(str(tmp_path), encoding), batch_of(v=pa.nulls(1), w=[1]), batch_of(v=["s"], w=[2]))
    format = JsonFormat() if isinstance(encoding, JsonEncoding) else CsvFormat()
    rows = read_rows(FileSource(format, tmp_path))
    assert sorted(rows, key=lambda row: row["w"]) == [{"v": None, "w": 1}, {"v": "s", "w": 2}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"v": ["s"]}, "column 'v' is int64 in some batches and string in others.*cast the values to one type"),
        ({"w": [1]}, "column 'v' is in some batches and not in others"),
    ],
)
def test_writers_without_a_common_type_commit_nothing(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    root = tmp_path / "out"
    sink = sink_to(root)
    sink.start()
    records = [*write_records(sink, [batch_of(v=[1])]), *write_records(sink, [batch_of(**columns)])]
    with pytest.raises(WriteError, match=message):
        sink.commit(records)
    assert visible_files(root) == []
    sink.abort()
    assert list(root.iterdir()) == []


@ps.func
def as_text(value: int) -> str:
    return str(value)


@ps.func.batch(return_dtype=ps.DataType.float64())
def halved(values: ps.Series) -> Any:
    raise AssertionError("called without rows")


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("steps", "types"),
    [
        (lambda frame: frame, {}),
        (lambda frame: frame.with_column("b", ps.col("a") + 1), {"b": "int64"}),
        (lambda frame: frame.with_columns({"b": as_text(ps.col("a")), "c": halved(ps.col("a"))}),
         {"b": "string", "c": "float64"}),
        (lambda frame: frame.sort("a").limit(2), {}),
        (lambda frame: frame.concat(frame), {}),
    ],
)  # fmt: skip
def test_columns_without_rows_are_kept(tmp_path: Path, steps: Any, types: dict[str, Any], resume: bool) -> None:
    def no_rows(batch: Any) -> Any:
        return pa.table({"a": pa.array([], pa.int64()), "s": pa.array([], pa.string())})

    frame = steps(ps.range(3).map_batches(no_rows))
    expected = Schema.from_pydict({"a": "int64", "s": "string"} | types)
    assert frame.schema == expected
    assert frame.write_parquet(str(tmp_path / "out"), resume=resume).to_pydict()["rows"] == [0]
    assert ps.read_parquet(tmp_path / "out").schema == expected
    frame.write_csv(str(tmp_path / "csv"), resume=resume)
    assert ps.read_csv(tmp_path / "csv").columns == expected.names
    assert list(frame.iter_batches()) == []


def test_columns_without_rows_have_uncertain_types(tmp_path: Path) -> None:
    frame = ps.range(3).map_batches(lambda batch: {"t": np.array([])})  # float64, although text was meant
    assert frame.with_column("u", ps.col("t").upper()).to_pydict() == {}
    later = ps.range(4).map_batches(lambda b: {"t": np.array(["x"] * int(b["id"][0] == 2))}, batch_size=1)
    assert later.with_column("u", ps.col("t").upper()).to_pydict() == {"t": ["x"], "u": ["X"]}


@pytest.mark.parametrize("first", [None, [], 1])
def test_a_query_of_unknown_schema_can_be_read_back(tmp_path: Path, first: Any) -> None:
    later = {type(None): "s", list: ["s"], int: 0.5}[type(first)]
    frame = ps.range(4).map(lambda row: {"v": first if row["id"] < 2 else later}, batch_size=1)
    frame.write_parquet(str(tmp_path / "out"))
    found = ps.read_parquet(tmp_path / "out").to_pydict()["v"]
    assert sorted(map(str, found)) == sorted(map(str, [float(first) if first == 1 else first] * 2 + [later] * 2))


# --- what a refused write leaves ---


@pytest.mark.parametrize(
    "options", [{"compression": "zip"}, {"compression": 5}, {"mode": None}, {"rows_per_file": "x"}]
)
def test_a_refused_option_makes_no_folder(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(options))):
        ps.from_pydict({"a": [1]}).write_parquet(str(tmp_path / "new" / "out"), **options)
    assert os.listdir(tmp_path) == []


def test_a_refused_create_adds_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(OutputExistsError):
        ps.from_pydict({"a": [1]}).write_parquet(str(tmp_path))
    assert os.listdir(tmp_path) == ["notes.md"]


def test_a_start_that_fails_midway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", full_disk)
    with pytest.raises(WriteError, match="No space left"):
        sink_to(tmp_path / "new" / "out").start()
    monkeypatch.undo()
    assert list((tmp_path / "new" / "out").iterdir()) == []


@pytest.mark.parametrize("path", [None, 5, b"x"])
def test_a_path_of_another_type_is_refused(path: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"path=.* must name a folder"):
        ps.from_pydict({"a": [1]}).write_parquet(path)


def test_an_interrupt_at_any_call_of_a_start_leaves_no_lock(tmp_path: Path) -> None:
    """Python delivers a Ctrl-C when a function is called, so each call of ``start`` is interrupted once."""
    for number in itertools.count():
        write = sink_to(tmp_path)
        calls = itertools.count()

        def interrupt(frame: object, event: str, argument: object) -> None:
            if event == "call" and next(calls) == number:  # noqa: B023
                raise KeyboardInterrupt

        sys.setprofile(interrupt)
        try:
            write.start()
        except KeyboardInterrupt:
            assert list(tmp_path.rglob("*.lock")) == [], f"call {number}"
        else:
            break
        finally:
            sys.setprofile(None)
    assert number > 20
    write.abort()
