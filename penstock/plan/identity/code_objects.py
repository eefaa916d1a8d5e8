"""Read compiled code: its instructions without source positions, and the globals and modules that it refers to.

The user's functions count by their code, library functions by name and version. This module tells them apart.
"""

from __future__ import annotations

import dis
import functools
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_CALLING_FLAGS = 0x04 | 0x08 | 0x20 | 0x80 | 0x100 | 0x200  # *args, **kwargs, generators, coroutines
_BY_VALUE = frozenset((*dis.hasconst, *dis.hasname, *dis.hasfree)) - frozenset(dis.haslocal)
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_POSITIONS = ("__qualname__", "__firstlineno__")  # names that a class body gives to its place in the file
_LIBRARIES = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_LIBRARY_FOLDERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OURS = __name__.partition(".")[0]


def call_signature(code: CodeType) -> tuple[Any, ...]:
    """Return the number, kinds and names of the arguments of code."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _CALLING_FLAGS, *names


@functools.lru_cache(256)
def _steps(code: CodeType) -> tuple[dis.Instruction, ...]:
    return tuple(dis.get_instructions(code))


def instructions(code: CodeType) -> Iterator[tuple[int, Any]]:
    """Yield each operation with its operand: a constant or a name by its value, so an unused docstring is left out."""
    steps = _steps(code)
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        is_position = step.opcode in dis.hasconst and following is not None and following.argval in _POSITIONS
        yield step.opcode, None if is_position else step.argval if step.opcode in _BY_VALUE else step.arg


def global_paths(code: CodeType) -> set[tuple[str, ...]]:
    """Return the globals that code reads, each with the attributes that follow: ``("np", "random", "rand")``."""
    steps = _steps(code)
    return {
        (step.argval, *(each.argval for each in takewhile(lambda each: each.opname in _ATTRIBUTES, steps[at + 1 :])))
        for at, step in enumerate(steps)
        if step.opname in _GLOBALS
    }


def resolve(path: tuple[str, ...], scope: Mapping[str, Any]) -> tuple[str, Any]:
    """Follow a path through modules to the first thing that is not a module; return its dotted name and value."""
    value, length = scope[path[0]], 1
    while isinstance(value, ModuleType) and length < len(path) and hasattr(value, path[length]):
        value, length = getattr(value, path[length]), length + 1
    return ".".join(path[:length]), value


def imported_modules(code: CodeType, package: str) -> Iterator[str]:
    """Yield the absolute names that code may import as modules: ``m`` and ``m.a`` of ``from m import a``."""
    steps = _steps(code)
    for at, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            level, names = (each.argval for each in steps[at - 2 : at])
            parents = package.split(".")
            above = parents[: len(parents) - level + 1] if isinstance(level, int) and level else []
            module = ".".join(filter(None, [*above, step.argval]))
            yield from (module, *(f"{module}.{name}" for name in names or ()))


@functools.cache
def is_users(module_name: str) -> bool:
    """Return True for a module of the user: not installed, and not part of Python or of Penstock."""
    top = module_name.partition(".")[0]
    if top == _OURS:
        return False
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if file is None or top in ("__main__", "__mp_main__"):  # a notebook, a built-in module, one that is not imported
        return top not in sys.builtin_module_names and top not in sys.stdlib_module_names
    return _is_users_file(file)


def _is_users_file(path: str) -> bool:
    real = os.path.realpath(path)
    return not (real.startswith(_LIBRARIES) or any(folder in real for folder in _LIBRARY_FOLDERS))


@functools.cache
def version_of(module_name: str) -> str:
    """Return the version of a library; an empty text for Python's own modules and unknown versions.

    Penstock's version is left out so that a job continues after an upgrade.
    """
    top = module_name.partition(".")[0]
    if top == _OURS or top in sys.stdlib_module_names or top == "__main__":
        return ""
    version = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(version, str):
        return version
    import importlib.metadata  # loads the email package

    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        return ""


def is_reachable(thing: Any, module_name: str, qualname: str) -> bool:
    """Return whether a module has ``thing`` under its qualified name. A function that another function makes has no
    such name.
    """
    found: Any = sys.modules.get(module_name)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found is thing


def users_source(module_name: str) -> bytes:
    """Return the source text of a module of the user, without importing it; empty for all other names."""
    top, *below = module_name.split(".")
    if top == _OURS or top in sys.stdlib_module_names:
        return b""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return b""
    if spec is None:
        return b""
    folders = [Path(location, *below) for location in spec.submodule_search_locations or ()]
    paths = [spec.origin] if not below else [str(each) for f in folders for each in (f"{f}.py", f / "__init__.py")]
    found = next((path for path in paths if path and path.endswith(".py") and os.path.isfile(path)), None)
    return Path(found).read_bytes() if found and _is_users_file(found) else b""
