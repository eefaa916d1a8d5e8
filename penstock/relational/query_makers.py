"""Make queries from the columns of their inputs, which may be unknown until the query runs."""

from __future__ import annotations

from penstock.plan.duckdb_text import quoted
from penstock.plan.relations import SqlQuery
from penstock.relational.sql_result import SqlMaker
from penstock.types import Field, Schema
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


def union_maker(is_all: bool) -> SqlMaker:
    """Return the maker of the rows of both inputs, whose rows are numbered; a column that one lacks is null there.

    All rows come in order, the first input's first; distinct rows come in any order.
    """
    text = (
        f"select * exclude (__side, {NUMBER}) from (select 0 as __side, * from input0 union all by name "
        f"select 1 as __side, * from input1) order by __side, {NUMBER}"
        if is_all
        else f"select distinct * exclude ({NUMBER}) from (from input0 union all by name from input1)"
    )
    return SqlMaker(text, text, INPUTS, ((NUMBER,), (NUMBER,)), (), True, ())
