"""Small tables and the sources and functions that tests of plans are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock.expr.operators  # noqa: F401  # registers the kernels
from penstock.expr.column import Expression, col, lit
from penstock.expr.nodes import Alias, ColumnRef, Expr, Star, UdfCall
from penstock.expr.udf import BatchSpec, Resources, Target, UdfSpec
from penstock.plan.nodes import MapBatches, Plan, Project, Scan
from penstock.protocols import ReadRequest
from penstock.types import DataType, Schema

INT, BOOL, STRING = DataType.int64(), DataType.bool(), DataType.string()


@dataclass(frozen=True)
class BatchTask:
    batch: pa.RecordBatch
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        yield self.batch


class TableSource:
    """A table in pieces of ``batch_rows`` rows, which filters while it reads if it is allowed to."""

    def __init__(self, table: pa.Table, name: str = "table", can_filter: bool = True, batch_rows: int = 3) -> None:
        self.table = table
        self.name = name
        self.can_filter = can_filter
        self.batch_rows = batch_rows

    def __repr__(self) -> str:
        return f"TableSource({self.table.to_pydict()}, can_filter={self.can_filter})"

    def schema(self) -> Schema:
        return Schema.from_arrow(self.table.schema)

    def read_tasks(self, request: ReadRequest) -> Iterator[BatchTask]:
        table = self.table if request.predicate is None else self.table.filter(request.predicate)
        for batch in table.to_batches(self.batch_rows):
            yield BatchTask(batch if request.columns is None else batch.select(list(request.columns)))


TABLE = pa.table(
    {
        "a": pa.array([1, 2, None, 4, 5, 2, 0], pa.int64()),
        "b": pa.array([10, None, 30, 40, 50, 20, -1], pa.int64()),
        "s": pa.array(["x", "yy", None, "x", "", "zzz", "yy"], pa.string()),
        "l": pa.array([[1, 2], [], None, [3], [None, 4], [5], [6, 7, 8]], pa.list_(pa.int64())),
    }
)
SOURCE = TableSource(TABLE)
UNFILTERED = TableSource(TABLE, can_filter=False)

a, b, s, l = col("a"), col("b"), col("s"), col("l")  # noqa: E741


def scan(*columns: str, **pushed: Any) -> Scan:
    """Return a scan of the table; ``predicate`` may be an Expression."""
    predicate = pushed.pop("predicate", None)
    return Scan(SOURCE, columns=columns or None, predicate=node(predicate) if predicate is not None else None, **pushed)


def node(expression: Expression | Expr | str) -> Expr:
    match expression:
        case Expression():
            return expression._node
        case str():
            return ColumnRef(expression)
        case _:
            return expression


def select(child: Plan, *exprs: Expression | Expr | str) -> Project:
    return Project(child, tuple(node(expr) for expr in exprs))


def with_columns(child: Plan, **exprs: Expression) -> Project:
    """Return what ``df.with_columns`` builds: columns replaced in place, new ones at the end."""
    if child.schema is None:
        return Project(child, (Star(), *(Alias(node(expr), name) for name, expr in exprs.items())))
    kept = [Alias(node(exprs[n]), n) if n in exprs else ColumnRef(n) for n in child.schema.names]
    added = [Alias(node(expr), name) for name, expr in exprs.items() if name not in child.schema]
    return Project(child, (*kept, *added))


def udf(target: Callable[..., Any], dtype: DataType, **settings: Any) -> UdfSpec:
    how = {name: settings.pop(name) for name in list(settings) if name in ("is_batch", "is_async", "is_generator")}
    return UdfSpec(target.__name__, Target(target, **how), dtype, **settings)


def call(spec: UdfSpec, *args: Expression | Any) -> Expression:
    return Expression(UdfCall(spec, tuple(lit(arg)._node for arg in args)))


def _double(x: int | None) -> int | None:
    return None if x is None else 2 * x


def _tell(x: Any, y: Any) -> str:
    return f"{x}/{y}"


def _is_odd(x: int | None) -> bool | None:
    return None if x is None else x % 2 == 1


def _count_to(n: int | None) -> Iterator[int]:
    yield from range(min(n or 0, 3))


def _repeat_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(np.repeat(np.arange(batch.num_rows), 2)))


DOUBLE, TELL, IS_ODD = udf(_double, INT), udf(_tell, STRING), udf(_is_odd, BOOL)
COUNT_TO = udf(_count_to, INT, is_generator=True)
EMBED = udf(_double, INT, is_batch=True, batch_size=256, resources=Resources(gpus=1, max_workers=4))
REPEAT = BatchSpec("repeat", "map_batches", Target(_repeat_rows, is_batch=True), batch_format="pyarrow")


def double(x: Any) -> Expression:
    return call(DOUBLE, x)


def tell(x: Any, y: Any) -> Expression:
    return call(TELL, x, y)


def is_odd(x: Any) -> Expression:
    return call(IS_ODD, x)


def count_to(n: Any) -> Expression:
    return call(COUNT_TO, n)


def unknown(child: Plan) -> MapBatches:
    """Return a plan whose columns are only known once it runs."""
    return MapBatches(child, REPEAT)
