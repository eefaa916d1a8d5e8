"""Let DuckDB read files by itself for an aggregate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.expr.nodes import ColumnRef, Expr, columns_of
from penstock.plan import nodes
from penstock.plan.duckdb_text import quoted, to_sql
from penstock.plan.relations import Aggregate, FileAggregate
from penstock.plan.substitution import conjuncts
from penstock.protocols import DuckdbSource, DuckdbTable, ReadRequest, ReadTask
from penstock.types import Schema

FUNCTIONS = frozenset({"count", "sum", "mean", "min", "max", "bool_and", "bool_or"})  # of any order of the rows


def aggregate_files(plan: nodes.Plan) -> nodes.Plan:
    """Aggregate files in DuckDB, if it finds the same values in them and computes the same columns.

    Relate(Project(Scan(s), [a % 10 as k, b]), sum(b) by k)  ->  Relate(NoRows, the same over "select ... from s")

    The rows then do not pass through Arrow, which takes a third of the time.
    """
    match plan:
        case nodes.Relate((nodes.Project(nodes.Scan() as scan, exprs) as child,), Aggregate() as aggregate):
            return _aggregate(plan, child, scan, exprs, aggregate)
        case nodes.Relate((nodes.Scan() as scan,), Aggregate() as aggregate) if scan.schema is not None:
            return _aggregate(plan, scan, scan, [ColumnRef(name) for name in scan.schema.names], aggregate)
        case _:
            return plan


def _aggregate(
    plan: nodes.Plan, child: nodes.Plan, scan: nodes.Scan, exprs: Sequence[Expr], aggregate: Aggregate
) -> nodes.Plan:
    rows = _rows(scan, exprs) if {column.function for column in aggregate.columns} <= FUNCTIONS else None
    if rows is None or child.schema is None:
        return plan
    return nodes.Relate(
        (nodes.Scan(NoRows(scan.source.name, child.schema)),), FileAggregate(aggregate, rows.text, rows.paths)
    )


def _rows(scan: nodes.Scan, exprs: Sequence[Expr]) -> DuckdbTable | None:
    """Return a query for the columns ``exprs`` over a scan, with the files; None if DuckDB might differ."""
    if scan.limit is not None or not isinstance(scan.source, DuckdbSource):
        return None
    schema = scan.source.schema()
    parts = [] if scan.predicate is None else conjuncts(scan.predicate)
    computed = [text for expr in exprs if (text := to_sql(expr, schema)) is not None]
    conditions = [text for part in parts if (text := to_sql(part, schema)) is not None]
    if not exprs or len(computed) < len(exprs) or len(conditions) < len(parts):
        return None
    read = set[str]().union(*map(columns_of, [*exprs, *parts]))
    table = scan.source.sql_table([name for name in schema.names if name in read])
    if table is None:
        return None
    columns = ", ".join(f"{text} as {quoted(expr.name)}" for text, expr in zip(computed, exprs, strict=True))
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return DuckdbTable(f"select {columns} from {table.text}{where}", table.paths)


@dataclass
class NoRows:
    """A source without rows, in the place of one that DuckDB reads."""

    name: str
    columns: Schema
    can_filter: bool = False

    def schema(self) -> Schema:
        return self.columns

    def read_tasks(self, request: ReadRequest) -> Iterator[ReadTask]:
        return iter(())
