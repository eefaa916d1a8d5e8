"""``map_batches``, ``map``, ``flat_map`` and ``filter``: what the function is given, and what it may give back."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import penstock as ps
from penstock.errors import LedgerError, TypeMismatchError, UdfError


@pytest.fixture
def numbers() -> ps.DataFrame:
    return ps.from_pydict({"a": [1, 2, 3], "f": [0.5, 1.5, 2.5]})


# --- what it is given ---


def kind_of(value: Any) -> str:
    return type(value).__module__.partition(".")[0] + "." + type(value).__name__


@pytest.mark.parametrize(
    ("batch_format", "kind", "column_kind"),
    [
        ("numpy", "builtins.dict", "numpy.ndarray"),
        ("default", "builtins.dict", "numpy.ndarray"),
        ("torch", "builtins.dict", "torch.Tensor"),
        ("pandas", "pandas.DataFrame", "pandas.Series"),
        ("pyarrow", "pyarrow.Table", "pyarrow.ChunkedArray"),
        ("pylist", "builtins.list", None),
    ],
)
def test_batch_format(numbers: ps.DataFrame, batch_format: Any, kind: str, column_kind: str | None) -> None:
    def look(batch: Any) -> dict[str, Any]:
        assert kind_of(batch) == kind
        if column_kind is None:
            assert batch[0] == {"a": 1, "f": 0.5}
        else:
            assert kind_of(batch["a"]) == column_kind
        return {"num_rows": [len(batch) if batch_format in ("pandas", "pylist") else len(batch["a"])]}

    assert numbers.map_batches(look, batch_format=batch_format).to_pydict() == {"num_rows": [3]}


def test_arrays_are_the_functions_own_to_change(numbers: ps.DataFrame) -> None:
    def double(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        batch["a"] *= 2
        torch.from_numpy(
            batch["f"]
        ).neg_()  # warns of an array that may not be written to, and writes to it all the same
        return batch

    held = numbers.collect()
    assert held.map_batches(double, zero_copy_batch=False).to_pydict() == {"a": [2, 4, 6], "f": [-0.5, -1.5, -2.5]}
    assert held.to_pydict() == {"a": [1, 2, 3], "f": [0.5, 1.5, 2.5]}


def test_tensor_columns_keep_their_shape_in_every_format() -> None:
    images = ps.from_numpy(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    shapes = {
        "numpy": images.map_batches(lambda b: {"s": [list(b["data"].shape)]}),
        "torch": images.map_batches(lambda b: {"s": [list(b["data"].shape)]}, batch_format="torch"),
        "pandas": images.map_batches(lambda b: {"s": [list(b["data"].iloc[0].shape)]}, batch_format="pandas"),
        "pylist": images.map_batches(lambda b: {"s": [list(b[0]["data"].shape)]}, batch_format="pylist"),
    }
    found = {batch_format: df.to_pydict()["s"][0] for batch_format, df in shapes.items()}
    assert found == {"numpy": [2, 3, 4], "torch": [2, 3, 4], "pandas": [3, 4], "pylist": [3, 4]}


def test_images_with_a_null_are_an_object_array() -> None:
    pixels = ps.Series.from_pylist([np.full((2, 3, 3), 7, np.uint8), None], dtype=ps.DataType.image("RGB", 2, 3))
    df = ps.from_pydict({"image": pixels, "n": [1, 2]})

    def brightness(batch: dict[str, Any]) -> dict[str, Any]:
        return {"mean": batch["image"].mean(axis=(1, 2, 3))}

    shapes = df.map_batches(lambda batch: {"shape": [None if i is None else list(i.shape) for i in batch["image"]]})
    assert shapes.to_pydict() == {"shape": [[2, 3, 3], None]}
    with pytest.raises(TypeMismatchError, match=r"'image' of type .* cannot become a torch tensor"):
        df.map_batches(brightness, batch_format="torch").collect()
    assert df.drop_null("image").map_batches(brightness).to_pydict() == {"mean": [7.0]}
    handed_on = df.map_batches(lambda batch: {**batch, "m": batch["n"] + 1})
    assert handed_on.schema["image"].dtype == df.schema["image"].dtype
    assert [row["image"] is None for row in handed_on.to_pylist()] == [False, True]
    assert handed_on.to_pydict()["m"] == [2, 3]


def test_text_has_no_torch_form_and_the_error_names_the_column() -> None:
    with pytest.raises(TypeMismatchError, match="Series 'text' of type string cannot become a torch tensor"):
        ps.from_pydict({"text": ["x"]}).map_batches(lambda batch: batch, batch_format="torch").collect()


@pytest.mark.parametrize(("batch_size", "sizes"), [(1, [1, 1, 1]), (2, [2, 1]), (None, [3]), ("auto", [3])])
def test_batch_size(numbers: ps.DataFrame, batch_size: Any, sizes: list[int]) -> None:
    assert numbers.map_batches(lambda b: {"n": [len(b["a"])]}, batch_size=batch_size).to_pydict() == {"n": sizes}


def test_arguments_are_passed_on(numbers: ps.DataFrame) -> None:
    def scale(batch: dict[str, Any], factor: int, *, offset: int = 0) -> dict[str, Any]:
        return {"x": batch["a"] * factor + offset}

    assert numbers.map_batches(scale, fn_args=[10]).to_pydict() == {"x": [10, 20, 30]}
    assert numbers.map_batches(scale, fn_args=(10,), fn_kwargs={"offset": 1}).to_pydict() == {"x": [11, 21, 31]}
    assert numbers.map_batches(functools.partial(scale, factor=2)).to_pydict() == {"x": [2, 4, 6]}


# --- what it may give back ---


@pytest.mark.parametrize(
    "output",
    [
        {"x": np.array([1, 2])},
        {"x": [1, 2]},
        {"x": (1, 2)},
        {"x": torch.tensor([1, 2])},
        {"x": pa.array([1, 2])},
        {"x": pd.Series([1, 2])},
        pa.table({"x": [1, 2]}),
        pa.record_batch({"x": [1, 2]}),
        pd.DataFrame({"x": [1, 2]}, index=[7, 8]),
    ],
    ids=lambda output: kind_of(output["x"]) if isinstance(output, dict) else kind_of(output),
)
def test_accepted_outputs(numbers: ps.DataFrame, output: Any) -> None:
    assert numbers.map_batches(lambda batch: output).to_pydict() == {"x": [1, 2]}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, r"map_batches\(give\): returned None of type NoneType, expected a dict of arrays or lists, a pyarrow"),
        ([1], r"returned \[1\] of type list, expected a dict of arrays"),
        ({"x": 3}, "column 'x': has 3 of type int, expected one value for each row"),
        ({"x": "abc"}, "column 'x': has 'abc' of type str, expected one value for each row"),
        ({"x": [1], "y": [1, 2]}, "unequal lengths: 'x' has 1, 'y' has 2"),
    ],
)
def test_refused_outputs(numbers: ps.DataFrame, output: Any, message: str) -> None:
    def give(batch: Any) -> Any:
        return output

    with pytest.raises(TypeMismatchError, match=message):
        numbers.map_batches(give).collect()


def test_batches_of_different_types_take_the_common_one() -> None:
    def give(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": [[None], [1], [0.5]][batch["id"][0]], "t": np.ones((1, batch["id"][0] + 1))}

    result = ps.range(3).map_batches(give, batch_size=1).to_pydict()
    assert result["x"] == [None, 1.0, 0.5]
    assert [t.shape for t in result["t"]] == [(1,), (2,), (3,)]


def test_batches_of_types_that_have_none_in_common_are_refused_by_name() -> None:
    df = ps.range(2).map_batches(lambda b: {"x": ["t"] if b["id"][0] else [1]}, batch_size=1)
    with pytest.raises(TypeMismatchError, match="Column 'x' is int64 in one batch and string in another"):
        df.collect()


# --- generators and async functions ---


def test_a_generator_gives_several_batches_for_one(numbers: ps.DataFrame) -> None:
    def halves(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"x": batch["a"][:2]}
        yield {"x": batch["a"][2:]}

    assert [b.num_rows for b in numbers.map_batches(halves).iter_partitions()] == [2, 1]
    assert numbers.map_batches(halves).to_pydict() == {"x": [1, 2, 3]}


def test_a_generator_is_drawn_no_further_than_it_is_wanted() -> None:
    drawn: list[int] = []

    def endless(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        while True:
            drawn.append(len(drawn))
            yield {"x": [drawn[-1]] * 1000}

    assert ps.range(1).map_batches(endless).limit(1500).count_rows() == 1500
    assert len(drawn) < 1000


def test_a_generator_that_yields_none_is_refused(numbers: ps.DataFrame) -> None:
    def give(batch: Any) -> Iterator[Any]:
        yield {"x": [1]}
        yield None

    with pytest.raises(TypeMismatchError, match="returned None of type NoneType"):
        numbers.map_batches(give).collect()


async def wait_a_turn(batch: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"x": batch["a"] * 2}


async def wait_and_yield(batch: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    for value in batch["a"]:
        await asyncio.sleep(0)
        yield {"x": [value * 2]}


class Waiter:
    """An async class: its instance, its calls and its close share one event loop."""

    loops: list[Any]

    def __init__(self, loops: list[Any]) -> None:
        self.loops = loops
        loops.append(asyncio.get_running_loop())

    async def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.loops.append(asyncio.get_running_loop())
        return {"x": batch["a"] * 2}

    async def close(self) -> None:
        self.loops.append(asyncio.get_running_loop())


@pytest.mark.parametrize("function", [wait_a_turn, wait_and_yield])
def test_async_functions(numbers: ps.DataFrame, function: Callable[..., Any]) -> None:
    assert numbers.map_batches(function, batch_size=2).to_pydict() == {"x": [2, 4, 6]}


@pytest.mark.one_machine
def test_an_async_class_has_one_loop_for_its_life(numbers: ps.DataFrame) -> None:
    loops: list[Any] = []
    df = numbers.map_batches(Waiter, fn_constructor_args=(loops,), batch_size=1)
    assert df.to_pydict() == {"x": [2, 4, 6]}
    assert len(loops) == 5
    assert len(set(loops)) == 1


def test_async_map_batches_works_where_a_loop_runs_already(numbers: ps.DataFrame) -> None:
    async def in_a_notebook() -> dict[str, list[Any]]:
        return numbers.map_batches(wait_a_turn).to_pydict()

    assert asyncio.run(in_a_notebook()) == {"x": [2, 4, 6]}


def test_async_rows_wait_together_and_keep_their_order() -> None:
    done = [asyncio.Event() for _ in range(20)]

    async def backwards(row: dict[str, int]) -> dict[str, int]:
        if row["id"] < 19:
            await done[row["id"] + 1].wait()  # which would never come if rows ran one after the other
        done[row["id"]].set()
        return {"x": row["id"]}

    assert ps.range(20).map(backwards).to_pydict() == {"x": list(range(20))}


def test_async_flat_map_and_filter() -> None:
    async def twice(row: dict[str, int]) -> list[dict[str, int]]:
        return [row, row]

    async def is_odd(row: dict[str, int]) -> bool:
        return row["id"] % 2 == 1

    assert ps.range(4).filter(is_odd).flat_map(twice).to_pydict() == {"id": [1, 1, 3, 3]}


@pytest.mark.one_machine
def test_an_async_call_is_cancelled_when_the_query_stops() -> None:
    cancelled = threading.Event()
    started = threading.Event()

    async def first_only(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] == 0:
            await asyncio.to_thread(started.wait)
            return batch
        started.set()
        try:
            await asyncio.Event().wait()  # for ever
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return batch

    df = ps.range(2).map_batches(first_only, batch_size=1, concurrency=2)
    assert df.limit(1).to_pydict() == {"id": [0]}
    assert cancelled.is_set()


# --- rows ---


def test_map_gives_a_row_for_each_and_a_missing_key_is_null() -> None:
    result = ps.range(3).map(lambda row: {"x": row["id"]} if row["id"] else {"y": "none"})
    assert result.to_pydict() == {"y": ["none", None, None], "x": [None, 1, 2]}


def test_flat_map_gives_any_number_of_rows() -> None:
    repeated = ps.range(4).flat_map(lambda row: [{"x": row["id"]}] * row["id"], batch_size=1)
    assert repeated.to_pydict() == {"x": [1, 2, 2, 3, 3, 3]}
    assert repeated.select("x").count_rows() == 6  # though the first batch gave no row and so no column


def test_flat_map_takes_a_generator() -> None:
    def letters(row: dict[str, str]) -> Iterator[dict[str, str]]:
        for letter in row["word"]:
            yield {"letter": letter}

    assert ps.from_pydict({"word": ["ab", "", "c"]}).flat_map(letters).to_pydict() == {"letter": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda df: df.map(lambda row: None), r"map\(<lambda>\) returned a row of type NoneType; return a dict"),
        (lambda df: df.map(lambda row: [row]), "returned a row of type list"),
        (lambda df: df.flat_map(lambda row: row), r"flat_map\(<lambda>\) returned dict; return a list of dicts"),
        (lambda df: df.flat_map(lambda row: 3), "returned int; return a list of dicts"),
        (lambda df: df.flat_map(lambda row: [3]), "returned a row of type int"),
    ],
)
def test_refused_rows(numbers: ps.DataFrame, run: Callable[[ps.DataFrame], ps.DataFrame], message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        run(numbers).collect()


# --- classes and workers ---


class Adder:
    def __init__(self, amount: int, built: list[int] | None = None) -> None:
        self.amount = amount
        if built is not None:
            built.append(threading.get_ident())

    def __call__(self, batch: dict[str, Any], factor: int = 1) -> dict[str, Any]:
        return {"x": (batch["id"] + self.amount) * factor}


@pytest.mark.one_machine
def test_a_class_is_built_once_per_worker_and_not_before_the_query_runs() -> None:
    built: list[int] = []
    df = ps.range(50).map_batches(
        Adder, fn_constructor_args=(1,), fn_constructor_kwargs={"built": built}, fn_kwargs={"factor": 2}, batch_size=1
    )
    assert built == []
    assert df.to_pydict() == {"x": [(n + 1) * 2 for n in range(50)]}
    assert len(built) == 1


@pytest.mark.one_machine
@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 3},
        {"concurrency": (1, 3)},
        {"compute": ps.ActorPoolStrategy(size=3)},
        {"compute": ps.ActorPoolStrategy(min_size=1, max_size=3)},
        {"compute": ps.TaskPoolStrategy(size=3)},
    ],
    ids=str,
)
def test_as_many_workers_as_asked_for_run_at_once(options: dict[str, Any]) -> None:
    built: list[int] = []
    met = threading.Barrier(3, timeout=60)

    class Meeting(Adder):
        def __call__(self, batch: dict[str, Any], factor: int = 1) -> dict[str, Any]:
            met.wait()
            return super().__call__(batch, factor)

    df = ps.range(6).map_batches(Meeting, fn_constructor_args=(0, built), batch_size=1, **options)
    assert df.to_pydict() == {"x": [0, 1, 2, 3, 4, 5]}
    assert len(built) == 3


def test_an_instance_with_call_is_a_function_like_any_other() -> None:
    assert ps.range(2).map_batches(Adder(5)).to_pydict() == {"x": [5, 6]}


def test_classes_serve_rows_too() -> None:
    class Keep:
        def __init__(self, least: int) -> None:
            self.least = least

        def __call__(self, row: dict[str, int]) -> bool:
            return row["id"] >= self.least

    assert ps.range(4).filter(Keep, fn_constructor_args=[2]).to_pydict() == {"id": [2, 3]}


@pytest.mark.one_machine
def test_close_is_called_once_per_worker_also_after_an_error() -> None:
    closed: list[str] = []

    class Resource:
        def __init__(self, is_bad: bool) -> None:
            self.is_bad = is_bad

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            if self.is_bad:
                raise ValueError("bad")
            return batch

        def close(self) -> None:
            closed.append("bad" if self.is_bad else "good")

    ps.range(3).map_batches(Resource, fn_constructor_args=(False,), batch_size=1).collect()
    assert closed == ["good"]
    with pytest.raises(UdfError):
        ps.range(3).map_batches(Resource, fn_constructor_args=(True,)).collect()
    assert closed == ["good", "bad"]


@pytest.mark.one_machine
@pytest.mark.parametrize("error", [RuntimeError("already closed"), LedgerError("the disk is full")])
def test_a_close_that_fails_does_not_take_the_results_away(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    class Resource:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return batch

        def close(self) -> None:
            raise error

    assert ps.range(2).map_batches(Resource).to_pydict() == {"id": [0, 1]}
    assert f"Resource.close() failed: {error}" in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(error, RuntimeError)  # an expected error is one line


def test_a_function_may_add_columns_to_the_dict_it_was_given() -> None:
    def add(batch: dict[str, Any]) -> dict[str, Any]:
        batch["copy"] = batch["a"]
        return batch

    df = ps.from_pydict({"a": [1, None]}).map_batches(add)
    assert df.to_pydict() == {"a": [1, None], "copy": [1, None]}
