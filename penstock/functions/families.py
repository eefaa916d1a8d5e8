"""Families of functions of one argument, in which only the name, the kernel and the description differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.expr.column import Expression, call, method
from penstock.expr.kinds import Kind
from penstock.expr.registry import Resolve
from penstock.expr.signatures import strict, takes
from penstock.types import DataType

UnaryFunction: TypeAlias = Callable[[Expression], Expression]

generated: dict[str, UnaryFunction] = {}
"""Every function made here. ``penstock.functions`` lists them for doctest, which otherwise only sees definitions."""


def unary(
    module: str,
    name: str,
    kernel: Callable[..., Any],
    kind: Kind,
    returns: DataType | Resolve,
    doc: str,
    given: Any,
    result: Any,
    *,
    takes_list: bool = False,
) -> UnaryFunction:
    """Register ``kernel`` under ``name`` and return the public function that calls it."""
    strict(name, takes(kind, returns=returns))(kernel)
    return unary_call(module, name, name, doc, given, result, takes_list=takes_list)


def unary_call(
    module: str, name: str, kernel_name: str, doc: str, given: Any, result: Any, *, takes_list: bool = False
) -> UnaryFunction:
    """Return a public function that calls a registered kernel; it is a method of ``Expression`` too.

    Its docstring is ``doc`` and an example: a column with the value ``given`` gives ``result``.
    """

    def of_values(expr: Expression) -> Expression:
        return call(kernel_name, expr)

    def of_lists(list_expr: Expression) -> Expression:
        return call(kernel_name, list_expr)

    function = of_lists if takes_list else of_values
    function.__module__, function.__name__, function.__qualname__ = module, name, name
    setup = ">>> import datetime\n    " if "datetime." in repr(given) else ""
    example = f'>>> ps.from_pydict({{"x": [{given!r}]}}).select({name}(ps.col("x"))).to_pydict()'
    function.__doc__ = f"{doc}\n\n    {setup}{example}\n    {{'x': [{result!r}]}}\n    "
    generated[name] = method(function)
    return function
