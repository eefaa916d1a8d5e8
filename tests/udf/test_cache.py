"""``cache=True``: results of functions are kept by what determines them, and calls made before are not made again."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.cache.ledger import FileLedger
from penstock.cache.ledger.open_ledgers import job_ledger
from penstock.errors import InvalidArgumentError
from tests.udf.script import run_script


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """A place where functions write what they are given, from any process; results are kept meanwhile."""
    path = tmp_path / "calls.txt"
    path.touch()
    with ps.config(cache_dir=str(tmp_path / "cache")):
        yield path


def note(path: Path, what: Any) -> None:
    with open(path, "a") as file:
        file.write(f"{what}\n")


def calls(path: Path) -> list[str]:
    """Return what was noted since the last time."""
    found = path.read_text().split()
    path.write_text("")
    return sorted(found)


def doubled(log: Path, scale: int = 2, **options: Any) -> Any:
    @ps.func(cache=True, **options)
    def double(x: int) -> int:
        note(log, x)
        return x * scale

    return double


def column(expr: ps.Expression, values: Any = (1, 2, 3)) -> list[Any]:
    found: list[Any] = ps.from_pydict({"x": list(values)}).select(expr.alias("y")).to_pydict()["y"]
    return found


X = ps.col("x")


def test_a_row_is_computed_once(log: Path) -> None:
    assert column(doubled(log)(X)) == [2, 4, 6]
    assert calls(log) == ["1", "2", "3"]
    assert column(doubled(log)(X), [3, 1, 4, 1]) == [6, 2, 8, 2]
    assert calls(log) == ["4"]


def test_equal_rows_of_a_batch_are_computed_once(log: Path) -> None:
    assert column(doubled(log)(X), [1, 1, 2, 1]) == [2, 2, 4, 2]
    assert calls(log) == ["1", "2"]


def test_other_code_constants_and_types_are_other_results(log: Path) -> None:
    assert column(doubled(log)(X)) == [2, 4, 6]
    calls(log)
    assert column(doubled(log, scale=3)(X)) == [3, 6, 9]
    assert column(doubled(log, return_dtype=ps.DataType.float64())(X)) == [2.0, 4.0, 6.0]
    assert len(calls(log)) == 6
    assert column(doubled(log, max_retries=2, max_concurrency=1)(X)) == [2, 4, 6]
    assert calls(log) == []


def test_constant_and_keyword_arguments_count(log: Path) -> None:
    @ps.func(cache=True)
    def add(x: int, y: int, *, z: int = 0) -> int:
        note(log, f"{x}+{y}+{z}")
        return x + y + z

    assert column(add(X, 10, z=X)) == [12, 14, 16]
    assert column(add(X, 10, z=X)) == [12, 14, 16]
    assert calls(log) == ["1+10+1", "2+10+2", "3+10+3"]
    assert column(add(X, 20, z=X)) == [22, 24, 26]
    assert column(add(10, X, z=X)) == [12, 14, 16]
    assert len(calls(log)) == 6


def test_nulls_texts_and_arrays(log: Path) -> None:
    @ps.func(cache=True, return_dtype=ps.DataType.string())
    def shown(value: Any) -> str | None:
        note(log, "call")
        return None if value is None else str(value)

    for values in ([None, "a", ""], [1.5, None, float("nan")], [b"x", b"", None], [{"a": [1]}, {"a": None}, None]):
        first = column(shown(X), values)
        assert len(calls(log)) in (2, 3)  # null is null, whatever the column
        assert column(shown(X), values) == first
        assert calls(log) == []
    arrays = np.arange(12).reshape(3, 2, 2)
    df = ps.from_numpy(arrays).select(shown(ps.col("data")))
    assert df.to_pydict() == df.to_pydict()
    assert len(calls(log)) == 3


def test_results_of_any_type(log: Path) -> None:
    @ps.func(cache=True, return_dtype=ps.DataType.tensor(ps.DataType.int64(), (2,)))
    def pair(x: int) -> Any:
        note(log, x)
        return np.array([x, x])

    @ps.func(cache=True, return_dtype=ps.DataType.python())
    def any_object(x: int) -> Any:
        note(log, x)
        return {x}

    for function in (pair, any_object):
        first = column(function(X))
        assert len(calls(log)) == 3
        assert repr(column(function(X))) == repr(first)
        assert calls(log) == []


def test_generators_keep_all_they_give(log: Path) -> None:
    @ps.func(cache=True)
    def repeated(x: int) -> Iterator[int]:
        note(log, x)
        yield from [x] * (x - 1)

    assert column(repeated(X)) == [None, 2, 3, 3]
    assert column(repeated(X), [3, 4]) == [3, 3, 4, 4, 4]
    assert calls(log) == ["1", "2", "3", "4"]


def test_async_functions_and_generators(log: Path) -> None:
    @ps.func(cache=True)
    async def double(x: int) -> int:
        note(log, x)
        return x * 2

    @ps.func(cache=True)
    async def repeated(x: int) -> AsyncIterator[int]:
        note(log, x)
        for _ in range(x):
            yield x

    assert column(double(X)) == column(double(X)) == [2, 4, 6]
    assert column(double(X), [3, 4]) == [6, 8]
    assert calls(log) == ["1", "2", "3", "4"]
    assert column(repeated(X)) == column(repeated(X)) == [1, 2, 2, 3, 3, 3]
    assert len(calls(log)) == 3


def test_what_fails_is_not_kept(log: Path) -> None:
    def picky(**options: Any) -> Any:
        @ps.func(cache=True, **options)
        def check(x: int) -> int:
            note(log, x)
            if x == 2:
                raise ValueError("two")
            return x

        return check

    with pytest.raises(ps.errors.UdfError):
        column(picky()(X))
    assert "1" in calls(log)
    df = ps.from_pydict({"x": [1, 2, 2, 3]}).select(picky(on_error="ignore")(X))
    assert df.collect().to_pydict() == {"x": [1, None, None, 3]}
    assert df.errors().count_rows() == 2  # equal rows that fail are two errors
    assert calls(log)[:2] == ["2", "2"]
    assert column(picky(on_error="ignore")(X)) == [1, None, 3]
    assert calls(log) == ["2"]


def test_a_batch_function_is_known_by_its_whole_batch(log: Path) -> None:
    """It may mix rows, as this one does."""

    @ps.func.batch(cache=True, return_dtype=ps.DataType.int64(), batch_size=2)
    def total(x: ps.Series) -> Any:
        note(log, "+".join(map(str, x.to_pylist())))
        return [sum(x.to_pylist())] * len(x)

    assert column(total(X)) == [3, 3, 3]
    assert column(total(X)) == [3, 3, 3]
    assert calls(log) == ["1+2", "3"]
    assert column(total(X), [1, 2, 3, 4]) == [3, 3, 7, 7]
    assert calls(log) == ["3+4"]


def test_batches_of_no_given_size_are_cut_alike(log: Path) -> None:
    @ps.func.batch(cache=True, return_dtype=ps.DataType.int64())
    def count(x: ps.Series) -> Any:
        note(log, len(x))
        return [len(x)] * len(x)

    df = ps.range(1000).select(count(ps.col("id")))
    assert df.to_pydict() == df.to_pydict()
    assert calls(log) == ["232", "256", "256", "256"]


def test_a_batch_in_which_a_row_failed_is_not_kept(log: Path) -> None:
    @ps.func.batch(cache=True, return_dtype=ps.DataType.int64(), on_error="ignore", batch_size=2)
    def check(x: ps.Series) -> Any:
        note(log, len(x))
        if 3 in x.to_pylist():
            raise ValueError("three")
        return x

    assert column(check(X), [1, 2, 3, 4]) == [1, 2, None, 4]
    calls(log)
    assert column(check(X), [1, 2, 3, 4]) == [1, 2, None, 4]
    assert calls(log) == ["1", "1", "2"]


def test_async_batches(log: Path) -> None:
    @ps.func.batch(cache=True, return_dtype=ps.DataType.int64(), batch_size=2)
    async def double(x: ps.Series) -> Any:
        note(log, len(x))
        return x.to_numpy() * 2

    assert column(double(X)) == column(double(X)) == [2, 4, 6]
    assert calls(log) == ["1", "2"]


def scaled_model(log: Path, **options: Any) -> Any:
    @ps.cls(**options)
    class Model:
        def __init__(self, scale: int) -> None:
            self.scale = scale

        def __call__(self, x: int) -> int:
            note(log, x)
            return x * self.scale

        @ps.method(cache=True)
        def kept(self, x: int) -> int:
            note(log, f"kept{x}")
            return x * self.scale

    return Model


def test_methods_are_known_by_class_and_arguments(log: Path) -> None:
    model = scaled_model(log, cache=True)
    assert column(model(2)(X)) == column(scaled_model(log, cache=True)(2)(X)) == [2, 4, 6]
    assert calls(log) == ["1", "2", "3"]
    assert column(model(3)(X)) == [3, 6, 9]
    assert len(calls(log)) == 3
    plain = scaled_model(log)(2)
    assert column(plain.kept(X)) == column(plain.kept(X)) == column(plain(X)) == [2, 4, 6]
    assert calls(log) == ["1", "2", "3", "kept1", "kept2", "kept3"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("verb", ["map", "flat_map", "filter", "map_batches"])
def test_verbs_of_rows_and_batches(verb: str, is_async: bool, log: Path) -> None:
    def work(given: Any) -> Any:
        note(log, "call")
        match verb:
            case "map":
                return {"y": given["x"] * 2, "a": np.ones(2)}
            case "flat_map":
                return ({"y": given["x"]} for _ in range(given["x"]))
            case "filter":
                return given["x"] > 1
            case _:
                return {"y": given["x"] * 2}

    async def work_async(given: Any) -> Any:
        return work(given)

    def run(values: list[int]) -> str:
        df = ps.from_pydict({"x": values})
        return repr(getattr(df, verb)(work_async if is_async else work, cache=True).to_pydict())

    first = run([1, 2, 3])
    num_calls = len(calls(log))
    assert num_calls == (1 if verb == "map_batches" else 3)
    assert run([1, 2, 3]) == first
    assert calls(log) == []
    run([1, 2, 4])
    assert len(calls(log)) == 1


def test_a_batch_size_counts_behind_into_batches(log: Path) -> None:
    def count(batch: Any) -> Any:
        note(log, len(batch["id"]))
        return batch

    ps.range(10).into_batches(10).map_batches(count, cache=True, batch_size=5).collect()
    assert calls(log) == ["5", "5"]


def test_generators_of_batches(log: Path) -> None:
    def halves(batch: Any) -> Iterator[Any]:
        note(log, "call")
        for part in np.array_split(batch["id"], 2):
            yield {"x": part}

    df = ps.range(5).map_batches(halves, cache=True, batch_size=5)
    assert df.to_pydict() == df.to_pydict() == {"x": [0, 1, 2, 3, 4]}
    assert calls(log) == ["call"]


def test_rows_that_a_verb_fails_on_are_not_kept(log: Path) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        note(log, row["x"])
        return {"y": 6 // row["x"]}

    df = ps.from_pydict({"x": [0, 1, 2]}).map(check, cache=True, on_error="ignore")
    assert df.to_pydict() == df.to_pydict() == {"y": [6, 3]}
    assert calls(log) == ["0", "0", "1", "2"]


def test_column_names_count_where_a_function_sees_them(log: Path) -> None:
    def swap(row: dict[str, Any]) -> dict[str, Any]:
        return {"names": ",".join(row)}

    frames = [ps.from_pydict({name: [1]}).map(swap, cache=True) for name in "ab"]
    assert [df.to_pydict() for df in frames] == [{"names": ["a"]}, {"names": ["b"]}]


def test_worker_processes_keep_too(log: Path) -> None:
    for options in ({}, {"use_process": True}):
        assert column(doubled(log, **options)(X)) == [2, 4, 6]
    assert calls(log) == ["1", "2", "3"]


def test_every_runner_keeps(log: Path, runner: str) -> None:
    for _ in range(2):
        assert column(doubled(log)(X)) == [2, 4, 6]
        df = ps.from_pydict({"x": [1, 2]}).map_batches(lambda batch: {"y": batch["x"] + 1}, cache=True)
        assert df.to_pydict() == {"y": [2, 3]}
    assert calls(log) == ["1", "2", "3"]


def test_a_job_keeps_in_its_own_ledger(tmp_path: Path) -> None:
    log = tmp_path / "calls.txt"
    log.touch()
    for options in ({"use_process": True}, {}):
        with job_ledger(tmp_path / "job"):
            assert column(doubled(log, **options)(X)) == [2, 4, 6]
    assert calls(log) == ["1", "2", "3"]


@pytest.mark.parametrize("verb", ["func", "map_batches"])
def test_without_a_place_nothing_runs(verb: str, tmp_path: Path) -> None:
    log = tmp_path / "calls.txt"
    log.touch()
    df = ps.from_pydict({"x": [1]})
    df = df.select(doubled(log)(X)) if verb == "func" else df.map_batches(lambda batch: note(log, 1), cache=True)
    with pytest.raises(InvalidArgumentError, match=r"has cache=True.*cache_dir=.*resume=True"):
        df.collect()
    assert calls(log) == []


@pytest.mark.parametrize("value", ["yes", 1])
def test_what_is_neither_true_nor_false_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="cache must be True or False"):
        ps.func(cache=value, return_dtype=ps.DataType.int64())(lambda x: x)
    with pytest.raises(InvalidArgumentError, match="cache must be True or False"):
        ps.range(1).map(lambda row: row, cache=value)


@pytest.mark.one_machine
def test_what_cannot_be_told_is_said(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    lock = threading.Lock()

    @ps.func(cache=True)
    def locked(x: int) -> int:
        with lock:
            return x

    with caplog.at_level(logging.WARNING, "penstock.udf"):
        assert column(locked(X)) == [1, 2, 3]
    assert "'locked' has cache=True and uses _thread.lock" in caplog.text


@pytest.mark.one_machine
def test_a_result_that_cannot_be_kept_is_computed_again(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(list[int]):
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise TypeError("not for pickle")

    @ps.func(cache=True, return_dtype=ps.DataType.list(ps.DataType.int64()))
    def wrapped(x: int) -> Any:
        note(log, "call")
        return Stubborn([x])

    with caplog.at_level(logging.WARNING, "penstock.udf"):
        for _ in range(2):
            assert column(wrapped(X), [1]) == [[1]]
    assert len(calls(log)) == 2
    assert "cannot be pickled" in caplog.text


SCRIPT = """
import os, sys
import penstock as ps
ps.set_config(cache_dir=os.path.join(os.path.dirname(__file__), "cache"))
WORDS = {"alpha", "beta", "gamma"}
class Word:
    def __init__(self, text): self.text = text
    def __eq__(self, other): return self.text == other.text
@ps.func(cache=True, return_dtype=ps.DataType.python(), use_process=True)
def find(x):
    with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as file:
        file.write(x + " ")
    return Word(x) if x in WORDS else None
found = ps.from_pydict({"x": ["alpha", "omega"]}).select(find(ps.col("x"))).to_pydict()["x"]
assert found == [Word("alpha"), None], found
"""


def test_another_process_finds_what_one_has_kept(tmp_path: Path) -> None:
    """Also results of a class that only the script has, which a worker process was given."""
    for _ in range(2):
        done = run_script(tmp_path, SCRIPT)
        assert done.returncode == 0, done.stderr
        (tmp_path / "elsewhere").rmdir()
    assert sorted((tmp_path / "calls").read_text().split()) == ["alpha", "omega"]


@pytest.mark.one_machine
def test_lookups_are_batched(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look into the ledger for all rows of a task."""
    expr = doubled(log)(ps.col("id"))
    ps.range(1000).select(expr).collect()
    asked = []
    get = FileLedger.get
    monkeypatch.setattr(FileLedger, "get", lambda self, keys: asked.append(len(keys)) or get(self, keys))
    ps.range(1000).select(expr).collect()
    assert sum(asked) == 1000
    assert len(asked) < 50


FACTORS = {"x": 2}


def test_a_global_that_changed_is_computed_again(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(log)

    def scaled(row: dict[str, Any]) -> dict[str, Any]:
        note(Path(path), row["x"])
        return {"y": row["x"] * FACTORS["x"]}

    frame = ps.from_pydict({"x": [1, 2]}).map(scaled, cache=True)
    for _ in range(2):
        assert frame.to_pydict()["y"] == [2, 4]
    assert calls(log) == ["1", "2"]
    monkeypatch.setitem(FACTORS, "x", 3)
    assert frame.to_pydict()["y"] == [3, 6]
