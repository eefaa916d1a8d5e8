"""One row of a table of functions becomes a public function, a method of ``Expression``, its kernel and its example."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.expr.arrays import broadcast
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call, lit
from penstock.expr.kinds import ANY, INTEGER, NUMBER, TEXT, VECTOR, Kind
from penstock.expr.public_functions import method
from penstock.expr.registry import Kernel, Resolve, Value
from penstock.expr.signatures import strict, takes, text_kernel
from penstock.types import DataType

Builder = Callable[..., Expression]
Compute = str | Callable[..., pa.Array]
Parameters = Mapping[str, Kind | type | types.UnionType]
Vector: TypeAlias = Expression | Sequence[float] | np.ndarray[Any, Any]

_SAMPLE = 2048  # rows that show whether texts repeat

_HINTS = {
    ANY: "Any",
    INTEGER: "Expression | int",
    NUMBER: "Expression | float",
    TEXT: "Expression | str",
    VECTOR: "Vector",
}


class FunctionTable:
    """The functions of one module. A parameter is a column of a kind, or of a Python type if it is a constant.

    Parameters with ``| None`` may be left out. ``given`` and ``result`` are the example: the first value is a column.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def kernel(
        self,
        name: str,
        parameters: Parameters,
        returns: DataType | Resolve,
        compute: Compute,
        doc: str,
        given: tuple[Any, ...],
        result: Any,
        suffix: str | None = None,
    ) -> Builder:
        """Define a function by SQL over ``a``, ``b`` ..., or by a function of Arrow arrays; null gives null.

        ``suffix`` is added to the name of the column, which otherwise stays.
        """
        self.register(name, parameters, returns, compute)

        def build(column: Expression, *args: Any, **options: Any) -> Expression:
            built = call(name, column, *args, **options)
            return built if suffix is None else built.alias(f"{column.name()}_{suffix}")

        return self.build(name, parameters, build, doc, given, result)

    def register(self, name: str, parameters: Parameters, returns: DataType | Resolve, compute: Compute) -> None:
        """Register a kernel without a public function."""
        rule = takes(*_kinds(parameters), returns=returns)

        def run(*values: Value, **options: Any) -> Value:
            arrays, rows = broadcast(*values), None
            if len(arrays) == 1 and _repeats(arrays[0]):
                encoded = arrays[0].dictionary_encode(null_encoding="encode")
                arrays, rows = [encoded.dictionary], encoded.indices
            if isinstance(compute, str):
                from penstock.relational.scalar import evaluate

                array = evaluate(name, compute, arrays)
            else:
                array = compute(*arrays, **options)
            dtype = rule(*(DataType(value.type) for value in values), **options)
            array = cast(array, dtype=dtype, is_strict=True)
            if rows is not None:
                return array.take(rows)
            return array[0] if all(isinstance(value, pa.Scalar) for value in values) else array

        strict(name, rule)(run)

    def strict(
        self,
        name: str,
        parameters: Parameters,
        returns: DataType | Resolve,
        kernel: Kernel,
        doc: str,
        given: tuple[Any, ...],
        result: Any,
    ) -> Builder:
        """Define a function by a kernel of arrays or scalars that returns exactly the promised type."""
        strict(name, takes(*_kinds(parameters), returns=returns))(kernel)
        return self.call(name, parameters, doc, given, result)

    def text(
        self,
        name: str,
        parameters: Parameters,
        returns: DataType,
        compute: Callable[..., pa.Array],
        doc: str,
        given: tuple[Any, ...],
        result: Any,
        sql: str = "",
    ) -> Builder:
        """Define a function of text by ``compute(texts, *constants)``, and by ``sql`` where those are columns."""

        def compute_rows(columns: list[pa.Array]) -> pa.Array:
            from penstock.relational.scalar import evaluate

            return evaluate(name, sql, columns)

        rule = compute_rows if sql else None
        text_kernel(name, *_kinds(parameters)[1:], returns=returns, compute=compute, by_rows=rule)
        return self.call(name, parameters, doc, given, result)

    def call(
        self, name: str, parameters: Parameters, doc: str, given: tuple[Any, ...], result: Any, kernel: str = ""
    ) -> Builder:
        """Define a function that calls the kernel of its own name, or another one, which is registered elsewhere."""

        def build(*columns: Expression, **options: Any) -> Expression:
            return call(kernel or name, *columns, **options)

        return self.build(name, parameters, build, doc, given, result)

    def build(
        self,
        name: str,
        parameters: Parameters,
        builder: Builder,
        doc: str,
        given: tuple[Any, ...],
        result: Any,
    ) -> Builder:
        """Define a function by the expression that ``builder`` makes of its arguments."""
        signature = _signature(parameters)
        columns = [parameter for parameter, kind in parameters.items() if isinstance(kind, Kind)]

        def built(*args: Any, **kwargs: Any) -> Expression:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as exc:
                raise TypeError(f"{name}(): {exc}") from None
            bound.apply_defaults()
            options = {key: value for key, value in bound.arguments.items() if key not in columns}
            for key, value in options.items():
                if not isinstance(value, parameters[key]) or isinstance(value, bool):  # type: ignore[arg-type]
                    expected = getattr(parameters[key], "__name__", parameters[key])
                    raise InvalidArgumentError(f"{name}: {key} must be {expected}; got {value!r}")
            return builder(*(_column(bound.arguments[key]) for key in columns), **options)

        built.__module__, built.__name__, built.__qualname__ = self._module, name, name
        setattr(built, "__signature__", signature)  # noqa: B010  # unknown to type checkers
        text = ", ".join(['ps.col("x")', *map(repr, given[1:])])
        setup = ">>> import datetime\n    " if "datetime." in f"{given!r}{result!r}" else ""
        example = f'>>> ps.from_pydict({{"x": [{given[0]!r}]}}).select({name}({text}).alias("x")).to_pydict()'
        built.__doc__ = f"{doc}\n\n    {setup}{example}\n    {{'x': [{result!r}]}}\n    "
        return method(built)


def _kinds(parameters: Parameters) -> list[Kind]:
    return [kind for kind in parameters.values() if isinstance(kind, Kind)]


def _column(value: Any) -> Expression:
    return lit(value.tolist() if isinstance(value, np.ndarray) else value)  # an ndarray would become a tensor


def _repeats(texts: pa.Array) -> bool:
    """Guess whether an array has at most a quarter as many different texts as rows, so each is computed once.

    Of n random rows with d different values, about n * n / 2d repeat an earlier one.
    """
    if texts.type != pa.string() or len(texts) < 4 * _SAMPLE:
        return False
    sample = texts.take(np.random.default_rng(0).integers(0, len(texts), _SAMPLE))
    return bool(_SAMPLE - len(sample.unique()) >= 2 * _SAMPLE**2 / len(texts))


def _signature(parameters: Parameters) -> inspect.Signature:
    made = []
    for number, (name, kind) in enumerate(parameters.items()):
        options = kind.__args__ if isinstance(kind, types.UnionType) else (kind,)
        if isinstance(kind, Kind):
            hint = "Expression" if number == 0 else _HINTS.get(kind, "Expression")
        else:
            hint = " | ".join("None" if option is types.NoneType else option.__name__ for option in options)
        default = None if types.NoneType in options else inspect.Parameter.empty
        made.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=hint, default=default))
    return inspect.Signature(made, return_annotation="Expression")
