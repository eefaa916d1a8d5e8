"""``func``, ``cls`` and ``method``: from Python functions and classes to expressions.

A decorated function given an expression builds one; given plain values it simply runs.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import threading
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.column import Expression
from penstock.expr.nodes import Expr, PythonValue, UdfCall, Unnest
from penstock.expr.udf import BatchSize, OnError, Resources, Target, UdfSpec
from penstock.types import DataType
from penstock.udf.file_arguments import with_files
from penstock.udf.options import (
    BATCH_OPTIONS,
    INHERITED,
    Options,
    check_known,
    exception_classes,
    make_limits,
    make_policy,
    refusing_unknown,
)
from penstock.udf.pil_images import pil_parameters

_SEVERAL = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
_OPTIONS_ATTRIBUTE = "__penstock_options__"


def make_spec(
    function: Callable[..., Any],
    options: Options,
    *,
    target: Callable[..., Any] | None = None,
    method: str | None = None,
    init: tuple[tuple[Any, ...], dict[str, Any]] = ((), {}),
    owner: str | None = None,
) -> UdfSpec:
    """Return the spec of a function, or of ``method`` of the class ``target``."""
    name = getattr(function, "__name__", type(function).__name__)
    if method is not None and target is not None:
        name = target.__name__ if method == "__call__" else f"{target.__name__}.{method}"
    options.checked(name)
    hint = _return_hint(function)
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if options.is_batch and is_generator:
        raise InvalidArgumentError(f"{name}: a batch function returns one value a row and cannot be a generator")
    if is_async and options.use_process:
        raise InvalidArgumentError(f"{name}: an async function runs on one event loop; use_process is not for it")
    is_generator = is_generator or (not options.is_batch and get_origin(hint) in _SEVERAL)
    return UdfSpec(
        name=name,
        target=Target(
            target or function,
            method=method,
            init_args=init[0],
            init_kwargs=tuple(init[1].items()),
            owner=owner,
            is_batch=options.is_batch,
            is_async=is_async,
            is_generator=is_generator,
            pil_parameters=pil_parameters(function, is_method=method is not None),
        ),
        return_dtype=_return_dtype(name, options, hint, is_generator),
        batch_size=options.batch_size,
        limits=make_limits(
            name, options.max_batch_bytes, options.max_batch_tokens, options.batch_weight, options.split_on
        ),
        resources=Resources(
            cpus=options.cpus,
            gpus=options.gpus,
            max_workers=options.max_concurrency,
            use_process=options.use_process,
            ray_options=tuple((options.ray_options or {}).items()),
        ),
        policy=make_policy(
            name,
            on_error=options.on_error or "raise",
            max_retries=options.max_retries or 0,
            retry_on=exception_classes(name, "retry_on", options.retry_on),
            max_errors=options.max_errors,
            timeout_s=options.timeout,
            can_stop=is_async or bool(options.use_process) or options.gpus > 0,
        ),
        cache=options.cache,
        version=options.version,
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


def build_call(spec: UdfSpec, unnest: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Expression:
    """Return the expression that calls ``spec`` with these arguments."""
    given = tuple(map(_argument, args)), tuple((n, _argument(v)) for n, v in kwargs.items())
    call = UdfCall(spec, *with_files(spec, *given))
    return Expression(Unnest(call) if unnest else call)


def _argument(value: Any) -> Expr:
    return value._node if isinstance(value, Expression) else PythonValue(value)


def _has_expression(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(isinstance(value, Expression) for value in (*args, *kwargs.values()))


class Func:
    """A decorated function: builds an expression when given one, otherwise just runs."""

    def __init__(self, function: Any, options: Options) -> None:
        if inspect.isclass(function) or not callable(function):
            raise InvalidArgumentError(f"func decorates a function; got {function!r}. For a class, use cls")
        functools.update_wrapper(self, function)
        self._function = function
        self._unnest = options.unnest
        self._spec = make_spec(function, options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _has_expression(args, kwargs):
            check_signature(self._function, self._spec.name, args, kwargs)
            return build_call(self._spec, self._unnest, args, kwargs)
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<func {self._spec.name}{inspect.signature(self._function)}>"

    def __penstock_key__(self) -> Any:
        """Return what it is known by (``plan/identity/code_keys.py``)."""
        return self._function

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_func, (self._function, self._unnest, self._spec)


def _restore_func(function: Callable[..., Any], unnest: bool, spec: UdfSpec) -> Func:
    restored = Func.__new__(Func)
    functools.update_wrapper(restored, function)
    restored._function, restored._unnest, restored._spec = function, unnest, spec
    return restored


def check_signature(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that ``function`` would refuse; one of C may not tell."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        raise InvalidArgumentError(f"{name}: {exc}; it is defined as {name}{signature}") from None


class _FuncDecorator:
    """``@func``, ``@func(...)`` and ``@func.batch(...)``."""

    @refusing_unknown("func")
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
        max_errors: int | float | None = None,
        timeout: float | None = None,
        cache: bool = False,
        version: str | None = None,
        ray_options: dict[str, Any] | None = None,
    ) -> Any:
        """Make a function of single values work on columns, row by row.

        With ``cache=True`` its results are stored and used again for the same code and arguments. ``version`` stands
        for the code then and in jobs: change it when the results change. See ``docs/DURABLE.md``.

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
            on_error, ray_options, max_errors, timeout, cache=cache, version=version,
        )  # fmt: skip
        return self._decorate(function, options)

    @refusing_unknown("func.batch")
    def batch(
        self,
        function: Callable[..., Any] | None = None,
        *,
        return_dtype: Any = None,
        unnest: bool = False,
        batch_size: BatchSize = "auto",
        max_batch_bytes: int | str | None = None,
        max_batch_tokens: int | None = None,
        batch_weight: Callable[..., Any] | None = None,
        split_on: Any = None,
        cpus: float | None = None,
        gpus: float = 0,
        use_process: bool | None = None,
        max_concurrency: int | None = None,
        max_retries: int | None = None,
        retry_on: Any = None,
        on_error: OnError | None = None,
        max_errors: int | float | None = None,
        timeout: float | None = None,
        cache: bool = False,
        version: str | None = None,
        ray_options: dict[str, Any] | None = None,
    ) -> Any:
        """Make a function of whole ``Series`` work on columns, batch by batch.

        A ``batch_size`` of ``auto`` is found by measurement; None takes batches as they come. ``max_batch_bytes`` and
        ``max_batch_tokens`` bound what a batch weighs; see ``docs/BATCHES.md``.

        >>> @ps.func.batch(return_dtype=ps.DataType.int64())
        ... def double(x):
        ...     return x.to_numpy() * 2
        >>> ps.from_pydict({"a": [1, 2]}).select(double(ps.col("a"))).to_pydict()
        {'a': [2, 4]}
        """
        options = Options(
            return_dtype, unnest, True, batch_size, cpus, gpus, use_process, max_concurrency, max_retries, retry_on,
            on_error, ray_options, max_errors, timeout, max_batch_bytes, max_batch_tokens, batch_weight, split_on,
            cache, version,
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
    check_known(
        "method", given, ["return_dtype", "unnest", *INHERITED, *(("batch_size", *BATCH_OPTIONS) if is_batch else ())]
    )
    return Options(is_batch=is_batch, **given)


class Cls:
    """A decorated class. Calling it keeps the arguments; a worker builds the instance."""

    def __init__(self, wrapped: type, options: Options) -> None:
        if not inspect.isclass(wrapped):
            raise InvalidArgumentError(f"cls decorates a class; got {wrapped!r}. For a function, use func")
        functools.update_wrapper(self, wrapped, updated=())
        self._wrapped = wrapped
        self._options = options.checked(wrapped.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> ClsInstance:
        check_signature(self._wrapped, self._wrapped.__name__, args, kwargs)
        return ClsInstance(self._wrapped, self._options, args, kwargs, uuid.uuid4().hex)

    def __getattr__(self, name: str) -> Any:
        """Give what the class holds, so that its own code may say ``Model.CONSTANT``."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Let other classes be derived from it, to be decorated in their turn."""
        return (self._wrapped,)

    def __repr__(self) -> str:
        return f"<cls {self._wrapped.__name__}>"

    def __penstock_key__(self) -> Any:
        return self._wrapped


class ClsInstance:
    """Stands for an object to be built in each worker, known there by ``key``. Its methods give expressions."""

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
        return self._wrapped, *self._init

    def _method(self, name: str) -> BoundMethod:
        if name not in self._methods:
            methods = {n for base in self._wrapped.__mro__[:-1] for n, value in vars(base).items() if callable(value)}
            if name not in methods:
                public = sorted(n for n in methods if not n.startswith("_"))
                raise AttributeError(
                    f"{self._wrapped.__name__} has no method {name!r}; it has: {', '.join(public) or '(none)'}."
                    f"{did_you_mean(name, public)} What __init__ sets is there in the workers only."
                )
            self._methods[name] = BoundMethod(self, name, getattr(self._wrapped, name))
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
        self._is_static = isinstance(inspect.getattr_static(owner._wrapped, name), staticmethod)
        self._spec: UdfSpec | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _has_expression(args, kwargs):
            return getattr(self._owner._built(), self._name)(*args, **kwargs)
        if self._spec is None:
            owner = self._owner
            self._spec = make_spec(
                self._function,
                self._options,
                target=owner._wrapped,
                method=self._name,
                init=owner._init,
                owner=owner._key,
            )
        given = args if self._is_static else (None, *args)
        check_signature(self._function, self._spec.name, given, kwargs)
        return build_call(self._spec, self._options.unnest, args, kwargs)

    def __repr__(self) -> str:
        return f"<method {self._name} of {self._owner!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._owner, self._name)


@refusing_unknown("cls")
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
    max_errors: int | float | None = None,
    timeout: float | None = None,
    cache: bool = False,
    version: str | None = None,
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
        retry_on=retry_on, on_error=on_error, ray_options=ray_options, max_errors=max_errors, timeout=timeout,
        cache=cache, version=version,
    )  # fmt: skip
    return Cls(wrapped, options) if wrapped is not None else lambda decorated: Cls(decorated, options)


func = _FuncDecorator()
method = _MethodDecorator()
