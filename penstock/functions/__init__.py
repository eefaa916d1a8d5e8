"""Functions of expressions. Most are methods of ``Expression`` too: ``upper(col("t"))`` is ``col("t").upper()``.

A public function is a definition under ``@function`` or ``@method`` (``expr/public_functions.py``), or an assignment
of a row of a ``FunctionTable`` (``table.py``). Read ``core`` and ``table`` first, then any family: ``numeric``,
``text``, ``substrings``, ``regular_expressions``, ``encodings``, ``json``, ``temporal``, ``calendar``, ``lists``,
``nested``, ``vector``, ``hashing``, ``rows``, ``aggregates``. ``calls`` runs a function in a stage of its own, as
``files``, ``image``, ``media`` and ``chunks`` need it. ``ai`` calls models.

The room may import every room up to ``ai/`` and ``media/``, not ``frame/`` or ``jobs/``. Type checkers read
``__init__.pyi``, which ``make stubs`` writes.
"""

from typing import Any

from penstock.errors import did_you_mean
from penstock.expr.column import when as when
from penstock.expr.missing_functions import way_around
from penstock.expr.public_functions import FUNCTIONS, function
from penstock.expr.registry import load_functions

# A name is looked up in one module after another, so modules that import much come last.
MODULES = (
    *("aggregates", "core", "numeric", "text", "lists", "nested", "rows", "temporal", "calendar", "vector"),
    *("substrings", "regular_expressions", "json", "encodings", "hashing", "chunks", "image", "files", "media", "ai"),
)
function(when)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name in MODULES or name.startswith("_"):
        raise AttributeError(name)  # the import of a module asks for it first
    load_functions(name, FUNCTIONS)
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    hint = way_around(name) or did_you_mean(name, FUNCTIONS)
    # With an object, Python would add a suggestion of its own.
    raise AttributeError(f"penstock.functions has no function {name!r}.{hint}", name=name, obj=None)


def __dir__() -> list[str]:
    load_functions()
    return sorted(FUNCTIONS)
