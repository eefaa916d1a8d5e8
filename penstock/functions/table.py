"""One row of a table of functions becomes a public function, a method of ``Expression``, its kernel and its example."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.expr.column import Expression, call, lit
from penstock.expr.kinds import ANY, INTEGER, NUMBER, TEXT, VECTOR, Kind
from penstock.expr.public_functions import method
from penstock.expr.registry import Kernel, Resolve
from penstock.expr.signatures import strict, takes, text_kernel
from penstock.types import DataType

Builder = Callable[..., Expression]
Parameters = Mapping[str, Kind]
Vector: TypeAlias = Expression | Sequence[float] | np.ndarray[Any, Any]

_HINTS = {
    ANY: "Any",
    INTEGER: "Expression | int",
    NUMBER: "Expression | float",
    TEXT: "Expression | str",
    VECTOR: "Vector",
}


class FunctionTable:
    """The functions of one module, whose parameters are columns. ``given`` and ``result`` are the example."""

    def __init__(self, module: str) -> None:
        self._module = module

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
        strict(name, takes(*parameters.values(), returns=returns))(kernel)
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
        text_kernel(name, *list(parameters.values())[1:], returns=returns, compute=compute, by_rows=rule)
        return self.call(name, parameters, doc, given, result)

    def call(
        self, name: str, parameters: Parameters, doc: str, given: tuple[Any, ...], result: Any, kernel: str = ""
    ) -> Builder:
        """Define a function that calls the kernel of its own name, or the kernel ``kernel``, both registered
        elsewhere.
        """

        def build(*columns: Expression) -> Expression:
            return call(kernel or name, *columns)

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

        def built(*args: Any, **kwargs: Any) -> Expression:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as exc:
                raise TypeError(f"{name}(): {exc}") from None
            return builder(*map(_column, bound.arguments.values()))

        built.__module__, built.__name__, built.__qualname__ = self._module, name, name
        setattr(built, "__signature__", signature)  # noqa: B010  # unknown to type checkers
        text = ", ".join(['ps.col("x")', *map(repr, given[1:])])
        setup = ">>> import datetime\n    " if "datetime." in f"{given!r}{result!r}" else ""
        example = f'>>> ps.from_pydict({{"x": [{given[0]!r}]}}).select({name}({text}).alias("x")).to_pydict()'
        built.__doc__ = f"{doc}\n\n    {setup}{example}\n    {{'x': [{result!r}]}}\n    "
        return method(built)


def _column(value: Any) -> Expression:
    return lit(value.tolist() if isinstance(value, np.ndarray) else value)  # an ndarray would become a tensor


def _signature(parameters: Parameters) -> inspect.Signature:
    hints = ["Expression", *(_HINTS.get(kind, "Expression") for kind in list(parameters.values())[1:])]
    made = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=hint)
        for name, hint in zip(parameters, hints, strict=True)
    ]
    return inspect.Signature(made, return_annotation="Expression")
