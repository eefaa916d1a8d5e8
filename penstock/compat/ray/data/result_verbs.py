"""The verbs of ``Dataset`` that run it and return rows, batches or facts about it."""

# mypy: disable-error-code="override"
# Ray Data gives some verbs of DataFrame other parameters; users of one class never hold the other.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.compat.daft.frame import DaftDataFrame
from penstock.compat.ray.data.resource_options import FORMATS
from penstock.errors import InvalidArgumentError
from penstock.frame.dataframe import DataFrame
from penstock.plan.nodes import Scan, walk_plan


def _moved(value: Any, device: Any) -> Any:
    """Move tensors to a device, and tensors in dicts, lists and tuples too."""
    if hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _moved(each, device) for key, each in value.items()}
    if isinstance(value, list | tuple):
        moved = [_moved(each, device) for each in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    return value


class DatasetResults(DataFrame):
    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        return super().take(limit)

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        rows = self.to_pylist() if limit is None else self.take(limit + 1)
        if limit is not None and len(rows) > limit:
            raise InvalidArgumentError(f"take_all(limit={limit}): there are more rows")
        return rows

    def take_batch(self, batch_size: int = 20, batch_format: Any = "default") -> Any:
        """Return the first rows as one batch; without rows raise an error, as Ray Data does."""
        batch = super().take_batch(batch_size, FORMATS.get(batch_format, batch_format))
        if not len(batch if batch_format in ("pandas", "pyarrow", None) else next(iter(batch.values()), ())):
            raise InvalidArgumentError("take_batch: the dataset is empty")
        return batch

    def stats(self) -> str:
        """Return the statistics of the last run as text, which is empty before."""
        found = super().stats()
        return str(found) if found.stages else ""

    def show(self, limit: int = 20) -> None:
        for row in self.take(limit):
            print(row)  # noqa: T201  # as Ray Data does

    def to_pandas(self, limit: int | None = None) -> Any:
        """Raise an error if there are more rows than ``limit``, as Ray Data does."""
        frame = DataFrame.to_pandas(self if limit is None else self.limit(limit + 1))
        if limit is not None and len(frame) > limit:
            raise InvalidArgumentError(f"to_pandas(limit={limit}): there are more rows")
        return frame

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: Any = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterator[Any]:
        source = self if local_shuffle_buffer_size is None else self.shuffle(local_shuffle_seed)
        chosen = FORMATS.get(batch_format, batch_format)
        return DataFrame.iter_batches(source, batch_size, chosen, prefetch_batches, drop_last)

    def iter_torch_batches(
        self,
        *,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Any = None,
        pin_memory: bool = False,
        **options: Any,
    ) -> Iterator[Any]:
        import torch

        if collate_fn is not None and dtypes is not None:
            raise InvalidArgumentError("iter_torch_batches takes collate_fn= or dtypes=; convert in collate_fn")
        target = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        if collate_fn is not None:
            chosen = getattr(collate_fn, "batch_format", "numpy")
            for batch in self.iter_batches(batch_format=chosen, **options):
                yield _moved(collate_fn(batch), target)
            return
        for tensors in self.iter_batches(batch_format="torch", **options):
            wanted = dtypes if isinstance(dtypes, Mapping) else dict.fromkeys(tensors, dtypes)
            yield {name: each.to(target, wanted.get(name)) for name, each in tensors.items()}

    def num_blocks(self) -> int:
        """Return 1: rows in memory are one block, and a query has no blocks before it runs."""
        return 1

    def size_bytes(self) -> int:
        return int(self.to_arrow().nbytes)

    def input_files(self) -> list[str]:
        scans = (plan for plan in walk_plan(self._plan) if isinstance(plan, Scan))
        return sorted(str(file.path) for scan in scans for file in getattr(scan.source, "files", ()))

    def to_daft(self) -> DaftDataFrame:
        """Return a DataFrame of Daft's adapter; a real one is ``daft.from_arrow(dataset.to_arrow())``."""
        return DaftDataFrame(self._plan)
