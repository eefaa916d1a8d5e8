"""``groupby(...).map_groups(function(columns))``: a batch function over the columns of each group, as in Daft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias, Expr, PythonValue, UdfCall, unalias
from penstock.types import DataType, Schema, Series, to_arrow_array
from penstock.types.frozen import frozen


@frozen
class GroupCall:
    """A function from the table of a group to a table of its keys and the results."""

    function: Callable[..., Any]
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...]
    name: str
    dtype: DataType
    keys: tuple[str, ...]

    @staticmethod
    def of(expr: Expression, keys: tuple[str, ...]) -> GroupCall:
        """Return the function to run on each group, given the call of a batch function."""
        call = unalias(expr._node)
        if not isinstance(call, UdfCall) or not call.udf.target.is_batch or call.udf.target.is_class:
            raise InvalidArgumentError(f"map_groups takes a function, a class, or a call of a func.batch; got {expr!r}")
        dtype = call.udf.return_dtype
        return GroupCall(call.udf.target.function, call.args, call.kwargs, expr._node.name, dtype, keys)

    def __call__(self, group: pa.Table) -> pa.Table:
        batch = group.combine_chunks().to_batches()[0]
        named = {name: self._argument(value, batch) for name, value in self.kwargs}
        found = self.function(*(self._argument(arg, batch) for arg in self.args), **named)
        values = to_arrow_array(found, self.dtype, what=self.name)
        keys = {name: pa.repeat(group[name][0], len(values)) for name in self.keys}
        return pa.table({**keys, self.name: values})

    def _argument(self, expr: Expr, batch: pa.RecordBatch) -> Any:
        if isinstance(expr, PythonValue):
            return expr.value
        program = Program([Alias(expr, "argument")], Schema.from_arrow(batch.schema))
        return Series(program.run(batch).column(0), expr.name)
