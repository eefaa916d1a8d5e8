"""The public names and the parameters of what they name: users' programs depend on them.

After a deliberate change run ``python -m tests.architecture.test_public_names`` and review the diff of the JSON file.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

from penstock.expr.public_functions import METHODS

LIST = Path(__file__).with_name("public_names.json")
MODULES = ("penstock", "penstock.functions", "penstock.llm", "penstock.testing")
CLASSES = ("DataFrame", "DataType", "Expression", "Field", "File", "Schema", "Series")


def parameters(value: Any) -> list[str]:
    """Return the parameters as they are written in a signature, without hints and default values."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return []
    bare = [each.replace(annotation=each.empty, default=each.empty) for each in signature.parameters.values()]
    return [str(each) for each in bare]


def members(of: Any, names: list[str]) -> dict[str, list[str]]:
    return {name: parameters(value) if callable(value := getattr(of, name)) else [] for name in sorted(names)}


def is_own(cls: type, name: str) -> bool:
    """Return True for a public name, unless an adapter for programs of other systems has added it."""
    value = inspect.getattr_static(cls, name)
    module = getattr(getattr(value, "fget", value), "__module__", None) or ""
    return not name.startswith("_") and not module.startswith("penstock.compat")


def public_names() -> dict[str, dict[str, list[str]]]:
    """Return the parameters of each public name, for each public module and class."""
    found = {name: members(module, module.__all__) for name in MODULES if (module := importlib.import_module(name))}
    for name in CLASSES:
        cls = getattr(importlib.import_module("penstock"), name)
        found[f"penstock.{name}"] = members(cls, [each for each in dir(cls) if is_own(cls, each)])
    found["penstock.Expression"] |= {
        name: parameters(method)
        for name, method in METHODS.items()
        if method.__module__.startswith("penstock.functions.")
    }
    return {name: dict(sorted(names.items())) for name, names in found.items()}


def test_public_names_and_their_parameters_stay() -> None:
    assert public_names() == json.loads(LIST.read_text())


if __name__ == "__main__":
    LIST.write_text(json.dumps(public_names(), indent=1) + "\n")
