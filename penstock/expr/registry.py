"""The functions that expressions call: a type rule and a kernel for each name.

A ``Call`` node names its function, so plans are plain data that can be compared, printed and pickled.

    @kernel("upper", resolve=text_to_text)
    def _upper(text):                       # arrays or scalars in, array or scalar out
        return pc.utf8_upper(text)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from penstock.types import DataType
from penstock.types.frozen import frozen

Value: TypeAlias = pa.Array | pa.Scalar
Resolve = Callable[..., DataType]
Kernel = Callable[..., Value]
AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


@frozen
class Function:
    """The type rule and the kernel of a function.

    ``resolve(*dtypes, **options)`` returns the type of the result or raises TypeMismatchError. ``kernel(*values,
    **options)`` computes it. A value is an Arrow array of the length of the batch, or a scalar for a constant.
    """

    name: str
    resolve: Resolve
    kernel: Kernel


_functions: dict[str, Function] = {}
_OPERATORS, _PUBLIC = "penstock.expr.operators", "penstock.functions"
"""The modules of kernels, named because ``functions/`` stands above. They load late, so ``import penstock`` is fast."""


def kernel(name: str, resolve: Resolve) -> Callable[[AnyCallable], AnyCallable]:
    """Register the decorated callable as the kernel of ``name``."""

    def register(compute: AnyCallable) -> AnyCallable:
        if name in _functions:
            raise ValueError(f"function {name!r} is registered twice")
        _functions[name] = Function(name, resolve, compute)
        return compute

    return register


def lookup(name: str) -> Function:
    """Return a function, loading the modules of kernels until one defines it."""
    if name not in _functions:
        importlib.import_module(_OPERATORS)
    if name not in _functions:
        load_functions(name, _functions)
    return _functions[name]


def load_functions(name: str = "", among: Container[str] = ()) -> None:
    """Load the public functions with their kernels, one module after the other until ``name`` is among them."""
    for module in importlib.import_module(_PUBLIC).MODULES:
        if name in among:
            return
        importlib.import_module(f"{_PUBLIC}.{module}")
