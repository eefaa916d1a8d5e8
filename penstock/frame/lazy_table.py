"""``LazyTable``, the base of ``DataFrame``: one plan node, how to run it, and the errors and stats of the last run."""

from __future__ import annotations

import atexit
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Self, TypeAlias

import pyarrow as pa

from penstock.config import get_config
from penstock.engine.cancellation import Cancellation
from penstock.events.metrics import is_in_query
from penstock.events.tracebacks import with_trimmed_errors
from penstock.observe.subscribers import attached_subscribers
from penstock.observe.viewers import watch_query
from penstock.plan import nodes
from penstock.plan.nodes import Plan
from penstock.plan.unknown_columns import with_line
from penstock.protocols import Subscriber
from penstock.runners import read_rows
from penstock.runners.reading import ALL_ROWS, Reading
from penstock.types import Schema, unified
from penstock.types.supertype import has_null_type

if TYPE_CHECKING:
    from penstock.observe.closing_line import Destination
    from penstock.observe.failed_rows import ErrorLog
    from penstock.observe.stats import Stats

Batches: TypeAlias = Generator[pa.RecordBatch, None, None]


class LazyTable:
    """A lazy table without verbs. The classes derived from it add them, one family each."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._schema: Schema | None = plan.schema
        self._preview: pa.Table | None = None  # the first rows of a collected query
        self._num_rows: int | None = None  # of a collected query
        self._errors: ErrorLog | None = None  # of the last run
        self._stats: Stats | None = None  # of the last run
        self._stats_owner: LazyTable | None = None  # receives errors() and stats() instead of this one

    def _with(self, plan: Plan) -> Self:
        return type(self)(plan if plan.schema is not None else with_line(plan))

    @property
    def schema(self) -> Schema:
        """The columns and their types. After ``map_batches`` and similar verbs this runs the query on one row."""
        if self._schema is None:
            first = next(self._with(nodes.Limit(self._plan, 1))._batches(), None)
            self._schema = Schema([]) if first is None else Schema.from_arrow(first.schema)
        return self._schema

    def _schema_of_values(self) -> Schema:
        """Return the columns for a table whose types must be known before the first row.

        If the first row after ``map_batches`` has nulls, this reads rows until each column has had a value.
        """
        schema = self.schema
        if self._plan.schema is None and any(map(has_null_type, schema.to_arrow().types)):
            columns = [pa.nulls(0, dtype) for dtype in schema.to_arrow().types]
            known = pa.RecordBatch.from_arrays(columns, names=schema.names)
            with closing(self._batches(Reading(is_gradual=True))) as batches:
                for batch in batches:
                    known = unified([known, batch.slice(0, 0)])[0]
                    if not any(map(has_null_type, known.schema.types)):
                        break
            schema = Schema.from_arrow(known.schema)
        return schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns.

        >>> ps.range(1).columns
        ['id']
        """
        return list(self.schema.names)

    def _batches(
        self,
        reading: Reading = ALL_ROWS,
        *,
        cancellation: Cancellation | None = None,
    ) -> Batches:
        """Run the query and yield its rows."""
        watching, cancellation = query_subscribers(self._new_log()), cancellation or Cancellation()
        batches = read_rows(self._plan, reading, subscribers=watching, cancellation=cancellation)
        return with_trimmed_errors(_stopped_at_exit(batches, cancellation))

    def _new_log(self) -> list[Subscriber]:
        """Return the subscribers that record errors and stats of a new run. A DataFrame with rows in memory keeps its
        own.
        """
        if isinstance(self._plan, nodes.Scan):
            return []
        from penstock.observe.failed_rows import ErrorLog
        from penstock.observe.stats import Stats

        owner = self if self._stats_owner is None else self._stats_owner
        owner._errors, owner._stats = ErrorLog(), Stats()
        return [owner._errors, owner._stats]

    def _reporting_here(self, part: Self) -> Self:
        """Return another DataFrame whose errors and stats go to this one."""
        if not isinstance(self._plan, nodes.Scan):
            part._stats_owner = self if self._stats_owner is None else self._stats_owner
        return part

    def _schema_of(self, table: pa.Table) -> Schema:
        return self._schema or Schema.from_arrow(table.schema)


def _stopped_at_exit(batches: Batches, cancellation: Cancellation) -> Batches:
    """Yield the batches. A program that ends before its last batch, for instance by Ctrl-C, stops the query."""

    def stop() -> None:
        cancellation.is_program_over = True
        with suppress(ValueError):  # another thread is reading
            batches.close()

    with closing(batches):
        for first in batches:
            atexit.register(stop)  # after what the query itself has registered, so that it runs before that
            try:
                yield first
                yield from batches
            finally:
                atexit.unregister(stop)


def query_subscribers(log: Sequence[Subscriber], destination: Destination | None = None) -> list[Subscriber]:
    """Return the subscribers of a new query: its log, and whatever the settings and the user ask for.

    A query inside a query shows no progress.
    """
    subscribers = [*log, *attached_subscribers()]
    if get_config().dashboard:
        subscribers.append(watch_query())
    if get_config().progress and not is_in_query():
        from penstock.observe.progress import progress_subscriber
        from penstock.observe.stats import Stats

        stats = next((each for each in log if isinstance(each, Stats)), None)
        subscribers.append(progress_subscriber(stats, destination))
    return subscribers
