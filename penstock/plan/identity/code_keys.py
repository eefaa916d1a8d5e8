"""Identify functions, classes and values by content, with the same result in every process.

The identity of a user's function is its bytecode, its defaults, and what it refers to when the query starts: closure
variables and globals by value, other functions and classes of the user by their code. ``version=`` replaces all of it.
Functions and classes of libraries count by name and version. An object that pickle refuses, such as a client, a lock or
an open file, counts by its type only, and so does an object of a library that holds one.

Line numbers, file names, addresses and ``hash()`` are never part of it. Bytecode differs between minor versions of
Python, and so do identities. What a function reads in other ways, such as files or environment variables, is not seen;
a module that is imported inside the function counts by its source text.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import marshal
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.plan.identity.code_objects import (
    call_signature,
    global_paths,
    imported_modules,
    instructions,
    is_reachable,
    is_users,
    resolve,
    users_source,
    version_of,
)
from penstock.plan.identity.values import arrow, atom, hashed, is_pydantic, readable, reduced, tensor_bytes
from penstock.storage.secret import Secret
from penstock.types import DataType, Schema

_VERSION = "2"  # raise it to invalidate all keys

_ATOMS = (int, str, float, bytes, bool, complex, type(None), type(Ellipsis), type(NotImplemented))
_PLAIN = frozenset((int, str, float, bytes, bool, type(None)))
_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType)
_CACHED = type(functools.cache(len))
_NOT_OF_CLASS = frozenset(
    [
        *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__firstlineno__", "__slotnames__"),
        *("__static_attributes__", "__abstractmethods__", "_abc_impl", "__dataclass_fields__", "__dataclass_params__"),
        *("__annotate_func__", "__annotations_cache__"),
    ]
)
_CODE = (types.FunctionType, type, types.ModuleType, types.MethodType, *_BUILTIN)


@dataclass(frozen=True, slots=True)
class CodeIdentity:
    """The identity of a function, class or value.

    ``uses`` lists what the user's functions in it refer to, by description, for messages about what changed: ``{"the
    code of function score": "digest ...", "the global THRESHOLD of function score": 3}``. ``opaque`` are the types of
    objects that count only by their type.
    """

    digest: bytes
    uses: Mapping[str, Any]
    opaque: tuple[str, ...] = ()


def code_key(thing: Any) -> bytes:
    """Return 16 bytes that identify a function, class or value.

    >>> code_key(lambda x: x + 1) == code_key(lambda x: x + 1), code_key(lambda x: x + 1) == code_key(lambda x: x + 2)
    (True, False)
    >>> code_key({"a", "b"}) == code_key({"b", "a"}), code_key(1) == code_key(True)
    (True, False)
    """
    return code_identity(thing).digest


def nested_key(things: Iterable[Any]) -> bytes:
    """Return the key of the last thing. Its parts come before it, which keeps the recursion shallow."""
    walk = _Walk()
    digests = [walk.digest(thing) for thing in things]
    return hashed(_VERSION, digests[-1])


def code_identity(thing: Any) -> CodeIdentity:
    """Return the identity of a function, class or value.

    >>> import threading
    >>> code_identity([1, threading.Lock()]).opaque
    ('_thread.lock',)
    """
    walk = _Walk()
    digest = hashed(_VERSION, walk.digest(thing))
    return CodeIdentity(digest, walk.uses, tuple(sorted(set(walk.opaque))))


class _Walk:
    """One pass over a thing and everything it refers to. A reference to an enclosing thing counts by its distance."""

    def __init__(self) -> None:
        self.uses: dict[str, Any] = {}
        self.opaque: list[str] = []
        self._done: dict[int, tuple[Any, bytes]] = {}  # holds the things, so that their ids are not used again
        self._enclosing: list[int] = []

    def digest(self, value: Any) -> bytes:
        if isinstance(value, _ATOMS) and type(value) in _ATOMS:
            return hashed(f"atom {type(value).__name__}", atom(value))
        known = self._done.get(id(value))
        if known is not None:
            return known[1]
        if id(value) in self._enclosing:
            return hashed(f"cycle {len(self._enclosing) - self._enclosing.index(id(value))}")
        self._enclosing.append(id(value))
        try:
            found = self._compound(value)
        finally:
            self._enclosing.pop()
        self._done[id(value)] = value, found
        return found

    def _all(self, tag: str, *values: Any) -> bytes:
        return hashed(tag, *map(self.digest, values))

    def _mapping(self, tag: str, items: Iterable[tuple[Any, Any]]) -> bytes:
        """Return a digest of names and values that does not depend on their order."""
        pairs = sorted(((self.digest(name), value) for name, value in items), key=lambda pair: pair[0])
        return hashed(tag, *(part for name, value in pairs for part in (name, self.digest(value))))

    def _compound(self, value: Any) -> bytes:
        if not isinstance(value, type) and callable(identity := getattr(type(value), "__penstock_key__", None)):
            return self._all(f"{type(value).__qualname__}", identity(value))
        if callable(value) and (named := self._named(value)):
            return named
        match value:
            case types.FunctionType():
                return self._function(value)
            case type():
                return self._class(value)
            case types.ModuleType():
                name = value.__name__
                return hashed("module", name.encode(), version_of(name).encode(), users_source(name))
            case types.MethodType():
                return self._all("method", value.__func__, value.__self__)
            case functools.partial():
                return self._all("partial", value.func, value.args, value.keywords)
            case _ if isinstance(value, _CACHED):
                return self._all("cached", value.__wrapped__)
            case _ if isinstance(value, _BUILTIN):
                owner = None if isinstance(value.__self__, types.ModuleType) else value.__self__
                return self._all("builtin", value.__qualname__, getattr(value, "__module__", None), owner)
            case types.GetSetDescriptorType():
                return self._all("descriptor", value.__name__)
            case staticmethod() | classmethod():
                return self._all(type(value).__name__, value.__func__)
            case property():
                return self._all("property", value.fget, value.fset, value.fdel)
            case functools.cached_property():
                return self._all("cached_property", value.func)
            case Secret():
                return hashed("secret")
        return self._data(value)

    # --- values ---

    def _data(self, value: Any) -> bytes:
        kind = type(value)
        if kind is list or kind is tuple:
            if len(value) > 64 and all(type(each) in _PLAIN for each in value):
                return hashed(f"plain {kind.__name__}", marshal.dumps(value, 2))  # version 2 has no references
            return self._all(kind.__name__, *value)
        if kind is dict or kind is types.MappingProxyType:
            return self._mapping("dict", value.items())
        if kind is set or kind is frozenset:
            return hashed(kind.__name__, *sorted(map(self.digest, value)))
        if isinstance(value, enum.Enum):
            return self._all("enum", kind.__qualname__, value.name, value.value)
        if isinstance(value, DataType | Schema | pa.DataType | pa.Field | pa.Schema):
            return self._all(kind.__name__, repr(value))
        if isinstance(value, pa.Array | pa.ChunkedArray | pa.Scalar | pa.RecordBatch | pa.Table):
            return arrow(value)
        if is_pydantic(kind):
            return self._all("pydantic", kind, value.__dict__, getattr(value, "__pydantic_extra__", None))
        if dataclasses.is_dataclass(kind):
            return self._all("dataclass", kind, *(getattr(value, each.name, None) for each in dataclasses.fields(kind)))
        if (tensor := tensor_bytes(value)) is not None:
            return self._all("tensor", kind, str(value.dtype), tensor)
        return self._object(value)

    def _object(self, value: Any) -> bytes:
        """Return the digest of an object as pickle stores it, or the digest of its type if pickle refuses it.

        A library's object that holds something opaque is opaque itself: most such objects are clients, and their state
        says nothing about what they do.
        """
        num_opaque, num_uses, kind = len(self.opaque), len(self.uses), type(value)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                taken: Any = reduced(value)
            if isinstance(taken, str):
                return self._all("named", kind, taken)
            make, args, *state = taken[:5]
            found = self._all("object", make, args, *state[:1], *(each and list(each) for each in state[1:]))
        except Exception:
            found = b""
        module = _module_name(kind)
        if found and (len(self.opaque) == num_opaque or is_users(module)):
            return found
        del self.opaque[num_opaque:]
        self.uses = dict(list(self.uses.items())[:num_uses])
        self.opaque.append(f"{module}.{kind.__qualname__}")
        try:
            return self._all("opaque", kind)
        except Exception:  # a class that fails when its attributes are read
            return self._all("opaque", module, kind.__qualname__)

    # --- functions and classes ---

    def _named(self, value: Any) -> bytes | None:
        """Return the digest of a function or class that a library defines under a name; None for any other.

        A Python function is looked up in the module of its code, because ``functools.wraps`` copies ``__module__``, and
        in ``__module__`` if that is a library too, because libraries wrap their own functions. A method of an object
        that a library keeps, such as ``random.random``, counts without the state of that object.
        """
        if isinstance(value, types.FunctionType):
            module = value.__globals__.get("__name__") or ""
            modules = [module] if is_users(module) else [module, value.__module__ or ""]
        elif isinstance(value, type):
            modules = [_module_name(value)]
        else:
            modules = [_module_name(value), _module_name(type(getattr(value, "__self__", None)))]
        names = [getattr(value, "__qualname__", None), getattr(value, "__name__", None)]
        for module in modules:
            for name in names:
                if module and isinstance(name, str) and not is_users(module) and is_reachable(value, module, name):
                    return self._all("library", module, name, version_of(module))
        return None

    def _function(self, function: types.FunctionType) -> bytes:
        name, code = function.__name__, function.__code__
        arguments = code.co_varnames[: code.co_argcount]
        positional = function.__defaults__ or ()
        defaults = dict(zip(arguments[len(arguments) - len(positional) :], positional, strict=True))
        attributes = {each: value for each, value in vars(function).items() if not each.startswith("__")}
        closure = dict(zip(code.co_freevars, map(_content, function.__closure__ or ()), strict=True))
        self._note(f"the code of function {name}", code, lambda code: hashed("code", *self._operations(code)))
        return hashed(
            "function",
            self._code(code, function.__globals__, name),
            self._used(f"the default {{}} of function {name}", defaults | (function.__kwdefaults__ or {})),
            self._used(f"the closure variable {{}} of function {name}", closure),
            self._used(f"the attribute {{}} of function {name}", attributes),
        )

    def _code(self, code: types.CodeType, scope: Mapping[str, Any], function: str) -> bytes:
        """Return the digest of code and of what it refers to; ``scope`` are its globals."""
        paths = sorted(path for path in global_paths(code) if path[0] in scope)
        inner = [each for _, each in instructions(code) if isinstance(each, types.CodeType)]
        imports = sorted(set(imported_modules(code, scope.get("__package__") or "")))
        return hashed(
            "code",
            *self._operations(code),
            *(self._code(each, scope, function) for each in inner),
            self._used(f"the global {{}} of function {function}", dict(resolve(path, scope) for path in paths)),
            *map(users_source, imports),
        )

    def _operations(self, code: types.CodeType) -> Iterable[bytes]:
        """Yield what code does, without the values of its globals."""
        yield str(call_signature(code)).encode() + code.co_exceptiontable
        for opcode, operand in instructions(code):
            yield bytes([opcode])
            if isinstance(operand, types.CodeType):
                yield from self._operations(operand)
            else:
                yield self.digest(operand)

    def _used(self, description: str, values: Mapping[str, Any]) -> bytes:
        """Return the digest of what a function refers to by name, and list it in ``uses``."""
        for name, value in values.items():
            if not isinstance(value, _CODE) and not hasattr(type(value), "__penstock_key__"):
                self._note(description.format(name), value, self.digest)
        return self._mapping("used", values.items())

    def _note(self, description: str, value: Any, digest: Callable[[Any], bytes]) -> None:
        shown = readable(value, digest, hides_text=True)
        unique, number = description, 2
        while self.uses.get(unique, shown) != shown:  # another function of the same name
            unique, number = f"{description} ({number})", number + 1
        self.uses[unique] = shown

    def _class(self, cls: type) -> bytes:
        if not isinstance(cls.__module__, str):  # classes made by Cython may have none
            return hashed("class without module", cls.__qualname__.encode())
        if is_pydantic(cls):
            return self._pydantic_class(cls)
        attributes = {name: value for name, value in vars(cls).items() if name not in _NOT_OF_CLASS}
        fields = getattr(cls, "__dataclass_fields__", {})
        defaults = {name: (each.default, each.default_factory) for name, each in fields.items()}
        return hashed(
            f"class {cls.__name__}",
            *map(self.digest, cls.__bases__),
            self.digest(type(cls)),
            self._used(f"the attribute {{}} of class {cls.__name__}", attributes),
            self._mapping("defaults", defaults.items()),
        )

    def _pydantic_class(self, cls: Any) -> bytes:
        """Return the digest of a pydantic model: its JSON schema, the defaults of its fields and its own functions.

        Its other attributes follow from these, and hold addresses.
        """
        try:
            schema = cls.model_json_schema()
        except Exception:
            schema = None  # a field has a type that JSON cannot express
        fields = {n: (str(f.annotation), f.default, f.default_factory) for n, f in cls.model_fields.items()}
        kinds = (types.FunctionType, classmethod, staticmethod, property)
        own = {n: v for n, v in vars(cls).items() if isinstance(v, kinds) and not n.startswith("__pydantic")}
        return self._all(f"pydantic {cls.__name__}", list(cls.__bases__), schema, fields, own)


def _module_name(thing: Any) -> str:
    module = getattr(thing, "__module__", None)
    return module if isinstance(module, str) else ""


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return Ellipsis
