"""The public functions of expressions by name, and the decorators that list them.

@method                 # penstock.functions.upper(col("t")) and col("t").upper()
def upper(expr): ...

@function               # penstock.functions.pi()
def pi(): ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from penstock.errors import InvalidArgumentError, PenstockError, shortened

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Every function of ``penstock.functions``."""
METHODS: dict[str, Callable[..., Any]] = {}
"""The functions that are methods of ``Expression`` too."""


def function(build: AnyCallable) -> AnyCallable:
    """List a public function, and let it raise InvalidArgumentError for arguments that it cannot use."""

    @functools.wraps(build)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return build(*args, **kwargs)
        except (AttributeError, LookupError, TypeError, ValueError) as exc:
            if isinstance(exc, PenstockError) or not _fit(build, args, kwargs):
                raise
            given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
            text = shortened(f"{build.__name__}({given})")
            raise InvalidArgumentError(f"{text} has an argument that does not fit: {exc}") from exc

    FUNCTIONS[build.__name__] = checked
    return cast(AnyCallable, checked)


def method(build: AnyCallable) -> AnyCallable:
    """List a public function that is a method of ``Expression`` too, which is its first argument."""
    METHODS[build.__name__] = checked = function(build)
    return checked


def _fit(build: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a function can be called with these arguments."""
    try:
        inspect.signature(build).bind(*args, **kwargs)
    except TypeError:
        return False
    return True
