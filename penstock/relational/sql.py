"""Relations as SQL. Inputs are the tables ``input0`` and ``input1``."""

from __future__ import annotations

from penstock.expr.aggregate_functions import WINDOW_FUNCTIONS
from penstock.plan.duckdb_text import quoted
from penstock.plan.relations import (
    AddWindows,
    Aggregate,
    AggregateColumn,
    DeferredRelation,
    Distinct,
    FileAggregate,
    Join,
    SetOperation,
    Sort,
    SortKey,
    SqlQuery,
    TableRelation,
    WindowColumn,
)
from penstock.types import Schema

RANKING = ("row_number", "rank", "dense_rank", "lag", "lead")  # they depend on the order, not on a frame
WHOLE_PARTITION = "rows between unbounded preceding and unbounded following"


def input_name(relation: TableRelation | DeferredRelation, number: int) -> str:
    """Return the name of an input in the SQL of a relation."""
    return relation.names[number] if isinstance(relation, SqlQuery | DeferredRelation) else f"input{number}"


def to_sql(relation: TableRelation, *inputs: Schema) -> str:
    """Return the query of a relation over inputs of these columns."""
    match relation:
        case SqlQuery(text):
            return text
        case Sort(keys, num_rows):
            top = "" if num_rows is None else f" limit {num_rows}"
            return f"select * from input0 order by {ordered(keys) or 'random()'}{top}"
        case Distinct(columns):
            if set(columns) == set(inputs[0].names):
                return "select distinct * from input0"
            return f"select distinct on ({_list(columns)}) * from input0"
        case Aggregate(keys, columns):
            grouping = f" group by {_list(keys)}" if keys else ""
            computed = [_aggregate(column, inputs[0]) for column in columns]
            return f"select {', '.join([*map(quoted, keys), *computed])} from input0{grouping}"
        case FileAggregate(aggregate, rows):
            return f"with input0 as ({rows}) {to_sql(aggregate, *inputs)}"
        case AddWindows(columns):
            return f"select *, {', '.join(_window(column, inputs[0]) for column in columns)} from input0"
        case Join():
            return _join(relation, *inputs)
        case SetOperation(verb, is_all):
            listed = _list(tuple(inputs[0].names))
            return f"select {listed} from input0 {verb}{' all' if is_all else ''} select {listed} from input1"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(map(quoted, names))


def ordered(keys: tuple[SortKey, ...]) -> str:
    """Return the text after ORDER BY."""

    def term(key: SortKey) -> str:
        direction, nulls = "desc" if key.is_descending else "asc", "first" if key.is_nulls_first else "last"
        return f"{quoted(key.column)} {direction} nulls {nulls}"

    return ", ".join(map(term, keys))


def _aggregate(column: AggregateColumn | WindowColumn, schema: Schema, over: str = "") -> str:
    dtypes = [schema[name].dtype for name in column.inputs]
    template = WINDOW_FUNCTIONS[column.function].template(*dtypes, **dict(column.options))
    return f"{template.format(*map(quoted, column.inputs), over=over)} as {quoted(column.name)}"


def _window(column: WindowColumn, schema: Schema) -> str:
    partition = f"partition by {_list(column.partition_by)} " if column.partition_by else ""
    order = f"order by {ordered(column.order_by)} " if column.order_by else ""
    frame = column.frame or ("" if column.function in RANKING else WHOLE_PARTITION)
    over = f" over ({partition}{order}{frame})"
    if column.min_periods < 2:
        return _aggregate(column, schema, over)
    value, _, name = _aggregate(column, schema, over).rpartition(" as ")
    return f"case when count(*){over} >= {column.min_periods} then {value} end as {name}"


def _join(join: Join, left: Schema, right: Schema) -> str:
    def output(side: int, column: str, name: str) -> str:
        if side == 2:
            other = join.right_on[join.left_on.index(column)]
            return f"coalesce(l.{quoted(column)}, r.{quoted(other)}) as {quoted(name)}"
        return f"{'lr'[side]}.{quoted(column)} as {quoted(name)}"

    selected = ", ".join(output(*column) for column in join.columns)
    if join.how == "cross":
        return f"select {selected} from input0 l cross join input1 r"
    # NaN equals NaN for DuckDB; as null it equals nothing.
    on = " and ".join(
        f"{_without_nan(f'l.{quoted(name)}', left, name)} = r.{quoted(other)}"
        for name, other in zip(join.left_on, join.right_on, strict=True)
    )
    how = "full" if join.how == "outer" else join.how
    return f"select {selected} from input0 l {how} join input1 r on {on}"


def _without_nan(text: str, schema: Schema, name: str) -> str:
    return f"nullif({text}, 'nan')" if schema[name].dtype.is_float() else text
