"""Random plans over a small table: every node, columns that shadow others, UDFs used twice and inside one another."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import assume, strategies as st

from penstock.expr.column import Expression, col, lit
from penstock.expr.nodes import Alias, ColumnRef, columns_of
from penstock.plan.nodes import (
    Concat,
    Explode,
    Filter,
    IntoBatches,
    Limit,
    MapBatches,
    MonotonicId,
    Plan,
    Project,
    Repartition,
    Sample,
    Scan,
    Unpivot,
)
from penstock.types import DataType, Schema
from tests.plan.sources import REPEAT, TableSource, count_to, double, is_odd, node, tell, with_columns

NAMES = ("a", "b", "c", "d", "__udf_0")  # few, so that new columns often replace old ones
SMALL = st.integers(-3, 4)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    num_rows = draw(st.integers(0, 8))

    def column(values: st.SearchStrategy[object], dtype: pa.DataType) -> pa.Array:
        return pa.array(draw(st.lists(st.none() | values, min_size=num_rows, max_size=num_rows)), dtype)

    return pa.table(
        {
            "a": column(SMALL, pa.int64()),
            "b": column(SMALL, pa.int64()),
            "s": column(st.sampled_from(["", "x", "yy"]), pa.string()),
            "f": column(st.sampled_from([0.5, -0.0, float("nan"), 2.0]), pa.float64()),
            "l": column(st.lists(st.none() | SMALL, max_size=3), pa.list_(pa.int64())),
        }
    )


@st.composite
def plans(draw: st.DrawFn, max_depth: int = 6) -> Plan:
    plan: Plan = draw(scans())
    for _ in range(draw(st.integers(0, max_depth))):
        plan = draw(st.sampled_from(_VERBS))(draw, plan)
    return plan


@st.composite
def scans(draw: st.DrawFn) -> Plan:
    source = TableSource(draw(tables()), can_filter=draw(st.booleans()), batch_rows=draw(st.integers(1, 4)))
    return Scan(source)


# --- expressions ---


def columns(schema: Schema, dtype: DataType) -> list[str]:
    return [field.name for field in schema if field.dtype == dtype]


INT, STRING, FLOAT, INTS = DataType.int64(), DataType.string(), DataType.float64(), DataType.list(DataType.int64())


@st.composite
def integers(draw: st.DrawFn, schema: Schema, depth: int = 2) -> Expression:
    leaf = draw(st.sampled_from([*columns(schema, INT), *columns(schema, INT), 1, 2]))
    if not depth or draw(st.integers(0, 2)) == 0:
        return col(leaf) if isinstance(leaf, str) else lit(leaf)
    inner = integers(schema, depth - 1)
    match draw(st.sampled_from(["add", "subtract", "double", "double", "coalesce", "choose", "list"])):
        case "add":
            return draw(inner) + draw(inner)
        case "subtract":
            return draw(inner) - draw(inner)
        case "double":
            return double(draw(inner))
        case "coalesce":
            return draw(inner).fill_null(0)
        case "choose":
            return draw(conditions(schema, depth - 1)).if_else(draw(inner), draw(inner))
        case _:
            lists = columns(schema, INTS)
            return col(lists[0])[0] if lists else draw(inner)


@st.composite
def conditions(draw: st.DrawFn, schema: Schema, depth: int = 2) -> Expression:
    inner = conditions(schema, depth - 1)
    match draw(st.sampled_from(["compare", "and", "or", "not", "null", "in", "text", "float", "odd", "between"])):
        case "and" if depth:
            return draw(inner) & draw(inner)
        case "or" if depth:
            return draw(inner) | draw(inner)
        case "not" if depth:
            return ~draw(inner)
        case "null" if schema.names:
            return col(draw(st.sampled_from(schema.names))).is_null()
        case "in" if names := columns(schema, INT):
            return col(draw(st.sampled_from(names))).is_in(draw(st.lists(SMALL | st.none(), min_size=1, max_size=3)))
        case "text" if names := columns(schema, STRING):
            return col(draw(st.sampled_from(names))) == "x"
        case "float" if names := columns(schema, FLOAT):
            return col(draw(st.sampled_from(names))) <= draw(st.sampled_from([0, 0.5, float("nan")]))
        case "odd" if depth:
            return is_odd(draw(integers(schema, depth - 1)))
        case _:
            left, right = draw(integers(schema, max(depth - 1, 0))), draw(SMALL)
            return draw(st.sampled_from([left < right, left == right, left != right, right >= left]))


@st.composite
def values(draw: st.DrawFn, schema: Schema) -> Expression:
    match draw(st.sampled_from(["integer", "integer", "integer", "text", "condition", "column", "literal"])):
        case "text":
            return tell(draw(integers(schema)), draw(integers(schema)))
        case "condition":
            return draw(conditions(schema))
        case "column":
            return col(draw(st.sampled_from(schema.names)))
        case "literal":
            return lit(7)
        case _:
            return draw(integers(schema))


# --- verbs; each returns a plan over the one it is given, which may be that one where it does not fit ---


def _schema(plan: Plan) -> Schema:
    assert plan.schema is not None
    return plan.schema


def _select(draw: st.DrawFn, plan: Plan) -> Plan:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=3))
    kept = draw(st.lists(st.sampled_from(_schema(plan).names), unique=True, max_size=4))
    exprs = [Alias(node(draw(values(_schema(plan)))), name) for name in names]
    return Project(plan, (*(ColumnRef(name) for name in kept if name not in names), *exprs))


def _with_columns(draw: st.DrawFn, plan: Plan) -> Plan:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=2))
    return with_columns(plan, **{name: draw(values(_schema(plan))) for name in names})


def _same_call_twice(draw: st.DrawFn, plan: Plan) -> Plan:
    value = double(draw(integers(_schema(plan))))
    return with_columns(plan, a=value, b=value + 1, c=double(value))


def _same_call_again(draw: st.DrawFn, plan: Plan) -> Plan:
    """The same call in two verbs, with others in between that may replace what it reads or hide its result."""
    names = columns(_schema(plan), INT)
    value = double(col(draw(st.sampled_from(names)))) if names else double(1)
    first, again = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
    plan = Filter(plan, node(value > 0)) if draw(st.booleans()) else with_columns(plan, **{first: value})
    for _ in range(draw(st.integers(0, 2))):
        between = draw(st.sampled_from([_with_columns, _rename, _drop, _filter, _number, _sample, _layout, _generate]))
        plan = between(draw, plan)
    if any(name not in columns(_schema(plan), INT) for name in columns_of(node(value))):
        return plan
    return Filter(plan, node(value < 5)) if draw(st.booleans()) else with_columns(plan, **{again: value + 1})


def _rename(draw: st.DrawFn, plan: Plan) -> Plan:
    names = _schema(plan).names
    shuffled = draw(st.permutations(names))
    return Project(plan, tuple(Alias(ColumnRef(old), new) for old, new in zip(names, shuffled, strict=True)))


def _drop(draw: st.DrawFn, plan: Plan) -> Plan:
    names = _schema(plan).names
    kept = draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    return Project(plan, tuple(ColumnRef(name) for name in kept))


def _generate(draw: st.DrawFn, plan: Plan) -> Plan:
    return with_columns(plan, d=count_to(draw(integers(_schema(plan)))), b=double(draw(integers(_schema(plan)))))


def _filter(draw: st.DrawFn, plan: Plan) -> Plan:
    return Filter(plan, node(draw(conditions(_schema(plan)))))


def _limit(draw: st.DrawFn, plan: Plan) -> Plan:
    return Limit(plan, draw(st.none() | st.integers(0, 9)), draw(st.sampled_from([0, 0, 1, 3])))


def _explode(draw: st.DrawFn, plan: Plan) -> Plan:
    names = columns(_schema(plan), INTS)
    return Explode(plan, (draw(st.sampled_from(names)),)) if names else plan


def _unpivot(draw: st.DrawFn, plan: Plan) -> Plan:
    names = columns(_schema(plan), INT)
    ids = [n for n in draw(st.lists(st.sampled_from(_schema(plan).names), unique=True)) if n not in ("d", "b")]
    return Unpivot(plan, tuple(ids), tuple(names[:2]), "d", "b") if names else plan


def _number(draw: st.DrawFn, plan: Plan) -> Plan:
    if "id" in _schema(plan):
        return plan
    # As int64, so that expressions read it.
    numbered = MonotonicId(plan, "id")
    return with_columns(numbered, id=col("id").cast("int64")) if draw(st.booleans()) else numbered


def _sample(draw: st.DrawFn, plan: Plan) -> Plan:
    return Sample(plan, draw(st.sampled_from([0.0, 0.5, 0.8])), seed=draw(st.integers(0, 3)))


def _concat(draw: st.DrawFn, plan: Plan) -> Plan:
    other = draw(st.sampled_from([plan, Filter(plan, node(lit(True) & draw(conditions(_schema(plan)))))]))
    return Concat((plan, other))


def _layout(draw: st.DrawFn, plan: Plan) -> Plan:
    return draw(st.sampled_from([IntoBatches(plan, 2), IntoBatches(plan, 3), Repartition(plan, 2)]))


_VERBS = [
    *(_select, _with_columns, _with_columns, _same_call_twice, _rename, _drop, _filter, _filter, _filter, _limit),
    *(_limit, _explode, _unpivot, _number, _sample, _concat, _layout, _generate),
    *(_same_call_again, _same_call_again),
]


@st.composite
def plans_of_unknown_schema(draw: st.DrawFn) -> Plan:
    """Plans with ``map_batches`` in them, whose select lists hold a star."""
    below = draw(plans(max_depth=2))
    known = _schema(below)
    assume("__udf_0" not in known)  # a clash with a column that nobody can know of
    plan: Plan = MapBatches(below, REPEAT)
    if draw(st.booleans()):
        plan = Filter(plan, node(draw(conditions(known))))
    plan = with_columns(plan, new=draw(values(known)))
    if draw(st.booleans()):
        plan = Filter(plan, node(draw(conditions(known))))
    if draw(st.booleans()):
        plan = with_columns(plan, newer=double(draw(integers(known))) + double(draw(integers(known))))
    if draw(st.booleans()):
        plan = Limit(plan, draw(st.integers(0, 9)), draw(st.integers(0, 2)))
    return plan
