"""What a scan over files does in every format: projection, filter, limit, columns from paths, files that differ."""

from __future__ import annotations

import logging
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import ColumnNotFoundError, CorruptFileError, InvalidArgumentError, ReadError
from penstock.io import data_file
from penstock.io.file_format import FileFormat
from penstock.io.file_source import FileSource
from penstock.io.formats import lines
from penstock.io.formats.csv import CsvFormat
from penstock.io.formats.json import JsonFormat
from penstock.io.formats.lines import COMPRESSIONS
from penstock.io.formats.parquet import ParquetFormat
from penstock.io.formats.text import TextFormat
from penstock.protocols import Condition, ReadRequest, Source
from tests.io.helpers import parquet_rows, read_rows, read_table, requested


def write(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def two_files(tmp_path: Path) -> Path:
    write(tmp_path / "1.parquet", a=[1, 2], b=["x", "y"])
    write(tmp_path / "2.parquet", a=[3, None], b=["z", None])
    return tmp_path


def test_it_is_a_source_with_a_schema(two_files: Path) -> None:
    source = FileSource(ParquetFormat(), two_files)
    assert isinstance(source, Source)
    assert source.name == f"read_parquet({two_files}/1.parquet and 1 more)"
    assert source.schema().to_arrow() == pa.schema([("a", pa.int64()), ("b", pa.string())])


def test_all_rows_in_order(two_files: Path) -> None:
    assert [row["a"] for row in parquet_rows(two_files)] == [1, 2, 3, None]


def test_a_request_for_columns_gives_them_in_its_order(two_files: Path) -> None:
    source = FileSource(ParquetFormat(), two_files)
    assert read_table(source, columns=("b", "a")).schema.names == ["b", "a"]
    assert read_table(source, columns=("b",)).to_pydict() == {"b": ["x", "y", "z", None]}


def test_a_request_for_no_columns_still_counts_rows(two_files: Path) -> None:
    source = FileSource(ParquetFormat(), two_files)
    batches = [b for task in source.read_tasks(ReadRequest(columns=())) for b in task.read()]
    assert sum(batch.num_rows for batch in batches) == 4
    assert all(batch.num_columns == 0 for batch in batches)


def test_conditions_are_exact_and_may_use_columns_that_are_not_asked_for(two_files: Path) -> None:
    source = FileSource(ParquetFormat(), two_files)
    assert source.can_filter
    assert read_table(source, columns=("b",), conditions=(Condition("a", ">", 1),)).to_pydict() == {"b": ["y", "z"]}
    assert read_table(source, conditions=(Condition("b", "is null"),)).num_rows == 1


def test_limit_stops_reading_tasks_and_rows(two_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file, "SMALL_NBYTES", 0)  # the rows of smaller files are counted by the worker
    source = FileSource(ParquetFormat(), two_files)
    assert len(list(source.read_tasks(ReadRequest(limit=2)))) == 1
    assert [row["a"] for row in read_rows(source, limit=1)] == [1]
    # With a filter any task may have the rows, so each gives up to the limit.
    assert [row["a"] for row in read_rows(source, limit=1, conditions=(Condition("a", ">", 0),))] == [1, 3]


def test_columns_option(two_files: Path) -> None:
    source = FileSource(ParquetFormat(), two_files, columns=["b"])
    assert source.schema().names == ["b"]
    with pytest.raises(ColumnNotFoundError, match="Column 'bb' not found; available: a, b"):
        FileSource(ParquetFormat(), two_files, columns=["bb"]).schema()


def test_file_path_column(two_files: Path) -> None:
    source = FileSource(ParquetFormat(), two_files, path_column="path")
    paths = read_table(source, columns=("path",)).column("path").to_pylist()
    assert paths == [f"{two_files}/1.parquet"] * 2 + [f"{two_files}/2.parquet"] * 2
    with pytest.raises(InvalidArgumentError, match="path_column='a' is already a column"):
        FileSource(ParquetFormat(), two_files, path_column="a").schema()


def test_a_condition_on_the_path_opens_no_other_file(two_files: Path) -> None:
    (two_files / "3.parquet").write_bytes(b"not parquet")
    source = FileSource(ParquetFormat(), two_files, path_column="path")
    wanted = Condition("path", "=", f"{two_files}/2.parquet")
    assert [row["a"] for row in read_rows(source, conditions=(wanted,))] == [3, None]


def test_hive_columns_have_types_and_prune_files(tmp_path: Path) -> None:
    write(tmp_path / "day=2024-05-01" / "n=1" / "city=S%C3%A3o Paulo" / "x.parquet", a=[1])
    write(tmp_path / "day=2024-05-02" / "n=__HIVE_DEFAULT_PARTITION__" / "city=b%2Fc" / "x.parquet", a=[2])
    source = FileSource(ParquetFormat(), tmp_path, hive_partitioning=True)
    assert source.schema().to_arrow() == pa.schema(
        [("a", pa.int64()), ("day", pa.date32()), ("n", pa.int64()), ("city", pa.string())]
    )
    assert read_rows(source) == [
        {"a": 1, "day": date(2024, 5, 1), "n": 1, "city": "São Paulo"},
        {"a": 2, "day": date(2024, 5, 2), "n": None, "city": "b/c"},
    ]
    for one_file in (Condition("n", "=", 1), Condition("n", "is null"), Condition("n", "in", (0, 1))):
        assert len(list(source.read_tasks(requested(source, one_file)))) == 1
    later = Condition("day", ">", date(2024, 5, 1))
    assert read_table(source, columns=("city",), conditions=(later,)).to_pydict() == {"city": ["b/c"]}


def test_hive_columns_prune_files_of_any_format(tmp_path: Path) -> None:
    for key in ("a", "b"):
        (tmp_path / f"k={key}").mkdir()
        (tmp_path / f"k={key}" / "x.csv").write_text(f"v\n{key}{key}\n")
    source = FileSource(CsvFormat(), tmp_path, hive_partitioning=True)
    is_b = Condition("k", "=", "b")
    assert len(list(source.read_tasks(requested(source, is_b)))) == 1
    assert read_rows(source, conditions=(is_b,)) == [{"v": "bb", "k": "b"}]


def test_hive_folders_below_the_path_are_columns(tmp_path: Path) -> None:
    out = tmp_path / "run=3" / "out"
    write(out / "k=1" / "x.parquet", a=[1])
    write(out / "k=2" / "x.parquet", a=[2])
    both = [{"a": 1, "k": 1}, {"a": 2, "k": 2}]
    assert parquet_rows(out) == parquet_rows(out / "k=*") == parquet_rows(str(out / "**" / "*.parquet")) == both
    assert parquet_rows(out / "k=1") == parquet_rows(out / "k=1" / "x.parquet") == [{"a": 1}]
    assert parquet_rows(out, hive_partitioning=False) == [{"a": 1}, {"a": 2}]
    assert parquet_rows(out / "k=2", hive_partitioning=True) == [{"a": 2, "run": 3, "k": 2}]


def test_hive_folders_that_may_not_be_partitions_are_not_columns(tmp_path: Path) -> None:
    write(tmp_path / "in_files" / "a=5" / "x.parquet", a=[1])
    assert parquet_rows(tmp_path / "in_files") == [{"a": 1}]
    write(tmp_path / "in_some" / "x.parquet", a=[1])
    write(tmp_path / "in_some" / "k=5" / "x.parquet", a=[2])
    assert [row["a"] for row in parquet_rows(tmp_path / "in_some")] == [2, 1]
    assert parquet_rows(tmp_path / "in_some" / "k=5", schema={"a": "int32"}, infer_schema=False) == [{"a": 2}]


@pytest.mark.parametrize("file_format", ["parquet", "csv", "json"])
def test_partition_columns_are_read_back(tmp_path: Path, file_format: str) -> None:
    rows = {"v": [0.5, 1.5, 2.5], "k": ["a b", None, "c/d"], "day": [date(2026, 1, 2), date(2026, 1, 3), None]}
    df = ps.from_pydict(rows)
    getattr(df, f"write_{file_format}")(str(tmp_path / "out"), partition_cols=["k", "day"])
    found = getattr(ps, f"read_{file_format}")(tmp_path / "out")
    assert found.sort("v").to_pydict() == rows
    assert found.schema == df.schema


def test_the_first_file_rules_missing_is_null_extra_is_dropped_types_are_cast(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", a=[1], b=["x"])
    write(tmp_path / "2.parquet", c=[True], a=pa.array([2], pa.int8()))
    write(tmp_path / "3.parquet", b=["z"], a=pa.array([3.0]))
    assert parquet_rows(tmp_path) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "z"}]


def test_a_type_that_cannot_be_cast_names_file_column_and_types(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", a=[1])
    write(tmp_path / "2.parquet", a=["x"])
    message = r"2\.parquet': column 'a' is string there and does not become int64.*give schema=\{'a': \.\.\.\}"
    for options in ({}, {"ignore_corrupt_files": True}):  # the file is not corrupt, so it is not skipped
        with pytest.raises(ReadError, match=message) as raised:
            parquet_rows(tmp_path, **options)
        assert not isinstance(raised.value, CorruptFileError)
    assert parquet_rows(tmp_path, schema={"a": "string"}) == [{"a": "1"}, {"a": "x"}]
    assert parquet_rows(tmp_path, columns=[], path_column="f")[1] == {"f": f"{tmp_path}/2.parquet"}


INT, FLOAT = pa.array([1, 2]), pa.array([0.5, 1.5])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (INT, FLOAT, [1, 2, 0.5, 1.5]),
        (FLOAT, INT, [0.5, 1.5, 1, 2]),
        (pa.nulls(1), pa.array(["s"]), [None, "s"]),
        (pa.array([[]]), pa.array([["s"]]), [[], ["s"]]),
        (pa.array([{"x": 1}]), pa.array([{"y": "s"}]), [{"x": 1, "y": None}, {"x": None, "y": "s"}]),
        (pa.array(["s"]).dictionary_encode(), pa.array(["t"], pa.large_string()), ["s", "t"]),
    ],
)
def test_files_of_other_types_are_read_as_what_holds_both(
    tmp_path: Path, first: pa.Array, second: pa.Array, expected: list[Any]
) -> None:
    files = [
        write(tmp_path / "z.parquet", a=first, b=[0] * len(first)),
        write(tmp_path / "a.parquet", a=second, c=second),
    ]
    source = FileSource(ParquetFormat(), files)
    assert source.schema().names == ["a", "b"]
    assert read_table(source).column("a").to_pylist() == expected


@pytest.mark.parametrize(
    "conditions", [(Condition("a", ">", 1.25),), (Condition("a", "is not null"), Condition("a", ">=", 1.5))]
)
def test_conditions_on_types_that_differ_from_file_to_file(tmp_path: Path, conditions: tuple[Condition, ...]) -> None:
    for name, values in {"1": INT, "2": FLOAT, "3": pa.nulls(2)}.items():
        write(tmp_path / f"{name}.parquet", a=values)
    source = FileSource(ParquetFormat(), tmp_path)
    assert read_rows(source, conditions=conditions) == [{"a": 2.0}, {"a": 1.5}]


def test_only_the_first_files_are_asked_for_their_types(tmp_path: Path) -> None:
    for number in range(33):
        write(tmp_path / f"{number:02}.parquet", a=INT if number < 32 else FLOAT)
    with pytest.raises(ReadError, match=r"32\.parquet': column 'a' is float64 there and does not become int64"):
        parquet_rows(tmp_path)


def test_schema_overrides_types_and_adds_columns(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", a=[1], b=["x"])
    assert parquet_rows(tmp_path, schema={"a": "string", "c": "float64"}) == [{"a": "1", "b": "x", "c": None}]
    assert parquet_rows(tmp_path, schema={"a": "float64"}, infer_schema=False) == [{"a": 1.0}]
    with pytest.raises(InvalidArgumentError, match="infer_schema=False needs schema"):
        parquet_rows(tmp_path, infer_schema=False)


def test_corrupt_files_are_skipped_with_a_warning_if_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_file, "SMALL_NBYTES", -1)  # small files are first opened by the worker
    (tmp_path / "0.parquet").write_bytes(b"no")
    write(tmp_path / "1.parquet", a=[1])
    (tmp_path / "2.parquet").write_bytes(b"")
    with pytest.raises(CorruptFileError, match=r"0\.parquet"):
        parquet_rows(tmp_path)
    source = FileSource(ParquetFormat(), tmp_path, ignore_corrupt_files=True)
    with caplog.at_level(logging.WARNING, "penstock"):
        assert read_rows(source) == [{"a": 1}]
    assert caplog.text.count("Skipped a corrupt file") == 2
    assert "0.parquet" in caplog.text
    assert "2.parquet" in caplog.text


@pytest.mark.parametrize("compression", ["gzip", "bz2", "zstd", "lz4"])
@pytest.mark.parametrize("format", [CsvFormat(), JsonFormat(), TextFormat()])
def test_a_truncated_file_is_named_or_skipped(
    tmp_path: Path, format: FileFormat, compression: str, caplog: pytest.LogCaptureFixture
) -> None:
    line = b'{"a": 1}\n'
    whole, cut = (tmp_path / f"{name}{format.suffixes[0]}{COMPRESSIONS[compression]}" for name in ("a", "b"))
    for path in (whole, cut):
        with pa.output_stream(path, compression=compression) as stream:
            stream.write(line * 1000)
    cut.write_bytes(cut.read_bytes()[:-5])
    with pytest.raises(CorruptFileError, match=rf"Cannot read '{cut}': Truncated compressed stream"):
        read_rows(FileSource(format, tmp_path))
    with caplog.at_level(logging.WARNING, "penstock"):
        rows = read_rows(FileSource(format, tmp_path, ignore_corrupt_files=True))
    assert rows == read_rows(FileSource(format, whole))
    assert str(cut) in caplog.text


def test_rows_before_the_damage_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lines, "BLOCK_NBYTES", 80)
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n' * 20 + '{"a": ')
    with caplog.at_level(logging.WARNING, "penstock"):
        rows = read_rows(FileSource(JsonFormat(), tmp_path, ignore_corrupt_files=True))
    assert len(rows) == 20
    assert "Skipped the rest of a corrupt file after 20 rows" in caplog.text


@pytest.fixture
def half_corrupt(tmp_path: Path) -> Path:
    """Two files of 1000 rows; the data of the first is damaged, its footer is not."""
    for name in ("1", "2"):
        write(tmp_path / f"{name}.parquet", a=np.random.default_rng(0).random(1000), b=range(1000))
    for number in (0, 1):
        column = pq.read_metadata(tmp_path / "2.parquet").row_group(0).column(number)
        with (tmp_path / "1.parquet").open("r+b") as file:
            file.seek(column.dictionary_page_offset or column.data_page_offset)
            file.write(b"\xff" * column.total_compressed_size)
    return tmp_path


def test_what_is_skipped_is_not_counted(half_corrupt: Path) -> None:
    frame = ps.read_parquet(half_corrupt, ignore_corrupt_files=True, path_column="f")
    assert frame.to_arrow().num_rows == 1000
    assert frame.count_rows() == 1000
    assert frame.select("f").to_arrow().num_rows == 1000
    assert frame.limit(500).count_rows() == 500
    assert frame.limit(500).to_arrow().num_rows == 500
    with pytest.raises(CorruptFileError, match=r"1\.parquet', row groups 0 to 0 of 1"):
        ps.read_parquet(half_corrupt).to_arrow()


def test_nothing_but_corrupt_files_is_an_error_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "0.parquet").write_bytes(b"no")
    with pytest.raises(CorruptFileError, match="None of the 1 files can be read"):
        parquet_rows(tmp_path, ignore_corrupt_files=True)


def test_a_column_name_that_appears_twice_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,a\n1,2\n")
    with pytest.raises(CorruptFileError, match=r"x\.csv': column 'a' appears twice"):
        FileSource(CsvFormat(), tmp_path).schema()
