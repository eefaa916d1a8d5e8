"""``func``, ``cls`` and ``method``: from Python functions and classes to expressions.

A decorated function given an expression builds one; given plain values it simply runs.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import threading
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.column import Expression
from penstock.expr.nodes import Expr, PythonValue, UdfCall, Unnest
from penstock.expr.udf import BatchSize, OnError, Policy, Resources, UdfSpec
from penstock.types import DataType

_SEVERAL = (collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator)
_OPTIONS_ATTRIBUTE = "__penstock_options__"


@dataclass(frozen=True, slots=True)
class Options:
    """What the decorators take, before it is known what they decorate."""

    return_dtype: Any = None
    unnest: bool = False
    is_batch: bool = False
    batch_size: BatchSize = "auto"
    cpus: float | None = None
    gpus: float = 0
    use_process: bool | None = None
    max_concurrency: int | None = None
    max_retries: int | None = None
    retry_on: Any = None
    on_error: OnError | None = None
    ray_options: dict[str, Any] | None = None

    def checked(self, name: str) -> Options:
        """Return the options, or raise an error that names the function and what is accepted."""
        for option in ("max_concurrency", "batch_size"):
            value = getattr(self, option)
            if value in (None, "auto"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidArgumentError(f"{name}: {option} must be a whole number of 1 or more; got {value!r}")
        if self.max_retries is not None and self.max_retries < 0:
            raise InvalidArgumentError(f"{name}: max_retries must be 0 or more; got {self.max_retries!r}")
        if self.gpus < 0 or (self.cpus is not None and self.cpus < 0):
            raise InvalidArgumentError(f"{name}: cpus and gpus cannot be negative")
        check_on_error(self.on_error, name)
        return self

    def or_else(self, defaults: Options) -> Options:
        """Return these options with those left open taken from ``defaults``, a class's for its method's."""
        chosen = {f: getattr(self, f) if getattr(self, f) != getattr(_OPEN, f) else getattr(defaults, f) for f in _INHERITED}
        return replace(self, **chosen)


_OPEN = Options()
_INHERITED = ("cpus", "gpus", "use_process", "max_concurrency", "max_retries", "retry_on", "on_error", "ray_options")


def check_on_error(on_error: Any, name: str) -> None:
    if on_error not in (None, "raise", "log", "ignore"):
        raise InvalidArgumentError(
            f"{name}: on_error={on_error!r} is not known; use 'raise', 'log' or 'ignore'."
            f"{did_you_mean(str(on_error), ['raise', 'log', 'ignore'])}"
        )


def make_spec(
    function: Callable[..., Any],
    options: Options,
    *,
    target: Callable[..., Any] | None = None,
    method: str | None = None,
    init: tuple[tuple[Any, ...], dict[str, Any]] = ((), {}),
) -> UdfSpec:
    """Return the spec of a function, or of ``method`` of the class ``target``."""
    name = getattr(function, "__name__", type(function).__name__)
    if method is not None and target is not None:
        name = target.__name__ if method == "__call__" else f"{target.__name__}.{method}"
    options.checked(name)
    hint = _return_hint(function)
    is_generator = inspect.isgeneratorfunction(function) or (not options.is_batch and get_origin(hint) in _SEVERAL)
    return UdfSpec(
        name=name,
        target=target or function,
        return_dtype=_return_dtype(name, options, hint, is_generator),
        is_batch=options.is_batch,
        is_async=inspect.iscoroutinefunction(function),
        is_generator=is_generator,
        method=method,
        init_args=init[0],
        init_kwargs=tuple(init[1].items()),
        batch_size=options.batch_size,
        resources=Resources(
            cpus=options.cpus,
            gpus=options.gpus,
            max_workers=options.max_concurrency,
            use_process=options.use_process,
            ray_options=tuple((options.ray_options or {}).items()),
        ),
        policy=Policy(
            on_error=options.on_error or "raise",
            max_retries=options.max_retries or 0,
            retry_on=_exception_classes(options.retry_on, name),
        ),
    )


def _return_hint(function: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(function).get("return")
    except (NameError, TypeError):  # a name only known to the type checker
        return getattr(function, "__annotations__", {}).get("return")


def _return_dtype(name: str, options: Options, hint: Any, is_generator: bool) -> DataType:
    if options.return_dtype is not None:
        return DataType.of(options.return_dtype)
    if options.is_batch or hint is None or isinstance(hint, str):
        example = "return_dtype=ps.DataType.string()"
        remedy = f"give {example}" if options.is_batch else f"annotate it (`-> str`) or give {example}"
        raise InvalidArgumentError(f"{name}: the type of its results is not known; {remedy}")
    if is_generator:
        if not get_args(hint):
            raise InvalidArgumentError(f"{name}: a generator must say what it yields, such as `-> Iterator[str]`")
        hint = get_args(hint)[0]
    return DataType.from_hint(hint)


def _exception_classes(given: Any, name: str) -> tuple[type[BaseException], ...]:
    classes = () if given is None else tuple(given) if isinstance(given, (tuple, list)) else (given,)
    for cls_ in classes:
        if not (isinstance(cls_, type) and issubclass(cls_, BaseException)):
            raise InvalidArgumentError(f"{name}: retry_on takes exception classes; got {cls_!r}")
    return classes


def build_call(spec: UdfSpec, unnest: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Expression:
    """Return the expression that calls ``spec`` with these arguments."""
    call = UdfCall(spec, tuple(map(_argument, args)), tuple((n, _argument(v)) for n, v in kwargs.items()))
    return Expression(Unnest(call) if unnest else call)


def _argument(value: Any) -> Expr:
    return value._node if isinstance(value, Expression) else PythonValue(value)


def _has_expression(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(isinstance(value, Expression) for value in (*args, *kwargs.values()))


class Func:
    """A decorated function: builds an expression when given one, otherwise just runs."""

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._unnest = options.unnest
        self._spec = make_spec(function, options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _has_expression(args, kwargs):
            _check_signature(self._function, self._spec.name, args, kwargs)
            return build_call(self._spec, self._unnest, args, kwargs)
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_func, (self._function, self._unnest, self._spec)


def _restore_func(function: Callable[..., Any], unnest: bool, spec: UdfSpec) -> Func:
    restored = Func.__new__(Func)
    functools.update_wrapper(restored, function)
    restored._function, restored._unnest, restored._spec = function, unnest, spec
    return restored


def _check_signature(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as exc:
        raise InvalidArgumentError(f"{name}: {exc}; it is defined as {name}{inspect.signature(function)}") from None


class _FuncDecorator:
    """``@func``, ``@func(...)`` and ``@func.batch(...)``."""

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        *,
        return_dtype: Any = None,
        unnest: bool = False,
        cpus: float | None = None,
        gpus: float = 0,
        use_process: bool | None = None,
        max_concurrency: int | None = None,
        max_retries: int | None = None,
        retry_on: Any = None,
        on_error: OnError | None = None,
        ray_options: dict[str, Any] | None = None,
    ) -> Any:
        """Make a function of single values work on columns, row by row.

        >>> @ps.func
        ... def shout(text: str) -> str:
        ...     return text.upper() + "!"
        >>> ps.from_pydict({"t": ["hi"]}).select(shout(ps.col("t"))).to_pydict()
        {'t': ['HI!']}
        >>> shout("hello")
        'HELLO!'
        """
        options = Options(
            return_dtype, unnest, False, "auto", cpus, gpus, use_process, max_concurrency, max_retries, retry_on,
            on_error, ray_options,
        )  # fmt: skip
        return self._decorate(function, options)

    def batch(
        self,
        function: Callable[..., Any] | None = None,
        *,
        return_dtype: Any = None,
        unnest: bool = False,
        batch_size: BatchSize = "auto",
        cpus: float | None = None,
        gpus: float = 0,
        use_process: bool | None = None,
        max_concurrency: int | None = None,
        max_retries: int | None = None,
        retry_on: Any = None,
        on_error: OnError | None = None,
        ray_options: dict[str, Any] | None = None,
    ) -> Any:
        """Make a function of whole ``Series`` work on columns, batch by batch.

        >>> @ps.func.batch(return_dtype=ps.DataType.int64())
        ... def double(x):
        ...     return x.to_numpy() * 2
        >>> ps.from_pydict({"a": [1, 2]}).select(double(ps.col("a"))).to_pydict()
        {'a': [2, 4]}
        """
        options = Options(
            return_dtype, unnest, True, batch_size, cpus, gpus, use_process, max_concurrency, max_retries, retry_on,
            on_error, ray_options,
        )  # fmt: skip
        return self._decorate(function, options)

    def _decorate(self, function: Callable[..., Any] | None, options: Options) -> Any:
        return Func(function, options) if function is not None else lambda decorated: Func(decorated, options)


class _MethodDecorator:
    """``@method``, ``@method(...)`` and ``@method.batch(...)``: notes options on a method for ``cls`` to find."""

    def __call__(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Set options of one method of a ``cls`` class: those of ``func``."""
        return self._note(function, _method_options(options, is_batch=False))

    def batch(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Make a method of a ``cls`` class take whole ``Series``: the options are those of ``func.batch``."""
        return self._note(function, _method_options(options, is_batch=True))

    def _note(self, function: Callable[..., Any] | None, options: Options) -> Any:
        def note(decorated: Callable[..., Any]) -> Callable[..., Any]:
            setattr(decorated, _OPTIONS_ATTRIBUTE, options)
            return decorated

        return note(function) if function is not None else note


def _method_options(given: dict[str, Any], *, is_batch: bool) -> Options:
    known = ["return_dtype", "unnest", *_INHERITED, *(["batch_size"] if is_batch else [])]
    for name in given:
        if name not in known:
            raise InvalidArgumentError(
                f"method option {name!r} is not known; known: {', '.join(known)}.{did_you_mean(name, known)}"
            )
    return Options(is_batch=is_batch, **given)


class Cls:
    """A decorated class. Calling it keeps the arguments; a worker builds the instance."""

    def __init__(self, wrapped: type, options: Options) -> None:
        functools.update_wrapper(self, wrapped, updated=())
        self._wrapped = wrapped
        self._options = options.checked(wrapped.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> ClsInstance:
        _check_signature(self._wrapped, self._wrapped.__name__, args, kwargs)
        return ClsInstance(self._wrapped, self._options, args, kwargs)


class ClsInstance:
    """Stands for an object to be built in each worker. Its methods give expressions."""

    def __init__(self, wrapped: type, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._wrapped = wrapped
        self._options = options
        self._init = (args, kwargs)
        self._methods: dict[str, BoundMethod] = {}
        self._local: Any = None
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("__call__")(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._method(name)

    def _method(self, name: str) -> BoundMethod:
        if name not in self._methods:
            function = getattr(self._wrapped, name, None)
            if not callable(function):
                methods = [n for n in dir(self._wrapped) if not n.startswith("_")]
                raise AttributeError(f"{self._wrapped.__name__} has no method {name!r}.{did_you_mean(name, methods)}")
            self._methods[name] = BoundMethod(self, name, function)
        return self._methods[name]

    def _built(self) -> Any:
        """Return an instance in this process, for calls without an expression."""
        with self._lock:
            if self._local is None:
                self._local = self._wrapped(*self._init[0], **self._init[1])
            return self._local


class BoundMethod:
    """A method of a ``cls`` instance; its spec is made once, so that equal calls are known to be equal."""

    def __init__(self, owner: ClsInstance, name: str, function: Callable[..., Any]) -> None:
        self._owner = owner
        self._name = name
        self._function = function
        noted: Options = getattr(function, _OPTIONS_ATTRIBUTE, Options())
        self._options = noted.or_else(owner._options)
        self._spec: UdfSpec | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _has_expression(args, kwargs):
            return getattr(self._owner._built(), self._name)(*args, **kwargs)
        if self._spec is None:
            wrapped, init = self._owner._wrapped, self._owner._init
            self._spec = make_spec(self._function, self._options, target=wrapped, method=self._name, init=init)
        _check_signature(self._function, self._spec.name, (None, *args), kwargs)
        return build_call(self._spec, self._options.unnest, args, kwargs)


def cls(
    wrapped: type | None = None,
    *,
    cpus: float | None = None,
    gpus: float = 0,
    use_process: bool | None = None,
    max_concurrency: int | None = None,
    max_retries: int | None = None,
    retry_on: Any = None,
    on_error: OnError | None = None,
    ray_options: dict[str, Any] | None = None,
) -> Any:
    """Make a class whose instances live in the workers: built once in each, then called for every row or batch.

    >>> @ps.cls
    ... class Adder:
    ...     def __init__(self, amount: int):
    ...         self.amount = amount
    ...     def __call__(self, x: int) -> int:
    ...         return x + self.amount
    >>> ps.from_pydict({"a": [1, 2]}).select(Adder(10)(ps.col("a"))).to_pydict()
    {'a': [11, 12]}
    """
    options = Options(
        cpus=cpus, gpus=gpus, use_process=use_process, max_concurrency=max_concurrency, max_retries=max_retries,
        retry_on=retry_on, on_error=on_error, ray_options=ray_options,
    )  # fmt: skip
    return Cls(wrapped, options) if wrapped is not None else lambda decorated: Cls(decorated, options)


func = _FuncDecorator()
method = _MethodDecorator()
