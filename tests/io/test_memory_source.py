"""Rows in memory and ranges of numbers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import InvalidArgumentError
from penstock.io.batch_sizes import BATCH_NBYTES, BATCH_ROWS, TASK_ROWS
from penstock.io.memory_source import MemorySource, RangeSource
from penstock.protocols import ReadRequest, Source
from tests.io.helpers import read_rows, read_table


def test_a_table_is_given_as_it_is_with_normal_types() -> None:
    table = pa.table({"a": [1, 2], "b": pa.array(["x", None], pa.large_string())})
    source = MemorySource.from_table(table)
    assert isinstance(source, Source)
    assert source.schema().to_arrow() == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert read_rows(source) == table.to_pylist()
    assert read_table(source, columns=("b",)).to_pydict() == {"b": ["x", None]}


def test_a_table_without_rows() -> None:
    assert read_rows(MemorySource.from_table(pa.table({"a": pa.array([], pa.int8())}))) == []


def test_large_batches_are_cut() -> None:
    wide = pa.table({"a": ["x" * 1000] * 100_000})
    for table in (pa.table({"a": range(3 * BATCH_ROWS)}), wide):
        tasks = list(MemorySource.from_table(table).read_tasks(ReadRequest()))
        assert all(task.num_rows is not None and task.num_rows <= BATCH_ROWS for task in tasks)
        assert all(task.batch.nbytes <= 1.5 * BATCH_NBYTES for task in tasks)
        assert pa.Table.from_batches([batch for task in tasks for batch in task.read()]).equals(table)


def test_batches_are_cut_by_the_size_of_the_columns_that_are_read() -> None:
    source = MemorySource.from_table(pa.table({"a": range(100_000), "b": ["x" * 1000] * 100_000}))
    narrow, both = (list(source.read_tasks(ReadRequest(columns=columns))) for columns in (("a",), ("a", "b")))
    assert [task.num_rows for task in narrow] == [100_000]
    assert len(both) > 4
    assert read_table(source, columns=("a",), limit=70_000).num_rows == 70_000


def test_limit_stops_early() -> None:
    source = MemorySource([pa.record_batch({"a": [i]}) for i in range(5)], pa.schema([("a", pa.int64())]))
    assert [task.num_rows for task in source.read_tasks(ReadRequest(limit=2))] == [1, 1]
    assert read_rows(MemorySource.from_table(pa.table({"a": range(5)})), limit=2) == [{"a": 0}, {"a": 1}]


def test_range() -> None:
    source = RangeSource(range(10, 0, -3))
    assert isinstance(source, Source)
    assert [row["id"] for row in read_rows(source)] == [10, 7, 4, 1]
    assert [row["id"] for row in read_rows(source, limit=2)] == [10, 7]
    assert read_rows(RangeSource(range(0))) == []


def test_a_long_range_is_cut_into_tasks_and_made_as_it_is_read() -> None:
    tasks = RangeSource(range(10**15)).read_tasks(ReadRequest())
    assert next(tasks).num_rows == TASK_ROWS
    batch = next(next(tasks).read())
    assert (batch.num_rows, batch.column("id")[0].as_py()) == (BATCH_ROWS, TASK_ROWS)


def test_a_range_without_its_column_still_has_rows() -> None:
    [task] = RangeSource(range(3)).read_tasks(ReadRequest(columns=()))
    assert [batch.num_rows for batch in task.read()] == [3]


def test_a_range_of_numbers_that_are_too_large() -> None:
    with pytest.raises(InvalidArgumentError, match="does not fit 64-bit integers"):
        RangeSource(range(2**63, 2**63 + 2))
