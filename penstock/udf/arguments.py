"""The arguments of a UDF call for a batch: columns computed by expressions, and constants."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.expr.arrays import repeat
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias, Call, Expr, Literal, PythonValue, UdfCall, unalias
from penstock.types import Schema, Series
from penstock.types.row_numbers import POSITION, ROW_NUMBER
from penstock.udf.parameters import as_pil, pil_arguments

TEMPLATE = "template"  # the name of a filled template in messages
MAX_TEXT_LENGTH = 200  # characters of the text columns that identify a row


class Arguments:
    """Evaluates the arguments of a call."""

    def __init__(self, call: UdfCall) -> None:
        self._exprs = [unalias(expr) for expr in call.arguments]
        self._names = [name for name, _ in call.kwargs]
        self._num_positional = len(call.args)
        self._constants = {i: _constant(e) for i, e in enumerate(self._exprs) if isinstance(e, (Literal, PythonValue))}
        computed = [expr for i, expr in enumerate(self._exprs) if i not in self._constants]
        self._columns = Columns(computed)
        self._column_names = [expr.name for expr in computed]
        self._labels = [TEMPLATE if is_template(expr) else expr.name for expr in computed]
        images = set() if call.udf.target.is_batch else pil_arguments(call)
        self._wants_pil = [i in images for i in range(len(self._exprs)) if i not in self._constants]

    def series(self, batch: pa.RecordBatch) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a batch function: a Series for each column, constants unchanged."""
        columns = map(Series, self.arrays(batch), self._column_names)
        values = [self._constants[i] if i in self._constants else next(columns) for i in range(len(self._exprs))]
        positional, keywords = values[: self._num_positional], values[self._num_positional :]
        return positional, dict(zip(self._names, keywords, strict=True))

    def rows(
        self, batch: pa.RecordBatch, function: Callable[..., Any], keys: Sequence[Any] | None = None
    ) -> Iterator[Any]:
        """Return an iterator that calls ``function`` with each row, and with its key as first argument, if given.

        It is a ``map`` over lists: no Python code of the engine runs between two calls, and it continues after an
        exception.
        """
        columns = zip(self.arrays(batch), self._wants_pil, strict=True)
        lists = iter(
            [
                as_pil(Series(array).to_pylist()) if wants_pil else Series(array).to_pylist()
                for array, wants_pil in columns
            ]
        )
        values: list[Any] = [
            itertools.repeat(self._constants[i]) if i in self._constants else next(lists)
            for i in range(len(self._exprs))
        ]
        num_positional = self._num_positional
        if keys is not None:
            values.insert(0, keys)
            num_positional += 1
        if not self._column_names:
            values.append(range(batch.num_rows))  # sets the number of calls
            return map(lambda *args: _spread(function, args[:-1], num_positional, self._names), *values)
        if self._names:
            return map(lambda *args: _spread(function, args, num_positional, self._names), *values)
        return map(function, *values)

    def row_values(self, batch: pa.RecordBatch, row: int) -> dict[str, Any]:
        """Return the values of one row by column name, for messages; a second column of the same name is numbered. A
        filled template is no column of the user, so it has a name of its own.

        If they do not identify the row (bytes, images), add its other short texts and numbers.
        """
        values: dict[str, Any] = {}
        for name, array in zip(self._labels, self.arrays(batch.slice(row, 1)), strict=True):
            number = sum(known == name or known.startswith(f"{name} (") for known in values)
            values[f"{name} ({number + 1})" if number else name] = Series(array).to_pylist()[0]
        if not all(_is_short(value) for value in values.values()):
            for field, column in zip(batch.schema, batch.columns, strict=True):
                if field.name not in (*values, ROW_NUMBER, POSITION) and _is_short(value := column[row].as_py()):
                    values[field.name] = value
        return values

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return self._columns.arrays(batch)


def is_template(expr: Expr) -> bool:
    """Return True for a template that holds more than one column alone."""
    return (
        isinstance(expr, Call)
        and expr.function == "format"
        and (len(expr.args) > 1 or any(dict(expr.options)["texts"]))
    )


class Columns:
    """Evaluates expressions; compiled for the first batch, and again if the schema changes."""

    def __init__(self, exprs: Sequence[Expr]) -> None:
        self._exprs = [Alias(expr, str(number)) for number, expr in enumerate(exprs)]
        self._schema: pa.Schema | None = None
        self._program: Program | None = None

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if not self._exprs:
            return []
        if self._program is None or not batch.schema.equals(self._schema):
            self._schema = batch.schema
            self._program = Program(self._exprs, Schema.from_arrow(batch.schema))
        return [
            repeat(value, batch.num_rows) if isinstance(value, pa.Scalar) else value
            for value in self._program.values(batch)
        ]


def _is_short(value: Any) -> bool:
    return isinstance(value, (bool, int, float, Decimal)) or (isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH)


def _constant(expr: Literal | PythonValue) -> Any:
    return expr.value if isinstance(expr, PythonValue) else expr.scalar.as_py()


def _spread(function: Callable[..., Any], args: tuple[Any, ...], num_positional: int, names: list[str]) -> Any:
    return function(*args[:num_positional], **dict(zip(names, args[num_positional:], strict=True)))
