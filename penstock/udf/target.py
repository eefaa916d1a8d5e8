"""From a spec to something to call: built in the worker, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.expr.udf import BatchSpec, UdfSpec


def built_target(spec: UdfSpec | BatchSpec) -> tuple[Callable[..., Any], Any]:
    """Return the callable of a spec, and the instance behind it, None for a plain function."""
    if isinstance(spec, UdfSpec) and spec.method is not None:
        instance = spec.target(*spec.init_args, **dict(spec.init_kwargs))
        return getattr(instance, spec.method), instance
    if isinstance(spec, BatchSpec) and spec.is_class:
        instance = spec.target(*spec.init_args, **dict(spec.init_kwargs))
        return instance, instance
    return spec.target, None


def close_instance(instance: Any) -> None:
    """Call ``close()`` of a user's object if it has one."""
    close = getattr(instance, "close", None)
    if callable(close):
        close()
