"""The functions an expression may call: for each a type rule and a kernel, found by name.

A ``Call`` node names its function, so plans stay plain data that can be compared, printed and pickled.

    @kernel("upper", resolve=text_to_text)
    def _upper(text):                       # arrays or scalars in, array or scalar out
        return pc.utf8_upper(text)
"""

from __future__ import annotations

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


def kernel(name: str, resolve: Resolve) -> Callable[[AnyCallable], AnyCallable]:
    """Register the decorated callable as the kernel of ``name``."""

    def register(compute: AnyCallable) -> AnyCallable:
        if name in _functions:
            raise ValueError(f"function {name!r} is registered twice")
        _functions[name] = Function(name, resolve, compute)
        return compute

    return register


def lookup(name: str) -> Function:
    return _functions[name]
