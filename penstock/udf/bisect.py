"""Which part of a batch to try next, so that rows on which a function fails end up alone and the others keep theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


class Parts(Iterator[pa.RecordBatch]):
    """The parts of a batch in order: at first the whole; what is ``split`` comes again as halves.

    >>> parts = Parts(pa.record_batch({"x": [1, 2, 3]}))
    >>> [part["x"].to_pylist() for part in parts if not (3 in part["x"].to_pylist() and parts.split(part))]
    [[1], [2], [3]]
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._left = [batch]

    def __next__(self) -> pa.RecordBatch:
        if not self._left:
            raise StopIteration
        return self._left.pop()

    def split(self, part: pa.RecordBatch) -> bool:
        """Put the halves of the part that was just given in its place; False if it is a single row."""
        half = part.num_rows // 2
        if half:
            self._left += [part.slice(half), part.slice(0, half)]
        return bool(half)
