"""Verbs that run the query and return its rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from penstock.engine.cancellation import Cancellation
from penstock.errors import load_extra
from penstock.expr.udf import BatchFormat
from penstock.frame.columns import checked_batch_size, checked_count
from penstock.frame.cut_batches import cut_batches
from penstock.frame.lazy_table import LazyTable
from penstock.plan import nodes
from penstock.runners.async_reader import read_async
from penstock.runners.reading import Reading
from penstock.types import Schema, Series, unified
from penstock.udf.formats import batch_in_format, checked_format, to_pandas
from penstock.udf.options import refusing_unknown

if TYPE_CHECKING:
    import pandas
    import polars
    import ray.data
    import torch

    from penstock.observe.stats import Stats

SHOWN_ROWS = 8
ASYNC_ROWS = 1024  # rows that a loop gets at most before other tasks of its event loop may run


class ResultVerbs(LazyTable):
    def collect(self) -> Self:
        """Run the query and keep its rows in memory, so that later verbs do not run it again; returns itself.

        >>> df = ps.range(2).collect()
        >>> df.to_pydict()
        {'id': [0, 1]}
        """
        from penstock.io.memory_source import MemorySource

        table, schema = self.to_arrow(), self._plan.schema
        if not self._is_in_memory:
            kept = schema if schema is not None and schema.to_arrow() == table.schema else table.schema
            self._plan = nodes.Scan(MemorySource(table.to_batches(), kept, name="collected"))
        self._schema = self._plan.schema
        self._preview, self._num_rows = table.slice(0, SHOWN_ROWS), table.num_rows
        return self

    def materialize(self) -> Self:
        """Run the query and keep its rows in memory; the same as ``collect``."""
        return self.collect()

    def to_arrow(self) -> pa.Table:
        """Run the query and return its rows as a pyarrow Table.

        >>> ps.range(2).to_arrow().num_rows
        2
        """
        batches = list(self._batches())
        if not batches:
            return (self._plan.schema or Schema([])).to_arrow().empty_table()
        return pa.Table.from_batches(unified(batches))

    def to_pydict(self) -> dict[str, list[Any]]:
        """Run the query and return its columns as lists.

        >>> ps.range(2).to_pydict()
        {'id': [0, 1]}
        """
        table = self.to_arrow()
        return {name: Series(table.column(name)).to_pylist() for name in table.column_names}

    def to_pylist(self) -> list[dict[str, Any]]:
        """Run the query and return its rows as dicts.

        >>> ps.range(2).to_pylist()
        [{'id': 0}, {'id': 1}]
        """
        return [row for batch in self._batches() for row in batch_in_format(batch, "pylist")]

    def to_pandas(self) -> pandas.DataFrame:
        """Run the query and return its rows as a pandas DataFrame, with ndarrays for embeddings, tensors and images."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """Run the query and return its rows as a Polars DataFrame.

        >>> ps.range(2).to_polars().to_dicts()
        [{'id': 0}, {'id': 1}]
        """
        library = load_extra("polars", "polars", "to_polars")
        frame: polars.DataFrame = library.DataFrame(library.from_arrow(self.to_arrow()))
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Run the query while another library reads its rows by Arrow's protocol: ``pyarrow.table(df)``.

        >>> import pyarrow as pa
        >>> pa.table(ps.range(2)).num_rows
        2
        """
        if self._plan.schema is None:
            return self.to_arrow().__arrow_c_stream__(requested_schema)
        reader = pa.RecordBatchReader.from_batches(self._plan.schema.to_arrow(), self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def count_rows(self) -> int:
        """Run the query and return the number of its rows.

        >>> ps.range(5).where(ps.col("id") > 2).count_rows()
        2
        """
        return count_rows(self)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns, once the rows are in memory.

        >>> ps.range(2).collect().shape
        (2, 1)
        """
        if not self._is_in_memory:
            raise AttributeError("shape")  # DataFrame says what to do
        return self.count_rows(), len(self.columns)

    def __len__(self) -> int:
        """Return the number of collected rows. Others have no length: ``list(df)`` would run them twice."""
        if not self._is_in_memory:
            raise TypeError("The number of rows is not known before the query runs; use count_rows() or collect()")
        return self.count_rows()

    @property
    def _is_in_memory(self) -> bool:
        from penstock.io.memory_source import MemorySource

        return isinstance(self._plan, nodes.Scan) and isinstance(self._plan.source, MemorySource)

    def __bool__(self) -> bool:
        raise TypeError("A DataFrame has no truth value; use `is None`, or count_rows() to see whether it has rows")

    def take(self, num: int = 20) -> list[dict[str, Any]]:
        """Return the first rows as dicts.

        >>> ps.range(100).take(2)
        [{'id': 0}, {'id': 1}]
        """
        return self._first(num).to_pylist()

    def take_all(self) -> list[dict[str, Any]]:
        """Return all rows as dicts; the same as ``to_pylist``."""
        return self.to_pylist()

    def take_batch(self, batch_size: int = 20, batch_format: BatchFormat = "numpy") -> Any:
        """Return the first rows as one batch.

        >>> ps.range(100).take_batch(2, batch_format="pylist")
        [{'id': 0}, {'id': 1}]
        """
        wanted = checked_format("take_batch", batch_format)
        table = self._first(batch_size).to_arrow().combine_chunks()
        batches = table.to_batches()
        return batch_in_format(batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema), wanted)

    def _first(self, num: int) -> Self:
        return self._reporting_here(self._with(nodes.Limit(self._plan, checked_count("limit", num))))

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        """Yield rows as dicts while the query runs; stopping early cancels the rest.

        >>> next(ps.range(100).iter_rows())
        {'id': 0}
        """
        for batch in self._batches(Reading(is_gradual=True)):
            yield from batch_in_format(batch, "pylist")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.iter_rows()

    async def aiter_rows(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield rows as ``iter_rows`` does, without blocking the event loop.

        Leaving the loop early, or cancelling its task, cancels the query.

        >>> import asyncio
        >>> async def first_id():
        ...     async for row in ps.range(100).aiter_rows():
        ...         return row["id"]
        >>> asyncio.run(first_id())
        0
        """
        async with aclosing(read_async(self._row_lists)) as lists:
            async for rows in lists:
                for row in rows:
                    yield row

    def _row_lists(self, cancellation: Cancellation) -> Generator[list[dict[str, Any]], None, None]:
        for batch in self._batches(Reading(is_gradual=True), cancellation=cancellation):
            for start in range(0, batch.num_rows, ASYNC_ROWS):
                yield batch_in_format(batch.slice(start, ASYNC_ROWS), "pylist")

    @refusing_unknown("iter_batches")
    def iter_batches(
        self,
        batch_size: int | None = 256,
        batch_format: BatchFormat = "numpy",
        prefetch: int = 1,
        drop_last: bool = False,
    ) -> Iterator[Any]:
        """Yield batches while the query runs ahead by up to ``prefetch`` of them; stopping early cancels the rest.

        >>> [batch["id"].tolist() for batch in ps.range(3).iter_batches(batch_size=2)]
        [[0, 1], [2]]
        """
        wanted, num_ahead = checked_format("iter_batches", batch_format), checked_count("prefetch", prefetch)
        return self._formatted_batches(checked_batch_size(batch_size), wanted, num_ahead, drop_last)

    @refusing_unknown("aiter_batches")
    def aiter_batches(
        self,
        batch_size: int | None = 256,
        batch_format: BatchFormat = "numpy",
        prefetch: int = 1,
        drop_last: bool = False,
    ) -> AsyncGenerator[Any, None]:
        """Yield batches as ``iter_batches`` does, without blocking the event loop.

        Leaving the loop early, or cancelling its task, cancels the query.

        >>> import asyncio
        >>> async def ids():
        ...     return [batch["id"].tolist() async for batch in ps.range(3).aiter_batches(batch_size=2)]
        >>> asyncio.run(ids())
        [[0, 1], [2]]
        """
        wanted, num_ahead = checked_format("aiter_batches", batch_format), checked_count("prefetch", prefetch)
        size = checked_batch_size(batch_size)
        return read_async(partial(self._formatted_batches, size, wanted, num_ahead, drop_last))

    def _formatted_batches(
        self,
        batch_size: int | None,
        batch_format: BatchFormat,
        num_ahead: int,
        drop_last: bool,
        cancellation: Cancellation | None = None,
    ) -> Generator[Any, None, None]:
        reading = Reading(num_ahead=num_ahead, is_gradual=True, batch_rows=batch_size)
        blocks = self._batches(reading, cancellation=cancellation)
        return cut_batches(blocks, batch_size, batch_format, drop_last)

    @refusing_unknown("iter_torch_batches")
    def iter_torch_batches(
        self, batch_size: int | None = 256, prefetch: int = 1, drop_last: bool = False
    ) -> Iterator[dict[str, torch.Tensor]]:
        """Yield batches as dicts of torch tensors."""
        return self.iter_batches(batch_size, "torch", prefetch, drop_last)

    def iter_partitions(self) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches as the query makes them."""
        return (batch for batch in self._batches(Reading(is_gradual=True)) if batch.num_rows)

    def errors(self) -> Self:
        """Return the failed rows of this DataFrame's last run, if ``on_error`` tolerates failures.

        ``operator`` is the name of the function, ``input`` its arguments as JSON; ``error_type``, ``message`` and
        ``traceback`` describe the error. ``row`` is the number of the row in ``source``, such as a file, counted from
        0; see docs/guides/failures.md. A write puts the same rows into the folder ``_errors`` of its output.

        >>> half = ps.func(lambda x: 6 // x, return_dtype=ps.DataType.int64(), on_error="null")
        >>> df = ps.from_pydict({"a": [1, 0]}).select(half(ps.col("a"))).collect()
        >>> df.errors().select("row", "source", "input", "error_type").to_pylist()
        [{'row': 1, 'source': 'the input', 'input': '{"a": 0}', 'error_type': 'ZeroDivisionError'}]
        """
        from penstock.io.memory_source import MemorySource
        from penstock.observe.failed_rows import SCHEMA, ErrorLog

        batches = (self._errors or ErrorLog()).batches()
        table = pa.Table.from_batches(batches, SCHEMA)
        failed = self._with(nodes.Scan(MemorySource(batches, SCHEMA, name="errors")))
        failed._preview, failed._num_rows = table.slice(0, SHOWN_ROWS), table.num_rows
        return failed

    def stats(self) -> Stats:
        """Return the statistics of this DataFrame's last run: rows, bytes, times and waits of each stage.

        ``print(df.stats())`` shows them with the bottleneck and what would help. ``docs/guides/observe.md``
        explains the columns.

        >>> ps.range(3).stats()
        No query has run.
        >>> stats = ps.range(3).with_column("x", ps.col("id") + 1).collect().stats()
        >>> stats.stages[-1].num_rows, "finished in" in str(stats)
        (3, True)
        """
        from penstock.observe.stats import Stats

        return self._stats or Stats()

    def to_ray_dataset(self) -> ray.data.Dataset:
        """Run the query and return its rows as a dataset of Ray Data.

        Each batch becomes a block in Ray's object store as it comes, so that no process holds all rows.
        """
        library = load_extra("ray", "ray", "to_ray_dataset")
        data = load_extra("ray.data", "ray", "to_ray_dataset")
        blocks = [library.put(pa.Table.from_batches([batch])) for batch in self._batches()]
        return data.from_arrow_refs(blocks) if blocks else data.from_arrow(self.to_arrow())

    def to_torch_iterable(self) -> torch.utils.data.IterableDataset[dict[str, Any]]:
        """Return a torch dataset that runs the query in each iteration and yields rows as dicts."""
        from penstock.frame.torch import RowsDataset

        return RowsDataset(self)

    def to_torch_map(self) -> torch.utils.data.Dataset[dict[str, Any]]:
        """Run the query and return its rows as a torch dataset with length and index."""
        from penstock.frame.torch import TableDataset

        return TableDataset(self.to_arrow())


def count_rows(frame: LazyTable) -> int:
    """Run the query and return the number of its rows, without reading a column that it does not need."""
    counted = frame._reporting_here(frame._with(nodes.Project(frame._plan, ())))
    return sum(batch.num_rows for batch in counted._batches(Reading(is_ordered=False)))
