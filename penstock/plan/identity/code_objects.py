"""What compiled code does, as data: its instructions without places in files, and what it refers to by name.

Also whose a module is: the user's, whose functions are known by their code, or a library's, whose are known by name.
"""

from __future__ import annotations

import dis
import functools
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_CALLING_FLAGS = 0x04 | 0x08 | 0x20 | 0x80 | 0x100 | 0x200  # *args, **kwargs, generators, coroutines
_CONSTANTS, _NAMES, _LOCALS, _CELLS = map(frozenset, (dis.hasconst, dis.hasname, dis.haslocal, dis.hasfree))
_GLOBALS = frozenset(dis.opmap[name] for name in ("LOAD_GLOBAL", "LOAD_NAME"))
_ATTRIBUTES = frozenset(dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap)
_OF_PLACE = ("__qualname__", "__firstlineno__")  # what a class body says of where it stands
_LIBRARIES = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_LIBRARY_FOLDERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OURS = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Imported:
    """An import inside a function: ``from <level dots>module import names``."""

    module: str
    level: int
    names: tuple[str, ...]


@dataclass(slots=True)
class CodeParts:
    """What code does. ``steps`` are pairs of an instruction and its operand: a constant, a name or a number."""

    call: tuple[Any, ...]
    steps: list[tuple[int, Any]] = field(default_factory=list)
    paths: set[tuple[str, ...]] = field(default_factory=set)  # of globals that are read, with the attributes behind
    imports: set[Imported] = field(default_factory=set)
    handlers: bytes = b""


def parts_of(code: CodeType) -> CodeParts:
    """Take code apart. Constants are found by value, so a docstring, which nothing loads, is no part of it."""
    num_named = code.co_argcount + code.co_kwonlyargcount
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _CALLING_FLAGS)
    parts = CodeParts((*counts, *code.co_varnames[:num_named]), handlers=code.co_exceptiontable)
    steps = list(dis.get_instructions(code))
    for at, step in enumerate(steps):
        if step.opcode in _CONSTANTS:
            is_of_place = at + 1 < len(steps) and steps[at + 1].argval in _OF_PLACE
            parts.steps.append((step.opcode, None if is_of_place else step.argval))
        elif step.opcode in _NAMES:
            parts.steps.append((step.opcode, step.argrepr))
        elif step.opcode in _CELLS and step.opcode not in _LOCALS:
            parts.steps.append((step.opcode, step.argval))
        else:
            parts.steps.append((step.opcode, step.arg))
        if step.opcode in _GLOBALS:
            parts.paths.add((step.argval, *_attributes_behind(steps, at)))
        elif step.opname == "IMPORT_NAME":
            parts.imports.add(_imported(steps, at))
    return parts


def _attributes_behind(steps: list[dis.Instruction], at: int) -> Iterator[str]:
    for step in steps[at + 1 :]:
        if step.opcode not in _ATTRIBUTES:
            return
        yield step.argval


def _imported(steps: list[dis.Instruction], at: int) -> Imported:
    level, names = (step.argval for step in steps[at - 2 : at])
    return Imported(steps[at].argval, level if isinstance(level, int) else 0, tuple(names or ()))


@functools.cache
def is_users(module_name: str) -> bool:
    """Say whether a module is the user's own: one that is neither installed nor part of Python or of penstock."""
    if module_name.partition(".")[0] == _OURS:
        return False
    if module_name in ("__main__", "__mp_main__"):
        return True
    module = sys.modules.get(module_name)
    if module is None:
        return module_name not in sys.builtin_module_names and module_name not in sys.stdlib_module_names
    file = getattr(module, "__file__", None)
    if file is None:  # made by hand, as notebooks do, or built into Python, or a folder
        return module_name.partition(".")[0] not in (*sys.builtin_module_names, *sys.stdlib_module_names)
    return is_users_file(file)


def is_users_file(path: str) -> bool:
    real = os.path.realpath(path)
    return not (real.startswith(_LIBRARIES) or any(folder in real for folder in _LIBRARY_FOLDERS))


@functools.cache
def version_of(module_name: str) -> str:
    """Return the version of what a module belongs to; nothing for Python's own, for penstock's, or where none is told.

    Penstock's is left out so that work that was begun goes on after an upgrade.
    """
    top = module_name.partition(".")[0]
    if top == _OURS or top in sys.stdlib_module_names or top == "__main__":
        return ""
    told = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(told, str):
        return told
    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        return ""


def is_reachable(thing: Any, module_name: str, qualname: str) -> bool:
    """Say whether a function or class is what its module has under its name, and not one made by a function."""
    found: Any = sys.modules.get(module_name)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found is thing


def module_files(imported: Imported, package: str) -> dict[str, str]:
    """Return the user's own source files that an import reads, by the names of their modules. Imports nothing."""
    base = imported.module
    if imported.level:
        above = package.split(".")[: len(package.split(".")) - imported.level + 1]
        base = ".".join([*above, base] if base else above)
    found = {}
    for name in (base, *(f"{base}.{each}" for each in imported.names)):
        path = _source_file(name)
        if path is not None and is_users_file(path):
            found[name] = path
    return found


def source_of(module: ModuleType) -> str | None:
    """Return the source file of a user's module."""
    file = getattr(module, "__file__", None)
    return file if file and file.endswith(".py") and os.path.exists(file) else None


def _source_file(name: str) -> str | None:
    top, *below = name.split(".")
    if top == _OURS or top in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not below:
        return spec.origin if spec.origin and spec.origin.endswith(".py") else None
    for location in spec.submodule_search_locations or ():
        for path in (Path(location, *below).with_suffix(".py"), Path(location, *below, "__init__.py")):
            if path.is_file():
                return str(path)
    return None
