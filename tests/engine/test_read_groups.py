"""Groups of small read tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.engine.read_groups import MAX_NBYTES, MAX_TASKS, ReadGroup, in_groups


@dataclass(eq=False)
class Numbered:
    number: int
    is_small: bool = True
    num_rows: int | None = 1
    nbytes: int | None = 8

    def read(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"x": [self.number]})

    def read_with(self, others: Sequence[Numbered]) -> Iterator[pa.RecordBatch]:
        yield from (batch for task in (self, *others) for batch in task.read())


def test_groups_grow_and_keep_the_order() -> None:
    groups = list(in_groups(Numbered(number) for number in range(800)))
    sizes = [len(group.tasks) if isinstance(group, ReadGroup) else 1 for group in groups]
    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128, MAX_TASKS, MAX_TASKS, 800 - 255 - 2 * MAX_TASKS]
    rows = [value for group in groups for batch in group.read() for value in batch["x"].to_pylist()]
    assert rows == list(range(800))
    assert sum(group.num_rows or 0 for group in groups) == 800


def test_large_tasks_stay_alone_and_bytes_end_a_group() -> None:
    tasks = [Numbered(0, is_small=False), Numbered(1), Numbered(2, is_small=False), *map(Numbered, (3, 4, 5))]
    tasks[4].nbytes = MAX_NBYTES
    groups = list(in_groups(tasks))
    assert [[t.number for t in g.tasks] if isinstance(g, ReadGroup) else g.number for g in groups] == [
        0,
        1,
        2,
        [3, 4],
        5,
    ]


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_many_small_files_are_read_in_few_batches(tmp_path: Path, kind: str) -> None:
    for number in range(100):
        match kind:
            case "parquet":
                pq.write_table(pa.table({"x": [number, None]}), tmp_path / f"{number:03d}.parquet")
            case "csv":
                (tmp_path / f"{number:03d}.csv").write_text(f"x\n{number}\n\n")
            case "json":
                (tmp_path / f"{number:03d}.json").write_text(f'{{"x": {number}}}\n{{"x": null}}\n')
    df = getattr(ps, f"read_{kind}")(tmp_path)
    assert df.to_pydict()["x"] == [value for number in range(100) for value in (number, None)]
    assert df.count_rows() == 200
    assert df.where(ps.col("x") > 49).count_rows() == 50
    assert df.limit(3).to_pydict() == {"x": [0, None, 1]}
    assert len(list(df.iter_partitions())) == 7


def test_files_of_a_group_may_differ(tmp_path: Path) -> None:
    tables = [pa.table({"x": [number, None], "y": ["a", "b"]}) for number in range(8)]
    tables[3] = tables[3].select(["y", "x"])
    tables[4] = tables[4].select(["y"])
    tables[5] = tables[5].cast(pa.schema([pa.field("x", pa.int32()), pa.field("y", pa.large_string(), nullable=True)]))
    tables[6] = tables[6].append_column("z", pa.array([1, 2])).replace_schema_metadata({"k": "v"})
    for number, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    df = ps.read_parquet(tmp_path, schema={"x": ps.DataType.int64(), "y": ps.DataType.string()}, infer_schema=False)
    xs = [value for number in range(8) for value in ((None, None) if number == 4 else (number, None))]
    assert df.to_pydict() == {"x": xs, "y": ["a", "b"] * 8}
    assert df.where(ps.col("x") > 4).to_pydict() == {"x": [5, 6, 7], "y": ["a"] * 3}


def test_an_error_in_a_group_names_its_file(tmp_path: Path) -> None:
    for number in range(40):
        values = ["not a number"] if number == 37 else [number]
        pq.write_table(pa.table({"x": values}), tmp_path / f"{number:02d}.parquet")
    with pytest.raises(ps.errors.ReadError, match=r"37\.parquet"):
        ps.read_parquet(tmp_path).to_arrow()
    (tmp_path / "37.parquet").write_bytes(b"")
    with pytest.raises(ps.errors.CorruptFileError, match=r"37\.parquet.*is empty"):
        ps.read_parquet(tmp_path).count_rows()
    assert ps.read_parquet(tmp_path, ignore_corrupt_files=True).count_rows() == 39
