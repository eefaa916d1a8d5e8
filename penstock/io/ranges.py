"""Ranges of integers, generated as they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.io.batches import BATCH_ROWS, TASK_ROWS
from penstock.protocols import ReadRequest
from penstock.types import DataType, Field, Schema
from penstock.types.plain import arrow_numbers

COLUMN = "id"


class RangeTask:
    """A part of a range of integers."""

    def __init__(self, numbers: range, columns: tuple[str, ...]) -> None:
        self.numbers = numbers
        self.columns = columns
        self.num_rows: int | None = len(numbers)
        self.nbytes: int | None = 8 * len(numbers)

    @property
    def origin(self) -> tuple[str, str]:
        return "range", repr(self.numbers)

    def read(self) -> Iterator[pa.RecordBatch]:
        for offset in range(0, len(self.numbers), BATCH_ROWS):
            part = self.numbers[offset : offset + BATCH_ROWS]
            array = arrow_numbers(np.arange(part.start, part.stop, part.step, dtype=np.int64))
            yield pa.record_batch([array], [COLUMN]).select(list(self.columns))


class RangeSource:
    """A ``Source`` of the numbers of a Python ``range``, in the column ``id``."""

    can_filter = False

    def __init__(self, numbers: range) -> None:
        if numbers and not (min(numbers[0], numbers[-1]) >= -(2**63) and max(numbers[0], numbers[-1]) < 2**63):
            raise InvalidArgumentError(f"{numbers} does not fit 64-bit integers.")
        self.name = str(numbers)
        self._numbers = numbers

    def schema(self) -> Schema:
        return Schema([Field(COLUMN, DataType.int64())])

    def versions(self) -> Mapping[str, str]:
        return {"range": self.name}

    def options(self) -> Mapping[str, Any]:
        return {}

    def read_tasks(self, request: ReadRequest) -> Iterator[RangeTask]:
        numbers = self._numbers if request.limit is None else self._numbers[: request.limit]
        columns = (COLUMN,) if request.columns is None else request.columns
        for offset in range(0, len(numbers), TASK_ROWS):
            yield RangeTask(numbers[offset : offset + TASK_ROWS], columns)
