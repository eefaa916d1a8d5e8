"""``zero_copy_batch``: functions read the memory of the columns, and may have their own to change."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import InvalidArgumentError, UdfError
from penstock.types import to_arrow_array

NUM_ROWS = 4


def column(values: Any, dtype: DataType) -> pa.Array:
    return to_arrow_array(values, dtype, what="column")


COLUMNS: dict[str, pa.Array] = {
    "int": pa.array(range(NUM_ROWS)),
    "small": pa.array(range(NUM_ROWS), pa.uint8()),
    "float": pa.array(np.linspace(0, 1, NUM_ROWS, dtype=np.float32)),
    "time": pa.array([dt.datetime(2026, 1, 1)] * NUM_ROWS),
    "duration": pa.array([dt.timedelta(1)] * NUM_ROWS),
    "fixed list": pa.array([[1, 2]] * NUM_ROWS, pa.list_(pa.int64(), 2)),
    "embedding": column(np.zeros((NUM_ROWS, 8), np.float32), DataType.embedding("float32", 8)),
    "tensor": column(np.zeros((NUM_ROWS, 2, 3)), DataType.tensor("float64", (2, 3))),
    "image": column(np.zeros((NUM_ROWS, 5, 6, 3), np.uint8), DataType.image("RGB", 5, 6)),
}
SHAPES = {"fixed list": (2,), "embedding": (8,), "tensor": (2, 3), "image": (5, 6, 3)}


def address(array: pa.Array) -> int:
    """Return where the values of a column lie, its offset included."""
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    values = storage.flatten() if pa.types.is_fixed_size_list(storage.type) else storage
    width = values.type.bit_width // 8
    return int(values.buffers()[1].address + values.offset * width)


def frame(name: str) -> tuple[ps.DataFrame, int]:
    """Return a DataFrame of one column that is a slice of a longer one, and where its values lie."""
    sliced = pa.table({"c": COLUMNS[name]}).slice(1)
    return ps.from_arrow(sliced), address(sliced.column("c").chunk(0))


@pytest.mark.one_machine
@pytest.mark.parametrize("name", COLUMNS)
def test_arrays_are_read_only_views(name: str) -> None:
    seen = []

    def look(batch: dict[str, Any]) -> dict[str, Any]:
        array = batch["c"]
        seen.append((array.ctypes.data, array.flags.writeable, array.shape))
        return batch

    df, where = frame(name)
    df.map_batches(look).collect()
    assert seen == [(where, False, (NUM_ROWS - 1, *SHAPES.get(name, ())))]


@pytest.mark.parametrize("name", COLUMNS)
def test_without_zero_copy_they_are_the_functions_own(name: str) -> None:
    def change(batch: dict[str, Any]) -> dict[str, Any]:
        batch["c"][...] = batch["c"][0]
        return batch

    df, _ = frame(name)
    before = df.to_arrow()
    changed = df.map_batches(change, zero_copy_batch=False).to_arrow()
    assert df.to_arrow().equals(before)
    assert changed.num_rows == NUM_ROWS - 1
    if name == "int":
        assert changed.column("c").to_pylist() == [1, 1, 1]


@pytest.mark.one_machine
@pytest.mark.parametrize("name", ["int", "float", "embedding", "tensor", "image"])
def test_tensors_share_memory_and_nobody_warns(name: str) -> None:
    seen = []

    def look(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append((batch["c"].data_ptr(), tuple(batch["c"].shape)))
        return batch

    df, where = frame(name)
    shape = (NUM_ROWS - 1, *SHAPES.get(name, ()))
    passed = df.map_batches(look, batch_format="torch", zero_copy_batch=True).to_arrow()
    assert seen == [(where, shape)]
    assert passed.equals(df.to_arrow())
    seen.clear()
    df.map_batches(look, batch_format="torch").collect()
    assert seen != [(where, shape)], "torch cannot lock a tensor, so it is a copy unless the user asks"


@pytest.mark.one_machine
def test_a_tensor_outlives_its_batch() -> None:
    kept = []

    def keep(batch: dict[str, Any]) -> dict[str, Any]:
        kept.append(batch["x"])
        return {"n": [len(batch["x"])]}

    ps.from_pydict({"x": list(range(1000))}).map_batches(
        keep, batch_format="torch", batch_size=None, zero_copy_batch=True
    ).collect()
    assert kept[0].tolist() == list(range(1000))


def test_tensors_that_are_the_functions_own_may_be_changed() -> None:
    df = ps.from_pydict({"x": [1, 2]})
    changed = df.map_batches(lambda b: {"x": b["x"].mul_(10)}, batch_format="torch")
    assert changed.to_pydict() == {"x": [10, 20]}
    assert df.to_pydict() == {"x": [1, 2]}


def test_a_tensor_written_to_against_the_rules_does_not_end_the_worker() -> None:
    table = pa.table({"x": np.zeros(100_000)})
    df = ps.from_arrow(table).map_batches(
        lambda b: {"x": b["x"].add_(1)}, batch_format="torch", use_process=True, concurrency=1, zero_copy_batch=True
    )
    assert set(df.to_pydict()["x"]) == {1.0}
    assert table.column("x").to_pylist()[0] == 0


@pytest.mark.one_machine
def test_series_of_batch_functions_are_views_too() -> None:
    seen = []

    @ps.func.batch(return_dtype=DataType.embedding("float32", 8))
    def look(c: Series) -> Any:
        array = c.to_numpy()
        seen.append((array.ctypes.data, array.flags.writeable, np.asarray(c).ctypes.data))
        seen.append((c.to_torch(zero_copy=True).data_ptr(), c.to_torch().data_ptr() == array.ctypes.data))
        return array

    df, where = frame("embedding")
    result = df.select(look(col("c"))).to_arrow()
    assert seen == [(where, False, where), (where, False)]
    assert address(result.column("c").chunk(0)) == where


@pytest.mark.one_machine
@pytest.mark.parametrize(("name", "row_nbytes"), [("int", 8), ("float", 4), ("tensor", 48)])
def test_an_array_that_comes_back_is_taken_without_a_copy(name: str, row_nbytes: int) -> None:
    df, where = frame(name)
    whole = df.map_batches(lambda batch: {"y": batch["c"]}).to_arrow()
    part = df.map_batches(lambda batch: {"y": batch["c"][1:]}).to_arrow()
    assert address(whole.column("y").chunk(0)) == where
    assert address(part.column("y").chunk(0)) == where + row_nbytes
    assert part.column("y").chunk(0).equals(whole.column("y").chunk(0).slice(1))


def test_every_other_element_comes_back_right() -> None:
    df = ps.from_pydict({"x": list(range(10))}).map_batches(
        lambda b: {"x": b["x"][::-2], "y": b["x"][1::2]}, batch_size=10
    )
    assert df.to_pydict() == {"x": [9, 7, 5, 3, 1], "y": [1, 3, 5, 7, 9]}


def writes(batch: dict[str, Any]) -> dict[str, Any]:
    batch["x"][0] = 5
    return batch


def adds(batch: dict[str, Any]) -> dict[str, Any]:
    batch["x"] += 1
    return batch


def sorts(batch: dict[str, Any]) -> dict[str, Any]:
    batch["x"].sort()
    return batch


def writes_late(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"x": [0]}
    yield writes(batch)


def writes_to_a_list(batch: dict[str, Any]) -> dict[str, Any]:
    batch["l"][0][0] = 5
    return batch


@pytest.mark.parametrize(
    ("function", "use_process"),
    [(writes, False), (writes, True), (adds, False), (sorts, False), (writes_late, False), (writes_to_a_list, False)],
)
def test_who_writes_to_a_view_is_told_what_to_do(function: Any, use_process: bool) -> None:
    df = ps.from_pydict({"x": [2, 1], "l": [[1], [2, 3]]})
    with pytest.raises(UdfError, match="read-only") as caught:
        df.map_batches(function, use_process=use_process).collect()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "zero_copy_batch=False" in str(caught.value)
    assert df.map_batches(function, use_process=use_process, zero_copy_batch=False).count_rows() >= 2


def test_the_remedy_is_recorded_with_the_rows() -> None:
    df = ps.from_pydict({"x": [2, 1]}).map_batches(writes, on_error="ignore").collect()
    assert all("zero_copy_batch=False" in text for text in df.errors().to_pydict()["traceback"])


@pytest.mark.parametrize("error", [ValueError("bad value"), OSError("read-only")])
def test_other_errors_get_no_such_advice(error: Exception) -> None:
    def fail(batch: dict[str, Any]) -> None:
        raise error

    with pytest.raises(UdfError) as caught:
        ps.from_pydict({"t": ["text"]}).map_batches(fail).collect()
    assert not getattr(caught.value.__cause__, "__notes__", [])


def test_a_dataframe_is_always_the_functions_own() -> None:
    def change(frame: Any) -> Any:
        frame.loc[0, "x"] = 7
        return frame

    df = ps.from_pydict({"x": [1, 2]})
    assert df.map_batches(change, batch_format="pandas").to_pydict() == {"x": [7, 2]}
    assert df.to_pydict() == {"x": [1, 2]}


def test_only_batches_have_the_option() -> None:
    with pytest.raises(InvalidArgumentError, match="zero_copy_batch"):
        ps.range(1).map(lambda row: row, zero_copy_batch=False)
