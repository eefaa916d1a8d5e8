"""The arguments of a UDF call on one batch: columns computed by expressions, constants passed as they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.expr.arrays import repeat
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias, Literal, PythonValue, UdfCall, unalias
from penstock.types import DataType, Schema, Series
from penstock.udf.pil_images import as_pil, pil_arguments

MAX_TOLD = 200  # characters of a text that is recorded with a failed row without being an argument


class Arguments:
    """Binds a call's arguments to batches; compiled on the first batch, and again if its schema changes."""

    def __init__(self, call: UdfCall) -> None:
        self._exprs = [unalias(expr) for expr in call.children]
        self._names = [name for name, _ in call.kwargs]
        self._num_positional = len(call.args)
        self._constants = {i: _constant(e) for i, e in enumerate(self._exprs) if isinstance(e, (Literal, PythonValue))}
        self._computed = [Alias(expr, str(i)) for i, expr in enumerate(self._exprs) if i not in self._constants]
        self._column_names = [expr.child.name for expr in self._computed]
        images = set() if call.udf.target.is_batch else pil_arguments(call)
        self._wants_pil = [i in images for i in range(len(self._exprs)) if i not in self._constants]
        self._schema: pa.Schema | None = None
        self._program: Program | None = None

    def series(self, batch: pa.RecordBatch) -> tuple[list[Any], dict[str, Any]]:
        """Return what a batch function is called with: Series for columns, constants as they are."""
        columns = map(Series, self.arrays(batch), self._column_names)
        values = [self._constants[i] if i in self._constants else next(columns) for i in range(len(self._exprs))]
        positional, keywords = values[: self._num_positional], values[self._num_positional :]
        return positional, dict(zip(self._names, keywords, strict=True))

    def rows(
        self, batch: pa.RecordBatch, function: Callable[..., Any], keys: Sequence[Any] | None = None
    ) -> Iterator[Any]:
        """Return an iterator that calls ``function`` on one row after the other, with its key first if there are any.

        It is a ``map`` over lists, so that nothing of ours runs between two calls.
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
        if not self._computed:
            values.append(range(batch.num_rows))  # nothing else says how often to call
            return map(lambda *args: _spread(function, args[:-1], num_positional, self._names), *values)
        if self._names:
            return map(lambda *args: _spread(function, args, num_positional, self._names), *values)
        return map(function, *values)

    def at(self, batch: pa.RecordBatch, row: int) -> dict[str, Any]:
        """Return the values of one row by column, to tell of it; a second of the same name is numbered."""
        values: dict[str, Any] = {}
        for name, array in zip(self._column_names, self.arrays(batch.slice(row, 1)), strict=True):
            number = sum(known == name or known.startswith(f"{name} (") for known in values)
            values[f"{name} ({number + 1})" if number else name] = Series(array).to_pylist()[0]
        return values

    def told(self, batch: pa.RecordBatch, row: int) -> dict[str, Any]:
        """Return the values of one row, to record it.

        Where they do not tell by themselves which row it is, as bytes and images do not, its other columns that are
        short texts or numbers are there as well.
        """
        values = self.at(batch, row)
        if all(_is_short(value) for value in values.values()):
            return values
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if field.name not in values and _is_plain(field.type):
                value = column[row].as_py()
                if value is not None and _is_short(value):
                    values[field.name] = value
        return values

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns that the call is given, without its constants."""
        if not self._computed:
            return []
        if self._program is None or not batch.schema.equals(self._schema):
            self._schema = batch.schema
            self._program = Program(self._computed, Schema.from_arrow(batch.schema))
        return [
            repeat(value, batch.num_rows) if isinstance(value, pa.Scalar) else value
            for value in self._program.values(batch)
        ]


def _is_plain(arrow: pa.DataType) -> bool:
    dtype = DataType(arrow)
    return dtype.is_string() or dtype.is_numeric()


def _is_short(value: Any) -> bool:
    return isinstance(value, (bool, int, float, Decimal)) or (isinstance(value, str) and len(value) <= MAX_TOLD)


def _constant(expr: Literal | PythonValue) -> Any:
    return expr.value if isinstance(expr, PythonValue) else expr.scalar.as_py()


def _spread(function: Callable[..., Any], args: tuple[Any, ...], num_positional: int, names: list[str]) -> Any:
    return function(*args[:num_positional], **dict(zip(names, args[num_positional:], strict=True)))
