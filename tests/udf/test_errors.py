"""Rows that fail and are tolerated are recorded: none is lost without a trace."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import InvalidArgumentError, TooManyErrorsError, UdfError
from penstock.udf import retry
from penstock.udf.failures import as_json

INT = DataType.int64()


@pytest.fixture(autouse=True)
def _no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.001)


def odd_only(a: int) -> int:
    if a % 2 == 0:
        raise ValueError(f"{a} is even")
    return a * 10


async def odd_only_async(a: int) -> int:
    await asyncio.sleep(0)
    return odd_only(a)


def odd_only_twice(a: int) -> Iterator[int]:
    yield a
    yield odd_only(a)


def all_odd(series: Series) -> list[int]:
    return [odd_only(value) for value in series]


async def all_odd_async(series: Series) -> list[int]:
    return all_odd(series)


def odd_row(row: dict[str, Any]) -> dict[str, Any]:
    return {"x": odd_only(row.pop("a"))}  # what is recorded is what came, not what is left of it


async def odd_row_async(row: dict[str, Any]) -> dict[str, Any]:
    return odd_row(row)


def odd_batch(batch: dict[str, Any]) -> dict[str, Any]:
    return {"x": [odd_only(int(a)) for a in batch["a"]]}


def odd_batch_in_parts(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield odd_batch(batch)


def numbers(num: int = 6) -> ps.DataFrame:
    return ps.from_pydict({"a": list(range(num))})


def recorded(df: ps.DataFrame, name: str = "a") -> list[Any]:
    """Return the values that failed, in order."""
    return sorted(json.loads(text)[name] for text in df.errors().to_pydict()["input"])


def test_a_record_says_all_there_is_to_know() -> None:
    df = numbers(3).with_column("x", ps.func(on_error="ignore")(odd_only)(col("a"))).limit(1).collect()
    (error,) = df.errors().to_pylist()
    trace = error.pop("traceback")
    assert error == {
        "operator": "odd_only",
        "input": '{"a": 0}',
        "error_type": "ValueError",
        "message": "0 is even",
        "row": 0,
        "source": "the input",
    }
    assert trace.startswith("Traceback (most recent call last):")
    assert 'raise ValueError(f"{a} is even")' in trace
    assert trace.endswith("ValueError: 0 is even\n")
    assert "penstock/udf" not in trace


@pytest.mark.parametrize(
    ("function", "is_batch", "use_process", "on_error"),
    [
        (odd_only, False, False, "log"),
        (odd_only, False, True, "ignore"),
        (odd_only_async, False, None, "ignore"),
        (all_odd, True, False, "ignore"),
        (all_odd, True, True, "log"),
        (all_odd_async, True, None, "log"),
    ],
)
def test_each_null_is_recorded(
    function: Callable[..., Any], is_batch: bool, use_process: bool | None, on_error: Any
) -> None:
    decorator = ps.func.batch if is_batch else ps.func
    decorated = decorator(return_dtype=INT, use_process=use_process, on_error=on_error)(function)
    df = numbers().select("a", x=decorated(col("a")))
    assert df.to_pydict()["x"] == [None, 10, None, 30, None, 50]
    assert recorded(df) == [0, 2, 4]
    assert set(df.errors().to_pydict()["operator"]) == {function.__name__}


def test_a_generator_that_fails_is_recorded_once() -> None:
    df = numbers(3).select(x=ps.func(on_error="ignore")(odd_only_twice)(col("a")))
    assert df.to_pydict() == {"x": [None, 1, 10, None]}
    assert recorded(df) == [0, 2]


@pytest.mark.parametrize("is_generator", [False, True])
def test_a_result_that_does_not_fit_is_recorded_with_its_row(is_generator: bool) -> None:
    def text_for_two(a: int) -> Any:
        return "two" if a == 2 else a

    def several(a: int) -> Iterator[Any]:
        yield from (a, text_for_two(a))

    decorated = ps.func(return_dtype=INT, on_error="ignore")(several if is_generator else text_for_two)
    df = numbers(4).select(x=decorated(col("a"))).collect()
    assert df.to_pydict()["x"].count(None) == 1
    assert recorded(df) == [2]
    assert df.errors().to_pydict()["error_type"] == ["TypeMismatchError"]


@pytest.mark.parametrize(
    ("verb", "function", "use_process"),
    [
        ("map", odd_row, False),
        ("map", odd_row_async, True),
        ("flat_map", lambda row: [odd_row(row)], False),
        ("map_batches", odd_batch, False),
        ("map_batches", odd_batch_in_parts, True),
    ],
)
def test_each_row_left_out_is_recorded(verb: str, function: Callable[..., Any], use_process: bool) -> None:
    df = getattr(numbers(), verb)(function, on_error="ignore", use_process=use_process)
    assert df.to_pydict() == {"x": [10, 30, 50]}
    assert recorded(df) == [0, 2, 4]


def test_a_row_that_fails_in_the_hands_of_another_batch_is_recorded() -> None:
    """Calls are made by whoever is free, which may be a caller that an earlier batch started."""

    @ps.func(on_error="ignore", max_retries=1)  # the second try comes when the earlier batches are through
    async def last_fails(a: int) -> int:
        return odd_only(a) if a == 8 else a

    df = numbers(9).into_batches(2).select("a", x=last_fails(col("a"))).collect()
    assert recorded(df) == [8]


def test_a_filter_records_what_it_could_not_judge() -> None:
    df = numbers().filter(lambda row: odd_only(row["a"]) > 10, on_error="ignore")
    assert df.to_pydict() == {"a": [3, 5]}
    assert recorded(df) == [0, 2, 4]


def test_a_row_that_kills_its_worker_is_recorded() -> None:
    @ps.func(on_error="ignore", use_process=True, max_concurrency=1)
    def deadly(a: int) -> int:
        if a == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return odd_only(a)

    df = numbers(4).select("a", x=deadly(col("a")))
    assert df.to_pydict()["x"] == [None, 10, None, 30]
    kinds = {json.loads(e["input"])["a"]: e["error_type"] for e in df.errors().to_pylist()}
    assert kinds == {0: "ValueError", 2: "WorkerDiedError"}
    assert df.errors().count_rows() == 2


def test_two_arguments_of_one_name_are_both_recorded() -> None:
    fail = ps.func(lambda a, b: 1 // 0, return_dtype=INT, on_error="ignore")
    df = numbers(1).select(fail(col("a"), col("a") + 7)).collect()
    assert [json.loads(text) for text in df.errors().to_pydict()["input"]] == [{"a": 0, "a (2)": 7}]


def test_any_value_can_be_recorded() -> None:
    import datetime

    import numpy as np

    values = {
        "nested": {"list": [1, (2.5, None)]},
        "inf": float("inf"),
        "array": np.array([[1, 2]]),
        "scalar": np.float32(0.5),
        "when": datetime.datetime(2024, 1, 2),
        "image": b"x" * 100_000,
        "large": np.zeros(100_000),
        "surrogate": "\ud800",
        "object": object,
    }
    read = json.loads(as_json(values))
    assert read["nested"] == {"list": [1, [2.5, None]]}
    assert (read["inf"], read["array"], read["scalar"]) == (None, [[1, 2]], 0.5)
    assert read["when"] == "2024-01-02T00:00:00"
    assert read["image"] == "<100000 bytes>"
    assert read["large"] == "<array of float64, shape (100000,)>"
    assert read["surrogate"] == "\\ud800"


def test_every_runner_records_rows(runner: str) -> None:
    tolerant = ps.func(on_error="ignore")
    for df in (
        numbers().select("a", x=tolerant(odd_only)(col("a"))),
        numbers().select("a", x=tolerant(odd_only_async)(col("a"))),
        numbers().map(odd_row, on_error="ignore"),
        numbers().into_batches(2).map_batches(odd_batch_in_parts, on_error="ignore"),
    ):
        assert [x for x in df.to_pydict()["x"] if x is not None] == [10, 30, 50]
        assert recorded(df) == [0, 2, 4]
    with pytest.raises(TooManyErrorsError):
        numbers().map(odd_row, on_error="ignore", max_errors=1).collect()


# --- errors() ---


def test_errors_are_those_of_the_last_run() -> None:
    is_well = [False]

    @ps.func(on_error="ignore")
    def sometimes(a: int) -> int:
        return a if is_well[0] else odd_only(a)

    df = numbers().select(a=sometimes(col("a")))
    names = ("operator", "input", "error_type", "message", "traceback", "row", "source")
    assert df.errors().to_pydict() == {name: [] for name in names}
    df.to_pydict()
    assert recorded(df) == [0, 2, 4]
    assert "(3 rows)" in repr(df.errors())
    is_well[0] = True
    df.to_pydict()
    assert recorded(df) == []


@pytest.mark.parametrize(
    "run",
    [
        lambda df: df.to_arrow(),
        lambda df: df.to_pylist(),
        lambda df: df.take(6),
        lambda df: df.take_batch(6),
        lambda df: df.show(6),
        lambda df: list(df.iter_batches(2)),
        lambda df: list(df),
        lambda df: df.collect(),
        lambda df: (df.collect(), df.show(), df.to_pydict(), df.count_rows()),
    ],
)
def test_every_way_to_run_a_frame_is_a_run_of_it(run: Callable[[ps.DataFrame], Any]) -> None:
    df = numbers().map(odd_row, on_error="ignore")
    run(df)
    assert recorded(df) == [0, 2, 4]


def test_errors_of_several_functions_come_together() -> None:
    tolerant = ps.func(on_error="ignore")
    df = numbers(3).select(x=tolerant(odd_only)(col("a")), y=tolerant(odd_only_async)(col("a"))).collect()
    names = df.errors().to_pydict()["operator"]
    assert sorted(names) == ["odd_only"] * 2 + ["odd_only_async"] * 2


def test_every_account_of_a_run_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    df = numbers().map(odd_row, on_error="ignore")
    assert str(df.stats()) == "No query has run."
    df.explain(analyze=True)
    assert "; 3 rows failed, see errors()" in capsys.readouterr().out
    (line,) = [line for line in str(df.stats()).splitlines() if line.startswith("map")]
    assert line.split()[2:4] == ["3", "3"], df.stats()


# --- writes ---


def test_a_write_leaves_the_errors_beside_the_rows(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    df = numbers().map(odd_row, on_error="ignore")
    written = df.write_parquet(out)
    assert recorded(written) == [0, 2, 4] == recorded(df)
    assert sum(written.to_pydict()["rows"]) == 3
    assert ps.read_parquet(out).to_pydict() == {"x": [10, 30, 50]}
    left = ps.read_parquet(out + "/_errors")
    assert left.to_pylist() == written.errors().to_pylist()
    with pytest.raises(FileExistsError):
        df.write_parquet(out)
    df.write_parquet(out, mode="append")
    assert ps.read_parquet(out + "/_errors").count_rows() == 6
    df.write_parquet(out, mode="overwrite")
    assert ps.read_parquet(out + "/_errors").count_rows() == 3
    numbers().write_parquet(out, mode="overwrite")
    assert not os.path.exists(out + "/_errors")


@pytest.mark.parametrize("verb", ["write_csv", "write_json"])
def test_other_formats_leave_them_as_parquet_too(tmp_path: Path, verb: str) -> None:
    out = str(tmp_path)
    getattr(numbers().map(odd_row, on_error="ignore"), verb)(out)
    assert ps.read_parquet(out + "/_errors").count_rows() == 3


def test_a_write_without_errors_leaves_no_folder_for_them(tmp_path: Path) -> None:
    numbers().write_parquet(str(tmp_path))
    assert not (tmp_path / "_errors").exists()


def test_a_write_that_fails_leaves_no_errors(tmp_path: Path) -> None:
    with pytest.raises(TooManyErrorsError):
        numbers().map(odd_row, on_error="ignore", max_errors=1).write_parquet(str(tmp_path / "out"))
    assert not list((tmp_path / "out").rglob("*"))
    numbers().write_parquet(str(tmp_path / "out"))  # an empty folder is no obstacle


# --- max_errors ---


def test_more_errors_than_a_count_end_the_query() -> None:
    assert numbers().map(odd_row, on_error="ignore", max_errors=3).count_rows() == 3
    with pytest.raises(TooManyErrorsError, match=r"UDF 'odd_row' failed on 3 of 6 rows.*max_errors=2.*first: ValueErr"):
        numbers().map(odd_row, on_error="ignore", max_errors=2).collect()
    with pytest.raises(UdfError):
        numbers().select(ps.func(on_error="log", max_errors=0)(odd_only)(col("a"))).collect()


def test_more_errors_than_a_fraction_end_the_query() -> None:
    def run(num_rows: int, max_errors: float) -> None:
        numbers(num_rows).select(ps.func(on_error="ignore", max_errors=max_errors)(odd_only)(col("a"))).collect()

    run(200, 0.6)
    run(50, 0.6)
    with pytest.raises(TooManyErrorsError, match="25 of 50"):
        run(50, 0.4)
    with pytest.raises(TooManyErrorsError, match=r"max_errors=0\.4"):
        run(200, 0.4)


def test_a_fraction_is_judged_at_the_end_too() -> None:
    """The errors come before there are rows enough to tell, and none after."""
    early = ps.func(lambda a: odd_only(0 if a < 50 else 1), return_dtype=INT, on_error="ignore", max_errors=0.1)
    df = numbers(120).into_batches(10).select(early(col("a")))
    with pytest.raises(TooManyErrorsError, match="50 of "):
        df.collect()


@pytest.mark.parametrize("max_errors", [-1, 1.0, 1.5, 0.0, True, "many"])
def test_a_limit_that_makes_no_sense_is_refused(max_errors: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="max_errors is a number of rows, or a fraction"):
        ps.func(on_error="log", max_errors=max_errors)(odd_only)


def test_a_limit_needs_errors_to_be_tolerated() -> None:
    with pytest.raises(InvalidArgumentError, match='needs on_error="null" or "log"'):
        numbers().map(odd_row, max_errors=1)


def test_a_method_has_the_limit_of_its_class() -> None:
    @ps.cls(on_error="ignore", max_errors=1)
    class Model:
        def __call__(self, a: int) -> int:
            return odd_only(a)

    with pytest.raises(TooManyErrorsError, match="'Model' failed on"):
        numbers().select(Model()(col("a"))).collect()


# --- RetryAfterError, timeout ---


@pytest.mark.one_machine
@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_is_made_again_when_it_asks_for_it(is_async: bool) -> None:
    times: list[float] = []

    def busy_at_first(a: int) -> int:
        times.append(time.monotonic())
        if len(times) == 1:
            raise ps.RetryAfterError(0.2, "429")
        return a

    async def busy_async(a: int) -> int:
        return busy_at_first(a)

    function = ps.func(max_retries=1, retry_on=KeyError)(busy_async if is_async else busy_at_first)
    assert numbers(1).select(function(col("a"))).to_pydict() == {"a": [0]}
    assert times[1] - times[0] >= 0.19  # the clock of an event loop is read once a turn


def test_a_call_that_always_asks_for_more_time_fails() -> None:
    def busy(a: int) -> int:
        raise ps.RetryAfterError(0, "429")

    with pytest.raises(UdfError, match="RetryAfterError: asked to be called again after 0 s: 429"):
        numbers(1).select(ps.func(max_retries=2)(busy)(col("a"))).collect()


async def hang_on_two_async(a: int) -> int:
    await asyncio.sleep(60 if a == 2 else 0)
    return a


def hang_on_two(a: int) -> int:
    time.sleep(60 if a == 2 else 0)
    return a


@pytest.mark.parametrize(("function", "use_process"), [(hang_on_two, True), (hang_on_two_async, None)])
def test_a_call_that_takes_too_long_is_an_error(function: Callable[..., Any], use_process: bool | None) -> None:
    decorated = ps.func(timeout=4, on_error="ignore", use_process=use_process)(function)
    df = numbers(4).select(decorated(col("a")))
    assert df.to_pydict() == {"a": [0, 1, None, 3]}
    (error,) = df.errors().to_pylist()
    assert error["error_type"] == "TimeoutError"
    assert error["message"] == "no result within 4 s, which is the function's timeout"


def test_a_timeout_is_refused_where_it_could_not_be_kept() -> None:
    with pytest.raises(InvalidArgumentError, match="use_process=True"):
        ps.func(timeout=1)(odd_only)
    with pytest.raises(InvalidArgumentError, match="use_process=True"):
        numbers().map(odd_row, timeout=1)
    with pytest.raises(InvalidArgumentError, match="timeout must be"):
        ps.func(timeout=0)(odd_only_async)
