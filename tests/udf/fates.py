"""Rows that fail in different ways, and functions of every form. A module of its own, since workers import it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Literal

import penstock as ps
from penstock import DataType, Series, col

INT = DataType.int64()

Fate = Literal["fine", "flaky", "raises", "wrong type", "short", "dies"]
Options = dict[str, Any]


class Fates:
    """The fate of each row ``a``; a flaky row fails the first time that a worker tries it."""

    def __init__(self, fates: list[Fate]) -> None:
        self.fates = fates
        self.tried: set[int] = set()

    def of(self, a: int) -> Fate:
        """Return the fate of a row, unless that is to raise, or to die."""
        fate = self.fates[a]
        if fate == "dies":
            os._exit(1)
        if fate == "raises" or (fate == "flaky" and a not in self.tried):
            self.tried.add(a)
            raise ValueError(a)
        return fate

    def value(self, a: int) -> Any:
        return -a if self.of(a) in ("fine", "flaky") else "no number"

    def values(self, numbers: list[int]) -> Any:
        """Return a value for each row, or too few."""
        fates = [self.of(a) for a in numbers]
        given = [self.value(a) for a in numbers]
        if "short" not in fates:
            return given
        return given[:-1] if len(given) > 2 else []  # a single value would stand for all rows


def func(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    return df.select("a", x=ps.func(fates.value, return_dtype=INT, **options)(col("a")))


def func_async(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    async def value(a: int) -> int:
        return fates.value(a)

    return df.select("a", x=ps.func(**options)(value)(col("a")))


def generator(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    def value(a: int) -> Iterator[int]:
        yield fates.value(a)

    return df.select("a", x=ps.func(**options)(value)(col("a")))


def func_batch(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    batch = ps.func.batch(return_dtype=INT, **options)(lambda series: fates.values(series.to_pylist()))
    return df.select("a", x=batch(col("a")))


def func_batch_async(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    async def values(series: Series) -> Any:
        return fates.values(series.to_pylist())

    return df.select("a", x=ps.func.batch(return_dtype=INT, **options)(values)(col("a")))


def cls(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    @ps.cls(**options)
    class Model:
        def __call__(self, a: int) -> int:
            return fates.value(a)

    return df.select("a", x=Model()(col("a")))


def method_batch(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    @ps.cls(**options)
    class Model:
        @ps.method.batch(return_dtype=INT)
        def values(self, series: Series) -> Any:
            return fates.values(series.to_pylist())

    return df.select("a", x=Model().values(col("a")))


def map_batches(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    def run(batch: dict[str, Any]) -> Any:
        values = fates.values(batch["a"].tolist())
        return {"a": batch["a"], "x": values} if "no number" not in values else "no batch"

    return df.map_batches(run, **options)


def map_batches_in_parts(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    def run(batch: dict[str, Any]) -> Iterator[Any]:
        for a in batch["a"].tolist():
            value = fates.value(a)
            yield {"a": [a], "x": [value]} if value != "no number" else 7

    return df.map_batches(run, **options)


def map_rows(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    def run(row: dict[str, Any]) -> Any:
        value = fates.value(row["a"])
        return {**row, "x": value} if value != "no number" else "no row"

    return df.map(run, **options)


def map_rows_async(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    async def run(row: dict[str, Any]) -> Any:
        value = fates.value(row["a"])
        return {**row, "x": value} if value != "no number" else "no row"

    return df.map(run, **options)


def flat_map(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    def run(row: dict[str, Any]) -> Any:
        value = fates.value(row["a"])
        return [{**row, "x": value}] * 2 if value != "no number" else [{**row, "x": 1}, "no row"]

    return df.flat_map(run, **options)


def filter_rows(df: ps.DataFrame, fates: Fates, options: Options) -> ps.DataFrame:
    def run(row: dict[str, Any]) -> Any:
        value = fates.value(row["a"])
        return value if value == "no number" else True

    return df.filter(run, **options).with_column("x", -col("a"))


FORMS: list[Callable[[ps.DataFrame, Fates, Options], ps.DataFrame]] = [
    *(func, func_async, generator, func_batch, func_batch_async, cls, method_batch),
    *(map_batches, map_batches_in_parts, map_rows, map_rows_async, flat_map, filter_rows),
]
IN_PROCESSES = [func, method_batch, map_batches_in_parts, map_rows_async, flat_map]
"""One of each kind; ``test_deaths`` covers the others."""
