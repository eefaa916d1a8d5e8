"""The arguments of a UDF call on one batch: columns computed by expressions, constants passed as they are."""

from __future__ import annotations

import inspect
import itertools
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.expr.arrays import repeat
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias, Literal, PythonValue, UdfCall, unalias
from penstock.storage.file import File
from penstock.types import DataType, Schema, Series, cast


class Arguments:
    """Binds a call's arguments to batches; compiled on the first batch, and again if its schema changes."""

    def __init__(self, call: UdfCall) -> None:
        self._exprs = [unalias(expr) for expr in call.children]
        self._names = [name for name, _ in call.kwargs]
        self._num_positional = len(call.args)
        self._constants = {i: _constant(e) for i, e in enumerate(self._exprs) if isinstance(e, (Literal, PythonValue))}
        self._computed = [Alias(expr, str(i)) for i, expr in enumerate(self._exprs) if i not in self._constants]
        self._column_names = [expr.child.name for expr in self._computed]
        hints = _file_hints(call)
        self._file_dtypes = [hints.get(i) for i in range(len(self._exprs)) if i not in self._constants]
        self._schema: pa.Schema | None = None
        self._program: Program | None = None

    def series(self, batch: pa.RecordBatch) -> tuple[list[Any], dict[str, Any]]:
        """Return what a batch function is called with: Series for columns, constants as they are."""
        columns = map(Series, self._arrays(batch), self._column_names)
        values = [self._constants[i] if i in self._constants else next(columns) for i in range(len(self._exprs))]
        positional, keywords = values[: self._num_positional], values[self._num_positional :]
        return positional, dict(zip(self._names, keywords, strict=True))

    def rows(self, batch: pa.RecordBatch, function: Callable[..., Any]) -> Iterator[Any]:
        """Return an iterator that calls ``function`` on one row after the other.

        It is a ``map`` over lists, so that nothing of ours runs between two calls.
        """
        lists = iter([Series(array).to_pylist() for array in self._arrays(batch)])
        values: list[Any] = [
            itertools.repeat(self._constants[i]) if i in self._constants else next(lists)
            for i in range(len(self._exprs))
        ]
        if not self._computed:
            values.append(range(batch.num_rows))  # nothing else says how often to call
            return map(lambda *args: _spread(function, args[:-1], self._num_positional, self._names), *values)
        if self._names:
            return map(lambda *args: _spread(function, args, self._num_positional, self._names), *values)
        return map(function, *values)

    def at(self, batch: pa.RecordBatch, row: int) -> dict[str, Any]:
        """Return the values of one row by column, to tell of it; a second of the same name is numbered."""
        values: dict[str, Any] = {}
        for name, array in zip(self._column_names, self._arrays(batch.slice(row, 1)), strict=True):
            number = sum(known == name or known.startswith(f"{name} (") for known in values)
            values[f"{name} ({number + 1})" if number else name] = Series(array).to_pylist()[0]
        return values

    def _arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if not self._computed:
            return []
        if self._program is None or not batch.schema.equals(self._schema):
            self._schema = batch.schema
            self._program = Program(self._computed, Schema.from_arrow(batch.schema))
        arrays = [
            repeat(value, batch.num_rows) if isinstance(value, pa.Scalar) else value
            for value in self._program.values(batch)
        ]
        return [_as_files(array, dtype) for array, dtype in zip(arrays, self._file_dtypes, strict=True)]


def _as_files(array: pa.Array, dtype: DataType | None) -> pa.Array:
    """Return paths, or bytes, as files where the parameter is annotated with ``File``."""
    found = DataType(array.type)
    can_be_file = found.is_string() or found.is_binary() or found.is_file()
    return array if dtype is None or not can_be_file else cast(array, dtype)


def _file_hints(call: UdfCall) -> dict[int, DataType]:
    """Return the type of each argument whose parameter is annotated with ``File`` or a class of it."""
    spec = call.udf
    function = spec.target if spec.method is None else getattr(spec.target, spec.method)
    try:
        hints = typing.get_type_hints(function)
        names = list(inspect.signature(function).parameters)[0 if spec.method is None else 1 :]
    except (NameError, TypeError, ValueError):  # names only a type checker knows, or a function of C
        return {}
    given = [*names[: len(call.args)], *(name for name, _ in call.kwargs)]
    dtypes = {number: _file_dtype(hints.get(name)) for number, name in enumerate(given)}
    return {number: dtype for number, dtype in dtypes.items() if dtype is not None}


def _file_dtype(hint: Any) -> DataType | None:
    kinds = [arg for arg in typing.get_args(hint) or (hint,) if isinstance(arg, type) and issubclass(arg, File)]
    return DataType.from_hint(kinds[0]) if kinds else None


def _constant(expr: Literal | PythonValue) -> Any:
    return expr.value if isinstance(expr, PythonValue) else expr.scalar.as_py()


def _spread(function: Callable[..., Any], args: tuple[Any, ...], num_positional: int, names: list[str]) -> Any:
    return function(*args[:num_positional], **dict(zip(names, args[num_positional:], strict=True)))
