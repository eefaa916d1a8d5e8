"""torch datasets: a function makes their items, by index or from start to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.expr.column import col
from penstock.frame.dataframe import DataFrame
from penstock.frame.read.memory import range as numbers_to
from penstock.types import DataType
from penstock.udf.decorators import func

COLUMN = "item"


def torch_rows(dataset: Any) -> DataFrame:
    """Return the items of a torch dataset. The first one determines the type of the column."""
    is_map = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if not is_map and not hasattr(dataset, "__iter__"):
        raise InvalidArgumentError(f"from_torch takes a torch Dataset; got {type(dataset).__name__}.")
    num_rows = len(dataset) if is_map else 1
    first = list(islice(iter(dataset), 1)) if not is_map else [dataset[0]] if num_rows else []
    if not first:
        raise InvalidArgumentError("from_torch: the dataset is empty, so the type of its items is unknown.")
    make = (_by_index if is_map else _from_start)(dataset)
    items = func(make, return_dtype=DataType.from_value(_plain(first[0])))
    rows: DataFrame = numbers_to(num_rows).select(items(col("id")).alias(COLUMN))
    return rows


def _by_index(dataset: Any) -> Callable[[int], Any]:
    def from_torch(index: int) -> Any:
        return _plain(dataset[index])

    return from_torch


def _from_start(dataset: Any) -> Callable[[int], Iterator[Any]]:
    def from_torch(start: int) -> Iterator[Any]:
        yield from map(_plain, dataset)

    return from_torch


def _plain(item: Any) -> Any:
    """Return an item as values that columns can hold."""
    if hasattr(item, "detach"):
        array = item.detach().cpu().numpy()
        return array.item() if array.ndim == 0 else array
    if isinstance(item, Mapping):
        return {str(key): _plain(value) for key, value in item.items()}
    if isinstance(item, tuple):
        names = getattr(item, "_fields", None) or [f"_{number}" for number in range(len(item))]
        return {name: _plain(value) for name, value in zip(names, item, strict=True)}
    return item
