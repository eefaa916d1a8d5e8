"""Import transformers without the large packages that its models rarely need.

It imports scikit-learn for assisted generation and SciPy for training object detectors: one function of each, which
together take a quarter of the start of an encoder. Here these functions are imported at their first call.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

SHARED = ("transformers.modeling_utils", "transformers.generation.utils")
RARELY_NEEDED = ("sklearn.metrics", "scipy.optimize")


def import_transformers() -> None:
    """Import the classes that all models of transformers share."""
    with functions_imported_later(*RARELY_NEEDED):
        for name in SHARED:
            importlib.import_module(name)


@contextmanager
def functions_imported_later(*names: str) -> Iterator[None]:
    """Let ``from NAME import function`` import the named module when the function is first called."""
    stand_ins = {name: _StandIn(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


class _StandIn(ModuleType):
    """A module whose attributes are functions that import the real module when they are called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*args, **kwargs)

        return call
