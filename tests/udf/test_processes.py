"""``use_process=True``: functions, classes and errors cross to worker processes and back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import UdfError, WorkerDiedError
from tests.udf.script import run_script

pytestmark = pytest.mark.usefixtures("real_workers")


def pid_and(value: int) -> dict[str, int]:
    return {"pid": os.getpid(), "value": value}


PID_AND = DataType.struct({"pid": DataType.int64(), "value": DataType.int64()})


def test_a_closure_runs_elsewhere_with_what_it_closes_over() -> None:
    offset = 5
    away = ps.func(return_dtype=PID_AND, use_process=True)(lambda x: pid_and(x + offset))
    rows = ps.range(3).select(r=away(col("id"))).to_pydict()["r"]
    assert [row["value"] for row in rows] == [5, 6, 7]
    assert os.getpid() not in {row["pid"] for row in rows}


def test_a_decorated_function_and_instance_serve_inside_another_function() -> None:
    @ps.func
    def double(x: int) -> int:
        return x * 2

    @ps.cls
    class Adder:
        def __init__(self, amount: int) -> None:
            self.amount = amount

        def __call__(self, x: int) -> int:
            return x + self.amount

    adder = Adder(100)

    @ps.func(use_process=True)
    def both(x: int) -> int:
        return int(adder(double(x)))

    assert ps.range(3).select(both(col("id"))).to_pydict() == {"id": [100, 102, 104]}


def test_a_class_lives_in_its_processes_and_is_closed_there(tmp_path: Path) -> None:
    log = str(tmp_path / "log")

    @ps.cls(use_process=True, max_concurrency=2)
    class Worker:
        def __init__(self, path: str) -> None:
            self.path = path
            self.note("built")

        def note(self, what: str) -> None:
            with open(self.path, "a") as file:
                file.write(f"{what} {os.getpid()}\n")

        @ps.method.batch(return_dtype=DataType.int64(), batch_size=10)
        def pids(self, xs: Series) -> list[int]:
            return [os.getpid()] * len(xs)

        def close(self) -> None:
            self.note("closed")

    worker = Worker(log)
    pids = set(ps.range(100).select(p=worker.pids(col("id"))).to_pydict()["p"])
    lines = Path(log).read_text().splitlines()
    assert 1 <= len(pids) <= 2
    assert pids <= {int(line.split()[1]) for line in lines if line.startswith("built")}
    assert len([line for line in lines if line.startswith("built")]) <= 2
    assert sorted(line.removeprefix("built ") for line in lines if line.startswith("built")) == sorted(
        line.removeprefix("closed ") for line in lines if line.startswith("closed")
    )
    assert str(os.getpid()) not in {line.split()[1] for line in lines}


def test_map_batches_of_every_kind() -> None:
    class Scale:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
            yield {"x": batch["id"] * self.factor}
            yield {"x": [-1]}

    async def later(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": batch["x"], "pid": [os.getpid()] * len(batch["x"])}

    df = ps.range(2).map_batches(Scale, fn_constructor_args=(3,), use_process=True)
    result = df.map_batches(later, use_process=True).to_pydict()
    assert result["x"] == [0, 3, -1]
    assert os.getpid() not in result["pid"]


def test_an_error_keeps_type_message_cause_and_traceback() -> None:
    @ps.func(use_process=True)
    def fail(x: int) -> int:
        return {"key": 1}["no such key"]

    with pytest.raises(
        UdfError, match=r"UDF 'fail' failed on row 0 of the input \(id=0\): KeyError: 'no such key'"
    ) as caught:
        ps.range(1).select(fail(col("id"))).collect()
    assert isinstance(caught.value.__cause__, KeyError)
    (note,) = caught.value.__notes__
    assert 'return {"key": 1}["no such key"]' in note


def test_rows_that_fail_elsewhere_are_null_too() -> None:
    invert = ps.func(return_dtype=DataType.int64(), use_process=True, on_error="ignore")(lambda x: 6 // x)
    assert ps.range(4).select(invert(col("id"))).to_pydict() == {"id": [None, 6, 3, 2]}


@pytest.mark.one_machine  # Ray does not know the exit code
def test_a_process_that_dies_says_how() -> None:
    with pytest.raises(WorkerDiedError, match="exit code 3"):
        ps.range(1).map_batches(lambda batch: os._exit(3), use_process=True).collect()


SCRIPT = """
import os
import sys
import penstock as ps
from penstock import col
import helpers

OFFSET = 5

@ps.func(use_process=True)
def in_main(x: int) -> int:
    return helpers.plus_one(x) + OFFSET

@ps.cls(use_process=True)
class InMain:
    def __init__(self, factor):
        print("loading the model")
        self.factor = factor
    def __call__(self, x: int) -> int:
        return x * self.factor

class Batches:
    def __call__(self, batch):
        return {"id": batch["id"] + OFFSET}

df = ps.range(3)
print(df.select(in_main(col("id"))).to_pydict())
print(df.select(helpers.decorated(col("id"))).to_pydict())
print(df.select(InMain(3)(col("id"))).map_batches(Batches, use_process=True).to_pydict())
try:
    df.select(helpers.fails(col("id"))).collect()
except ps.errors.UdfError as error:
    print(type(error.__cause__).__name__, str(error).splitlines()[0])
"""

HELPERS = """
import penstock as ps

class OwnError(Exception):
    pass

def plus_one(x):
    return x + 1

@ps.func(use_process=True)
def decorated(x: int) -> int:
    return plus_one(x) * 100

@ps.func(use_process=True)
def fails(x: int) -> int:
    raise OwnError("own words")
"""


def test_a_script_with_its_own_functions_and_modules_needs_no_main_guard(tmp_path: Path) -> None:
    done = run_script(tmp_path, SCRIPT, helpers=HELPERS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "{'id': [6, 7, 8]}",
        "{'id': [100, 200, 300]}",
        "loading the model",
        "{'id': [5, 8, 11]}",
        "OwnError UDF 'fails' failed on row 0 of the input (id=0): OwnError: own words",
    ]
