"""Arrays that a function fills again and again: what it gave before must not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import penstock as ps
from penstock import DataType, Series, col
from penstock.udf.results import owned

NUM_ROWS = 40
BATCH = 4


class Reuser:
    """Gives one buffer each time, filled anew."""

    def __init__(self) -> None:
        self.buffer = np.zeros(BATCH, np.int64)
        self.tensor = torch.zeros(BATCH, dtype=torch.int64)
        self.given = {"id": self.buffer}

    def whole(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.buffer[:] = batch["id"]
        return {"id": self.buffer}

    def view(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.buffer[:] = batch["id"]
        return {"id": self.buffer[: len(batch["id"])]}

    def kept_dict(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.buffer[:] = batch["id"]
        return self.given

    def torch_tensor(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.tensor[:] = torch.tensor(batch["id"].copy())
        return {"id": self.tensor}

    def torch_view(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.tensor[:] = torch.tensor(batch["id"].copy())
        return {"id": self.tensor.numpy()}

    def generator(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        half = self.buffer[: BATCH // 2]
        for part in np.split(batch["id"], 2):
            half[:] = part
            yield {"id": half}


@pytest.mark.parametrize("how", ["whole", "view", "kept_dict", "torch_tensor", "torch_view", "generator"])
@pytest.mark.parametrize("on_error", ["raise", "ignore"])
def test_map_batches_takes_what_was_there_when_it_was_given(how: str, on_error: Any) -> None:
    function = getattr(Reuser(), how)
    df = ps.range(NUM_ROWS).map_batches(function, batch_size=BATCH, concurrency=1, on_error=on_error)
    assert df.to_pydict() == {"id": list(range(NUM_ROWS))}


def test_a_batch_function_too() -> None:
    buffer = np.zeros(BATCH, np.int64)

    @ps.func.batch(return_dtype=DataType.int64(), batch_size=BATCH, max_concurrency=1)
    def reuse(x: Series) -> Any:
        buffer[:] = x.to_numpy()
        return buffer

    assert ps.range(NUM_ROWS).select(reuse(col("id"))).to_pydict() == {"id": list(range(NUM_ROWS))}


def test_an_async_batch_function_too() -> None:
    buffer = np.zeros(BATCH, np.int64)

    @ps.func.batch(return_dtype=DataType.int64(), batch_size=BATCH, max_concurrency=1)
    async def reuse(x: Series) -> Any:
        buffer[:] = x.to_numpy()
        return buffer

    assert ps.range(NUM_ROWS).select(reuse(col("id"))).to_pydict() == {"id": list(range(NUM_ROWS))}


def test_a_view_that_cannot_be_written_to_is_not_copied() -> None:
    kept = np.arange(4.0)
    kept.flags.writeable = False
    assert owned({"x": kept})["x"] is kept
