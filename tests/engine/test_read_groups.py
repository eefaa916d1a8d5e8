"""Groups of small read tasks."""

from __future__ import annotations

from collections.abc import Iterator
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


def test_groups_grow_and_keep_the_order() -> None:
    groups = list(in_groups(Numbered(number) for number in range(200)))
    sizes = [len(group.tasks) if isinstance(group, ReadGroup) else 1 for group in groups]
    assert sizes == [1, 2, 4, 8, 16, 32, MAX_TASKS, MAX_TASKS, 200 - 63 - 2 * MAX_TASKS]
    rows = [value for group in groups for batch in group.read() for value in batch["x"].to_pylist()]
    assert rows == list(range(200))
    assert sum(group.num_rows or 0 for group in groups) == 200


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
