"""The functions an expression may call: for each a type rule and a kernel, found by name.

A ``Call`` node names its function, so plans stay plain data that can be compared, printed and pickled.

    @kernel("upper", resolve=text_to_text)
    def _upper(text):                       # arrays or scalars in, array or scalar out
        return pc.utf8_upper(text)
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from penstock.types import DataType

Value: TypeAlias = pa.Array | pa.Scalar
Resolve = Callable[..., DataType]
Kernel = Callable[..., Value]
AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Function:
    """``resolve(*dtypes, **options)`` gives the result's type or raises TypeMismatchError.

    ``kernel(*values, **options)`` computes it. A value is an Arrow array of the batch's length, or a scalar for a
    constant.
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
    """Return a function; the modules of kernels not loaded yet are imported until it is there."""
    while name not in _functions and load_next():
        pass
    return _functions[name]


def load_later(module: str) -> None:
    """Import ``module``, which registers kernels and methods, once one is missed, so ``import penstock`` is quick."""
    _unloaded.append(module)


def load_next() -> bool:
    """Import the next module that waits; False if there is none."""
    for module in tuple(_unloaded):
        importlib.import_module(module)
        # Off the list only now that it is complete: until then another thread must import it too, which is to wait.
        with contextlib.suppress(ValueError):
            _unloaded.remove(module)
        return True
    return False
