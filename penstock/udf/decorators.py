"""``func``, ``cls`` and ``method``: make expressions from Python functions and classes.

A decorated function builds an expression if an argument is one. With plain values it just runs.
"""

from __future__ import annotations

import functools
import inspect
import threading
import uuid
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.column import Expression
from penstock.expr.nodes import Expr, PythonValue, Unnest
from penstock.expr.udf import Target, UdfSpec
from penstock.udf.options import (
    BATCH_OPTIONS,
    CALL_OPTIONS,
    BatchFuncOptions,
    ClsOptions,
    FuncOptions,
    check_call_options,
    known_options,
    taking_options,
)
from penstock.udf.parameters import parameter_hints, with_files
from penstock.udf.specs import ClsObject, check_signature, make_spec

_OPTIONS_ATTRIBUTE = "__penstock_options__"

Options = dict[str, Any]  # the options that the user gave, by name
P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
R_co = TypeVar("R_co", covariant=True)


class ColumnFunction(Protocol[P, R_co]):
    """A decorated function for type checkers: an expression of columns, or the plain result of plain values."""

    @overload
    def __call__(self, column: Expression, /, *args: Any, **kwargs: Any) -> Expression: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Expression: ...


class ColumnMethod(Protocol[P, R_co]):
    """A decorated method for type checkers. They do not see that ``cls`` changes a class, so each method must be
    decorated."""

    def __get__(self, instance: Any, owner: Any = None, /) -> ColumnFunction[P, R_co]: ...


class FunctionDecorator(Protocol):
    """The result of ``func(...)`` and ``func.batch(...)`` for type checkers."""

    def __call__(self, function: Callable[P, R], /) -> ColumnFunction[P, R]: ...


class MethodDecorator(Protocol):
    """The result of ``method(...)`` and ``method.batch(...)`` for type checkers."""

    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> ColumnMethod[P, R]: ...


class ClassDecorator(Protocol):
    """The result of ``cls(...)`` for type checkers: the class keeps its type."""

    def __call__(self, wrapped: type[C], /) -> type[C]: ...


def _build_call(spec: UdfSpec, hints: dict[str, Any], unnest: bool, args: Any, kwargs: dict[str, Any]) -> Expression:
    named = tuple((name, _argument(value)) for name, value in kwargs.items())
    call = with_files(spec, hints, tuple(map(_argument, args)), named)
    return Expression(Unnest(call) if unnest else call)


def _argument(value: Any) -> Expr:
    return value._node if isinstance(value, Expression) else PythonValue(value)


def _has_expression(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(isinstance(value, Expression) for value in (*args, *kwargs.values()))


def _apply(decorate: Callable[[Any], Any], decorated: Any) -> Any:
    """Decorate at once, or, in ``@func(...)``, return the decorator."""
    return decorate if decorated is None else decorate(decorated)


class OptionsAsAttributes:
    """The options of a function by name, such as ``function.max_retries``; None if it is not set."""

    _options: Options

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in ("return_dtype", "unnest", "batch_size", *CALL_OPTIONS, *BATCH_OPTIONS):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self._options.get(name)


class Func(OptionsAsAttributes):
    """A decorated function."""

    def __init__(self, function: Any, options: Options, is_batch: bool) -> None:
        if inspect.isclass(function) or not callable(function):
            raise InvalidArgumentError(f"func decorates a function; got {function!r}. For a class, use cls")
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._spec = make_spec(function, options, is_batch=is_batch)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _has_expression(args, kwargs):
            check_signature(self._function, self._spec.name, args, kwargs)
            hints = parameter_hints(self._function, is_method=False)
            return _build_call(self._spec, hints, self._options["unnest"], args, kwargs)
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<func {self._spec.name}{inspect.signature(self._function)}>"

    def __penstock_key__(self) -> Any:
        """Return the identity of the function (see ``plan/identity/code_keys.py``): its version, or its code."""
        return self._function if self._spec.version is None else (self._spec.name, self._spec.version)


class _FuncDecorator:
    """``@func``, ``@func(...)`` and ``@func.batch(...)``."""

    @overload
    def __call__(self, function: Callable[P, R], /, **options: Unpack[FuncOptions]) -> ColumnFunction[P, R]: ...
    @overload
    def __call__(self, **options: Unpack[FuncOptions]) -> FunctionDecorator: ...
    @taking_options("func", FuncOptions)
    def __call__(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Make a function of single values work on columns, row by row.

        >>> @ps.func
        ... def shout(text: str) -> str:
        ...     return text.upper() + "!"
        >>> ps.from_pydict({"t": ["hi"]}).select(shout(ps.col("t"))).to_pydict()
        {'t': ['HI!']}
        >>> shout("hello")
        'HELLO!'
        """
        return _apply(lambda decorated: Func(decorated, options, is_batch=False), function)

    @overload
    def batch(self, function: Callable[P, R], /, **options: Unpack[BatchFuncOptions]) -> ColumnFunction[P, R]: ...
    @overload
    def batch(self, **options: Unpack[BatchFuncOptions]) -> FunctionDecorator: ...
    @taking_options("func.batch", BatchFuncOptions)
    def batch(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Make a function of whole ``Series`` work on columns, batch by batch.

        ``docs/guides/batches.md`` describes the options of a batch.

        >>> @ps.func.batch(return_dtype=ps.DataType.int64())
        ... def double(x):
        ...     return x.to_numpy() * 2
        >>> ps.from_pydict({"a": [1, 2]}).select(double(ps.col("a"))).to_pydict()
        {'a': [2, 4]}
        """
        return _apply(lambda decorated: Func(decorated, options, is_batch=True), function)


class _MethodDecorator:
    """``@method``, ``@method(...)`` and ``@method.batch(...)``: attach options to a method, which ``cls`` reads."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Any, P], R], /, **options: Unpack[FuncOptions]
    ) -> ColumnMethod[P, R]: ...
    @overload
    def __call__(self, **options: Unpack[FuncOptions]) -> MethodDecorator: ...
    def __call__(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Set options of one method of a ``cls`` class, the same as for ``func``."""
        return self._attach(function, options, is_batch=False)

    @overload
    def batch(
        self, function: Callable[Concatenate[Any, P], R], /, **options: Unpack[BatchFuncOptions]
    ) -> ColumnMethod[P, R]: ...
    @overload
    def batch(self, **options: Unpack[BatchFuncOptions]) -> MethodDecorator: ...
    def batch(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Make a method of a ``cls`` class take whole ``Series``, with the options of ``func.batch``."""
        return self._attach(function, options, is_batch=True)

    def _attach(self, function: Callable[..., Any] | None, options: Options, *, is_batch: bool) -> Any:
        batch_options = ("batch_size", *BATCH_OPTIONS) if is_batch else ()
        known = ["return_dtype", "unnest", *CALL_OPTIONS, *batch_options]
        options = known_options("method", options, known, "ps.func")
        given = {
            name: value for name, value in options.items() if value is not None or name in ("batch_size", "max_errors")
        }

        def attach(decorated: Callable[..., Any]) -> Callable[..., Any]:
            setattr(decorated, _OPTIONS_ATTRIBUTE, (given, is_batch))
            return decorated

        return _apply(attach, function)


def _class_identity(wrapped: type, options: Options) -> Any:
    version = options.get("version")
    return wrapped if version is None else (wrapped.__name__, version)


class Cls(ClsObject):
    """A decorated class. Calling it stores the arguments; a worker builds the instance."""

    def __init__(self, wrapped: type, options: Options) -> None:
        if not inspect.isclass(wrapped):
            raise InvalidArgumentError(f"cls decorates a class; got {wrapped!r}. For a function, use func")
        functools.update_wrapper(self, wrapped, updated=())
        self._wrapped = wrapped
        self._options = options
        check_call_options(wrapped.__name__, options)

    def __call__(self, *args: Any, **kwargs: Any) -> ClsInstance:
        check_signature(self._wrapped, self._wrapped.__name__, args, kwargs)
        return ClsInstance(self._wrapped, self._options, args, kwargs, uuid.uuid4().hex)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the class, so that its own code can refer to ``Model.CONSTANT``."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Allow subclasses, which can be decorated too."""
        return (self._wrapped,)

    def __repr__(self) -> str:
        return f"<cls {self._wrapped.__name__}>"

    def __penstock_key__(self) -> Any:
        return _class_identity(self._wrapped, self._options)


class ClsInstance(ClsObject):
    """Represents an object that each worker builds, identified by ``key``. Its methods build expressions."""

    def __init__(
        self, wrapped: type, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any], key: str
    ) -> None:
        self._wrapped = wrapped
        self._options = options
        self._init = (args, kwargs)
        self._key = key
        self._methods: dict[str, BoundMethod] = {}
        self._local: Any = None
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("__call__")(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._method(name)

    def __repr__(self) -> str:
        given = [repr(value) for value in self._init[0]] + [f"{n}={value!r}" for n, value in self._init[1].items()]
        return f"<cls {self._wrapped.__name__}({', '.join(given)})>"

    def __reduce__(self) -> tuple[Any, ...]:
        return ClsInstance, (self._wrapped, self._options, *self._init, self._key)

    def __penstock_key__(self) -> Any:
        return _class_identity(self._wrapped, self._options), *self._init

    def _method(self, name: str) -> BoundMethod:
        if name not in self._methods:
            methods = {n for base in self._wrapped.__mro__[:-1] for n, value in vars(base).items() if callable(value)}
            if name not in methods:
                public = sorted(n for n in methods if not n.startswith("_"))
                raise AttributeError(
                    f"{self._wrapped.__name__} has no method {name!r}; it has: {', '.join(public) or '(none)'}."
                    f"{did_you_mean(name, public)} Attributes that __init__ sets exist only in workers."
                )
            self._methods[name] = BoundMethod(self, name, getattr(self._wrapped, name))
        return self._methods[name]

    def _built(self) -> Any:
        """Return an instance in this process, for calls with plain values."""
        with self._lock:
            if self._local is None:
                self._local = self._wrapped(*self._init[0], **self._init[1])
            return self._local


class BoundMethod(OptionsAsAttributes):
    """A method of a ``cls`` instance. It has one spec, so that equal calls are recognized as equal."""

    def __init__(self, owner: ClsInstance, name: str, function: Callable[..., Any]) -> None:
        self._owner = owner
        self._name = name
        self._function = function
        attached: tuple[Options, bool] = getattr(function, _OPTIONS_ATTRIBUTE, ({}, False))
        self._options = {**owner._options, **attached[0]}
        self._is_batch = attached[1]
        self._has_self = not isinstance(inspect.getattr_static(owner._wrapped, name), staticmethod | classmethod)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _has_expression(args, kwargs):
            return getattr(self._owner._built(), self._name)(*args, **kwargs)
        check_signature(self._function, self._spec.name, (None, *args) if self._has_self else args, kwargs)
        hints = parameter_hints(self._function, is_method=self._has_self)
        return _build_call(self._spec, hints, bool(self._options.get("unnest")), args, kwargs)

    @functools.cached_property
    def _spec(self) -> UdfSpec:
        owner = self._owner
        init_args, init_kwargs = owner._init
        method = Target(owner._wrapped, self._name, init_args, tuple(init_kwargs.items()), owner._key)
        return make_spec(self._function, self._options, is_batch=self._is_batch, method=method)

    def __repr__(self) -> str:
        return f"<method {self._name} of {self._owner!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._owner, self._name)


@overload
def cls(wrapped: type[C], /, **options: Unpack[ClsOptions]) -> type[C]: ...
@overload
def cls(**options: Unpack[ClsOptions]) -> ClassDecorator: ...
@taking_options("cls", ClsOptions)
def cls(wrapped: type | None = None, **options: Any) -> Any:
    """Make a class whose instances live in the workers: built once in each, then called for every row or batch.

    For type checkers the class keeps its type; decorate methods with ``ps.method``, so that checkers let them take
    columns.

    >>> @ps.cls
    ... class Adder:
    ...     def __init__(self, amount: int):
    ...         self.amount = amount
    ...     def __call__(self, x: int) -> int:
    ...         return x + self.amount
    >>> ps.from_pydict({"a": [1, 2]}).select(Adder(10)(ps.col("a"))).to_pydict()
    {'a': [11, 12]}
    """
    return _apply(lambda decorated: Cls(decorated, options), wrapped)


func = _FuncDecorator()
method = _MethodDecorator()
