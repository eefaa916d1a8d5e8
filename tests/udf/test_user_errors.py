"""The error of a query is also an instance of the class that the user's function raised."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import QueryCancelledError, UdfError
from penstock.udf.user_errors import udf_error

INT = DataType.int64()


class OddError(Exception):
    """Cannot be pickled: pickle calls the constructor with ``args``."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.detail = detail
        self.callback = lambda: code

    def __str__(self) -> str:
        return f"{self.detail} ({self.code})"


class FinalError(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("no subclasses")


def fails(make: Callable[[], BaseException]) -> Callable[[Any], Any]:
    def raise_made(value: Any) -> Any:
        raise make()

    return raise_made


def raised_by(df: ps.DataFrame) -> UdfError:
    with pytest.raises(UdfError) as caught:
        df.collect()
    assert "failed" in str(caught.value)
    return caught.value


def in_rows(function: Callable[[Any], Any], **options: Any) -> ps.DataFrame:
    return ps.range(3).select(ps.func(function, return_dtype=INT, **options)(col("id")))


def in_async_rows(function: Callable[[Any], Any]) -> ps.DataFrame:
    async def call(value: int) -> int:
        result: int = function(value)
        return result

    return ps.range(3).select(ps.func(call)(col("id")))


def in_batches(function: Callable[[Any], Any], **options: Any) -> ps.DataFrame:
    def call(values: Series) -> Any:
        return function(values)

    return ps.range(3).select(ps.func.batch(return_dtype=INT, **options)(call)(col("id")))


def in_methods(function: Callable[[Any], Any]) -> ps.DataFrame:
    @ps.cls
    class Model:
        def __call__(self, value: int) -> int:
            result: int = function(value)
            return result

    return ps.range(3).select(Model()(col("id")))


def in_constructors(function: Callable[[Any], Any]) -> ps.DataFrame:
    class Model:
        def __init__(self) -> None:
            function(1)

        def __call__(self, batch: Any) -> Any:
            return batch

    return ps.range(3).map_batches(Model)


RUNS: dict[str, Callable[[Callable[[Any], Any]], ps.DataFrame]] = {
    "rows": in_rows,
    "async rows": in_async_rows,
    "batches": in_batches,
    "methods": in_methods,
    "constructors": in_constructors,
    "map": lambda function: ps.range(3).map(function),
    "map_batches": lambda function: ps.range(3).map_batches(function),
    "rows in processes": lambda function: in_rows(function, use_process=True),
    "batches in processes": lambda function: in_batches(function, use_process=True),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_the_error_is_one_of_the_class_of_the_user(run: Callable[[Callable[[Any], Any]], ps.DataFrame]) -> None:
    with pytest.raises(KeyError) as caught:
        run(fails(lambda: KeyError("k"))).collect()
    assert isinstance(caught.value, UdfError)
    assert "KeyError: 'k'" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


ERRORS: list[Callable[[], Exception]] = [
    lambda: OddError(7, detail="why"),
    lambda: FileNotFoundError(2, "No such file", "x.txt"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    lambda: json.JSONDecodeError("bad", "text", 3),
    lambda: ExceptionGroup("several", [KeyError("a"), ValueError("b")]),
    lambda: ps.errors.ColumnNotFoundError("a", ["b"]),
]
ATTRIBUTES = ("args", "code", "detail", "errno", "filename", "object", "start", "pos", "message", "column")


@pytest.mark.one_machine
@pytest.mark.parametrize("make", ERRORS, ids=lambda make: type(make()).__name__)
def test_odd_exceptions_keep_their_class_and_attributes(make: Callable[[], Exception]) -> None:
    error, found = make(), raised_by(in_rows(fails(make)))
    for each in (found, found.__cause__):
        assert isinstance(each, type(error))
        for name in ATTRIBUTES:
            if hasattr(error, name) and not isinstance(error, ExceptionGroup):
                assert getattr(each, name) == getattr(error, name)


@pytest.mark.parametrize("make", ERRORS, ids=lambda make: type(make()).__name__)
def test_an_error_of_another_process_keeps_class_message_and_traceback(make: Callable[[], Exception]) -> None:
    error, found = make(), raised_by(in_rows(fails(make), use_process=True))
    for each in (found, pickle.loads(pickle.dumps(found))):
        assert isinstance(each, UdfError if isinstance(error, ExceptionGroup) else type(error))
        assert str(each) == str(found)
    assert str(error).splitlines()[0] in str(found)
    assert "in raise_made" in "".join(found.__notes__)


@pytest.mark.one_machine
def test_a_group_can_be_split_by_class() -> None:
    seen = list[BaseException]()
    try:
        in_rows(fails(ERRORS[4])).collect()
    except* KeyError as group:
        seen += group.exceptions
    except* ValueError as group:
        seen += group.exceptions
    assert [(type(each), str(each)) for each in seen] == [(KeyError, "'a'"), (ValueError, "b")]


@pytest.mark.parametrize("error", [FinalError(), SystemExit(3), StopIteration(), QueryCancelledError("inner")])
def test_classes_that_cannot_be_combined_give_a_plain_error(error: BaseException) -> None:
    assert type(udf_error("failed", error)) is UdfError


def test_the_error_of_a_query_in_a_function_keeps_its_class() -> None:
    found = raised_by(in_rows(lambda value: in_rows(fails(lambda: KeyError(value))).collect()))
    assert isinstance(found, KeyError)


def test_every_runner_keeps_the_class(runner: str) -> None:
    for run in (in_rows, in_async_rows, in_batches):
        assert isinstance(raised_by(run(fails(ERRORS[0]))), OddError)
