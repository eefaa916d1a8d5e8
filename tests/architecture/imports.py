"""Who imports whom in the package, read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "penstock"


@dataclass(frozen=True)
class Import:
    """One imported name, such as ``penstock.expr.nodes`` or ``pyarrow.compute``."""

    target: str
    line: int
    is_lazy: bool = False  # inside a function: happens when that is called
    is_typing: bool = False  # under ``if TYPE_CHECKING``: never happens


@cache
def package_modules() -> dict[str, ast.Module]:
    """Return the parsed source of every module of the package, by dotted name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for path in sorted((ROOT / PACKAGE).rglob("*.py"))
    }


@cache
def package_nodes() -> dict[str, list[ast.AST]]:
    """Return the nodes of every module. To walk them once takes longer than all checks together."""
    return {module: list(ast.walk(tree)) for module, tree in package_modules().items()}


@cache
def package_imports() -> dict[str, list[Import]]:
    """Return the imports of every module."""
    return {module: list(imports_of(tree)) for module, tree in package_modules().items()}


def imports_of(tree: ast.AST, is_lazy: bool = False, is_typing: bool = False) -> Iterator[Import]:
    """Yield the imports of a module, those inside functions included.

    ``from a import b`` gives ``a.b``: whether ``b`` is a module or a name in ``a`` is for `resolve` to say.
    """
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from (Import(alias.name, node.lineno, is_lazy, is_typing) for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (Import(f"{module}.{alias.name}", node.lineno, is_lazy, is_typing) for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield Import(name, node.lineno, is_lazy, is_typing)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), body=body):
                yield from imports_of(ast.Module(body, []), is_lazy, is_typing=True)
                yield from imports_of(ast.Module(node.orelse, []), is_lazy, is_typing)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from imports_of(node, is_lazy=True, is_typing=is_typing)
            case _:
                yield from imports_of(node, is_lazy, is_typing)


def resolve(target: str, modules: dict[str, ast.Module]) -> str | None:
    """Return the module of the package that an import loads, or None for one from elsewhere."""
    if target.split(".")[0] != PACKAGE:
        return None
    while target not in modules and "." in target:
        target = target.rpartition(".")[0]
    return target
