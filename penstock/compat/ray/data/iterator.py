"""``DataIterator``: the rows of a Dataset for one reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.compat.ray.data.result_verbs import DatasetResults


class DataIterator:
    """The rows of a dataset for one reader, such as a training worker."""

    def __init__(self, dataset: DatasetResults) -> None:
        self._dataset = dataset

    def iter_batches(self, **options: Any) -> Iterator[Any]:
        return self._dataset.iter_batches(**options)

    def iter_torch_batches(self, **options: Any) -> Iterator[Any]:
        return self._dataset.iter_torch_batches(**options)

    def to_torch(self, **options: Any) -> Any:
        """Return torch's own iterable dataset of pairs: tensors of features, and of labels."""
        from penstock.compat.ray.data.torch_pairs import TorchPairs

        return TorchPairs(self._dataset, **options)

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        return self._dataset.iter_rows()

    def materialize(self) -> DatasetResults:
        return self._dataset.materialize()

    def schema(self) -> Any:
        return self._dataset.schema

    def stats(self) -> str:
        return self._dataset.stats()
