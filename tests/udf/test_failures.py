"""What becomes of rows and batches whose function fails: raise, log, ignore, retry."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import UdfError
from penstock.udf import retry

INT = DataType.int64()


@pytest.fixture(autouse=True)
def _no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.001)


@pytest.fixture
def df() -> ps.DataFrame:
    return ps.from_pydict({"a": [1, 2, 3], "s": ["x", "y", "z"]})


def fail_on_two(a: int) -> int:
    if a == 2:
        raise KeyError("two")
    return a


async def fail_on_two_async(a: int) -> int:
    return fail_on_two(a)


def fail_in_the_middle(a: int) -> Iterator[int]:
    yield a
    yield fail_on_two(a) * 10


def any_two(series: Series) -> list[int]:
    return [fail_on_two(value) for value in series]


# --- raise ---


@pytest.mark.one_machine  # another process sends its traceback as text
def test_the_error_names_function_and_row_and_keeps_the_cause(df: ps.DataFrame) -> None:
    with pytest.raises(UdfError) as caught:
        df.select(ps.func(fail_on_two)(col("a"))).collect()
    assert str(caught.value).startswith("UDF 'fail_on_two' failed on row 1 of the input (a=2): KeyError: 'two'")
    assert 'set on_error="null"' in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert frames[-1].name == "fail_on_two", "the traceback does not reach the user's line"


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda df: df.map_batches(lambda batch: 1 / 0),
            r"map_batches\(<lambda>\) failed on a batch of 3 rows \(from row 0 of the input on\): ZeroDiv",
        ),
        (
            lambda df: df.map(lambda row: {"x": 1 // (row["a"] - 2)}),
            r"map\(<lambda>\) failed on row 1 of the input \(a=2, s='y'\)",
        ),
        (
            lambda df: df.flat_map(lambda row: [{"x": 1 // (row["a"] - 2)}]),
            r"flat_map\(<lambda>\) failed on row 1 of the input \(a=2",
        ),
        (
            lambda df: df.filter(lambda row: 1 // (row["a"] - 2)),
            r"filter\(<lambda>\) failed on row 1 of the input \(a=2",
        ),
        (
            lambda df: df.select(ps.func.batch(return_dtype=INT)(any_two)(col("a"))),
            r"Batch UDF 'any_two' failed on a batch of 3 rows \(from row 0 of the input on\): KeyError: 'two'",
        ),
    ],
)
def test_every_kind_of_function_says_where_it_failed(
    df: ps.DataFrame, run: Callable[[ps.DataFrame], ps.DataFrame], message: str
) -> None:
    with pytest.raises(UdfError, match=message) as caught:
        run(df).collect()
    assert isinstance(caught.value.__cause__, (ZeroDivisionError, KeyError))


def test_a_long_value_is_cut_in_the_message() -> None:
    def fail(text: str) -> int:
        raise ValueError

    df = ps.from_pydict({"text": ["x" * 100_000]})
    with pytest.raises(UdfError) as caught:
        df.select(ps.func(fail)(col("text"))).collect()
    assert len(str(caught.value)) < 1000


# --- log, ignore ---


@pytest.mark.parametrize("function", [fail_on_two, fail_on_two_async])
def test_a_failed_row_is_null(df: ps.DataFrame, function: Callable[..., Any]) -> None:
    assert df.select(ps.func(on_error="ignore")(function)(col("a"))).to_pydict() == {"a": [1, None, 3]}


def test_a_result_that_does_not_fit_is_a_failed_row_too(df: ps.DataFrame) -> None:
    @ps.func(on_error="ignore")
    def sometimes_text(a: int) -> int:
        return "two" if a == 2 else a  # type: ignore[return-value]

    assert df.select(sometimes_text(col("a"))).to_pydict() == {"a": [1, None, 3]}


def test_a_failed_generator_gives_one_null(df: ps.DataFrame) -> None:
    generator = ps.func(on_error="ignore")(fail_in_the_middle)
    assert df.select("a", g=generator(col("a"))).to_pydict() == {"a": [1, 1, 2, 3, 3], "g": [1, 10, None, 3, 30]}


def test_a_failed_batch_is_null(df: ps.DataFrame) -> None:
    batch = ps.func.batch(return_dtype=INT, batch_size=1, on_error="ignore")(any_two)
    assert df.select(batch(col("a"))).to_pydict() == {"a": [1, None, 3]}


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda df: df.map(lambda row: {"x": 6 // (row["a"] - 2)}, on_error="ignore"), {"x": [-6, 6]}),
        (lambda df: df.flat_map(lambda row: [{"x": 6 // (row["a"] - 2)}], on_error="ignore"), {"x": [-6, 6]}),
        (lambda df: df.filter(lambda row: 6 // (row["a"] - 2) != 0, on_error="ignore"), {"a": [1, 3], "s": ["x", "z"]}),
        (
            lambda df: df.map_batches(lambda b: {"x": 6 // (b["a"] - 2 or None)}, batch_size=1, on_error="ignore"),
            {"x": [-6, 6]},
        ),
    ],
)
def test_verbs_that_make_rows_leave_out_what_failed(
    df: ps.DataFrame, run: Callable[[ps.DataFrame], ps.DataFrame], expected: dict[str, list[Any]]
) -> None:
    assert run(df).to_pydict() == expected


async def fail_on_row_two(row: dict[str, Any]) -> dict[str, Any]:
    return {"x": fail_on_two(row["a"])}


def test_async_rows_are_left_out_too(df: ps.DataFrame) -> None:
    assert df.map(fail_on_row_two, on_error="ignore").to_pydict() == {"x": [1, 3]}
    with pytest.raises(UdfError, match=r"map\(fail_on_row_two\) failed on row 1 of the input \(a=2.*KeyError"):
        df.map(fail_on_row_two).collect()


@pytest.mark.one_machine
def test_log_says_what_failed_and_ignore_says_nothing(df: ps.DataFrame, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="penstock"):
        df.select(ps.func(on_error="ignore")(fail_on_two)(col("a"))).collect()
        assert caplog.text == ""
        df.select(ps.func(on_error="log")(fail_on_two)(col("a"))).collect()
        assert "udf fail_on_two: row 1 of the input failed with KeyError: 'two'; its values: {\"a\": 2}" in caplog.text
        df.map(lambda row: {"x": fail_on_two(row["a"])}, on_error="log").collect()
        assert (
            'map <lambda>: row 1 of the input failed with KeyError: \'two\'; its values: {"a": 2, "s": "y"}'
            in caplog.text
        )


# --- retries ---


class Flaky:
    """Fails a number of times for each value, then answers. Attempts are counted in files, for workers anywhere."""

    def __init__(self, folder: Path, num_failures: int, error: type[Exception] = ConnectionError) -> None:
        self._folder = Path(mkdtemp(dir=folder))
        self._num_failures = num_failures
        self._error = error

    def __call__(self, value: Any) -> Any:
        with (self._folder / str(value)).open("a") as file:
            file.write(".")
        if self.attempts[value] <= self._num_failures:
            raise self._error("try again")
        return value

    @property
    def attempts(self) -> dict[int, int]:
        return {int(path.name): path.stat().st_size for path in self._folder.iterdir()}


def test_a_call_is_tried_again_as_often_as_said(df: ps.DataFrame, tmp_path: Path) -> None:
    flaky = Flaky(tmp_path, 2)
    assert df.select(ps.func(return_dtype=INT, max_retries=2)(flaky)(col("a"))).to_pydict() == {"a": [1, 2, 3]}
    assert flaky.attempts == {1: 3, 2: 3, 3: 3}
    with pytest.raises(UdfError, match="ConnectionError: try again"):
        df.select(ps.func(return_dtype=INT, max_retries=1)(Flaky(tmp_path, 2))(col("a"))).collect()


def test_only_the_errors_named_are_tried_again(df: ps.DataFrame, tmp_path: Path) -> None:
    flaky = Flaky(tmp_path, 1, ValueError)
    with pytest.raises(UdfError, match="ValueError"):
        df.limit(1).select(
            ps.func(return_dtype=INT, max_retries=5, retry_on=ConnectionError)(flaky)(col("a"))
        ).collect()
    assert flaky.attempts == {1: 1}
    flaky = Flaky(tmp_path, 1, ConnectionResetError)
    retried = ps.func(return_dtype=INT, max_retries=5, retry_on=[ConnectionError, TimeoutError])(flaky)
    assert df.select(retried(col("a"))).to_pydict() == {"a": [1, 2, 3]}


def test_after_the_last_retry_the_row_is_null_where_errors_are_tolerated(df: ps.DataFrame, tmp_path: Path) -> None:
    flaky = Flaky(tmp_path, 9)
    tolerant = ps.func(return_dtype=INT, max_retries=2, on_error="ignore")(flaky)
    assert df.select(tolerant(col("a"))).to_pydict() == {"a": [None] * 3}
    assert flaky.attempts == {1: 3, 2: 3, 3: 3}


def test_async_functions_generators_batches_and_methods_are_tried_again(df: ps.DataFrame, tmp_path: Path) -> None:
    later, several, batch, method = Flaky(tmp_path, 1), Flaky(tmp_path, 1), Flaky(tmp_path, 1), Flaky(tmp_path, 1)

    @ps.func(max_retries=1)
    async def wait(a: int) -> int:
        return int(later(a))

    @ps.func(max_retries=1)
    def twice(a: int) -> Iterator[int]:
        yield a
        yield several(a)

    @ps.func.batch(return_dtype=INT, max_retries=1)
    def whole(series: Series) -> Series:
        batch(len(series))
        return series

    @ps.cls(max_retries=1)
    class Client:
        def ask(self, a: int) -> int:
            return int(method(a))

    result = df.select(w=wait(col("a")), b=whole(col("a")), m=Client().ask(col("a")), t=twice(col("a")))
    assert result.to_pydict() == {
        "w": [1, 1, 2, 2, 3, 3], "b": [1, 1, 2, 2, 3, 3], "m": [1, 1, 2, 2, 3, 3], "t": [1, 1, 2, 2, 3, 3],
    }  # fmt: skip
    assert [flaky.attempts for flaky in (later, several, method)] == [{1: 2, 2: 2, 3: 2}] * 3


def test_map_batches_and_its_kind_are_tried_again(df: ps.DataFrame, tmp_path: Path) -> None:
    whole, row, parts = Flaky(tmp_path, 1), Flaky(tmp_path, 1), Flaky(tmp_path, 1)

    def give_parts(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"x": [1]}
        yield {"x": [parts(2)]}

    assert df.map_batches(lambda b: whole(len(b)) and b, max_retries=1).count_rows() == 3
    assert df.map(lambda r: row(r["a"]) and r, max_retries=1).count_rows() == 3
    assert df.map_batches(give_parts, max_retries=1).to_pydict() == {"x": [1, 2]}


@pytest.mark.one_machine
def test_a_query_that_is_stopped_does_not_wait_for_a_retry(df: ps.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 3600.0)
    monkeypatch.setattr(retry, "MAX_DELAY_S", 3600.0)
    failed = threading.Event()

    @ps.func(max_retries=1, max_concurrency=2)
    def first_only(a: int) -> int:
        if a == 1:
            assert failed.wait(timeout=60)
            return a
        failed.set()
        raise ConnectionError

    assert df.into_batches(1).where(first_only(col("a")) > 0).limit(1).to_pydict() == {"a": [1], "s": ["x"]}
