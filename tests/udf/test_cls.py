"""``cls`` and ``method``: objects that live in the workers."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import InvalidArgumentError, UdfError

BUILT: list[tuple[Any, ...]] = []
CLOSED: list[int] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    BUILT.clear()
    CLOSED.clear()


@ps.cls
class Adder:
    """Adds."""

    FACTOR = 10

    def __init__(self, amount: int, *, note: str = "") -> None:
        BUILT.append((amount, note))
        self.amount = amount

    def __call__(self, x: int) -> int:
        return x + self.amount

    def text(self, x: int, end: str = ".") -> str:
        return f"{x + self.amount}{end}"

    @ps.method(return_dtype=DataType.float64())
    def half(self, x):  # type: ignore[no-untyped-def]
        return (x + self.amount) / 2

    @ps.method.batch(return_dtype=DataType.int64(), batch_size=2)
    def batch(self, xs: Series) -> list[int]:
        return [len(xs)] * len(xs)

    @ps.method(unnest=True, return_dtype=DataType.struct({"low": int, "high": int}))
    def around(self, x: int) -> dict[str, int]:
        return {"low": x - self.amount, "high": x + self.amount}

    @ps.method
    def up_to(self, x: int) -> Iterator[int]:
        yield from range(x)

    async def later(self, x: int) -> int:
        await asyncio.sleep(0)
        return x + self.amount

    def scaled(self, x: int) -> int:
        return x * Adder.FACTOR

    @staticmethod
    def plain(x: int) -> int:
        return x + 1

    def untyped(self, x):  # type: ignore[no-untyped-def]
        return x

    def close(self) -> None:
        CLOSED.append(self.amount)


@pytest.fixture
def df() -> ps.DataFrame:
    return ps.from_pydict({"a": [1, 2, 3]})


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda adder: adder(col("a")), [6, 7, 8]),
        (lambda adder: adder.text(col("a")), ["6.", "7.", "8."]),
        (lambda adder: adder.text(col("a"), end="!"), ["6!", "7!", "8!"]),
        (lambda adder: adder.half(col("a")), [3.0, 3.5, 4.0]),
        (lambda adder: adder.batch(col("a")), [2, 2, 1]),
        (lambda adder: adder.later(col("a")), [6, 7, 8]),
        (lambda adder: adder.scaled(col("a")), [10, 20, 30]),
        (lambda adder: adder.plain(col("a")), [2, 3, 4]),
        (lambda adder: adder(adder(col("a"))), [11, 12, 13]),
    ],
)
def test_call_and_methods(df: ps.DataFrame, call: Callable[[Any], ps.Expression], expected: list[Any]) -> None:
    assert df.select(r=call(Adder(5))).to_pydict() == {"r": expected}


def test_unnest_and_generator_methods(df: ps.DataFrame) -> None:
    adder = Adder(1)
    assert df.select(adder.around(col("a"))).to_pydict() == {"low": [0, 1, 2], "high": [2, 3, 4]}
    assert df.select("a", u=adder.up_to(col("a"))).to_pydict()["u"] == [0, 0, 1, 0, 1, 2]


@pytest.mark.one_machine
def test_it_is_built_once_per_worker_with_its_arguments_and_not_before(df: ps.DataFrame) -> None:
    adder = Adder(5, note="n")
    query = df.into_batches(1).select(adder(col("a")))
    assert BUILT == []
    query.to_arrow()
    assert BUILT == [(5, "n")]
    query.to_arrow()
    assert BUILT == [(5, "n")] * 2  # workers end with their query
    assert CLOSED == [5, 5]


def test_a_schema_is_known_without_building_it(df: ps.DataFrame) -> None:
    query = df.select(t=Adder(1).text(col("a")))
    assert query.schema["t"].dtype == DataType.string()
    assert BUILT == []


@pytest.mark.one_machine
def test_each_instance_has_its_own_arguments(df: ps.DataFrame) -> None:
    one, two = Adder(1), Adder(2)
    assert df.select(x=one(col("a")), y=two(col("a"))).to_pydict() == {"x": [2, 3, 4], "y": [3, 4, 5]}
    assert sorted(BUILT) == [(1, ""), (2, "")]


@pytest.mark.one_machine
def test_equal_calls_of_one_instance_are_computed_once(df: ps.DataFrame) -> None:
    calls: list[int] = []

    @ps.cls
    class Counted:
        def __call__(self, x: int) -> int:
            calls.append(x)
            return x

    counted = Counted()
    assert df.select(x=counted(col("a")), y=counted(col("a")) + 1).to_pydict() == {"x": [1, 2, 3], "y": [2, 3, 4]}
    assert sorted(calls) == [1, 2, 3]


@pytest.mark.one_machine
def test_max_concurrency_is_the_number_of_instances() -> None:
    met = threading.Barrier(3, timeout=60)
    built: list[int] = []

    @ps.cls(max_concurrency=3)
    class Meeting:
        def __init__(self) -> None:
            built.append(1)

        def __call__(self, x: int) -> int:
            met.wait()
            return x

    assert ps.range(6).into_batches(1).select(Meeting()(col("id"))).to_pydict() == {"id": list(range(6))}
    assert len(built) == 3


def test_one_instance_is_never_used_by_two_threads_at_once() -> None:
    @ps.cls(max_concurrency=4)
    class Single:
        def __init__(self) -> None:
            self.busy = threading.Lock()

        def __call__(self, x: int) -> int:
            assert self.busy.acquire(blocking=False), "two threads at once"
            self.busy.release()
            return x

    assert ps.range(2000).into_batches(10).select(Single()(col("id"))).count_rows() == 2000


def test_options_of_a_method_win_over_those_of_the_class(df: ps.DataFrame) -> None:
    @ps.cls(on_error="ignore")
    class Fails:
        def quietly(self, x: int) -> int:
            raise ValueError("quiet")

        @ps.method(on_error="raise")
        def loudly(self, x: int) -> int:
            raise ValueError("loud")

    assert df.select(r=Fails().quietly(col("a"))).to_pydict() == {"r": [None] * 3}
    with pytest.raises(UdfError, match=r"UDF 'Fails\.loudly' failed on row 0 of the input \(a=1\): ValueError: loud"):
        df.select(r=Fails().loudly(col("a"))).collect()


def test_an_init_that_fails_is_told_with_the_class_and_the_cause(df: ps.DataFrame) -> None:
    @ps.cls
    class NoModel:
        def __init__(self) -> None:
            raise FileNotFoundError("model.pt")

        def __call__(self, x: int) -> int:
            return x

    with pytest.raises(
        UdfError, match=r"NoModel\(\) failed when a worker built .*FileNotFoundError: model.pt"
    ) as caught:
        df.select(NoModel()(col("a"))).collect()
    assert isinstance(caught.value.__cause__, FileNotFoundError)


@pytest.mark.one_machine
def test_it_is_closed_after_an_error(df: ps.DataFrame) -> None:
    with pytest.raises(UdfError):
        df.select(Adder(7).text(col("a"), end=col("a"))).select(r=Adder("x")(col("a").cast("int64"))).collect()
    assert set(CLOSED) <= {7, "x"}
    assert len(CLOSED) == len(BUILT)


def test_an_async_close_is_awaited(df: ps.DataFrame, tmp_path: Path) -> None:
    closed = tmp_path / "closed"

    @ps.cls
    class Client:
        async def __call__(self, x: int) -> int:
            return x

        async def close(self) -> None:
            await asyncio.sleep(0)
            with closed.open("a") as file:
                file.write("once")

    df.select(Client()(col("a"))).collect()
    assert closed.read_text() == "once"


def test_called_without_an_expression_it_runs_here_on_one_instance() -> None:
    adder = Adder(5)
    assert (adder(1), adder.text(2), adder.half(3)) == (6, "7.", 4.0)
    assert BUILT == [(5, "")]


def test_it_looks_like_the_class_it_decorates() -> None:
    assert (Adder.__name__, Adder.__doc__, Adder.FACTOR) == ("Adder", "Adds.", 10)
    assert repr(Adder) == "<cls Adder>"
    assert repr(Adder(1, note="n").text) == "<method text of <cls Adder(1, note='n')>>"


def test_it_can_be_derived_from(df: ps.DataFrame) -> None:
    @ps.cls
    class Doubler(Adder):
        def __call__(self, x: int) -> int:
            return super().__call__(x) * 2

    assert df.select(Doubler(1)(col("a"))).to_pydict() == {"a": [4, 6, 8]}


def test_instances_and_methods_can_be_pickled() -> None:
    adder, text = pickle.loads(cloudpickle.dumps((Adder(5), Adder(5).text)))
    assert adder(1) == 6
    assert text(1) == "6."


@pytest.mark.parametrize(
    ("mistake", "error", "message"),
    [
        (
            lambda: Adder(),
            InvalidArgumentError,
            r"Adder: missing a required argument: 'amount'; it is defined as Adder\(",
        ),
        (lambda: Adder(1, not_e="x"), InvalidArgumentError, "unexpected keyword argument 'not_e'"),
        (lambda: Adder(1)(col("a"), 2), InvalidArgumentError, "Adder: too many positional arguments"),
        (lambda: Adder(1).plain(col("a"), 2), InvalidArgumentError, "Adder.plain: too many positional arguments"),
        (lambda: Adder(1).txt(col("a")), AttributeError, "Adder has no method 'txt'; it has: .* Did you mean 'text'"),
        (lambda: Adder(1).amount, AttributeError, "Attributes that __init__ sets exist only in workers"),
        (
            lambda: Adder(1).untyped(col("a")),
            InvalidArgumentError,
            "Adder.untyped: the type of its results is not known",
        ),
        (lambda: ps.cls(gpu=1), InvalidArgumentError, "cls has no option 'gpu'. Did you mean 'gpus'"),
        (lambda: ps.cls(max_concurrency=0)(Adder._wrapped), InvalidArgumentError, "concurrency must be"),
        (lambda: ps.cls(len), InvalidArgumentError, "cls decorates a class; .* For a function, use func"),
        (lambda: ps.method(batch_size=2), InvalidArgumentError, "method has no option 'batch_size'"),
        (lambda: ps.method.batch(return_type=int), InvalidArgumentError, "Did you mean 'return_dtype'"),
    ],
)
def test_mistakes(mistake: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mistake()


def test_a_class_without_call_cannot_be_called() -> None:
    @ps.cls
    class Named:
        def run(self, x: int) -> int:
            return x

    with pytest.raises(AttributeError, match="Named has no method '__call__'; it has: run"):
        Named()(col("a"))
