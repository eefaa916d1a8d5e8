"""The folder listing stays small enough to be drawn, and the modules that are named in text exist."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache

from tests.architecture.imports import PACKAGE, ROOT, package_modules, package_nodes

MAX_FOLDERS = 25
MAX_TOP_MODULES = 6
MAX_MODULES = 22  # in one folder

MODULE_NAME = re.compile(rf"`({PACKAGE}(?:\.[a-z_][a-z0-9_]*)+)`")
MODULE_PATH = re.compile(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.py)?)`")


def test_the_top_level_is_small() -> None:
    top = [path for path in (ROOT / PACKAGE).iterdir() if path.name != "__pycache__"]
    folders = [path.name for path in top if path.is_dir()]
    modules = [path.name for path in top if path.suffix == ".py"]
    assert len(folders) <= MAX_FOLDERS, folders
    assert len(modules) <= MAX_TOP_MODULES, modules


def test_no_folder_is_crowded() -> None:
    sizes = Counter(path.parent for path in (ROOT / PACKAGE).rglob("*.py") if path.name != "__init__.py")
    assert {str(folder): size for folder, size in sizes.items() if size > MAX_MODULES} == {}


def test_class_names_are_unique() -> None:
    modules = defaultdict(list)
    for module, module_nodes in package_nodes().items():
        for node in module_nodes:
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(module)
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}


def test_names_are_defined_where_a_search_finds_them() -> None:
    late = {
        f"{module}:{node.lineno}"
        for module, module_nodes in package_nodes().items()
        if module != PACKAGE and not module.startswith(f"{PACKAGE}.compat")
        for node in module_nodes
        if isinstance(node, ast.Call) and is_late_definition(node)
    }
    assert late == set()


def is_late_definition(call: ast.Call) -> bool:
    """Return True for ``globals()``, and for a method that is added to a class from outside."""
    match call:
        case ast.Call(func=ast.Name("globals")):
            return True
        case ast.Call(func=ast.Name("setattr"), args=[ast.Name("DataFrame" | "Expression" | "Series"), *_]):
            return True
    return False


def test_modules_named_in_pages_and_docstrings_exist() -> None:
    missing = [f"{where}: {name}" for where, text in texts() for name in named_modules(text) if not exists(name)]
    assert not missing, "\n".join(missing)


def texts() -> Iterator[tuple[str, str]]:
    """Yield the pages and the docstrings of the package, each with its place."""
    for page in (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        yield page.name, page.read_text()
    for module, module_nodes in package_nodes().items():
        for node in module_nodes:
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield module, ast.get_docstring(node) or ""


def named_modules(text: str) -> Iterator[str]:
    """Yield the names and paths in a text that can only mean a module or a folder of the package.

    >>> list(named_modules("``engine/executor.py``, `penstock.plan.nodes`, `out/`"))
    ['penstock.plan.nodes', 'engine/executor.py']
    """
    yield from MODULE_NAME.findall(text)
    yield from (path for path in MODULE_PATH.findall(text) if path.endswith(".py") or path.split("/")[0] in rooms())


@cache
def rooms() -> set[str]:
    return {path.name for path in (ROOT / PACKAGE).iterdir() if path.is_dir()}


def exists(name: str) -> bool:
    """Say whether a path, or a dotted name of a module or of something in it, is there."""
    if "/" in name:
        return (ROOT / PACKAGE / name).exists() or (ROOT / name).exists()
    module = name
    while module not in package_modules() and "." in module:
        module = module.rpartition(".")[0]
    if module in (name, PACKAGE):
        return True
    attribute = name.removeprefix(f"{module}.").split(".")[0]
    return any(attribute in names_of(node) for node in package_modules()[module].body)


def names_of(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name for alias in names}
        case _:
            return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
