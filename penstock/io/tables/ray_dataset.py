"""Ray Data datasets as sources, with a task for each block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError, load_extra
from penstock.io.data_file import UNKNOWN
from penstock.io.selection import Selection
from penstock.protocols import ReadRequest
from penstock.types import Schema


@dataclass(eq=False)
class BlockTask:
    """One block, in Ray's object store."""

    block: Any
    selection: Selection
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        import ray

        table = ray.get(self.block)
        return self.selection.apply(table.to_batches(), "from_ray_dataset")


class RayDatasetSource:
    """A ``Source`` over a dataset, which the constructor executes."""

    can_filter = True
    name = "from_ray_dataset"

    def __init__(self, dataset: Any) -> None:
        ray = load_extra("ray", "ray", "from_ray_dataset")
        if not hasattr(dataset, "to_arrow_refs"):
            raise InvalidArgumentError(f"from_ray_dataset takes a ray.data.Dataset; got {type(dataset).__name__}.")
        self._dataset = dataset.materialize()  # keeps the blocks alive
        self._blocks = self._dataset.to_arrow_refs()
        if not self._blocks:
            raise InvalidArgumentError("from_ray_dataset: the dataset has no blocks, so its columns are unknown.")
        found = getattr(self._dataset.schema(), "base_schema", None)
        if not isinstance(found, pa.Schema):  # its blocks were pandas frames and are Arrow tables now
            found = ray.get(self._blocks[0]).schema
        self._schema = Schema.from_arrow(found)

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return {self.name: UNKNOWN}

    def read_tasks(self, request: ReadRequest) -> Iterator[BlockTask]:
        selection = Selection.of(request, self._schema)
        for block in self._blocks:
            yield BlockTask(block, selection)
