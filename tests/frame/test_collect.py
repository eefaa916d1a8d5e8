"""``collect`` keeps what it ran, and the other small promises to people who come from Daft and Ray Data."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError, ReadError, TypeMismatchError
from penstock.protocols import ReadRequest


@pytest.mark.one_machine
def test_a_collected_frame_is_not_run_again() -> None:
    calls: list[int] = []

    @ps.func
    def noted(x: int) -> int:
        calls.append(x)
        return x

    df = ps.range(3).with_column("y", noted(ps.col("id")))
    assert df.collect() is df
    assert df.to_pydict() == {"id": [0, 1, 2], "y": [0, 1, 2]}
    assert df.where(ps.col("y") > 1).count_rows() == 1
    assert sorted(calls) == [0, 1, 2]


def test_the_schema_may_be_called() -> None:
    df = ps.range(1)
    assert df.schema() == df.schema
    assert df.columns == ["id"]


def test_explode_is_an_expression_too() -> None:
    df = ps.from_pydict({"a": [1, 2], "b": [[10, 20], [30]]})
    assert df.select("a", ps.col("b").explode().alias("c")).to_pydict() == {"a": [1, 1, 2], "c": [10, 20, 30]}
    assert df.with_column("b", ps.col("b").explode()).to_pydict() == {"a": [1, 1, 2], "b": [10, 20, 30]}
    with pytest.raises(InvalidArgumentError, match="alone in select"):
        df.select(ps.col("b").explode() + 1)


def test_what_is_no_type_is_refused() -> None:
    with pytest.raises(TypeMismatchError, match="7 is not a type"):
        ps.col("a").cast(7)  # type: ignore[arg-type]


class Liar:
    """A source that gives something else than it says."""

    name = "liar"
    can_filter = False

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def schema(self) -> ps.Schema:
        return ps.Schema.from_pydict({"a": ps.DataType.int64()})

    def read_tasks(self, request: ReadRequest) -> Iterator[Liar]:
        yield self

    num_rows = nbytes = None

    def read(self) -> list[pa.RecordBatch]:
        return [self._batch]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.record_batch({"a": ["x"]}), "'liar' gave string in column 'a', but its schema says int64"),
        (pa.record_batch({"b": [1]}), "'liar' gave no column 'a'"),
    ],
)
def test_a_source_must_give_what_it_says(batch: pa.RecordBatch, message: str) -> None:
    with pytest.raises(ReadError, match=message):
        ps.read_source(Liar(batch)).collect()


def test_a_source_may_give_more_than_was_asked_for() -> None:
    assert ps.read_source(Liar(pa.record_batch({"b": ["x"], "a": [1]}))).to_pydict() == {"a": [1]}
