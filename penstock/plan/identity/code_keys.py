"""Keys of functions, classes and values: the same in every process for what does the same, another for what does not.

A function of the user's is known by its bytecode and all that it refers to: constants, defaults, closure, attributes,
and the globals it reads, where the user's own functions and classes count by their code in turn. What comes from a
library is known by its name and the library's version. No line number, file name, address or ``hash()`` is in a key.

What a function changes itself, such as a list that it appends to, is its state and does not count. What it reads
through other ways, such as files or ``getattr`` with a computed name, is not seen. Bytecode differs between minor
versions of Python, and so do the keys.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import marshal
import types
import typing
import warnings
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.plan.identity.code_objects import (
    Imported,
    is_reachable,
    is_users,
    module_files,
    parts_of,
    source_of,
    version_of,
)
from penstock.plan.identity.code_state import attributes_changed, owner_of, state_of
from penstock.plan.identity.values import arrow, atom, hashed, is_pydantic, reduced, tensor_bytes
from penstock.storage.secret import Secret
from penstock.types import DataType, Schema

_VERSION = "1"  # raise it when what is equal should get another key

_ATOMS = (int, str, float, bytes, bool, complex, type(None), type(Ellipsis), type(NotImplemented))
_PLAIN = frozenset((int, str, float, bytes, bool, type(None)))
_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType)
_CACHED = type(functools.cache(len))
_DESCRIPTORS = (
    *(types.MemberDescriptorType, types.GetSetDescriptorType),
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType),
)
_NOT_OF_CLASS = frozenset(
    [
        *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__firstlineno__", "__slotnames__"),
        *("__static_attributes__", "__abstractmethods__", "_abc_impl", "__dataclass_fields__", "__dataclass_params__"),
        *("__annotate_func__", "__annotations_cache__"),
    ]
)


@dataclass(frozen=True, slots=True)
class Captured:
    """A list, dict or object that a function captures, with the digest of its content and the function's name."""

    value: Any
    digest: bytes
    function: str


_left_out: ContextVar[list[Captured] | None] = ContextVar("penstock_left_out", default=None)


@contextmanager
def mutable_values_left_out() -> Iterator[list[Captured]]:
    """Have keys made within not depend on lists, dicts and objects that functions capture, but for their types.

    For two keys made in one process: there, such a value may be state that changed since, and the script did not.
    Yields the list to which those values are added, in the same order for the same script.
    """
    left_out: list[Captured] = []
    token = _left_out.set(left_out)
    try:
        yield left_out
    finally:
        _left_out.reset(token)


@dataclass(frozen=True, slots=True)
class CodeKey:
    """A key, and the types of the things in it that could only be told by their type, such as open connections."""

    digest: bytes
    opaque: tuple[str, ...] = ()


def code_key(thing: Any) -> bytes:
    """Return 16 bytes that tell what a function, class or value is.

    >>> code_key(lambda x: x + 1) == code_key(lambda x: x + 1), code_key(lambda x: x + 1) == code_key(lambda x: x + 2)
    (True, False)
    >>> code_key({"a", "b"}) == code_key({"b", "a"}), code_key(1) == code_key(True)
    (True, False)
    """
    return keyed(thing).digest


def keyed(thing: Any) -> CodeKey:
    """Return the key of a thing with what in it is opaque.

    >>> import threading
    >>> keyed([1, threading.Lock()]).opaque
    ('_thread.lock',)
    """
    walk = _Walk(str(getattr(thing, "name", None) or getattr(thing, "__name__", "")))
    digest = hashed(_VERSION, walk.digest(thing))
    return CodeKey(digest, tuple(sorted(set(walk.opaque))))


class _Walk:
    """One pass over a thing and all that it refers to. What is met again while it is under way counts by how far up."""

    def __init__(self, name: str) -> None:
        self._name = name  # of what is walked over
        self.opaque: list[str] = []
        self._done: dict[int, tuple[Any, bytes]] = {}  # holds the things, so that no other gets the same id
        self._above: list[int] = []
        self._modules: dict[str, bytes] = {}
        self._methods: dict[int, str] = {}  # of instances: the one that is called, where that is not ``__call__``

    def digest(self, value: Any) -> bytes:
        if isinstance(value, _ATOMS) and type(value) in _ATOMS:
            return hashed(f"atom {type(value).__name__}", atom(value))
        known = self._done.get(id(value))
        if known is not None:
            return known[1]
        if id(value) in self._above:
            return hashed(f"cycle {len(self._above) - self._above.index(id(value))}")
        self._above.append(id(value))
        try:
            found = self._compound(value)
        finally:
            self._above.pop()
        self._done[id(value)] = value, found
        return found

    def _all(self, tag: str, *values: Any) -> bytes:
        return hashed(tag, *map(self.digest, values))

    def _mapping(self, tag: str, items: Iterable[tuple[Any, Any]]) -> bytes:
        """Return the digest of names with values, in whatever order they come."""
        pairs = ((self.digest(name), value) for name, value in items)
        return hashed(tag, *(part for name, value in sorted(pairs, key=_first) for part in (name, self.digest(value))))

    def _compound(self, value: Any) -> bytes:
        if not isinstance(value, type) and callable(stands_for := getattr(type(value), "__penstock_key__", None)):
            return self._all(f"{type(value).__qualname__}", stands_for(value))
        if callable(value) and (named := self._of_library(value)):
            return named
        match value:
            case types.FunctionType():
                return self._function(value)
            case type():
                return self._class(value)
            case types.CodeType():
                return self._code(value, {}, frozenset())
            case types.ModuleType():
                return self._module(value)
            case types.MethodType():
                self._methods.setdefault(id(value.__self__), value.__func__.__name__)
                return self._all("method", value.__func__, value.__self__)
            case functools.partial():
                return self._all("partial", value.func, value.args, value.keywords)
            case _ if isinstance(value, _CACHED):
                return self._all("cached", value.__wrapped__)
            case _ if isinstance(value, _BUILTIN):
                owner = None if isinstance(value.__self__, types.ModuleType) else value.__self__
                return self._all("builtin", value.__qualname__, getattr(value, "__module__", None), owner)
            case _ if isinstance(value, _DESCRIPTORS):
                return self._all("descriptor", value.__name__)
            case staticmethod() | classmethod():
                return self._all(type(value).__name__, value.__func__)
            case property():
                return self._all("property", value.fget, value.fset, value.fdel)
            case functools.cached_property():
                return self._all("cached_property", value.func)
            case Secret():
                return hashed("secret")
            case _ if typing.get_origin(value) is not None:
                return self._all("generic", typing.get_origin(value), *typing.get_args(value))
            case typing.TypeVar() | typing.ParamSpec():
                return self._all("typevar", value.__name__)
        return self._data(value)

    def _data(self, value: Any) -> bytes:
        kind = type(value)
        if kind is list or kind is tuple:
            if len(value) > 64 and all(type(each) in _PLAIN for each in value):
                return hashed(f"plain {kind.__name__}", marshal.dumps(value, 2))  # of version 2: without references
            return self._all(kind.__name__, *value)
        if kind is dict or kind is types.MappingProxyType:
            return self._mapping("dict", value.items())
        if kind is set or kind is frozenset:
            return hashed(kind.__name__, *sorted(map(self.digest, value)))
        if kind is bytearray or kind is memoryview:
            return hashed(kind.__name__, bytes(value))
        if isinstance(value, enum.Enum):
            return self._all("enum", kind.__qualname__, value.name, value.value)
        if isinstance(value, np.ndarray | np.generic):
            return self._numbers(np.asarray(value))
        if isinstance(value, DataType | Schema | pa.DataType | pa.Field | pa.Schema):
            return self._all(kind.__name__, repr(value))
        if isinstance(value, pa.Array | pa.ChunkedArray | pa.Scalar | pa.RecordBatch | pa.Table):
            return arrow(value)
        if is_pydantic(kind):
            return self._all(
                "pydantic", kind, self._lasting(value, value.__dict__), getattr(value, "__pydantic_extra__", None)
            )
        if dataclasses.is_dataclass(kind):
            fields = {each.name: getattr(value, each.name, None) for each in dataclasses.fields(kind)}
            return self._all("dataclass", kind, *self._lasting(value, fields).values())
        if (tensor := tensor_bytes(value)) is not None:
            return self._all("tensor", kind, str(value.dtype), tensor)
        return self._object(value)

    def _numbers(self, array: np.ndarray[Any, Any]) -> bytes:
        if array.dtype.hasobject:
            return self._all("objects", array.shape, array.tolist())
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return hashed("array", str(array.dtype.descr).encode(), str(array.shape).encode(), data.data)

    def _object(self, value: Any) -> bytes:
        """Return the digest of what pickle would take of an object; of its type where pickle would refuse it.

        An object of a library that holds something opaque is opaque itself: most are clients, whose state says nothing
        about what they do.
        """
        num_opaque = len(self.opaque)
        kind = type(value)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                taken: Any = reduced(value)
            if isinstance(taken, str):
                return self._all("named", kind, taken)
            make, args, *rest = taken[:5]
            state = [self._lasting(value, each) for each in rest[:1]]
            found = self._all("object", make, args, *state, *(each and list(each) for each in rest[1:]))  # items, pairs
        except Exception:
            found = b""
        module = _module_name(kind)
        if found and (len(self.opaque) == num_opaque or is_users(module)):
            return found
        del self.opaque[num_opaque:]
        self.opaque.append(f"{module}.{kind.__qualname__}")
        try:
            return self._all("opaque", kind)
        except Exception:  # a class that breaks when its attributes are read
            return self._all("opaque", module, kind.__qualname__)

    def _lasting(self, value: Any, state: Any) -> Any:
        """Return what an object is made of, without the attributes that a call of it changes: they are its state."""
        method = self._methods.get(id(value), "__call__")
        changed = attributes_changed(type(value), method) if is_users(_module_name(type(value))) else None
        if not changed:
            return state
        if isinstance(state, tuple):  # attributes and slots
            return tuple(self._lasting(value, each) for each in state)
        return {name: each for name, each in state.items() if name not in changed} if isinstance(state, dict) else state

    def _of_library(self, value: Any) -> bytes | None:
        """Return the digest of a function that a library has under a name, however it is made: in Python, C or Cython.

        Also of a method of an object that the library keeps, such as ``random.random``, whatever that object's state.
        """
        if isinstance(value, type | types.FunctionType):
            return None  # told by where its code stands
        for module in (_module_name(value), _module_name(type(getattr(value, "__self__", None)))):
            for attribute in ("__qualname__", "__name__"):
                name = getattr(value, attribute, None)
                if module and isinstance(name, str) and not is_users(module) and is_reachable(value, module, name):
                    return self._all("library", module, name, version_of(module))
        return None

    def _named(self, thing: Any, module: str) -> bytes | None:
        """Return the digest of what a library has under a name."""
        if is_users(module) or not is_reachable(thing, module, thing.__qualname__):
            return None
        return self._all("library", module, thing.__qualname__, version_of(module))

    def _function(self, function: types.FunctionType) -> bytes:
        # By where its code stands: what wraps a function of the user's says that it is that function.
        if named := self._named(function, function.__globals__.get("__name__") or ""):
            return named
        cells = dict(zip(function.__code__.co_freevars, map(_content, function.__closure__ or ()), strict=True))
        state = state_of(function.__code__, ChainMap(cells, function.__globals__))
        closure = ((name, self._captured(value)) for name, value in cells.items() if (name,) not in state)
        notes = {name: value for name, value in vars(function).items() if not name.startswith("__")}
        return hashed(
            "function",
            self._code(function.__code__, function.__globals__, state),
            self._all("defaults", function.__defaults__, function.__kwdefaults__),
            self._mapping("closure", closure),
            self._mapping("attributes", notes.items()),
        )

    def _code(self, code: types.CodeType, scope: Mapping[str, Any], state: frozenset[tuple[str, ...]]) -> bytes:
        """Return the digest of code whose globals are ``scope``, without those that are its ``state``."""
        parts = parts_of(code)
        digests = [str(parts.call).encode(), parts.handlers]
        for opcode, operand in parts.steps:
            inner = isinstance(operand, types.CodeType)
            digests += bytes([opcode]), self._code(operand, scope, state) if inner else self.digest(operand)
        for path in sorted(parts.paths):
            if path[0] not in scope or path[:1] in state:
                continue
            owner, value = owner_of(path, scope)
            if owner not in state:
                digests += str(path).encode(), self.digest(self._captured(value))
        for each in sorted(parts.imports, key=str):
            digests.append(self._import(each, scope.get("__package__") or ""))
        return hashed("code", *digests)

    def _captured(self, value: Any) -> Any:
        """Return what a function holds on to, or only its type where that may have changed in this process."""
        left_out = _left_out.get()
        is_mutable = isinstance(value, list | dict | set | bytearray) or (
            hasattr(value, "__dict__") and not callable(value) and not isinstance(value, types.ModuleType | enum.Enum)
        )
        if left_out is None or not is_mutable:
            return value
        known = next((each.digest for each in left_out if each.value is value), None)
        left_out.append(Captured(value, known or _content_digest(value), self._name))
        return type(value)

    def _module(self, module: types.ModuleType) -> bytes:
        if is_users(module.__name__) and (path := source_of(module)) and module.__name__ != "__main__":
            return self._source(module.__name__, path)
        return self._all("module", module.__name__, version_of(module.__name__))

    def _import(self, imported: Imported, package: str) -> bytes:
        files = module_files(imported, package)
        return hashed("import", *(self._source(name, path) for name, path in sorted(files.items())))

    def _source(self, name: str, path: str) -> bytes:
        """Return the digest of a whole module of the user's, and of those that it imports in its turn."""
        if name not in self._modules:
            self._modules[name] = b""  # also for modules that import each other
            try:
                with open(path, "rb") as file:
                    code = compile(file.read(), "", "exec", dont_inherit=True)
            except (OSError, SyntaxError, ValueError):
                return b""
            is_package = path.endswith("__init__.py")
            scope = {"__package__": name if is_package else name.rpartition(".")[0]}
            self._modules[name] = self._code(code, scope, frozenset((each,) for each in scope))
        return self._modules[name]

    def _class(self, cls: type) -> bytes:
        if not isinstance(cls.__module__, str):  # such as those of Cython, which are in no module
            return hashed("class of no module", cls.__qualname__.encode())
        if named := self._named(cls, cls.__module__):
            return named
        if is_pydantic(cls):
            return self._pydantic_class(cls)
        kept = {name: value for name, value in vars(cls).items() if name not in _NOT_OF_CLASS}
        fields = getattr(cls, "__dataclass_fields__", {})
        defaults = {name: (each.default, each.default_factory) for name, each in fields.items()}
        return hashed(
            f"class {cls.__name__}",
            *map(self.digest, cls.__bases__),
            self.digest(type(cls)),
            self._mapping("attributes", kept.items()),
            self._mapping("defaults", defaults.items()),
        )

    def _pydantic_class(self, cls: Any) -> bytes:
        """Return the digest of a pydantic model: its JSON schema, its fields' defaults and its own functions.

        The rest of what such a class holds is made from those, and holds addresses.
        """
        try:
            schema = cls.model_json_schema()
        except Exception:
            schema = None  # for types that JSON does not have
        fields = {n: (str(f.annotation), f.default, f.default_factory) for n, f in cls.model_fields.items()}
        kinds = (types.FunctionType, classmethod, staticmethod, property)
        own = {n: v for n, v in vars(cls).items() if isinstance(v, kinds) and not n.startswith("__pydantic")}
        return self._all(f"pydantic {cls.__name__}", list(cls.__bases__), schema, fields, own)


def _content_digest(value: Any) -> bytes:
    token = _left_out.set(None)
    try:
        return keyed(value).digest
    finally:
        _left_out.reset(token)


def _first(pair: tuple[bytes, Any]) -> bytes:
    return pair[0]


def _module_name(thing: Any) -> str:
    module = getattr(thing, "__module__", None)
    return module if isinstance(module, str) else ""


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return Ellipsis
