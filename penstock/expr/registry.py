"""The functions that expressions call: a type rule and a kernel for each name.

A ``Call`` node names its function, so plans are plain data that can be compared, printed and pickled.

    @kernel("upper", resolve=text_to_text)
    def _upper(text):                       # arrays or scalars in, array or scalar out
        return pc.utf8_upper(text)
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
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
_unloaded: list[str] = []


def kernel(name: str, resolve: Resolve) -> Callable[[AnyCallable], AnyCallable]:
    """Register the decorated callable as the kernel of ``name``."""

    def register(compute: AnyCallable) -> AnyCallable:
        if name in _functions:
            raise ValueError(f"function {name!r} is registered twice")
        _functions[name] = Function(name, resolve, compute)
        return compute

    return register


def lookup(name: str) -> Function:
    """Return a function; import modules of kernels that are not loaded yet until one defines it."""
    while name not in _functions and load_next():
        pass
    return _functions[name]


def load_later(module: str) -> None:
    """Import ``module``, which registers kernels and methods, when a lookup fails: ``import penstock`` stays fast."""
    _unloaded.append(module)


def load_next() -> bool:
    """Import the next module of ``load_later``; return False if all are loaded."""
    for module in tuple(_unloaded):
        importlib.import_module(module)
        # Remove it only after the import: until then another thread imports it too, and waits for this import.
        with contextlib.suppress(ValueError):
            _unloaded.remove(module)
        return True
    return False
