"""Functions of expressions. Most are methods of ``Expression`` too: ``upper(col("t"))`` is ``col("t").upper()``.

The package has every function that a module below defines under a public name. A module that also has helpers for other
modules names its functions in ``__all__``. Type checkers read ``__init__.pyi``, which ``make stubs`` writes.
"""

import importlib
import inspect
from types import FunctionType

from penstock.expr.column import checking_arguments, when
from penstock.expr.instead import way_around
from penstock.functions.table import generated

_MODULES = (
    *("aggregates", "ai", "calendar", "chunks", "core", "distances", "encodings", "files", "hashing", "image", "json"),
    *("lists", "media", "nested", "numeric", "patterns", "rows", "temporal", "text", "vector"),
)


def _functions_of(module_name: str) -> dict[str, FunctionType]:
    module = importlib.import_module(f"{__name__}.{module_name}")
    listed = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in listed}
    return {name: f for name, f in found.items() if inspect.isfunction(f) and f.__module__ == module.__name__}


_functions = {"when": when} | {name: f for module in _MODULES for name, f in _functions_of(module).items()}
_functions = {name: checking_arguments(function) for name, function in _functions.items()}
globals().update(_functions)
__all__ = sorted(_functions)
__test__ = generated  # doctest finds definitions, but not functions that a table makes


def __getattr__(name: str) -> object:
    raise AttributeError(f"penstock.functions has no function {name!r}.{way_around(name)}")
