"""torch datasets as sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import penstock as ps
from penstock.errors import InvalidArgumentError, TypeMismatchError


class Sample(NamedTuple):
    image: torch.Tensor
    label: int


class Samples(Dataset[Sample]):
    """Map-style: what has been asked for is remembered."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, index: int) -> Sample:
        self.asked.append(index)
        return Sample(torch.full((2, 3), float(index)), index)


class Words(IterableDataset[Any]):
    def __init__(self, *words: Any) -> None:
        self.words = words

    def __iter__(self) -> Iterator[Any]:
        return iter(self.words)


def test_map_style() -> None:
    found = ps.from_torch(Samples(5))
    assert str(found.schema["item"].dtype) == "struct[image: tensor[float32; 2x3], label: int64]"
    rows = found.to_pydict()["item"]
    assert [row["label"] for row in rows] == [0, 1, 2, 3, 4]
    assert np.array_equal(rows[3]["image"], np.full((2, 3), 3.0))


@pytest.mark.one_machine
def test_only_what_is_wanted_is_made() -> None:
    samples = Samples(100_000)
    found = ps.from_torch(samples)
    assert found.count_rows() == 100_000
    samples.asked.clear()
    assert len(found.limit(3).to_pydict()["item"]) == 3
    assert samples.asked == [0, 1, 2]


def test_iterable() -> None:
    assert ps.from_torch(Words("to", "be")).to_pydict() == {"item": ["to", "be"]}
    assert ps.from_torch(Words({"a": 1, "b": torch.tensor(2.5)})).to_pylist() == [{"item": {"a": 1, "b": 2.5}}]


def test_tuples_are_structs() -> None:
    pairs = TensorDataset(torch.arange(3), torch.arange(3) * 0.5)
    assert ps.from_torch(pairs).to_pydict()["item"][2] == {"_0": 2, "_1": 1.0}


def test_mistakes_say_what_is_wrong() -> None:
    with pytest.raises(InvalidArgumentError, match="takes a torch Dataset; got int"):
        ps.from_torch(3)
    with pytest.raises(InvalidArgumentError, match="the dataset is empty"):
        ps.from_torch(Words())
    with pytest.raises(TypeMismatchError, match="'two' of type str at row 1, expected int64"):
        ps.from_torch(Words(1, "two")).collect()
