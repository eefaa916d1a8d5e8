"""The objects behind ``cls``: one for each worker, whichever of their methods a query calls."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import UdfError


class Note:
    """Lines that instances, wherever they are, append to one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, what: str) -> None:
        with open(self.path, "a") as file:
            file.write(f"{what} {os.getpid()}\n")

    def count(self, what: str) -> int:
        return sum(line.startswith(what) for line in self.path.read_text().splitlines())


@pytest.fixture
def note(tmp_path: Path) -> Note:
    path = tmp_path / "notes"
    path.touch()
    return Note(path)


class Model:
    """Two methods and a counter of its own, which two threads at once would get wrong."""

    def __init__(self, note: Note) -> None:
        self.note = note
        self.is_busy = False
        note.add("built")

    def plus(self, x: int) -> int:
        assert not self.is_busy
        self.is_busy = True
        threading.Event().wait(0.0001)
        self.is_busy = False
        return x + 1

    @ps.method.batch(return_dtype=DataType.int64(), batch_size=10)
    def times(self, x: Series) -> list[int]:
        return [self.plus(value) * 2 for value in x.to_pylist()]

    def count(self, x: int) -> Iterator[int]:
        yield from itertools.count(x)

    def close(self) -> None:
        self.note.add("closed")


def both_methods(model: object) -> dict[str, list[object]]:
    df = ps.range(40).with_column("a", model.plus(col("id"))).with_column("b", model.times(col("id")))  # type: ignore[attr-defined]
    return df.to_pydict()


EXPECTED = {"id": list(range(40)), "a": [x + 1 for x in range(40)], "b": [(x + 1) * 2 for x in range(40)]}


@pytest.mark.parametrize("use_process", [False, None, True])
def test_methods_share_one_instance(note: Note, use_process: bool | None) -> None:
    assert both_methods(ps.cls(Model, use_process=use_process, max_concurrency=1)(note)) == EXPECTED
    assert note.count("built") == 1
    assert note.count("closed") == 1


@pytest.mark.parametrize("use_process", [False, True])
def test_one_method_on_two_columns_shares_it_too(note: Note, use_process: bool) -> None:
    model = ps.cls(Model, use_process=use_process, max_concurrency=1)(note)
    df = ps.range(40).with_columns({"a": model.plus(col("id")), "b": model.plus(col("id") * 2)})
    assert df.to_pydict()["b"] == [2 * x + 1 for x in range(40)]
    assert note.count("built") == 1


@pytest.mark.parametrize("use_process", [False, True])
def test_each_worker_has_one(note: Note, use_process: bool) -> None:
    both_methods(ps.cls(Model, use_process=use_process, max_concurrency=2)(note))
    assert 1 <= note.count("built") <= 2
    assert note.count("closed") == note.count("built")


def test_two_objects_are_two(note: Note) -> None:
    model = ps.cls(Model)
    df = ps.range(4).with_column("a", model(note).plus(col("id"))).with_column("b", model(note).plus(col("id")))
    df.collect()
    assert note.count("built") == 2


def test_each_query_builds_its_own(note: Note) -> None:
    model = ps.cls(Model, max_concurrency=1)(note)
    both_methods(model)
    both_methods(model)
    assert note.count("built") == note.count("closed") == 2


@pytest.mark.one_machine  # the cluster of these tests has no GPU
def test_methods_share_a_device(note: Note, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert both_methods(ps.cls(Model, gpus=1)(note)) == EXPECTED
    assert note.count("built") == 1


def test_a_limit_between_two_methods_leaves_the_second_its_worker(note: Note) -> None:
    model = ps.cls(Model, use_process=True)(note)
    df = ps.range(1000).with_column("a", model.plus(col("id"))).limit(25).with_column("b", model.times(col("id")))
    assert df.to_pydict()["b"] == EXPECTED["b"][:25]


@pytest.mark.parametrize("use_process", [False, True])
def test_an_endless_generator_leaves_the_other_method_its_turns(note: Note, use_process: bool) -> None:
    model = ps.cls(Model, use_process=use_process, max_concurrency=1)(note)
    df = ps.range(1).select(model.count(col("id")).alias("n")).with_column("a", model.plus(col("n"))).limit(500)
    assert df.to_pydict() == {"n": list(range(500)), "a": list(range(1, 501))}
    assert note.count("built") == 1


def test_a_method_that_starts_after_the_other_has_ended_finds_its_instance(note: Note) -> None:
    model = ps.cls(Model, use_process=True, max_concurrency=1)(note)
    df = ps.range(40).with_column("a", model.plus(col("id"))).sort("a").with_column("b", model.times(col("id")))
    assert df.to_pydict() == EXPECTED
    assert note.count("built") == note.count("closed") == 1


def test_a_death_in_one_method_costs_the_other_nothing(note: Note, tmp_path: Path) -> None:
    class Fragile(Model):
        def fragile(self, x: int) -> int:
            marker = tmp_path / "died"
            if x == 20 and not marker.exists():
                marker.touch()
                os._exit(1)
            return -x

    model = ps.cls(Fragile, use_process=True, max_concurrency=1)(note)
    df = ps.range(40).with_column("a", model.fragile(col("id"))).with_column("b", model.times(col("id")))
    assert df.to_pydict() == {"id": list(range(40)), "a": [-x for x in range(40)], "b": EXPECTED["b"]}
    assert note.count("built") == 2


def test_async_methods_share_a_loop(note: Note) -> None:
    @ps.cls
    class Client:
        def __init__(self) -> None:
            note.add("built")
            self.loop = asyncio.get_running_loop()

        async def one(self, x: int) -> bool:
            await asyncio.sleep(0)
            return self.loop is asyncio.get_running_loop()

        async def two(self, x: int) -> bool:
            return self.loop is asyncio.get_running_loop()

        async def close(self) -> None:
            assert self.loop is asyncio.get_running_loop()
            note.add("closed")

    client = Client()
    rows = ps.range(20).select(client.one(col("id")).alias("one"), client.two(col("id")).alias("two")).to_pylist()
    assert rows == [{"one": True, "two": True}] * 20
    assert (note.count("built"), note.count("closed")) == (1, 1)


def test_a_failure_to_build_is_told_once_and_leaves_nothing(note: Note) -> None:
    class Broken(Model):
        def __init__(self, note: Note) -> None:
            note.add("tried")
            raise OSError("no weights there")

    model = ps.cls(Broken, use_process=False)(note)
    for _ in range(2):
        with pytest.raises(UdfError, match="no weights there"):
            both_methods(model)
    assert note.count("tried") >= 2
