"""Make queries from the columns of their inputs, which may be unknown until the query runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from penstock.errors import TypeMismatchError
from penstock.plan.duckdb_text import quoted
from penstock.plan.pair_relations import Keys, PairColumns, join_columns
from penstock.plan.relations import SqlQuery
from penstock.types import DataType, Field, Schema, supertype
from penstock.types.frozen import frozen

Strategy = Literal["backward", "forward", "nearest"]
INPUTS = ("input0", "input1")
LEFT_NUMBER, RIGHT_NUMBER = "__left", "__right"  # the columns with the numbers of rows that are zipped


@frozen
class AsofMaker:
    """Makes a join with the nearest row. ``left_on`` and ``right_on`` are the keys in types that can be compared."""

    left: Keys
    right: Keys
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    strategy: Strategy
    prefix: str | None
    suffix: str | None

    def made(self, *inputs: Schema) -> SqlQuery:
        left, right = inputs
        keys = dict(zip(self.right.names, self.left.names, strict=True))
        shown = self.left.shown(left, "join_asof"), self.right.shown(right, "join_asof")
        columns = join_columns(*shown, keys, "asof", self.prefix, self.suffix)
        _check_asof(left, right, self.left_on, self.right_on, self.strategy)
        text = _asof_sql(columns, left, self.left_on, self.right_on, self.strategy)
        output = Schema([Field(name, inputs[side == 1][column].dtype) for side, column, name in columns])
        return SqlQuery(text, INPUTS, output, True, str(self))

    def columns_read(self, side: int) -> tuple[str, ...]:
        return (self.left_on, self.right_on)[side]

    def __str__(self) -> str:
        return f"{self.strategy} asof join"


@frozen
class ZipMaker:
    """Makes rows of the columns of both inputs, whose rows are numbered."""

    def made(self, *inputs: Schema) -> SqlQuery:
        fields = [field for field in inputs[0] if field.name != LEFT_NUMBER]
        columns = [f"l.{quoted(field.name)}" for field in fields]
        for field in inputs[1]:
            if field.name != RIGHT_NUMBER:
                taken = {each.name for each in fields}
                candidates = [field.name, *(f"{field.name}_{number}" for number in range(1, len(taken) + 2))]
                name = next(each for each in candidates if each not in taken)
                fields.append(Field(name, field.dtype))
                columns.append(f"r.{quoted(field.name)} as {quoted(name)}")
        left, right = f"l.{LEFT_NUMBER}", f"r.{RIGHT_NUMBER}"
        text = (
            f"select {', '.join(columns)} from input0 l full join input1 r on {left} = {right} "
            f"where case when {left} is null or {right} is null then "
            f"error('the DataFrames have different numbers of rows') else true end order by {left}"
        )
        return SqlQuery(text, INPUTS, Schema(fields), True, str(self))

    def columns_read(self, side: int) -> tuple[str, ...]:
        return ((LEFT_NUMBER,), (RIGHT_NUMBER,))[side]

    def __str__(self) -> str:
        return "zip"


@frozen
class UnionMaker:
    """Makes the rows of both inputs, matching columns by name; a column that an input lacks is null there.

    With ``number``, the column with the numbers of the rows, the rows of the first input come first, else distinct
    rows come in any order.
    """

    number: str | None = None

    def made(self, *inputs: Schema) -> SqlQuery:
        names = dict.fromkeys(name for schema in inputs for name in schema.names if name != self.number)
        output = Schema([Field(name, _common_type(name, inputs)) for name in names])
        first, second = (
            ", ".join(quoted(name) if name in schema else f"null as {quoted(name)}" for name in names)
            for schema in inputs
        )
        if self.number is None:
            return SqlQuery(f"select {first} from input0 union select {second} from input1", INPUTS, output, True)
        text = (
            f"select {', '.join(map(quoted, names))} from (select 0 as __side, {self.number}, {first} from input0 "
            f"union all select 1, {self.number}, {second} from input1) order by __side, {self.number}"
        )
        return SqlQuery(text, INPUTS, output, True, str(self))

    def columns_read(self, side: int) -> tuple[str, ...]:
        return () if self.number is None else (self.number,)

    def __str__(self) -> str:
        return "union by name" if self.number is None else "union all by name"


def _common_type(name: str, inputs: Sequence[Schema]) -> DataType:
    dtypes = [schema[name].dtype for schema in inputs if name in schema]
    common = supertype(dtypes[0], dtypes[-1])
    if common is None:
        raise TypeMismatchError(
            f"union_by_name: column {name!r} is {dtypes[0]} on one side and {dtypes[-1]} on the other; cast one"
        )
    return common


def _check_asof(
    left: Schema, right: Schema, left_names: Sequence[str], right_names: Sequence[str], strategy: Strategy
) -> None:
    for name, other in zip(left_names, right_names, strict=True):
        dtypes = left[name].dtype, right[other].dtype
        if dtypes[0] != dtypes[1] and (supertype(*dtypes) is None or all(dtype.is_temporal() for dtype in dtypes)):
            raise TypeMismatchError(
                f"join_asof: {name!r} is {dtypes[0]} on the left, but {other!r} is {dtypes[1]} on the right; "
                "cast one of them"
            )
    dtype = left[left_names[-1]].dtype
    if dtype.is_null():
        return
    if not dtype.is_comparable() or (strategy == "nearest" and not (dtype.is_numeric() or dtype.is_temporal())):
        needed = "numbers or times" if strategy == "nearest" else "values that can be compared"
        raise TypeMismatchError(f"join_asof needs {needed} in on=, but {left_names[-1]!r} is {dtype}")


def _asof_sql(
    columns: PairColumns, schema: Schema, left_names: Sequence[str], right_names: Sequence[str], strategy: Strategy
) -> str:
    """Return the query of an asof join. ``nearest`` joins both ways and picks a side for each row."""

    def value(table: str, name: str, key: str) -> str:
        text = f"{table}.{quoted(name)}"
        return f"nullif({text}, 'nan')" if schema[key].dtype.is_float() else text

    def matched(table: str, comparison: str) -> str:
        signs = ["="] * (len(left_names) - 1) + [comparison]
        terms = [
            f"{value('l', name, name)} {sign} {value(table, other, name)}"
            for name, other, sign in zip(left_names, right_names, signs, strict=True)
        ]
        return f"asof left join input1 as {table} on {' and '.join(terms)}"

    here, there = quoted(left_names[-1]), quoted(right_names[-1])
    is_before = f"f.{there} is null or l.{here} - b.{there} < f.{there} - l.{here}"

    def output(side: int, column: str, name: str) -> str:
        if side != 1:
            text = f"l.{quoted(column)}"
        elif strategy == "nearest":
            text = f"case when {is_before} then b.{quoted(column)} else f.{quoted(column)} end"
        else:
            text = f"{strategy[0]}.{quoted(column)}"
        return f"{text} as {quoted(name)}"

    joins = {"b": matched("b", ">="), "f": matched("f", "<=")}
    used = " ".join(
        join for table, join in joins.items() if strategy in ("nearest", f"{table}ackward", f"{table}orward")
    )
    return f"select {', '.join(output(*column) for column in columns)} from input0 as l {used}"
