"""Verbs that run a Python function over batches or rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Self

from penstock.expr.udf import BatchFormat, BatchSize, OnError
from penstock.frame.columns import ColumnVerbs
from penstock.plan import nodes
from penstock.udf.options import check_known, options_of, refusing_unknown
from penstock.udf.specs import ROW_OPTIONS, Compute, make_batch_spec


class MapVerbs(ColumnVerbs):
    @refusing_unknown("map_batches")
    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: BatchSize = "auto",
        batch_format: BatchFormat = "numpy",
        zero_copy_batch: bool | None = None,
        max_batch_bytes: int | str | None = None,
        max_batch_tokens: int | None = None,
        batch_weight: Callable[..., Any] | None = None,
        split_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        compute: Compute | None = None,
        concurrency: int | tuple[int, int] | None = None,
        fn_args: Iterable[Any] = (),
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: int | str | None = None,
        max_retries: int = 0,
        on_error: OnError = "raise",
        max_errors: int | float | None = None,
        timeout: float | None = None,
        use_process: bool | None = None,
        cache: bool = False,
    ) -> Self:
        """Run a function, or a class built once per worker, over whole batches; it may change columns and row count.

        ``fn`` may be a generator, or async. It returns a dict of arrays or lists, a pyarrow Table or RecordBatch, or a
        pandas DataFrame. NumPy arrays share memory with the columns if possible and are read-only then. Torch tensors
        share memory only with ``zero_copy_batch=True`` and must not be changed then. With ``zero_copy_batch=False``
        ``fn`` may change both, as it always may a pandas DataFrame. With ``on_error`` of ``log`` or ``ignore`` failed
        rows are dropped and recorded, see ``errors``; more than ``max_errors`` of them, a count or a fraction, end the
        query.

        A ``batch_size`` of ``auto`` is found by measurement; None takes batches as they come. ``max_batch_bytes`` and
        ``max_batch_tokens`` limit the weight of a batch. A batch that raises ``split_on``, or that is too large for the
        memory of a GPU, is halved. With ``cache=True`` results are cached; see ``docs/DURABLE.md``.

        >>> ps.range(3).map_batches(lambda batch: {"x": batch["id"] * 2}).to_pydict()
        {'x': [0, 2, 4]}
        """
        spec = make_batch_spec("map_batches", fn, options_of(locals(), "fn"))
        return self._with(nodes.MapBatches(self._plan, spec))

    def map(self, fn: Callable[..., Any], **options: Any) -> Self:
        """Run a function from row to row, both dicts; the options are those of ``map_batches``.

        >>> ps.range(2).map(lambda row: {"x": row["id"] + 1}).to_pydict()
        {'x': [1, 2]}
        """
        return self._map("map", fn, options)

    def flat_map(self, fn: Callable[..., Any], **options: Any) -> Self:
        """Run a function from one row to a list of rows; the options are those of ``map_batches``.

        >>> ps.range(2).flat_map(lambda row: [row, row]).to_pydict()
        {'id': [0, 0, 1, 1]}
        """
        return self._map("flat_map", fn, options)

    def _map(self, verb: Literal["map", "flat_map", "filter"], fn: Callable[..., Any], options: dict[str, Any]) -> Self:
        check_known(verb, options, ROW_OPTIONS)
        return self._with(nodes.MapBatches(self._plan, make_batch_spec(verb, fn, options)))
