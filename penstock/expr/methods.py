"""``Methods``: the functions of ``penstock.functions`` as methods of ``Expression``.

Type checkers read ``methods.pyi``, which ``make stubs`` writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MethodType
from typing import Any

from penstock.errors import did_you_mean
from penstock.expr.missing_functions import way_around
from penstock.expr.public_functions import METHODS
from penstock.expr.registry import load_functions


class Methods:
    """The functions that take an expression first; a module of them is loaded when one is used."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # libraries often look for their own protocols
            raise AttributeError(f"Expression has no attribute {name!r}.")
        load_functions(name, METHODS)
        if name not in METHODS:
            hint = way_around(name) or did_you_mean(name, dir(self))
            # With an object, Python would add a suggestion of its own.
            raise AttributeError(f"Expression has no method {name!r}.{hint}", name=name, obj=None)
        return MethodType(METHODS[name], self)

    def __dir__(self) -> Iterable[str]:
        load_functions()
        return [*object.__dir__(self), *METHODS]
