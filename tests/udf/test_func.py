"""``func``: a function of single values over columns, row by row."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import os
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple, Optional, TypedDict

import cloudpickle
import numpy as np
import pytest
from pydantic import BaseModel

import penstock as ps
from penstock import DataType, col, lit
from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.plan.identity.code_keys import code_key


@ps.func
def add(x: int, y: int = 10) -> int:
    """Add two numbers."""
    return x + y


@ps.func
def total(*values: int, start: int = 0) -> int:
    return sum(values, start)


@pytest.fixture
def df() -> ps.DataFrame:
    return ps.from_pydict({"a": [1, 2, 3], "b": [10, 20, 30], "s": ["x", "y", None]})


def test_methods_of_builtin_objects_are_functions() -> None:
    lookup, name = {"x": 1}.get, col("s")
    assert lookup.__module__ is None
    df = ps.from_pydict({"s": ["x", "z"]})
    found = df.select(
        ps.func(lookup, return_dtype=DataType.int64())(name), name.apply(lookup, return_dtype=int).alias("a")
    )
    assert found.to_pydict() == {"s": [1, None], "a": [1, None]}


# --- arguments ---


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: add(col("a")), [11, 12, 13]),
        (lambda: add(col("a"), 5), [6, 7, 8]),
        (lambda: add(col("a"), lit(5)), [6, 7, 8]),
        (lambda: add(5, col("a")), [6, 7, 8]),
        (lambda: add(col("a"), y=col("b")), [11, 22, 33]),
        (lambda: add(y=col("b"), x=1), [11, 21, 31]),
        (lambda: add(col("a") * 2, col("b") - col("a")), [11, 22, 33]),
        (lambda: add(lit(1), lit(2)), [3, 3, 3]),
        (lambda: total(col("a"), 1, col("b")), [12, 23, 34]),
        (lambda: total(col("a"), start=100), [101, 102, 103]),
    ],
)
def test_arguments_are_columns_constants_and_defaults(
    df: ps.DataFrame, call: Callable[[], ps.Expression], expected: list[int]
) -> None:
    assert df.select(call().alias("r")).to_pydict() == {"r": expected}


def test_a_constant_reaches_the_function_as_the_object_it_is(df: ps.DataFrame) -> None:
    marker = object()

    @ps.func
    def is_same(x: int, other: Any) -> bool:
        return other is marker

    assert df.select(is_same(col("a"), marker)).to_pydict() == {"a": [True] * 3}


def test_null_reaches_the_function_as_none(df: ps.DataFrame) -> None:
    @ps.func
    def describe(s: str | None) -> str:
        return "nothing" if s is None else s

    assert df.select(describe(col("s"))).to_pydict() == {"s": ["x", "y", "nothing"]}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: add(col("a"), 1, 2), r"add: too many positional arguments; it is defined as add\(x"),
        (lambda: add(y=col("a")), "add: missing a required argument: 'x'"),
        (lambda: add(col("a"), z=1), "add: got an unexpected keyword argument 'z'"),
    ],
)
def test_a_call_that_does_not_fit_the_signature(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        call()


# --- results ---


@dataclasses.dataclass
class Point:
    x: int
    label: str | None = None


class Pair(NamedTuple):
    x: int
    y: float


class Record(TypedDict):
    x: int
    names: list[str]


class Model(BaseModel):
    x: int
    inner: list[Point]


class Color(enum.Enum):
    RED = "red"


INT, FLOAT, TEXT = DataType.int64(), DataType.float64(), DataType.string()


@pytest.mark.parametrize(
    ("hint", "value", "dtype", "back"),
    [
        (int, 3, INT, 3),
        (float, 3, FLOAT, 3.0),
        (str, "t", TEXT, "t"),
        (bool, True, DataType.bool(), True),
        (bytes, b"t", DataType.binary(), b"t"),
        (Optional[int], None, INT, None),  # noqa: UP045 - the old spelling is a hint too
        (int | None, 3, INT, 3),
        (list[float], [1, 2], DataType.list(FLOAT), [1.0, 2.0]),
        (dict[str, int], {"k": 1}, DataType.map(TEXT, INT), {"k": 1}),
        (tuple[int, str], (1, "t"), DataType.struct({"0": INT, "1": TEXT}), {"0": 1, "1": "t"}),
        (Point, Point(1), DataType.struct({"x": INT, "label": TEXT}), {"x": 1, "label": None}),
        (Pair, Pair(1, 2.0), DataType.struct({"x": INT, "y": FLOAT}), {"x": 1, "y": 2.0}),
        (Record, {"x": 1, "names": ["n"]}, DataType.struct({"x": INT, "names": DataType.list(TEXT)}), None),
        (Model, Model(x=1, inner=[Point(2, "p")]), None, {"x": 1, "inner": [{"x": 2, "label": "p"}]}),
        (list[Point], [Point(1, "p")], None, [{"x": 1, "label": "p"}]),
        (Color, Color.RED, TEXT, "red"),
        (object, {1, 2}, DataType.python(), {1, 2}),
    ],
    ids=str,
)
def test_return_hints(df: ps.DataFrame, hint: Any, value: Any, dtype: DataType | None, back: Any) -> None:
    def give(a: int) -> Any:
        return value

    give.__annotations__["return"] = hint
    result = df.limit(1).select(ps.func(give)(col("a")).alias("r"))
    if dtype is not None:
        assert result.schema["r"].dtype == dtype
    assert result.to_pydict() == {"r": [value if back is None and value is not None else back]}


def test_ndarray_hints(df: ps.DataFrame) -> None:
    @ps.func
    def plain(a: int) -> np.ndarray:
        return np.full(a, 0.5)

    @ps.func
    def typed(a: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.full((a, 2), 0.5, dtype=np.float32)

    result = df.select(p=plain(col("a")), t=typed(col("a")))
    assert result.schema["t"].dtype == DataType.tensor(DataType.float32())
    rows = result.to_pylist()
    assert [row["p"].shape for row in rows] == [(1,), (2,), (3,)]
    assert [row["t"].shape for row in rows] == [(1, 2), (2, 2), (3, 2)]


def test_return_dtype_wins_over_the_hint_and_may_be_a_name_or_a_class(df: ps.DataFrame) -> None:
    def half(a: int) -> Any:
        return a / 2

    for given in (DataType.float32(), "float32", np.float32):
        result = df.select(ps.func(return_dtype=given)(half)(col("a")))
        assert result.schema["a"].dtype == DataType.float32()
        assert result.to_pydict() == {"a": [0.5, 1.0, 1.5]}


def test_a_result_of_another_type_is_an_error_that_names_function_and_value(df: ps.DataFrame) -> None:
    @ps.func
    def liar(a: int) -> int:
        return "text"  # type: ignore[return-value]

    with pytest.raises(TypeMismatchError, match="UDF 'liar': has 'text' of type str at row 0, expected int64"):
        df.select(liar(col("a"))).collect()


def test_unnest_spreads_the_fields(df: ps.DataFrame) -> None:
    @ps.func(unnest=True)
    def point(a: int) -> Point:
        return Point(a * 2, "p")

    assert df.select("a", point(col("a"))).to_pydict() == {"a": [1, 2, 3], "x": [2, 4, 6], "label": ["p"] * 3}
    assert df.with_column("ignored", point(col("a"))).columns == ["a", "b", "s", "x", "label"]


# --- generators ---


@ps.func
def count_to(n: int) -> Iterator[str]:
    for i in range(n):
        yield f"{n}.{i}"


def test_a_generator_gives_a_row_for_each_value_and_repeats_the_others(df: ps.DataFrame) -> None:
    assert df.select("a", g=count_to(col("a"))).to_pydict() == {
        "a": [1, 2, 2, 3, 3, 3],
        "g": ["1.0", "2.0", "2.1", "3.0", "3.1", "3.2"],
    }


def test_a_generator_that_yields_nothing_gives_one_null() -> None:
    df = ps.from_pydict({"a": [0, 1, 0]})
    assert df.select("a", g=count_to(col("a"))).to_pydict() == {"a": [0, 1, 0], "g": [None, "1.0", None]}


def test_what_reads_a_generator_is_computed_for_each_of_its_rows(df: ps.DataFrame) -> None:
    @ps.func
    def shout(text: str) -> str:
        return text + "!"

    assert df.limit(2).select(g=shout(count_to(col("a")))).to_pydict() == {"g": ["1.0!", "2.0!", "2.1!"]}


def test_an_async_generator(df: ps.DataFrame) -> None:
    @ps.func
    async def slowly(n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    assert df.select("a", g=slowly(col("a"))).to_pydict() == {"a": [1, 2, 2, 3, 3, 3], "g": [0, 0, 1, 0, 1, 2]}


# --- async ---


@pytest.mark.one_machine
def test_async_rows_wait_at_the_same_time_within_the_bound() -> None:
    waiting = 0
    most = 0
    full = asyncio.Event()

    @ps.func(max_concurrency=5)
    async def meet(n: int) -> int:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        if waiting == 5:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        waiting -= 1
        return n

    assert ps.range(20).select(meet(col("id"))).to_pydict() == {"id": list(range(20))}
    assert most == 5


@pytest.mark.one_machine
def test_an_async_failure_cancels_the_other_rows_and_leaves_no_coroutine_unawaited() -> None:
    cancelled: list[int] = []

    @ps.func(max_concurrency=4)
    async def fail(n: int) -> int:
        if n == 2:
            raise KeyError("two")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return n

    with pytest.raises(
        ps.errors.UdfError, match=r"UDF 'fail' failed on row 2 of the input \(id=2\): KeyError: 'two'"
    ) as caught:
        ps.range(50).select(fail(col("id"))).collect()
    assert isinstance(caught.value.__cause__, KeyError)
    assert {0, 1} <= set(cancelled)


def test_async_works_where_a_loop_runs_already(df: ps.DataFrame) -> None:
    @ps.func
    async def double(x: int) -> int:
        return x * 2

    async def in_a_notebook() -> dict[str, list[Any]]:
        return df.select(double(col("a"))).to_pydict()

    assert asyncio.run(in_a_notebook()) == {"a": [2, 4, 6]}


# --- in a query ---


def count_calls(calls: list[int]) -> Any:
    lock = threading.Lock()

    @ps.func
    def counted(x: int) -> int:
        with lock:
            calls.append(x)
        return x * 2

    return counted


@pytest.mark.one_machine
def test_equal_calls_are_computed_once(df: ps.DataFrame) -> None:
    calls: list[int] = []
    counted = count_calls(calls)
    result = df.select(one=counted(col("a")), two=counted(col("a")) + 1, three=counted(col("a")) * counted(col("a")))
    assert result.to_pydict() == {"one": [2, 4, 6], "two": [3, 5, 7], "three": [4, 16, 36]}
    assert sorted(calls) == [1, 2, 3]


@pytest.mark.one_machine
def test_a_column_nobody_reads_is_not_computed(df: ps.DataFrame) -> None:
    calls: list[int] = []
    assert df.with_column("x", count_calls(calls)(col("a"))).select("b").to_pydict() == {"b": [10, 20, 30]}
    assert calls == []


@pytest.mark.one_machine
def test_a_filter_on_other_columns_goes_before_the_calls(df: ps.DataFrame) -> None:
    calls: list[int] = []
    result = df.with_column("x", count_calls(calls)(col("a"))).where(col("b") > 10)
    assert result.select("x").to_pydict() == {"x": [4, 6]}
    assert sorted(calls) == [2, 3]


def test_calls_in_a_filter_over_expressions_and_over_each_other(df: ps.DataFrame) -> None:
    assert df.where(add(col("a"), 0) > 1).select("a").to_pydict() == {"a": [2, 3]}
    assert df.where((add(col("a") * 2, 0) > 2) & (col("b") < 30)).select("a").to_pydict() == {"a": [2]}
    assert df.select(r=add(add(col("a")), add(col("b")) * 2)).to_pydict() == {"r": [51, 72, 93]}


def test_a_column_replaced_by_a_call_is_read_by_others_as_it_was(df: ps.DataFrame) -> None:
    result = df.with_columns({"a": add(col("a"), 100), "c": add(col("a"), col("b")), "d": col("a")})
    assert result.select("a", "c", "d").to_pydict() == {"a": [101, 102, 103], "c": [11, 22, 33], "d": [1, 2, 3]}


# --- as a Python function ---


def test_without_an_expression_it_just_runs() -> None:
    assert add(1) == 11
    assert add(1, y=2) == 3
    assert list(count_to(2)) == ["2.0", "2.1"]


def test_it_looks_like_the_function_it_decorates() -> None:
    assert (add.__name__, add.__doc__, add.__module__) == ("add", "Add two numbers.", __name__)
    assert repr(add) == "<func add(x: 'int', y: 'int' = 10) -> 'int'>"


def test_it_can_be_pickled() -> None:
    restored = pickle.loads(cloudpickle.dumps(add))
    assert restored(1) == 11
    assert ps.from_pydict({"a": [1]}).select(restored(col("a"))).to_pydict() == {"a": [11]}


# --- decoration ---


def hinted(x: int) -> int:
    return x


@pytest.mark.parametrize(
    ("decorate", "message"),
    [
        (lambda: ps.func(lambda x: x), r"annotate it \(`-> str`\) or give return_dtype"),
        (lambda: ps.func(return_type=int), "func has no option 'return_type'. Did you mean 'return_dtype'"),
        (lambda: ps.func.batch(batchsize=3), "Did you mean 'batch_size'"),
        (lambda: ps.func(3), "func decorates a function; got 3"),
        (lambda: ps.func(Point), "For a class, use cls"),
        (
            lambda: ps.func(max_concurrency=0)(hinted),
            "hinted: concurrency must be a whole number of 1 or more; got 0",
        ),
        (lambda: ps.func(version=2)(hinted), "hinted: version must be a string; got 2"),
        (lambda: ps.func(max_retries="3")(hinted), "hinted: max_retries must be a whole number of 0 or more; got '3'"),
        (lambda: ps.func(gpus=-1)(hinted), "hinted: gpus must be a number of 0 or more; got -1"),
        (lambda: ps.func(cpus="all")(hinted), "hinted: cpus must be a number of 0 or more; got 'all'"),
        (lambda: ps.func(on_error="ignor")(hinted), "Did you mean 'ignore'"),
        (lambda: ps.func(retry_on="ValueError")(hinted), "retry_on takes exception classes; got 'ValueError'"),
        (lambda: ps.func(return_dtype="int46")(hinted), "int46"),
    ],
)
def test_what_cannot_be_decorated_is_refused_at_once(decorate: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        decorate()


def test_a_generator_must_say_what_it_yields() -> None:
    def anything(n: int) -> Iterator:  # type: ignore[type-arg]
        yield n

    with pytest.raises(InvalidArgumentError, match=r"anything: .*Iterator\[str\]"):
        ps.func(anything)


def test_async_functions_in_a_process() -> None:
    """One process has one event loop, on which the calls of a batch wait together."""

    @ps.cls(use_process=True)
    class Meeting:
        def __init__(self) -> None:
            self.all_here = asyncio.Barrier(2)

        async def meet(self, n: int) -> int:
            await self.all_here.wait()
            return os.getpid()

        async def count(self, n: int) -> AsyncIterator[int]:
            for number in range(n):
                yield number

    meeting, df = Meeting(), ps.from_pydict({"n": [0, 2]})
    pids = df.select(meeting.meet(ps.col("n"))).to_pydict()["n"]
    assert len({*pids, os.getpid()}) == 2
    assert df.select(meeting.count(ps.col("n")).alias("v")).to_pydict() == {"v": [None, 0, 1]}


def test_the_version_of_a_function_stands_for_its_code() -> None:
    def using(version: str | None, offset: int) -> bytes:
        helper = ps.func(return_dtype=ps.DataType.int64(), version=version)(lambda x: x + offset)
        return code_key(lambda x: helper(x))

    assert using("1", 1) == using("1", 2)
    assert using("1", 1) != using("2", 1)
    assert using(None, 1) != using(None, 2)
