"""What code changes: globals, closure variables and attributes that are its state and do not determine what it does.

Found by running the code on a stack of names: each slot holds what it was loaded from, nothing where that is not known.
Only what is stored INTO is changed; what is read on the way, such as the value that is stored, is not.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from penstock.plan.identity.code_objects import is_users

Path = tuple[str, ...]  # a name and the attributes behind it, "[]" for an element
Slot = frozenset[Path]  # what a value on the stack is, or is inside of: one thing on each way there
Named = Callable[[str, str], bool]  # whether what an instruction loads under a name counts

_UNKNOWN: Slot = frozenset()
_ELEMENT = "[]"
_CHANGING = frozenset(
    [
        *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "appendleft", "extendleft"),
        *("popleft", "rotate", "add", "discard", "update", "setdefault", "popitem", "subtract", "put", "put_nowait"),
        *("write", "writelines", "inc", "increment"),
    ]
)
_NO_STATE = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, type)
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_LEAVING = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD")
_CALLS = ("PRECALL",) if "PRECALL" in dis.opmap else ("CALL",)
_IS_NULL_ABOVE = sys.version_info >= (3, 13)  # the empty slot of a call is above what is called, not below
_TAKING = (
    "POP_",
    "STORE_",
    "JUMP_",
    "DELETE_",
    "LIST_",
    "SET_",
    "MAP_",
    "DICT_",
    "END_",
    "RETURN_",
    "RAISE_",
    "RERAISE",
)
_PUSHING = ("LOAD_", "PUSH_", "BUILD_", "FOR_ITER", "GET_LEN")
_IDLE = (
    "NOP",
    "RESUME",
    "CACHE",
    "KW_NAMES",
    "EXTENDED_ARG",
    "MAKE_CELL",
    "COPY_FREE_VARS",
    "DELETE_",
    "JUMP_",
    "SETUP_",
)
_CONTAINERS = {  # how far below the top of the stack lies what is stored into
    "STORE_ATTR": 1,
    "DELETE_ATTR": 1,
    "STORE_SUBSCR": 2,
    "DELETE_SUBSCR": 2,
    "STORE_SLICE": 3,
}


@dataclass(frozen=True, slots=True)
class Changed:
    """What code sets anew, by name, and what it stores into or has changed by a method."""

    rebound: frozenset[str] = frozenset()
    inside: frozenset[Path] = frozenset()


def state_of(code: CodeType, values: Mapping[str, Any]) -> frozenset[Path]:
    """Return what code changes of ``values``, its globals and closure: state that it keeps, not what determines it.

    A counter that it adds to, a list that it appends to, an iterator that it draws from; all of that object, also where
    the code reads it elsewhere. What is changed inside is never a function, a class or a module, but may be a variable
    of a module. A change by way of another function or a local name is not seen.

    >>> def seen(x):
    ...     calls.append(x)
    ...     totals[x] += WEIGHTS[x]
    ...     row["y"] = x * FACTOR
    >>> sorted(state_of(seen.__code__, dict.fromkeys(["calls", "totals", "WEIGHTS", "FACTOR", "row"])))
    [('calls',), ('row',), ('totals',)]
    """
    changed = _captured_changes(code)
    found: set[Path] = {(name,) for name in changed.rebound}
    for path in changed.inside:
        if path[0] in values:
            owner, value = owner_of(path, values)
            if not isinstance(value, _NO_STATE):
                found.add(owner)
    return frozenset(found)


def owner_of(path: Path, values: Mapping[str, Any]) -> tuple[Path, Any]:
    """Return the beginning of a path up to the first thing that is no module, and that thing."""
    value = values[path[0]]
    for at, name in enumerate(path[1:], 1):
        if not isinstance(value, ModuleType) or not hasattr(value, name):
            return path[:at], value
        value = getattr(value, name)
    return path, value


def attributes_changed(cls: type, method: str) -> frozenset[str]:
    """Return the attributes of its instances that a method changes, itself or by other methods that it calls.

    Not those that only ``__init__`` or another method sets, such as one that configures the instance. Of
    inherited methods those of the user's own classes are seen.

    >>> class Model:
    ...     __module__ = "a_script"
    ...     def __init__(self): self.n, self.scale = 0, 2
    ...     def scaled(self, scale): self.scale = scale
    ...     def count(self): self.n += 1
    ...     def __call__(self, x): self.count(); return x * self.scale
    >>> sorted(attributes_changed(Model, "__call__"))
    ['n']
    """
    found, seen, left = set[str](), set[str](), [method]
    while left:
        name = left.pop()
        if name in seen or name == "__init__":
            continue
        seen.add(name)
        for defined in _definitions(cls, name):
            if isinstance(defined, functools.cached_property):
                found.add(name)
            code = _code_of(defined)
            if code is not None and code.co_argcount:
                found |= _attributes_of_first(code)
                left += code.co_names
    return frozenset(found)


def _definitions(cls: type, name: str) -> list[Any]:
    """Return what a class and the user's classes that it inherits from have under a name."""
    return [vars(each)[name] for each in cls.__mro__ if name in vars(each) and is_users(str(each.__module__))]


def _code_of(defined: Any) -> CodeType | None:
    function = getattr(defined, "fget", None) or getattr(defined, "func", None) or defined
    return function.__code__ if isinstance(function, FunctionType) else None


def _attributes_of_first(code: CodeType) -> set[str]:
    """Return the attributes that code changes of its first argument."""
    first = code.co_varnames[0]
    changed = _changes(code, lambda opname, name: name == first and opname.startswith(("LOAD_FAST", "LOAD_DEREF")))
    return {path[1] for path in changed.inside if path[0] == first and len(path) > 1}


def _captured_changes(code: CodeType) -> Changed:
    """Return what code, with all code inside it, changes of its globals and closure variables."""

    def is_captured(opname: str, name: str) -> bool:
        return opname in ("LOAD_GLOBAL", "LOAD_NAME") or ("DEREF" in opname and name in code.co_freevars)

    found = _changes(code, is_captured)
    rebound, inside = set(found.rebound), set(found.inside)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _captured_changes(constant)
            rebound |= inner.rebound - set(code.co_cellvars)
            inside |= {path for path in inner.inside if path[0] not in code.co_cellvars}
    return Changed(frozenset(rebound), frozenset(inside))


def _changes(code: CodeType, is_named: Named) -> Changed:
    rebound, inside = set[str](), set[Path]()
    for step, stack in _run(code, is_named):
        name = step.opname
        if name in ("STORE_GLOBAL", "DELETE_GLOBAL") or (name == "STORE_DEREF" and step.argval in code.co_freevars):
            rebound.add(step.argval)
        elif name in _CONTAINERS:
            behind = (step.argval,) if name.endswith("_ATTR") else (_ELEMENT,)
            inside |= {(*path, *behind) for path in stack.peek(_CONTAINERS[name])}
        elif name in ("LOAD_ATTR", "LOAD_METHOD") and step.argval in _CHANGING:
            inside |= stack.peek(1)
        elif name in _CALLS and step.arg:
            called = stack.peek(step.arg + 1) | stack.peek(step.arg + 2)
            if ("next",) in called:
                inside |= stack.peek(step.arg)
    return Changed(frozenset(rebound), frozenset(inside))


class _Stack:
    """Slots, the top last; below the lowest are unknown ones."""

    def __init__(self, slots: list[Slot] | None = None) -> None:
        self.slots = slots or []

    def peek(self, depth: int) -> Slot:
        """Return the slot that is ``depth`` from the top, which is 1."""
        return self.slots[-depth] if depth <= len(self.slots) else _UNKNOWN

    def pop(self, number: int = 1) -> None:
        del self.slots[max(0, len(self.slots) - number) :]

    def push(self, *slots: Slot) -> None:
        self.slots += slots

    def swap(self, depth: int) -> None:
        self.slots[:0] = [_UNKNOWN] * (depth - len(self.slots))
        self.slots[-1], self.slots[-depth] = self.slots[-depth], self.slots[-1]

    def copy(self) -> _Stack:
        return _Stack(list(self.slots))

    def joined(self, other: _Stack) -> _Stack:
        """Return what the stack may be where two ways meet."""
        depth = max(len(self.slots), len(other.slots))
        return _Stack([self.peek(at) | other.peek(at) for at in range(depth, 0, -1)])


def _run(code: CodeType, is_named: Named) -> Iterator[tuple[dis.Instruction, _Stack]]:
    """Yield each instruction with the stack before it, in the order in which they stand."""
    stack: _Stack | None = _Stack()
    waiting: dict[int, _Stack] = {}  # at the targets of jumps
    for step in dis.get_instructions(code):
        if (came := waiting.pop(step.offset, None)) is not None:
            stack = came if stack is None else stack.joined(came)
        stack = _Stack() if stack is None else stack
        yield step, stack
        if step.opcode in _JUMPS and step.argval > step.offset:
            jumped = stack.copy()
            _jump(step, jumped)
            earlier = waiting.get(step.argval)
            waiting[step.argval] = jumped if earlier is None else jumped.joined(earlier)
        if step.opname in _LEAVING or step.opname == "JUMP_BACKWARD_NO_INTERRUPT":
            stack = None
        else:
            _apply(step, stack, is_named)


def _jump(step: dis.Instruction, stack: _Stack) -> None:
    effect = dis.stack_effect(step.opcode, step.arg, jump=True)
    stack.pop(max(0, -effect))
    stack.push(*[_UNKNOWN] * max(0, effect))


def _apply(step: dis.Instruction, stack: _Stack, is_named: Named) -> None:
    """Do to the stack what an instruction does: exactly for what moves names about, by the effect of all others."""
    name, argument = step.opname, step.arg or 0
    if name == "COPY":
        stack.push(stack.peek(argument))
    elif name == "SWAP":
        stack.swap(argument)
    elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and step.argrepr == _ELEMENT):
        container = stack.peek(2)
        stack.pop(2)
        stack.push(frozenset((*path, _ELEMENT) for path in container))
    elif name == "LOAD_ATTR" and dis.stack_effect(step.opcode, step.arg) == 0:
        owner = stack.peek(1)
        stack.pop()
        stack.push(frozenset((*path, step.argval) for path in owner))
    elif name in ("LOAD_ATTR", "LOAD_METHOD"):
        stack.pop()
        stack.push(_UNKNOWN, _UNKNOWN)
    elif name == "STORE_FAST_LOAD_FAST":
        stack.pop()
        stack.push(_slot(name, step.argval[1], is_named))
    elif name.startswith("LOAD_FAST") and isinstance(step.argval, tuple):
        stack.push(*(_slot(name, each, is_named) for each in step.argval))
    elif name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF") or name.startswith("LOAD_FAST"):
        slots = [_slot(name, step.argval, is_named)]
        nulls = [_UNKNOWN] * (dis.stack_effect(step.opcode, step.arg) - 1)
        stack.push(*(slots + nulls if _IS_NULL_ABOVE else nulls + slots))
    else:
        _apply_effect(name, dis.stack_effect(step.opcode, step.arg, jump=False), stack)


def _slot(opname: str, name: str, is_named: Named) -> Slot:
    return frozenset([(name,)]) if is_named(opname, name) else _UNKNOWN


def _apply_effect(name: str, effect: int, stack: _Stack) -> None:
    if effect > 0:
        is_pushing = name.startswith(_PUSHING)
        stack.pop(0 if is_pushing else 1)
        stack.push(*[_UNKNOWN] * (effect if is_pushing else effect + 1))
    elif effect < 0 and name.startswith(_TAKING):
        stack.pop(-effect)
    elif effect < 0 or not name.startswith(_IDLE):  # it takes some and gives one
        stack.pop(1 - effect)
        stack.push(_UNKNOWN)
