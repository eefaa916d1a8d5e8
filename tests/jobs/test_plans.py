"""Every kind of plan as a job: it fails, runs again, and has the same result as a single run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import DataType, col
from penstock.errors import PenstockError
from tests.jobs.helpers import Calls, breaking, write_numbers

FIRST, SECOND, LAST = range(100), range(100, 250), range(250, 300)
INT = DataType.int64()


class Plans:
    """Plans over three files whose function fails at the last row but one while the file ``broken`` is there."""

    def __init__(self, folder: Path) -> None:
        self.source = write_numbers(folder / "in", FIRST, SECOND, LAST)
        self.calls = Calls(folder / "calls")
        self.broken = folder / "broken"
        self.ten_times = breaking(self.calls, self.broken, at=298)

    @property
    def numbers(self) -> ps.DataFrame:
        return ps.read_parquet(str(self.source))

    @property
    def called(self) -> ps.Expression:
        return ps.func(self.ten_times, return_dtype=INT)(col("a"))

    def udf(self) -> ps.DataFrame:
        return self.numbers.with_column("b", self.called)

    def async_udf(self) -> ps.DataFrame:
        ten_times = self.ten_times

        async def later(a: int) -> int:
            return ten_times(a)

        return self.numbers.with_column("b", ps.func(later, return_dtype=INT)(col("a")))

    def two_udfs(self) -> ps.DataFrame:
        again = ps.func(lambda b: b + 1, return_dtype=INT)
        return self.udf().with_column("c", again(col("b")))

    def generator_udf(self) -> ps.DataFrame:
        ten_times = self.ten_times

        def several(a: int) -> Iterator[int]:
            for _ in range(a % 3):
                yield ten_times(a)

        return self.numbers.select(col("a"), ps.func(several, return_dtype=INT)(col("a")).alias("b"))

    def mapped(self) -> ps.DataFrame:
        ten_times = self.ten_times
        return self.numbers.map(lambda row: {"a": row["a"], "b": ten_times(row["a"])})

    def flat_mapped(self) -> ps.DataFrame:
        ten_times = self.ten_times
        return self.numbers.flat_map(lambda row: [{"a": row["a"], "b": ten_times(row["a"])}] * (row["a"] % 3))

    def map_batches(self) -> ps.DataFrame:
        ten_times = self.ten_times
        return self.numbers.map_batches(
            lambda batch: {"a": batch["a"], "b": [ten_times(int(a)) for a in batch["a"]]}, batch_size=16
        )

    def batches_across_files(self) -> ps.DataFrame:
        return self.map_batches().map_batches(lambda batch: batch, batch_size=7)

    def filtered_by_udf(self) -> ps.DataFrame:
        return self.numbers.where(self.called % 20 == 0)

    def filtered_by_function(self) -> ps.DataFrame:
        ten_times = self.ten_times
        return self.numbers.filter(lambda row: ten_times(row["a"]) % 20 == 0)

    def filtered_before(self) -> ps.DataFrame:
        return self.numbers.where(col("a") % 2 == 0).with_column("b", self.called)

    def filtered_after(self) -> ps.DataFrame:
        return self.udf().where(col("b") % 20 == 0)

    def exploded(self) -> ps.DataFrame:
        return self.udf().map(lambda row: {"a": row["a"], "b": [row["b"]] * (row["a"] % 3)}).explode("b")

    def lots_of_lots(self) -> ps.DataFrame:
        return self.flat_mapped().where(col("a") % 5 != 0).map_batches(lambda batch: batch, batch_size=11)

    def concat(self) -> ps.DataFrame:
        return self.numbers.concat(ps.from_pydict({"a": [5, 6, 7]})).with_column("b", self.called)

    def concat_with_itself(self) -> ps.DataFrame:
        return self.numbers.concat(self.numbers).with_column("b", self.called)

    def file_twice(self) -> ps.DataFrame:
        paths = [str(self.source / name) for name in ("0.parquet", "2.parquet", "0.parquet", "2.parquet")]
        return ps.read_parquet(paths).with_column("b", self.called)

    def pushed_down(self) -> ps.DataFrame:
        return self.numbers.where((col("a") > 90) & (col("a") < 299)).with_column("b", self.called).select("b")

    def into_batches(self) -> ps.DataFrame:
        return self.numbers.into_batches(32).with_column("b", self.called)

    def unpivoted(self) -> ps.DataFrame:
        return self.udf().with_column("c", col("b") + 1).unpivot(["a"], ["b", "c"])

    # Of these, what a row gives depends on the others.

    def limited(self) -> ps.DataFrame:
        return self.udf().limit(299)

    def sampled(self) -> ps.DataFrame:
        return (
            self.numbers.sample(fraction=0.9, seed=3).concat(ps.from_pydict({"a": [298]})).with_column("b", self.called)
        )

    def numbered(self) -> ps.DataFrame:
        return self.udf().monotonically_increasing_id("n")

    def united(self) -> ps.DataFrame:
        return self.numbers.union(ps.from_pydict({"a": [1, 1000]})).with_column("b", self.called)


ROW_WISE = (
    "udf", "async_udf", "two_udfs", "generator_udf", "mapped", "flat_mapped", "map_batches", "batches_across_files",
    "filtered_by_udf", "filtered_by_function", "filtered_before", "filtered_after", "exploded", "lots_of_lots",
    "concat", "concat_with_itself", "file_twice", "pushed_down", "into_batches", "unpivoted",
)  # fmt: skip
OTHERS = ("limited", "sampled", "numbered", "united")


def rows(frame: ps.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in frame.to_pylist())


@pytest.fixture(autouse=True)
def _commit_often() -> Iterator[None]:
    with ps.config(checkpoint_interval=0.001, progress=False):
        yield


@pytest.mark.parametrize("name", [*ROW_WISE, *OTHERS])
def test_a_failed_job_is_resumed(tmp_path: Path, name: str) -> None:
    plans, out = Plans(tmp_path), str(tmp_path / "out")
    build: Callable[[], ps.DataFrame] = getattr(plans, name)
    expected = rows(build())
    plans.calls.take()
    plans.broken.touch()
    with pytest.raises(PenstockError, match="no luck with 298") as failure:
        build().write_parquet(out, resume=True)
    assert "run it again with resume=True" in failure.value.__notes__[-1]
    plans.calls.take()
    plans.broken.unlink()
    build().write_parquet(out, resume=True)
    assert rows(ps.read_parquet(out)) == expected
    assert plans.calls.take()
    files = build().write_parquet(out, resume=True).to_pydict()
    assert not plans.calls.take()
    assert sum(files["rows"]) == len(expected)
    assert rows(ps.read_parquet(out)) == expected
