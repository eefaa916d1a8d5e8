"""Make queries from the columns of their inputs, which may be unknown until the query runs."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import TypeMismatchError
from penstock.plan.duckdb_text import quoted
from penstock.plan.relations import SqlQuery
from penstock.types import DataType, Field, Schema, supertype
from penstock.types.frozen import frozen

INPUTS = ("input0", "input1")
LEFT_NUMBER, RIGHT_NUMBER = "__left", "__right"  # the columns with the numbers of rows that are zipped
NUMBER = "__row"  # the column with the number of a row in a union


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
    """Makes the rows of both inputs, whose rows are numbered; a column that an input lacks is null there.

    All rows come in order, the first input's first; distinct rows come in any order.
    """

    is_all: bool

    def made(self, *inputs: Schema) -> SqlQuery:
        names = dict.fromkeys(name for schema in inputs for name in schema.names if name != NUMBER)
        output = Schema([Field(name, _common_type(name, inputs)) for name in names])
        rows = "select 0 as __side, * from input0 union all by name select 1 as __side, * from input1"
        text = f"select {'' if self.is_all else 'distinct '}{', '.join(map(quoted, names))} from ({rows})"
        text += f" order by __side, {NUMBER}" if self.is_all else ""
        return SqlQuery(text, INPUTS, output, True, str(self))

    def columns_read(self, side: int) -> tuple[str, ...]:
        return (NUMBER,)

    def __str__(self) -> str:
        return "union all by name" if self.is_all else "union by name"


def _common_type(name: str, inputs: Sequence[Schema]) -> DataType:
    dtypes = [schema[name].dtype for schema in inputs if name in schema]
    common = supertype(dtypes[0], dtypes[-1])
    if common is None:
        raise TypeMismatchError(
            f"union_by_name: column {name!r} is {dtypes[0]} on one side and {dtypes[-1]} on the other; cast one"
        )
    return common
