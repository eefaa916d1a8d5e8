"""torch datasets as sources: map-style datasets by ranges of indexes, iterable datasets from start to end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError, ReadError
from penstock.io.data_file import UNKNOWN
from penstock.plan.identity.code_keys import code_identity
from penstock.protocols import ReadRequest
from penstock.types import DataType, Schema, to_arrow_array

COLUMN = "item"
ROWS_PER_BATCH = 256
ROWS_PER_TASK = 4096


@dataclass(eq=False)
class TorchTask:
    """The items of a range of indexes; all items of an iterable dataset."""

    dataset: Any
    span: tuple[int, int] | None
    dtype: DataType
    num_rows: int | None
    nbytes: int | None = None

    @property
    def origin(self) -> tuple[str, str]:
        return type(self.dataset).__name__, "all" if self.span is None else f"items {self.span[0]} to {self.span[1]}"

    def read(self) -> Iterator[pa.RecordBatch]:
        items = iter(self.dataset) if self.span is None else (self.dataset[index] for index in range(*self.span))
        while rows := list(islice(items, ROWS_PER_BATCH)):
            yield pa.RecordBatch.from_arrays([_array(rows, self.dtype)], names=[COLUMN])


class TorchSource:
    """A ``Source`` over a torch dataset. Its first item determines the type of the column."""

    can_filter = False

    def __init__(self, dataset: Any) -> None:
        is_map = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if not is_map and not hasattr(dataset, "__iter__"):
            raise InvalidArgumentError(f"from_torch takes a torch Dataset; got {type(dataset).__name__}.")
        self.name = f"from_torch({type(dataset).__name__})"
        self._dataset = dataset
        self._num_rows = len(dataset) if is_map else None
        first = ([dataset[0]] if self._num_rows else []) if is_map else list(islice(iter(dataset), 1))
        if not first:
            raise InvalidArgumentError("from_torch: the dataset is empty, so the type of its items is unknown.")
        self._dtype = DataType(_array(first, None).type)

    def schema(self) -> Schema:
        return Schema.from_pydict({COLUMN: self._dtype})

    def versions(self) -> Mapping[str, str]:
        found = code_identity(self._dataset)
        count = "" if self._num_rows is None else f"{self._num_rows} items, "
        version = UNKNOWN if found.opaque else f"digest {found.digest.hex()}"
        return {type(self._dataset).__name__: f"{count}{version}"}

    def read_tasks(self, request: ReadRequest) -> Iterator[TorchTask]:
        if self._num_rows is None:
            yield TorchTask(self._dataset, None, self._dtype, None)
            return
        stop = self._num_rows if request.limit is None else min(request.limit, self._num_rows)
        for start in range(0, stop, ROWS_PER_TASK):
            end = min(start + ROWS_PER_TASK, stop)
            yield TorchTask(self._dataset, (start, end), self._dtype, end - start)


def _array(items: list[Any], dtype: DataType | None) -> pa.Array:
    try:
        return to_arrow_array([_plain(item) for item in items], dtype, what=f"column {COLUMN!r}")
    except (ValueError, TypeError) as exc:
        raise ReadError(f"from_torch: an item differs in type from the first: {exc}") from exc


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
